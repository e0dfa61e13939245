"""GraphModule: an nn.Module whose forward is the generated code of a graph."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from .codegen import compile_function, generate
from .errors import GraphError
from .graph import Graph


class GraphModule(nn.Module):
    """Runs a graph; its state stands in its module hierarchy under the targets that the graph uses.

    root: an nn.Module whose parameters, buffers and submodules are taken over (shared, not copied), or a dict from
    target to object. Raises GraphError for a target that root doesn't have. Every instance has a class of its own, so
    that ``forward`` can be generated for it.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        own = type(cls.__name__, (cls,), {"__module__": cls.__module__, "_base": cls})
        return super().__new__(own)

    def __init__(self, root: nn.Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = type(self).__qualname__ = class_name
        self._class_name = class_name
        if isinstance(root, nn.Module):
            self.training = root.training
        for target in dict.fromkeys(n.target for n in graph.nodes if n.op in ("get_attr", "call_module")):
            _assign(self, target, _find(root, target))
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph. Assign to it, or edit it and call `recompile`."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        object.__setattr__(self, "_graph", graph)
        self.recompile()

    @property
    def code(self) -> str:
        """The generated Python of forward."""
        return self._code

    def recompile(self) -> None:
        """Generate forward anew from the graph."""
        generated = generate(self._graph)
        object.__setattr__(self, "_code", generated.source)
        type(self).forward = compile_function(generated)

    def print_readable(self) -> str:
        """Print the module's code, and return it."""
        text = f"class {self._class_name}(torch.nn.Module):\n" + "".join(
            f"    {line}\n" for line in self._code.splitlines()
        )
        print(text)
        return text

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        state = {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _rebuild(state, copy.deepcopy(self._graph, memo), self._class_name)

    def __reduce__(self) -> Any:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _rebuild, (state, _Portable.of(self._graph), self._class_name)


class _Portable:
    """A graph for pickling: nodes as tuples, in order, so that depth doesn't matter."""

    def __init__(self, nodes: list[tuple[Any, ...]]) -> None:
        self.nodes = nodes

    @staticmethod
    def of(graph: Graph) -> _Portable:
        from .node import map_nodes

        nodes = []
        for node in graph.nodes:
            args, kwargs = (map_nodes(a, lambda n: _Reference(n.name)) for a in (node.args, node.kwargs))
            nodes.append((node.op, node.target, args, kwargs, node.name))
        return _Portable(nodes)

    def restore(self) -> Graph:
        graph = Graph()
        known: dict[str, Any] = {}
        for op, target, args, kwargs, name in self.nodes:
            known[name] = graph.create_node(op, target, _resolve(args, known), _resolve(kwargs, known), name=name)
        return graph


class _Reference:
    def __init__(self, name: str) -> None:
        self.name = name


def _resolve(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, _Reference):
        return known[value.name]
    if isinstance(value, tuple):
        items = [_resolve(v, known) for v in value]
        return (
            tuple(items)
            if type(value) is tuple
            else type(value)(*items)
            if hasattr(value, "_fields")
            else type(value)(items)
        )
    if isinstance(value, list):
        return [_resolve(v, known) for v in value]
    if isinstance(value, dict):
        return {k: _resolve(v, known) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_resolve(p, known) for p in (value.start, value.stop, value.step)))
    return value


def _rebuild(state: dict[str, Any], graph: Any, class_name: str) -> GraphModule:
    made = GraphModule.__new__(GraphModule)
    nn.Module.__init__(made)
    made.__dict__.update(state)
    type(made).__name__ = type(made).__qualname__ = class_name
    made.graph = graph.restore() if isinstance(graph, _Portable) else graph
    return made


def _find(root: nn.Module | dict[str, Any], target: str) -> Any:
    if isinstance(root, dict):
        if target not in root:
            raise GraphError(f"the graph uses {target!r}, which is not among the {len(root)} given objects")
        return root[target]
    owner: Any = root
    for part in target.split("."):
        if not hasattr(owner, part):
            raise GraphError(f"the graph uses {target!r}, but {type(owner).__name__} has no attribute {part!r}")
        owner = getattr(owner, part)
    return owner


def _assign(module: nn.Module, target: str, value: Any) -> None:
    """Put ``value`` at a dotted path, making plain modules on the way."""
    *path, last = target.split(".")
    owner = module
    for part in path:
        if not hasattr(owner, part):
            owner.add_module(part, nn.Module())
        owner = getattr(owner, part)
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
        owner.register_buffer(last, value)
    else:
        setattr(owner, last, value)
