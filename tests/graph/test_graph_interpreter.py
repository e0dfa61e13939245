"""Running a graph node by node, and transforming it the same way."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn

from framecap.graph import Graph, GraphError, GraphModule, Interpreter, Node, Transformer, check


def sample() -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", 10)
    rest = graph.placeholder("*rest")
    a = graph.call_module("lin", (x,))
    b = graph.call_method("mul", (a, y))
    b.meta["where"] = ("f.py", 1)
    c = graph.call_function(torch.add, (b, graph.get_attr("lin.bias")))
    graph.output((c, rest))
    return GraphModule(_state(), graph, "Sample")


def _state() -> dict[str, Any]:
    linear = nn.Linear(2, 2)
    return {"lin": linear, "lin.bias": linear.bias}


def test_arguments_are_taken_as_the_function_takes_them() -> None:
    module = sample()
    x = torch.ones(1, 2)
    for args, kwargs in (((x,), {}), ((x, 2), {}), ((x,), {"y": 3}), ((x, 2, 3, 4), {}), ((), {"x": x})):
        value, rest = Interpreter(module).run(*args, **kwargs)
        expected, expected_rest = module(*args, **kwargs)
        assert torch.equal(value, expected) and rest == expected_rest
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Interpreter(module).run()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Interpreter(module).run(x, z=1)


def test_each_operation_has_a_method() -> None:
    seen: list[tuple[str, Any]] = []

    class Recorder(Interpreter):
        def run_node(self, node: Node) -> Any:
            seen.append((node.op, node.name))
            return super().run_node(node)

        def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return super().call_method("add", args, kwargs)

    module = sample()
    x = torch.ones(1, 2)
    value, _ = Recorder(module).run(x, 5)
    assert torch.equal(value, module.lin(x) + 5 + module.lin.bias)
    assert [op for op, _ in seen] == ["placeholder"] * 3 + [
        "call_module",
        "call_method",
        "get_attr",
        "call_function",
        "output",
    ]


def test_errors_name_the_node_and_stay_what_they_are() -> None:
    module = sample()
    with pytest.raises(RuntimeError) as caught:
        Interpreter(module).run(torch.ones(1, 3))
    assert caught.value.__notes__ == ["while executing %lin = call_module lin(%x)"]


def test_values_are_dropped_after_their_last_use() -> None:
    class Value:
        pass

    made: list[Any] = []
    alive: list[list[bool]] = []

    def make(*args: Any) -> Value:
        alive.append([ref() is not None for ref in made])
        value = Value()
        made.append(weakref.ref(value))
        return value

    graph = Graph()
    a = graph.call_function(make)
    b = graph.call_function(make, (a,))
    graph.call_function(make)
    c = graph.call_function(make, (b,))
    graph.output(c)
    interpreter = Interpreter({}, graph)
    result = interpreter.run()
    assert alive == [[], [True], [False, True], [False, True, False]]
    assert made[3]() is result and interpreter.env == {}


def test_a_graph_needs_a_module() -> None:
    with pytest.raises(GraphError, match="a Linear has no graph; expected a GraphModule, or a graph besides"):
        Interpreter(nn.Linear(1, 1))


def test_a_transformer_copies() -> None:
    module = sample()
    new = Transformer(module).transform()
    check(new.graph, new)
    assert new is not module and new.code == module.code and new.lin is module.lin and type(new).__name__ == "Sample"
    assert [n.meta for n in new.graph.nodes] == [n.meta for n in module.graph.nodes]
    with pytest.raises(GraphError, match="call transform"):
        Transformer(module).run(1)


def test_a_transformer_may_give_other_nodes_or_values() -> None:
    class Change(Transformer):
        def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            doubled = super().call_function(torch.add, (args[0], args[0]), {})
            return super().call_function(torch.neg, (doubled,), {})

        def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return 7 if target == "y" else super().placeholder(target, args, kwargs)

        def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return 0.5

    module = sample()
    new = Change(module).transform()
    check(new.graph, new)
    x = torch.ones(1, 2)
    assert torch.equal(new(x)[0], -2 * module.lin(x) + 0.5)
    assert [n.name for n in new.graph.nodes] == ["x", "rest", "lin", "mul", "mul_1", "add", "output"]
    assert new.graph.find_nodes(target=torch.neg)[0].meta == {"where": ("f.py", 1)}
