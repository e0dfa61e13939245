"""Instances of Python classes, from outside or made in the region."""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from framecap.guards import AbsentAttrGuard, Attr, DictOf, IsGuard

from ..errors import UNSUPPORTED_ATTRIBUTE, GraphBreak
from .base import Args, Kwargs, Raised, Value
from .constant import UNKNOWN, Const, constant_of
from .exception import ExceptionValue
from .function import FunctionConst
from .lookup import (
    MISSING,
    SLOT,
    attribute_error,
    class_dict_lookup,
    class_getattr,
    class_lookup,
    function_value,
    has_dict,
    is_data_descriptor,
    pin,
    raw_attribute,
)
from .mapping import DictValue, pairs_of
from .marks import DELETED
from .method import BuiltinMethod
from .sequence import ListValue

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class InstanceValue(Value):
    """An object of a Python class, from outside (``real``) or made in the region.

    ``attrs`` holds attributes written in the region (DELETED for deleted ones); others are read from ``real``.
    ``storage`` is the content of an instance of a subclass of dict or list.
    """

    __slots__ = ("attrs", "cls", "real", "storage")

    def __init__(self, cls: type, real: Any = None, source: Source | None = None, storage: Value | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.real = real
        self.attrs: dict[str, Any] = {}
        self.storage = storage

    def python_type(self) -> type:
        return self.cls

    # Attributes

    def read(self, tx: Region, name: str) -> Value | None:
        """The instance's own attribute, or None."""
        if name in self.attrs:
            found = self.attrs[name]
            return None if found is DELETED else found
        if self.source is None:
            return None
        real = raw_attribute(self.real, name)
        if real is MISSING:
            tx.guard(AbsentAttrGuard(self.source, name, where=tx.where))
            return None
        return tx.wrap(real, Attr(self.source, name))

    def getattr(self, tx: Region, name: str) -> Value:
        if self.storage is not None and name not in self.attrs:
            found, _ = class_lookup(tx, self.cls, name)
            if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType):
                return storage_method(tx, self, name, found)
        return class_getattr(tx, self, self.cls, name, self.read)

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        custom, source = class_lookup(tx, self.cls, "__setattr__")
        if isinstance(custom, types.FunctionType):
            FunctionConst(custom, source).call(tx, [self, Const(name), value], {})
            return
        if custom is not object.__setattr__:
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"class {self.cls.__name__} has a __setattr__ of its own")
        self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Region, name: str, value: Value) -> None:
        """``object.__setattr__``."""
        found, source = class_lookup(tx, self.cls, name)
        if type(found) is property:
            pin(tx, self.cls, found, source)
            if found.fset is None:
                message = f"property {name!r} of {self.cls.__qualname__!r} object has no setter"
                raise Raised(ExceptionValue(AttributeError, [Const(message)]))
            function_value(found.fset, None).call(tx, [self, value], {})
            return
        if found is not MISSING and type(found) is not SLOT and is_data_descriptor(found):
            setter, _ = class_lookup(tx, type(found), "__set__")
            if not isinstance(setter, types.FunctionType) or source is None:
                raise GraphBreak(
                    UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of class {self.cls.__name__} is set by C code"
                )
            pin(tx, self.cls, found, source)
            function_value(setter, None).call(tx, [tx.wrap(found, source), self, value], {})
            return
        if type(found) is SLOT:
            pin(tx, self.cls, found, source)
        elif not has_dict(self.cls):
            if found is MISSING:
                raise attribute_error(self.cls, name)
            message = f"{self.cls.__name__!r} object attribute {name!r} is read-only"
            raise Raised(ExceptionValue(AttributeError, [Const(message)]))
        self.write(tx, name, value)

    def write(self, tx: Region, name: str, value: Any) -> None:
        before = self.attrs

        def undo() -> None:
            self.attrs = before

        tx.undo_later(undo)
        self.attrs = {**before, name: value}
        if self.source is not None:
            if value is DELETED:
                tx.record("delattr", self, name)
            else:
                tx.record("setattr", self, name, value)

    def delattr(self, tx: Region, name: str) -> None:
        custom, _ = class_lookup(tx, self.cls, "__delattr__")
        if custom is not object.__delattr__:
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"class {self.cls.__name__} has a __delattr__ of its own")
        found, source = class_lookup(tx, self.cls, name)
        if type(found) is property and found.fdel is not None:
            pin(tx, self.cls, found, source)
            function_value(found.fdel, None).call(tx, [self], {})
            return
        if found is not MISSING and is_data_descriptor(found):
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"deleting attribute {name!r} of class {self.cls.__name__}")
        if self.read(tx, name) is None:
            raise Raised(ExceptionValue(AttributeError, [Const(name)]))
        self.write(tx, name, DELETED)

    def computed_attribute(self, tx: Region, cls: type, name: str) -> Value:
        if name == "__dict__":
            return InstanceDict(self)
        return super().computed_attribute(tx, cls, name)

    # Protocols, by the methods of the class

    def special(self, tx: Region, name: str, args: Args) -> Value | None:
        """Call the special method ``name`` of the class, or None if there is none."""
        found, source = class_lookup(tx, self.cls, name)
        if found is MISSING or found is None:
            return None
        if isinstance(found, types.FunctionType):
            return FunctionConst(found, source).call(tx, [self, *args], {})
        if self.storage is not None and type(found) in (types.WrapperDescriptorType, types.MethodDescriptorType):
            pin(tx, self.cls, found, source)
            return storage_method(tx, self, name, found).call(tx, args, {})
        self.refuse(f"{name}()")

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        found, source = class_lookup(tx, self.cls, "__call__")
        if isinstance(found, types.FunctionType):
            return FunctionConst(found, source).call(tx, [self, *args], kwargs)
        if found is MISSING:
            raise Raised(ExceptionValue(TypeError, [Const(f"{self.cls.__name__!r} object is not callable")]))
        self.refuse("calling")

    def getitem(self, tx: Region, key: Value) -> Value:
        found = self.special(tx, "__getitem__", [key])
        if found is None:
            raise Raised(ExceptionValue(TypeError, [Const(f"{self.cls.__name__!r} object is not subscriptable")]))
        return found

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        if self.special(tx, "__setitem__", [key, value]) is None:
            message = f"{self.cls.__name__!r} object does not support item assignment"
            raise Raised(ExceptionValue(TypeError, [Const(message)]))

    def delitem(self, tx: Region, key: Value) -> None:
        if self.special(tx, "__delitem__", [key]) is None:
            message = f"{self.cls.__name__!r} object does not support item deletion"
            raise Raised(ExceptionValue(TypeError, [Const(message)]))

    def iterate(self, tx: Region) -> Value:
        found = self.special(tx, "__iter__", [])
        if found is None:
            self.refuse("iteration")
        return found

    def next(self, tx: Region) -> Value | None:
        try:
            found = self.special(tx, "__next__", [])
        except Raised as error:
            if error.value.python_type() is StopIteration:
                return None
            raise
        if found is None:
            self.refuse("next()")
        return found

    def truth(self, tx: Region) -> bool:
        found = self.special(tx, "__bool__", [])
        if found is not None:
            real = constant_of(tx, found)
            if isinstance(real, bool):
                return real
            self.refuse("truth testing with a __bool__ that gives no constant")
        if class_lookup(tx, self.cls, "__len__")[0] is not MISSING:
            return self.length(tx) != 0
        return True

    def length(self, tx: Region) -> int:
        found = self.special(tx, "__len__", [])
        if found is None:
            raise Raised(ExceptionValue(TypeError, [Const(f"object of type {self.cls.__name__!r} has no len()")]))
        real = constant_of(tx, found)
        if real is UNKNOWN or type(real) is not int:
            self.refuse("len() that gives no constant")
        return real

    def contains(self, tx: Region, item: Value) -> bool:
        found = self.special(tx, "__contains__", [item])
        return found.truth(tx) if found is not None else super().contains(tx, item)

    def hash_key(self, tx: Region) -> Any:
        hasher, _source = class_lookup(tx, self.cls, "__hash__")
        equal, _equal_source = class_lookup(tx, self.cls, "__eq__")
        if hasher is object.__hash__ and equal is object.__eq__:
            if self.source is not None:
                tx.guard(IsGuard(self.source, self.real, where=tx.where))
                return self.real
            return self
        self.refuse("use as a dict key")

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        cls = emitter.object(self.cls, self.cls.__name__)
        maker: Any = object.__new__
        if isinstance(self.storage, DictValue):
            maker = OrderedDict.__new__ if issubclass(self.cls, OrderedDict) else dict.__new__
        elif isinstance(self.storage, ListValue):
            maker = list.__new__
        new = emitter.object(maker, f"{maker.__self__.__name__}_new")
        return emitter.container(self, f"{new}({cls})", lambda name: self._fill(emitter, name))

    def _fill(self, emitter: Emitter, name: str) -> None:
        if isinstance(self.storage, DictValue):
            setter = OrderedDict.__setitem__ if issubclass(self.cls, OrderedDict) else dict.__setitem__
            put = emitter.object(setter, "dict_setitem")
            for key, item in self.storage.entries.values():
                emitter.line(f"{put}({name}, {emitter.value(key)}, {emitter.value(item)})")
        elif isinstance(self.storage, ListValue) and self.storage.items:
            extend = emitter.object(list.extend, "list_extend")
            inner = ", ".join(emitter.value(item) for item in list.__iter__(self.storage.items))
            emitter.line(f"{extend}({name}, ({inner},))")
        put = emitter.object(object.__setattr__, "object_setattr")
        for word, item in self.attrs.items():
            if item is not DELETED:
                emitter.line(f"{put}({name}, {word!r}, {emitter.value(item)})")


