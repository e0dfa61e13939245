"""Graphs as text: what is read is what was written, and nothing else is taken for a graph."""

from __future__ import annotations

import operator

import pytest
import torch

from framecap.graph import Graph, GraphError, GraphModule, check, from_text, to_text

TEXT = """\
x = placeholder['x']()
y = placeholder['y'](2.5)
weight = get_attr['lin.weight']()
add = call_function['operator.add'](x, y)
cut = call_function['operator.getitem'](add, (slice(None, 2, None), ..., None, -1))
relu = call_module['layers.0'](cut)
view = call_method['view'](relu, Size(1, -1), **{'not-a-name': [1, {'a': x}]})
to = call_method['to'](view, torch.float64, device=device('cpu'))
full = call_function['torch.ops.aten.full.default']([2], float('-inf'), memory_format=torch.channels_last)
both = call_function['builtins.tuple']((to, complex(-0.0, float('nan')), range(0, 3, 1), function('torch.relu')))
end = output['output'](both)
"""


def test_reading_and_writing() -> None:
    graph = from_text(TEXT)
    assert to_text(graph) == TEXT
    check(graph)
    add = graph.find_nodes(op="call_function")[0]
    assert add.target is operator.add and [n.name for n in add.users] == ["cut"]
    cut = graph.find_nodes(target=operator.getitem)[0]
    assert cut.args[1] == (slice(None, 2), ..., None, -1)


def test_what_is_read_can_be_run() -> None:
    graph = from_text("# a comment\nx = placeholder['x']()\ny = call_method['relu'](x)\noutput = output['output']((y,))")
    assert torch.equal(GraphModule(torch.nn.Module(), graph)(torch.tensor([-1.0, 2.0]))[0], torch.tensor([0.0, 2.0]))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = placeholder[", "line 1"),
        ("x = placeholder['x']()\ny = call_method['relu'](z)", "line 2 .*'z' is no node"),
        ("x = placeholder['x']()\nx = placeholder['x']()", "line 2 .*x"),
        ("x = call_function['os.system']('true')", "os.system"),
        ("x = call_function['builtins.eval']('1')", "builtins.eval"),
        ("x = nothing['x']()", "no operation"),
        ("x = placeholder['x'](__import__('os'))", "no argument"),
        ("x = placeholder['x'](*[1])", "no argument"),
        ("x = output['output'](torch.load)", "torch.load"),
        ("x = output['output'](a=1, **[2])", "dict of names"),
        ("print(1)", "expected name = op"),
        ("x = output['output'](float('a'))", "line 1"),
        ("x = output['output']({[1]: 2})", "line 1"),
    ],
)
def test_what_is_no_graph_is_refused(text: str, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        from_text(text)


def test_what_has_no_text_is_refused() -> None:
    graph = Graph()
    graph.output(torch.ones(2))
    with pytest.raises(GraphError, match="node output Tensor.2. can't be written as text: .* value of type Tensor"):
        to_text(graph)
    graph = Graph()
    graph.output(graph.call_function(lambda: 1))
    with pytest.raises(GraphError, match="can't be written as text: .*register_target"):
        to_text(graph)
