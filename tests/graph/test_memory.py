"""Lifetimes and peak memory, against what a run of the generated code holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import framecap
from examples.resnet50 import resnet50
from framecap.graph import GraphModule, Interpreter, Node
from framecap.graph.passes import estimate_memory

X = torch.ones(4, 4)


def captured(function: Any) -> GraphModule:
    return framecap.capture(function, X)


def test_values_live_until_their_last_use() -> None:
    def program(x: Any) -> Any:
        a = x + 1
        view = a.view(-1)
        b = view * 2
        c = b * 2
        c.add_(1)
        return c.sum(), view

    report = estimate_memory(captured(program), X)
    assert {node.name: size for node, size in report.live.items()} == {
        "x": 0, "a": 64, "view": 64, "b": 128, "c": 192, "add_": 128, "sum_1": 132, "output": 68
    }  # fmt: skip
    assert (report.peak, report.peak_node and report.peak_node.name) == (192, "c")
    assert (report.inputs, report.state, report.total) == (64, 0, 64 * 3 + 4)
    lives = {lifetime.made.name: lifetime.last and lifetime.last.name for lifetime in report.lifetimes}
    assert lives == {"a": None, "b": "c", "c": "sum_1", "sum_1": None}


def test_parameters_and_unused_values() -> None:
    model = nn.Linear(4, 4)

    def program(x: Any) -> Any:
        torch.neg(x)
        return torch.nn.functional.linear(x, model.weight)

    report = estimate_memory(framecap.capture(program, X), X)
    assert report.state == 64 and report.peak == 64
    assert report.live[next(n for n in report.live if n.target is torch.neg)] == 64


class _Held(Interpreter):
    """Adds up the memory that the values of a real run hold, as the Interpreter frees them."""

    peak = 0

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        tensors = [t for n, t in self.env.items() if n.op not in ("placeholder", "get_attr") and isinstance(t, torch.Tensor)]
        if isinstance(value, torch.Tensor) and node.op not in ("placeholder", "get_attr"):
            tensors.append(value)
        outside = {t.untyped_storage().data_ptr() for n, t in self.env.items() if n.op in ("placeholder", "get_attr")}
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        self.peak = max(self.peak, sum(size for key, size in storages.items() if key not in outside))
        return value


def test_the_peak_of_resnet50_is_what_a_run_holds() -> None:
    model = resnet50(num_classes=10, width=16).eval()
    images = torch.randn(2, 3, 64, 64)
    for is_leaf in (None, framecap.no_leaves):
        module = framecap.capture(model, images, **({} if is_leaf is None else {"is_leaf": is_leaf}))
        run = _Held(module)
        with torch.no_grad():
            run.run(images)
        assert estimate_memory(module, images).peak == run.peak > 0
