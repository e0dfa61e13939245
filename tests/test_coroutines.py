"""Decorated coroutines and generators are captured wherever they are resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import torch

import framecap
from framecap import hook
from framecap.api import collect_report


def captured(name: str) -> int:
    """Operators captured in the function of this name."""
    return sum(f.operators for f in collect_report().functions if f.name.endswith(name))


def test_decorated_coroutines_interleave_and_are_captured() -> None:
    async def work(x: torch.Tensor) -> torch.Tensor:
        y = x * 2 + 1
        await asyncio.sleep(0)
        z = y.relu() + y
        await asyncio.sleep(0)
        return z.sum()

    async def all_of(function: object) -> list[torch.Tensor]:
        return await asyncio.gather(*[function(torch.ones(2) * i) for i in range(4)])

    expected = asyncio.run(all_of(work))
    actual = asyncio.run(all_of(framecap.optimize(work)))
    assert [t.item() for t in actual] == [t.item() for t in expected]
    assert captured("work") == 5
    assert hook.get_thread_config() is None


def test_decorated_generator_is_captured_between_its_yields() -> None:
    def steps(x: torch.Tensor) -> Iterator[torch.Tensor]:
        for _ in range(4):
            x = x * 2
            yield x.sum()
            x = x + 1

    optimized = framecap.optimize(steps)
    for _ in range(2):
        assert [t.item() for t in optimized(torch.ones(2))] == [t.item() for t in steps(torch.ones(2))]
    assert captured("steps") >= 3
