"""Remove nodes whose results nobody uses."""

from __future__ import annotations

from ..graph import Graph
from .purity import why_impure


def eliminate_dead_code(graph: Graph) -> bool:
    """Erase unused nodes that only compute; returns whether there were any.

    Kept are in-place and random operators, modules, and functions that aren't known to be pure (see `purity`).

    Before: ``a = x + 1; b = x * 2; c = b.relu(); return a``. After: ``a = x + 1; return a``.
    """
    changed = False
    for node in reversed(graph.nodes):
        if not node.users and why_impure(node) is None:
            graph.erase_node(node)
            changed = True
    return changed
