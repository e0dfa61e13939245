"""Dicts, made here or from outside.

``entries`` maps a hash key (see `Value.hash_key`: for constants the real object, so Python's own equality decides)
to the pair of key and item. Only keys whose hashing runs no user code are modelled.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from framecap.guards import AbsentKeyGuard, Call, EqualsGuard, Item, KeysGuard

from ..errors import UNSUPPORTED_VALUE, GraphBreak
from .base import Args, Kwargs, Raised, Value
from .constant import UNKNOWN, Const, constant_of, is_immutable
from .exception import ExceptionValue
from .iterator import Iterator
from .marks import DELETED
from .method import BuiltinMethod
from .sequence import LazyItem, TupleValue, force

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region

PLAIN_DICTS = (dict, OrderedDict)


class DictValue(Value):
    """A dict, OrderedDict or defaultdict, made here or from outside.

    An outside dict (``real``) is read key by key, with a guard for each; all its keys are guarded only when something
    depends on all of them. Until then ``written`` holds what was stored (DELETED for deleted keys).
    """

    __slots__ = ("_entries", "cls", "factory", "real", "tx", "version", "written")

    def __init__(
        self,
        cls: type = dict,
        source: Source | None = None,
        factory: Value | None = None,
        real: Any = None,
        tx: Any = None,
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.factory = factory
        self.version = 0
        self.real = real
        self.tx = tx
        self._entries: dict[Any, tuple[Value, Value]] = {}
        self.written: dict[Any, tuple[Value, Any]] = {}

    @property
    def entries(self) -> dict[Any, tuple[Value, Value]]:
        """Every key and item; guards the keys of an outside dict."""
        if self.real is not None:
            real, written, source, tx = self.real, self.written, self.source, self.tx
            assert source is not None

            def undo() -> None:
                self.real, self.written, self._entries = real, written, {}

            tx.undo_later(undo)
            if isinstance(real, OrderedDict):
                # Its order is its own, not that of the dict beneath.
                keys = ordered_keys(real)
                if not all(is_immutable(key) for key in keys):
                    self.refuse("iteration")
                tx.guard(EqualsGuard(Call(ordered_keys, source), keys, where=tx.where))
            else:
                keys = tuple(dict.keys(real))
                tx.guard(KeysGuard(source, keys, where=tx.where))
            entries: dict[Any, tuple[Value, Value]] = {}
            for key in keys:
                entries[key] = (tx.constant_key(key), LazyItem(dict.__getitem__(real, key), Item(source, key)))
            for key, (name, new) in written.items():
                if new is DELETED:
                    del entries[key]
                else:
                    entries[key] = (entries[key][0] if key in entries else name, new)
            self.real, self.written, self._entries = None, {}, entries
        return self._entries

    @entries.setter
    def entries(self, entries: dict[Any, tuple[Value, Value]]) -> None:
        self._entries = entries

    def _peek(self, tx: Region, key: Value, hashed: Any) -> Value | None:
        """The item of an outside dict whose keys aren't guarded, with a guard for this key."""
        if hashed in self.written:
            found = self.written[hashed][1]
            return None if found is DELETED else found
        assert self.source is not None
        if not plain_key(hashed):
            return self._find(key, hashed)
        if hashed in self.real:
            return tx.wrap(dict.__getitem__(self.real, hashed), Item(self.source, hashed))
        tx.guard(AbsentKeyGuard(self.source, hashed, where=tx.where))
        return None

    def _find(self, key: Value, hashed: Any) -> Value | None:
        entry = self.entries.get(hashed)
        return None if entry is None else entry[1]

    def python_type(self) -> type:
        return self.cls

    def getattr(self, tx: Region, name: str) -> Value:
        if name in _DICT_METHODS:
            return BuiltinMethod(self, name, _DICT_METHODS[name])
        if name == "__class__":
            from .function import ClassValue

            return ClassValue(self.cls)
        if not hasattr(self.cls, name):
            message = f"{self.cls.__name__!r} object has no attribute {name!r}"
            raise Raised(ExceptionValue(AttributeError, [Const(message)]))
        return super().getattr(tx, name)

    def truth(self, tx: Region) -> bool:
        return bool(self.entries)

    def length(self, tx: Region) -> int:
        return len(self.entries)

    def find(self, tx: Region, key: Value) -> Value | None:
        hashed = key.hash_key(tx)
        found = self._peek(tx, key, hashed) if self.real is not None else self._find(key, hashed)
        return None if found is None else force(tx, found)

    def getitem(self, tx: Region, key: Value) -> Value:
        found = self.find(tx, key)
        if found is not None:
            return found
        if self.cls is defaultdict and self.factory is not None and not is_none(self.factory):
            made = self.factory.call(tx, [], {})
            self.setitem(tx, key, made)
            return made
        raise Raised(ExceptionValue(KeyError, [key]))

    def contains(self, tx: Region, item: Value) -> bool:
        return self.find(tx, item) is not None

    def will_change(self, tx: Region) -> None:
        before, version = dict(self.entries), self.version

        def undo() -> None:
            self.entries, self.version = before, version

        tx.undo_later(undo)

    def change(self, tx: Region, kind: str, *operands: Any) -> None:
        if self.source is not None:
            tx.record(kind, self, *operands)

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        hashed = key.hash_key(tx)
        if self.real is not None and plain_key(hashed):
            # Later stores of a key that was deleted move it to the end, as in Python's dict.
            before = self.written
            tx.undo_later(lambda: setattr(self, "written", before))
            if hashed in before and before[hashed][1] is DELETED:
                self.entries  # noqa: B018  (the order of keys now matters)
                self.setitem(tx, key, value)
                return
            self.written = {**before, hashed: (key, value)}
            self.version += 1
        else:
            self.will_change(tx)
            old = self.entries.get(hashed)
            self.version += old is None
            self.entries[hashed] = (old[0] if old else key, value)
        self.change(tx, "setitem", key, value)

    def delitem(self, tx: Region, key: Value) -> None:
        hashed = key.hash_key(tx)
        if self.find(tx, key) is None:
            raise Raised(ExceptionValue(KeyError, [key]))
        self.will_change(tx)
        self.version += 1
        del self.entries[hashed]
        self.change(tx, "delitem", key)

    def merge(self, tx: Region, other: Value) -> None:
        """``self.update(other)``."""
        for key, item in pairs_of(tx, other):
            self.setitem(tx, key, item)

    def keys(self) -> list[Value]:
        return [key for key, _ in self.entries.values()]

    def iterate(self, tx: Region) -> Value:
        return DictIterator(self, "keys")

    def unpack(self, tx: Region) -> list[Value]:
        return self.keys()

    def unpack_items(self, tx: Region) -> list[Value]:
        """``list(self.values())``."""
        return [force(tx, item) for _, item in self.entries.values()]

    def hash_key(self, tx: Region) -> Any:
        raise Raised(ExceptionValue(TypeError, [Const(f"unhashable type: {self.cls.__name__!r}")]))

    def copy(self) -> DictValue:
        new = DictValue(self.cls, factory=self.factory)
        new.entries = dict(self.entries)
        return new

    def as_argument(self, tx: Region) -> Any:
        if self.cls not in PLAIN_DICTS:
            return super().as_argument(tx)
        arguments = {}
        for key, item in self.entries.values():
            real = constant_of(tx, key)
            if real is UNKNOWN:
                key.refuse("use as a key in an operator's argument")
            arguments[real] = force(tx, item).as_argument(tx)
        return arguments

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        empty = "{}"
        if self.cls is OrderedDict:
            empty = f"{emitter.object(OrderedDict, 'OrderedDict')}()"
        elif self.cls is defaultdict:
            factory = "None" if self.factory is None else emitter.value(self.factory)
            empty = f"{emitter.object(defaultdict, 'defaultdict')}({factory})"
        elif self.cls is not dict:
            return super().emit(emitter)
        return emitter.container(self, empty, lambda name: self._fill(emitter, name))

    def _fill(self, emitter: Emitter, name: str) -> None:
        for key, item in self.entries.values():
            emitter.line(f"{name}[{emitter.value(key)}] = {emitter.value(item)}")


