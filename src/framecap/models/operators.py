"""Python's operators on values: constants for real, numbers and tensors as nodes, containers by their models."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ..errors import UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Raised, Value
from ..values.constant import UNKNOWN, Const, Opaque, constant_of, from_real, real_call
from ..values.exception import ExceptionValue
from ..values.function import ClassValue, ClosureValue, RealCallable
from ..values.instance import EnumMember, InstanceValue
from ..values.mapping import DictValue, DictView
from ..values.method import BuiltinMethod, MethodValue
from ..values.number import NumberValue, number_op
from ..values.sequence import ListValue, RangeValue, SliceValue, TupleValue
from ..values.sets import SetValue, set_algebra
from ..values.tensor import TensorValue, same_tensor
from .registry import models

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

SPECIAL: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv",
    operator.floordiv: "floordiv", operator.mod: "mod", operator.pow: "pow", operator.matmul: "matmul",
    operator.and_: "and", operator.or_: "or", operator.xor: "xor", operator.lshift: "lshift", operator.rshift: "rshift",
}  # fmt: skip
INPLACE: dict[Any, Any] = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.ipow: operator.pow, operator.imatmul: operator.matmul, operator.iand: operator.and_,
    operator.ior: operator.or_, operator.ixor: operator.xor, operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
}  # fmt: skip
REFLECTED: dict[Any, str] = {
    operator.lt: "__gt__", operator.le: "__ge__", operator.gt: "__lt__", operator.ge: "__le__",
    operator.eq: "__eq__", operator.ne: "__ne__",
}  # fmt: skip
NUMERIC = (int, float, bool, complex)


def binary(tx: Region, op: Any, left: Value, right: Value) -> Value:
    """``op(left, right)``, ``op`` from the operator module."""
    if _has_operators(left) or (isinstance(left, TensorValue) and _has_operators(right)):
        return _user_binary(tx, op, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return _tensor_binary(tx, op, left, right)
    plain = INPLACE.get(op, op)
    if isinstance(left, (InstanceValue, ClassValue)) or isinstance(right, InstanceValue):
        return _user_binary(tx, op, left, right)
    if isinstance(left, NumberValue) or isinstance(right, NumberValue):
        others = [v for v in (left, right) if not isinstance(v, NumberValue)]
        if all(isinstance(v, Const) and type(v.value) in (int, float, bool) for v in others):
            return number_op(tx, plain, left, right)
    if isinstance(left, ListValue) and op is operator.iadd:
        left.extend(tx, right.unpack(tx))
        return left
    if isinstance(left, (ListValue, TupleValue)) or isinstance(right, (ListValue, TupleValue)):
        return _sequence_binary(tx, op, left, right)
    if isinstance(left, DictValue) and isinstance(right, DictValue) and plain is operator.or_:
        merged = left if op is operator.ior else left.copy()
        merged.merge(tx, right)
        return merged
    if isinstance(left, (SetValue, DictView)):
        return _set_binary(tx, op, left, right)
    a, b = constant_of(tx, left), constant_of(tx, right)
    if a is not UNKNOWN and b is not UNKNOWN:
        return from_real(real_call(plain, a, b))
    raise GraphBreak(UNSUPPORTED_VALUE, f"{left.describe()} {plain.__name__} {right.describe()} isn't modelled")


def _has_operators(value: Value) -> bool:
    """Whether an object's class decides what operators do, also with a tensor."""
    return type(value) is InstanceValue and not hasattr(value.cls, "__torch_function__")


def _tensor_binary(tx: Region, op: Any, left: Value, right: Value) -> Value:
    other = right if isinstance(left, TensorValue) else left
    if isinstance(other, (ListValue, TupleValue)) and INPLACE.get(op, op) in (operator.mul, operator.add):
        other.refuse("an operator of a tensor and a sequence")
    if not isinstance(left, (TensorValue, NumberValue, Const)) or not isinstance(
        right, (TensorValue, NumberValue, Const)
    ):
        other.refuse("an operator with a tensor")
    mutates = left if op in INPLACE and isinstance(left, TensorValue) else None
    target = op if mutates is not None else INPLACE.get(op, op)
    return tx.tensor_op("call_function", target, (left, right), mutates=mutates)


