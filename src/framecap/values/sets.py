"""Sets and frozensets: of values with known hashes, or from outside."""

from __future__ import annotations

import types
from functools import cache
from typing import TYPE_CHECKING, Any

from framecap.guards import PredicateGuard

from .base import Args, Kwargs, Raised, Value
from .constant import UNKNOWN, Const, Opaque, constant_of
from .exception import ExceptionValue
from .iterator import SequenceIterator
from .mapping import plain_key
from .method import BuiltinMethod
from .sequence import TupleValue

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class SetValue(Value):
    """A set or frozenset of values with known hashes. An outside set is guarded item by item, as constants."""

    __slots__ = ("cls", "entries")

    def __init__(self, cls: type = set, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.entries: dict[Any, Value] = {}

    def python_type(self) -> type:
        return self.cls

    def getattr(self, tx: Region, name: str) -> Value:
        if name in _SET_METHODS and (self.cls is set or name in _FROZENSET_METHODS):
            return BuiltinMethod(self, name, _SET_METHODS[name])
        if not hasattr(self.cls, name):
            message = f"{self.cls.__name__!r} object has no attribute {name!r}"
            raise Raised(ExceptionValue(AttributeError, [Const(message)]))
        return super().getattr(tx, name)

    def truth(self, tx: Region) -> bool:
        return bool(self.entries)

    def length(self, tx: Region) -> int:
        return len(self.entries)

    def contains(self, tx: Region, item: Value) -> bool:
        return item.hash_key(tx) in self.entries

    def will_change(self, tx: Region) -> None:
        before = dict(self.entries)

        def undo() -> None:
            self.entries = before

        tx.undo_later(undo)

    def add(self, tx: Region, item: Value) -> None:
        hashed = item.hash_key(tx)
        self.will_change(tx)
        self.entries.setdefault(hashed, item)
        if self.source is not None:
            tx.record("method", self, "add", item)

    def discard(self, tx: Region, item: Value) -> bool:
        hashed = item.hash_key(tx)
        if hashed not in self.entries:
            return False
        self.will_change(tx)
        del self.entries[hashed]
        if self.source is not None:
            tx.record("method", self, "discard", item)
        return True

    def iterate(self, tx: Region) -> Value:
        if len(self.entries) > 1 and self.source is None:
            # The order of a set made from scratch may differ from this model's; constants are put in the real order.
            real = [constant_of(tx, item) for item in self.entries.values()]
            if any(r is UNKNOWN for r in real):
                self.refuse("iteration over a set of objects that aren't constants")
            self.refuse("iteration over a set made in the region")
        return SequenceIterator(TupleValue(list(self.entries.values())), type(iter(set())))

    def unpack(self, tx: Region) -> list[Value]:
        self.iterate(tx)
        return list(self.entries.values())

    def hash_key(self, tx: Region) -> Any:
        if self.cls is frozenset:
            return frozenset(self.entries)
        raise Raised(ExceptionValue(TypeError, [Const("unhashable type: 'set'")]))

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        items = [emitter.value(item) for item in self.entries.values()]
        if self.cls is frozenset:
            return emitter.statement(f"frozenset(({', '.join(items)}{',' if items else ''}))")
        return emitter.statement(f"{{{', '.join(items)}}}" if items else "set()")


class OutsideSet(Opaque):
    """A set of objects from outside: only membership of a class, function or constant can be asked."""

    __slots__ = ()

    def contains(self, tx: Region, item: Value) -> bool:
        key = item.hash_key(tx)
        if not plain_key(key) and not isinstance(key, (type, types.FunctionType)):
            self.refuse("a membership test")
        assert self.source is not None
        found = key in self.value
        text = f"{key!r} in {self.source}"
        tx.guard(PredicateGuard(_membership(key), (self.source,), text, found, where=tx.where))
        return found


@cache
def _membership(key: Any) -> Any:
    return lambda container: key in container


def _set_add(s: SetValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    s.add(tx, args[0])
    return Const(None)


def _set_discard(s: SetValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    if not s.discard(tx, args[0]) and name == "remove":
        raise Raised(ExceptionValue(KeyError, [args[0]]))
    return Const(None)


def _set_update(s: SetValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    for other in args:
        for item in other.unpack(tx):
            s.add(tx, item)
    return Const(None)


def _set_copy(s: SetValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    new = SetValue(s.cls)
    new.entries = dict(s.entries)
    return new


def set_algebra(s: SetValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    new = SetValue(s.cls)
    new.entries = dict(s.entries)
    for other in args:
        keys = {
            item.hash_key(tx): item
            for item in (other.entries.values() if isinstance(other, SetValue) else other.unpack(tx))
        }
        if name == "union":
            new.entries = {**keys, **new.entries}
        elif name == "intersection":
            new.entries = {k: v for k, v in new.entries.items() if k in keys}
        else:
            new.entries = {k: v for k, v in new.entries.items() if k not in keys}
    return new


def _set_relation(s: SetValue, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    (other,) = args
    keys = {item.hash_key(tx) for item in (other.entries.values() if isinstance(other, SetValue) else other.unpack(tx))}
    return Const(getattr(set(s.entries), name)(keys))


_SET_METHODS: dict[str, Any] = {
    "add": _set_add, "discard": _set_discard, "remove": _set_discard, "update": _set_update, "copy": _set_copy,
    "union": set_algebra, "intersection": set_algebra, "difference": set_algebra,
    "issubset": _set_relation, "issuperset": _set_relation, "isdisjoint": _set_relation,
}  # fmt: skip
_FROZENSET_METHODS = {"copy", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint"}
