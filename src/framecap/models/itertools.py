"""The classes of itertools."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..errors import RAISES, UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Args, Kwargs, Value
from ..values.constant import Const, constant_of
from ..values.itertools import (
    Accumulate,
    Chain,
    Chosen,
    Combinations,
    Compress,
    Count,
    Cycle,
    Islice,
    Pairwise,
    Repeat,
    Starmap,
    ZipLongest,
)
from ..values.sequence import TupleValue
from .registry import models

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

MAX_COMBINATIONS = 10_000


def _integer(tx: Region, value: Value) -> int:
    real = constant_of(tx, value)
    if type(real) is not int:
        value.refuse("an itertools iterator that is counted by it")
    return real


@models(itertools.repeat)
def _repeat(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    times = args[1] if len(args) > 1 else kwargs.get("times")
    return Repeat(args[0], None if times is None else max(_integer(tx, times), 0))


@models(itertools.count)
def _count(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    start = args[0] if args else kwargs.get("start", Const(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", Const(1))
    if any(value.python_type() not in (int, float) for value in (start, step)):
        start.refuse("counting from it")
    return Count(start, step)


@models(itertools.chain)
def _chain(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Chain(TupleValue(list(args)).iterate(tx))


@models(itertools.chain.from_iterable)
def _chain_from_iterable(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Chain(args[0].iterate(tx))


@models(itertools.islice)
def _islice(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    iterable, *numbers = args
    bounds = [constant_of(tx, n) for n in numbers]
    if any(bound is not None and type(bound) is not int for bound in bounds):
        iterable.refuse("islice() by what isn't an int")
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, None)[:3]
    start, step = start or 0, 1 if step is None else step
    if start < 0 or step < 1 or (stop is not None and stop < 0):
        raise GraphBreak(RAISES, "islice() is called with a negative number")
    return Islice(iterable.iterate(tx), start, stop, step)


def _chosen(kind: Any) -> None:
    @models(kind)
    def model(tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return Chosen(kind, args[0], args[1].iterate(tx))


_chosen(itertools.takewhile)
_chosen(itertools.dropwhile)
_chosen(itertools.filterfalse)


@models(itertools.starmap)
def _starmap(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Starmap(args[0], args[1].iterate(tx))


@models(itertools.compress)
def _compress(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Compress(args[0].iterate(tx), args[1].iterate(tx))


@models(itertools.accumulate)
def _accumulate(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    function = args[1] if len(args) > 1 else kwargs.get("func")
    initial = kwargs.get("initial")
    return Accumulate(args[0].iterate(tx), _unless_none(function), _unless_none(initial))


def _unless_none(value: Value | None) -> Value | None:
    return None if isinstance(value, Const) and value.value is None else value


@models(itertools.cycle)
def _cycle(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Cycle(args[0].iterate(tx))


@models(itertools.zip_longest)
def _zip_longest(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return ZipLongest(tuple(a.iterate(tx) for a in args), kwargs.get("fillvalue", Const(None)))


@models(itertools.pairwise)
def _pairwise(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Pairwise(args[0].iterate(tx))


@models(itertools.product)
def _product(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    times = _integer(tx, kwargs["repeat"]) if "repeat" in kwargs else 1
    if times < 0:
        raise GraphBreak(RAISES, "product() is called with a negative number")
    pools = [pool.unpack(tx) for pool in args] * times
    return _combinations(itertools.product, pools, ())


def _sized(kind: Any) -> None:
    @models(kind)
    def model(tx: Region, args: Args, kwargs: Kwargs) -> Value:
        pool = args[0].unpack(tx)
        size = args[1] if len(args) > 1 else kwargs.get("r", Const(None))
        plain = isinstance(size, Const) and size.value is None and kind is itertools.permutations
        length = len(pool) if plain else _integer(tx, size)
        if length < 0:
            raise GraphBreak(RAISES, f"{kind.__name__}() is called with a negative number")
        return _combinations(kind, [pool], (length,))


_sized(itertools.permutations)
_sized(itertools.combinations)
_sized(itertools.combinations_with_replacement)


def _combinations(kind: Any, pools: list[list[Value]], sizes: tuple[int, ...]) -> Value:
    items = list(itertools.islice(kind(*pools, *sizes), MAX_COMBINATIONS + 1))
    if len(items) > MAX_COMBINATIONS:
        raise GraphBreak(UNSUPPORTED_VALUE, f"{kind.__name__}() of more than {MAX_COMBINATIONS} tuples")
    return Combinations(kind, [TupleValue(pool) for pool in pools], sizes, items)
