"""The invariants of a graph, checked in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from .errors import GraphError
from .names import is_plain
from .node import OPS, Node, nodes_in
from .state import why_not_found

if TYPE_CHECKING:
    from .graph import Graph

_AROUND = 3


def check(graph: Graph, root: Any = None) -> None:
    """Raise GraphError if the graph isn't well formed.

    Checked: operations and their targets; names unique and fit for Python; arguments defined before their use; users
    and arguments agreeing both ways; placeholders first, those with defaults last among them; exactly one output, at the
    end. root: an nn.Module, or a dict from target to object, in which the targets of get_attr and call_module must be
    found.
    """
    seen: set[Node] = set()
    names: set[str] = set()
    parameters = _Parameters()
    ended = False
    node = graph._root
    for node in graph.nodes:
        if node.graph is not graph:
            _fail(node, "belongs to another graph")
        if node._next._prev is not node or node._prev._next is not node:
            _fail(node, "isn't linked with its neighbours; expected each to know the other")
        if ended:
            _fail(node, "comes after the output; expected the output to be the last node")
        _check_target(node)
        if not isinstance(node.name, str) or not is_plain(node.name):
            _fail(node, "has a name that is no Python identifier")
        if node.name in names:
            _fail(node, "has the name of an earlier node; expected names to be unique")
        names.add(node.name)
        if node.op == "placeholder":
            problem = "comes after a node that isn't one" if len(names) > parameters.count + 1 else parameters.add(node)
            if problem is not None:
                _fail(node, f"{problem}; expected inputs first, in the order Python has for parameters")
        ended = node.op == "output"
        if ended and (len(node.args) != 1 or node.kwargs):
            _fail(node, f"has {len(node.args)} arguments; expected one, the result")
        _check_arguments(node, seen)
        if root is not None and node.op in ("get_attr", "call_module"):
            _check_state(node, root)
        seen.add(node)
    if not ended:
        raise GraphError("\n".join(["the graph has no output; expected one as its last node", *_around(node)]))
    if len(names) != len(graph.nodes):
        raise GraphError(f"the graph counts {len(graph.nodes)} nodes, but holds {len(names)}")


class _Parameters:
    """The placeholders so far."""

    def __init__(self) -> None:
        self.count = 0
        self.last = "plain"

    def add(self, node: Node) -> str | None:
        """What is wrong with one more, if anything."""
        self.count += 1
        if len(node.args) > 1 or node.kwargs:
            return f"has {len(node.args) + len(node.kwargs)} arguments, but can have one, its default"
        stars = len(node.target) - len(node.target.lstrip("*"))
        kind = "plain" if not stars and not node.args else ("default", "*", "**", None)[min(stars, 3)]
        order = ("plain", "default", "*", "**")
        if kind is None or not is_plain(node.target[stars:]):
            return f"has the target {node.target!r}, which can't be the name of a parameter"
        if order.index(kind) < order.index(self.last) or kind == self.last in ("*", "**"):
            return "is one that can't come after the one before"
        self.last = kind
        return None


def _check_target(node: Node) -> None:
    if node.op not in OPS:
        _fail(node, f"has the operation {node.op!r}; expected one of {', '.join(OPS)}")
    if node.op == "call_function":
        if not callable(node.target):
            _fail(node, f"has a target of type {type(node.target).__name__}; expected a callable")
    elif not isinstance(node.target, str):
        _fail(node, f"has a target of type {type(node.target).__name__}; expected a string")
    elif node.op == "call_method" and not node.args:
        _fail(node, "calls a method of nothing; expected the object as its first argument")


def _check_arguments(node: Node, seen: set[Node]) -> None:
    used_now = nodes_in((node.args, node.kwargs))
    for used in used_now:
        if used._erased:
            _fail(node, f"uses {used.name!r}, which was erased")
        if used.graph is not node.graph:
            _fail(node, f"uses {used.name!r}, which belongs to another graph")
        if used not in seen:
            _fail(node, f"uses {used.name!r} before it is defined")
        if used not in node._inputs:
            _fail(node, f"was given {used.name!r} by changing its arguments in place; expected args to be assigned")
        if node not in used.users:
            _fail(node, f"uses {used.name!r}, which doesn't count it among its users")
    for used in node._inputs:
        if used not in used_now:
            _fail(node, f"lost its argument {used.name!r} by a change in place; expected args to be assigned")
    for user in node.users:
        if user._erased or user.graph is not node.graph:
            _fail(node, f"counts {user.name!r} among its users, which isn't in this graph")
        if node not in user._inputs:
            _fail(node, f"counts {user.name!r} among its users, which doesn't use it")


def _check_state(node: Node, root: Any) -> None:
    problem, value = why_not_found(root, node.target)
    if problem is not None:
        _fail(node, f"has the target {node.target!r}, but {problem}")
    if node.op == "call_module" and not callable(value):
        _fail(node, f"calls {node.target!r}, an object of type {type(value).__name__}; expected a module")


def _fail(node: Node, problem: str) -> NoReturn:
    raise GraphError("\n".join([f"node {node.name!r} ({node.op}) {problem}", *_around(node)]))


def _around(node: Node) -> list[str]:
    """The node with its neighbours, marked."""
    before: list[Node] = []
    after: list[Node] = []
    for found, step in ((before, "_prev"), (after, "_next")):
        other = getattr(node, step)
        while other.op != "root" and len(found) < _AROUND and other is not node:
            found.append(other)
            other = getattr(other, step)
    lines = [(n, "   ") for n in reversed(before)] + [(node, "-> ")] + [(n, "   ") for n in after]
    return [f"  {mark}{n.format()}" for n, mark in lines if n.op != "root"]
