"""The iterators of itertools, as lazy as they are (Modules/itertoolsmodule.c)."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, Any

from .base import Value
from .constant import Const
from .iterator import Iterator, SequenceIterator, hint_of
from .sequence import ListValue, TupleValue

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class ItertoolsIterator(Iterator):
    """Shared: the class that it stands for, and changes that are undone with the region."""

    __slots__ = ()
    kind: type

    def python_type(self) -> type:
        return self.kind

    def change(self, tx: Region, name: str, value: Any) -> None:
        before = getattr(self, name)
        tx.undo_later(lambda: setattr(self, name, before))
        setattr(self, name, value)

    def make(self, emitter: Emitter, arguments: str, state: str | None = None) -> str:
        """Code for a new one, which is set to a state, if one is given."""
        name = emitter.statement(f"{emitter.object(self.kind, self.kind.__name__)}({arguments})")
        if state is not None:
            emitter.line(f"{name}.__setstate__({state})")
        return name


class Repeat(ItertoolsIterator):
    """repeat(value, left); without an end if ``left`` is None."""

    __slots__ = ("left", "value")
    kind = itertools.repeat

    def __init__(self, value: Value, left: int | None) -> None:
        super().__init__()
        self.value = value
        self.left = left

    def hint(self) -> float:
        return math.inf if self.left is None else self.left

    def next(self, tx: Region) -> Value | None:
        if self.left is not None:
            if self.left == 0:
                return None
            self.change(tx, "left", self.left - 1)
        return self.value

    def emit(self, emitter: Emitter) -> str:
        left = "" if self.left is None else f", {self.left}"
        return self.make(emitter, emitter.value(self.value) + left)


class Count(ItertoolsIterator):
    """count(value, step)."""

    __slots__ = ("step", "value")
    kind = itertools.count

    def __init__(self, value: Value, step: Value) -> None:
        super().__init__()
        self.value = value
        self.step = step

    def hint(self) -> float:
        return math.inf

    def next(self, tx: Region) -> Value | None:
        now = self.value
        self.change(tx, "value", tx.binary(operator.add, now, self.step))
        return now

    def emit(self, emitter: Emitter) -> str:
        return self.make(emitter, f"{emitter.value(self.value)}, {emitter.value(self.step)}")


class Chain(ItertoolsIterator):
    """chain.from_iterable(rest), with ``active`` as the iterator that isn't used up yet."""

    __slots__ = ("active", "rest")
    kind = itertools.chain

    def __init__(self, rest: Value) -> None:
        super().__init__()
        self.rest: Value | None = rest
        self.active: Value | None = None

    def hint(self) -> float:
        total = hint_of(self.active)
        if isinstance(self.rest, SequenceIterator) and isinstance(self.rest.sequence, TupleValue):
            items = self.rest.sequence.items[self.rest.position :]
            total += sum(len(item.items) for item in items if isinstance(item, (TupleValue, ListValue)))
        return total

    def next(self, tx: Region) -> Value | None:
        while self.rest is not None:
            tx.count_step()
            if self.active is None:
                source = self.rest.next(tx)
                if source is None:
                    self.change(tx, "rest", None)
                    return None
                self.change(tx, "active", source.iterate(tx))
            assert self.active is not None
            item = self.active.next(tx)
            if item is not None:
                return item
            self.change(tx, "active", None)
        return None

    def emit(self, emitter: Emitter) -> str:
        if self.rest is None:
            return self.make(emitter, "")
        rest = emitter.value(self.rest)
        state = f"({rest},)" if self.active is None else f"({rest}, {emitter.value(self.active)})"
        return self.make(emitter, "", state)


class Islice(ItertoolsIterator):
    """islice(inner, start, stop, step), relative to what is left of ``inner``."""

    __slots__ = ("inner", "start", "step", "stop")
    kind = itertools.islice

    def __init__(self, inner: Value, start: int, stop: int | None, step: int) -> None:
        super().__init__()
        self.inner: Value | None = inner
        self.start = start
        self.stop = stop
        self.step = step

    def hint(self) -> float:
        left = math.inf if self.stop is None else max(self.stop - self.start, 0)
        return min(left, hint_of(self.inner)) / self.step

    def next(self, tx: Region) -> Value | None:
        if self.inner is None:
            return None
        item: Value | None = None
        for _ in range(self.start):
            tx.count_step()
            if self.inner.next(tx) is None:
                break
        else:
            if self.stop is None or self.stop > self.start:
                item = self.inner.next(tx)
        if item is None:
            self.change(tx, "inner", None)
            return None
        # Counted from behind the item, as far as the stop if that comes first.
        if self.stop is not None:
            self.change(tx, "stop", self.stop - self.start - 1)
        self.change(tx, "start", self.step - 1 if self.stop is None else min(self.step - 1, self.stop))
        return item

    def emit(self, emitter: Emitter) -> str:
        if self.inner is None:
            return self.make(emitter, "(), 0")
        return self.make(emitter, f"{emitter.value(self.inner)}, {self.start}, {self.stop}, {self.step}")


