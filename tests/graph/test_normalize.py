"""Calls by keyword: the same results, and names where there is one way to give them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graph_helpers import same
from torch import nn

import framecap
from framecap.graph import GraphModule
from framecap.graph.passes import normalize_calls

X = torch.linspace(-2, 2, 16).reshape(4, 4)

CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = [
    (F.relu, (X, False), ["input", "inplace"]),
    (F.layer_norm, (X, [4]), ["input", "normalized_shape"]),
    (F.linear, (X, X), ["input", "weight"]),
    (F.gelu, (X,), ["input"]),
    (F.scaled_dot_product_attention, (X, X, X), ["query", "key", "value"]),
    (F.dropout, (X, 0.5, False), ["input", "p", "training"]),
    (torch.add, (X, 2), ["input", "other"]),
    (torch.max, (X, 1), ["input", "dim"]),
    (torch.max, (X,), ["input"]),
    (torch.sum, (X, 1), ["input", "dim"]),
    (torch.sum, (X, [0, 1], True), ["input", "dim", "keepdim"]),
    (torch.transpose, (X, 0, 1), ["input", "dim0", "dim1"]),
    (torch.permute, (X, (1, 0)), ["input", "dims"]),
    (torch.flatten, (X, 0), ["input", "start_dim"]),
    (torch.where, (X > 0, X, X), ["condition", "input", "other"]),
    (torch.clamp, (X, -1, 1), ["input", "min", "max"]),
    (torch.softmax, (X, -1), ["input", "dim"]),
    (torch.cat, ([X, X], 1), ["tensors", "dim"]),
    (torch.matmul, (X, X), ["input", "other"]),
    (torch.unsqueeze, (X, 0), ["input", "dim"]),
    (torch.reshape, (X, (2, 8)), ["input", "shape"]),
    (torch.full, ([2], 1.5), ["size", "fill_value"]),
    (torch.mean, (X, 0), ["input", "dim"]),
    (torch.bmm, (X[None], X[None]), ["input", "mat2"]),
    (torch.ops.aten.add.Tensor, (X, X), ["self", "other"]),
]


@pytest.mark.parametrize(("function", "args", "names"), CALLS, ids=[f"{c[0].__name__}-{i}" for i, c in enumerate(CALLS)])
def test_arguments_get_their_names(function: Callable[..., Any], args: tuple[Any, ...], names: list[str]) -> None:
    graph = framecap.graph.Graph()
    inputs = {f"x{i}": a for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
    nodes = [graph.placeholder(name) for name in inputs]
    given = tuple(nodes[list(inputs).index(f"x{i}")] if f"x{i}" in inputs else a for i, a in enumerate(args))
    graph.output(graph.call_function(function, given))
    module = GraphModule(nn.Module(), graph)
    expected = module(*inputs.values())
    assert normalize_calls(module)
    node = graph.find_nodes(op="call_function")[0]
    assert (node.args, list(node.kwargs)) == ((), names)
    assert same(expected, module(*inputs.values()))
    assert not normalize_calls(module)


def test_modules_by_the_signature_of_forward() -> None:
    module = framecap.capture(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    expected = module(X)
    assert normalize_calls(module)
    assert [list(node.kwargs) for node in module.graph.find_nodes(op="call_module")] == [["input"], ["input"]]
    assert torch.equal(module(X), expected)


def test_what_is_left() -> None:
    def variadic(*args: Any) -> Any:
        return args[0]

    graph = framecap.graph.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    made = [
        graph.call_function(operator.add, (x, 1)),
        graph.call_function(variadic, (x, 1)),
        graph.call_function(torch.zeros, (2, 3)),
        graph.call_function(torch.max, (x, y)),  # y is a dimension or a tensor
        graph.call_method("sum", (x, 0)),
        graph.call_function(torch.ones, (4,)),
        graph.call_function(torch.zeros, (x,)),  # x may be a number
        graph.call_function(torch.add, (x, 2, y)),  # 2 is alpha
    ]
    graph.output(tuple(made))
    assert not normalize_calls(GraphModule(nn.Module(), graph))


def test_calls_by_position_and_by_keyword_become_the_same() -> None:
    from framecap.graph.passes import eliminate_common_subexpressions, run_passes

    module = framecap.capture(lambda x: torch.softmax(x, 1) * torch.softmax(x, dim=1))
    run_passes(module, [normalize_calls, eliminate_common_subexpressions])
    assert len(module.graph.find_nodes(target=torch.softmax)) == 1
    assert torch.equal(module(X), torch.softmax(X, 1) ** 2)
