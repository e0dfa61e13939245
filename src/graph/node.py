"""One node of a graph, and the values that can be its arguments."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .errors import GraphError

if TYPE_CHECKING:
    from .graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")


class Node:
    """One step of a Graph (section 4 of the torch.fx paper, arXiv 2112.08429).

    op: one of `OPS`. target: a function for call_function, else a string. args, kwargs: nodes and other values, nested
    in tuples, named tuples, lists, dicts and slices; assign to them, don't change them in place. users: the nodes that
    use this one, in the order they came to. meta: free for notes; "where" is the user's (file, line) or
    (file, line, text), shown in generated code; "stack" the places of the calls that led there, innermost first; "module"
    the path of the module in whose forward it stands, if that isn't the whole graph's.
    """

    __slots__ = (
        "__weakref__", "_args", "_erased", "_inputs", "_kwargs", "_next", "_prev",
        "graph", "meta", "name", "op", "target", "users",
    )  # fmt: skip

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
        self._inputs: dict[Node, None] = {}
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        if args or kwargs:
            self._set_arguments(args, kwargs)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return _node_at, (self.graph, next(i for i, node in enumerate(self.graph.nodes) if node is self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        """The counterpart in a copy of the whole graph: a node by itself means nothing."""
        copy.deepcopy(self.graph, memo)
        copied: Node = memo[id(self)]
        return copied

    # Place in the graph

    @property
    def next(self) -> Node:
        """The node after this one. After the last comes the graph's root, whose op is "root"."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; before the first, the graph's root."""
        return self._prev

    def append(self, other: Node) -> None:
        """Move ``other``, a node of the same graph, right behind this one."""
        self._detach(other)
        other._link_after(self)

    def prepend(self, other: Node) -> None:
        """Move ``other``, a node of the same graph, right before this one."""
        self._detach(other)
        other._link_after(self._prev)

    def _detach(self, other: Node) -> None:
        if other is self or other.graph is not self.graph or other._erased or self._erased:
            raise GraphError(f"{other.name!r} can't be moved next to {self.name!r}: expected two nodes of one graph")
        other._unlink()

    def _link_after(self, other: Node) -> None:
        self._prev, self._next = other, other._next
        other._next._prev = self
        other._next = self

    def _unlink(self) -> None:
        # Its own links stay, so that an iteration that stands on an erased node finds its way back.
        self._prev._next, self._next._prev = self._next, self._prev

    # Arguments

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, args: Iterable[Any]) -> None:
        self._set_arguments(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._set_arguments(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in the order they first stand there."""
        return list(self._inputs)

    def update_arg(self, index: int, value: Any) -> None:
        """Replace one positional argument; raises IndexError if there is none at ``index``."""
        args = list(self._args)
        args[index] = value
        self.args = tuple(args)

    def update_kwarg(self, key: str, value: Any) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: value}

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs: dict[Node, None] = {}
        try:
            args = tuple([_take(value, inputs) for value in args])
            if kwargs:
                if not all(type(key) is str for key in kwargs):
                    raise GraphError(f"keyword arguments must have strings as names, not {list(kwargs)!r}")
                kwargs = {key: _take(value, inputs) for key, value in kwargs.items()}
        except GraphError as error:
            raise GraphError(f"node {self.name!r}: {error}") from None
        graph = self.graph
        for used in inputs:
            if used.graph is not graph or used._erased or used is self:
                why = "itself" if used is self else "which was erased" if used._erased else "a node of another graph"
                raise GraphError(f"node {self.name!r} can't use {used.name!r}, {why}")
        for used in self._inputs:
            if used not in inputs:
                used.users.pop(self, None)
        for used in inputs:
            used.users[self] = None
        self._args, self._kwargs, self._inputs = args, dict(kwargs), inputs

    def replace_input_with(self, old: Node, new: Any) -> None:
        """Use ``new``, a node or any other argument, wherever ``old`` is an argument."""
        if old in self._inputs:
            swap: Callable[[Node], Any] = lambda node: new if node is old else node
            self._set_arguments(map_nodes(self._args, swap), map_nodes(self._kwargs, swap))

    def replace_all_uses_with(self, new: Any, where: Callable[[Node], bool] = lambda user: True) -> list[Node]:
        """Let the users of this node use ``new``, a node or any other argument; returns those that were changed.

        ``new`` itself may go on using this node. where: only users for which it is true.
        """
        changed = [user for user in self.users if user is not new and where(user)]
        for user in changed:
            user.replace_input_with(self, new)
        return changed

    # Text

    def format(self) -> str:
        """The node as one line of text."""
        shown = [format_argument(value) for value in self._args]
        shown += [f"{key}={format_argument(value)}" for key, value in self._kwargs.items()]
        target = self.target if isinstance(self.target, str) else function_name(self.target)
        if self.op == "output":
            return f"output {', '.join(shown)}"
        if self.op == "get_attr":
            return f"%{self.name} = get_attr {target}"
        if self.op == "placeholder":
            return f"%{self.name} = placeholder {target}" + (f" = {shown[0]}" if shown else "")
        return f"%{self.name} = {self.op} {target}({', '.join(shown)})"


