"""Each invariant of a graph, broken: the message names the offender, says what was expected, and shows where."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from framecap.graph import Graph, GraphError, Node, check


def sample() -> tuple[Graph, Node, Node, Node, Node]:
    graph = Graph()
    x = graph.placeholder("x")
    w = graph.get_attr("lin.weight")
    mul = graph.call_function(torch.mul, (x, [w]))
    lin = graph.call_module("lin", (mul,))
    graph.output(lin)
    return graph, x, w, mul, lin


class Root(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)
        self.number = 3


def test_a_good_graph_passes() -> None:
    graph, *_ = sample()
    check(graph)
    check(graph, Root())
    check(graph, {"lin.weight": torch.ones(1), "lin": torch.relu})
    graph.lint(Root())


def swap(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    lin.append(mul)


def rename(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    mul.name = "x"


def odd_name(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    mul.name = "class"


def odd_op(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    mul.op = "call"


def odd_function(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    mul.target = "mul"


def odd_string(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    lin.target = 3


def no_object(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    with graph.inserting_before(lin):
        graph.call_method("relu", ())


def lost_user(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    w.users.clear()


def false_user(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    x.users[lin] = None


def appended_in_place(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    with graph.inserting_after(x):
        other = graph.get_attr("lin.bias")
    mul.args[1].append(other)


def removed_in_place(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    mul.args[1].clear()


def late_placeholder(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    with graph.inserting_after(w):
        graph.placeholder("y")


def plain_after_default(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    with graph.inserting_after(x):
        graph.placeholder("y", 1)
        graph.placeholder("z")


def odd_parameter(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    x.target = "not a name"


def second_output(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    graph.output(x)


def after_output(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    graph.call_method("relu", (x,))


def empty_output(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    graph.output_node.args = ()


def no_output(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    graph.truncate(4)


def foreign(graph: Graph, x: Node, w: Node, mul: Node, lin: Node) -> None:
    x.graph = Graph()


@pytest.mark.parametrize(
    "damage, message",
    [
        (swap, "node 'lin' (call_module) uses 'mul' before it is defined"),
        (rename, "node 'x' (call_function) has the name of an earlier node; expected names to be unique"),
        (odd_name, "node 'class' (call_function) has a name that is no Python identifier"),
        (odd_op, "node 'mul' (call) has the operation 'call'; expected one of placeholder, get_attr, call_function"),
        (odd_function, "node 'mul' (call_function) has a target of type str; expected a callable"),
        (odd_string, "node 'lin' (call_module) has a target of type int; expected a string"),
        (no_object, "node 'relu' (call_method) calls a method of nothing; expected the object as its first argument"),
        (lost_user, "node 'mul' (call_function) uses 'lin_weight', which doesn't count it among its users"),
        (false_user, "node 'x' (placeholder) counts 'lin' among its users, which doesn't use it"),
        (appended_in_place, "node 'mul' (call_function) was given 'lin_bias' by changing its arguments in place"),
        (removed_in_place, "node 'mul' (call_function) lost its argument 'lin_weight' by a change in place"),
        (late_placeholder, "node 'y' (placeholder) comes after a node that isn't one; expected inputs first"),
        (plain_after_default, "node 'z' (placeholder) is one that can't come after the one before"),
        (odd_parameter, "node 'x' (placeholder) has the target 'not a name', which can't be the name of a parameter"),
        (second_output, "node 'output_1' (output) comes after the output; expected the output to be the last node"),
        (after_output, "node 'relu' (call_method) comes after the output"),
        (empty_output, "node 'output' (output) has 0 arguments; expected one, the result"),
        (no_output, "the graph has no output; expected one as its last node"),
        (foreign, "node 'x' (placeholder) belongs to another graph"),
    ],
)
def test_each_fault_is_named(damage: Callable[..., None], message: str) -> None:
    graph, *nodes = sample()
    damage(graph, *nodes)
    with pytest.raises(GraphError, match=re.escape(message)):
        check(graph)


@pytest.mark.parametrize(
    "root, target, message",
    [
        (Root(), "lin.wait", "has the target 'lin.wait', but lin, of type Linear, has no attribute 'wait'"),
        (Root(), "line", "has the target 'line', but the root, of type Root, has no attribute 'line'"),
        ({"lin": 1}, "lin.weight", "has the target 'lin.weight', but the 1 objects given as root have no 'lin.weight'"),
        (Root(), "number", "calls 'number', an object of type int; expected a module"),
    ],
)
def test_targets_are_looked_up(root: Any, target: str, message: str) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module(target, (x,)))
    check(graph)
    with pytest.raises(GraphError, match=re.escape(message)):
        check(graph, root)


def test_the_neighbourhood_is_shown() -> None:
    graph = Graph()
    last = graph.placeholder("x")
    nodes = [last]
    for _ in range(9):
        nodes.append(graph.call_function(torch.relu, (nodes[-1],)))
    graph.output(nodes[-1])
    nodes[5].target = None
    with pytest.raises(GraphError) as caught:
        check(graph)
    assert str(caught.value).splitlines() == [
        "node 'relu_4' (call_function) has a target of type NoneType; expected a callable",
        "     %relu_1 = call_function torch.relu(%relu)",
        "     %relu_2 = call_function torch.relu(%relu_1)",
        "     %relu_3 = call_function torch.relu(%relu_2)",
        "  -> %relu_4 = call_function None(%relu_3)",
        "     %relu_5 = call_function torch.relu(%relu_4)",
        "     %relu_6 = call_function torch.relu(%relu_5)",
        "     %relu_7 = call_function torch.relu(%relu_6)",
    ]
