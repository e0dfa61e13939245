"""Classes that are called: containers, iterators, torch types, exceptions and classes of the program; isinstance."""

from __future__ import annotations

import abc
import enum
import functools
import types
import typing
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from framecap.guards import Call, EqualsGuard, Get, IsGuard

from ..errors import AUTOGRAD, CONTEXT_MANAGER, RAISES, UNKNOWN_CALL, UNSUPPORTED_VALUE, GraphBreak
from ..values.arity import run_model
from ..values.base import Args, Kwargs, Raised, Value
from ..values.constant import UNKNOWN, Const, Record, constant_of, from_real, is_immutable, real_call
from ..values.context import GradModeValue
from ..values.decorated import PartialValue
from ..values.exception import ExceptionValue
from ..values.function import CellValue, ClassValue, FunctionConst
from ..values.instance import InstanceValue
from ..values.iterator import EnumerateIterator, FilterIterator, MapIterator, SequenceIterator, ZipIterator
from ..values.lookup import HEAP_TYPE, class_dict_lookup, class_lookup, module_of, mro_of
from ..values.mapping import DictValue
from ..values.method import MethodValue
from ..values.module import ScratchModule
from ..values.number import NumberValue, number_op
from ..values.sequence import ListValue, RangeValue, SliceValue, TupleValue
from ..values.sets import SetValue
from ..values.superobject import SuperValue
from ..values.tensor import TensorValue
from .registry import MODELS, models

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region


# isinstance


def real_class(tx: Region, value: Value) -> Any:
    """The real class, union or tuple of classes of an isinstance test."""
    if isinstance(value, ClassValue):
        value.pin(tx)
        return value.cls
    if isinstance(value, TupleValue):
        return tuple(real_class(tx, item) for item in value.items)
    real = getattr(value, "value", None)
    if isinstance(real, types.UnionType):
        if value.source is not None:

            tx.guard(IsGuard(value.source, real, where=tx.where))
        return tuple(typing.get_args(real))
    raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} stands where a class is expected")


def is_instance(tx: Region, value: Value, cls: Value) -> bool:
    """``isinstance(value, cls)``."""
    options = real_class(tx, cls)
    kind = value.python_type()
    return any(
        _is_instance(tx, value, kind, option) for option in (options if isinstance(options, tuple) else (options,))
    )


def _is_instance(tx: Region, value: Value, kind: type, option: Any) -> bool:
    if isinstance(option, tuple):
        return any(_is_instance(tx, value, kind, o) for o in option)
    if not isinstance(option, type):
        raise Raised(
            ExceptionValue(TypeError, [Const("isinstance() arg 2 must be a type, a tuple of types, or a union")])
        )
    if option in kind.__mro__:
        return True
    meta = type(option)
    if getattr(option, "_is_protocol", False):
        raise GraphBreak(UNSUPPORTED_VALUE, f"a run-time protocol {option.__name__} looks at the object")
    if isinstance(value, TensorValue):
        if option is nn.Parameter and value.example is not None:
            return isinstance(value.example, nn.Parameter)
        if (
            module_of(option).startswith("torch")
            and issubclass(option, torch.Tensor)
            and meta is not type(torch.Tensor)
        ):
            return option in kind.__mro__ if value.example is None else isinstance(value.example, option)
        return False
    if meta is type or issubclass(meta, (enum.EnumMeta,)):
        return False
    if (
        issubclass(meta, abc.ABCMeta)
        or meta in (type(torch.Tensor), type(nn.Parameter))
        or module_of(option) in ("typing", "collections.abc")
    ):
        if (
            "__instancecheck__" in meta.__dict__
            and meta is not abc.ABCMeta
            and not module_of(meta).startswith(("torch", "typing", "abc"))
        ):
            raise GraphBreak(UNSUPPORTED_VALUE, f"the metaclass of {option.__name__} decides isinstance()")
        return is_virtual_subclass(tx, kind, option)
    if "__instancecheck__" in meta.__dict__:
        raise GraphBreak(UNSUPPORTED_VALUE, f"the metaclass of {option.__name__} decides isinstance()")
    return False


