"""Compute equal expressions once."""

from __future__ import annotations

from typing import Any

import torch

from ..graph import Graph
from ..node import Node, is_named_tuple
from ..render import INFIX, PREFIX
from .purity import overloads, why_impure


def eliminate_common_subexpressions(graph: Graph) -> bool:
    """Let nodes that compute the same share one; returns whether any did.

    Two nodes are the same if op, target and arguments are (values by type and bits, other objects by identity), both are
    pure (see `purity`), and no impure node stands between them. Results that could be told apart are left: two that
    leave the graph (the caller may change one), and those an impure node may get hold of, directly or by a view.

    Before: ``a = x + 1; b = x + 1; return a * b``. After: ``a = x + 1; return a * a``.
    """
    reaches_output, reaches_impure = reach(graph)
    known: dict[Any, Node] = {}
    changed = False
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if why_impure(node) is not None:
            known = {}
            continue
        # An attribute of the module is one object, however often it is read.
        shareable = node.op == "get_attr"
        key = (node.op, _key(node.target), _key(node.args), _key(node.kwargs))
        first = known.setdefault(key, node)
        if first is node:
            continue
        if not shareable:
            if node in reaches_impure or first in reaches_impure:
                continue
            if node in reaches_output:
                if first in reaches_output:
                    continue
                reaches_output.add(first)
        node.replace_all_uses_with(first)
        graph.erase_node(node)
        changed = True
    return changed


def reach(graph: Graph) -> tuple[set[Node], set[Node]]:
    """The nodes whose result, or memory of it, may reach the output, and those where it may reach an impure node.

    For passes that use one value for another: of all other nodes nobody can tell whether the result is an object of its own.
    """
    output: set[Node] = set()
    impure: set[Node] = set()
    collections = _maybe_collections(graph)
    passes_on: dict[Node, bool] = {}
    effects = {node for node in graph.nodes if why_impure(node) is not None}
    for node in reversed(graph.nodes):
        passes_on[node] = node in effects or not _is_fresh(node, collections)
        for user in node.users:
            if user.op == "output":
                output.add(node)
            elif user in effects:
                impure.add(node)
            if passes_on[user]:
                if user in output:
                    output.add(node)
                if user in impure:
                    impure.add(node)
    return output, impure


def _maybe_collections(graph: Graph) -> set[Node]:
    """The nodes whose value may be a tuple or list, which ``+`` and the like don't copy all the way down."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            if node.target.startswith("*"):
                found.add(node)
        elif node.op in ("call_function", "call_method") and _is_operator(node):
            if not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        elif node.op != "get_attr" and not _gives_one_tensor(node):
            found.add(node)
    return found


def _is_operator(node: Node) -> bool:
    return any(node.target is function for function in (*INFIX, *PREFIX))


def _overloads_of(node: Node) -> tuple[Any, ...]:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return overloads(name) if node.op in ("call_function", "call_method") else ()


def _gives_one_tensor(node: Node) -> bool:
    found = _overloads_of(node)
    return bool(found) and all(
        len(o._schema.returns) == 1 and str(o._schema.returns[0].type) == "Tensor" for o in found
    )


_ALWAYS_FRESH = frozenset(
    """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d group_norm layer_norm linear log_softmax matmul
    scaled_dot_product_attention softmax""".split()
)
"""Composed operators that end in a kernel with a result of its own."""


def _is_fresh(node: Node, collections: set[Node]) -> bool:
    """Whether the result surely is new memory.

    True for operators with kernels of their own whose schema gives results without aliases. Composed ones (reshape,
    contiguous, to) may return the argument itself, and their schemas don't say so.
    """
    if not collections.isdisjoint(node.all_input_nodes):
        return False
    found = _overloads_of(node)
    if found and found[0]._schema.name.removeprefix("aten::") in _ALWAYS_FRESH:
        return True
    return bool(found) and not any(
        (result.alias_info is not None and not overload._schema.is_mutable)
        or torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd")
        for overload in found
        for result in overload._schema.returns
    )  # fmt: skip


def _key(value: Any) -> Any:
    """Equal and hashable for values that mean the same argument; objects without such a notion go by identity."""
    kind = type(value)
    if kind in (float, complex):
        return kind, repr(value) if value == value else id(value)
    if kind in (bool, int, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format):
        return kind, value
    if kind in (tuple, list, torch.Size) or is_named_tuple(kind):
        return kind, tuple(map(_key, value))
    if kind is dict:
        return kind, tuple((_key(key), _key(item)) for key, item in value.items())
    if kind is slice:
        return kind, _key((value.start, value.stop, value.step))
    return kind, id(value)
