"""Instances of Python classes, and Python's attribute lookup, with every step of it guarded where it was taken."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framecap.guards import AbsentAttrGuard, AbsentTypeAttrGuard, Attr, DictOf, IsGuard, TypeAttr
from framecap.guards import Const as ConstSource

from ..errors import UNSUPPORTED_ATTRIBUTE, GraphBreak
from .base import Args, Kwargs, Raised, Value
from .constant import UNKNOWN, Const, constant_of
from .exception import ExceptionValue
from .function import BuiltinValue, ClassValue, FunctionConst, PropertyLike
from .mapping import DictValue, pairs_of
from .marks import DELETED
from .method import BuiltinMethod, MethodValue
from .sequence import ListValue, TupleValue

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region

MISSING: Any = object()
HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: classes without it can't be changed, so what is found on them needs no guard."""
SLOT = types.MemberDescriptorType
GETSET = types.GetSetDescriptorType
FIELD = type(namedtuple("Sample", "field").field)  # type: ignore[attr-defined]
"""The descriptor of a named tuple's field; its __reduce__ tells the position."""


def class_lookup(tx: Region, cls: type, name: str) -> tuple[Any, Source | None]:
    """What ``name`` is on ``cls`` by its mro (MISSING if nothing), and its source; absence is guarded here.

    A found object is guarded by whoever uses it, through the source.
    """
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name], TypeAttr(ConstSource(cls), name)
    if cls.__flags__ & HEAP_TYPE:
        tx.guard(AbsentTypeAttrGuard(ConstSource(cls), name, where=tx.where))
    return MISSING, None


def pin(tx: Region, cls: type, found: Any, source: Source | None) -> None:
    """Guard that ``found`` is what the class has."""
    if source is not None and cls.__flags__ & HEAP_TYPE:
        tx.guard(IsGuard(source, found, where=tx.where))


def function_value(found: Any, source: Source | None) -> Value:
    """A callable found on a class. Without a source of its own it is part of something pinned, such as a property."""
    if isinstance(found, types.FunctionType):
        return FunctionConst(found, source if source is not None else ConstSource(found))
    return BuiltinValue(found, source)


def attribute_error(cls: type, name: str) -> Raised:
    return Raised(ExceptionValue(AttributeError, [Const(f"{cls.__name__!r} object has no attribute {name!r}")]))


Read = Callable[["Region", str], "Value | None"]


def class_getattr(tx: Region, owner: Value, cls: type, name: str, read: Read) -> Value:
    """``owner.name`` as Objects/typeobject.c does it: the class's __getattribute__, then its __getattr__."""
    custom, source = class_lookup(tx, cls, "__getattribute__")
    fallback, fallback_source = class_lookup(tx, cls, "__getattr__")
    if fallback is MISSING and not isinstance(custom, types.FunctionType):
        return generic_getattr(tx, owner, cls, name, read)
    try:
        if isinstance(custom, types.FunctionType):
            return FunctionConst(custom, source).call(tx, [owner, Const(name)], {})
        return generic_getattr(tx, owner, cls, name, read)
    except Raised as raised:
        if fallback is MISSING or not issubclass(raised.value.python_type(), AttributeError):
            raise
    pin(tx, cls, fallback, fallback_source)
    return function_value(fallback, fallback_source).call(tx, [owner, Const(name)], {})


def generic_getattr(tx: Region, owner: Value, cls: type, name: str, read: Read, start: type | None = None) -> Value:
    """``object.__getattribute__`` for an object of class ``cls``; ``read`` looks in the instance.

    start: for super(): look on the mro only after this class, and not in the instance.
    """
    if start is None:
        found, source = class_lookup(tx, cls, name)
    else:
        found, source = super_lookup(tx, cls, start, name)
    kind = type(found)
    if kind is property:
        pin(tx, cls, found, source)
        if found.fget is None:
            raise attribute_error(cls, name)
        return function_value(found.fget, None).call(tx, [owner], {})
    if kind is functools.cached_property:
        pin(tx, cls, found, source)
        cached = read(tx, name)
        if cached is not None:
            return cached
        made = function_value(found.func, None).call(tx, [owner], {})
        owner.setattr(tx, found.attrname or name, made)
        return made
    if kind in (SLOT, GETSET):
        pin(tx, cls, found, source)
        if name == "__class__":
            return ClassValue(cls)
        if kind is SLOT:
            slot = read(tx, name)
            if slot is None:
                raise attribute_error(cls, name)
            return slot
        return owner_special(tx, owner, cls, name)
    if kind is FIELD and isinstance(owner, TupleValue):
        pin(tx, cls, found, source)
        return owner.items[found.__reduce__()[1][0]]
    if found is not MISSING and start is None and is_data_descriptor(found):
        getter, _ = class_lookup(tx, type(found), "__get__")
        pin(tx, cls, found, source)
        if isinstance(getter, types.FunctionType):
            descriptor = tx.wrap(found, source) if source is not None else BuiltinValue(found)
            return function_value(getter, None).call(tx, [descriptor, owner, ClassValue(cls)], {})
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the descriptor {name!r} of class {cls.__name__} isn't modelled")
    if start is None:
        own = read(tx, name)
        if own is not None:
            return own
    if found is MISSING:
        raise attribute_error(cls, name)
    if kind is types.FunctionType:
        return MethodValue(FunctionConst(found, source), owner)
    if kind is classmethod:
        pin(tx, cls, found, source)
        return bind(function_value(found.__func__, None), ClassValue(cls))
    if kind is staticmethod:
        pin(tx, cls, found, source)
        return function_value(found.__func__, None)
    if kind in (
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.ClassMethodDescriptorType,
        types.BuiltinFunctionType,
    ):
        pin(tx, cls, found, source)
        if kind is types.BuiltinFunctionType:
            return BuiltinValue(found)
        return bind(BuiltinValue(found), owner if kind is not types.ClassMethodDescriptorType else ClassValue(cls))
    if class_lookup(tx, kind, "__get__")[0] is not MISSING:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the descriptor {name!r} of class {cls.__name__} isn't modelled")
    assert source is not None
    return tx.wrap(found, source)