def ordered_keys(real: OrderedDict[Any, Any]) -> tuple[Any, ...]:
    """Keys in the order of an OrderedDict."""
    return tuple(OrderedDict.keys(real))


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def pairs_of(tx: Region, other: Value) -> list[tuple[Value, Value]]:
    """The key and item pairs that dict.update takes from ``other``."""
    if isinstance(other, DictValue):
        return [(key, force(tx, item)) for key, item in other.entries.values()]
    mapping = getattr(other, "storage", None)
    if isinstance(mapping, DictValue):
        return pairs_of(tx, mapping)
    pairs = []
    for item in other.unpack(tx):
        parts = item.unpack(tx)
        if len(parts) != 2:
            other.refuse("update() from items that aren't pairs")
        pairs.append((parts[0], parts[1]))
    return pairs


def _get(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    found = d.find(tx, args[0])
    if found is not None:
        return found
    return args[1] if len(args) > 1 else kwargs.get("default", Const(None))


def _setdefault(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    found = d.find(tx, args[0])
    if found is None:
        found = args[1] if len(args) > 1 else Const(None)
        d.setitem(tx, args[0], found)
    return found


def _pop(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    found = d.find(tx, args[0])
    if found is not None:
        d.delitem(tx, args[0])
        return found
    if len(args) > 1:
        return args[1]
    if "default" in kwargs:
        return kwargs["default"]
    raise Raised(ExceptionValue(KeyError, [args[0]]))


def _popitem(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    if args or kwargs or not d.entries:
        d.refuse("popitem() in this form")
    key, item = list(d.entries.values())[-1]
    d.delitem(tx, key)
    return TupleValue([key, force(tx, item)])


def _update(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    for other in args:
        d.merge(tx, other)
    for key, item in kwargs.items():
        d.setitem(tx, Const(key), item)
    return Const(None)


def _clear(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    d.will_change(tx)
    d.version += 1
    d.entries = {}
    d.change(tx, "method", "clear")
    return Const(None)


def _copy(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    return d.copy()


def _view(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    return DictView(d, name)


def _call_protocol(d: DictValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    if name == "__setitem__":
        d.setitem(tx, *args)
        return Const(None)
    if name == "__contains__":
        return Const(d.contains(tx, *args))
    if name == "__len__":
        return Const(d.length(tx))
    return d.getitem(tx, *args)


_DICT_METHODS: dict[str, Any] = {
    "get": _get, "setdefault": _setdefault, "pop": _pop, "popitem": _popitem, "update": _update, "clear": _clear,
    "copy": _copy, "keys": _view, "values": _view, "items": _view, "__setitem__": _call_protocol,
    "__getitem__": _call_protocol, "__contains__": _call_protocol, "__len__": _call_protocol,
}  # fmt: skip

_VIEW_TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


class DictView(Value):
    """d.keys(), d.values() or d.items()."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: DictValue, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return _VIEW_TYPES[self.name]

    def length(self, tx: Region) -> int:
        return len(self.owner.entries)

    def truth(self, tx: Region) -> bool:
        return bool(self.owner.entries)

    def contains(self, tx: Region, item: Value) -> bool:
        if self.name == "keys":
            return self.owner.contains(tx, item)
        return TupleValue(self.unpack(tx)).contains(tx, item)

    def unpack(self, tx: Region) -> list[Value]:
        return [dict_item(tx, self.name, entry) for entry in self.owner.entries.values()]

    def iterate(self, tx: Region) -> Value:
        return DictIterator(self.owner, self.name)

    def emit(self, emitter: Emitter) -> str:
        return f"{emitter.value(self.owner)}.{self.name}()"


def dict_item(tx: Region, view: str, entry: tuple[Value, Value]) -> Value:
    if view == "keys":
        return entry[0]
    if view == "values":
        return force(tx, entry[1])
    return TupleValue([entry[0], force(tx, entry[1])])


class DictIterator(Iterator):
    """iter() of a dict or view, after ``position`` items; like Python's, it notices a change of size."""

    __slots__ = ("owner", "position", "version", "view")

    def __init__(self, owner: DictValue, view: str) -> None:
        super().__init__()
        self.owner = owner
        self.view = view
        self.position = 0
        self.version = owner.version

    def python_type(self) -> type:
        return type(iter(getattr({}, self.view)()))

    def next(self, tx: Region) -> Value | None:
        if self.owner.version != self.version:
            raise GraphBreak(UNSUPPORTED_VALUE, "a dict changes while it is iterated over")
        if self.position >= len(self.owner.entries):
            return None
        before = self.position

        def undo() -> None:
            self.position = before

        tx.undo_later(undo)
        self.position += 1
        return dict_item(tx, self.view, list(self.owner.entries.values())[before])

    def emit(self, emitter: Emitter) -> str:
        name = emitter.statement(f"iter({emitter.value(self.owner)}.{self.view}())")
        for _ in range(self.position):
            emitter.line(f"next({name})")
        return name


def plain_key(key: Any) -> bool:
    """Whether hashing and comparing ``key`` runs no code of the program."""
    if type(key) in (str, int, bool, bytes, type(None)):
        return True
    if type(key) is tuple:
        return all(plain_key(part) for part in key)
    return issubclass(type(key), enum.Enum) and type(key).__eq__ in (enum.Enum.__eq__, object.__eq__)
