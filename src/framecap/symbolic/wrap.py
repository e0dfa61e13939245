"""From a real object and its source to a value: a table by exact type, then by the built-in class it extends."""

from __future__ import annotations

import contextvars
import enum
import functools
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from framecap.guards import (
    Attr,
    Call,
    EqualsGuard,
    Get,
    Index,
    IsGuard,
    Item,
    LengthGuard,
    Slot,
    Source,
    TypeGuard,
)

from ..errors import TENSOR_SUBCLASS, GraphBreak
from ..tracing.examples import NoExample
from ..tracing.region import Input
from ..values.base import Value
from ..values.constant import IMMUTABLE, Const, Opaque, Record, is_immutable
from ..values.context_var import ContextVarValue
from ..values.decorated import PartialValue
from ..values.function import BuiltinValue, ClassValue, FunctionConst, ModuleNamespace, PropertyLike
from ..values.instance import EnumMember, InstanceValue
from ..values.lookup import dict_of, module_of, mro_of
from ..values.mapping import DictValue, plain_key
from ..values.method import MethodValue
from ..values.module import TABLES, ModuleValue
from ..values.number import NumberValue
from ..values.sequence import LazyItem, LazyItems, ListValue, RangeValue, SliceValue, TupleValue
from ..values.sets import OutsideSet, SetValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from .tracer import Tracer

MAX_ITEMS = 512
"""Containers with more items are passed along, not looked into."""


def wrap(tx: Tracer, real: Any, source: Source) -> Value:
    kind = type(real)
    if kind in IMMUTABLE:
        return _literal(tx, real, kind, source)
    known = tx.memo.get(id(real))
    if known is not None:
        if known.source is not None and known.source != source:
            tx.same(known.source, source)
        return known
    maker = TABLE.get(kind) or _by_family(kind)
    value = maker(tx, real, source)
    if value.source is not None:
        tx.memo[id(real)] = value
        tx.kept.append(real)
    return value


def _literal(tx: Tracer, real: Any, kind: type, source: Source) -> Value:
    known = tx.by_source.get(source)
    if known is not None:
        return known
    value: Value
    if kind in (int, float) and tx.is_dynamic(source):
        tx.guard(TypeGuard(source, kind, where=tx.where))
        value = NumberValue(Input(source, real, _hint(source)), kind, source)
    else:
        tx.guard(EqualsGuard(source, real, where=tx.where))
        value = Const(real)
    tx.by_source[source] = value
    return value


def _hint(source: Source) -> str:
    return getattr(source, "name", "") or str(source)


def _pinned(make: Callable[[Any, Source], Value]) -> Callable[[Tracer, Any, Source], Value]:
    def maker(tx: Tracer, real: Any, source: Source) -> Value:
        tx.guard(IsGuard(source, real, where=tx.where))
        return make(real, source)

    return maker


def _typed(make: Callable[[Tracer, Any, Source], Value]) -> Callable[[Tracer, Any, Source], Value]:
    def maker(tx: Tracer, real: Any, source: Source) -> Value:
        tx.guard(TypeGuard(source, type(real), where=tx.where))
        return make(tx, real, source)

    return maker


def _tensor(tx: Tracer, real: Any, source: Source) -> Value:
    base = getattr(source, "base", None)
    role = "get_attr" if isinstance(source, Item) and isinstance(base, Attr) and base.name in TABLES else "placeholder"
    return TensorValue(Input(source, real, _hint(source), role), type(real), source)


def _tuple(tx: Tracer, real: Any, source: Source) -> Value:
    if tuple.__len__(real) > MAX_ITEMS:
        return Opaque(real, source)
    tx.guard(LengthGuard(source, tuple.__len__(real), where=tx.where))
    items: list[Value] = [LazyItem(item, Index(source, i)) for i, item in enumerate(tuple.__iter__(real))]
    return TupleValue(LazyItems(tx, items), type(real), source)


def _list(tx: Tracer, real: Any, source: Source) -> Value:
    if list.__len__(real) > MAX_ITEMS:
        return Opaque(real, source)
    return _list_items(tx, real, source)


def _list_items(tx: Tracer, real: Any, source: Source) -> ListValue:
    def load() -> list[Value]:
        tx.guard(LengthGuard(source, list.__len__(real), where=tx.where))
        return LazyItems(tx, [LazyItem(item, Index(source, i)) for i, item in enumerate(list.__iter__(real))])

    return ListValue(LazyItems(tx, []), type(real), source, load, tx)


def _dict(tx: Tracer, real: Any, source: Source) -> Value:
    if not all(plain_key(key) for key in dict.keys(real)):
        return Opaque(real, source)
    factory = None
    if type(real) is defaultdict:
        factory = tx.wrap(real.default_factory, Get(source, "default_factory"))
    return _dict_items(tx, real, source, factory)


def _dict_items(tx: Tracer, real: Any, source: Source, factory: Value | None = None) -> DictValue:
    return DictValue(type(real), source, factory, real, tx)


def _set(tx: Tracer, real: Any, source: Source) -> Value:
    if len(real) > MAX_ITEMS or not all(is_immutable(item) for item in real):
        return OutsideSet(real, source)
    tx.guard(EqualsGuard(Call(tuple, source), tuple(real), where=tx.where))
    value = SetValue(type(real), source)
    value.entries = {item: Const(item) for item in real}
    return value


def _range(tx: Tracer, real: range, source: Source) -> Value:
    for name in ("start", "stop", "step"):
        tx.guard(EqualsGuard(Get(source, name), getattr(real, name), where=tx.where))
    return RangeValue(real, source)


