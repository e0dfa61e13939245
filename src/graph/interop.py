"""To and from torch.fx. The only file that imports it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch.fx
from torch import nn
from torch.fx.graph import CodeGen
from torch.fx.immutable_collections import immutable_dict, immutable_list

from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .names import is_plain
from .node import ATOMS, Node, map_arguments
from .render import INPLACE
from .state import adopt, find

_CONSTANT = "framecap_constant"
_TYPE = "fx_type"
_NOT_AFTER_NUMBERS = (operator.pow, *INPLACE)  # -1 ** x is -(1 ** x), and 0 += x is no statement


def to_fx(module: GraphModule) -> torch.fx.GraphModule:
    """The same graph as a torch.fx.GraphModule over the same state (shared).

    Names, notes, the nesting of arguments and the kinds of state are kept. Argument values that torch.fx can't write as
    code (tensors, functions, arbitrary objects) become attributes of the module, read by get_attr nodes; `from_fx` puts
    them back into the arguments.
    """
    graph = torch.fx.Graph()
    known: dict[Node, torch.fx.Node] = {}
    constants: dict[str, Any] = {}
    readers: dict[int, torch.fx.Node] = {}
    targets = [node.target for node in module.graph.nodes if node.op in ("get_attr", "call_module")]
    taken = {target.partition(".")[0] for target in targets}

    def leaf(value: Any) -> Any:
        return value if _fx_can_write(value) else constant(value)

    def constant(value: Any) -> torch.fx.Node:
        if id(value) not in readers:
            name = f"_constant_{len(constants)}"
            while name in taken:
                name += "_"
            taken.add(name)
            constants[name] = value
            readers[id(value)] = graph.create_node("get_attr", name, (), {}, name=name)
            readers[id(value)].meta[_CONSTANT] = True
        return readers[id(value)]

    for node in module.graph.nodes:
        if node.op == "placeholder":
            args, kwargs = node.args, {}
        else:
            args = map_arguments(node.args, known.__getitem__, leaf)
            kwargs = map_arguments(node.kwargs, known.__getitem__, leaf)
            if args and type(args[0]) in (int, float, bool) and any(node.target is f for f in _NOT_AFTER_NUMBERS):
                args = (constant(args[0]), *args[1:])
        if not all(map(is_plain, kwargs)):
            raise GraphError(f"torch.fx can't write the keyword arguments {list(kwargs)} of node {node.name!r}")
        annotation = node.meta.get(_TYPE)
        made = graph.create_node(node.op, node.target, args, kwargs, name=node.name, type_expr=annotation)
        if made.name != node.name:
            made.name = node.name
            graph._graph_namespace._used_names.add(node.name)
        # torch.fx turns every tuple but named ones into a plain one, torch.Size too.
        made._args, made._kwargs = _immutable(args), _immutable(kwargs)
        made.meta = _mapped_meta(node.meta, known)
        made.meta.pop(_TYPE, None)
        known[node] = made
    result = torch.fx.GraphModule(nn.Module(), torch.fx.Graph(), module._class_name)
    result.training = module.training
    adopt(result, module, targets)
    for name, value in constants.items():
        setattr(result, name, value)
    result.meta.update(module.meta)
    result.graph = graph
    return result


def from_fx(module: torch.fx.GraphModule) -> GraphModule:
    """The graph of a torch.fx.GraphModule over the same state (shared); names, notes and annotations are kept.

    Raises GraphError if its graph has a code generator of its own, as those of torch.export have: it flattens the
    arguments of forward, which isn't part of the graph.
    """
    if type(module.graph._codegen) is not CodeGen:
        raise GraphError(
            f"the graph of this {type(module).__name__} has a {type(module.graph._codegen).__name__}, which changes the "
            "arguments of forward; give it a plain one first: graph.set_codegen(torch.fx.graph.CodeGen())"
        )
    graph = Graph()
    known: dict[Any, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.meta.get(_CONSTANT):
            known[node] = find(module, node.target)
            continue
        args, kwargs = _plain(node.args, known), _plain(node.kwargs, known)
        made = known[node] = graph._insert_named(node.op, node.target, args, kwargs, node.name)
        made.meta = _mapped_meta(node.meta, known)
        if node.type is not None:
            made.meta[_TYPE] = node.type
    return GraphModule(module, graph, type(module).__name__)


def torch_backend(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A backend for torch.compile, of one that takes our graph modules.

    backend: ``(graph_module, example_inputs) -> callable``, as for ``framecap.optimize``. What it returns is called with
    the graph's inputs and gives a tuple or list, as torch.compile expects. Use:
    ``torch.compile(model, backend=torch_backend(mine))``.
    """

    def compile_with(module: torch.fx.GraphModule, examples: list[Any]) -> Any:
        return backend(from_fx(module), examples)

    compile_with.__name__ = getattr(backend, "__name__", type(backend).__name__)
    return compile_with


def _fx_can_write(value: Any) -> bool:
    """Whether torch.fx's code for this value means the value."""
    kind = type(value)
    if kind is complex:  # as a sum it loses the sign of zeros
        return not any(part == 0 and math.copysign(1, part) < 0 for part in (value.real, value.imag))
    return kind is range or (kind in ATOMS and kind is not type and value is not NotImplemented)


def _immutable(value: Any) -> Any:
    """Arguments of torch.fx nodes with the containers that torch.fx uses."""
    if type(value) is list:
        return immutable_list([_immutable(item) for item in value])
    if type(value) is dict:
        return immutable_dict({key: _immutable(item) for key, item in value.items()})
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple.__new__(type(value), [_immutable(item) for item in value])
    return value


def _plain(value: Any, known: dict[Any, Any]) -> Any:
    """Arguments of torch.fx nodes with our nodes and containers."""
    if isinstance(value, torch.fx.Node):
        return known[value]
    if type(value) in (list, immutable_list):
        return [_plain(item, known) for item in value]
    if type(value) in (dict, immutable_dict):
        return {key: _plain(item, known) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_plain(part, known) for part in (value.start, value.stop, value.step)))
    if type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return tuple.__new__(type(value), [_plain(item, known) for item in value])
    return value


def _mapped_meta(meta: dict[str, Any], known: dict[Any, Any]) -> dict[str, Any]:
    """Notes for the other side's node; a note that is a node becomes the node that stands for it."""
    return {key: known.get(value, value) if isinstance(value, (Node, torch.fx.Node)) else value
            for key, value in meta.items()}  # fmt: skip