class InstanceDict(Value):
    """``owner.__dict__``: reads and writes go to the owner's own attributes."""

    __slots__ = ("owner",)

    def __init__(self, owner: InstanceValue) -> None:
        super().__init__()
        self.owner = owner

    def python_type(self) -> type:
        return dict

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("get", "pop", "setdefault", "update"):
            return BuiltinMethod(self, name, self._method)
        return self.contents(tx).getattr(tx, name)

    def _method(self, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "update":
            for other in args:
                for key, item in pairs_of(tx, other):
                    self.setitem(tx, key, item)
            for word, item in kwargs.items():
                self.owner.write(tx, word, item)
            return Const(None)
        found = self.find(tx, args[0])
        if found is None:
            if name == "pop" and len(args) < 2:
                raise Raised(ExceptionValue(KeyError, [args[0]]))
            found = args[1] if len(args) > 1 else Const(None)
            if name == "setdefault":
                self.setitem(tx, args[0], found)
        elif name == "pop":
            self.owner.write(tx, constant_of(tx, args[0]), DELETED)
        return found

    def find(self, tx: Region, key: Value) -> Value | None:
        name = constant_of(tx, key)
        if not isinstance(name, str):
            self.refuse("looking up a key that isn't a string")
        if type(class_dict_lookup(self.owner.cls, name)) is SLOT:
            return None
        return self.owner.read(tx, name)

    def getitem(self, tx: Region, key: Value) -> Value:
        found = self.find(tx, key)
        if found is None:
            raise Raised(ExceptionValue(KeyError, [key]))
        return found

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        name = constant_of(tx, key)
        if not isinstance(name, str) or type(class_dict_lookup(self.owner.cls, name)) is SLOT:
            self.refuse("storing under this key")
        self.owner.write(tx, name, value)

    def contains(self, tx: Region, item: Value) -> bool:
        return self.find(tx, item) is not None

    def contents(self, tx: Region) -> Value:
        """All attributes as a dict that is only read."""
        owner = self.owner
        if owner.source is None:
            made = DictValue()
            made.entries = {k: (Const(k), v) for k, v in owner.attrs.items() if v is not DELETED}
            return made
        if owner.attrs:
            self.refuse("listing the attributes of an object that was changed")
        return tx.wrap(object.__getattribute__(owner.real, "__dict__"), DictOf(owner.source))

    def length(self, tx: Region) -> int:
        return self.contents(tx).length(tx)

    def truth(self, tx: Region) -> bool:
        return self.contents(tx).truth(tx)

    def iterate(self, tx: Region) -> Value:
        return self.contents(tx).iterate(tx)

    def emit(self, emitter: Emitter) -> str:
        return f"{emitter.value(self.owner)}.__dict__"


class EnumMember(InstanceValue):
    """A member of an enum: one object per name, for ever."""

    __slots__ = ()

    def pin(self, tx: Region) -> None:
        if self.source is not None:
            tx.guard(IsGuard(self.source, self.real, where=tx.where))

    def getattr(self, tx: Region, name: str) -> Value:
        own = {"name": "_name_", "value": "_value_"}.get(name, name)
        if own in ("_name_", "_value_") and (found := raw_attribute(self.real, own)) is not MISSING:
            from .constant import from_real

            return from_real(found)
        return super().getattr(tx, name)

    def hash_key(self, tx: Region) -> Any:
        import enum

        self.pin(tx)
        if type(self.real).__eq__ in (enum.Enum.__eq__, int.__eq__, str.__eq__, object.__eq__):
            return self.real
        self.refuse("use as a dict key")

    def truth(self, tx: Region) -> bool:
        return bool(self.real)

    def as_argument(self, tx: Region) -> Any:
        if isinstance(self.real, (int, str)):
            return self.real
        return super().as_argument(tx)

    def emit(self, emitter: Emitter) -> str:
        return emitter.object(self.real, str(self.real._name_ or "flag"))


def storage_method(tx: Region, owner: InstanceValue, name: str, found: Any) -> Value:
    """A method that a subclass of dict or list inherits from the built-in class."""
    storage = owner.storage
    assert storage is not None
    if name == "__iter__":
        return BuiltinMethod(owner, name, lambda o, t, n, a, k: storage.iterate(t))
    if name == "__delitem__":

        def delete(o: Value, t: Region, n: str, a: Args, k: Kwargs) -> Value:
            storage.delitem(t, *a)
            return Const(None)

        return BuiltinMethod(owner, name, delete)
    if name in ("__init__",):
        return BuiltinMethod(owner, name, lambda o, t, n, a, k: fill_storage(t, storage, a, k))
    return storage.getattr(tx, name)


def fill_storage(tx: Region, storage: Value, args: Args, kwargs: Kwargs) -> Value:
    """dict.__init__ and list.__init__."""
    if isinstance(storage, DictValue):
        for other in args:
            storage.merge(tx, other)
        for key, item in kwargs.items():
            storage.setitem(tx, Const(key), item)
    elif isinstance(storage, ListValue) and args:
        storage.extend(tx, args[0].unpack(tx))
    return Const(None)
