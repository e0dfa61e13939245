"""The Graph: a list of nodes, one basic block without control flow."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .check import check
from .codegen import GeneratedCode, generate
from .errors import GraphError
from .names import Names
from .node import OPS, Node, map_arguments, map_nodes
from .serialize import Record, pack, unpack


class NodeList:
    """The nodes of a graph in order. Nodes may be inserted, moved and erased while it is iterated over."""

    __slots__ = ("_graph",)

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev

    def __len__(self) -> int:
        return self._graph._count


class Graph:
    """Nodes in execution order. The cost of an edit doesn't depend on how many nodes there are."""

    def __init__(self) -> None:
        self._names = Names()
        self._root = Node(self, "", "root", "", (), {})
        self._before = self._root
        self._count = 0

    @property
    def nodes(self) -> NodeList:
        return NodeList(self)

    @property
    def output_node(self) -> Node:
        """The output. Raises GraphError if there is none at the end."""
        last = self._root._prev
        if last.op != "output":
            raise GraphError("the graph has no output at its end")
        return last

    # Making nodes

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> Node:
        """Insert a node at the insertion point, by default the end. name: a hint; the node's name resembles it.

        Raises GraphError for an unknown op, a target of the wrong type, or arguments that hold nodes of another graph.
        """
        require_target(op, target)
        return self._insert(op, target, args, kwargs or {}, self._names.take(name or _hint(op, target)))

    def _insert(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Node:
        """Insert a node whose name was already taken."""
        try:
            node = Node(self, name, op, target, args, kwargs)
        except GraphError:
            self._names.release(name)
            raise
        while self._before._erased:
            self._before = self._before._next
        node._link_after(self._before._prev)
        self._count += 1
        return node

    def placeholder(self, name: str, default: Any = inspect.Parameter.empty) -> Node:
        """An input; "*name" and "**name" take what is left of the positional and keyword arguments, as in Python.

        Its target, the parameter's name, is the node's name (behind the stars).
        """
        stars = name[: len(name) - len(name.lstrip("*"))]
        args = () if default is inspect.Parameter.empty else (default,)
        node = self.create_node("placeholder", name, args, name=name)
        node.target = stars + node.name
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
        """Call the submodule at this dotted path in the root module."""
        return self.create_node("call_module", target, args, kwargs)

    def output(self, value: Any) -> Node:
        """The result: a node, any other value, or tuples, lists and dicts of these."""
        return self.create_node("output", "output", (value,))

    # Editing

    def erase_node(self, node: Node) -> None:
        """Remove a node that nobody uses. Raises GraphError if it is used, or isn't of this graph."""
        if node.graph is not self or node._erased or node is self._root:
            raise GraphError(f"node {node.name!r} can't be erased: it isn't in this graph")
        if node.users:
            users = ", ".join(repr(user.name) for user in node.users)
            raise GraphError(f"node {node.name!r} can't be erased: it is used by {users}")
        node._set_arguments((), {})
        node._unlink()
        node._erased = True
        self._names.release(node.name)
        self._count -= 1

    def truncate(self, count: int) -> None:
        """Erase all nodes after the first ``count``, newest first; costs as much as there is to erase."""
        while self._count > max(count, 0):
            self.erase_node(self._root._prev)

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        """Within the block, new nodes come before ``node``, in the order they are made."""
        if node.graph is not self or node._erased:
            raise GraphError(f"can't insert next to {node.name!r}: it isn't in this graph")
        outside, self._before = self._before, node
        try:
            yield
        finally:
            self._before = outside

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[None]:
        """Within the block, new nodes come after ``node``, in the order they are made."""
        with self.inserting_before(node._next if not node._erased else node):
            yield

    def rename(self, node: Node, hint: str) -> str:
        """Give a node another name, which resembles ``hint``; returns it."""
        if node.graph is not self or node._erased:
            raise GraphError(f"node {node.name!r} can't be renamed: it isn't in this graph")
        self._names.release(node.name)
        node.name = self._names.take(hint)
        return node.name

    def find_nodes(self, *, op: str | None = None, target: Any = None) -> list[Node]:
        """Nodes with this op and this target (functions compared by identity), each if given, in order."""
        found = [node for node in self.nodes if op is None or node.op == op]
        if isinstance(target, str):
            return [node for node in found if isinstance(node.target, str) and node.target == target]
        return found if target is None else [node for node in found if node.target is target]

    # Copies

    def node_copy(self, node: Node, map_input: Callable[[Node], Any]) -> Node:
        """A copy here of a node of any graph; ``map_input`` gives what stands for each of its inputs."""
        args, kwargs = map_nodes(node.args, map_input), map_nodes(node.kwargs, map_input)
        new = self.create_node(node.op, node.target, args, kwargs, name=node.name)
        new.meta = dict(node.meta)
        return new

    def graph_copy(self, other: Graph, known: dict[Node, Any]) -> Any:
        """Insert copies of ``other``'s nodes, its output excepted; returns what its output stands for, or None.

        known: what stands for nodes of ``other`` that are not to be copied; the copies are added to it.
        """
        for node in other.nodes:
            if node.op == "output":
                return map_nodes(node.args[0] if node.args else None, known.__getitem__)
            if node not in known:
                known[node] = self.node_copy(node, known.__getitem__)
        return None

    def copy(self) -> Graph:
        """A graph with the same nodes, under the same names; values that aren't nodes are shared."""
        return self._copy({}, None)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self._copy(memo, lambda value: copy.deepcopy(value, memo))

    def _copy(self, memo: dict[int, Any], leaf: Callable[[Any], Any] | None) -> Graph:
        new = memo[id(self)] = Graph()
        known: dict[Node, Node] = {}
        for node in self.nodes:
            args = map_arguments(node._args, known.__getitem__, leaf)
            kwargs = map_arguments(node._kwargs, known.__getitem__, leaf)
            copied = known[node] = memo[id(node)] = new._insert_named(node.op, node.target, args, kwargs, node.name)
            copied.meta = {key: known.get(value, value) if type(value) is Node else value
                           for key, value in node.meta.items()}  # fmt: skip
        return new

    def _insert_named(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Node:
        """Insert a node under this very name. Raises GraphError if it is taken."""
        self._names.claim(name)
        return self._insert(op, target, args, kwargs, name)

    def __reduce__(self) -> Any:
        return Graph._unpickle, (pack(self.nodes),)

    @staticmethod
    def _unpickle(records: list[Record]) -> Graph:
        graph = Graph()
        nodes: list[Node] = []
        for op, target, args, kwargs, name, meta in unpack(records, nodes):
            nodes.append(graph._insert_named(op, target, args, kwargs, name))
            nodes[-1].meta = meta
        return graph

    # Text and code

    def lint(self, root: Any = None) -> None:
        """See `check.check`."""
        check(self, root)

    def python_code(self, state: str = "self") -> GeneratedCode:
        """See `codegen.generate`."""
        return generate(self, state=state)

    def __str__(self) -> str:
        return "\n".join(["graph:", *(f"    {node.format()}" for node in self.nodes)])


def require_target(op: str, target: Any) -> None:
    """Raise GraphError if there is no such operation, or if ``target`` is of the wrong type for it."""
    if op == "call_function":
        if not callable(target):
            raise GraphError(f"the target of call_function must be callable, not of type {type(target).__name__}")
    elif op not in OPS:
        raise GraphError(f"{op!r} is no operation of a graph; they are {', '.join(OPS)}")
    elif type(target) is not str:
        raise GraphError(f"the target of {op} must be a string, not of type {type(target).__name__}")


def _hint(op: str, target: Any) -> str:
    """A name for the value of a node that has none."""
    if op == "call_function":
        name = getattr(target, "__name__", None)
        return name if isinstance(name, str) and name else type(target).__name__
    return str(target).replace(".", "_")
