"""To torch.fx and back: nothing is lost, and both sides run."""

from __future__ import annotations

import math
import operator
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
import torch.fx
from graph_helpers import same
from torch import nn

import framecap
from framecap.graph import Graph, GraphError, GraphModule, check, from_fx, to_fx, torch_backend

Point = namedtuple("Point", "x y")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Dropout(0.5)])
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.plain = torch.full((2,), 2.0)
        self.scale = nn.Parameter(torch.full((2,), 3.0))

    def forward(self, x: torch.Tensor, input: float = 2.0, *args: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        y = torch.cat([x, x * input], dim=-1)[..., 1:3]
        y = y + self.kept + self.passing + self.plain * self.scale
        return {"y": (y, [y.sum(), y.shape[0]]), "p": Point(y, 1)}


def meta_of(module: Any) -> list[tuple[str, str, Any, dict[str, Any]]]:
    notes = [{key: note for key, note in node.meta.items() if key != "fx_type"} for node in module.graph.nodes]
    return [(node.op, node.name, node.target, note) for node, note in zip(module.graph.nodes, notes)]


def test_from_torch_fx_and_back() -> None:
    traced = torch.fx.symbolic_trace(Model().eval())
    for i, node in enumerate(traced.graph.nodes):
        node.meta["note"] = i
    traced.meta["of the module"] = 1
    ours = from_fx(traced)
    check(ours.graph, ours)
    again = to_fx(ours)
    again.graph.lint()
    assert meta_of(traced) == meta_of(ours) == meta_of(again)
    assert [(str(n.args), str(n.kwargs), n.type) for n in traced.graph.nodes] == [
        (str(n.args), str(n.kwargs), n.type) for n in again.graph.nodes
    ]
    assert again.code == traced.code and again.meta == traced.meta and again.training is traced.training is False
    x = torch.ones(3, 2)
    assert same(traced(x), ours(x)) and same(ours(x), again(x)) and same(ours(x, input=3.0), again(x, input=3.0))
    # The state is the very same. torch.fx makes all tensors persistent buffers; what it has is kept.
    for (name, value), (other_name, other) in zip(traced.state_dict().items(), again.state_dict().items()):
        assert name == other_name and value.data_ptr() == other.data_ptr()
    assert again.scale is traced.scale is ours.scale


def test_kinds_of_state_survive() -> None:
    root = Model()
    graph = Graph()
    graph.output([graph.get_attr(name) for name in ("kept", "passing", "plain", "scale", "layers.0.weight")])
    module = GraphModule(root, graph)
    converted = to_fx(module)
    back = from_fx(converted)
    for other in (module, converted, back):
        assert list(other.state_dict()) == ["kept", "scale", "layers.0.weight"] or set(other.state_dict()) == {
            "kept", "scale", "layers.0.weight"}  # fmt: skip
        assert set(dict(other.named_buffers())) == {"kept", "passing"} and other.plain is root.plain
        assert all(
            a is b for a, b in zip(other(), (root.kept, root.passing, root.plain, root.scale, root.layers[0].weight))
        )


def test_values_that_torch_fx_cannot_write() -> None:
    generator, weight, table = torch.Generator(), torch.ones(2), OrderedDict(a=1)
    graph = Graph()
    x = graph.placeholder("x")
    noise = graph.call_function(torch.rand, (2,), {"generator": generator})
    view = graph.call_method("reshape", (x, torch.Size([2, 1])))
    power = graph.call_function(operator.pow, (-2, view))
    graph.output(
        [
            noise,
            power,
            weight,
            table,
            [weight, (weight,)],
            len,
            torch.Size([3]),
            -0.0,
            complex(1, -0.0),
            {"k": generator},
        ]
    )
    module = GraphModule({}, graph)
    converted = to_fx(module)
    converted.graph.lint()
    x_ = torch.tensor([1.0, 2.0])
    generator.manual_seed(0)
    ours = module(x_)
    generator.manual_seed(0)
    theirs = converted(x_)
    assert same(ours[:2], theirs[:2]) and theirs[2] is weight and theirs[3] is table and theirs[4][0] is weight
    assert theirs[5] is len and same(theirs[7:9], [-0.0, complex(1, -0.0)]) and theirs[9]["k"] is generator
    assert theirs[1].flatten().tolist() == [-2.0, 4.0]
    back = from_fx(converted)
    assert str(back.graph) == str(graph) and back.code == module.code
    assert (
        back.graph.find_nodes(op="get_attr") == []
        and type(back.graph.find_nodes(target="reshape")[0].args[1]) is torch.Size
    )


def test_names_that_torch_fx_would_change() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    for name in ("x_01", "x_1", "a", "a_0", "device_1"):
        x = graph.create_node("call_function", torch.relu, (x,), name=name)
    graph.output(x)
    back = from_fx(to_fx(GraphModule({}, graph)))
    assert [n.name for n in back.graph.nodes] == ["x", "x_01", "x_1", "a", "a_0", "device_1", "output"]
    fx_graph = torch.fx.Graph()
    node = fx_graph.placeholder("input")
    node = fx_graph.call_function(torch.relu, (node,))
    node.name = "print"
    node.type = torch.Tensor
    fx_graph.output(node)
    ours = from_fx(torch.fx.GraphModule(nn.Module(), fx_graph))
    check(ours.graph)
    assert [n.name for n in ours.graph.nodes] == ["input_1", "print", "output"]
    assert ours(input=torch.tensor(-1.0)) == 0
    again = to_fx(ours)
    assert [n.type for n in again.graph.nodes] == [None, torch.Tensor, None] and again(input=torch.tensor(-1.0)) == 0


def test_notes_that_are_nodes_are_mapped() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    y.meta["source"] = x
    graph.output(y)
    converted = to_fx(GraphModule({}, graph))
    nodes = list(converted.graph.nodes)
    assert nodes[1].meta["source"] is nodes[0]
    back = list(from_fx(converted).graph.nodes)
    assert back[1].meta["source"] is back[0]


def test_what_cannot_be_converted_is_refused() -> None:
    class Program(nn.Module):
        def forward(self, pair: Any) -> Any:
            return pair[0] + pair[1]

    exported = torch.export.export(Program(), ((torch.ones(1), torch.ones(1)),)).module()
    with pytest.raises(GraphError, match=r"which changes the arguments of forward; give it a plain one first"):
        from_fx(exported)  # type: ignore[arg-type]
    graph = Graph()
    graph.output(graph.call_function(dict, (), {"class": 1}))
    with pytest.raises(GraphError, match="can't write the keyword arguments .'class'. of node 'dict_1'"):
        to_fx(GraphModule({}, graph))


def test_torch_compile_takes_what_is_converted() -> None:
    module = GraphModule(Model().eval(), from_fx(torch.fx.symbolic_trace(Model().eval())).graph)
    converted = to_fx(module)
    compiled = torch.compile(converted, backend="aot_eager", fullgraph=True)
    x = torch.randn(4, 2)
    assert torch.allclose(compiled(x)["y"][0], module(x)["y"][0])


def test_a_backend_of_ours_serves_torch_compile() -> None:
    seen: list[GraphModule] = []

    def backend(module: GraphModule, examples: list[Any]) -> Any:
        check(module.graph, module)
        seen.append(module)
        return module

    model = Model().eval()
    x = torch.randn(4, 2, requires_grad=True)
    compiled = torch.compile(model, backend=torch_backend(backend), fullgraph=True)
    (result,) = torch.autograd.grad(compiled(x)["y"][0].sum(), x)
    (expected,) = torch.autograd.grad(model(x)["y"][0].sum(), x)
    assert torch.equal(result, expected)
    assert len(seen) == 1 and len(seen[0].graph.nodes) > 3
    torch.compiler.reset()


def test_special_numbers_stay_in_the_graph() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output([graph.call_method("masked_fill", (x, x, value)) for value in (math.inf, -math.inf, math.nan, 10**30)])
    converted = to_fx(GraphModule({}, graph))
    assert not converted.graph.find_nodes(op="get_attr")
    back = from_fx(converted)
    assert same([n.args[2] for n in back.graph.find_nodes(op="call_method")], [math.inf, -math.inf, math.nan, 10**30])


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x: torch.Tensor) -> Any:
        pooled = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        z = self.last(pooled) + self.shift.sin() * 2
        return {"a": z[:, 1:], "b": (z, z.shape[0])}


