"""What the program drops is gone: no capture, variant or cache keeps it, with the collector off."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import framecap
from framecap.api import collect_report


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Box:
    def __init__(self, value):
        self.value = value


def test_arguments_and_results() -> None:
    def fn(x, box, items):
        y = x * box.value
        items.append(y)
        return y.sum() + len(items)

    optimized = framecap.optimize(fn)
    for _ in range(3):
        x, box, items = torch.ones(2), Box(torch.ones(2)), [torch.ones(1)]
        refs = [weakref.ref(x), weakref.ref(box), weakref.ref(box.value), weakref.ref(items[0])]
        result = optimized(x, box, items)
        refs += [weakref.ref(result), weakref.ref(items[-1])]
        del x, box, items, result
        assert [r() for r in refs] == [None] * 6
    assert collect_report().totals.operators >= 3


def test_modules_and_parameters() -> None:
    def call(model, x):
        return model(x) * 2

    optimized = framecap.optimize(call)
    for _ in range(3):
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3))
        refs = [weakref.ref(m) for m in model.modules()] + [weakref.ref(p) for p in model.parameters()]
        optimized(model, torch.ones(2, 3))
        optimized(model, torch.ones(2, 3))
        del model
        assert all(r() is None for r in refs)
    assert collect_report().totals.operators >= 4


def test_optimized_module() -> None:
    model = nn.Linear(3, 3)
    ref, weight = weakref.ref(model), weakref.ref(model.weight)
    optimized = framecap.optimize(model)
    optimized(torch.ones(2, 3))
    del model
    assert ref() is None and weight() is not None
    del optimized
    gc.collect()  # a class is in a cycle with itself
    assert weight() is None


def test_closures_and_what_they_hold() -> None:
    def make():
        held = torch.ones(2)

        def inner(x):
            return x + held

        return inner, weakref.ref(held)

    def fn(x, g):
        return g(x) * 2

    optimized = framecap.optimize(fn)
    for _ in range(3):
        g, held = make()
        ref = weakref.ref(g)
        optimized(torch.ones(2), g)
        del g
        assert ref() is None and held() is None
    assert collect_report().totals.graphs <= 2


def test_objects_met_at_graph_breaks() -> None:
    def fn(x, box):
        y = x * box.value
        print(end="")
        if y.sum() > 100:
            return y
        return y + box.value

    optimized = framecap.optimize(fn)
    for _ in range(4):
        box = Box(torch.ones(2))
        refs = [weakref.ref(box), weakref.ref(box.value)]
        optimized(torch.ones(2), box)
        del box
        assert [r() for r in refs] == [None, None]
    assert collect_report().totals.breaks == 2


def test_failed_captures() -> None:
    def fails(box):
        raise ValueError(box)

    def fn(x, box):
        y = x + box.value
        try:
            fails(box)
        except ValueError:
            y = y * 2
        return y @ torch.ones(5)

    optimized = framecap.optimize(fn)
    for _ in range(3):
        box = Box(torch.ones(2))
        refs = [weakref.ref(box), weakref.ref(box.value)]
        with pytest.raises(RuntimeError):
            optimized(torch.ones(2), box)
        del box
        assert [r() for r in refs] == [None, None]


def test_functions_and_their_code() -> None:
    def make(k):
        space: dict[str, object] = {}
        exec(f"def fn(x):\n    return x * {k} + {k}\n", space)
        return space["fn"]

    for k in range(5):
        fn = make(k)
        code = weakref.ref(fn.__code__)
        optimized = framecap.optimize(fn)
        assert torch.equal(optimized(torch.ones(2)), torch.full((2,), 2.0 * k))
        del fn, optimized
        gc.collect()
        gc.collect()
        assert code() is None


def test_many_calls_leak_nothing() -> None:
    def fn(x, k):
        return x * k + 1

    optimized = framecap.optimize(fn)
    x = torch.ones(2)
    for i in range(50):
        optimized(x, i)
    gc.collect()
    before = len(gc.get_objects())
    for i in range(20_000):
        optimized(x, i)
    assert len(gc.get_objects()) - before < 50


def test_code_objects_are_let_go() -> None:
    """Code made at run time, called from captured code, breaking in it."""

    @framecap.optimize
    def caller(inner, x):
        y = x + 1
        inner()
        return y * 2

    gc.disable()
    try:
        for _ in range(3):
            inner = eval("lambda: print(end='')")
            caller(inner, torch.ones(2))
        gone = weakref.ref(inner.__code__)
        del inner
        assert gone() is None
    finally:
        gc.enable()
