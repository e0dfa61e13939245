"""Graphs cut into parts: the whole does what it did, and the parts are what the rule says."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import nn

import framecap
from examples.resnet50 import resnet50
from framecap.graph import GraphError, GraphModule, Node, Part, check, split, split_by_support, split_into_stages
from framecap.graph.passes import estimate_costs

X = torch.linspace(-2, 2, 16).reshape(4, 4)


def check_parts(whole: GraphModule, parts: list[Part]) -> None:
    check(whole.graph, whole)
    calls = whole.graph.find_nodes(op="call_module")
    assert [call.target for call in calls] == [part.name for part in parts]
    for call, part in zip(calls, parts, strict=True):
        check(part.module.graph, part.module)
        assert len(call.args) == len(part.inputs) == len(part.module.graph.find_nodes(op="placeholder"))
        assert getattr(whole, part.name) is part.module


def test_one_part_for_each_label() -> None:
    def program(x: Any, y: Any) -> Any:
        a, b = x + 1, y.relu()
        c, d = a * 2, b.sin()
        return c + d, a

    module = framecap.capture(program)
    labels = {"a": "x", "c": "x", "b": "y", "d": "y", "add": "end"}
    whole, parts = split(module, lambda node: labels[node.name])
    check_parts(whole, parts)
    assert [(part.label, [n.name for n in part.outputs]) for part in parts] == [("x", ["a", "c"]), ("y", ["d"]), ("end", ["add"])]
    assert all(torch.equal(a, b) for a, b in zip(whole(X, X + 1), program(X, X + 1), strict=True))


def test_a_label_comes_back_where_a_part_would_need_itself() -> None:
    module = framecap.capture(lambda x: ((x + 1).relu() + 2).relu())
    whole, parts = split_by_support(module, lambda node: node.target == "relu")
    check_parts(whole, parts)
    assert [part.label for part in parts] == ["eager", "supported", "eager", "supported"]
    assert torch.equal(whole(X), module(X))


def test_effects_keep_their_order() -> None:
    def program(x: Any) -> Any:
        a = x.clone()
        b = a + 1
        a.mul_(2)
        c = a + 1
        return b, c, a.sum()

    module = framecap.capture(program)
    for bits in range(2**5):
        nodes = [node for node in module.graph.nodes if node.op.startswith("call")]
        labels = {node: bits >> i & 1 for i, node in enumerate(nodes)}
        whole, parts = split(module, labels.__getitem__)
        check_parts(whole, parts)
        assert all(torch.equal(a, b) for a, b in zip(whole(X), program(X), strict=True))


def test_state_is_shared_and_trains() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    module = framecap.capture(model)
    whole, _ = split(module, lambda node: node.target)
    assert {id(p) for p in whole.parameters()} == {id(p) for p in model.parameters()}
    whole(X).sum().backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(X).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(found, model.parameters(), strict=True) if p.grad is not None)


def test_stages_of_resnet50_are_equal_and_balanced() -> None:
    model = resnet50(num_classes=10, width=16).eval()
    images = torch.randn(2, 3, 64, 64)
    module = framecap.capture(model, images)
    report = estimate_costs(module, images)
    for count in (1, 2, 4):
        whole, stages = split_into_stages(module, count, lambda node: report.nodes[node].flops)
        check_parts(whole, stages)
        assert len(stages) == count
        assert all(stage.inputs == before.outputs for before, stage in zip(stages, stages[1:], strict=False))
        with torch.no_grad():
            value: Any = (images,)
            for stage in stages:
                value = stage.module(*value)
                value = value if isinstance(value, tuple) else (value,)
            assert torch.equal(value[0], model(images)) and torch.equal(whole(images), model(images))
        costs = [estimate_stage(stage, report) for stage in stages]
        largest = max(cost.flops for cost in report.nodes.values())
        assert max(costs) <= sum(costs) / count + largest


def estimate_stage(stage: Part, report: Any) -> int:
    inside = {node.name for node in stage.module.graph.nodes if node.op.startswith("call")}
    return sum(cost.flops for node, cost in report.nodes.items() if node.name in inside)


def test_values_are_passed_through_stages() -> None:
    weight = nn.Parameter(torch.ones(4))

    def program(x: Any, y: Any) -> Any:
        a = x + weight
        b = a * 2
        return b - y, a, y, weight

    module = framecap.capture(program)
    for count in (1, 2, 3):
        whole, stages = split_into_stages(module, count)
        check_parts(whole, stages)
        assert all(torch.equal(a, b) for a, b in zip(whole(X, X + 1), program(X, X + 1), strict=True))


def test_too_many_stages() -> None:
    with pytest.raises(GraphError, match="1 operators can't be cut into 2"):
        split_into_stages(framecap.capture(lambda x: x + 1), 2)


def test_costs_that_are_all_in_one_node() -> None:
    def cost(node: Node) -> float:
        return 100.0 if node.target is torch.sin else 0.0

    module = framecap.capture(lambda x: torch.sin(x + 1) * 2 + 3)
    _, stages = split_into_stages(module, 3, cost)
    assert len(stages) == 3 and all(stage.module.graph.find_nodes(op="call_function") for stage in stages)


def test_every_kind_of_parameter() -> None:
    def program(x: Any, *rest: Any, scale: Any = 2.0, **more: Any) -> Any:
        return (x + rest[0]) * scale, more["y"] - rest[1]

    graph = framecap.graph.Graph()
    x, rest, more = graph.placeholder("x"), graph.placeholder("*rest"), graph.placeholder("**more")
    first = graph.call_function(operator.getitem, (rest, 0))
    second = graph.call_function(operator.getitem, (rest, 1))
    total = graph.call_function(operator.mul, (graph.call_function(operator.add, (x, first)), 2.0))
    left = graph.call_function(operator.sub, (graph.call_function(operator.getitem, (more, "y")), second))
    graph.output((total, left))
    module = GraphModule(nn.Module(), graph)
    for whole in (
        split(module, lambda node: getattr(node.target, "__name__", ""))[0],
        split_into_stages(module, 3)[0],
    ):
        actual, expected = whole(X, X + 1, X + 2, y=X * 3), program(X, X + 1, X + 2, y=X * 3)
        assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
