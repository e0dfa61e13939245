"""Functions of math, functools, itertools, copy, warnings and framecap itself."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import operator
import random
import time
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..errors import RANDOM_STATE, SIDE_EFFECT, UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Raised, Value
from ..values.constant import UNKNOWN, Const, Opaque, constant_of, from_real, real_call
from ..values.exception import ExceptionValue
from ..values.function import ClosureValue, FunctionConst, RealCallable
from ..values.instance import EnumMember, InstanceDict, InstanceValue
from ..values.lookup import MISSING, class_lookup
from ..values.mapping import DictValue
from ..values.method import MethodValue
from ..values.number import NumberValue, number_op
from ..values.sequence import ListValue, TupleValue, force
from ..values.sets import SetValue
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
    if len(args) != 1 or kwargs:
        raise GraphBreak(UNSUPPORTED_VALUE, "deepcopy() with a memo")
    return deep_copy(tx, args[0], {})


def deep_copy(tx: Region, value: Value, memo: dict[int, Value]) -> Value:
    """A copy of containers and plain objects all the way down; what has copying of its own breaks the graph."""
    known = memo.get(id(value))
    if known is not None:
        return known
    if isinstance(value, (Const, NumberValue, RealCallable, EnumMember, ClosureValue)) and not isinstance(
        value, Opaque
    ):
        return value
    if isinstance(value, ListValue) and value.cls is list:
        made: Value = ListValue([])
        memo[id(value)] = made
        assert isinstance(made, ListValue)
        made.items.extend(deep_copy(tx, item, memo) for item in value.items)
        return made
    if isinstance(value, TupleValue) and value.cls is tuple:
        items = [deep_copy(tx, item, memo) for item in value.items]
        same = all(a is b for a, b in zip(items, value.items, strict=True))
        return value if same else TupleValue(items)
    if isinstance(value, DictValue):
        table = DictValue(value.cls, factory=value.factory)
        memo[id(value)] = table
        for hashed, (key, item) in value.entries.items():
            table.entries[hashed] = (deep_copy(tx, key, memo), deep_copy(tx, force(tx, item), memo))
        return table
    if isinstance(value, InstanceDict):
        return deep_copy(tx, value.contents(tx), memo)
    if isinstance(value, SetValue):
        same_set = SetValue(value.cls)
        same_set.entries = dict(value.entries)
        return same_set
    if isinstance(value, InstanceValue) and type(value) is InstanceValue and value.storage is None:
        return _copy_instance(tx, value, memo)
    raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} is copied deeply")


def _copy_instance(tx: Region, value: InstanceValue, memo: dict[int, Value]) -> Value:
    for name in (
        "__deepcopy__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__setstate__",
        "__getnewargs__",
        "__del__",
    ):
        found, _ = class_lookup(tx, value.cls, name)
        if found is not MISSING and getattr(object, name, None) is not found:
            raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} has {name} of its own and is copied deeply")
    if any("__slots__" in c.__dict__ for c in value.cls.__mro__[:-1]):
        raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} has slots and is copied deeply")
    made = InstanceValue(value.cls)
    memo[id(value)] = made
    contents = InstanceDict(value).contents(tx)
    assert isinstance(contents, DictValue)
    for key, item in contents.entries.values():
        made.attrs[constant_of(tx, key)] = deep_copy(tx, force(tx, item), memo)
    return made


@models(inspect.signature)
def _signature(tx: Region, args: Any, kwargs: Any) -> Value:
    """The signature of a known function, of which the parameters can be counted and named."""
    (function,) = args
    skip = 0
    if isinstance(function, MethodValue):
        function, skip = function.function, 1
    if not isinstance(function, FunctionConst) or kwargs:
        raise GraphBreak(UNSUPPORTED_VALUE, f"the signature of {function.describe()} is asked for")
    function.pin(tx)
    inner: Value = function
    while isinstance(inner, FunctionConst) and "__wrapped__" in inner.value.__dict__:
        inner = inner.getattr(tx, "__wrapped__")
        if isinstance(inner, FunctionConst):
            inner.pin(tx)
    table = DictValue(OrderedDict)
    for name, parameter in list(real_call(inspect.signature, function.value).parameters.items())[skip:]:
        table.entries[name] = (Const(name), Opaque(parameter))
    return SignatureValue(table)


class SignatureValue(Value):
    """An inspect.Signature made in the region."""

    __slots__ = ("table",)

    def __init__(self, table: DictValue) -> None:
        super().__init__()
        self.table = table

    def python_type(self) -> type:
        return inspect.Signature

    def getattr(self, tx: Region, name: str) -> Value:
        if name == "parameters":
            return self.table
        return super().getattr(tx, name)


@models(warnings.warn, time.time, time.perf_counter, time.monotonic, time.sleep)
def _effect(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(SIDE_EFFECT)


@models(random.seed, random.random, random.uniform, random.randint, random.randrange, random.choice, random.shuffle)
def _random(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(RANDOM_STATE, "Python's random generator is used")


@models(operator.length_hint, operator.indexOf, operator.countOf)
def _rare(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(UNSUPPORTED_VALUE, "this function of the operator module has no model")
