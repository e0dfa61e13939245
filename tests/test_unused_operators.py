"""Operators whose results nobody uses run all the same: they may raise, or be observed."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import framecap
from framecap.api import collect_report


class Seen(TorchDispatchMode):
    """Records the operators that run, those of framecap's own metadata not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_dispatch_modes_see_the_same_operators() -> None:
    def fn(x):
        values = x.sort(0)[0][:, None].sum(1)
        if values.shape[0] > 2:
            values = values + 1
        values.cumprod(0)
        top, _ = values.topk(1)
        return top

    def seen(function):
        with Seen() as mode:
            function(torch.ones(4))
        return mode.names

    optimized = framecap.optimize(fn)
    assert seen(optimized) == seen(fn)  # while it is captured, too
    assert seen(optimized) == seen(fn)
    assert collect_report().totals.operators == 6


def test_an_unused_operator_still_raises() -> None:
    def fn(x, y):
        x @ y
        return x + 1

    optimized = framecap.optimize(fn)
    x = torch.ones(2, 3)
    assert torch.equal(optimized(x, torch.ones(3, 2)), x + 1)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        optimized(x, torch.ones(5, 2))
    assert collect_report().totals.operators == 2
