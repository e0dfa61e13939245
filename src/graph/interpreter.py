"""Run a graph node by node, with a method for each operation to override."""

from __future__ import annotations

from typing import Any

from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_nodes


class Interpreter:
    """Executes a GraphModule's nodes in order. Override `run_node` or the method of an operation."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.env: dict[Node, Any] = {}
        self._arguments: list[Any] = []

    def run(self, *args: Any) -> Any:
        """The graph's result for these inputs."""
        self.env = {}
        self._arguments = list(args)
        for node in self.module.graph.nodes:
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
        raise GraphError("the graph has no output")

    def run_node(self, node: Node) -> Any:
        """Execute one node: its method, with arguments resolved."""
        args = map_nodes(node.args, self.env.__getitem__)
        kwargs = map_nodes(node.kwargs, self.env.__getitem__)
        return getattr(self, node.op)(node.target, args, kwargs)

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._arguments:
            return self._arguments.pop(0)
        if args:
            return args[0]
        raise GraphError(f"there is no argument for the input {target!r}")

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner: Any = self.module
        for part in target.split("."):
            owner = getattr(owner, part)
        return owner

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.get_attr(target, (), {})(*args, **kwargs)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]


class Transformer(Interpreter):
    """As Interpreter, but each method returns the node to stand in a new graph; `transform` gives its module."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new = Graph()
        self._node: Node | None = None

    def transform(self) -> GraphModule:
        """A new module; by default a copy of the graph over the same state."""
        for node in self.module.graph.nodes:
            self._node = node
            self.env[node] = self.run_node(node)
        return GraphModule(self.module, self.new, self.module._class_name)

    def _make(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        assert self._node is not None
        made = self.new.create_node(op, target, args, kwargs, name=self._node.name)
        made.meta = dict(self._node.meta)
        return made

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("placeholder", target, args, kwargs)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("get_attr", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("call_function", target, args, kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("call_method", target, args, kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("call_module", target, args, kwargs)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("output", target, args, kwargs)
