"""Differences of two graphs."""

from __future__ import annotations

import framecap
from framecap.graph import diff


def test_equal_graphs_have_none_whatever_their_names() -> None:
    a = framecap.capture(lambda x: (x + 1).relu())

    def named(value):  # type: ignore[no-untyped-def]
        one_more = value + 1
        return one_more.relu()

    b = framecap.capture(named)
    assert diff(a.graph, a.graph.copy()) == ""
    assert diff(a.graph, b.graph, context=0).splitlines() == ["- %x = placeholder x", "+ %value = placeholder value"]
    b.graph.find_nodes(op="placeholder")[0].target = "x"
    assert diff(a.graph, b.graph) == ""


def test_what_was_removed_and_what_is_new() -> None:
    a = framecap.capture(lambda x: (x + 1).relu() * 2)
    b = framecap.capture(lambda x: (x + 1).sigmoid() * 2)
    assert diff(a.graph, b.graph).splitlines() == [
        "  %x = placeholder x",
        "  %add = call_function operator.add(%x, 1)",
        "- %relu = call_method relu(%add)",
        "- %mul = call_function operator.mul(%relu, 2)",
        "- output %mul",
        "+ %sigmoid = call_method sigmoid(%add)",
        "+ %mul = call_function operator.mul(%sigmoid, 2)",
        "+ output %mul",
    ]
    assert diff(a.graph, b.graph, context=0).splitlines()[0].startswith("- %relu")
