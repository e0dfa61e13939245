"""Write a pass: multiplications by one and additions of zero go away."""

from __future__ import annotations

import operator

import torch

import framecap
from framecap.graph import GraphModule, Node, diff
from framecap.graph.passes import eliminate_dead_code, propagate_shapes, reach, run_passes

NEUTRAL = {operator.mul: 1, operator.add: 0, operator.sub: 0}


def drop_neutral_operations(module: GraphModule) -> bool:
    """Use x in the place of ``x * 1``, ``x + 0`` and ``x - 0``, for floating point tensors.

    Before: ``y = x * 1; return y.relu()``. After: ``return x.relu()``. Results that are returned, or changed in place,
    stay: there one could tell x itself from a copy of it.
    """
    reaches_output, reaches_effect = reach(module.graph)
    changed = False
    for node in module.graph.find_nodes(op="call_function"):
        number = NEUTRAL.get(node.target)
        if number is None or type(node.args[1]) is not int or node.args[1] != number:
            continue
        if node in reaches_output or node in reaches_effect or not isinstance(node.args[0], Node):
            continue
        known = node.args[0].meta.get("tensor_meta")
        if known is not None and known.dtype.is_floating_point:
            changed = bool(node.replace_all_uses_with(node.args[0])) or changed
    return changed


def program(x: torch.Tensor, scale: int) -> torch.Tensor:
    y = x * scale + 0
    return torch.relu(y * 1) - scale


def main() -> None:
    x = torch.randn(4)
    module = framecap.capture(program, x, constants={"scale": 1})
    propagate_shapes(module, x, fake=True)
    before = module.graph.copy()
    report = run_passes(module, [drop_neutral_operations, eliminate_dead_code], until_stable=True)
    print(diff(before, module.graph))
    print(f"changed by: {report.changes}, rounds: {report.rounds}")
    print("equal:", torch.equal(module(x), program(x, 1)))


if __name__ == "__main__":
    main()