def _node_at(graph: Graph, index: int) -> Node:
    return list(graph.nodes)[index]


def last_uses(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each of ``nodes``, given in order, the nodes whose values nobody needs after it."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(list(nodes)):
        dead = [used for used in node._inputs if used not in seen]
        if dead:
            found[node] = dead
            seen.update(dead)
    return found


# Nested arguments

ATOMS = frozenset([
    bool, bytes, complex, float, int, str, type(None), type(...), type(NotImplemented), type,
    torch.device, torch.dtype, torch.layout, torch.memory_format, torch.Size,
])  # fmt: skip
_OTHER_CONTAINERS = (tuple, list, dict, set, frozenset, deque)


def _take(value: Any, inputs: dict[Node, None]) -> Any:
    """An argument to keep: lists and dicts copied, so that no one else can change them. Adds nodes to ``inputs``."""
    kind = type(value)
    if kind is Node:
        inputs[value] = None
        return value
    if kind in ATOMS:
        return value
    if kind is tuple or is_named_tuple(kind):
        items = [_take(item, inputs) for item in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return tuple.__new__(kind, items)
    if kind is list:
        return [_take(item, inputs) for item in value]
    if kind is dict:
        if any(type(key) not in ATOMS and _holds_nodes(key) for key in value):
            raise GraphError("a node can't be the key of a dict among the arguments")
        return {key: _take(item, inputs) for key, item in value.items()}
    if kind is slice:
        for part in (value.start, value.stop, value.step):
            _take(part, inputs)
    elif isinstance(value, _OTHER_CONTAINERS) and _holds_nodes(value):
        raise GraphError(
            f"nodes can't stand in a {kind.__name__}; they can stand in tuples, named tuples, lists, dicts and slices"
        )
    return value


def is_named_tuple(kind: type) -> bool:
    """Whether it is a class made by collections.namedtuple or typing.NamedTuple, or derived from one."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _holds_nodes(value: Any) -> bool:
    if isinstance(value, Node):
        return True
    if isinstance(value, dict):
        return any(map(_holds_nodes, value)) or any(map(_holds_nodes, value.values()))
    return isinstance(value, _OTHER_CONTAINERS) and any(map(_holds_nodes, value))


def nodes_in(value: Any) -> dict[Node, None]:
    """The nodes in nested arguments, each once, in order."""
    found: dict[Node, None] = {}
    _take(value, found)
    return found


def map_nodes(value: Any, function: Callable[[Node], Any]) -> Any:
    """Nested arguments with every node replaced; lists and dicts are new ones."""
    return map_arguments(value, function, None)


def map_arguments(value: Any, node: Callable[[Node], Any], leaf: Callable[[Any], Any] | None) -> Any:
    """As `map_nodes`; ``leaf``, if given, replaces everything that is neither node nor container."""
    kind = type(value)
    if kind is Node:
        return node(value)
    if kind in ATOMS:
        return value if leaf is None else leaf(value)
    if kind is tuple:
        return tuple([map_arguments(item, node, leaf) for item in value])
    if kind is list:
        return [map_arguments(item, node, leaf) for item in value]
    if kind is dict:
        return {key: map_arguments(item, node, leaf) for key, item in value.items()}
    if kind is slice:
        return slice(*[map_arguments(part, node, leaf) for part in (value.start, value.stop, value.step)])
    if is_named_tuple(kind):
        return tuple.__new__(kind, [map_arguments(item, node, leaf) for item in value])
    return value if leaf is None else leaf(value)


# Text

_PUBLIC = {"_operator": "operator", "torch._C._nn": "torch.nn.functional", "torch._VariableFunctions": "torch"}
_LONGEST = 100


def function_name(function: Any) -> str:
    """A function as people write it, for tables and messages."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        return format_argument(function)
    module = getattr(function, "__module__", None)
    module = _PUBLIC.get(module, module) if isinstance(module, str) else None
    if name.startswith("_VariableFunctionsClass."):
        name = name.rpartition(".")[2]
    return f"{module}.{name}" if module and module != "builtins" else name


def format_argument(value: Any) -> str:
    """An argument as text; nodes with a percent sign, what is long shortened."""
    kind = type(value)
    if kind is Node:
        return f"%{value.name}"
    if kind is tuple:
        return f"({', '.join(map(format_argument, value))}{',' if len(value) == 1 else ''})"
    if kind is list:
        return f"[{', '.join(map(format_argument, value))}]"
    if kind is dict:
        return "{" + ", ".join(f"{key!r}: {format_argument(item)}" for key, item in value.items()) + "}"
    if kind is slice:
        return f"slice({', '.join(map(format_argument, (value.start, value.stop, value.step)))})"
    if is_named_tuple(kind):
        return f"{kind.__name__}({', '.join(map(format_argument, value))})"
    if isinstance(value, torch.Tensor):
        return f"{kind.__name__}({', '.join(map(str, value.shape))})"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return function_name(value)
    if kind is int and value.bit_length() > _LONGEST * 3:
        return f"{hex(value)[: _LONGEST - 3]}..."
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
