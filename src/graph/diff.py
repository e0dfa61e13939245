"""What differs between two graphs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from .graph import Graph
from .node import Node, format_argument, function_name, map_nodes


def diff(before: Graph, after: Graph, *, context: int | None = None) -> str:
    """The nodes of both graphs as lines, with ``-`` for what only ``before`` has and ``+`` for what only ``after`` has.

    Nodes are compared by what they do to which inputs, not by their names: a renamed node is no difference. context:
    how many equal lines to show around each difference; None for all. Returns "" for graphs that are equal.
    """
    old, new = list(before.nodes), list(after.nodes)
    numbers: dict[Node, int] = {}
    known: dict[Any, int] = {}
    steps = difflib.SequenceMatcher(
        None, [_number(node, numbers, known) for node in old], [_number(node, numbers, known) for node in new], autojunk=False
    )
    lines: list[str] = []
    groups: list[Any] = [steps.get_opcodes()] if context is None else list(steps.get_grouped_opcodes(context))
    if not any(tag != "equal" for group in groups for tag, *_ in group):
        return ""
    for i, group in enumerate(groups):
        if i:
            lines.append("  ...")
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [f"  {node.format()}" for node in new[c:d]]
            else:
                lines += [f"- {node.format()}" for node in old[a:b]] + [f"+ {node.format()}" for node in new[c:d]]
    return "\n".join(lines)


def _number(node: Node, numbers: dict[Node, int], known: dict[Any, int]) -> int:
    """A number for what a node computes, the same for two nodes that do the same to the same inputs."""

    def shown(value: Any) -> str:
        return format_argument(map_nodes(value, lambda used: f"#{numbers[used]}"))

    target = node.target if isinstance(node.target, str) else (function_name(node.target), id(node.target))
    key = (node.op, target, shown(node.args), tuple((name, shown(value)) for name, value in node.kwargs.items()))
    number = known.setdefault(key, len(known))
    # An input with another name is another line, but those that use it do the same as before.
    numbers[node] = number if node.op != "placeholder" else -1 - sum(used.op == "placeholder" for used in _before(node))
    return number


def _before(node: Node) -> Iterator[Node]:
    while (node := node.prev).op != "root":
        yield node
