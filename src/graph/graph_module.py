"""GraphModule: an nn.Module whose forward is the generated code of a graph."""

from __future__ import annotations

import copy
from types import TracebackType
from typing import Any

from torch import nn

from .codegen import GeneratedCode, compile_function, generate
from .graph import Graph
from .node import Node
from .printer import readable, shown_place
from .state import Root, adopt, find, place, prune

_NOT_STATE = ("_graph", "_generated")
_OWN_ATTRIBUTES = frozenset([*vars(nn.Module()), *_NOT_STATE, "_class_name", "meta"])


class GraphModule(nn.Module):
    """Runs a graph; what the graph uses stands in its module hierarchy, under the targets of get_attr and call_module.

    root: an nn.Module whose parameters, buffers, submodules and attributes are taken over (shared, not copied; only
    those that the graph uses), or a dict from target to object. graph: becomes the module's own, to be edited through
    `graph`, with `recompile` afterwards. A target with a name in it that modules have themselves, such as "graph" or
    "type", gets an underscore behind that name. Raises GraphError for a target that root doesn't have.

    Every instance has a class of its own, because forward, as all methods that nn.Module calls, is looked up there.
    """

    meta: dict[str, Any]
    _class_name: str
    _base: type[GraphModule]  # the class that the instance's own one was made from

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        base = cls.__dict__.get("_base", cls)  # cls is an instance's own class if it was got by type(module)
        return super().__new__(type(base.__name__, (cls,), {"__module__": base.__module__, "_base": base}))

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
        own.__name__ = own.__qualname__ = self._class_name = name

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
        type(self).forward = compile_function(generated)
        self.__dict__["_generated"] = generated
        return generated

    @property
    def code(self) -> str:
        """The generated Python of forward."""
        source: str = self.__dict__["_generated"].source
        return source

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """Call forward with its hooks. An error that a node raises gets a note with the node's place in the user's code.

        Not ``__call__``, which tracers look for and replace in nn.Module.
        """
        try:
            return super()._call_impl(*args, **kwargs)
        except Exception as error:
            if (node := self.node_of(error)) is not None and (place := shown_place(node)):
                error.add_note(f"node {node.name!r} of this graph stands for\n{place}")
            raise

    def set_state(self, target: str, value: Any) -> None:
        """Put a parameter, buffer or module at a dotted path of this module alone; see `state.place`."""
        place(self, target, value)

    def delete_unused_state(self) -> None:
        """Drop parameters, buffers and modules that the graph doesn't use."""
        prune(self, [node.target for node in self.graph.nodes if node.op in ("get_attr", "call_module")])

    def node_of(self, raised: BaseException | TracebackType | None) -> Node | None:
        """The node that was executed when an error left this module's code; None if it didn't come from there."""
        traceback = raised.__traceback__ if isinstance(raised, BaseException) else raised
        code = type(self).forward.__code__
        found = None
        while traceback is not None:
            if traceback.tb_frame.f_code is code:
                found = self.__dict__["_generated"].line_to_node.get(traceback.tb_lineno)
            traceback = traceback.tb_next
        return found

    def print_readable(self, print_output: bool = True) -> str:
        """The module as a class, as text; printed too, unless told otherwise."""
        text = readable(self, self.code, self._class_name)
        if print_output:
            print(text)
        return text

    # Copies

    def __copy__(self) -> GraphModule:
        made = _empty(type(self)._base, self._class_name)
        state = {key: value for key, value in self.__dict__.items() if key not in _NOT_STATE}
        # Tables of their own, as if the copy had been made from this module as root.
        made.__dict__.update({k: v.copy() if isinstance(v, (dict, set)) else v for k, v in state.items()})
        made.graph = self.graph.copy()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = memo[id(self)] = _empty(type(self)._base, self._class_name)
        for key, value in self.__dict__.items():
            if key not in _NOT_STATE:
                made.__dict__[key] = copy.deepcopy(value, memo)
        made.graph = copy.deepcopy(self.graph, memo)
        return made

    def __reduce__(self) -> Any:
        state = {key: value for key, value in self.__dict__.items() if key not in _NOT_STATE}
        return _empty, (type(self)._base, self._class_name), {**state, "_graph": self.graph}

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
    """Give other targets to nodes whose targets can't be attributes of modules; returns the root that has them."""
    by_target: dict[str, Any] = {}
    renamed = False
    targets = []
    for node in nodes:
        parts = node.target.split(".")
        for i, part in enumerate(parts):
            if part == "training" and isinstance(find(root, node.target), bool):
                continue
            if hasattr(cls if i == 0 else nn.Module, part) or part in _OWN_ATTRIBUTES:
                parts[i], renamed = f"{part}_", True
        targets.append(".".join(parts))
    if not renamed:
        return root
    for node, target in zip(nodes, targets, strict=True):
        by_target[target] = find(root, node.target)
        node.target = target
    return by_target
