"""The Graph: a list of nodes, one basic block without control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import GraphError
from .names import Names
from .node import OPS, Node, map_nodes


class NodeList:
    """The nodes of a graph in order. Nodes may be erased and inserted while it is iterated over."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._next
        while node is not root:
            following = node._next
            yield node
            # An erased node links to itself: then go on from what followed it.
            node = node._next if node._next is not node else following

    def __reversed__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev
        while node is not root:
            before = node._prev
            yield node
            node = node._prev if node._prev is not node else before

    def __len__(self) -> int:
        return self._graph._count


class Graph:
    """Nodes in execution order. Every edit costs the same however large the graph is."""

    def __init__(self) -> None:
        self.names = Names()
        self._root = Node(self, "", "root", "", (), {})
        self._insert_after: Node | None = None
        self._count = 0

    @property
    def nodes(self) -> NodeList:
        return NodeList(self)

    # Making nodes

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> Node:
        """Insert a node at the insertion point (by default the end). name: a hint. Raises GraphError for a wrong op."""
        if op not in OPS:
            raise GraphError(f"{op!r} is no operation of a graph; they are {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise GraphError(f"the target of call_function must be callable, not {type(target).__name__}")
        if op != "call_function" and not isinstance(target, str):
            raise GraphError(f"the target of {op} must be a string, not {type(target).__name__}")
        node = Node(self, self.names.take(name or _hint(op, target)), op, target, tuple(args), dict(kwargs or {}))
        node._link_after(self._insert_after if self._insert_after is not None else self._root._prev)
        if self._insert_after is not None:
            self._insert_after = node
        self._count += 1
        return node

    def placeholder(self, name: str, default: Any = ...) -> Node:
        """An input. default: its value if the caller gives none; ... for none."""
        node = self.create_node("placeholder", name, () if default is ... else (default,), name=name)
        node.target = node.name
        return node

    def get_attr(self, target: str) -> Node:
        """A parameter, buffer or other state, by its dotted path in the root module."""
        return self.create_node("get_attr", target)

    def call_function(
        self, function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Node:
        """``function(*args, **kwargs)``."""
        return self.create_node("call_function", function, args, kwargs)

    def call_method(self, name: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Node:
        """``args[0].name(*args[1:], **kwargs)``."""
        return self.create_node("call_method", name, args, kwargs)

    def call_module(self, target: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Node:
        """Call the submodule at this dotted path."""
        return self.create_node("call_module", target, args, kwargs)

    def output(self, value: Any) -> Node:
        """The result: a node, an immutable, or nested containers of these."""
        return self.create_node("output", "output", (value,))

    # Editing

    def erase_node(self, node: Node) -> None:
        """Remove a node that nobody uses. Raises GraphError if it is used, or of another graph."""
        if node.graph is not self:
            raise GraphError(f"node {node.name!r} belongs to another graph")
        if node.users:
            users = ", ".join(repr(user.name) for user in node.users)
            raise GraphError(f"node {node.name!r} can't be erased: it is used by {users}")
        if self._insert_after is node:
            self._insert_after = node._prev
        node._set_arguments((), {})
        node._unlink()
        self.names.release(node.name)
        self._count -= 1

    def truncate(self, count: int) -> None:
        """Erase all nodes after the first ``count``, newest first."""
        while self._count > count:
            self.erase_node(self._root._prev)

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[None]:
        """Within the block, new nodes come after ``node``, in the order they are made."""
        before, self._insert_after = self._insert_after, node
        try:
            yield
        finally:
            self._insert_after = before

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        """Within the block, new nodes come before ``node``."""
        with self.inserting_after(node._prev):
            yield

    def move_after(self, node: Node, other: Node) -> None:
        """Put ``node`` right behind ``other``."""
        node._unlink()
        node._link_after(other)

    def find_nodes(self, *, op: str | None = None, target: Any = None) -> list[Node]:
        """Nodes with this op and target (each if given), in order."""
        return [n for n in self.nodes if (op is None or n.op == op) and (target is None or n.target == target)]

    def node_copy(self, node: Node, map_input: Callable[[Node], Any]) -> Node:
        """A copy here of a node of any graph; ``map_input`` gives what stands for each of its inputs."""
        new = self.create_node(
            node.op, node.target, map_nodes(node.args, map_input), map_nodes(node.kwargs, map_input), name=node.name
        )
        new.meta = dict(node.meta)
        return new

    def graph_copy(self, other: Graph, known: dict[Node, Any]) -> Any:
        """Append copies of ``other``'s nodes, its output excepted; returns what its output stands for.

        known: what stands for nodes of ``other`` that are not to be copied; filled with the copies.
        """
        result = None
        for node in other.nodes:
            if node in known:
                continue
            if node.op == "output":
                result = map_nodes(node.args[0], known.__getitem__)
                continue
            known[node] = self.node_copy(node, known.__getitem__)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        copy = Graph()
        known: dict[Node, Any] = {}
        for node in self.nodes:
            known[node] = copy.node_copy(node, known.__getitem__)
        return copy

    @property
    def output_node(self) -> Node:
        """The output. Raises GraphError if there is none yet."""
        last = self._root._prev
        if last.op != "output":
            raise GraphError("the graph has no output")
        return last

    def lint(self, root: Any = None) -> None:
        """See `check.check`."""
        from .check import check

        check(self, root)

    def __str__(self) -> str:
        return "\n".join(["graph:", *(f"    {node.format()}" for node in self.nodes)])


def _hint(op: str, target: Any) -> str:
    if op == "call_function":
        return str(getattr(target, "__name__", "call")).strip("_") or "call"
    return str(target).replace(".", "_")
