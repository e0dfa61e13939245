"""Iterators over modelled objects. What was consumed is part of their state, and is rolled back with the region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Value
from .constant import Const

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region
    from .sequence import _Sequence


class Iterator(Value):
    """Shared: an iterator is its own iterator and is always true."""

    __slots__ = ()

    def iterate(self, tx: Region) -> Value:
        return self

    def truth(self, tx: Region) -> bool:
        return True

    def hint(self) -> float:
        """How many items are left, as far as is known: 0 if nothing is, infinity if there is no end."""
        return 0

    def getattr(self, tx: Region, name: str) -> Value:
        from .method import BuiltinMethod

        if name == "__iter__":
            return BuiltinMethod(self, name, lambda owner, tx, name, args, kwargs: owner)
        if name == "__next__":
            return BuiltinMethod(self, name, _next_or_stop)
        return super().getattr(tx, name)


def _next_or_stop(owner: Value, tx: Region, name: str, args: Any, kwargs: Any) -> Value:
    from .base import Raised
    from .exception import ExceptionValue

    item = owner.next(tx)
    if item is None:
        raise Raised(ExceptionValue(StopIteration, []))
    return item


class SequenceIterator(Iterator):
    """iter(list), iter(tuple) or reversed(list) at ``position``; ``kind`` is its exact type, None for a plain one."""

    __slots__ = ("done", "kind", "position", "sequence", "step")

    def __init__(self, sequence: _Sequence, kind: type | None, position: int = 0, step: int = 1) -> None:
        super().__init__()
        self.sequence = sequence
        self.kind = kind
        self.position = position
        self.step = step
        self.done = False

    def python_type(self) -> type:
        if self.kind is not None:
            return self.kind
        return type(iter([])) if issubclass(self.sequence.cls, list) else type(iter(()))

    def hint(self) -> float:
        return 0 if self.done else len(self.sequence.items) - self.position if self.step > 0 else self.position + 1

    def next(self, tx: Region) -> Value | None:
        from .sequence import force

        if self.done:
            return None
        before = (self.position, self.done)

        def undo() -> None:
            self.position, self.done = before

        tx.undo_later(undo)
        if not 0 <= self.position < len(self.sequence.items):
            self.done = True
            return None
        item = force(tx, self.sequence.items[self.position])
        self.position += self.step
        return item

    def emit(self, emitter: Emitter) -> str:
        if self.done:
            return emitter.statement("iter([])" if issubclass(self.sequence.cls, list) else "iter(())")
        over = emitter.value(self.sequence)
        name = emitter.statement(f"reversed({over})" if self.step < 0 else f"iter({over})")
        if (self.step > 0 and self.position) or (self.step < 0 and self.position != len(self.sequence.items) - 1):
            emitter.line(f"{name}.__setstate__({self.position})")
        return name


class RangeIterator(Iterator):
    """iter(range) after ``position`` items."""

    __slots__ = ("position", "value")

    def __init__(self, value: range) -> None:
        super().__init__()
        self.value = value
        self.position = 0

    def python_type(self) -> type:
        return type(iter(self.value))

    def hint(self) -> float:
        return len(self.value) - self.position

    def next(self, tx: Region) -> Value | None:
        if self.position >= len(self.value):
            return None
        before = self.position

        def undo() -> None:
            self.position = before

        tx.undo_later(undo)
        self.position += 1
        return Const(self.value[before])

    def emit(self, emitter: Emitter) -> str:
        name = emitter.statement(f"iter({emitter.constant(self.value)})")
        if self.position:
            emitter.line(f"{name}.__setstate__({self.position})")
        return name


class EnumerateIterator(Iterator):
    """enumerate(inner, start)."""

    __slots__ = ("count", "inner")

    def __init__(self, inner: Value, start: int = 0) -> None:
        super().__init__()
        self.inner = inner
        self.count = start

    def python_type(self) -> type:
        return enumerate

    def hint(self) -> float:
        return hint_of(self.inner)

    def next(self, tx: Region) -> Value | None:
        from .sequence import TupleValue

        item = self.inner.next(tx)
        if item is None:
            return None
        before = self.count

        def undo() -> None:
            self.count = before

        tx.undo_later(undo)
        self.count += 1
        return TupleValue([Const(before), item])

    def emit(self, emitter: Emitter) -> str:
        return emitter.statement(f"enumerate({emitter.value(self.inner)}, {self.count})")


class ZipIterator(Iterator):
    """zip(*inner, strict=...)."""

    __slots__ = ("inner",)

    def __init__(self, inner: list[Value]) -> None:
        super().__init__()
        self.inner = inner

    def python_type(self) -> type:
        return zip

    def hint(self) -> float:
        return min(map(hint_of, self.inner), default=0)

    def next(self, tx: Region) -> Value | None:
        from .sequence import TupleValue

        items: list[Value] = []
        for iterator in self.inner:
            item = iterator.next(tx)
            if item is None:
                return None
            items.append(item)
        return TupleValue(items) if items else None

    def emit(self, emitter: Emitter) -> str:
        return emitter.statement(f"zip({', '.join(emitter.value(i) for i in self.inner)})")


class MapIterator(Iterator):
    """map(function, *inner)."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value, inner: list[Value]) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def python_type(self) -> type:
        return map

    def hint(self) -> float:
        return min(map(hint_of, self.inner), default=0)

    def next(self, tx: Region) -> Value | None:
        items: list[Value] = []
        for iterator in self.inner:
            item = iterator.next(tx)
            if item is None:
                return None
            items.append(item)
        return self.function.call(tx, items, {})

    def emit(self, emitter: Emitter) -> str:
        inner = ", ".join(emitter.value(i) for i in self.inner)
        return emitter.statement(f"map({emitter.value(self.function)}, {inner})")


class FilterIterator(Iterator):
    """filter(function or None, inner)."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value, inner: Value) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def python_type(self) -> type:
        return filter

    def hint(self) -> float:
        return hint_of(self.inner)

    def next(self, tx: Region) -> Value | None:
        while (item := self.inner.next(tx)) is not None:
            tx.count_step()
            plain = isinstance(self.function, Const) and self.function.value is None
            verdict = item if plain else self.function.call(tx, [item], {})
            if verdict.truth(tx):
                return item
        return None

    def emit(self, emitter: Emitter) -> str:
        return emitter.statement(f"filter({emitter.value(self.function)}, {emitter.value(self.inner)})")


def hint_of(iterator: Value | None) -> float:
    return iterator.hint() if isinstance(iterator, Iterator) else 0
