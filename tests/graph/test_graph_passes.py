"""Passes: what they change and, more important, what they leave."""

from __future__ import annotations

import operator
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from framecap.graph import Graph, GraphModule, Node, check, table
from framecap.graph.passes import (
    TensorMeta,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    propagate_shapes,
    why_impure,
)


def one_node(op: str, target: Any, *args: Any, **kwargs: Any) -> Node:
    graph = Graph()
    x = graph.placeholder("x")
    return graph.create_node(op, target, (x, *args), kwargs)


@pytest.mark.parametrize("target", [torch.add, torch.sort, torch.max, torch.zeros, F.relu, F.linear, F.layer_norm,
                                    torch.Tensor.add,
                                    operator.add, operator.getitem, getattr, len, torch.ops.aten.add.Tensor,
                                    torch.where])  # fmt: skip
def test_pure_functions(target: Any) -> None:
    assert why_impure(one_node("call_function", target)) is None


@pytest.mark.parametrize(
    "target, reason",
    [
        (print, "not known to be pure"), (operator.iadd, "not known to be pure"), (operator.setitem, "not known to be pure"),
        (torch.rand, "random"), (F.dropout, "random"), (torch.bernoulli, "random"), (F.scaled_dot_product_attention, "random"),
        (F.rrelu, "random"), (F.batch_norm, "state"), (F.embedding, "state"), (torch.relu_, "in place"),
        (torch.manual_seed, "pure"), (torch.set_grad_enabled, "no operator"), (F.gumbel_softmax, "no operator"),
        (torch.ops.aten.add_.Tensor, "changes an argument"), (torch.ops.aten.bernoulli.default, "random"),
        (torch.ops.aten.add.out, "changes an argument"), (torch.save, "no operator"), (nn.Identity(), "not known"),
    ],
)  # fmt: skip
def test_impure_functions(target: Any, reason: str) -> None:
    assert reason in str(why_impure(one_node("call_function", target)))


def test_arguments_that_make_functions_impure() -> None:
    assert why_impure(one_node("call_function", torch.add, 1, out="x")) is not None
    assert why_impure(one_node("call_function", F.relu, inplace=True)) is not None
    assert why_impure(one_node("call_function", F.relu, True)) is not None
    assert why_impure(one_node("call_function", F.silu, True)) is not None
    assert why_impure(one_node("call_function", F.silu, False)) is None
    assert why_impure(one_node("call_function", F.relu, inplace=False)) is None


PURE_METHODS = ["add", "sort", "to", "float", "item"]
IMPURE_METHODS = ["add_", "uniform_", "append", "backward", "__iadd__", "bernoulli", "register_hook", "no such"]


@pytest.mark.parametrize("name, pure", [(n, True) for n in PURE_METHODS] + [(n, False) for n in IMPURE_METHODS])
def test_methods(name: str, pure: bool) -> None:
    assert (why_impure(one_node("call_method", name)) is None) is pure


def test_dead_code_goes_and_effects_stay() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.placeholder("unused")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(operator.mul, (a, 2))
    graph.call_method("sum", (b,))
    graph.call_method("add_", (x, 1))
    graph.call_function(torch.rand, (2,))
    graph.call_module("lin", (x,))
    graph.get_attr("weight")
    graph.call_function(print, (graph.call_method("sin", (x,)),))
    graph.output(x)
    assert eliminate_dead_code(graph)
    check(graph)
    assert [n.name for n in graph.nodes] == ["x", "unused", "add_", "rand", "lin", "sin", "print_1", "output"]
    assert not eliminate_dead_code(graph)


def common(build: Any) -> list[str]:
    """The names of nodes that are left when ``build(graph, x)`` has made a graph."""
    graph = Graph()
    graph.output(build(graph, graph.placeholder("x")))
    while eliminate_common_subexpressions(graph):
        check(graph)
    return [node.name for node in graph.nodes][1:-1]


def call(graph: Graph, function: Any, *args: Any, **kwargs: Any) -> Node:
    return graph.call_function(function, args, kwargs)


def test_equal_expressions_are_computed_once() -> None:
    def build(graph: Graph, x: Node) -> Node:
        a = call(graph, torch.sin, call(graph, operator.add, x, 1))
        b = call(graph, torch.sin, call(graph, operator.add, x, 1))
        return call(graph, operator.mul, a, b)

    assert common(build) == ["add", "sin", "mul"]


@pytest.mark.parametrize("first, second", [((1,), (1.0,)), ((1,), (True,)), ((0.0,), (-0.0,)), (([1],), ((1,),)), (("a",), (b"a",)),
                                           ((torch.float32,), (torch.float64,)), ((OrderedDict(),), (OrderedDict(),)),
                                           ((float("nan"),), (float("nan"),)), ((slice(1),), (slice(1.0),))])  # fmt: skip
