"""Whether a node may be removed or shared: asked by the passes that do so."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from ..node import Node
from ..render import INFIX, PREFIX
from ..state import Root, find

# Functions of Python that give a new value, and for tensors do what the tensor's method does.
# By identity: a target may be an object without a hash.
_PURE = frozenset(map(id, [
    *INFIX, *PREFIX, operator.getitem, operator.contains, operator.index, operator.truth,
    abs, bool, complex, dict, float, getattr, int, len, list, round, slice, tuple, torch.Size,
]))  # fmt: skip
_PURE_METHODS = frozenset(["bfloat16", "bool", "double", "float", "half", "int", "long", "short", "tolist", "type"])
# aten's schemas say nothing of running statistics, nor of embedding's renormalisation of the weight (max_norm).
_CHANGES_STATE = frozenset(["batch_norm", "embedding", "embedding_bag", "instance_norm"])
# These draw their random numbers in Python.
_RANDOM = frozenset(["fractional_max_pool2d", "fractional_max_pool3d"])
_NO_COMPUTATION = frozenset(["backward", "register_hook", "retain_grad", "share_memory_", "set_"])
_PURE_MODULES = frozenset(
    getattr(nn, name)
    for name in """AdaptiveAvgPool1d AdaptiveAvgPool2d AvgPool1d AvgPool2d AvgPool3d Bilinear Conv1d Conv2d Conv3d
    ConvTranspose1d ConvTranspose2d ConvTranspose3d ELU Flatten GELU GLU GroupNorm Hardsigmoid Hardswish Hardtanh Identity
    LayerNorm LeakyReLU Linear LogSoftmax MaxPool1d MaxPool2d MaxPool3d Mish PReLU RMSNorm ReLU ReLU6 SELU Sigmoid SiLU
    Softmax Softplus Softsign Tanh Unflatten Upsample""".split()
    if hasattr(nn, name)
)
"""Modules that compute with their parameters and nothing else."""
_METHOD_TYPES = (type(torch.Tensor.add), type(torch.Tensor.norm))


def why_impure(node: Node, root: Root | None = None) -> str | None:
    """Why executing ``node`` may do more than compute its result from its arguments; None if it surely doesn't.

    root: where modules are found; without one, every call of a module counts as impure. What isn't known to be pure
    counts as impure: functions outside of torch and operator, and modules that may have hooks and state. Methods are
    taken to be those of tensors. That a pure operator may raise an error isn't an effect here.
    """
    if node.op in ("placeholder", "output"):
        return "it is the graph's interface"
    if node.op == "get_attr":
        return None
    if node.op == "call_module":
        return "a module may have state and hooks" if root is None else _why_module_impure(find(root, node.target))
    if "out" in node.kwargs:
        return "it writes its result into an argument"
    if node.op == "call_method":
        if node.target in _NO_COMPUTATION or not isinstance(getattr(torch.Tensor, node.target, None), _METHOD_TYPES):
            return f"{node.target!r} is no method of tensors that computes something"
        return None if node.target in _PURE_METHODS else _why_operator_impure(node.target)
    target = node.target
    if id(target) in _PURE:
        return None
    if isinstance(target, torch._ops.OpOverload):
        if any(a.alias_info is not None and a.alias_info.is_write for a in target._schema.arguments):
            return "it changes an argument"
        return "it draws random numbers" if _is_random(target) else None
    name = getattr(target, "__name__", None)
    if not isinstance(name, str) or not _is_torch_function(target, name):
        return "its function is not known to be pure"
    if _works_in_place(node):
        return "it works in place"
    return _why_operator_impure(name)


def _why_module_impure(module: Any) -> str | None:
    if type(module) not in _PURE_MODULES:
        return f"a {type(module).__name__} is not known to be pure"
    if getattr(module, "inplace", False):
        return "it works in place"
    if "forward" in vars(module) or any(key.endswith("_hooks") and value for key, value in vars(module).items()):
        return "the module has hooks or a forward of its own"
    return None


def _is_torch_function(function: Any, name: str) -> bool:
    return any(vars(home).get(name) is function for home in (torch, torch.nn.functional)) or (
        getattr(torch.Tensor, name, None) is function
    )


def _works_in_place(node: Node) -> bool:
    """Whether a function with a parameter ``inplace`` is given anything but False for it."""
    code = getattr(node.target, "__code__", None)
    if code is None or "inplace" not in (names := code.co_varnames[: code.co_argcount]):
        return node.kwargs.get("inplace", False) is not False
    index = names.index("inplace")
    given = node.args[index] if index < len(node.args) else node.kwargs.get("inplace", False)
    return given is not False


@lru_cache(maxsize=4096)
def _why_operator_impure(name: str) -> str | None:
    """By the name of a function or method of torch."""
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        if f"__{name}__" in _INPLACE_METHODS:
            return "it works in place"
    elif name.endswith("_"):
        return "it works in place"
    if name in _CHANGES_STATE:
        return "it may change the state it is given"
    found = overloads(name)
    if not found:
        return "there is no operator of this name to say whether it is pure"
    if name in _RANDOM or any(map(_is_random, found)):
        return "it draws random numbers"
    for overload in found:
        # Arguments that take results are given by keyword only.
        for argument in overload._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write and not argument.kwarg_only:
                return "it changes an argument"
    return None


_INPLACE_METHODS = frozenset(f"__{name}__" for name in dir(operator) if name[0] == "i" and hasattr(operator, name[1:]))


def _is_random(overload: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in overload.tags


@lru_cache(maxsize=4096)
def overloads(name: str) -> tuple[Any, ...]:
    """The overloads of aten's operator with this name; those of TorchScript alone aren't operators of tensors."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    full = [
        (overload, f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}")
        for overload in packet.overloads()
    ]
    return tuple(getattr(packet, overload) for overload, key in full if key in _dispatched())


@lru_cache(maxsize=1)
def _dispatched() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())
