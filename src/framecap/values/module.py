"""torch.nn.Module objects: lookup in parameters, buffers and submodules; leaf modules become call_module nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from framecap.graph.quantized import QuantizedLinear
from framecap.guards import AbsentKeyGuard, Attr, Item, LeafModuleGuard, Source

from ..errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_VALUE, GraphBreak
from ..tracing.region import Input
from .base import Args, Kwargs, Value
from .constant import UNKNOWN, Const, constant_of, is_immutable
from .function import FunctionConst
from .instance import DELETED, InstanceValue
from .lookup import MISSING, attribute_error, class_lookup, raw_attribute
from .mapping import DictValue, DictView
from .sequence import SliceValue, TupleValue

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region

TABLES = ("_parameters", "_buffers", "_modules")
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
INLINED = (*CONTAINERS, nn.Identity)
"""Classes of torch.nn that are interpreted rather than called as one node."""
TUPLE_RESULT = (nn.RNNBase, nn.LSTMCell, nn.MultiheadAttention, nn.AdaptiveLogSoftmaxWithLoss)


def is_leaf_class(cls: type) -> bool:
    """Whether modules of this class are one node: those of torch.nn that hold no modules of the user's, and our own."""
    if cls is QuantizedLinear:
        return True
    return cls.__module__.startswith("torch.nn.modules.") and not issubclass(cls, INLINED) and cls is not nn.Module