class Chosen(ItertoolsIterator):
    """takewhile, dropwhile and filterfalse. started: of dropwhile, whether items are given; of takewhile, whether it is done."""

    __slots__ = ("function", "inner", "kind", "started")

    def __init__(self, kind: type, function: Value, inner: Value) -> None:
        super().__init__()
        self.kind = kind
        self.function = function
        self.inner = inner
        self.started = False

    def hint(self) -> float:
        return hint_of(self.inner)

    def next(self, tx: Region) -> Value | None:
        if self.started and self.kind is itertools.takewhile:
            return None
        while (item := self.inner.next(tx)) is not None:
            if self.started:
                return item
            tx.count_step()
            holds = self.verdict(tx, item)
            if self.kind is itertools.takewhile:
                if not holds:
                    self.change(tx, "started", True)
                    return None
                return item
            if not holds:
                if self.kind is itertools.dropwhile:
                    self.change(tx, "started", True)
                return item
        return None

    def verdict(self, tx: Region, item: Value) -> bool:
        if self.kind is itertools.filterfalse and isinstance(self.function, Const) and self.function.value in (None, bool):
            return item.truth(tx)
        return self.function.call(tx, [item], {}).truth(tx)

    def emit(self, emitter: Emitter) -> str:
        arguments = f"{emitter.value(self.function)}, {emitter.value(self.inner)}"
        return self.make(emitter, arguments, "1" if self.started else None)


class Starmap(ItertoolsIterator):
    """starmap(function, inner)."""

    __slots__ = ("function", "inner")
    kind = itertools.starmap

    def __init__(self, function: Value, inner: Value) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def hint(self) -> float:
        return hint_of(self.inner)

    def next(self, tx: Region) -> Value | None:
        item = self.inner.next(tx)
        return None if item is None else self.function.call(tx, item.unpack(tx), {})

    def emit(self, emitter: Emitter) -> str:
        return self.make(emitter, f"{emitter.value(self.function)}, {emitter.value(self.inner)}")


class Compress(ItertoolsIterator):
    """compress(inner, selectors)."""

    __slots__ = ("inner", "selectors")
    kind = itertools.compress

    def __init__(self, inner: Value, selectors: Value) -> None:
        super().__init__()
        self.inner = inner
        self.selectors = selectors

    def hint(self) -> float:
        return min(hint_of(self.inner), hint_of(self.selectors))

    def next(self, tx: Region) -> Value | None:
        while (item := self.inner.next(tx)) is not None:
            tx.count_step()
            selector = self.selectors.next(tx)
            if selector is None:
                return None
            if selector.truth(tx):
                return item
        return None

    def emit(self, emitter: Emitter) -> str:
        return self.make(emitter, f"{emitter.value(self.inner)}, {emitter.value(self.selectors)}")


class Accumulate(ItertoolsIterator):
    """accumulate(inner, function, initial=initial); function None is addition."""

    __slots__ = ("function", "initial", "inner", "total")
    kind = itertools.accumulate

    def __init__(self, inner: Value, function: Value | None, initial: Value | None) -> None:
        super().__init__()
        self.inner = inner
        self.function = function
        self.initial = initial
        self.total: Value | None = None

    def hint(self) -> float:
        return hint_of(self.inner)

    def next(self, tx: Region) -> Value | None:
        if self.initial is not None:
            self.change(tx, "total", self.initial)
            self.change(tx, "initial", None)
            return self.total
        item = self.inner.next(tx)
        if item is None:
            return None
        if self.total is not None:
            if self.function is None:
                item = tx.binary(operator.add, self.total, item)
            else:
                item = self.function.call(tx, [self.total, item], {})
        self.change(tx, "total", item)
        return item

    def emit(self, emitter: Emitter) -> str:
        function = "None" if self.function is None else emitter.value(self.function)
        initial = "" if self.initial is None else f", initial={emitter.value(self.initial)}"
        state = None if self.total is None else emitter.value(self.total)
        return self.make(emitter, f"{emitter.value(self.inner)}, {function}{initial}", state)