def is_virtual_subclass(tx: Region, kind: type, option: type) -> bool:
    """``issubclass(kind, option)`` for an abstract class, under the guard that no class is registered since."""
    hook = class_dict_lookup(option, "__subclasshook__")
    function = getattr(hook, "__func__", None)
    if isinstance(function, types.FunctionType) and function.__module__ not in ABSTRACT:
        raise GraphBreak(UNSUPPORTED_VALUE, f"__subclasshook__ of {option.__name__} decides isinstance()")
    tx.guard(EqualsGuard(Call(abc.get_cache_token, None), abc.get_cache_token(), where=tx.where))
    return bool(real_call(issubclass, kind, option))


ABSTRACT = ("abc", "typing", "collections.abc", "_collections_abc", "contextlib", "io", "numbers", "os", "importlib.abc")
"""Modules of Python's own abstract classes, whose __subclasshook__ looks at nothing but classes."""


# Calling a class


def instantiate(tx: Region, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """``cls(*args, **kwargs)``."""
    real = cls.cls
    model = MODELS.get(real)
    if model is not None:
        cls.pin(tx)
        result: Value = run_model(real, model, tx, args, kwargs)
        return result
    cls.pin(tx)
    if issubclass(real, BaseException):
        return _exception(tx, real, args, kwargs)
    if isinstance(real, enum.EnumMeta):
        return _enum(tx, real, args, kwargs)
    if issubclass(real, torch.autograd.Function):
        raise GraphBreak(AUTOGRAD, f"{cls.describe()} is instantiated")
    if module_of(real) in STATELESS_MODULES and issubclass(real, nn.Module):
        return _scratch_module(tx, cls, args, kwargs)
    if issubclass(real, (nn.Module, torch.Tensor)) or not real.__flags__ & HEAP_TYPE:
        raise GraphBreak(UNKNOWN_CALL, f"{cls.describe()} is instantiated")
    meta_call, _ = class_lookup(tx, type(real), "__call__")
    if meta_call is not type.__call__:
        raise GraphBreak(UNSUPPORTED_VALUE, f"the metaclass of {cls.describe()} makes its instances")
    return _user_class(tx, cls, args, kwargs)


STATELESS_MODULES = {f"torch.nn.modules.{name}" for name in ("loss", "dropout", "pooling", "padding", "flatten", "distance")}
"""Where torch keeps modules without parameters: making one from constants has no effect and draws no random numbers."""


def _scratch_module(tx: Region, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    reals = [constant_of(tx, a) for a in args]
    named = {k: constant_of(tx, v) for k, v in kwargs.items()}
    if any(r is UNKNOWN for r in (*reals, *named.values())):
        raise GraphBreak(UNKNOWN_CALL, f"{cls.describe()} is instantiated")
    made = real_call(cls.cls, *reals, **named)
    if next(iter(made.parameters()), None) is not None or next(iter(made.buffers()), None) is not None:
        raise GraphBreak(UNKNOWN_CALL, f"{cls.describe()} is instantiated with state")
    return ScratchModule(made, tx.outer.offset if tx.outer is not None else None)


def _user_class(tx: Region, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    real = cls.cls
    if class_lookup(tx, real, "__del__")[0] is not _missing():
        raise GraphBreak(UNSUPPORTED_VALUE, f"{cls.describe()} has a finalizer")
    maker, source = class_lookup(tx, real, "__new__")
    if isinstance(maker, staticmethod):
        maker = maker.__func__
    if isinstance(maker, types.FunctionType):
        made = FunctionConst(maker, None if source is None else _unwrapped(tx, real, source)).call(
            tx, [cls, *args], kwargs
        )
    else:
        made = new_instance(tx, real, args, kwargs)
    if real not in mro_of(made.python_type()):
        return made
    starter, source = class_lookup(tx, real, "__init__")
    if isinstance(starter, types.FunctionType):
        FunctionConst(starter, source).call(tx, [made, *args], kwargs)
    elif isinstance(made, InstanceValue) and made.storage is not None:
        from ..values.instance import fill_storage

        fill_storage(tx, made.storage, args, kwargs)
    elif starter is not object.__init__ and not isinstance(made, TupleValue):
        raise GraphBreak(UNKNOWN_CALL, f"{cls.describe()} is initialised by C code")
    return made


def _missing() -> Any:
    from ..values.lookup import MISSING

    return MISSING


def _unwrapped(tx: Region, cls: type, source: Any) -> Any:

    found = next(c.__dict__["__new__"] for c in cls.__mro__ if "__new__" in c.__dict__)
    if type(found) is staticmethod:
        tx.guard(IsGuard(source, found, where=tx.where))
        return Get(source, "__func__")
    return source


def new_instance(tx: Region, real: type, args: Args, kwargs: Kwargs) -> Value:
    """``object.__new__(real)``, or that of the built-in class it extends."""
    base = next(c for c in real.__mro__ if not c.__flags__ & HEAP_TYPE or c is OrderedDict)
    if base is object:
        return InstanceValue(real)
    if base in (dict, OrderedDict) and not issubclass(real, defaultdict):
        return InstanceValue(real, storage=DictValue(OrderedDict if base is OrderedDict else dict))
    if base is list:
        return InstanceValue(real, storage=ListValue([]))
    if base is tuple:
        return TupleValue(args[0].unpack(tx) if args else [], real)
    raise GraphBreak(UNKNOWN_CALL, f"an instance of {real.__name__} is made by C code")


def _exception(tx: Region, real: type[BaseException], args: Args, kwargs: Kwargs) -> Value:
    maker, _ = class_lookup(tx, real, "__new__")
    starter, source = class_lookup(tx, real, "__init__")
    made = ExceptionValue(real, list(args), tx.outer.offset if tx.outer is not None else None)
    if isinstance(maker, (types.FunctionType, staticmethod)) or (
        kwargs and not isinstance(starter, types.FunctionType)
    ):
        raise GraphBreak(UNKNOWN_CALL, f"an exception of class {real.__name__} is made")
    if isinstance(starter, types.FunctionType):
        FunctionConst(starter, source).call(tx, [made, *args], kwargs)
    return made


def _enum(tx: Region, real: Any, args: Args, kwargs: Kwargs) -> Value:
    value = constant_of(tx, args[0]) if len(args) == 1 and not kwargs else UNKNOWN
    if isinstance(args[0], InstanceValue) and isinstance(args[0].real, real):
        return args[0]
    if value is not UNKNOWN and is_immutable(value) and value in real._value2member_map_:
        return tx.enum_member(real._value2member_map_[value])
    raise GraphBreak(UNKNOWN_CALL, f"a member of {real.__name__} is looked up")


# Built-in classes


@models(type)
def _type(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise GraphBreak(UNKNOWN_CALL, "a class is made by type()")
    return ClassValue(args[0].python_type())


@models(object)
def _object(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return InstanceValue(object)


@models(list)
def _list(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(args[0].unpack(tx) if args else [])


@models(tuple)
def _tuple(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(args[0].unpack(tx) if args else [])


@models(torch.Size)
def _size(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(args[0].unpack(tx) if args else [], torch.Size)


@models(dict, OrderedDict)
def _dict(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return _fill(tx, DictValue(), args, kwargs)


def _fill(tx: Region, made: DictValue, args: Args, kwargs: Kwargs) -> Value:
    for other in args:
        made.merge(tx, other)
    for key, item in kwargs.items():
        made.setitem(tx, Const(key), item)
    return made


def _ordered(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return _fill(tx, DictValue(OrderedDict), args, kwargs)


MODELS[OrderedDict] = _ordered


@models(defaultdict)
def _defaultdict(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    factory = args[0] if args else Const(None)
    return _fill(tx, DictValue(defaultdict, factory=factory), args[1:], kwargs)


@models(set)
def _set(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    made = SetValue()
    for item in _members(tx, args):
        made.entries.setdefault(item.hash_key(tx), item)
    return made


@models(frozenset)
def _frozenset(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    made = SetValue(frozenset)
    for item in _members(tx, args):
        made.entries.setdefault(item.hash_key(tx), item)
    return made


def _members(tx: Region, args: Args) -> list[Value]:
    if not args:
        return []
    return list(args[0].entries.values()) if isinstance(args[0], SetValue) else args[0].unpack(tx)


@models(slice)
def _slice(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    none = Const(None)
    parts = list(args) if len(args) > 1 else [none, *args]
    return SliceValue([*parts, none][:3])


@models(range)
def _range(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    reals = [constant_of(tx, a) for a in args]
    if any(r is UNKNOWN for r in reals):
        raise GraphBreak(UNSUPPORTED_VALUE, f"range() of {args[0].describe()}")
    return RangeValue(real_call(range, *reals))


def _pure_class(cls: type) -> None:
    @models(cls)
    def model(tx: Region, args: Args, kwargs: Kwargs) -> Value:
        reals = [constant_of(tx, a) for a in args]
        named = {k: constant_of(tx, v) for k, v in kwargs.items()}
        if any(r is UNKNOWN for r in (*reals, *named.values())):
            raise GraphBreak(UNSUPPORTED_VALUE, f"{cls.__name__}() of {args[0].describe() if args else 'these'}")
        return from_real(real_call(cls, *reals, **named))


for _cls in (complex, bytes, torch.device):
    _pure_class(_cls)


def _number_class(cls: type) -> None:
    @models(cls)
    def model(tx: Region, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], NumberValue) and len(args) == 1:
            if args[0].kind is cls:
                return args[0]
            if cls is float and args[0].kind is int:
                return number_op(tx, float, args[0])
        if args and isinstance(args[0], TensorValue):
            args[0].known_item(tx, f"{cls.__name__}() needs")
        real = constant_of(tx, args[0]) if args else cls()
        owner = args[0] if args else None
        if isinstance(owner, InstanceValue):
            if isinstance(owner.real, enum.Enum) and isinstance(owner.real, cls):
                return from_real(cls(owner.real._value_))
            found = owner.special(tx, f"__{cls.__name__}__", [])
            if found is not None:
                return found
        reals = [real, *(constant_of(tx, a) for a in args[1:])]
        if any(r is UNKNOWN for r in reals) or kwargs:
            raise GraphBreak(UNSUPPORTED_VALUE, f"{cls.__name__}() of {args[0].describe() if args else 'nothing'}")
        return from_real(real_call(cls, *reals))


_number_class(int)
_number_class(float)


@models(bool)
def _bool(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return Const(args[0].truth(tx) if args else False)


@models(str)
def _str(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    from .text import format_value

    return format_value(tx, args[0], None, Const("")) if len(args) == 1 else _no_str(args)


def _no_str(args: Args) -> Value:
    if not args:
        return Const("")
    raise GraphBreak(UNSUPPORTED_VALUE, "bytes are decoded")


@models(super)
def _super(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    if args:
        if len(args) == 1:
            raise GraphBreak(UNSUPPORTED_VALUE, "an unbound super object is made")
        cls, owner = args
    else:
        frame = tx.frame
        assert frame is not None
        names = frame.code.co_freevars
        if "__class__" not in names:
            raise GraphBreak(UNSUPPORTED_VALUE, "super() outside of a class")
        index = frame.program.slot_count - len(names) + names.index("__class__")
        found = frame.cell(index).load(tx)
        first = frame.load_slot(0)
        if isinstance(first, CellValue):
            first = first.load(tx)
        if found is None or first is None:
            raise GraphBreak(RAISES, "super() without a class or a first argument")
        cls, owner = found, first
    if not isinstance(cls, ClassValue):
        cls.refuse("super() of it")
    return SuperValue(cls.cls, owner)


# Iterators


@models(zip)
def _zip(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    inner = [a.iterate(tx) for a in args]
    strict = kwargs.get("strict")
    if strict is not None and strict.truth(tx):
        lengths = {len(i.sequence.items) for i in inner if isinstance(i, SequenceIterator)}
        if len(lengths) > 1 or not all(isinstance(i, SequenceIterator) for i in inner):
            raise GraphBreak(UNSUPPORTED_VALUE, "zip(strict=True) of iterables of unknown length")
    return ZipIterator(inner)


@models(enumerate)
def _enumerate(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    real = constant_of(tx, start)
    if not isinstance(real, int):
        start.refuse("enumerate() from it")
    return EnumerateIterator(args[0].iterate(tx), real)


@models(map)
def _map(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return MapIterator(args[0], [a.iterate(tx) for a in args[1:]])


@models(filter)
def _filter(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    return FilterIterator(args[0], args[1].iterate(tx))


@models(reversed)
def _reversed(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    (value,) = args
    if isinstance(value, RangeValue):
        return RangeValue(value.value[::-1]).iterate(tx)
    if isinstance(value, ListValue):
        return SequenceIterator(value, type(reversed([])), len(value.items) - 1, -1)
    if isinstance(value, TupleValue):
        return SequenceIterator(value, reversed, len(value.items) - 1, -1)
    found = value.special(tx, "__reversed__", []) if isinstance(value, InstanceValue) else None
    if found is None:
        value.refuse("reversed()")
    return found


@models(functools.partial)
def _partial(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    function, *rest = args
    named = DictValue()
    arguments: list[Value] = list(rest)
    if isinstance(function, PartialValue):
        named = function.keywords.copy() if isinstance(function.keywords, DictValue) else named
        arguments = [*function.arguments, *rest]
        function = function.function
    for key, item in kwargs.items():
        named.setitem(tx, Const(key), item)
    return PartialValue(function, arguments, named)


# torch


def _grad_mode(cls: Any, mode: bool | None) -> None:
    @models(cls)
    def model(tx: Region, args: Args, kwargs: Kwargs) -> Value:
        if mode is not None:
            if args:  # the class itself used as a decorator: @torch.no_grad
                return GradModeValue(cls, mode).call(tx, args, kwargs)
            return GradModeValue(cls, mode)
        wanted = constant_of(tx, args[0] if args else kwargs["mode"])
        if not isinstance(wanted, bool):
            raise GraphBreak(CONTEXT_MANAGER, "set_grad_enabled() of something that isn't a bool")
        made = GradModeValue(cls, wanted)
        made.switch(tx)
        return made


_grad_mode(torch.no_grad, False)
_grad_mode(torch.enable_grad, True)
_grad_mode(torch.set_grad_enabled, None)


@models(torch.finfo, torch.iinfo)
def _info(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    kinds = [constant_of(tx, a) for a in (*args, *kwargs.values())]
    if any(not isinstance(kind, torch.dtype) for kind in kinds):
        raise GraphBreak(UNSUPPORTED_VALUE, "the limits of an unknown dtype are asked for")
    return Record(_limits(*kinds))


def _limits(kind: torch.dtype | None = None) -> Any:
    kind = torch.get_default_dtype() if kind is None else kind
    return real_call(torch.finfo if kind.is_floating_point or kind.is_complex else torch.iinfo, kind)


@models(types.MethodType)
def _method(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    function, owner = args
    return MethodValue(function, owner)


@models(
    property,
    classmethod,
    staticmethod,
    memoryview,
    bytearray,

    torch.inference_mode,
    torch.autocast,
)
def _native(tx: Region, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak(UNKNOWN_CALL, "an object of a class without a model is made")