def _user_binary(tx: Region, op: Any, left: Value, right: Value) -> Value:
    plain = INPLACE.get(op, op)
    name = SPECIAL[plain]
    candidates: list[tuple[Value, str, Value]] = [(left, f"__{name}__", right), (right, f"__r{name}__", left)]
    kind, other = left.python_type(), right.python_type()
    if issubclass(other, kind) and other is not kind:
        candidates.reverse()
    if op in INPLACE:
        candidates.insert(0, (left, f"__i{name}__", right))
    if isinstance(left, EnumMember) and isinstance(left.real, int) and not isinstance(right, InstanceValue):
        real = constant_of(tx, right)
        if real is not UNKNOWN and type(left.real).__dict__.get(f"__{name}__") is None:
            return _enum_result(tx, real_call(plain, left.real, real))
    if isinstance(left, EnumMember) and isinstance(right, EnumMember):
        return _enum_result(tx, real_call(plain, left.real, right.real))
    for owner, method, argument in candidates:
        if not isinstance(owner, InstanceValue):
            continue
        result = owner.special(tx, method, [argument])
        if result is not None and not is_not_implemented(result):
            return result
    if isinstance(left, Opaque) or isinstance(right, Opaque) or isinstance(left, ClassValue):
        left.refuse(f"the operator {name}")
    symbol = _SYMBOLS.get(name, name)
    message = f"unsupported operand type(s) for {symbol}: {kind.__name__!r} and {other.__name__!r}"
    raise Raised(ExceptionValue(TypeError, [Const(message)]))


_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "matmul": "@"}


def _enum_result(tx: Region, result: Any) -> Value:
    import enum

    return tx.enum_member(result) if isinstance(result, enum.Enum) else from_real(result)


def is_not_implemented(value: Value) -> bool:
    return isinstance(value, Const) and value.value is NotImplemented


def _sequence_binary(tx: Region, op: Any, left: Value, right: Value) -> Value:
    plain = INPLACE.get(op, op)
    if (
        plain is operator.add
        and isinstance(left, (ListValue, TupleValue))
        and isinstance(right, (ListValue, TupleValue))
    ):
        if isinstance(left, ListValue) and isinstance(right, ListValue):
            return ListValue([*left.items, *right.items])
        if isinstance(left, TupleValue) and isinstance(right, TupleValue):
            import torch

            both = left.cls is torch.Size or right.cls is torch.Size
            return TupleValue([*left.items, *right.items], torch.Size if both else tuple)
        message = f"can only concatenate {left.kind} (not {right.cls.__name__!r}) to {left.kind}"
        raise Raised(ExceptionValue(TypeError, [Const(message.replace("'", '"'))]))
    if plain is operator.mul:
        sequence, count = (left, right) if isinstance(left, (ListValue, TupleValue)) else (right, left)
        times = constant_of(tx, count)
        if times is not UNKNOWN and isinstance(times, int) and isinstance(sequence, (ListValue, TupleValue)):
            if isinstance(sequence, ListValue) and op is operator.imul:
                sequence.refuse("*= of a list")
            items = list(sequence.items) * times
            return ListValue(items) if isinstance(sequence, ListValue) else TupleValue(items)
    if plain is operator.mod and isinstance(left, Const) and isinstance(left.value, str):
        real = constant_of(tx, right)
        if real is not UNKNOWN:
            return from_real(real_call(plain, left.value, real))
    raise GraphBreak(UNSUPPORTED_VALUE, f"{left.describe()} {plain.__name__} {right.describe()} isn't modelled")


def _set_binary(tx: Region, op: Any, left: Value, right: Value) -> Value:
    names = {operator.or_: "union", operator.and_: "intersection", operator.sub: "difference"}
    if op in names and isinstance(right, (SetValue, DictView)):
        if not isinstance(left, SetValue):
            made = SetValue()
            for item in left.unpack(tx):
                made.entries[item.hash_key(tx)] = item
            left = made
        return set_algebra(left, tx, names[op], [right], {})
    left.refuse("this operator")


def unary(tx: Region, op: Any, value: Value) -> Value:
    """``-value``, ``+value``, ``~value``."""
    if isinstance(value, TensorValue):
        return tx.tensor_op("call_function", op, (value,))
    if isinstance(value, NumberValue) and op is operator.neg and value.kind is not bool:
        return number_op(tx, op, value)
    if isinstance(value, InstanceValue):
        if isinstance(value, EnumMember):
            return _enum_result(tx, real_call(op, value.real))
        name = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__", abs: "__abs__"}[op]
        found = value.special(tx, name, [])
        if found is not None:
            return found
        value.refuse(name)
    real = constant_of(tx, value)
    if real is UNKNOWN:
        value.refuse(f"the operator {op.__name__}")
    return from_real(real_call(op, real))