def test_values_that_differ_are_not_equal(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    def build(graph: Graph, x: Node) -> Node:
        return call(graph, operator.mul, call(graph, torch.sub, x, *first), call(graph, torch.sub, x, *second))

    assert common(build) == ["sub", "sub_1", "mul"]


def test_equal_values_in_containers_are_equal() -> None:
    def build(graph: Graph, x: Node) -> Node:
        nested = [(1, {"k": slice(x, 2)}), torch.float32, -0.0, None, torch.Size([1])]
        return call(graph, operator.mul, call(graph, torch.sub, x, nested), call(graph, torch.sub, x, list(nested)))

    assert common(build) == ["sub", "mul"]


def test_keywords_are_part_of_an_expression() -> None:
    def build(graph: Graph, x: Node) -> Node:
        return call(graph, operator.mul, call(graph, torch.sub, x, other=1), call(graph, torch.sub, x, alpha=1))

    assert common(build) == ["sub", "sub_1", "mul"]


def test_two_results_that_leave_the_graph_stay_two() -> None:
    assert common(lambda g, x: (call(g, torch.sin, x), call(g, torch.sin, x))) == ["sin", "sin_1"]
    assert common(lambda g, x: [g.call_method("view", (call(g, torch.sin, x), -1)) for _ in "ab"]) == [
        "sin",
        "view",
        "sin_1",
        "view_1",
    ]
    assert common(lambda g, x: [g.call_method("contiguous", (call(g, torch.sin, x),)) for _ in "ab"]) == [
        "sin", "contiguous", "sin_1", "contiguous_1"]  # fmt: skip


def test_one_result_that_leaves_the_graph_may_be_shared() -> None:
    assert common(lambda g, x: (call(g, torch.sin, x), call(g, torch.exp, call(g, torch.sin, x)))) == ["sin", "exp"]


def test_three_are_not_merged_into_one_that_leaves_twice() -> None:
    def build(graph: Graph, x: Node) -> Any:
        inside = call(graph, torch.sin, x)
        return (call(graph, torch.exp, inside), call(graph, torch.sin, x), call(graph, torch.sin, x))

    left = common(build)
    assert left.count("sin_1") + left.count("sin_2") + left.count("sin") == 2


def test_a_mutated_result_is_not_shared() -> None:
    def build(graph: Graph, x: Node) -> Node:
        a, b = call(graph, torch.sin, x), call(graph, torch.sin, x)
        graph.call_method("add_", (graph.call_method("view", (a, -1)), 1))
        return call(graph, operator.add, call(graph, torch.exp, a), call(graph, torch.exp, b))

    assert common(build) == ["sin", "sin_1", "view", "add_", "exp", "exp_1", "add"]


def test_an_effect_stands_between() -> None:
    def build(graph: Graph, x: Node) -> Node:
        a = call(graph, torch.sin, x)
        graph.call_method("add_", (x, 1))
        return call(graph, operator.add, a, call(graph, torch.sin, x))

    assert common(build) == ["sin", "add_", "sin_1", "add"]


def test_random_numbers_are_drawn_twice() -> None:
    assert common(lambda g, x: call(g, operator.add, call(g, torch.rand, 2), call(g, torch.rand, 2))) == [
        "rand",
        "rand_1",
        "add",
    ]


def test_tuples_that_are_added_share_their_items() -> None:
    def build(graph: Graph, x: Node) -> Any:
        pairs = [call(graph, torch.split, call(graph, torch.sin, x), 1) for _ in "ab"]
        return [call(graph, operator.add, pair, pair) for pair in pairs]

    assert common(build) == ["sin", "split", "sin_1", "split_1", "add", "add_1"]


def test_state_is_read_once() -> None:
    assert common(lambda g, x: [g.get_attr("w"), g.get_attr("w")]) == ["w"]


def test_shapes() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_module("lin", (x,))
    b = graph.call_function(torch.max, (a, 0))
    c = graph.call_function(operator.getitem, (b, 1))
    size = graph.call_function(getattr, (a, "shape"))
    graph.output({"c": c, "size": size})
    module = GraphModule({"lin": nn.Linear(3, 2)}, graph)
    with torch.no_grad():
        result = propagate_shapes(module, torch.ones(4, 3))
    assert result["c"].shape == (2,) and result["size"] == (4, 2)
    meta = a.meta["tensor_meta"]
    assert isinstance(meta, TensorMeta) and meta == TensorMeta(
        torch.Size([4, 2]), torch.float32, torch.device("cpu"), False, (2, 1)
    )
    assert str(meta) == "float32[4, 2]" and a.meta["type"] is torch.Tensor
    assert b.meta["type"] is torch.return_types.max and [m.dtype for m in b.meta["tensor_meta"]] == [
        torch.float32,
        torch.int64,
    ]
    assert size.meta == {"type": torch.Size}
    assert propagate_shapes(module, torch.ones(1, 3))["c"].shape == (2,)
    assert a.meta["tensor_meta"].shape == (1, 2) and a.meta["tensor_meta"].requires_grad
    assert propagate_shapes({"lin": module.lin}, torch.ones(5, 3), graph=graph)["size"] == (5, 2)
    assert "float32[5, 2]" in table(graph) and "int64[2]" in table(graph)


def test_shapes_of_layouts_without_strides() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_method("to_sparse", (x,))
    graph.output(y)
    propagate_shapes({}, torch.eye(2), graph=graph)
    assert y.meta["tensor_meta"].stride is None


def test_tables() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.add, (x, torch.ones(100)), {"alpha": 2})
    y.meta["where"] = ("/some/dir/user.py", 12)
    graph.output((y, "z" * 200))
    lines = table(graph).splitlines()
    assert lines[0].split() == ["op", "name", "target", "arguments", "where"]
    assert lines[3].split() == ["call_function", "add", "torch.add", "%x,", "Tensor(100),", "alpha=2", "user.py:12"]
    assert max(map(len, lines)) < 140 and len(lines) == 5
