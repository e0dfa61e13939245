"""Parameters and modules that a region uses, under names that don't get in each other's way."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import framecap
from helpers import same_as_eager

IDS = torch.tensor([[1, 2], [3, 0]])


class Tied(nn.Module):
    """Uses its embedding's weight once more, as language models with tied weights do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, ids):
        return F.linear(self.embed(ids) * self.scale, self.embed.weight)


def test_a_weight_beside_its_module() -> None:
    model = Tied()
    seen = same_as_eager(model, (IDS,), (IDS[:1],))
    assert (seen.graphs, seen.operators) == (1, 3)
    low = framecap.capture(model, IDS)
    assert torch.equal(low(IDS), model(IDS))
    assert set(low.state_dict()) == set(model.state_dict())


def test_a_global_module_and_its_weight_under_a_backend() -> None:
    seen = []

    def backend(graph_module, examples):
        seen.append(graph_module)
        return graph_module

    model = Tied()
    fn = framecap.optimize(lambda ids: model(ids) + model.embed.weight.sum(), backend=backend)
    assert torch.equal(fn(IDS), model(IDS) + model.embed.weight.sum())
    assert len(seen) == 1