def compare(tx: Region, op: Any, left: Value, right: Value) -> Value:
    """``left < right`` and so on."""
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return _compare_tensor(tx, op, left, right)
    if isinstance(left, NumberValue) or isinstance(right, NumberValue):
        others = [v for v in (left, right) if not isinstance(v, NumberValue)]
        if all(isinstance(v, Const) and type(v.value) in (int, float, bool) for v in others):
            return number_op(tx, op, left, right)
    if op in (operator.eq, operator.ne):
        verdict = equal_truth(tx, left, right)
        return Const(verdict if op is operator.eq else not verdict)
    a, b = constant_of(tx, left), constant_of(tx, right)
    if a is not UNKNOWN and b is not UNKNOWN:
        return from_real(real_call(op, a, b))
    if isinstance(left, InstanceValue) or isinstance(right, InstanceValue):
        for owner, name, other in ((left, f"__{op.__name__}__", right), (right, REFLECTED[op], left)):
            if isinstance(owner, InstanceValue) and (found := owner.special(tx, name, [other])) is not None:
                if not is_not_implemented(found):
                    return found
    if isinstance(left, SetValue) and isinstance(right, SetValue):
        return Const(bool(op(set(left.entries), set(right.entries))))
    raise GraphBreak(UNSUPPORTED_VALUE, f"comparing {left.describe()} with {right.describe()} isn't modelled")


def _compare_tensor(tx: Region, op: Any, left: Value, right: Value) -> Value:
    other = right if isinstance(left, TensorValue) else left
    if isinstance(other, (TensorValue, NumberValue)) or (isinstance(other, Const) and type(other.value) in NUMERIC):
        return tx.tensor_op("call_function", op, (left, right))
    if (
        op in (operator.eq, operator.ne)
        and isinstance(other, Const)
        and (other.value is None or isinstance(other.value, str))
    ):
        # Tensor.__eq__ gives up on these (NotImplemented), and Python compares identities.
        return Const(op is operator.ne)
    other.refuse("comparing it with a tensor")


def identical(tx: Region, a: Value, b: Value) -> bool:
    """``a is b``."""
    if a is b:
        return True
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        return same_tensor(tx, a, b)
    if a.python_type() is not b.python_type():
        return False
    if isinstance(a, NumberValue) or isinstance(b, NumberValue):
        if a.python_type() is bool:
            return bool(constant_of(tx, a) is constant_of(tx, b))
        raise GraphBreak(UNSUPPORTED_VALUE, "the identity of two numbers is asked for")
    if isinstance(a, EnumMember) and isinstance(b, EnumMember):
        a.pin(tx)
        b.pin(tx)
        return a.real is b.real
    if isinstance(a, RealCallable) and isinstance(b, RealCallable):
        a.pin(tx)
        b.pin(tx)
        return a.value is b.value
    if isinstance(a, Const) and isinstance(b, Const) and not isinstance(a, Opaque) and not isinstance(b, Opaque):
        if a.value is b.value:
            return True
        if type(a.value) in (type(None), bool, type(...)) or a.value != b.value:
            return False
        raise GraphBreak(UNSUPPORTED_VALUE, "the identity of two equal constants is asked for")
    if a.source is not None and b.source is not None:
        return _outside_identity(tx, a, b)
    if a.source is None and b.source is None and not isinstance(a, (MethodValue, BuiltinMethod, Const)):
        if isinstance(a, TupleValue) and not a.items:
            raise GraphBreak(UNSUPPORTED_VALUE, "the identity of two empty tuples is asked for")
        return False
    if isinstance(a, (ListValue, DictValue, SetValue, InstanceValue, ClosureValue)):
        return False
    raise GraphBreak(UNSUPPORTED_VALUE, f"whether {a.describe()} is {b.describe()} isn't known")


def matches(tx: Region, a: Value, b: Value) -> bool:
    """``a is b or a == b``, as containers compare their items."""
    if isinstance(a, NumberValue) or isinstance(b, NumberValue):
        if float not in (a.python_type(), b.python_type()):
            return equal_truth(tx, a, b)  # for whole numbers being the same object adds nothing
        real = constant_of(tx, a)
        if real != real:
            raise GraphBreak(UNSUPPORTED_VALUE, "whether two NaNs are one object is asked for")
        return equal_truth(tx, a, b)
    return identical(tx, a, b) or equal_truth(tx, a, b)


