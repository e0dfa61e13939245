"""Compute what doesn't depend on the inputs once and for all."""

from __future__ import annotations

import torch

from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import ATOMS, Node
from .common_subexpr import reach
from .purity import why_impure

LARGEST = 64 << 20


def fold_constants(module: GraphModule, *, parameters: bool = False, largest: int = LARGEST) -> bool:
    """Replace pure nodes whose inputs are all constants by their values; returns whether there were any.

    parameters: count parameters and buffers as constants, too, as is right once a model is frozen: the results get no
    gradient, and don't follow later changes. Without it only results of numbers and factory functions
    (``torch.arange(10)``) are folded. largest: bytes; larger results are left to be computed. Left are also results that
    could be told apart from new tensors: those that may reach the output or an operator that works in place. Tensors
    become buffers ``_folded_0``, ... that aren't in the state dict; move and convert the module before.

    Before: ``mask = torch.ones(4, 4); upper = mask.triu(); return x * upper``. After: ``return x * self._folded_0``.
    """
    graph = module.graph
    constant = _constants(module, parameters)
    reaches_output, reaches_impure = reach(graph)
    told_apart = reaches_output | reaches_impure
    changed = False
    values = Interpreter(module)
    for node in list(graph.nodes):
        if node not in constant:
            continue
        try:
            with torch.no_grad():
                value = values.env[node] = values.run_node(node)
        except Exception:
            # It raises when the graph runs, at its place.
            _forget(node, constant)
            continue
        if node.op == "get_attr" or all(user in constant for user in node.users):
            continue
        if type(value) in ATOMS and type(value) is not type:
            changed = bool(node.replace_all_uses_with(value)) or changed
        elif type(value) is torch.Tensor and node not in told_apart and value.layout is torch.strided:
            if value.nbytes <= largest:
                _use_buffer(module, node, value)
                changed = True
    if changed:
        for node in reversed(graph.nodes):
            if node in constant and not node.users:
                graph.erase_node(node)
        module.recompile()
    return changed


def _constants(module: GraphModule, parameters: bool) -> set[Node]:
    """Nodes that compute the same at each call."""
    found: set[Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            if parameters:
                found.add(node)
        elif node.op not in ("placeholder", "output") and why_impure(node, module) is None:
            # A module has parameters of its own.
            if (parameters or node.op != "call_module") and all(used in found for used in node.all_input_nodes):
                found.add(node)
    return found


def _forget(node: Node, constant: set[Node]) -> None:
    """Take out a node, and those that use it."""
    todo = [node]
    while todo:
        left = todo.pop()
        constant.discard(left)
        todo += [user for user in left.users if user in constant]


def _use_buffer(module: GraphModule, node: Node, value: torch.Tensor) -> None:
    number = 0
    while hasattr(module, name := f"_folded_{number}"):
        number += 1
    module.register_buffer(name, value.detach(), persistent=False)
    with module.graph.inserting_before(node):
        reader = module.graph.get_attr(name)
    reader.meta = dict(node.meta)
    node.replace_all_uses_with(reader)
