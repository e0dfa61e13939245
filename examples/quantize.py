"""Quantize a captured autoencoder to eight bits: observe, calibrate, convert.

The model is the DeepRecommender of Kuchaiev and Ginsburg (arXiv 1708.01715), whose inputs are the ratings of one user each.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

import framecap
from framecap.graph import GraphModule
from framecap.graph.passes import calibrate, convert_to_int8, insert_observers


class DeepRecommender(nn.Module):
    """An autoencoder of ratings ``[users, items]``. hidden: the widths of the encoder; the decoder mirrors them."""

    def __init__(self, items: int = 17768, hidden: tuple[int, ...] = (512, 512, 1024)) -> None:
        super().__init__()
        sizes = [items, *hidden]
        self.encoder = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        sizes.reverse()
        self.decoder = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.drop = nn.Dropout(0.8)

    def forward(self, ratings: torch.Tensor) -> torch.Tensor:
        x = ratings
        for layer in self.encoder:
            x = torch.selu(layer(x))
        x = self.drop(x)
        for layer in self.decoder:
            x = torch.selu(layer(x))
        return x


def some_ratings(users: int, items: int, seed: int = 0) -> torch.Tensor:
    """Ratings of 1 to 5, for one item in fifty; 0 elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    ratings = torch.randint(1, 6, (users, items), generator=generator).float()
    return ratings * (torch.rand(users, items, generator=generator) < 0.02)


def quantize(model: DeepRecommender, batches: list[torch.Tensor]) -> GraphModule:
    module = framecap.capture(model)
    insert_observers(module)
    calibrate(module, batches)
    convert_to_int8(module)
    return module


def main() -> None:
    torch.manual_seed(0)
    items = 2000
    model = DeepRecommender(items).eval()
    module = quantize(model, [some_ratings(16, items, seed) for seed in range(4)])
    ratings = some_ratings(16, items, seed=9)
    with torch.no_grad():
        expected, actual = model(ratings), module(ratings)
    sizes = [sum(t.nbytes for t in m.state_dict().values()) / 1e6 for m in (model, module)]
    print(module.code)
    print(f"state: {sizes[0]:.1f} MB in float32, {sizes[1]:.1f} MB in int8")
    print(f"relative error: {float((actual - expected).norm() / expected.norm()):.4f}")


if __name__ == "__main__":
    main()
