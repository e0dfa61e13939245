"""Remove nodes whose results nobody uses."""

from __future__ import annotations

from ..graph import Graph
from ..node import Node


def is_impure(node: Node) -> bool:
    """Whether a node may do more than compute its result: inputs and outputs, in-place and random operators."""
    if node.op in ("placeholder", "output", "call_module"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if (name.endswith("_") and not name.endswith("__")) or "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    return name.startswith("_set_") or name in _IMPURE


_IMPURE = frozenset(
    [
        "setitem",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "imatmul",
        "iand",
        "ior",
        "ixor",
        "dropout",
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "bernoulli",
        "multinomial",
        "normal",
        "rrelu",
        "batch_norm",
        "instance_norm",
    ]
)


def eliminate_dead_code(graph: Graph) -> bool:
    """Erase unused pure nodes, last first; returns whether any was erased.

    Before: ``a = x + 1; b = x * 2; return a``. After: ``a = x + 1; return a``.
    """
    changed = False
    for node in reversed(graph.nodes):
        if not node.users and not is_impure(node):
            graph.erase_node(node)
            changed = True
    return changed
