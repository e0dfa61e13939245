"""Finding and replacing subgraphs: what is found, what is left alone, and that the rest stays as it was."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framecap
from framecap.graph import AnyOf, Graph, GraphError, GraphModule, OfType, check, find_matches, replace_pattern

X = torch.linspace(-2, 2, 6).reshape(2, 3)


def captured(function: Callable[..., Any]) -> GraphModule:
    return framecap.capture(function)


def rewritten(function: Any, pattern: Any, replacement: Any, count: int, **options: Any) -> GraphModule:
    """The function's graph with replacements, of which there must be ``count``."""
    module = captured(function)
    assert len(replace_pattern(module, captured(pattern), captured(replacement), **options)) == count
    check(module.graph, module)
    return module


def names(module: GraphModule) -> list[str]:
    return [n.target if isinstance(n.target, str) else n.target.__name__ for n in module.graph.nodes]


def test_each_occurrence_is_replaced_and_nothing_else() -> None:
    module = rewritten(
        lambda x, y: torch.relu(x + 1) * torch.relu(torch.relu(y)), lambda x: torch.relu(x), lambda x: F.gelu(x), 3
    )
    assert torch.equal(module(X, X), F.gelu(X + 1) * F.gelu(F.gelu(X)))
    assert names(module).count("gelu") == 3 and "relu" not in names(module)


def test_the_replacement_of_one_feeds_the_next() -> None:
    module = rewritten(lambda x: x * 2 + 1 + 1, lambda a: a + 1, lambda a: a - 1, 2)
    assert torch.equal(module(X), X * 2 - 1 - 1)


def test_a_wildcard_stands_for_the_same_everywhere() -> None:
    module = rewritten(lambda x, y: (x * x) + (x * y), lambda a: a * a, lambda a: torch.square(a), 1)
    assert torch.equal(module(X, X + 1), torch.square(X) + X * (X + 1))


def test_a_wildcard_may_be_a_constant() -> None:
    module = rewritten(lambda x: x * 3 + x * 2.5, lambda a, b: a * b, lambda a, b: torch.mul(b, a), 2)
    assert names(module).count("mul") == 2 and torch.equal(module(X), 3 * X + 2.5 * X)


def test_constants_match_by_type_and_value() -> None:
    module = captured(lambda x: (x + 1, x + 1.0, x + True))
    assert [m["add"].args[1] for m in find_matches(module, captured(lambda a: a + 1))] == [1]


def test_inner_values_that_are_used_outside_are_left() -> None:
    def program(x: Any) -> Any:
        y = x + 1
        return torch.relu(y), y

    assert torch.equal(rewritten(program, lambda a: torch.relu(a + 1), lambda a: a, 0)(X)[1], X + 1)


def test_several_outputs() -> None:
    def program(x: Any) -> Any:
        s, c = torch.sin(x), torch.cos(x)
        return s * c, s

    def pattern(x: Any) -> Any:
        return torch.sin(x), torch.cos(x)

    def replacement(x: Any) -> Any:
        return torch.cos(x), torch.sin(x)

    module = rewritten(program, pattern, replacement, 1)
    assert torch.equal(module(X)[1], torch.cos(X)) and torch.equal(module(X)[0], torch.cos(X) * torch.sin(X))


def test_a_constant_or_an_input_as_replacement() -> None:
    assert torch.equal(rewritten(lambda x: (x * 1) + 2, lambda a: a * 1, lambda a: a, 1)(X), X + 2)


def test_predicates_and_conditions() -> None:
    program, pattern, new = lambda x: (x + 1) + 5, lambda a, b: a + b, lambda a, b: a - b
    module = rewritten(program, pattern, new, 1, predicates={"b": lambda value: value == 5})
    assert torch.equal(module(X), (X + 1) - 5)
    module = rewritten(program, pattern, new, 1, where=[lambda match: match["b"] == 1])
    assert torch.equal(module(X), (X - 1) + 5)


def test_any_of_several_targets() -> None:
    pattern = Graph()
    pattern.output(pattern.call_function(AnyOf(torch.relu, F.relu, "relu"), (pattern.placeholder("x"),)))
    module = captured(lambda x: torch.relu(F.relu(x).relu()).sum())
    assert len(find_matches(module, pattern)) == 3
    with pytest.raises(GraphError, match="can be matched, but not run"):
        GraphModule(nn.Module(), pattern)(X)


