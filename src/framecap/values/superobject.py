"""super(cls, owner): lookup that begins after a class in the mro of the owner's class."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from .base import Value
from .exception import ExceptionValue
from .function import ClassValue
from .instance import InstanceValue
from .lookup import generic_getattr, mro_of, super_lookup
from .sequence import TupleValue

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region


CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType)


class SuperValue(Value):
    """A super object; ``owner`` is an instance or a class."""

    __slots__ = ("cls", "owner")

    def __init__(self, cls: type, owner: Value) -> None:
        super().__init__()
        self.cls = cls
        self.owner = owner

    def python_type(self) -> type:
        return super

    def getattr(self, tx: Region, name: str) -> Value:
        from .instance import storage_method
        from .lookup import MISSING, attribute_error, bind, function_value, pin

        owner = self.owner
        if isinstance(owner, ClassValue) and self.cls not in mro_of(owner.cls):
            if self.cls not in mro_of(type(owner.cls)):
                self.refuse(f"attribute {name!r}")
            return generic_getattr(tx, owner, type(owner.cls), name, lambda _tx, _name: None, start=self.cls)
        if isinstance(owner, ClassValue):
            found, source = super_lookup(tx, owner.cls, self.cls, name)
            if found is MISSING:
                raise attribute_error(super, name)
            if type(found) is classmethod:
                pin(tx, owner.cls, found, source)
                return bind(function_value(found.__func__, None), owner)
            if type(found) is staticmethod:
                pin(tx, owner.cls, found, source)
                return function_value(found.__func__, None)
            if type(found) in CALLABLES:
                return function_value(found, source)
            assert source is not None
            return tx.wrap(found, source)
        cls = owner.python_type()
        if self.cls not in mro_of(cls):
            self.refuse(f"attribute {name!r}")
        if isinstance(owner, InstanceValue) and owner.storage is not None:
            found, _ = super_lookup(tx, cls, self.cls, name)
            if (
                type(found).__name__ in ("method_descriptor", "wrapper_descriptor")
                and found.__objclass__ is not object
                and name not in ("__setattr__", "__getattribute__")
            ):
                return storage_method(tx, owner, name, found)
        if not isinstance(owner, (InstanceValue, TupleValue, ExceptionValue)):
            self.refuse(f"attribute {name!r}")
        return generic_getattr(tx, owner, cls, name, lambda _tx, _name: None, start=self.cls)
