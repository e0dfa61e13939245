"""Write a backend: it cleans each graph up, counts its operators, and serves framecap and torch.compile alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import framecap
from framecap.graph import GraphModule, torch_backend
from framecap.graph.passes import eliminate_common_subexpressions, eliminate_dead_code, run_passes

counted: Counter[str] = Counter()


def counting(module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    run_passes(module, [eliminate_common_subexpressions, eliminate_dead_code], until_stable=True)
    counted.update(getattr(node.target, "__name__", node.target) for node in module.graph.nodes if node.op.startswith("call"))
    return module


def program(x: torch.Tensor) -> torch.Tensor:
    a = torch.sin(x) + 1
    if a.sum() > 0:  # a graph break: the value is needed
        a = a * 2
    return torch.sin(a) * torch.sin(a)


def main() -> None:
    x = torch.ones(4)
    framecap.register_backend("counting", counting)
    print("equal:", torch.equal(framecap.optimize(program, backend="counting")(x), program(x)))
    print("operators:", dict(counted))

    counted.clear()
    compiled = torch.compile(program, backend=torch_backend(counting))
    print("equal under torch.compile:", torch.equal(compiled(x), program(x)))
    print("operators:", dict(counted))


if __name__ == "__main__":
    main()
