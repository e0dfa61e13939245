"""Sizes and numbers flow through graphs: a graph serves every size until Python branches on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framecap
from framecap.api import collect_report


def heads(x):
    b, t, c = x.shape
    q = x.view(b, t, 4, c // 4).transpose(1, 2)
    att = (q @ q.transpose(-2, -1)).softmax(-1)
    return (att @ q).transpose(1, 2).reshape(b, t, c)


def sliced(x):
    y = x[:, -3:]
    z = torch.cat([y, y[:, :1]], dim=1)
    return z.view(z.shape[0], -1), z.shape[1] + 1


def filled(x):
    mask = torch.zeros(x.shape[0], x.size(1))
    places = torch.arange(x.shape[1]) + mask
    return places.unsqueeze(-1) + x, mask.new_ones(x.shape[0])


def parts(x):
    a, b = x.chunk(2, dim=-1)
    c, d = torch.split(a, [1, 1], dim=-1)
    return a * b, c.expand(-1, -1, 5) + d, x.flatten(1).shape[1] * 2


def padded(x):
    y = F.pad(x, (1, 1))
    return y[..., None].squeeze(-1).mean((0, 2)), len(x) + x.dim()


SIZES = [(2, 5, 4), (3, 7, 4), (1, 4, 4), (2, 11, 4), (5, 3, 4)]


@pytest.mark.parametrize("fn", [heads, sliced, filled, parts, padded])
def test_one_graph_for_all_sizes(fn: Callable[..., Any]) -> None:
    optimized = framecap.optimize(fn)
    for size in SIZES:
        x = torch.randn(size)
        torch.testing.assert_close(optimized(x), fn(x), rtol=0, atol=0)
    totals = collect_report().totals
    assert (totals.graphs, totals.breaks) == (1, 0)


def test_a_branch_on_a_size_is_guarded_by_its_predicate() -> None:
    def fn(x):
        y = x * 2
        return y.sum(0) if y.shape[0] > 3 else y

    optimized = framecap.optimize(fn)
    for size in (1, 2, 3, 4, 5, 1, 9):
        x = torch.randn(size, 2)
        assert torch.equal(optimized(x), fn(x))
    assert collect_report().totals.graphs == 2


def test_broadcast_sizes() -> None:
    def fn(x, y):
        z = x + y
        return z if z.shape[0] > 1 else -z

    optimized = framecap.optimize(fn)
    for a, b in [(1, 1), (3, 1), (1, 3), (3, 3), (1, 1), (0, 1)]:
        x, y = torch.randn(a, 2), torch.randn(b, 2)
        assert torch.equal(optimized(x, y), fn(x, y))


def test_rank_and_dtype_count() -> None:
    def fn(x):
        y = x * 2 + 1
        return y.shape, y.dtype, y.device, y.view(y.dim(), -1) if y.numel() % y.dim() == 0 else y

    optimized = framecap.optimize(fn)
    for x in (torch.ones(2), torch.ones(2, 2), torch.ones(2, 2, 3).double(), torch.ones(4, dtype=torch.int32)):
        actual, expected = optimized(x), fn(x)
        assert actual[:3] == expected[:3]
        assert torch.equal(actual[3], expected[3])


def test_parameter_reshaped_between_calls() -> None:
    layer = nn.Linear(4, 6)

    def fn(x):
        y = layer(x)
        return y.reshape(y.shape[0], y.shape[-1] // 2, 2)

    optimized = framecap.optimize(fn)
    x = torch.randn(3, 4)
    assert torch.equal(optimized(x), fn(x))
    layer.weight.data = torch.randn(8, 4)
    layer.bias.data = torch.randn(8)
    assert torch.equal(optimized(x), fn(x))
    assert optimized(x).shape == (3, 4, 2)


def test_numbers_as_arguments() -> None:
    def fn(x, n, scale):
        y = x * scale + n
        return y.sum() / (n + 1), y[: n + 1], n // 2

    optimized = framecap.optimize(fn)
    x = torch.randn(6)
    for n, scale in [(1, 0.5), (2, 1.5), (3, -0.0), (4, float("inf")), (0, 2.0), (5, 1e300)]:
        torch.testing.assert_close(optimized(x, n, scale), fn(x, n, scale), equal_nan=True)
    assert collect_report().totals.graphs == 1


def test_a_growing_cache_needs_one_graph() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys = None

        def update(self, k):
            self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=1)
            return self.keys

    def step(x, cache):
        keys = cache.update(x)
        return (x @ keys.transpose(1, 2)).softmax(-1) @ keys

    def run(function):
        torch.manual_seed(0)
        cache = Cache()
        return [function(torch.randn(1, 1, 4), cache) for _ in range(12)]

    expected = run(step)
    actual = run(framecap.optimize(step))
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert collect_report().totals.graphs == 2  # the first step, and all others
