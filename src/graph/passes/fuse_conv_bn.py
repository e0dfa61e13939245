"""Fold batch normalisation in eval mode into the convolution or linear layer before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..graph_module import GraphModule
from ..node import Node
from ..state import find, why_not_found
from .shapes import TensorMeta

LAYERS: dict[Any, int] = {
    nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3, nn.ConvTranspose1d: 1, nn.ConvTranspose2d: 2, nn.ConvTranspose3d: 3, nn.Linear: 0,
    F.conv1d: 1, F.conv2d: 2, F.conv3d: 3, F.linear: 0,
    F.conv_transpose1d: 1, F.conv_transpose2d: 2, F.conv_transpose3d: 3,
}  # fmt: skip
"""What a norm is folded into, with the number of its spatial dimensions."""
TRANSPOSED = (
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d,
)  # fmt: skip
NORMS: dict[Any, int | None] = {nn.BatchNorm1d: None, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3, F.batch_norm: None}
"""Norms, with the number of spatial dimensions that they insist on; None if they take what comes."""


@dataclass(slots=True)
class FusionReport:
    """What `fuse_conv_bn` did.

    fused: pairs of nodes' names, the layer's and the norm's. refused: a norm's name and why it stays. relies_on: what must
    stay as it is for the result to stay right; after an optimizer step or a load_state_dict, fuse anew.
    """

    fused: list[tuple[str, str]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    relies_on: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether the graph was changed."""
        return bool(self.fused)


@dataclass(slots=True)
class _Weights:
    """Weight and bias of a layer; the nodes that read them, if the layer is a function."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    weight_node: Node | None = None
    groups: int = 1


@dataclass(slots=True)
class _Norm:
    mean: torch.Tensor
    variance: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    epsilon: float


def fuse_conv_bn(module: GraphModule) -> FusionReport:
    """Fold each batch norm that follows a convolution or linear layer into the layer's weight and bias.

    Works on modules, and on functions whose weights are read by get_attr. ``module`` is changed and recompiled; layers are
    replaced by new ones, so what it was captured from stays as it is. A norm stays, with the reason in the report, if it
    isn't in eval mode, keeps no statistics, or isn't the only one to use the layer's result. Where the norm alone doesn't
    tell which dimension it works on (1-d norms, and functions), shapes must have been noted: see `propagate_shapes`.

    Before: ``x = conv(x); x = bn(x)``. After: ``x = conv(x)``, with other weights.
    """
    report = FusionReport()
    graph = module.graph
    for node in list(graph.nodes):
        if _kind(module, node) not in NORMS:
            continue
        found = _pair(module, node)
        if isinstance(found, str):
            report.refused[node.name] = found
            continue
        layer, norm, weights = found
        if layer.op == "call_module":
            _replace_module(module, layer, norm, weights)
        else:
            _replace_weights(module, layer, norm, weights)
        report.fused.append((layer.name, node.name))
        report.relies_on.append(f"{node.name} is in eval mode; its statistics and weights, and those of {layer.name}")
        node.replace_all_uses_with(layer)
        graph.erase_node(node)
    if report:
        for node in list(reversed(graph.nodes)):
            if node.op == "get_attr" and not node.users:
                graph.erase_node(node)
        module.delete_unused_state()
        module.recompile()
    return report


# What can be fused


def _kind(module: GraphModule, node: Node) -> Any:
    """The class of a called module, or the called function."""
    if node.op == "call_module":
        return type(find(module, node.target))
    return node.target if node.op == "call_function" else None


def _pair(module: GraphModule, node: Node) -> str | tuple[Node, _Norm, _Weights]:
    """The layer's node, the norm and the layer's weights; or why the norm at ``node`` stays."""
    layer = node.args[0] if node.args else None
    if not isinstance(layer, Node) or (kind := _kind(module, layer)) not in LAYERS:
        return "it doesn't follow a convolution or linear layer"
    if len(layer.users) > 1:
        return f"the result of {layer.name} is used elsewhere too"
    problem = _why_wrong_dimension(node, layer, NORMS[_kind(module, node)], LAYERS[kind])
    problem = problem or _why_hooked(module, node) or _why_hooked(module, layer)
    if problem is not None:
        return problem
    norm, weights = _norm(module, node), _weights(module, layer)
    if isinstance(norm, str):
        return norm
    if isinstance(weights, str):
        return weights
    if weights.weight.dtype != norm.mean.dtype:
        return f"{layer.name} works in {weights.weight.dtype} and the norm in {norm.mean.dtype}"
    return layer, norm, weights


def _why_hooked(module: GraphModule, node: Node) -> str | None:
    if node.op != "call_module":
        return None
    called = find(module, node.target)
    hooked = called._forward_hooks or called._forward_pre_hooks or "forward" in called.__dict__
    return f"{node.name} has hooks or a forward of its own" if hooked else None


def _why_wrong_dimension(node: Node, layer: Node, insists: int | None, dims: int) -> str | None:
    """A norm works on dimension 1, a layer makes its channels the first of its spatial dimensions, or the last of all."""
    if insists is not None:
        return None if insists == dims else f"a norm of {insists} dimensions follows a layer of {dims}"
    noted = layer.meta.get("tensor_meta")
    if not isinstance(noted, TensorMeta):
        return f"the shape of {layer.name} isn't known, which tells what the norm works on: call propagate_shapes first"
    if len(noted.shape) != dims + 2:
        return f"{layer.name} gives {len(noted.shape)} dimensions, of which the norm takes another than its channels"
    return None


def _norm(module: GraphModule, node: Node) -> _Norm | str:
    if node.op == "call_module":
        found = find(module, node.target)
        if found.training:
            return "it is in training mode, so it uses the statistics of the batch"
        if found.running_mean is None or found.running_var is None:
            return "it keeps no statistics, so it uses those of the batch"
        return _Norm(found.running_mean, found.running_var, found.weight, found.bias, found.eps)
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given.get("training", False) is not False:
        return "it is in training mode, so it uses the statistics of the batch"
    mean, variance, weight, bias = (_state(module, given.get(name)) for name in names[1:5])
    epsilon = given.get("eps", 1e-5)
    if isinstance(weight, str) or isinstance(bias, str) or not isinstance(epsilon, float):
        return "its weights are computed in the graph"
    if not isinstance(mean, torch.Tensor) or not isinstance(variance, torch.Tensor):
        return "it has no statistics, or computes them in the graph"
    return _Norm(mean, variance, weight, bias, epsilon)


def _weights(module: GraphModule, node: Node) -> _Weights | str:
    if node.op == "call_module":
        found = find(module, node.target)
        return _Weights(found.weight, found.bias)
    names = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    # Only of a transposed convolution do the groups matter, and only of that are they here among the names.
    groups = given.get("groups", 1) if node.target in TRANSPOSED else 1
    weight, bias = _state(module, given.get("weight")), _state(module, given.get("bias"))
    if not isinstance(weight, torch.Tensor) or isinstance(bias, str) or not isinstance(groups, int):
        return f"the weights of {node.name} are computed in the graph"
    return _Weights(weight, bias, given["weight"], groups)


def _state(module: GraphModule, value: Any) -> torch.Tensor | str | None:
    """The tensor that a get_attr node reads; None for None, and a string for anything else."""
    if value is None:
        return None
    found = find(module, value.target) if isinstance(value, Node) and value.op == "get_attr" else None
    return found if isinstance(found, torch.Tensor) else "computed"


# Folding


def _folded(norm: _Norm, weights: _Weights, axis: int, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias such that the layer gives what the norm gave; computed in float64.

    ``(w x + b - mean) / sqrt(var + eps) * gamma + beta``, for each channel of the result. axis: of the weight, where the
    channels (of each group) are.
    """
    with torch.no_grad():
        scale = (norm.variance.double() + norm.epsilon).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        weight = weights.weight.double()
        if axis == 0:
            new = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
        else:  # a transposed convolution: (inputs, outputs of a group, ...), the inputs of a group together
            split = weight.reshape(groups, -1, *weight.shape[1:])
            new = (split * scale.reshape(groups, 1, -1, *[1] * (weight.dim() - 2))).reshape(weight.shape)
        bias = weights.bias.double() if weights.bias is not None else torch.zeros_like(scale)
        shift = (bias - norm.mean.double()) * scale
        if norm.bias is not None:
            shift = shift + norm.bias.double()
        dtype = weights.weight.dtype
        # Of the memory format of the weight: it decides how fast the convolution is.
        return torch.empty_like(weights.weight).copy_(new), shift.to(dtype)


