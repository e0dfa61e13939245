"""The invariants of a graph, checked in one place."""

from __future__ import annotations

from typing import Any, NoReturn

from .errors import GraphError
from .graph import Graph
from .node import OPS, Node


def check(graph: Graph, root: Any = None) -> None:
    """Raise GraphError if the graph isn't well formed.

    Checked: operations and targets, unique names, arguments defined before their use, users and arguments agreeing,
    placeholders first, exactly one output, at the end. root: an nn.Module in which targets must be found.
    """
    seen: set[Node] = set()
    names: set[str] = set()
    beyond_placeholders = ended = False
    for node in graph.nodes:
        if node.graph is not graph:
            _fail(graph, node, "belongs to another graph")
        if node.op not in OPS:
            _fail(graph, node, f"has the operation {node.op!r}; expected one of {', '.join(OPS)}")
        if ended:
            _fail(graph, node, "comes after the output")
        if node.name in names:
            _fail(graph, node, "has the name of an earlier node")
        names.add(node.name)
        if node.op == "placeholder" and beyond_placeholders:
            _fail(graph, node, "is a placeholder that comes after other nodes")
        beyond_placeholders = beyond_placeholders or node.op != "placeholder"
        ended = node.op == "output"
        if node.op == "call_function" and not callable(node.target):
            _fail(graph, node, f"has a target of type {type(node.target).__name__}; expected a callable")
        if node.op != "call_function" and not isinstance(node.target, str):
            _fail(graph, node, f"has a target of type {type(node.target).__name__}; expected a string")
        if node.op == "call_method" and not node.args:
            _fail(graph, node, "calls a method of nothing; expected the object as first argument")
        for used in node.inputs():
            if used not in seen:
                _fail(graph, node, f"uses {used.name!r} before it is defined")
            if node not in used.users:
                _fail(graph, node, f"uses {used.name!r}, which doesn't know it as a user")
        for user in node.users:
            if node not in set(user.inputs()):
                _fail(graph, node, f"counts {user.name!r} among its users, which doesn't use it")
        if root is not None and node.op in ("get_attr", "call_module"):
            _check_target(graph, node, root)
        seen.add(node)
    if not ended:
        raise GraphError("the graph has no output at its end")


def _check_target(graph: Graph, node: Node, root: Any) -> None:
    owner = root
    for part in node.target.split("."):
        if not hasattr(owner, part):
            _fail(graph, node, f"has the target {node.target!r}, but {type(owner).__name__} has no attribute {part!r}")
        owner = getattr(owner, part)
    if node.op == "call_module" and not callable(owner):
        _fail(graph, node, f"calls {node.target!r}, an object of type {type(owner).__name__}; expected a module")


def _fail(graph: Graph, node: Node, problem: str) -> NoReturn:
    lines = [f"node {node.name!r} ({node.op}) {problem}; around it:"]
    around = [node]
    for _ in range(3):
        if around[0].prev.op != "root":
            around.insert(0, around[0].prev)
        if around[-1].next.op != "root":
            around.append(around[-1].next)
    lines += [f"  {'->' if n is node else '  '} {n.format()}" for n in around]
    raise GraphError("\n".join(lines))
