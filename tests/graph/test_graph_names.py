"""Names of nodes: identifiers, unique, like their hints."""

from __future__ import annotations

import builtins
import keyword

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framecap.graph import Graph, GraphError
from framecap.graph.names import RESERVED, Names, clean


@pytest.mark.parametrize(
    "hint, name",
    [("x", "x"), ("layer.0.weight", "layer_0_weight"), ("<lambda>", "lambda_1"), ("for", "for_1"), ("print", "print_1"),
     ("9lives", "_9lives"), ("", "value"), ("***", "value"), ("é", "value"), ("aé", "a"), ("self", "self_1"),
     ("torch", "torch_1"), ("None", "None_1"), ("a b", "a_b"), ("x_1", "x_1"), ("relu_", "relu_"), ("__x", "__x"),
     ("__debug__", "__debug___1"), ("x" * 500, "x" * 80)],
)  # fmt: skip
def test_hints(hint: str, name: str) -> None:
    assert Names().take(hint) == name


def test_numbers_count_up() -> None:
    names = Names()
    assert [names.take("x") for _ in range(3)] == ["x", "x_1", "x_2"]
    assert names.take("x_1") == "x_3" and names.take("x_9") == "x_9" and names.take("x") == "x_4"
    assert names.take("x_01") == "x_01" and names.take("x_01") == "x_01_1"


def test_what_is_released_newest_first_is_given_again() -> None:
    names = Names()
    given_ = [names.take("x") for _ in range(5)]
    for name in reversed(given_[2:]):
        names.release(name)
    assert [names.take("x") for _ in range(3)] == given_[2:]
    names.release("x_1")
    assert names.take("x") == "x_5" and names.take("x_1") == "x_1"


def test_claims() -> None:
    names = Names()
    names.claim("print")
    with pytest.raises(GraphError, match="'print' is taken"):
        names.claim("print")
    assert "print" in names and "x" not in names and "for" in names


@given(st.lists(st.text(max_size=6) | st.sampled_from(["x", "x_1", "x_2", "x_1_1", "if", "int", "_", "_1", "x_"]), max_size=30),
       st.lists(st.integers(0, 29)))  # fmt: skip
def test_names_are_unique_identifiers(hints: list[str], released: list[int]) -> None:
    names = Names()
    live: list[str] = []
    for i, hint in enumerate(hints):
        name = names.take(hint)
        assert name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
        assert name not in live and name not in RESERVED and not hasattr(builtins, name)
        live.append(name)
        if i in released:
            names.release(live.pop(len(live) // 2))


@given(st.text())
def test_clean_gives_identifiers_and_leaves_them(hint: str) -> None:
    assert clean(hint).isidentifier() and clean(clean(hint)) == clean(hint)


def test_nodes_are_named_after_what_they_do() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    made = [graph.placeholder("*args"), graph.get_attr("layers.0.weight"), graph.call_module("layers.1", (x,)),
            graph.call_function(torch.nn.functional.gelu, (x,)), graph.call_function(lambda a: a, (x,)),
            graph.call_function(torch.nn.Identity(), (x,)), graph.call_method("sum", (x,))]  # fmt: skip
    assert [node.name for node in made] == [
        "args",
        "layers_0_weight",
        "layers_1",
        "gelu",
        "lambda_1",
        "Identity",
        "sum_1",
    ]
    assert made[0].target == "*args"