class Cycle(ItertoolsIterator):
    """cycle(inner). position: the next of the ``saved`` items to be given; None in the first pass."""

    __slots__ = ("inner", "position", "saved")
    kind = itertools.cycle

    def __init__(self, inner: Value) -> None:
        super().__init__()
        self.inner = inner
        self.saved: tuple[Value, ...] = ()
        self.position: int | None = None

    def hint(self) -> float:
        return math.inf

    def next(self, tx: Region) -> Value | None:
        if self.position is None:
            item = self.inner.next(tx)
            if item is not None:
                self.change(tx, "saved", (*self.saved, item))
                return item
            self.change(tx, "position", 0)
        if not self.saved:
            return None
        assert self.position is not None
        item = self.saved[self.position]
        self.change(tx, "position", (self.position + 1) % len(self.saved))
        return item

    def emit(self, emitter: Emitter) -> str:
        saved = emitter.value(ListValue(list(self.saved)))
        if self.position is None:
            return self.make(emitter, emitter.value(self.inner), f"({saved}, 0)")
        return self.make(emitter, f"{saved}[{self.position}:]", f"({saved}, 1)")


class ZipLongest(ItertoolsIterator):
    """zip_longest(*inner, fillvalue=fill); None for what is used up."""

    __slots__ = ("fill", "inner")
    kind = itertools.zip_longest

    def __init__(self, inner: tuple[Value | None, ...], fill: Value) -> None:
        super().__init__()
        self.inner = inner
        self.fill = fill

    def hint(self) -> float:
        return max(map(hint_of, self.inner), default=0)

    def next(self, tx: Region) -> Value | None:
        items: list[Value] = []
        for i, iterator in enumerate(self.inner):
            item = None if iterator is None else iterator.next(tx)
            if item is None and iterator is not None:
                self.change(tx, "inner", (*self.inner[:i], None, *self.inner[i + 1 :]))
                if all(other is None for other in self.inner):
                    return None
            items.append(self.fill if item is None else item)
        return None if all(other is None for other in self.inner) else TupleValue(items)

    def emit(self, emitter: Emitter) -> str:
        inner = "".join(f"{'()' if i is None else emitter.value(i)}, " for i in self.inner)
        return self.make(emitter, f"{inner}fillvalue={emitter.value(self.fill)}")


class Pairwise(ItertoolsIterator):
    """pairwise(inner), behind the item ``last``."""

    __slots__ = ("inner", "last")
    kind = itertools.pairwise

    def __init__(self, inner: Value) -> None:
        super().__init__()
        self.inner = inner
        self.last: Value | None = None

    def hint(self) -> float:
        return hint_of(self.inner)

    def next(self, tx: Region) -> Value | None:
        first = self.inner.next(tx) if self.last is None else self.last
        second = None if first is None else self.inner.next(tx)
        self.change(tx, "last", second)
        return None if first is None or second is None else TupleValue([first, second])

    def emit(self, emitter: Emitter) -> str:
        inner = emitter.value(self.inner)
        if self.last is not None:
            chain = emitter.object(itertools.chain, "chain")
            inner = f"{chain}(({emitter.value(self.last)},), {inner})"
        return self.make(emitter, inner)


class Combinations(ItertoolsIterator):
    """product, permutations and the like: tuples that are known from the start."""

    __slots__ = ("items", "keywords", "kind", "pools", "position", "sizes")

    def __init__(self, kind: Any, pools: list[Value], sizes: tuple[int, ...], items: list[tuple[Value, ...]]) -> None:
        super().__init__()
        self.kind = kind
        self.pools = pools
        self.sizes = sizes
        self.items = items
        self.position = 0

    def hint(self) -> float:
        return len(self.items) - self.position

    def next(self, tx: Region) -> Value | None:
        if self.position == len(self.items):
            return None
        self.change(tx, "position", self.position + 1)
        return TupleValue(list(self.items[self.position - 1]))

    def emit(self, emitter: Emitter) -> str:
        pools = [emitter.value(pool) for pool in self.pools]
        name = self.make(emitter, ", ".join([*pools, *map(str, self.sizes)]))
        if self.position:
            islice = emitter.object(itertools.islice, "islice")
            emitter.line(f"for _ in {islice}({name}, {self.position}): pass")
        return name