def _replace_module(module: GraphModule, layer: Node, norm: _Norm, weights: _Weights) -> None:
    old = find(module, layer.target)
    transposed = type(old) in TRANSPOSED
    weight, bias = _folded(norm, weights, int(transposed), getattr(old, "groups", 1))
    new = object.__new__(type(old))
    new.__dict__.update({k: v.copy() if isinstance(v, (dict, set)) else v for k, v in old.__dict__.items()})
    grad = old.weight.requires_grad
    new._parameters["weight"] = nn.Parameter(weight, requires_grad=grad)
    new._parameters["bias"] = nn.Parameter(bias, requires_grad=grad)
    layer.target = _own_target(module, layer)
    module.set_state(layer.target, new)


def _replace_weights(module: GraphModule, layer: Node, norm: _Norm, weights: _Weights) -> None:
    weight, bias = _folded(norm, weights, int(layer.target in TRANSPOSED), weights.groups)
    old = weights.weight_node
    assert old is not None
    target = _own_target(module, old) if len(old.users) == 1 else _free_target(module, old.target)
    stem = target.removesuffix("weight") if target.rpartition(".")[2] == "weight" else f"{target}_"
    bias_target = _free_target(module, f"{stem}bias")
    grad = weights.weight.requires_grad
    nodes = []
    with module.graph.inserting_before(layer):
        for place, value in ((target, weight), (bias_target, bias)):
            module.set_state(place, nn.Parameter(value, requires_grad=grad))
            nodes.append(module.graph.get_attr(place))
    kwargs = {key: value for key, value in layer.kwargs.items() if key not in ("weight", "bias", "input")}
    source = layer.args[0] if layer.args else layer.kwargs["input"]
    layer.args, layer.kwargs = (source, *nodes, *layer.args[3:]), kwargs


def _own_target(module: GraphModule, node: Node) -> str:
    """The node's target if no other node uses it or anything in it, else a new one."""
    inside = f"{node.target}."
    for other in module.graph.nodes:
        if other is not node and other.op in ("get_attr", "call_module"):
            if other.target == node.target or other.target.startswith(inside):
                return _free_target(module, node.target)
    return str(node.target)


def _free_target(module: GraphModule, wanted: str) -> str:
    """A path like ``wanted`` at which the module has nothing."""
    target, count = wanted, 1
    while why_not_found(module, target)[0] is None:
        target = f"{wanted}_{count}"
        count += 1
    return target
