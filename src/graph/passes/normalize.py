"""Write calls in one form, so that patterns and comparisons need to know only that."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..graph_module import GraphModule
from ..node import Node
from ..state import find
from .purity import overloads

Names = dict[str, Any]


def normalize_calls(module: GraphModule) -> bool:
    """Give arguments by keyword, in the signature's order; returns whether any call was changed.

    For functions and modules written in Python, by their signature; for torch's own, by the schema of the operator that
    the arguments fit. Calls that fit several with different names are left as they are, as are Python's operators,
    methods and parameters that can't be given by keyword.

    Before: ``torch.nn.functional.relu(x, True)``. After: ``torch.nn.functional.relu(input=x, inplace=True)``.
    """
    changed = False
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_module"):
            continue
        names = _by_keyword(module, node)
        if names is not None and (node.args or list(names) != list(node.kwargs)):
            node.args, node.kwargs = (), names
            changed = True
    if changed:
        module.recompile()
    return changed


def _by_keyword(module: GraphModule, node: Node) -> Names | None:
    """The node's arguments by keyword, if there is one way to give them so."""
    if node.op == "call_module":
        layer = find(module, node.target)
        return _by_signature(layer.forward, node) if isinstance(layer, nn.Module) else None
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return _by_schema(target, node, {})
    name = getattr(target, "__name__", "")
    if inspect.isfunction(target):
        return _by_signature(target, node)
    if getattr(torch._C._VariableFunctions, name, None) is target or getattr(torch._C._nn, name, None) is target:
        renamed = {"self": "input"}
    else:
        return None
    found = [names for o in overloads(name) if (names := _by_schema(o, node, renamed)) is not None]
    if not found or any(list(names) != list(found[0]) for names in found):
        return None
    return found[0]


def _by_signature(function: Callable[..., Any], node: Node) -> Names | None:
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):
        return None
    kinds = {name: signature.parameters[name].kind for name in bound}
    if any(kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY) for kind in kinds.values()):
        return None
    return dict(bound)


def _by_schema(overload: Any, node: Node, renamed: dict[str, str]) -> Names | None:
    arguments = overload._schema.arguments
    positional = [a for a in arguments if not a.kwarg_only]
    given_by_place = positional[: len(node.args)]
    # By position alpha and beta have an order of their own in Python: torch.add(x, alpha, y).
    if len(node.args) > len(positional) or any(a.name in ("alpha", "beta") for a in given_by_place):
        return None
    given = dict(zip((renamed.get(a.name, a.name) for a in positional), node.args, strict=False))
    if not given.keys().isdisjoint(node.kwargs):
        return None
    given.update(node.kwargs)
    names: Names = {}
    for argument in arguments:
        name = renamed.get(argument.name, argument.name)
        if name in given:
            if not _fits(given[name], str(argument.type)) or _may_be_spread(given[name], argument):
                return None
            names[name] = given.pop(name)
        elif not argument.has_default_value():
            return None
    return None if given else names


def _may_be_spread(value: Any, argument: Any) -> bool:
    """Whether it may be one of several numbers for a list: torch.ones(2, 3) is torch.ones((2, 3)), but size=2 is an error."""
    is_list = "List[int]" in str(argument.type) or "List[SymInt]" in str(argument.type)
    return is_list and argument.N is None and not isinstance(value, (list, tuple, type(None)))


_SCALARS: dict[type, tuple[str, ...]] = {
    bool: ("bool", "number"), int: ("int", "float", "number", "SymInt"), float: ("float", "number"),
    complex: ("complex", "number"), str: ("str",), type(None): (), torch.device: ("Device",), torch.dtype: ("int", "ScalarType"),
}  # fmt: skip


def _fits(value: Any, kind: str) -> bool:
    """Whether an argument may be one of this type of a schema; nodes may be anything but lists of constants."""
    if kind.startswith("Optional["):
        return value is None or _fits(value, kind[len("Optional[") : -1])
    if isinstance(value, Node):
        return True
    if isinstance(value, torch.Tensor):
        return kind == "Tensor"
    if isinstance(value, (list, tuple)):
        return kind.startswith("List[") and all(_fits(item, kind[len("List[") : -1]) for item in value)
    # A list of sizes may be given as one number.
    return kind.removeprefix("List[").removesuffix("]") in _SCALARS.get(type(value), (kind,))