class ModuleValue(InstanceValue):
    """An nn.Module from outside. Its attributes are guarded one by one, so instances of a class share regions."""

    __slots__ = ()

    # Reading

    def table(self, tx: Region, table: str) -> tuple[dict[str, Any], Source]:
        """One of the three dicts of a module, and its source."""
        assert self.source is not None
        real = raw_attribute(self.real, table)
        if type(real) is not dict:
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"{table} of {self.describe()} is no plain dict")
        return real, Attr(self.source, table)

    def registered(self, tx: Region, name: str) -> Value:
        """``nn.Module.__getattr__``: a parameter, buffer or submodule."""
        if name not in TABLES and self.source is not None:
            for table in TABLES:
                real, source = self.table(tx, table)
                if name in real:
                    return tx.wrap(real[name], Item(source, name))
                tx.guard(AbsentKeyGuard(source, name, where=tx.where))
        raise attribute_error(self.cls, name)

    # Writing

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        custom, _source = class_lookup(tx, self.cls, "__setattr__")
        if custom is not nn.Module.__setattr__:
            super().setattr(tx, name, value)
            return
        self.module_setattr(tx, name, value)

    def module_setattr(self, tx: Region, name: str, value: Value) -> None:
        """``nn.Module.__setattr__`` for what is neither a parameter, nor a buffer, nor a submodule."""
        if isinstance(value, ModuleValue) or value.python_type() is nn.Parameter:
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"a parameter or submodule {name!r} is registered")
        for table in ("_parameters", "_modules"):
            real, table_source = self.table(tx, table)
            if name in real:
                raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the registered {name!r} is replaced")
            tx.guard(AbsentKeyGuard(table_source, name, where=tx.where))
        buffers, table_source = self.table(tx, "_buffers")
        if name in buffers:
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the buffer {name!r} is replaced")
        tx.guard(AbsentKeyGuard(table_source, name, where=tx.where))
        self.generic_setattr(tx, name, value)

    def delattr(self, tx: Region, name: str) -> None:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of a module is deleted")

    # Calling

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        assert self.source is not None
        caller, _ = class_lookup(tx, self.cls, "__call__")
        if caller is not nn.Module.__dict__["__call__"]:
            return super().call(tx, args, kwargs)
        if tx.is_leaf_module(self):
            return self.call_leaf(tx, args, kwargs)
        if self.attrs.get("forward", DELETED) is not DELETED or raw_attribute(self.real, "forward") is not MISSING:
            raise GraphBreak(UNSUPPORTED_VALUE, f"{self.describe()} has a forward of its own")
        if has_hooks(self.real):
            raise GraphBreak(UNSUPPORTED_VALUE, f"{self.describe()} has hooks, which run natively")
        tx.guard(LeafModuleGuard(self.source, self.cls, where=tx.where))
        forward, source = class_lookup(tx, self.cls, "forward")
        if not hasattr(forward, "__code__"):
            self.refuse("a forward that isn't a plain function")
        tx.modules.append(self.source)
        try:
            return FunctionConst(forward, source).call(tx, [self, *args], kwargs)
        finally:
            tx.modules.pop()

    def call_leaf(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        assert self.source is not None
        for module in self.real.modules():
            if has_hooks(module) or raw_attribute(module, "forward") is not MISSING:
                raise GraphBreak(UNSUPPORTED_VALUE, f"{self.describe()} has hooks, which run natively")
        if self.attrs:
            raise GraphBreak(UNSUPPORTED_VALUE, f"{self.describe()} was changed in the region")
        tx.guard(LeafModuleGuard(self.source, self.cls, where=tx.where))
        for path, module in self.real.named_modules():
            if path:
                source: Source = self.source
                for part in path.split("."):
                    source = Item(Attr(source, "_modules"), part)
                tx.guard(LeafModuleGuard(source, type(module), where=tx.where))
        return tx.call_leaf_module(self, args, kwargs)

    def input(self, tx: Region) -> Input:
        """The module as the target of a call_module node."""
        assert self.source is not None
        return tx.state_input(self.real, self.source, "module")

    # Containers

    def iterate(self, tx: Region) -> Value:
        if issubclass(self.cls, (nn.Sequential, nn.ModuleList)) and not overridden(self.cls, "__iter__"):
            return DictView(self.modules_dict(tx), "values").iterate(tx)
        return super().iterate(tx)

    def getitem(self, tx: Region, key: Value) -> Value:
        sliceable = issubclass(self.cls, (nn.Sequential, nn.ModuleList)) and not overridden(self.cls, "__getitem__")
        if sliceable and isinstance(key, SliceValue):
            real = constant_of(tx, key)
            if real is not UNKNOWN:
                return ModuleSlice(self, self.modules_dict(tx).unpack_items(tx)[real])
        return super().getitem(tx, key)

    def modules_dict(self, tx: Region) -> DictValue:
        real, source = self.table(tx, "_modules")
        table = tx.wrap(real, source)
        assert isinstance(table, DictValue)
        return table

    def truth(self, tx: Region) -> bool:
        if class_lookup(tx, self.cls, "__len__")[0] is MISSING and class_lookup(tx, self.cls, "__bool__")[0] is MISSING:
            return True
        return super().truth(tx)


class ScratchModule(Value):
    """A module without state, made in the region, such as a loss: ``real`` was made at capture, from constants."""

    __slots__ = ("offset", "real")

    def __init__(self, real: nn.Module, offset: int | None) -> None:
        super().__init__()
        self.real = real
        self.offset = offset

    def python_type(self) -> type:
        return type(self.real)

    def born_at(self) -> int | None:
        return self.offset

    def truth(self, tx: Region) -> bool:
        return True

    def getattr(self, tx: Region, name: str) -> Value:
        found = getattr(self.real, name, MISSING)
        if found is MISSING or not is_immutable(found):
            return super().getattr(tx, name)
        return Const(found)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        forward, source = class_lookup(tx, type(self.real), "forward")
        return FunctionConst(forward, source).call(tx, [self, *args], kwargs)


class ModuleSlice(Value):
    """``modules[a:b]`` of a ModuleList or Sequential: a new container of the same submodules."""

    __slots__ = ("items", "owner")

    def __init__(self, owner: ModuleValue, items: list[Value]) -> None:
        super().__init__()
        self.owner = owner
        self.items = items

    def python_type(self) -> type:
        return self.owner.cls

    def length(self, tx: Region) -> int:
        return len(self.items)

    def truth(self, tx: Region) -> bool:
        return bool(self.items)

    def iterate(self, tx: Region) -> Value:
        return TupleValue(list(self.items)).iterate(tx)

    def getitem(self, tx: Region, key: Value) -> Value:
        found = TupleValue(list(self.items)).getitem(tx, key)
        return ModuleSlice(self.owner, found.items) if isinstance(found, TupleValue) else found

    def emit(self, emitter: Emitter) -> str:
        inner = ", ".join(emitter.value(item) for item in self.items)
        cls = emitter.object(self.owner.cls, self.owner.cls.__name__)
        if issubclass(self.owner.cls, nn.ModuleList):
            return emitter.statement(f"{cls}([{inner}])", self)
        return super().emit(emitter)


def overridden(cls: type, name: str) -> bool:
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return not owner.__module__.startswith("torch.nn.modules.")
    return False


def has_hooks(module: Any) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        or nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
        or nn.modules.module._global_backward_hooks or nn.modules.module._global_backward_pre_hooks
    )  # fmt: skip
