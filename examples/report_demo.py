"""A program with typical graph breaks. It knows nothing of framecap; look at it with

framecap report examples/report_demo.py
"""

from __future__ import annotations

import torch
from torch import nn


class Encoder(nn.Module):
    """Two layers that warn of activations that have grown too large."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x))
        if h.abs().max() > 1.8:
            print(f"large activation: {h.abs().max().item():.2f}")
        return self.second(h)


def normalise(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Divides by the norm. No break: torch.where takes the place of a branch."""
    norm = x.norm(dim=-1, keepdim=True)
    return torch.where(norm > eps, x / norm, x)


def power_iteration(matrix: torch.Tensor, tolerance: float = 1e-3) -> torch.Tensor:
    """The largest eigenvalue. The loop has to know a tensor's value in each round; its body is captured once."""
    v = torch.ones(matrix.shape[0])
    error = 1.0
    while error > tolerance:
        w = matrix @ v
        w = w / w.norm()
        error = (w - v).abs().max().item()
        v = w
    return v @ matrix @ v


def summarise(tensors: list[torch.Tensor]) -> dict[str, float]:
    """Numbers for a log: each float() waits for a tensor."""
    return {
        "mean": float(torch.stack(tensors).mean()),
        "largest": float(
            torch.stack(tensors).abs().max(),
        ),
    }


def main() -> None:
    torch.manual_seed(0)
    encoder = Encoder()
    outputs = []
    with torch.no_grad():
        for _ in range(4):
            outputs.append(normalise(encoder(torch.randn(16, 8)), 1e-6))
        half = torch.randn(6, 6)
        largest = power_iteration(half @ half.T)
    print("largest eigenvalue:", round(largest.item(), 3))
    print({name: round(value, 3) for name, value in summarise(outputs).items()})


if __name__ == "__main__":
    main()
