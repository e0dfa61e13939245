"""``framecap.capture``: one whole graph of a module, to read, analyse and change.

The module below has what symbolic tracing by proxies can't read: a branch on a flag, a loop over a list of modules,
a keyword-only option, an f-string, a dict of results.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

import framecap


class Tower(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.residual = True

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        results = {}
        for number, layer in enumerate(self.layers):
            y = torch.tanh(layer(x) * scale)
            x = x + y if self.residual else y
            results[f"layer {number}"] = x
        return results


def main() -> None:
    torch.manual_seed(0)
    model = Tower(width=8, depth=3)
    x = torch.randn(4, 8)

    captured = framecap.capture(model, x, scale=0.5)
    print(captured.code)

    calls = Counter(node.op for node in captured.graph.nodes)
    print("nodes:", dict(calls))

    expected, actual = model(x, scale=0.5), captured(x, scale=0.5)
    print("equal to eager:", all(torch.equal(expected[name], actual[name]) for name in expected))


if __name__ == "__main__":
    main()
