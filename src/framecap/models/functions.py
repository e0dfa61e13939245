"""Functions of math, functools, itertools, copy, warnings and framecap itself."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
import random
import time
import warnings
from typing import TYPE_CHECKING, Any

from ..errors import RANDOM_STATE, SIDE_EFFECT, UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Raised, Value
from ..values.constant import UNKNOWN, Const, constant_of, from_real, real_call
from ..values.exception import ExceptionValue
from ..values.iterator import SequenceIterator
from ..values.mapping import DictValue, SetValue
from ..values.number import NumberValue, number_op
from ..values.sequence import ListValue, TupleValue
from .registry import models

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region


def _math(function: Any) -> None:
    @models(function)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        if len(args) == 1 and isinstance(args[0], NumberValue) and not kwargs:
            return number_op(tx, function, args[0])
        reals = [constant_of(tx, a) for a in args]
        if any(r is UNKNOWN for r in reals) or kwargs:
            raise GraphBreak(UNSUPPORTED_VALUE, f"math.{function.__name__}() of {args[0].describe()}")
        return from_real(real_call(function, *reals))


for _function in vars(math).values():
    if callable(_function):
        _math(_function)


@models(functools.reduce)
def _reduce(tx: Region, args: Any, kwargs: Any) -> Value:
    function, iterable, *initial = args
    items = iterable.unpack(tx)
    if initial:
        items = [initial[0], *items]
    if not items:
        raise Raised(ExceptionValue(TypeError, [Const("reduce() of empty iterable with no initial value")]))
    total: Value = items[0]
    for item in items[1:]:
        total = function.call(tx, [total, item], {})
    return total


def _itertools(function: Any, run: Any) -> None:
    @models(function)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        from ..values.iterator import Iterator

        if kwargs or any(isinstance(a, Iterator) for a in args):
            raise GraphBreak(UNSUPPORTED_VALUE, f"itertools.{function.__name__}() of iterators that are consumed lazily")
        return SequenceIterator(TupleValue(run(tx, args)), function)


def _product(tx: Region, args: Any) -> list[Value]:
    return [TupleValue(list(items)) for items in itertools.product(*(a.unpack(tx) for a in args))]


def _islice(tx: Region, args: Any) -> list[Value]:
    reals = [constant_of(tx, a) for a in args[1:]]
    items: list[Value] = list(itertools.islice(args[0].unpack(tx), *reals))
    return items


def _pairwise(tx: Region, args: Any) -> list[Value]:
    return [TupleValue(list(items)) for items in itertools.pairwise(args[0].unpack(tx))]


def _combinations(tx: Region, args: Any) -> list[Value]:
    return [TupleValue(list(items)) for items in itertools.combinations(args[0].unpack(tx), constant_of(tx, args[1]))]


_itertools(itertools.product, _product)
_itertools(itertools.islice, _islice)
_itertools(itertools.pairwise, _pairwise)
_itertools(itertools.combinations, _combinations)


@models(copy.copy)
def _copy(tx: Region, args: Any, kwargs: Any) -> Value:
    (value,) = args
    if isinstance(value, ListValue):
        return ListValue(list(value.items), value.cls)
    if isinstance(value, (Const, NumberValue)):
        return value
    if isinstance(value, DictValue):
        return value.copy()
    if isinstance(value, SetValue):
        made = SetValue(value.cls)
        made.entries = dict(value.entries)
        return made
    raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} is copied")


@models(copy.deepcopy)
def _deepcopy(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(UNSUPPORTED_VALUE, f"{args[0].describe()} is copied deeply")


@models(warnings.warn, time.time, time.perf_counter, time.monotonic, time.sleep)
def _effect(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(SIDE_EFFECT)


@models(random.seed, random.random, random.uniform, random.randint, random.randrange, random.choice, random.shuffle)
def _random(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(RANDOM_STATE, "Python's random generator is used")


@models(operator.length_hint, operator.indexOf, operator.countOf)
def _rare(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(UNSUPPORTED_VALUE, "this function of the operator module has no model")
