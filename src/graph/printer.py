"""Graphs and modules as text: tables, and classes as people write them."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

from torch import nn

from .node import Node, format_argument, function_name

if TYPE_CHECKING:
    from .graph import Graph

_WIDEST = 60


def table(graph: Graph) -> str:
    """The graph as a table, a line for each node; with shapes and places in the user's code where they are known."""
    nodes = list(graph.nodes)
    columns = {
        "op": [node.op for node in nodes],
        "name": [node.name for node in nodes],
        "target": [t if isinstance(t := node.target, str) else function_name(t) for node in nodes],
        "arguments": [_arguments(node) for node in nodes],
        "result": [format_argument(m) if (m := node.meta.get("tensor_meta")) else "" for node in nodes],
        "where": [_place(node) for node in nodes],
    }
    widths = {}
    for title, cells in list(columns.items()):
        if not any(cells) and title in ("result", "where"):
            del columns[title]
            continue
        columns[title] = cells = [c if len(c) <= _WIDEST else f"{c[: _WIDEST - 3]}..." for c in cells]
        widths[title] = max(map(len, [title, *cells]))
    rows = [list(columns), ["-" * width for width in widths.values()], *map(list, zip(*columns.values(), strict=True))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths.values(), strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _arguments(node: Node) -> str:
    shown = [format_argument(value) for value in node.args]
    return ", ".join(shown + [f"{key}={format_argument(value)}" for key, value in node.kwargs.items()])


def _place(node: Node) -> str:
    where = node.meta.get("where")
    return f"{str(where[0]).rpartition('/')[2]}:{where[1]}" if where else ""


def shown_place(node: Node) -> str:
    """Where a node comes from in the user's code, as tracebacks write it, outermost call first; "" if it isn't known."""
    where = node.meta.get("where")
    if not where:
        return ""
    lines = []
    for filename, line, *text in (*reversed(node.meta.get("stack", ())[1:]), where):
        source = str(text[0]) if text else linecache.getline(filename, line).strip()
        lines += [f'  File "{filename}", line {line}', *([f"    {source}"] if source else [])]
    return "\n".join(lines)


def readable(module: nn.Module, code: str, class_name: str) -> str:
    """A module as a class: what it holds as comments, then its code."""
    lines = [f"class {class_name}(torch.nn.Module):"]
    lines += [f"    # {line}" for line in _holdings(module)]
    lines += ["", *(f"    {line}" if line else "" for line in code.splitlines())]
    return "\n".join(lines) + "\n"


def _holdings(module: nn.Module, prefix: str = "") -> list[str]:
    lines = []
    for kind, table_ in (("parameter", module._parameters), ("buffer", module._buffers)):
        for name, value in table_.items():
            if value is not None:
                lines.append(f"self.{prefix}{name}: {kind} {_tensor(value)}")
    for name, child in module._modules.items():
        if child is None:
            continue
        if type(child) is nn.Module:
            lines += _holdings(child, f"{prefix}{name}.")
        else:
            text = str(child).splitlines()
            lines.append(f"self.{prefix}{name}: {text[0] if len(text) == 1 else type(child).__name__}")
    return lines


def _tensor(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
