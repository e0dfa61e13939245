"""Built-in functions: len, isinstance, getattr, iter, zip, sum, sorted and the like."""

from __future__ import annotations

import builtins
import functools
import operator
from typing import TYPE_CHECKING, Any

from framecap.guards import IsGuard

from ..errors import SIDE_EFFECT, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Raised, Value
from ..values.constant import UNKNOWN, Const, constant_of, from_real, real_call
from ..values.exception import ExceptionValue
from ..values.function import ClosureValue, RealCallable
from ..values.generator import GeneratorValue
from ..values.instance import InstanceValue
from ..values.iterator import Iterator
from ..values.lookup import MISSING, class_lookup
from ..values.method import BuiltinMethod, MethodValue
from ..values.number import NumberValue, number_op
from ..values.sequence import ListValue
from ..values.tensor import TensorValue
from .operators import binary, compare, unary
from .registry import models

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

BUILTINS: dict[str, Any] = builtins.__dict__


@models(len)
def _len(tx: Region, args: Any, kwargs: Any) -> Value:
    (value,) = args
    if isinstance(value, TensorValue) and value.rank(tx):
        return value.size(tx, 0)
    return Const(value.length(tx))


@models(isinstance)
def _isinstance(tx: Region, args: Any, kwargs: Any) -> Value:
    from .classes import is_instance

    return Const(is_instance(tx, *args))


@models(issubclass)
def _issubclass(tx: Region, args: Any, kwargs: Any) -> Value:
    from .classes import real_class

    cls, options = args
    return Const(bool(real_call(issubclass, real_class(tx, cls), real_class(tx, options))))


@models(callable)
def _callable(tx: Region, args: Any, kwargs: Any) -> Value:
    (value,) = args
    if isinstance(value, (RealCallable, ClosureValue, MethodValue, BuiltinMethod)):
        return Const(callable(value.value) if isinstance(value, RealCallable) else True)
    return Const(class_lookup(tx, value.python_type(), "__call__")[0] is not MISSING)


@models(getattr)
def _getattr(tx: Region, args: Any, kwargs: Any) -> Value:
    owner, name, *default = args
    real = constant_of(tx, name)
    if not isinstance(real, str):
        owner.refuse("getattr() by a name that isn't constant")
    try:
        found: Value = owner.getattr(tx, real)
    except Raised as raised:
        if not default or not issubclass(raised.value.python_type(), AttributeError):
            raise
        (found,) = default
    return found


@models(hasattr)
def _hasattr(tx: Region, args: Any, kwargs: Any) -> Value:
    owner, name = args
    real = constant_of(tx, name)
    if not isinstance(real, str):
        owner.refuse("hasattr() by a name that isn't constant")
    if isinstance(owner, TensorValue):
        from .torch_ops import tensor_method

        if tensor_method(owner.kind, real) is not None:
            return Const(True)
    try:
        owner.getattr(tx, real)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        return Const(False)
    return Const(True)


@models(setattr)
def _setattr(tx: Region, args: Any, kwargs: Any) -> Value:
    owner, name, value = args
    real = constant_of(tx, name)
    if not isinstance(real, str):
        owner.refuse("setattr() by a name that isn't constant")
    owner.setattr(tx, real, value)
    return Const(None)


@models(delattr)
def _delattr(tx: Region, args: Any, kwargs: Any) -> Value:
    owner, name = args
    real = constant_of(tx, name)
    if not isinstance(real, str):
        owner.refuse("delattr() by a name that isn't constant")
    owner.delattr(tx, real)
    return Const(None)


# Iteration


@models(iter)
def _iter(tx: Region, args: Any, kwargs: Any) -> Value:
    if len(args) != 1:
        args[0].refuse("iter() with a sentinel")
    result: Value = args[0].iterate(tx)
    return result


@models(next)
def _next(tx: Region, args: Any, kwargs: Any) -> Value:
    iterator, *default = args
    if not isinstance(iterator, (Iterator, InstanceValue)):
        iterator.refuse("next()")
    item: Value | None = iterator.next(tx)
    if item is not None:
        return item
    if default:
        (result,) = default
        assert isinstance(result, Value)
        return result
    arguments = []
    if isinstance(iterator, GeneratorValue) and not (
        isinstance(iterator.frame.result, Const) and iterator.frame.result.value is None
    ):
        arguments = [iterator.frame.result]
    raise Raised(ExceptionValue(StopIteration, arguments))


@models(any)
def _any(tx: Region, args: Any, kwargs: Any) -> Value:
    iterator = args[0].iterate(tx)
    while (item := iterator.next(tx)) is not None:
        tx.count_step()
        if item.truth(tx):
            return Const(True)
    return Const(False)


@models(all)
def _all(tx: Region, args: Any, kwargs: Any) -> Value:
    iterator = args[0].iterate(tx)
    while (item := iterator.next(tx)) is not None:
        tx.count_step()
        if not item.truth(tx):
            return Const(False)
    return Const(True)