def test_modules_by_class() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU()).eval()
    pattern = Graph()
    linear = pattern.call_function(OfType(nn.Linear), (pattern.placeholder("x"),))
    pattern.output(pattern.call_function(OfType(nn.ReLU), (linear,)))
    module = captured(model)
    found = find_matches(module, pattern)
    assert [list(map(str, (n.target for n in match.nodes.values()))) for match in found] == [["0", "1"], ["2", "3"]]


def test_places_in_the_users_code_are_kept() -> None:
    module = captured(lambda x: torch.relu(x))
    where = module.graph.find_nodes(op="call_function")[0].meta["where"]
    replace_pattern(module, captured(lambda x: torch.relu(x)), captured(lambda x: F.gelu(x)))
    assert module.graph.find_nodes(op="call_function")[0].meta["where"] == where


def test_effects_do_not_change_places() -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        a = y + 1
        y.mul_(2)
        return a * y

    def pattern(y: Any) -> Any:
        a = y + 1
        return a * y

    before = captured(program)(X)
    module = rewritten(program, pattern, lambda y: (y + 1) * y, 0)
    assert torch.equal(module(X), before)


def test_attributes_may_be_read_anywhere_and_shared() -> None:
    model = nn.Module()
    model.shift = nn.Parameter(torch.ones(3))
    graph = Graph()
    x = graph.placeholder("x")
    shift = graph.get_attr("shift")
    copied = graph.call_method("clone", (x,))
    changed = graph.call_method("mul_", (copied, 2))
    first = graph.call_function(operator.add, (changed, shift))
    graph.output(graph.call_function(operator.add, (first, shift)))
    module = GraphModule(model, graph)
    pattern, new = Graph(), Graph()
    pattern.output(pattern.call_function(operator.add, (pattern.placeholder("x"), pattern.get_attr("shift"))))
    new.output(new.call_function(operator.sub, (new.placeholder("x"), new.get_attr("shift"))))
    assert len(replace_pattern(module, pattern, new)) == 2
    check(module.graph, module)
    assert torch.equal(module(X), X * 2 - 2)


def test_an_input_that_needs_an_output() -> None:
    # b is made from one output, and is an input of the other: nothing can stand for both.
    def program(x: Any) -> Any:
        s = torch.sin(x)
        b = s * 2
        return s, torch.add(x, b)

    def pattern(x: Any, b: Any) -> Any:
        return torch.sin(x), torch.add(x, b)

    module = rewritten(program, pattern, lambda x, b: (torch.cos(x), torch.sub(x, b)), 0)
    assert torch.equal(module(X)[1], X + torch.sin(X) * 2)


@pytest.mark.parametrize(
    ("pattern", "replacement", "problem"),
    [
        (lambda x: torch.relu(x), lambda x, z: x + z, "has the input 'z'"),
        (lambda x: torch.relu(x), lambda x: (x, x), "has 1 outputs, but the replacement has 2"),
        (lambda x: x, lambda x: x, "must return what its operators compute"),
    ],
)
def test_graphs_that_do_not_fit(pattern: Any, replacement: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        replace_pattern(captured(lambda x: torch.relu(x)), captured(pattern), captured(replacement))


def test_state_that_the_module_does_not_have() -> None:
    new = Graph()
    new.output(new.call_function(operator.add, (new.placeholder("x"), new.get_attr("shift"))))
    module = captured(lambda x: torch.relu(x))
    with pytest.raises(GraphError, match="'shift'"):
        replace_pattern(module, captured(lambda x: torch.relu(x)), new)
    module.set_state("shift", torch.ones(3))
    assert len(replace_pattern(module, captured(lambda x: torch.relu(x)), new)) == 1
    assert torch.equal(module(X), X + 1)


def test_attributes_that_a_pattern_returns_are_replaced_as_its_calls_are() -> None:
    root = nn.Linear(2, 2)
    graph = Graph()
    first, second = graph.get_attr("weight"), graph.get_attr("weight")
    graph.output((graph.call_function(torch.relu, (first,)), graph.call_function(torch.add, (second, first))))
    module = GraphModule(root, graph)
    pattern = Graph()
    weight = pattern.get_attr("weight")
    pattern.output((weight, pattern.call_function(torch.relu, (weight,))))
    expected = module()
    assert len(replace_pattern(module, pattern, pattern.copy())) == 1
    check(module.graph, module)
    assert all(map(torch.equal, module(), expected))
