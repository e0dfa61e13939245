"""How many operations ResNet-50 is in several representations, counted in one way.

python -m benchmarks.ir_size

The table of the torch.fx paper (section 6.1). Counted are the lines that do something: all nodes of a graph, those of nested
blocks and called graphs included. For TorchScript each prim:: and aten:: node counts, constants too, since they stand there
to be read; the same goes for placeholders, attributes and outputs of the others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

import framecap
from benchmarks.table import markdown
from examples.resnet50 import resnet50


def script_nodes(block: Any) -> int:
    """The nodes of a TorchScript graph or block, with those of the blocks in it."""
    return sum(1 + sum(script_nodes(inner) for inner in node.blocks()) for node in block.nodes())


def main() -> None:
    warnings.simplefilter("ignore")
    model, x = resnet50().eval(), torch.randn(1, 3, 224, 224)
    frozen: Callable[[Any], Any] = torch._C._jit_pass_inline

    def scripted(module: Any) -> int:
        graph = module.graph.copy()
        frozen(graph)  # the calls of submodules' methods become their nodes
        return script_nodes(graph)

    ways: dict[str, Callable[[], int]] = {
        "framecap, torch.nn as leaves": lambda: len(framecap.capture(model, x).graph.nodes),
        "framecap, down to functions": lambda: len(framecap.capture(model, x, is_leaf=framecap.no_leaves).graph.nodes),
        "torch.fx.symbolic_trace": lambda: len(torch.fx.symbolic_trace(model).graph.nodes),
        "torch.export": lambda: len(torch.export.export(model, (x,)).graph.nodes),
        "torch.jit.trace": lambda: scripted(torch.jit.trace(model, x)),
        "torch.jit.script": lambda: scripted(torch.jit.script(model)),
    }
    rows = []
    for name, count in ways.items():
        count()
        start = time.perf_counter()
        nodes = count()
        rows.append((name, nodes, f"{time.perf_counter() - start:.3f}"))
    print(markdown(("ResNet-50", "nodes", "seconds to make"), rows))


if __name__ == "__main__":
    main()
