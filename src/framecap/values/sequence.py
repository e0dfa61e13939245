"""Tuples, lists, slices and ranges that hold symbolic values, or come from outside and are read item by item."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from .base import Args, Kwargs, Raised, Value
from .constant import UNKNOWN, Const, constant_of, from_real, real_call
from .exception import ExceptionValue
from .method import BuiltinMethod

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


def index_error(kind: str) -> Raised:
    return Raised(ExceptionValue(IndexError, [Const(f"{kind} index out of range")]))


class _Sequence(Value):
    """Shared by tuples and lists: ``items`` in order. ``cls`` is the exact type."""

    __slots__ = ("_items", "cls")
    kind = "sequence"

    def __init__(self, items: list[Value], cls: type, source: Source | None = None) -> None:
        super().__init__(source)
        self._items = items
        self.cls = cls

    @property
    def items(self) -> list[Value]:
        return self._items

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Region) -> bool:
        return bool(self.items)

    def length(self, tx: Region) -> int:
        return len(self.items)

    def contains(self, tx: Region, item: Value) -> bool:
        return any(tx.matches(item, other) for other in list(self.items))

    def iterate(self, tx: Region) -> Value:
        from .iterator import SequenceIterator

        return SequenceIterator(self, None)

    def unpack(self, tx: Region) -> list[Value]:
        return list(self.items)

    def _select(self, tx: Region, key: Value) -> Value | list[Value]:
        real = constant_of(tx, key)
        if real is UNKNOWN or isinstance(real, (float, str)):
            if isinstance(key, Const):
                real_call(operator.getitem, self.cls() if self.cls in (list, tuple) else (), real)
            self.refuse(f"subscripting with {key.describe()}")
        if isinstance(real, slice):
            return list(real_call(operator.getitem, self.items, real))
        real = operator.index(real)
        if not -len(self.items) <= real < len(self.items):
            raise index_error(self.kind)
        return self.items[real]


class TupleValue(_Sequence):
    """A tuple, torch.Size, or named tuple."""

    __slots__ = ()
    kind = "tuple"

    def __init__(self, items: list[Value], cls: type = tuple, source: Source | None = None) -> None:
        super().__init__(items, cls, source)

    def getattr(self, tx: Region, name: str) -> Value:
        if self.cls in (tuple, torch.Size):
            if name in ("count", "index"):
                return BuiltinMethod(self, name, self._search)
            if self.cls is torch.Size and name == "numel":
                return BuiltinMethod(self, name, self._numel)
            if name == "__class__":
                from .function import ClassValue

                return ClassValue(self.cls)
            if not hasattr(self.cls, name):
                message = f"{self.cls.__name__!r} object has no attribute {name!r}"
                raise Raised(ExceptionValue(AttributeError, [Const(message)]))
            return super().getattr(tx, name)
        from .lookup import class_getattr

        return class_getattr(tx, self, self.cls, name, self._field)

    def _field(self, tx: Region, name: str) -> Value | None:
        return None

    def _search(self, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
        hits = [i for i, v in enumerate(self.items) if tx.matches(v, args[0])]
        if name == "count":
            return Const(len(hits))
        if not hits:
            raise Raised(ExceptionValue(ValueError, [Const("tuple.index(x): x not in tuple")]))
        return Const(hits[0])

    def _numel(self, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
        total: Value = Const(1)
        for item in self.items:
            total = tx.binary(operator.mul, total, item)
        return total

    def getitem(self, tx: Region, key: Value) -> Value:
        if self.cls not in (tuple, torch.Size) and (method := user_method(self.cls, tuple, "__getitem__")):
            return tx.call_method_of(self, method, "__getitem__", [key])
        found = self._select(tx, key)
        if isinstance(found, list):
            return TupleValue(found, torch.Size if self.cls is torch.Size else tuple)
        return found

    def length(self, tx: Region) -> int:
        if self.cls not in (tuple, torch.Size) and (method := user_method(self.cls, tuple, "__len__")):
            return int(constant_of(tx, tx.call_method_of(self, method, "__len__", [])))
        return len(self.items)

    def iterate(self, tx: Region) -> Value:
        if self.cls not in (tuple, torch.Size) and user_method(self.cls, tuple, "__iter__"):
            self.refuse("iteration with an __iter__ of its own")
        return super().iterate(tx)

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        raise Raised(ExceptionValue(TypeError, [Const("'tuple' object does not support item assignment")]))

    def hash_key(self, tx: Region) -> Any:
        if self.cls is not tuple:
            self.refuse("use as a dict key")
        return tuple(item.hash_key(tx) for item in self.items)

    def as_argument(self, tx: Region) -> Any:
        items = [item.as_argument(tx) for item in self.items]
        if self.cls in (tuple, torch.Size):
            return tuple(items)
        if hasattr(self.cls, "_fields"):
            return self.cls(*items)
        return super().as_argument(tx)

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        parts = [emitter.value(item) for item in list.__iter__(self.items)]
        inner = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if self.cls is tuple:
            return inner
        if self.cls is torch.Size:
            return f"{emitter.object(torch.Size, 'Size')}({inner})"
        return f"{emitter.object(tuple.__new__, 'tuple_new')}({emitter.object(self.cls, self.cls.__name__)}, {inner})"


class ListValue(_Sequence):
    """A list, made here or from outside. An outside list that is changed gets its changes replayed as effects.

    ``load`` gives the items of an outside list and guards its length. It is called when something depends on them:
    appending doesn't, so a list that only grows is never guarded.
    """

    __slots__ = ("load", "tx")
    kind = "list"

    def __init__(
        self, items: list[Value], cls: type = list, source: Source | None = None, load: Any = None, tx: Any = None
    ) -> None:
        self.load = load
        self.tx = tx
        super().__init__(items, cls, source)

    @property
    def items(self) -> list[Value]:
        if self.load is not None:
            load, added = self.load, self._items

            def undo() -> None:
                self.load, self._items = load, added

            self.tx.undo_later(undo)
            self.load = None
            self._items = load()
            list.extend(self._items, added)
        return self._items

    def getattr(self, tx: Region, name: str) -> Value:
        if name in _LIST_METHODS:
            return BuiltinMethod(self, name, _LIST_METHODS[name])
        if name == "__class__":
            from .function import ClassValue

            return ClassValue(self.cls)
        if not hasattr(list, name):
            raise Raised(ExceptionValue(AttributeError, [Const(f"'list' object has no attribute {name!r}")]))
        return super().getattr(tx, name)

    def getitem(self, tx: Region, key: Value) -> Value:
        found = self._select(tx, key)
        return ListValue(found) if isinstance(found, list) else found

    def will_change(self, tx: Region) -> None:
        """Register the present items for rollback; call before every change."""
        before = list.copy(self.items)

        def undo() -> None:
            self.items[:] = before

        tx.undo_later(undo)

    def change(self, tx: Region, kind: str, *operands: Any) -> None:
        """Log a change for replay if the list exists outside."""
        if self.source is not None:
            tx.record(kind, self, *operands)

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        real = constant_of(tx, key)
        if real is UNKNOWN:
            self.refuse(f"item assignment with {key.describe()}")
        if isinstance(real, slice):
            new: Any = value.unpack(tx)
        else:
            new = value
            real = real_call(operator.index, real)
            if not -len(self.items) <= real < len(self.items):
                raise Raised(ExceptionValue(IndexError, [Const("list assignment index out of range")]))
        self.will_change(tx)
        real_call(operator.setitem, self.items, real, new)
        self.change(tx, "setitem", from_real(real), ListValue(new) if isinstance(real, slice) else new)

    def delitem(self, tx: Region, key: Value) -> None:
        real = constant_of(tx, key)
        if real is UNKNOWN:
            self.refuse(f"item deletion with {key.describe()}")
        self.will_change(tx)
        real_call(operator.delitem, self.items, real)
        self.change(tx, "delitem", from_real(real))

    def append(self, tx: Region, item: Value) -> None:
        self._grow(tx, [item])
        self.change(tx, "method", "append", item)

    def extend(self, tx: Region, more: list[Value]) -> None:
        self._grow(tx, more)
        self.change(tx, "method", "extend", ListValue(list(more)))

    def _grow(self, tx: Region, more: list[Value]) -> None:
        items = self._items
        before = len(items)

        def undo() -> None:
            del items[before:]

        tx.undo_later(undo)
        items.extend(more)

    def hash_key(self, tx: Region) -> Any:
        raise Raised(ExceptionValue(TypeError, [Const("unhashable type: 'list'")]))

    def as_argument(self, tx: Region) -> Any:
        return [item.as_argument(tx) for item in self.items]

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        return emitter.container(self, "[]", lambda name: self._fill(emitter, name))

    def _fill(self, emitter: Emitter, name: str) -> None:
        if self.items:
            emitter.line(f"{name}[:] = ({', '.join(emitter.value(item) for item in list.__iter__(self.items))},)")


def _append(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    (item,) = args
    lst.append(tx, item)
    return Const(None)


def _extend(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    (more,) = args
    lst.extend(tx, more.unpack(tx))
    return Const(None)


def _insert(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    position = constant_of(tx, args[0])
    if position is UNKNOWN:
        lst.refuse("insert() at an unknown position")
    lst.will_change(tx)
    real_call(lst.items.insert, position, args[1])
    lst.change(tx, "method", "insert", Const(position), args[1])
    return Const(None)


def _pop(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    position = constant_of(tx, args[0]) if args else -1
    if position is UNKNOWN:
        lst.refuse("pop() at an unknown position")
    lst.will_change(tx)
    item = force(tx, real_call(lst.items.pop, position))
    lst.change(tx, "method", "pop", Const(position))
    return item


def _clear(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    lst.will_change(tx)
    lst.items.clear()
    lst.change(tx, "method", "clear")
    return Const(None)


def _reverse(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    lst.will_change(tx)
    lst.items.reverse()
    lst.change(tx, "method", "reverse")
    return Const(None)


def _copy(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(list(lst.items))


def _find(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        lst.refuse("index() with a range")
    hits = [i for i, v in enumerate(lst.items) if tx.matches(v, args[0])]
    if name == "count":
        return Const(len(hits))
    if not hits:
        reason = "list.remove(x): x not in list" if name == "remove" else f"{args[0].describe()} is not in list"
        raise Raised(ExceptionValue(ValueError, [Const(reason)]))
    if name == "remove":
        lst.delitem(tx, Const(hits[0]))
        return Const(None)
    return Const(hits[0])


def _sort(lst: ListValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    items = tx.sorted_items(lst.items, kwargs)
    lst.will_change(tx)
    lst.items[:] = items
    lst.change(tx, "setitem", SliceValue([Const(None)] * 3), ListValue(items))
    return Const(None)


_LIST_METHODS: dict[str, Any] = {
    "append": _append, "extend": _extend, "insert": _insert, "pop": _pop, "clear": _clear, "reverse": _reverse,
    "copy": _copy, "index": _find, "count": _find, "remove": _find, "sort": _sort,
}  # fmt: skip


class SliceValue(Value):
    """slice(start, stop, step) of values."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Value]) -> None:
        super().__init__()
        self.parts = parts

    def python_type(self) -> type:
        return slice

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().getattr(tx, name)

    def as_argument(self, tx: Region) -> Any:
        return slice(*(part.as_argument(tx) for part in self.parts))

    def emit(self, emitter: Emitter) -> str:
        return f"slice({', '.join(emitter.value(part) for part in self.parts)})"


