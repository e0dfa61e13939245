"""Running passes, and constant folding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import framecap
from framecap.graph import GraphError, GraphModule, check
from framecap.graph.passes import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    run_passes,
)

X = torch.linspace(-2, 2, 16).reshape(4, 4)


def count_calls(module: GraphModule) -> int:
    return sum(node.op.startswith("call") for node in module.graph.nodes)


def test_the_report_says_who_changed_what() -> None:
    module = framecap.capture(lambda x: (x + 1) * (x + 1))
    report = run_passes(module, [eliminate_common_subexpressions, eliminate_dead_code], until_stable=True)
    assert report and report.rounds == 2
    assert report.changes == {"eliminate_common_subexpressions": 1, "eliminate_dead_code": 0}
    assert count_calls(module) == 2
    assert not run_passes(module, [eliminate_dead_code])


def test_a_pass_that_breaks_the_graph_is_named() -> None:
    def careless(module: GraphModule) -> bool:
        module.graph.output(None)
        return True

    with pytest.raises(GraphError, match=r"'careless' left a graph that isn't well formed: .*output"):
        run_passes(framecap.capture(lambda x: x + 1), [careless])


def test_passes_without_end() -> None:
    def restless(module: GraphModule) -> bool:
        return True

    with pytest.raises(GraphError, match="restless"):
        run_passes(framecap.capture(lambda x: x + 1), [restless], until_stable=True)


def test_constants_are_computed_once() -> None:
    def program(x: Any) -> Any:
        return x * torch.ones(4, 4).triu() + torch.arange(4)

    module = framecap.capture(program)
    assert fold_constants(module)
    check(module.graph, module)
    assert count_calls(module) == 2 and not module.state_dict()
    assert torch.equal(module(X), program(X))
    assert not fold_constants(module)


def test_what_could_be_told_apart_is_left() -> None:
    def program(x: Any) -> Any:
        counter = torch.zeros(4)
        counter.add_(1)
        return x + counter, torch.ones(2).view(2, 1)

    module = framecap.capture(program)
    assert not fold_constants(module)
    first, second = module(X), module(X)
    assert torch.equal(first[0], X + 1) and torch.equal(second[0], X + 1)
    assert first[1].data_ptr() != second[1].data_ptr()


def test_random_numbers_are_left() -> None:
    module = framecap.capture(lambda x: x + torch.rand(4))
    assert not fold_constants(module)


def test_large_results_are_left() -> None:
    module = framecap.capture(lambda x: x + torch.zeros(4))
    assert not fold_constants(module, largest=15)
    assert fold_constants(module, largest=16)


def test_errors_stay_where_they_are() -> None:
    graph = framecap.graph.Graph()
    x = graph.placeholder("x")
    wrong = graph.call_function(torch.ones, (-1,))
    graph.output(graph.call_function(torch.add, (x, graph.call_function(torch.neg, (wrong,)))))
    module = GraphModule(nn.Module(), graph)
    assert not fold_constants(module)
    with pytest.raises(RuntimeError, match="negative"):
        module(X)


def test_parameters_of_a_frozen_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Any) -> Any:
            return x @ (self.weight.t() * 2).contiguous()

    model = Model()
    module = framecap.capture(model)
    assert not fold_constants(module)
    assert fold_constants(module, parameters=True)
    assert count_calls(module) == 1
    assert torch.equal(module(X), model(X).detach())
