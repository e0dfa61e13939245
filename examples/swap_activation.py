"""Swap the activations of a captured model: every ReLU, written as a module or as a function, becomes a GELU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import framecap
from framecap.graph import AnyOf, Graph, replace_pattern


class Model(nn.Module):
    """Three ways to write the same activation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.relu(self.layers(x)) + x).sum(-1)


def main() -> None:
    torch.manual_seed(0)
    module = framecap.capture(Model(), is_leaf=framecap.no_leaves)

    pattern = Graph()
    x = pattern.placeholder("x")
    pattern.output(pattern.call_function(AnyOf(torch.relu, F.relu), (x,), {}))
    with_flag = framecap.capture(lambda x: F.relu(x, inplace=False))  # as nn.ReLU calls it
    gelu = framecap.capture(lambda x: F.gelu(x))

    found = replace_pattern(module, pattern, gelu) + replace_pattern(module, with_flag, gelu)
    left = module.graph.find_nodes(target=torch.relu) + module.graph.find_nodes(target=F.relu)
    print(f"replaced: {len(found)}, left: {len(left)}")
    print(module.code)
    print("runs:", tuple(module(torch.randn(4, 8)).shape))


if __name__ == "__main__":
    main()
