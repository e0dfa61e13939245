"""To and from torch.fx. The only file that imports it."""

from __future__ import annotations

from typing import Any

import torch.fx

from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_nodes


def to_fx(module: GraphModule) -> torch.fx.GraphModule:
    """The same graph as a torch.fx.GraphModule over the same state; names and notes are kept."""
    graph = torch.fx.Graph()
    known: dict[Node, torch.fx.Node] = {}
    for node in module.graph.nodes:
        args = map_nodes(node.args, known.__getitem__)
        kwargs = map_nodes(node.kwargs, known.__getitem__)
        made = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
        made.meta = dict(node.meta)
        known[node] = made
    return torch.fx.GraphModule(module, graph, module._class_name)


def from_fx(module: torch.fx.GraphModule) -> GraphModule:
    """The graph of a torch.fx.GraphModule over the same state; names and notes are kept."""
    graph = Graph()
    known: dict[Any, Node] = {}
    for node in module.graph.nodes:
        args = tuple(torch.fx.node.map_arg(node.args, known.__getitem__))
        kwargs = dict(torch.fx.node.map_arg(node.kwargs, known.__getitem__))
        made = graph.create_node(node.op, node.target, _plain(args), _plain(kwargs), name=node.name)
        made.meta = dict(node.meta)
        known[node] = made
    return GraphModule(module, graph, type(module).__name__)


def _plain(value: Any) -> Any:
    """Arguments without torch.fx's immutable containers."""
    if isinstance(value, torch.fx.immutable_collections.immutable_list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if type(value) is tuple:
        return tuple(_plain(v) for v in value)
    return value