class RangeValue(Value):
    """A range with known ends."""

    __slots__ = ("value",)

    def __init__(self, value: range, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return range

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return Const(getattr(self.value, name))
        return super().getattr(tx, name)

    def truth(self, tx: Region) -> bool:
        return bool(self.value)

    def length(self, tx: Region) -> int:
        return int(real_call(len, self.value))

    def getitem(self, tx: Region, key: Value) -> Value:
        real = constant_of(tx, key)
        if real is UNKNOWN:
            self.refuse(f"subscripting with {key.describe()}")
        return from_real(real_call(operator.getitem, self.value, real))

    def contains(self, tx: Region, item: Value) -> bool:
        real = constant_of(tx, item)
        if real is UNKNOWN:
            self.refuse("a membership test")
        return real in self.value

    def iterate(self, tx: Region) -> Value:
        from .iterator import RangeIterator

        return RangeIterator(self.value)

    def hash_key(self, tx: Region) -> Any:
        return self.value

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        return emitter.constant(self.value)


def user_method(cls: type, base: type, name: str) -> Any:
    """The method ``name`` of ``cls`` if it overrides that of the built-in ``base``, else None."""
    for owner in cls.__mro__:
        if owner is base:
            return None
        if name in owner.__dict__:
            return owner.__dict__[name]
    return None


class LazyItem(Value):
    """An item of an outside container that nobody has looked at yet: no guard stands for it so far."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def emit(self, emitter: Emitter) -> str:
        assert self.source is not None
        return emitter.input(self.source)


class LazyItems(list[Value]):
    """Items of an outside container, each wrapped (and guarded) when first looked at."""

    def __init__(self, tx: Region, items: list[Value]) -> None:
        super().__init__(items)
        self.tx = tx

    def _force(self, index: int) -> Value:
        item = super().__getitem__(index)
        if isinstance(item, LazyItem):
            item = force(self.tx, item)
        return item

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._force(i) for i in range(*index.indices(len(self)))]
        return self._force(operator.index(index))

    def __iter__(self) -> Any:
        index = 0
        while index < len(self):
            yield self._force(index)
            index += 1


def force(tx: Region, item: Value) -> Value:
    """The value proper of an item; not stored back, since a rollback would have to undo that."""
    if isinstance(item, LazyItem):
        assert item.source is not None
        return tx.wrap(item.real, item.source)
    return item
