"""Graphs as text that can be read back: a line for each node, in the syntax of Python but never executed.

    x = placeholder['x']()
    relu = call_function['torch.relu'](x)
    output = output['output'](relu)

Functions have the names they have in files (see `targets.py`). Notes aren't part of the text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .errors import GraphError
from .graph import Graph, require_target
from .names import is_plain
from .node import Node
from .targets import constant_name, find_constant, find_target, path_of


def to_text(graph: Graph) -> str:
    """The graph as text. Raises GraphError for values that have none: tensors, and objects of the program's own types."""
    lines = []
    for node in graph.nodes:
        try:
            target = path_of(node.target) if node.op == "call_function" else node.target
            lines.append(f"{node.name} = {node.op}[{target!r}]({_arguments(node)})")
        except GraphError as error:
            raise GraphError(f"node {node.format()} can't be written as text: {error}") from None
    return "\n".join(lines) + "\n"


def _arguments(node: Node) -> str:
    shown = [_write(value) for value in node.args]
    rest: dict[str, Any] = {}
    for key, value in node.kwargs.items():
        if rest or not is_plain(key):
            rest[key] = value
        else:
            shown.append(f"{key}={_write(value)}")
    return ", ".join(shown + ([f"**{_write(rest)}"] if rest else []))


def _write(value: Any) -> str:
    kind = type(value)
    if kind is Node:
        return str(value.name)
    if value is None or kind in (bool, int, str, bytes):
        return repr(value)
    if value is Ellipsis:
        return "..."
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if kind is complex:
        return f"complex({_write(value.real)}, {_write(value.imag)})"
    if kind is tuple:
        return f"({', '.join(map(_write, value))}{',' if len(value) == 1 else ''})"
    if kind is list:
        return f"[{', '.join(map(_write, value))}]"
    if kind is dict:
        return "{" + ", ".join(f"{_write(key)}: {_write(item)}" for key, item in value.items()) + "}"
    if kind is torch.Size:
        return f"Size({', '.join(map(_write, value))})"
    if kind in (slice, range):
        return f"{kind.__name__}({', '.join(map(_write, (value.start, value.stop, value.step)))})"
    if kind is torch.device:
        return f"device({str(value)!r})"
    name = constant_name(value)
    if name is not None:
        return f"torch.{name}"
    if isinstance(value, torch.Tensor) or not callable(value):
        raise GraphError(f"there is no text for a value of type {kind.__name__}")
    return f"function({path_of(value)!r})"


def from_text(text: str) -> Graph:
    """The graph that `to_text` wrote, or somebody by hand. Raises GraphError, with the line, for what isn't one."""
    try:
        lines = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise GraphError(f"the text is no graph: {place}") from None
    graph = Graph()
    known: dict[str, Node] = {}
    for line in lines:
        try:
            made = _node(graph, known, line)
        except (GraphError, ValueError, TypeError, RuntimeError) as error:
            raise GraphError(f"line {line.lineno} of the text is no node: {error}") from None
        known[made.name] = made
    return graph


def _node(graph: Graph, known: Mapping[str, Node], line: ast.stmt) -> Node:
    match line:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(
                func=ast.Subscript(value=ast.Name(id=op), slice=ast.Constant(value=str(target))), args=args, keywords=given
            ),
        ):
            pass
        case _:
            raise GraphError("expected name = op['target'](arguments)")
    kwargs: dict[str, Any] = {}
    for keyword in given:
        value = _read(keyword.value, known)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, dict) and all(type(key) is str for key in value):
            kwargs.update(value)
        else:
            raise GraphError("what follows ** must be a dict of names")
    found = find_target(target) if op == "call_function" else target
    require_target(op, found)
    return graph._insert_named(op, found, tuple(_read(arg, known) for arg in args), kwargs, name)


def _read(part: ast.expr, known: Mapping[str, Node]) -> Any:
    match part:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=name):
            if name not in known:
                raise GraphError(f"{name!r} is no node of the lines before")
            return known[name]
        case ast.List(elts=items):
            return [_read(item, known) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_read(item, known) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_read(key, known): _read(item, known) for key, item in pairs if key is not None}
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return find_constant(name)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _KINDS:
            return _KINDS[name](*[_read(arg, known) for arg in args])
    raise GraphError(f"{ast.unparse(part)} is no argument of a node")


_KINDS: dict[str, Callable[..., Any]] = {
    "Size": lambda *sizes: torch.Size(sizes),
    "complex": complex,
    "device": torch.device,
    "float": float,
    "function": find_target,
    "range": range,
    "slice": slice,
}
