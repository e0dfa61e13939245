"""Graphs as pictures: DOT for Graphviz, and SVG without any other program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from .graph import Graph
from .node import Node, format_argument, function_name
from .passes.costs import module_path
from .render import public_path

_FILL = {
    "placeholder": "#d9ead3", "get_attr": "#fff2cc", "call_function": "#ffffff", "call_method": "#ffffff",
    "call_module": "#cfe2f3", "output": "#d9ead3", "group": "#e6e0f0",
}  # fmt: skip
_HEIGHT, _GAP, _ROW, _CHARACTER = 36, 16, 64, 7.2
_LONGEST = 44


@dataclass(slots=True)
class Box:
    """A node of the picture: one of the graph's, or a run of consecutive ones of one module."""

    title: str
    detail: str
    kind: str
    nodes: list[Node] = field(default_factory=list)


def draw_dot(graph: Graph, *, depth: int | None = None) -> str:
    """The graph in the DOT language. depth: see `draw_svg`."""
    boxes, edges = _boxes(graph, depth)
    lines = ["digraph {", '    node [shape=box, style="filled,rounded", fontname="Helvetica"];']
    for i, box in enumerate(boxes):
        label = "\\n".join(_quoted(text) for text in (box.title, box.detail) if text)
        lines.append(f'    n{i} [label="{label}", fillcolor="{_FILL[box.kind]}"];')
    lines += [f"    n{a} -> n{b};" for a, b in edges]
    return "\n".join([*lines, "}"]) + "\n"


def draw_svg(graph: Graph, *, depth: int | None = None) -> str:
    """The graph as an SVG document, inputs on top.

    depth: draw consecutive operators of one module at this depth of the hierarchy as a single box; 1 for the modules of
    the root. None draws every node, and for graphs of more than 100 takes the greatest depth that leaves at most 100.
    """
    if depth is None and len(graph.nodes) > 100:
        deepest = max(len(_path(node)) for node in graph.nodes)
        depth = next((d for d in range(deepest, 0, -1) if len(_boxes(graph, d)[0]) <= 100), 1)
    boxes, edges = _boxes(graph, depth)
    width = [max(_CHARACTER * max(len(box.title), len(box.detail)) + 16, 60) for box in boxes]
    rows = _rows(len(boxes), edges)
    x, total = _columns(rows, width, edges)
    y = {i: 20 + _ROW * row for row, members in enumerate(rows) for i in members}
    height = 20 + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{height}" viewBox="0 0 {total:.0f} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<g fill="none" stroke="#888888">',
    ]
    for a, b in edges:
        x1, y1, x2, y2 = x[a], y[a] + _HEIGHT, x[b], y[b]
        bend = (y2 - y1) / 2
        parts.append(f'<path d="M{x1:.1f},{y1} C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2}"/>')
    parts.append("</g>")
    for i, box in enumerate(boxes):
        left = x[i] - width[i] / 2
        parts.append(
            f'<g><title>{escape(_hover(box))}</title><rect x="{left:.1f}" y="{y[i]}" width="{width[i]:.1f}" height="{_HEIGHT}" '
            f'rx="6" fill="{_FILL[box.kind]}" stroke="#555555"/>'
        )
        for text, down, color in ((box.title, 15, "#111111"), (box.detail, 29, "#666666")):
            if text:
                parts.append(
                    f'<text x="{x[i]:.1f}" y="{y[i] + down}" text-anchor="middle" fill="{color}">{escape(_printable(text))}</text>'
                )
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _boxes(graph: Graph, depth: int | None) -> tuple[list[Box], list[tuple[int, int]]]:
    boxes: list[Box] = []
    box_of: dict[Node, int] = {}
    last: tuple[str, ...] | None = None
    for node in graph.nodes:
        if depth is not None and node.op == "get_attr":
            continue  # part of whatever uses it
        group = _path(node)[:depth] if depth is not None and node.op not in ("placeholder", "output") else ()
        if group and group == last:
            # Consecutive, so that no arrow leads back from a box to itself by way of another.
            boxes[-1].nodes.append(node)
        else:
            boxes.append(Box("", "", "", [node]))
            last = group or None
        box_of[node] = len(boxes) - 1
    for box in boxes:
        _label(box, depth)
    edges = {
        (box_of[used], box_of[node]): None
        for node in graph.nodes
        if node in box_of
        for used in node.all_input_nodes
        if used in box_of and box_of[used] != box_of[node]
    }
    return boxes, list(edges)


def _path(node: Node) -> tuple[str, ...]:
    path = module_path(node)
    return tuple(path.split(".")) if path else ()


def _label(box: Box, depth: int | None) -> None:
    node = box.nodes[-1]
    meta = node.meta.get("tensor_meta")
    result = format_argument(meta) if meta is not None else ""
    if len(box.nodes) > 1:
        count = f"{len(box.nodes)} operators"
        box.title, box.kind = ".".join(_path(node)[:depth]), "group"
        box.detail = f"{count}, {result}" if result else count
    else:
        target = node.target
        if not isinstance(target, str):
            target = (public_path(target) or function_name(target)).removeprefix("torch.nn.functional.")
        box.title = {"output": "output", "placeholder": node.target}.get(node.op, target)
        box.detail, box.kind = result, node.op
    box.title, box.detail = (t if len(t) <= _LONGEST else f"{t[: _LONGEST - 3]}..." for t in (box.title, box.detail))


def _hover(box: Box) -> str:
    lines = [node.format() for node in box.nodes[:30]]
    return _printable("\n".join([*lines, f"... {len(box.nodes) - 30} more"] if len(box.nodes) > 30 else lines))


def _printable(text: str) -> str:
    """Without the characters that XML doesn't allow."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _quoted(text: str) -> str:
    return _printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _rows(count: int, edges: list[tuple[int, int]]) -> list[list[int]]:
    """Boxes by row: each below all it depends on. Attributes, which depend on nothing, right above their first user."""
    row = [0] * count
    users: dict[int, list[int]] = {}
    has_inputs = set()
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        row[b] = max(row[b], row[a] + 1)
        users.setdefault(a, []).append(b)
        has_inputs.add(b)
    for i in range(count):
        if i not in has_inputs and i in users:
            row[i] = max(row[i], min(row[b] for b in users[i]) - 1)
    rows: list[list[int]] = [[] for _ in range(max(row, default=0) + 1)]
    for i, at in enumerate(row):
        rows[at].append(i)
    return rows


def _columns(rows: list[list[int]], width: list[float], edges: list[tuple[int, int]]) -> tuple[dict[int, float], float]:
    """The middle of each box, near the average of the boxes above that lead to it, and the width of the whole."""
    above: dict[int, list[int]] = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
    x: dict[int, float] = {}
    for members in rows:
        wish = {i: sum(x[a] for a in known) / len(known) if (known := list(_placed(above, i, x))) else 0.0 for i in members}
        edge = float("-inf")
        order = sorted(members, key=lambda i: (wish[i], i))
        for i in order:
            x[i] = max(wish[i], edge + _GAP + width[i] / 2)
            edge = x[i] + width[i] / 2
        # Sideways as a whole, so that a row with many boxes doesn't drift to the right.
        shift = sum(x[i] - wish[i] for i in order) / len(order)
        for i in order:
            x[i] -= shift
    left = min((x[i] - width[i] / 2 for i in x), default=0.0)
    for i in x:
        x[i] += 20 - left
    return x, max((x[i] + width[i] / 2 for i in x), default=0.0) + 20


def _placed(above: dict[int, list[int]], box: int, x: dict[int, float]) -> Iterator[int]:
    return (a for a in above.get(box, ()) if a in x)
