"""Rules for the number of dimensions of a result, so that asking for a shape need not fix the sizes of inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from framecap.guards import EqualsGuard, Get

from .region import Input, Op

if TYPE_CHECKING:
    from .region import Region

SAME_RANK_METHODS = frozenset(
    [
        "abs",
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "pow",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "relu",
        "softmax",
        "log_softmax",
        "to",
        "type",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "bool",
        "contiguous",
        "clone",
        "detach",
        "transpose",
        "permute",
        "expand_as",
        "masked_fill",
        "masked_fill_",
        "dropout",
        "cumsum",
        "clamp",
        "roll",
        "flip",
        "tril",
        "triu",
        "type_as",
        "requires_grad_",
        "add_",
        "sub_",
        "mul_",
        "div_",
        "copy_",
        "fill_",
        "zero_",
        "narrow",
        "repeat_interleave",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "square",
        "reciprocal",
        "floor",
        "ceil",
        "round",
        "logical_not",
        "logical_and",
        "logical_or",
    ]
)
SAME_RANK_FUNCTIONS: frozenset[Any] = frozenset(
    getattr(owner, name)
    for owner, names in (
        (
            torch,
            "abs neg exp log sqrt rsqrt pow sin cos tanh sigmoid relu softmax log_softmax clone transpose permute"
            " cumsum clamp roll flip tril triu conv1d conv2d conv3d square",
        ),
        (
            F,
            "linear dropout gelu silu relu tanh sigmoid softmax log_softmax layer_norm batch_norm conv1d"
            " conv2d conv3d leaky_relu elu max_pool2d avg_pool2d",
        ),
    )
    for name in names.split()
    if hasattr(owner, name)
)
BROADCAST: frozenset[Any] = frozenset(
    [
        *(getattr(operator, name) for name in ["add", "sub", "mul", "truediv", "floordiv", "pow", "iadd", "isub", "imul", "itruediv"]),
        *(getattr(operator, name) for name in ["eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor"]),
        *(getattr(torch, name) for name in ["add", "sub", "mul", "div", "where"]),
    ]
)
SAME_RANK_MODULES = (
    nn.Linear, nn.Dropout, nn.LayerNorm, nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softmax, nn.Conv1d, nn.Conv2d,
    nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
)  # fmt: skip


def rank_rule(tx: Region, ref: Any, fake: Callable[[Region], Any]) -> int:
    """The rank of tensor ``ref``: by rule if every operator on the way has one, else by ``fake(tx).dim()``."""
    known: dict[int, int | None] = {}
    touched: list[Input] = []
    rank = _rank(ref, known, touched)
    if rank is None:
        return int(fake(tx).dim())
    for item in touched:
        tx.guard(EqualsGuard(Get(item.source, "ndim"), item.example.dim(), where=tx.where))
    return rank


def _rank(start: Any, known: dict[int, int | None], touched: list[Input]) -> int | None:
    """Depth-first with an explicit stack: chains of operators may be thousands long."""
    stack: list[tuple[Any, bool]] = [(start, False)]
    while stack:
        ref, ready = stack.pop()
        if id(ref) in known:
            continue
        if isinstance(ref, Input):
            if not isinstance(ref.example, torch.Tensor):
                known[id(ref)] = 0
                continue
            known[id(ref)] = ref.example.dim()
            touched.append(ref)
            continue
        if not isinstance(ref, Op) or (ref.scalar and ref.target is not operator.getitem):
            known[id(ref)] = 0
            continue
        needs = _operands(ref)
        if needs is None:
            known[id(ref)] = None
            continue
        if isinstance(needs, int):
            known[id(ref)] = needs
            continue
        if not ready:
            stack.append((ref, True))
            stack.extend((n, False) for n in needs if isinstance(n, (Op, Input)))
            continue
        ranks = [known[id(n)] if isinstance(n, (Op, Input)) else 0 for n in needs]
        known[id(ref)] = None if any(r is None for r in ranks) else max(r for r in ranks if r is not None) + _extra(ref)
    return known[id(start)]


def _extra(op: Op) -> int:
    if op.op == "call_method" and op.target == "unsqueeze":
        return 1
    if op.op == "call_module" and type(op.target.example) is nn.Embedding:
        return 1
    return 1 if op.target is F.embedding else 0


def _operands(op: Op) -> Any:
    """The arguments whose greatest rank is the result's, the rank itself, or None if there is no rule."""
    if op.op == "call_module":
        kind = type(op.target.example)
        return [op.args[0]] if op.args and (kind in SAME_RANK_MODULES or kind is nn.Embedding) else None
    if op.op == "call_method":
        if op.target in ("view", "reshape", "expand", "repeat"):
            sizes = op.args[1:]
            if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
                sizes = tuple(sizes[0])
            if any(isinstance(s, torch.dtype) for s in sizes) or op.kwargs:
                return None
            return len(sizes) or None
        if op.target == "unsqueeze" or op.target in SAME_RANK_METHODS:
            tensors = [a for a in op.args if isinstance(a, (Op, Input))]
            return tensors if op.target not in ("transpose", "permute", "cumsum", "narrow") else [op.args[0]]
        return None
    if op.target in SAME_RANK_FUNCTIONS:
        return [op.args[0]] if op.args else None
    if op.target is F.embedding:
        return [op.args[0]] if op.args else None
    if op.target in BROADCAST:
        return list(op.args)
    if op.target is operator.getitem and isinstance(op.args[0], (Op, Input)):
        return None
    return None