def _outside_identity(tx: Region, a: Value, b: Value) -> bool:
    from framecap.guards import DistinctGuard, SameGuard

    real_a, real_b = getattr(a, "real", getattr(a, "value", a)), getattr(b, "real", getattr(b, "value", b))
    assert a.source is not None and b.source is not None
    if isinstance(a, Opaque) and isinstance(b, Opaque) and real_a is real_b:
        tx.guard(SameGuard(a.source, b.source, where=tx.where))
        return True
    tx.guard(DistinctGuard((a.source, b.source), where=tx.where))
    return False


def equal_truth(tx: Region, a: Value, b: Value) -> bool:
    """``bool(a == b)`` where no tensor data decides it."""
    if isinstance(a, TensorValue) or isinstance(b, TensorValue):
        return compare(tx, operator.eq, a, b).truth(tx)
    if a is b and not isinstance(a, (InstanceValue, NumberValue, Const)):
        return True
    for owner, other in ((a, b), (b, a)):
        if isinstance(owner, EnumMember):
            if isinstance(other, EnumMember):
                return bool(owner.real == other.real)
            real = constant_of(tx, other)
            return bool(owner.real == real) if real is not UNKNOWN else False
    if isinstance(a, InstanceValue) or isinstance(b, InstanceValue):
        return _user_equal(tx, a, b)
    x, y = constant_of(tx, a), constant_of(tx, b)
    if x is not UNKNOWN and y is not UNKNOWN:
        return bool(real_call(operator.eq, x, y))
    if isinstance(a, (ListValue, TupleValue)) and isinstance(b, (ListValue, TupleValue)):
        if isinstance(a, ListValue) is not isinstance(b, ListValue) or len(a.items) != len(b.items):
            return False
        return all(matches(tx, p, q) for p, q in zip(a.items, b.items, strict=True))
    if isinstance(a, DictValue) and isinstance(b, DictValue):
        if set(a.entries) != set(b.entries):
            return False
        keys = [key for key, _ in a.entries.values()]
        return all(equal_truth(tx, a.getitem(tx, k), b.getitem(tx, k)) for k in keys)
    if isinstance(a, SetValue) and isinstance(b, SetValue):
        return set(a.entries) == set(b.entries)
    if isinstance(a, RealCallable) and isinstance(b, RealCallable):
        return identical(tx, a, b)
    if isinstance(a, RangeValue) and isinstance(b, RangeValue):
        return a.value == b.value
    if isinstance(a, Opaque) or isinstance(b, Opaque) or isinstance(a, SliceValue):
        raise GraphBreak(UNSUPPORTED_VALUE, f"comparing {a.describe()} with {b.describe()} isn't modelled")
    builtin = (ListValue, TupleValue, DictValue, SetValue, Const, NumberValue, RealCallable, ClosureValue, RangeValue)
    if isinstance(a, builtin) and isinstance(b, builtin) and type(a) is not type(b):
        return False
    raise GraphBreak(UNSUPPORTED_VALUE, f"comparing {a.describe()} with {b.describe()} isn't modelled")


def _user_equal(tx: Region, a: Value, b: Value) -> bool:
    for owner, other in ((a, b), (b, a)):
        if not isinstance(owner, InstanceValue):
            continue
        from ..values.lookup import class_lookup

        method, _ = class_lookup(tx, owner.cls, "__eq__")
        if method is object.__eq__:
            continue
        found = owner.special(tx, "__eq__", [other])
        if found is not None and not is_not_implemented(found):
            return found.truth(tx)
    return identical(tx, a, b)


def _as_model(op: Any) -> None:
    @models(op)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        return binary(tx, op, *args)


for _op in (*SPECIAL, *INPLACE):
    _as_model(_op)


def _compare_model(op: Any) -> None:
    @models(op)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        return compare(tx, op, *args)


for _op in REFLECTED:
    _compare_model(_op)


def _unary_model(op: Any) -> None:
    @models(op)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        return unary(tx, op, *args)


for _op in (operator.neg, operator.pos, operator.invert):
    _unary_model(_op)


@models(operator.getitem)
def _getitem(tx: Region, args: Any, kwargs: Any) -> Value:
    result: Value = args[0].getitem(tx, args[1])
    return result


@models(operator.index)
def _index(tx: Region, args: Any, kwargs: Any) -> Value:
    (value,) = args
    if value.python_type() is int:
        assert isinstance(value, Value)
        return value
    return from_real(real_call(operator.index, constant_of(tx, value)))


@models(operator.not_)
def _not(tx: Region, args: Any, kwargs: Any) -> Value:
    return Const(not args[0].truth(tx))


@models(operator.truth)
def _truth(tx: Region, args: Any, kwargs: Any) -> Value:
    return Const(args[0].truth(tx))