@models(sum)
def _sum(tx: Region, args: Any, kwargs: Any) -> Value:
    items = args[0].unpack(tx)
    total: Value = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    if isinstance(total, ListValue):
        total.refuse("sum() of lists")
    for item in items:
        total = binary(tx, operator.add, total, item)
    return total


def _extreme(tx: Region, args: Any, kwargs: Any, op: Any, name: str) -> Value:
    items = args[0].unpack(tx) if len(args) == 1 else list(args)
    key = kwargs.get("key", Const(None))
    if not items:
        if "default" in kwargs:
            result: Value = kwargs["default"]
            return result
        raise Raised(ExceptionValue(ValueError, [Const(f"{name}() arg is an empty sequence")]))
    plain = isinstance(key, Const) and key.value is None
    best = items[0]
    rank = best if plain else key.call(tx, [best], {})
    for item in items[1:]:
        other = item if plain else key.call(tx, [item], {})
        if compare(tx, op, other, rank).truth(tx):
            best, rank = item, other
    assert isinstance(best, Value)
    return best


@models(max)
def _max(tx: Region, args: Any, kwargs: Any) -> Value:
    return _extreme(tx, args, kwargs, operator.gt, "max")


@models(min)
def _min(tx: Region, args: Any, kwargs: Any) -> Value:
    return _extreme(tx, args, kwargs, operator.lt, "min")


def sorted_items(tx: Region, items: list[Value], kwargs: Any) -> list[Value]:
    """Items in the order that list.sort gives; keys are compared by Python's ``<`` on values."""
    key = kwargs.get("key", Const(None))
    reverse = constant_of(tx, kwargs.get("reverse", Const(False)))
    plain = isinstance(key, Const) and key.value is None
    decorated = [(item if plain else key.call(tx, [item], {}), item) for item in items]

    def order(a: Any, b: Any) -> int:
        if compare(tx, operator.lt, a[0], b[0]).truth(tx):
            return -1
        return 1 if compare(tx, operator.lt, b[0], a[0]).truth(tx) else 0

    result = sorted(decorated, key=functools.cmp_to_key(order), reverse=bool(reverse))
    return [item for _, item in result]


@models(sorted)
def _sorted(tx: Region, args: Any, kwargs: Any) -> Value:
    return ListValue(sorted_items(tx, args[0].unpack(tx), kwargs))


# Numbers and text


def _pure(function: Any) -> None:
    @models(function)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        reals = [constant_of(tx, a) for a in args]
        named = {k: constant_of(tx, v) for k, v in kwargs.items()}
        if any(r is UNKNOWN for r in (*reals, *named.values())):
            raise GraphBreak(UNSUPPORTED_VALUE, f"{function.__name__}() of {args[0].describe() if args else 'these'}")
        return from_real(real_call(function, *reals, **named))


for _function in (divmod, round, chr, ord, hex, oct, bin, ascii):
    _pure(_function)


@models(abs)
def _abs(tx: Region, args: Any, kwargs: Any) -> Value:
    (value,) = args
    if isinstance(value, TensorValue):
        return tx.tensor_op("call_method", "abs", (value,))
    if isinstance(value, NumberValue) and value.kind is not bool:
        return number_op(tx, abs, value)
    return unary(tx, abs, value)


@models(pow)
def _pow(tx: Region, args: Any, kwargs: Any) -> Value:
    if len(args) != 2:
        args[0].refuse("pow() with a modulus")
    return binary(tx, operator.pow, *args)


@models(repr)
def _repr(tx: Region, args: Any, kwargs: Any) -> Value:
    from .text import format_value

    return format_value(tx, args[0], repr, Const(""))


@models(format)
def _format(tx: Region, args: Any, kwargs: Any) -> Value:
    from .text import format_value

    return format_value(tx, args[0], None, args[1] if len(args) > 1 else Const(""))


@models(hash)
def _hash(tx: Region, args: Any, kwargs: Any) -> Value:
    real = constant_of(tx, args[0])
    if real is UNKNOWN:
        args[0].refuse("hash()")
    return Const(real_call(hash, real))


@models(id)
def _id(tx: Region, args: Any, kwargs: Any) -> Value:
    (value,) = args
    real = value.real if isinstance(value, InstanceValue) else value.value if isinstance(value, RealCallable) else None
    if real is None or value.source is None:
        raise GraphBreak(UNSUPPORTED_VALUE, f"id() of {value.describe()} may be another in each call")
    tx.guard(IsGuard(value.source, real, where=tx.where))
    return Const(id(real))


@models(print, input, open, exec, eval, compile, breakpoint)
def _effect(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(SIDE_EFFECT)


@models(globals, locals, vars, dir)
def _introspection(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(UNSUPPORTED_ATTRIBUTE, "the names of a scope or object are listed")
