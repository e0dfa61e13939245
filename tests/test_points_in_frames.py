"""After a graph break the same frame goes on, captured again right behind the break; a loop's body is captured once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import framecap
from framecap.api import collect_report
from framecap.hook import in_region
from helpers import same_as_eager

X = torch.arange(6.0).reshape(2, 3)
LOG: list[Any] = []


class Where(TorchDispatchMode):
    """For each operator that runs: its name, and whether a region ran it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append((function.overloadpacket.__name__, in_region()))
        return function(*args, **(kwargs or {}))


def loader(count: int) -> Iterator[torch.Tensor]:
    for i in range(count):
        yield torch.ones(2, 3) * i


@contextlib.contextmanager
def logged(name: str) -> Iterator[str]:
    LOG.append(f"in {name}")
    try:
        yield name
    finally:
        LOG.append(f"out {name}")


def break_in_for(x, n):
    for i in range(n):
        x = x * 2 + 1
        print(i)
        x = x.relu() - 3
    return x + 1


def break_in_while(x, n):
    while n > 0:
        x = x * 2
        print(n)
        x = x + 1
        n -= 1
    else:
        x = x - 1
    return x


def break_in_with(x, n):
    with logged("a") as name:
        x = x * 2
        print(name)
        x = x + 1
        with logged("b"):
            x = x * 3
            print("deep")
            x = x - 2
    return x, list(LOG)


def break_in_try(x, n):
    try:
        x = x * 2
        print("try")
        x = x + 1
        if n > 3:
            raise ValueError(n)
        x = x @ torch.ones(n, 2)
    except ValueError as error:
        x = x - 1
        print("value", error)
        x = x * 5
    except RuntimeError:
        x = x - 2
        print("runtime")
        x = x * 7
    else:
        x = x + 100
    finally:
        x = x + 0.5
        print("finally")
        x = x * 2
    return x


def break_in_nested_loops(x, n):
    for i in range(n):
        for j in range(2):
            x = x + i * j
            if j == 1 and i == 1:
                print("continue")
                continue
            x = x * 1.5
        else:
            x = x - 1
        if i == 2:
            break
    return x


def break_in_expression(x, n):
    return torch.stack([x * 2, (print("mid"), x + n)[1], x.relu() * float(x.sum())]).sum(0) + x


FRAMES = [break_in_for, break_in_while, break_in_with, break_in_try, break_in_nested_loops, break_in_expression]


@pytest.mark.parametrize("mode", ["wrap", "with"])
@pytest.mark.parametrize("fn", FRAMES)
def test_frames_with_breaks(fn: Callable[..., Any], mode: str) -> None:
    calls = [(X, n) for n in (3, 4, 2, 3, 5, 3)]
    seen = same_as_eager(fn, *calls, mode=mode, observe=lambda: LOG.clear())
    assert seen.operators >= 3, seen.report


@pytest.mark.parametrize("fn", FRAMES)
def test_operators_around_breaks_run_in_regions(fn: Callable[..., Any]) -> None:
    optimized = framecap.optimize(fn)
    for _ in range(4):
        optimized(X, 3)
    with Where() as mode:
        optimized(X, 3)
    # The tensors themselves are made natively where the program branches on one (.item() of the expression).
    outside = [name for name, inside in mode.seen if not inside and name != "_local_scalar_dense"]
    assert outside == [], (outside, collect_report())


def test_loop_over_a_loader_is_one_region() -> None:
    def fn(batches, w):
        total = torch.zeros(())
        for batch in batches:
            total = total + (batch @ w).relu().sum()
        return total

    optimized = framecap.optimize(fn)
    w = torch.ones(3, 3)
    for count in (5, 50, 7):
        assert torch.equal(optimized(loader(count), w), fn(loader(count), w))
    totals = collect_report().totals
    assert totals.graphs <= 4 and totals.recompiles == 0


def test_loop_on_data_is_one_region() -> None:
    def fn(x, tolerance):
        steps = 0
        error = torch.tensor(1e9)
        while error > tolerance:
            x = x * 0.5 + 0.1
            error = x.abs().max() - 0.2
            steps += 1
        return x, steps

    optimized = framecap.optimize(fn)
    for size in (1.0, 1000.0, 4.0):
        x = torch.full((3,), size)
        expected, actual = fn(x, 0.01), optimized(x, 0.01)
        assert torch.equal(actual[0], expected[0]) and actual[1] == expected[1]
    totals = collect_report().totals
    assert totals.graphs == 2 and totals.recompiles == 0


def test_frame_that_is_entered_once_is_captured_by_its_third_iteration() -> None:
    def main(w):
        x = torch.ones(3)
        for step in range(8):
            LOG.append(("step", step))
            x = (x * w).tanh()
            loss = x.sum().item()
            x = x + loss
            print(end="")
            x = x / 2
        return x

    LOG.clear()
    optimized = framecap.optimize(main)

    class Steps(Where):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            LOG.append((function.overloadpacket.__name__, in_region()))
            return function(*args, **(kwargs or {}))

    with Steps():
        optimized(torch.tensor(0.5))
    iterations: list[list[Any]] = []
    for entry in LOG:
        if entry[0] == "step":
            iterations.append([])
        elif iterations:
            iterations[-1].append(entry)
    late = [name for ops in iterations[2:] for name, inside in ops if not inside]
    assert set(late) <= {"_local_scalar_dense"}, iterations


def test_unrolled_when_short_and_known_captured_once_when_long() -> None:
    def fn(x, n):
        for i in range(n):
            x = x + i
        return x

    optimized = framecap.optimize(fn)
    for n in (3, 300, 500, 3):
        assert torch.equal(optimized(X, n), fn(X, n))
    assert collect_report().totals.graphs <= 4


def test_generators_and_coroutines() -> None:
    def pieces(x):
        for i in range(5):
            x = x * 2
            got = yield x + i
            x = x - (got or 0)

    def drive(function):
        g = function(X)
        out = [next(g)]
        for i in range(4):
            out.append(g.send(i))
        with contextlib.suppress(StopIteration):
            next(g)
        return out

    async def work(x):
        y = x * 2
        await asyncio.sleep(0)
        async with asyncio.Lock():
            y = y + 1
        return y * 3

    with framecap.optimize():
        actual = drive(pieces)
        result = asyncio.run(work(X))
    assert all(torch.equal(a, b) for a, b in zip(actual, drive(pieces), strict=True))
    assert torch.equal(result, asyncio.run(work(X)))
    assert collect_report().totals.operators >= 5
