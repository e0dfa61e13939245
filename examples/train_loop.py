"""A training loop, unchanged, under ``with framecap.optimize():``; its losses are those of eager.

``loss.item()`` and ``print`` have to run natively. The tensor work of the loop body before and after them is
captured all the same, though ``train`` is entered only once.
"""

from __future__ import annotations

import torch
from torch import nn

import framecap


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, 64)
        self.norm = nn.LayerNorm(64)
        self.out = nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.norm(self.hidden(x))))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Points in 16 dimensions; the class is the largest of the first four coordinates."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(32, 16, generator=generator) for _ in range(count)]
    return [(x, x[:, :4].argmax(1)) for x in inputs]


def train(steps: int = 60, quiet: bool = False) -> list[float]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step, (x, target) in enumerate(batches(steps)):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0 and not quiet:
            accuracy = (logits.argmax(1) == target).float().mean()
            print(f"step {step:3d}  loss {loss.item():.4f}  accuracy {accuracy.item():.2f}")
    return losses


def main() -> None:
    expected = train(quiet=True)
    with framecap.optimize():
        actual = train()
    print(f"losses equal to eager: {actual == expected}")


if __name__ == "__main__":
    main()