def assert_close(actual: Any, expected: Any) -> None:
    assert torch.allclose(actual["a"], expected["a"], atol=1e-6) and torch.allclose(actual["b"][0], expected["b"][0], atol=1e-6)
    assert actual["b"][1] == expected["b"][1]


@pytest.mark.parametrize("is_leaf", [framecap.torch_nn_leaves, framecap.no_leaves])
def test_tools_of_torch_take_the_graph(is_leaf: Any) -> None:
    from torch.fx.experimental.const_fold import split_const_subgraphs
    from torch.fx.experimental.optimization import fuse
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupport
    from torch.fx.passes.shape_prop import ShapeProp

    class Functions(OperatorSupport):
        def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
            return node.op == "call_function"

    torch.manual_seed(0)
    model, x = Convolution().eval(), torch.randn(2, 3, 8, 8)
    expected = model(x)
    ours = framecap.capture(model, x, is_leaf=is_leaf)
    module = to_fx(ours)
    module.graph.lint()
    assert_close(ShapeProp(module).propagate(x), expected)
    assert module.graph.output_node().args[0]["a"].meta["tensor_meta"].shape == (2, 3)
    assert_close(torch.fx.Interpreter(module).run(x), expected)
    partitioned = CapabilityBasedPartitioner(to_fx(ours), Functions(), allows_single_node_partition=True)
    for made in (
        torch.fx.symbolic_trace(module), torch.fx.Transformer(module).transform(), fuse(to_fx(ours)),
        split_const_subgraphs(to_fx(ours)), partitioned.partition_and_fuse(), torch.compile(ours, backend="eager", fullgraph=True),
        torch.compile(module, backend="aot_eager", fullgraph=True), torch.export.export(ours, (x,)).module(),
    ):  # fmt: skip
        assert_close(made(x), expected)
    torch.compiler.reset()
