"""Run a graph node by node, with a method for each operation to override."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .codegen import compile_binder
from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, last_uses, map_nodes
from .state import Root, find


class Interpreter:
    """Executes a graph's nodes in order. Override `run_node`, or the method of an operation.

    module: where parameters and submodules are found. graph: what to run, if it isn't ``module.graph``. Values are
    dropped after their last use, as in generated code; an override finds those that are left in ``env``. An error gets
    a note that names the node.
    """

    def __init__(self, module: Root, graph: Graph | None = None) -> None:
        if graph is None:
            if not isinstance(module, GraphModule):
                raise GraphError(f"a {type(module).__name__} has no graph; expected a GraphModule, or a graph besides")
            graph = module.graph
        self.module = module
        self.graph = graph
        self.env: dict[Node, Any] = {}
        self._inputs: Iterator[Any] = iter(())

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The graph's result for these arguments, which are taken as the generated function takes them."""
        self._inputs = iter(compile_binder(self.graph)(*args, **kwargs))
        self.env = {}
        nodes = []
        for node in self.graph.nodes:
            nodes.append(node)
            if node.op == "output":
                break
        dead = last_uses(nodes)
        try:
            for node in nodes:
                value = self.run_node(node)
                if node.op == "output":
                    return value
                if node.users:
                    self.env[node] = value
                value = None
                for used in dead.get(node, ()):
                    del self.env[used]
            return None
        finally:
            self._inputs = iter(())
            self.env = {}

    def run_node(self, node: Node) -> Any:
        """Execute one node: its operation's method, with the values of its arguments."""
        try:
            args, kwargs = self.fetch(node.args), self.fetch(node.kwargs)
            return getattr(self, node.op)(node.target, args, kwargs)
        except Exception as error:
            error.add_note(f"while executing {node.format()}")
            raise

    def fetch(self, value: Any) -> Any:
        """Arguments with the values of nodes in their places; lists and dicts are new ones."""
        return map_nodes(value, self.env.__getitem__)

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument of `run`."""
        return next(self._inputs)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return find(self.module, target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return find(self.module, target)(*args, **kwargs)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0] if args else None


class Transformer(Interpreter):
    """Makes a new graph: each method gets arguments of the new graph and returns what stands there for the node.

    That is a node of the new graph (made with ``super()`` or ``self.new``), or any other value an argument can be.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new = Graph()
        self._node: Node | None = None

    def transform(self) -> GraphModule:
        """A new module over the same state; by default its graph is a copy."""
        self.new, self.env = Graph(), {}
        assert isinstance(self.module, GraphModule)
        for node in self.graph.nodes:
            self._node = node
            self.env[node] = self.run_node(node)
        self._node, self.env = None, {}
        return GraphModule(self.module, self.new, self.module._class_name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        raise GraphError("a Transformer makes a graph and doesn't run one; call transform, then the module it returns")

    def _make(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """A node that takes name and notes from the one being transformed."""
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
