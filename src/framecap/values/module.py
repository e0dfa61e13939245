"""torch.nn.Module objects: lookup in parameters, buffers and submodules; leaf modules become call_module nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framecap.guards import AbsentKeyGuard, Attr, Item, LeafModuleGuard, Source
from torch import nn

from ..errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_VALUE, GraphBreak
from ..tracing.region import Input
from .base import Args, Kwargs, Value
from .function import FunctionConst
from .instance import DELETED, MISSING, InstanceValue, class_getattr, class_lookup, raw_attribute
from .mapping import DictValue, DictView

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

TABLES = ("_parameters", "_buffers", "_modules")
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
INLINED = (*CONTAINERS, nn.Identity)
"""Classes of torch.nn that are interpreted rather than called as one node."""
TUPLE_RESULT = (nn.RNNBase, nn.LSTMCell, nn.MultiheadAttention, nn.AdaptiveLogSoftmaxWithLoss)


def is_leaf_class(cls: type) -> bool:
    """Whether modules of this class are one node: those of torch.nn that hold no modules of the user's."""
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

    def getattr(self, tx: Region, name: str) -> Value:
        custom, _ = class_lookup(tx, self.cls, "__getattr__")
        if custom is not nn.Module.__getattr__ or "__getattr__" not in nn.Module.__dict__:
            return super().getattr(tx, name)
        return class_getattr(tx, self, self.cls, name, lambda t, n: self.read(t, n) or self.registered(t, n))

    def registered(self, tx: Region, name: str) -> Value | None:
        """``nn.Module.__getattr__``: a parameter, buffer or submodule; None if there is none of this name."""
        if name in TABLES or self.source is None:
            return None
        if class_lookup(tx, self.cls, name)[0] is not MISSING:
            # Python calls __getattr__ only when the class has no such attribute either.
            return None
        for table in TABLES:
            real, source = self.table(tx, table)
            if name in real:
                return tx.wrap(real[name], Item(source, name))
            tx.guard(AbsentKeyGuard(source, name, where=tx.where))
        return None

    # Writing

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        custom, source = class_lookup(tx, self.cls, "__setattr__")
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
        if is_leaf_class(self.cls):
            return self.call_leaf(tx, args, kwargs)
        if self.attrs.get("forward", DELETED) is not DELETED or raw_attribute(self.real, "forward") is not MISSING:
            raise GraphBreak(UNSUPPORTED_VALUE, f"{self.describe()} has a forward of its own")
        if has_hooks(self.real):
            raise GraphBreak(UNSUPPORTED_VALUE, f"{self.describe()} has hooks, which run natively")
        tx.guard(LeafModuleGuard(self.source, self.cls, where=tx.where))
        forward, source = class_lookup(tx, self.cls, "forward")
        if not hasattr(forward, "__code__"):
            self.refuse("a forward that isn't a plain function")
        return FunctionConst(forward, source).call(tx, [self, *args], kwargs)

    def call_leaf(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        from ..models.torch_ops import module_result

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
        return module_result(tx, self, args, kwargs)

    def input(self, tx: Region) -> Input:
        """The module as the target of a call_module node."""
        assert self.source is not None
        return tx.state_input(self.real, self.source, "module")

    # Containers

    def iterate(self, tx: Region) -> Value:
        if issubclass(self.cls, (nn.Sequential, nn.ModuleList)) and not overridden(self.cls, "__iter__"):
            return DictView(self.modules_dict(tx), "values").iterate(tx)
        return super().iterate(tx)

    def modules_dict(self, tx: Region) -> DictValue:
        real, source = self.table(tx, "_modules")
        table = tx.wrap(real, source)
        assert isinstance(table, DictValue)
        return table

    def truth(self, tx: Region) -> bool:
        if class_lookup(tx, self.cls, "__len__")[0] is MISSING and class_lookup(tx, self.cls, "__bool__")[0] is MISSING:
            return True
        return super().truth(tx)


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