def _slice(tx: Tracer, real: slice, source: Source) -> Value:
    return SliceValue([tx.wrap(getattr(real, name), Get(source, name)) for name in ("start", "stop", "step")])


def _method(tx: Tracer, real: types.MethodType, source: Source) -> Value:
    function = tx.wrap(real.__func__, Get(source, "__func__"))
    return MethodValue(function, tx.wrap(real.__self__, Get(source, "__self__")), source)


def _function(tx: Tracer, real: types.FunctionType, source: Source) -> Value:
    return FunctionConst(real, source)


def _builtin(tx: Tracer, real: Any, source: Source) -> Value:
    owner = getattr(real, "__self__", None)
    if owner is None or issubclass(type(owner), (types.ModuleType, type)) or module_of(type(owner)) == "pybind11_builtins":
        tx.guard(IsGuard(source, real, where=tx.where))
        return BuiltinValue(real, source)
    if type(real) is types.BuiltinMethodType and type(owner) in (list, dict, set, OrderedDict):
        return tx.wrap(owner, Get(source, "__self__")).getattr(tx, real.__name__)
    return Opaque(real, source)


def _partial(tx: Tracer, real: functools.partial[Any], source: Source) -> Value:
    function = tx.wrap(real.func, Get(source, "func"))
    arguments = [tx.wrap(item, Index(Get(source, "args"), i)) for i, item in enumerate(real.args)]
    tx.guard(LengthGuard(Get(source, "args"), len(real.args), where=tx.where))
    return PartialValue(function, arguments, tx.wrap(real.keywords, Get(source, "keywords")), source)


def _instance(tx: Tracer, real: Any, source: Source) -> Value:
    return InstanceValue(type(real), real, source)


def _dict_instance(tx: Tracer, real: Any, source: Source) -> Value:
    if dict.__len__(real) > MAX_ITEMS or not all(plain_key(key) for key in dict.keys(real)):
        return Opaque(real, source)
    storage = _dict_items(tx, real, source)
    storage.cls = OrderedDict if isinstance(real, OrderedDict) else dict
    return InstanceValue(type(real), real, source, storage)


def _list_instance(tx: Tracer, real: Any, source: Source) -> Value:
    if list.__len__(real) > MAX_ITEMS:
        return Opaque(real, source)
    storage = _list_items(tx, real, source)
    storage.cls = list
    return InstanceValue(type(real), real, source, storage)


def _module(tx: Tracer, real: nn.Module, source: Source) -> Value:
    return ModuleValue(type(real), real, source)


def _opaque(tx: Tracer, real: Any, source: Source) -> Value:
    return Opaque(real, source)


def _subclass_tensor(tx: Tracer, real: Any, source: Source) -> Value:
    raise GraphBreak(TENSOR_SUBCLASS, f"{source} is a {type(real).__name__}")


def _code(tx: Tracer, real: types.CodeType, source: Source) -> Value:
    tx.guard(IsGuard(source, real, where=tx.where))
    return Record(real, source)


TABLE: dict[type, Callable[[Tracer, Any, Source], Value]] = {
    torch.Tensor: _typed(_tensor),
    nn.Parameter: _typed(_tensor),
    torch.Size: _typed(_tuple),
    tuple: _typed(_tuple),
    list: _typed(_list),
    dict: _typed(_dict),
    OrderedDict: _typed(_dict),
    defaultdict: _typed(_dict),
    set: _typed(_set),
    frozenset: _typed(_set),
    range: _typed(_range),
    slice: _typed(_slice),
    types.FunctionType: _typed(_function),
    types.MethodType: _typed(_method),
    types.BuiltinFunctionType: _typed(_builtin),
    types.ModuleType: _pinned(ModuleNamespace),
    types.WrapperDescriptorType: _pinned(BuiltinValue),
    types.MethodDescriptorType: _pinned(BuiltinValue),
    types.ClassMethodDescriptorType: _pinned(BuiltinValue),
    types.MethodWrapperType: _typed(_opaque),
    types.CodeType: _code,
    contextvars.ContextVar: _pinned(ContextVarValue),
    property: _pinned(PropertyLike),
    classmethod: _pinned(PropertyLike),
    staticmethod: _pinned(PropertyLike),
    functools.partial: _typed(_partial),
    functools._lru_cache_wrapper: _pinned(BuiltinValue),
    NoExample: lambda tx, real, source: TensorValue(Input(source, real, _hint(source)), torch.Tensor, source),
}


def _by_family(kind: type) -> Callable[[Tracer, Any, Source], Value]:
    if issubclass(kind, type):
        return _pinned(ClassValue)
    if issubclass(kind, enum.Enum):
        return _pinned(lambda real, source: EnumMember(kind, real, source))
    if issubclass(kind, torch.Tensor):
        return _subclass_tensor
    if issubclass(kind, property):
        return _pinned(PropertyLike)
    if issubclass(kind, types.ModuleType):
        return _pinned(ModuleNamespace)
    if issubclass(kind, nn.Module):
        return _typed(_module)
    base = next(c for c in kind.__mro__ if not c.__flags__ & (1 << 9) or c in (OrderedDict,))
    if base is object and kind.__flags__ & (1 << 9):
        return _typed(_instance)
    if base in (dict, OrderedDict) and kind is not defaultdict:
        return _typed(_dict_instance)
    if base is list:
        return _typed(_list_instance)
    if base is tuple:
        return _typed(_tuple)
    if any("__call__" in dict_of(c) for c in mro_of(kind)) and module_of(kind) in ("builtins", "torch", "torch._C", "torch._ops"):
        return _pinned(BuiltinValue)
    return _typed(_opaque)


__all__ = ["Slot", "wrap"]