def super_lookup(tx: Region, cls: type, start: type, name: str) -> tuple[Any, Source | None]:
    """As `class_lookup`, on the classes after ``start`` in the mro of ``cls``. Every class passed over is guarded."""
    mro = cls.__mro__
    for owner in mro[mro.index(start) + 1 :]:
        if name in owner.__dict__:
            return owner.__dict__[name], TypeAttr(ConstSource(owner), name)
        if owner.__flags__ & HEAP_TYPE:
            # Looked up through the whole mro of `owner`: what it finds must stay what it finds now.
            inherited = next((c.__dict__[name] for c in owner.__mro__ if name in c.__dict__), MISSING)
            if inherited is MISSING:
                tx.guard(AbsentTypeAttrGuard(ConstSource(owner), name, where=tx.where))
            else:
                tx.guard(IsGuard(TypeAttr(ConstSource(owner), name), inherited, where=tx.where))
    return MISSING, None


def is_data_descriptor(found: Any) -> bool:
    return any("__set__" in c.__dict__ or "__delete__" in c.__dict__ for c in type(found).__mro__)


def bind(function: Value, owner: Value) -> Value:
    return MethodValue(function, owner)


def owner_special(tx: Region, owner: Value, cls: type, name: str) -> Value:
    """``__dict__`` and other attributes that C code computes."""
    if name == "__dict__" and isinstance(owner, InstanceValue):
        return InstanceDict(owner)
    raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of class {cls.__name__} is computed by C code")


def class_object_getattr(tx: Region, value: ClassValue, name: str) -> Value:
    """``cls.name``: as ``type.__getattribute__``, for classes whose metaclass doesn't interfere."""
    cls = value.cls
    if name in ("__name__", "__qualname__", "__module__"):
        return Const(getattr(cls, name))
    if name in ("__mro__", "__bases__"):
        from .sequence import TupleValue

        return TupleValue([ClassValue(c) for c in getattr(cls, name)])
    if name == "__class__":
        return ClassValue(type(cls))
    if name == "__dict__":
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"__dict__ of {value.describe()} is read")
    import enum

    if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
        return tx.enum_member(cls.__members__[name])
    meta, _ = class_lookup(tx, type(cls), name)
    if meta is not MISSING and type(cls) is not type and is_data_descriptor(meta):
        if type(meta) is property and meta.fget is not None:
            return function_value(meta.fget, None).call(tx, [value], {})
        raise GraphBreak(
            UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of {value.describe()} is a matter of its metaclass"
        )
    found, source = class_lookup(tx, cls, name)
    if found is MISSING:
        if meta is not MISSING:
            if isinstance(meta, types.FunctionType):
                return bind(FunctionConst(meta), value)
            return bind(BuiltinValue(meta), value)
        if class_lookup(tx, type(cls), "__getattr__")[0] is not MISSING:
            raise GraphBreak(
                UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of {value.describe()} is a matter of its metaclass"
            )
        raise Raised(ExceptionValue(AttributeError, [Const(f"type object {cls.__name__!r} has no attribute {name!r}")]))
    kind = type(found)
    if kind is types.FunctionType:
        return FunctionConst(found, source)
    if kind is classmethod:
        pin(tx, cls, found, source)
        return bind(function_value(found.__func__, None), value)
    if kind is staticmethod:
        pin(tx, cls, found, source)
        return function_value(found.__func__, None)
    if kind in (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType):
        pin(tx, cls, found, source)
        return BuiltinValue(found)
    if kind is types.ClassMethodDescriptorType:
        pin(tx, cls, found, source)
        return bind(BuiltinValue(found), value)
    if kind is property or kind in (SLOT, GETSET):
        pin(tx, cls, found, source)
        return PropertyLike(found, source)
    if class_lookup(tx, kind, "__get__")[0] is not MISSING:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the descriptor {name!r} of {value.describe()} isn't modelled")
    assert source is not None
    return tx.wrap(found, source)


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


def class_dict_lookup(cls: type, name: str) -> Any:
    """What ``name`` is on the class, without a guard: only to tell slots, whose layout can't change."""
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), MISSING)


class EnumMember(InstanceValue):
    """A member of an enum: one object per name, for ever."""

    __slots__ = ()

    def pin(self, tx: Region) -> None:
        if self.source is not None:
            tx.guard(IsGuard(self.source, self.real, where=tx.where))

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("name", "_name_"):
            return Const(self.real._name_)
        if name in ("value", "_value_"):
            from .constant import from_real

            return from_real(self.real._value_)
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


def raw_attribute(real: Any, name: str) -> Any:
    """An attribute in the instance itself: its ``__dict__`` or a slot; runs no code of the program."""
    try:
        space = object.__getattribute__(real, "__dict__")
    except AttributeError:
        space = {}
    if type(space) is dict and name in space:
        return space[name]
    for owner in type(real).__mro__:
        found = owner.__dict__.get(name)
        if type(found) is SLOT:
            try:
                return found.__get__(real)
            except AttributeError:
                return MISSING
    return MISSING


def has_dict(cls: type) -> bool:
    return cls.__dictoffset__ != 0


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
