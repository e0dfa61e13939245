"""Methods of built-in classes called through the class: ``object.__setattr__(self, ..)``, ``dict.get(d, ..)``."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..errors import UNKNOWN_CALL, GraphBreak
from ..values.base import Args, Kwargs, Value
from ..values.constant import UNKNOWN, Const, ConstMethod, constant_of, from_real, is_immutable, real_call
from ..values.exception import ExceptionValue
from ..values.function import BuiltinValue, ClassValue
from ..values.instance import InstanceValue, storage_method
from ..values.lookup import generic_getattr
from ..values.mapping import DictValue
from ..values.sequence import ListValue, TupleValue
from ..values.sets import SetValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

DESCRIPTORS = (types.WrapperDescriptorType, types.MethodDescriptorType)


def call_descriptor(tx: Region, function: BuiltinValue, args: Args, kwargs: Kwargs) -> Value:
    """A call of C code without a model of its own."""
    real = function.value
    name = getattr(real, "__name__", "")
    owner = getattr(real, "__objclass__", None)
    if isinstance(real, DESCRIPTORS) and owner is not None and args:
        found = _method(tx, owner, name, real, args, kwargs)
        if found is not None:
            return found
    if name == "__new__" and getattr(real, "__self__", None) is not None and args and isinstance(args[0], ClassValue):
        from .classes import new_instance

        return new_instance(tx, args[0].cls, args[1:], kwargs)
    if name == "__init_subclass__" or name == "__subclasshook__":
        return Const(None)
    if hasattr(real, "__wrapped__") and type(real).__name__ == "_lru_cache_wrapper":
        return _cached(tx, real, args, kwargs)
    if name == "fromkeys" and getattr(real, "__self__", None) is dict:
        made = DictValue()
        for key in args[0].unpack(tx):
            made.setitem(tx, key, args[1] if len(args) > 1 else Const(None))
        return made
    if name in ("maketrans",) or (
        getattr(real, "__self__", None) in (str, int, float, bytes) and name in _PURE_CLASS_METHODS
    ):
        reals = [constant_of(tx, a) for a in args]
        if not any(r is UNKNOWN for r in reals) and not kwargs:
            return from_real(real_call(real, *reals))
    raise GraphBreak(UNKNOWN_CALL, f"{function.describe()} is C code without a model")


_PURE_CLASS_METHODS = {"fromhex", "from_bytes"}


def _method(tx: Region, owner: type, name: str, real: Any, args: Args, kwargs: Kwargs) -> Value | None:
    target, *rest = args
    if name == "__getattribute__" and isinstance(target, InstanceValue):
        return generic_getattr(tx, target, target.cls, constant_of(tx, rest[0]), target.read)
    if isinstance(target, TensorValue) and issubclass(torch.Tensor, owner) and owner is not object:
        return target.getattr(tx, name).call(tx, rest, kwargs)
    if owner is object:
        if name == "__init__":
            return Const(None)
        if name == "__setattr__" and isinstance(target, InstanceValue):
            target.generic_setattr(tx, constant_of(tx, rest[0]), rest[1])
            return Const(None)
        if name in ("__eq__", "__ne__"):
            from .operators import identical

            return Const(identical(tx, target, rest[0]) is (name == "__eq__"))
        return None
    if issubclass(owner, BaseException) and name == "__init__" and isinstance(target, ExceptionValue):
        before = target.arguments
        tx.undo_later(lambda: setattr(target, "arguments", before))
        target.arguments = list(rest)
        return Const(None)
    if isinstance(target, InstanceValue) and target.storage is not None:
        return storage_method(tx, target, name, real).call(tx, rest, kwargs)
    if isinstance(target, (DictValue, ListValue, SetValue, TupleValue)) and issubclass(target.cls, owner):
        if isinstance(target, TupleValue) and name == "__getitem__":
            found = target._select(tx, rest[0])
            return TupleValue(found) if isinstance(found, list) else found
        if isinstance(target, TupleValue) and name == "__len__":
            return Const(len(target.items))
        return target.getattr(tx, name).call(tx, rest, kwargs)
    if isinstance(target, Const) and is_immutable(target.value) and issubclass(type(target.value), owner):
        return ConstMethod(target, name).call(tx, rest, kwargs)
    return None


def _cached(tx: Region, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """A functools.lru_cache function of constants: called for real, as eager execution would, and cached by itself."""
    reals = [constant_of(tx, a) for a in args]
    named = {k: constant_of(tx, v) for k, v in kwargs.items()}
    if any(r is UNKNOWN for r in (*reals, *named.values())):
        raise GraphBreak(UNKNOWN_CALL, f"the cached function {real.__name__} is called with objects")
    return from_real(real_call(real, *reals, **named))
