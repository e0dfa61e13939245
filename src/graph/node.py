"""One node of a graph, and the values that can be its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .errors import GraphError

if TYPE_CHECKING:
    from .graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")


class Node:
    """One step of a Graph (section 4.2 of the torch.fx paper, arXiv 2112.08429).

    op: one of `OPS`. target: a function for call_function, else a string. args, kwargs: nodes and immutables, nested in
    tuples, lists, dicts and slices; replaced as a whole, never changed in place. users: the nodes that use this one, as
    an ordered dict. meta: free for notes; "where" is the user's (file, line), "stack" those of every inlined call.
    """

    __slots__ = ("_args", "_kwargs", "_next", "_prev", "graph", "meta", "name", "op", "target", "users")

    def __init__(
        self, graph: Graph, name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._prev: Node = self
        self._next: Node = self
        self._set_arguments(args, kwargs)

    # Links

    @property
    def next(self) -> Node:
        """The node after this one; the graph's root after the last."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; the graph's root before the first."""
        return self._prev

    def _link_after(self, other: Node) -> None:
        self._prev, self._next = other, other._next
        other._next._prev = self
        other._next = self

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    # Arguments

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self._set_arguments(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._set_arguments(self._args, dict(kwargs))

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for used in self.inputs():
            used.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        for used in self.inputs():
            if used.graph is not self.graph:
                raise GraphError(f"node {self.name!r} uses {used.name!r}, which belongs to another graph")
            used.users[self] = None

    def inputs(self) -> Iterator[Node]:
        """Every node among the arguments, as often as it stands there."""
        return nodes_in((self._args, self._kwargs))

    def replace_input(self, old: Node, new: Node) -> None:
        """Use ``new`` wherever ``old`` is an argument."""
        swap: Callable[[Node], Any] = lambda node: new if node is old else node
        self._set_arguments(map_nodes(self._args, swap), map_nodes(self._kwargs, swap))

    def replace_all_uses_with(self, new: Node) -> list[Node]:
        """Let every user of this node use ``new``; returns the users that were changed."""
        changed = [user for user in self.users if user is not new]
        for user in changed:
            user.replace_input(self, new)
        return changed

    # Text

    def format(self) -> str:
        """The node as one line of text."""
        shown = [format_argument(a) for a in self._args]
        shown += [f"{key}={format_argument(value)}" for key, value in self._kwargs.items()]
        target = self.target if isinstance(self.target, str) else target_name(self.target)
        if self.op == "placeholder":
            return f"%{self.name} = placeholder {target}"
        if self.op == "output":
            return f"output {', '.join(shown)}"
        if self.op == "get_attr":
            return f"%{self.name} = get_attr {target}"
        return f"%{self.name} = {self.op} {target}({', '.join(shown)})"

    def __repr__(self) -> str:
        return self.name


def target_name(function: Any) -> str:
    """A function as people write it."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    module = getattr(function, "__module__", None) or ""
    module = {"_operator": "operator", "torch._C._nn": "torch.nn.functional", "torch._VariableFunctions": "torch"}.get(
        module, module
    )
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def format_argument(value: Any) -> str:
    """An argument as text; nodes with a percent sign."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if type(value) is tuple:
        return f"({', '.join(format_argument(v) for v in value)}{',' if len(value) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(format_argument(v) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {format_argument(v)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({', '.join(format_argument(v) for v in (value.start, value.stop, value.step))})"
    return repr(value)


def nodes_in(value: Any) -> Iterator[Node]:
    """Every node in nested arguments."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from nodes_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from nodes_in(item)
    elif isinstance(value, slice):
        yield from nodes_in((value.start, value.stop, value.step))


def map_nodes(value: Any, function: Callable[[Node], Any]) -> Any:
    """Nested arguments with every node replaced; containers keep their classes."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, tuple):
        items = [map_nodes(item, function) for item in value]
        if type(value) is tuple:
            return tuple(items)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        return [map_nodes(item, function) for item in value]
    if isinstance(value, dict):
        return {key: map_nodes(item, function) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_nodes(part, function) for part in (value.start, value.stop, value.step)))
    return value
