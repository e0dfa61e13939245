"""Post-training quantization of linear layers (section 6.2.1 of the torch.fx paper, arXiv 2112.08429): observe, convert."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..errors import GraphError
from ..graph_module import GraphModule
from ..node import Node
from ..quantized import Observer, QuantizedLinear
from ..state import find, why_not_found

_PREFIX = "observer"


def insert_observers(module: GraphModule, where: Callable[[Node], bool] = lambda node: True) -> bool:
    """Put an observer before each call of an nn.Linear; returns whether there were any.

    Then run the module on typical inputs (in eval mode, without gradients), and call `convert_to_int8`. where: only
    the calls for which it is true. Capture with modules of torch.nn as leaves, the default, to have such calls.

    Before: ``y = self.fc(x)``. After: ``observer_0 = self.observer_0(x); y = self.fc(observer_0)``.
    """
    graph = module.graph
    changed = False
    number = 0
    for node in graph.find_nodes(op="call_module"):
        if not _is_linear(module, node) or len(node.args) != 1 or _is_observer(module, node.args[0]) or not where(node):
            continue
        while hasattr(module, name := f"{_PREFIX}_{number}"):
            number += 1
        module.add_module(name, Observer())
        with graph.inserting_before(node):
            observed = graph.call_module(name, node.args)
        observed.meta = {key: value for key, value in node.meta.items() if key in ("where", "stack", "module")}
        node.args = (observed,)
        changed = True
    if changed:
        module.recompile()
    return changed


def convert_to_int8(module: GraphModule) -> bool:
    """Replace each observed linear layer by an eight-bit one, and take the observers out; returns whether there were any.

    The layers of the program that was captured stay what they are. Results differ from float32 by the rounding: see
    `quantized.QuantizedLinear`. Raises GraphError if an observer has seen nothing, or values that aren't finite.

    Before: ``observer_0 = self.observer_0(x); y = self.fc(observer_0)``. After: ``y = self.fc_int8(x)``.
    """
    graph = module.graph
    observed = [node for node in graph.find_nodes(op="call_module") if _is_observer(module, node)]
    for node in observed:
        seen = find(module, node.target)
        if not (math.isfinite(seen.low) and math.isfinite(seen.high)):
            what = "nothing" if seen.low > seen.high else "values that aren't finite"
            raise GraphError(
                f"the observer {node.target!r} has seen {what}; run the module on typical inputs before converting it"
            )
    made: dict[tuple[str, float, float], str] = {}
    for node in observed:
        seen = find(module, node.target)
        for user in list(node.users):
            if _is_linear(module, user):
                key = (user.target, seen.low, seen.high)
                if key not in made:
                    # Beside the layer, which calls that aren't observed may go on using.
                    made[key] = _free_target(module, user.target)
                    module.set_state(made[key], QuantizedLinear(find(module, user.target), seen.low, seen.high))
                user.target = made[key]
            user.replace_input_with(node, node.args[0])
    for node in observed:
        graph.erase_node(node)
    if observed:
        module.delete_unused_state()
        module.recompile()
    return bool(observed)


def _is_linear(module: GraphModule, node: Node) -> bool:
    return node.op == "call_module" and type(find(module, node.target)) is nn.Linear


def _is_observer(module: GraphModule, value: Any) -> bool:
    return isinstance(value, Node) and value.op == "call_module" and isinstance(find(module, value.target), Observer)


def _free_target(module: GraphModule, target: str) -> str:
    found = start = f"{target}_int8"
    number = 0
    while why_not_found(module, found)[0] is None:
        number += 1
        found = f"{start}_{number}"
    return found


def calibrate(module: GraphModule, inputs: Iterable[torch.Tensor]) -> None:
    """Run an observed module on inputs, in eval mode and without gradients."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            for batch in inputs:
                module(batch)
    finally:
        module.train(training)
