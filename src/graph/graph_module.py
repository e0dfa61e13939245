"""GraphModule: an nn.Module whose forward is the generated code of a graph."""

from __future__ import annotations

import copy
from types import TracebackType
from typing import Any

from torch import nn

from .codegen import GeneratedCode, compile_function, generate
from .graph import Graph
from .node import Node
from .printer import readable
from .state import Root, adopt

_NOT_STATE = ("_graph", "_generated")


class GraphModule(nn.Module):
    """Runs a graph; what the graph uses stands in its module hierarchy, under the targets of get_attr and call_module.

    root: an nn.Module whose parameters, buffers, submodules and attributes are taken over (shared, not copied; only
    those that the graph uses), or a dict from target to object. graph: becomes the module's own, to be edited through
    `graph`, with `recompile` afterwards. A target that starts with a name that this class has itself, such as "graph",
    gets an underscore behind that name. Raises GraphError for a target that root doesn't have.

    Every instance has a class of its own, because forward, as all methods that nn.Module calls, is looked up there.
    """

    meta: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        return super().__new__(type(cls.__name__, (cls,), {"__module__": cls.__module__, "_base": cls}))

    def __init__(self, root: Root, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self._set_class_name(class_name)
        self.meta = dict(meta) if isinstance(meta := getattr(root, "meta", None), dict) else {}
        if isinstance(root, nn.Module):
            self.training = root.training
        nodes = [node for node in graph.nodes if node.op in ("get_attr", "call_module")]
        root = _keep_own_names(type(self), root, nodes)
        adopt(self, root, [node.target for node in nodes])
        self.graph = graph

    def _set_class_name(self, name: str) -> None:
        own = type(self)
        own.__name__ = own.__qualname__ = self.__dict__["_class_name"] = name

    @property
    def graph(self) -> Graph:
        """The graph. Assign to it, or edit it and call `recompile`."""
        graph: Graph = self.__dict__["_graph"]
        return graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = graph
        self.recompile()

    def recompile(self) -> GeneratedCode:
        """Generate forward anew from the graph."""
        generated = generate(self.graph)
        type(self).forward = compile_function(generated)  # type: ignore[method-assign]
        self.__dict__["_generated"] = generated
        return generated

    @property
    def code(self) -> str:
        """The generated Python of forward."""
        source: str = self.__dict__["_generated"].source
        return source

    def node_of(self, raised: BaseException | TracebackType | None) -> Node | None:
        """The node that was executed when an error left this module's code; None if it didn't come from there."""
        traceback = raised.__traceback__ if isinstance(raised, BaseException) else raised
        code = type(self).forward.__code__  # type: ignore[attr-defined]
        found = None
        while traceback is not None:
            if traceback.tb_frame.f_code is code:
                found = self.__dict__["_generated"].line_to_node.get(traceback.tb_lineno)
            traceback = traceback.tb_next
        return found

    def print_readable(self, print_output: bool = True) -> str:
        """The module as a class, as text; printed too, unless told otherwise."""
        text = readable(self, self.code, self.__dict__["_class_name"])
        if print_output:
            print(text)
        return text

    # Copies

    def __copy__(self) -> GraphModule:
        made = _empty(type(self)._base, self.__dict__["_class_name"])  # type: ignore[attr-defined]
        state = {key: value for key, value in self.__dict__.items() if key not in _NOT_STATE}
        # Tables of their own, as if the copy had been made from this module as root.
        made.__dict__.update({k: v.copy() if isinstance(v, (dict, set)) else v for k, v in state.items()})
        made.graph = self.graph.copy()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = memo[id(self)] = _empty(type(self)._base, self.__dict__["_class_name"])  # type: ignore[attr-defined]
        for key, value in self.__dict__.items():
            if key not in _NOT_STATE:
                made.__dict__[key] = copy.deepcopy(value, memo)
        made.graph = copy.deepcopy(self.graph, memo)
        return made

    def __reduce__(self) -> Any:
        state = {key: value for key, value in self.__dict__.items() if key not in _NOT_STATE}
        return _empty, (type(self)._base, self.__dict__["_class_name"]), {**state, "_graph": self.graph}  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({key: value for key, value in state.items() if key != "_graph"})
        self.graph = state["_graph"]


def _empty(base: type[GraphModule], class_name: str) -> GraphModule:
    """A module without state or graph."""
    made = base.__new__(base)
    nn.Module.__init__(made)
    made._set_class_name(class_name)
    return made


def _keep_own_names(cls: type, root: Root, nodes: list[Node]) -> Root:
    """Give other targets to nodes whose targets can't be attributes of ``cls``; returns the root that has them."""
    moved: dict[str, str] = {}
    for node in nodes:
        first, dot, rest = node.target.partition(".")
        if first != "training" and hasattr(cls, first):
            moved[node.target] = f"{first}_{dot}{rest}"
    if not moved:
        return root
    from .state import find

    by_target = {}
    for node in nodes:
        old = node.target
        node.target = moved.get(old, old)
        by_target[node.target] = find(root, old)
    return by_target
