"""Python's attribute lookup, with every step of it guarded where it was taken."""

from __future__ import annotations

import functools
import types
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framecap.guards import AbsentTypeAttrGuard, IsGuard, TypeAttr
from framecap.guards import Const as ConstSource

from ..errors import UNSUPPORTED_ATTRIBUTE, GraphBreak
from .base import Raised, Value
from .constant import Const
from .exception import ExceptionValue
from .function import HEAP_TYPE, BuiltinValue, ClassValue, FunctionConst, PropertyLike
from .method import MethodValue
from .sequence import TupleValue

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.tracer import Tracer as Region

MISSING: Any = object()
SLOT = types.MemberDescriptorType
GETSET = types.GetSetDescriptorType
FIELD = type(namedtuple("Sample", "field").field)  # type: ignore[attr-defined]
"""The descriptor of a named tuple's field; its __reduce__ tells the position."""


_MRO, _DICT, _MODULE = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__module__"))


def mro_of(cls: type) -> tuple[type, ...]:
    """The class's mro, whatever its metaclass says. Breaks the graph for a class that is still being made."""
    mro: tuple[type, ...] | None = _MRO(cls)
    if mro is None:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, "the class is still being made")
    return mro


def dict_of(cls: type) -> types.MappingProxyType[str, Any]:
    """The class's own attributes. Breaks the graph if a look-up in them might run the program's code, for an odd key."""
    space: types.MappingProxyType[str, Any] = _DICT(cls)
    known = _plain.get(id(cls))
    if known is None or known() is not cls:
        if not all(type(key) is str for key in space):
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, "the class has attributes whose names aren't plain strings")
        _plain[id(cls)] = weakref.ref(cls)
    return space


_plain: dict[int, weakref.ref[type]] = {}
"""Classes by id whose attributes all have plain strings as names; those added later always have."""


def module_of(cls: type) -> str:
    """The name of the module that a class was made in, whatever its metaclass says; "" if that is no string."""
    name = _MODULE(cls)
    return name if type(name) is str else ""


def class_lookup(tx: Region, cls: type, name: str) -> tuple[Any, Source | None]:
    """What ``name`` is on ``cls`` by its mro (MISSING if nothing), and its source; absence is guarded here.

    A found object is guarded by whoever uses it, through the source.
    """
    for owner in mro_of(cls):
        space = dict_of(owner)
        if name in space:
            return space[name], TypeAttr(ConstSource(cls), name)
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
        return owner.computed_attribute(tx, cls, name)
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
    mro = mro_of(cls)
    for owner in mro[mro.index(start) + 1 :]:
        space = dict_of(owner)
        if name in space:
            return space[name], TypeAttr(ConstSource(owner), name)
        if owner.__flags__ & HEAP_TYPE:
            # Looked up through the whole mro of `owner`: what it finds must stay what it finds now.
            inherited = next((dict_of(c)[name] for c in mro_of(owner) if name in dict_of(c)), MISSING)
            if inherited is MISSING:
                tx.guard(AbsentTypeAttrGuard(ConstSource(owner), name, where=tx.where))
            else:
                tx.guard(IsGuard(TypeAttr(ConstSource(owner), name), inherited, where=tx.where))
    return MISSING, None


def is_data_descriptor(found: Any) -> bool:
    return any("__set__" in dict_of(c) or "__delete__" in dict_of(c) for c in mro_of(type(found)))


def bind(function: Value, owner: Value) -> Value:
    return MethodValue(function, owner)


def class_object_getattr(tx: Region, value: ClassValue, name: str) -> Value:
    """``cls.name``: as ``type.__getattribute__``, for classes whose metaclass doesn't interfere."""
    cls = value.cls
    if name in ("__name__", "__qualname__", "__module__"):
        return named(cls, name)
    if name in ("__mro__", "__bases__"):
        return TupleValue([ClassValue(c) for c in (mro_of(cls) if name == "__mro__" else cls.__bases__)])
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
        return BuiltinValue(found.__get__(None, cls))
    if kind is property or kind in (SLOT, GETSET):
        pin(tx, cls, found, source)
        return PropertyLike(found, source)
    if class_lookup(tx, kind, "__get__")[0] is not MISSING:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the descriptor {name!r} of {value.describe()} isn't modelled")
    assert source is not None
    return tx.wrap(found, source)


def class_dict_lookup(cls: type, name: str) -> Any:
    """What ``name`` is on the class, without a guard: only to tell slots, whose layout can't change."""
    return next((dict_of(c)[name] for c in mro_of(cls) if name in dict_of(c)), MISSING)


def named(cls: type, name: str) -> Value:
    """``__name__``, ``__qualname__`` or ``__module__`` of a class whose metaclass doesn't compute it."""
    of_metaclass = class_dict_lookup(type(cls), name)
    if of_metaclass is not type.__dict__[name] and type(of_metaclass) is not str:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of a class is a matter of its metaclass")
    found = type.__dict__[name].__get__(cls)
    if type(found) is not str:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"{name} of a class is no string")
    return Const(found)


def instance_dict(real: Any) -> dict[str, Any]:
    """The object's own ``__dict__``, {} if it has none; runs no code of the program."""
    try:
        space = object.__getattribute__(real, "__dict__")
    except AttributeError:
        return {}
    if type(space) is not dict:
        return {}
    if not set(map(type, space)) <= {str}:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, "the object has attributes whose names aren't plain strings")
    return space


def raw_attribute(real: Any, name: str) -> Any:
    """An attribute in the instance itself: its ``__dict__`` or a slot; runs no code of the program."""
    space = instance_dict(real)
    if name in space:
        return space[name]
    for owner in mro_of(type(real)):
        found = dict_of(owner).get(name)
        if type(found) is SLOT:
            try:
                return found.__get__(real)
            except AttributeError:
                return MISSING
    return MISSING


def has_dict(cls: type) -> bool:
    return cls.__dictoffset__ != 0
