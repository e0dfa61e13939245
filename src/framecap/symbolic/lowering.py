"""Calls of leaf modules as direct calls of their functions, in the code that runs (the graph keeps call_module).

What nn.Module.__call__ does besides calling forward is nothing while the module has no hooks, which every call_module
is guarded by. The common classes' forwards are one functional call with the module's state and settings: those are
taken here, under guards that the class's forward is torch's own and the settings are what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from framecap.guards import Attr, EqualsGuard, IsGuard, Item, TypeAttr
from framecap.guards import Const as ConstSource

from ..tracing import rules
from ..tracing.metadata import is_plain
from ..tracing.region import Input, Op

if TYPE_CHECKING:
    from ..tracing.region import Region

Lowered = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A function, its arguments (Ops, Inputs and immutables) and keyword arguments."""
FORWARDS: dict[type, Any] = {
    cls: cls.forward
    for cls in (nn.Linear, nn.LayerNorm, nn.Embedding, nn.Conv2d, nn.BatchNorm2d, nn.GELU, nn.ReLU, nn.Dropout)
}
"""torch's own forwards, as they were when framecap was imported."""


class _Module:
    """Reads a module's state and settings for a lowering, guarding the settings."""

    def __init__(self, tx: Region, op: Op) -> None:
        self.tx = tx
        self.source = op.target.source
        self.module = op.target.example
        self.ok = True

    def state(self, name: str, table: str = "_parameters") -> Any:
        """A parameter or buffer as an input, or None if the module has it as None."""
        space = getattr(self.module, table)
        if name not in space:
            self.ok = False
            return None
        source = Item(Attr(self.source, table), name)
        if space[name] is None:
            self.tx.guard(EqualsGuard(source, None))
            return None
        return Input(source, space[name], name, "get_attr")

    def setting(self, name: str) -> Any:
        """A plain attribute, guarded."""
        value = self.module.__dict__.get(name)
        if name not in self.module.__dict__ or not is_plain(value):
            self.ok = False
            return None
        self.tx.guard(EqualsGuard(Attr(self.source, name), value))
        return value


def lower(tx: Region, op: Op) -> Lowered | None:
    """The direct call that stands for a call_module operator, or None to call the module."""
    cls = type(op.target.example)
    handler = _HANDLERS.get(cls)
    if handler is None or len(op.args) != 1 or op.kwargs or cls.forward is not FORWARDS[cls]:
        return None
    module = _Module(tx, op)
    found = handler(module, op.args[0])
    if found is None or not module.ok:
        return None
    tx.guard(IsGuard(TypeAttr(ConstSource(cls), "forward"), FORWARDS[cls]))
    return found


def _linear(m: _Module, x: Any) -> Lowered:
    return F.linear, (x, m.state("weight"), m.state("bias")), {}


def _layer_norm(m: _Module, x: Any) -> Lowered:
    return F.layer_norm, (x, m.setting("normalized_shape"), m.state("weight"), m.state("bias"), m.setting("eps")), {}


def _embedding(m: _Module, x: Any) -> Lowered | None:
    if m.setting("max_norm") is not None:
        return None
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    return F.embedding, (x, m.state("weight"), *(m.setting(n) for n in names)), {}


def _conv2d(m: _Module, x: Any) -> Lowered | None:
    if m.setting("padding_mode") != "zeros":
        return None
    names = ("stride", "padding", "dilation", "groups")
    return F.conv2d, (x, m.state("weight"), m.state("bias"), *(m.setting(n) for n in names)), {}


def _batch_norm(m: _Module, x: Any) -> Lowered | None:
    shape = rules.shape_of(m.tx, x)
    if shape is None or len(shape) != 4 or m.setting("training") or not m.setting("track_running_stats"):
        return None  # forward refuses other ranks, and updates its statistics in training
    mean, variance = m.state("running_mean", "_buffers"), m.state("running_var", "_buffers")
    if mean is None or variance is None:
        return None
    arguments = (x, mean, variance, m.state("weight"), m.state("bias"), False, 0.0, m.setting("eps"))
    return F.batch_norm, arguments, {}


def _gelu(m: _Module, x: Any) -> Lowered:
    return F.gelu, (x,), {"approximate": m.setting("approximate")}


def _relu(m: _Module, x: Any) -> Lowered:
    return (torch.relu_ if m.setting("inplace") else torch.relu), (x,), {}


def _dropout(m: _Module, x: Any) -> Lowered | None:
    if m.setting("training") or m.setting("inplace"):
        return None
    return torch.dropout, (x, m.setting("p"), False), {}


_HANDLERS: dict[type, Callable[[_Module, Any], Lowered | None]] = {
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    nn.Conv2d: _conv2d,
    nn.BatchNorm2d: _batch_norm,
    nn.GELU: _gelu,
    nn.ReLU: _relu,
    nn.Dropout: _dropout,
}
