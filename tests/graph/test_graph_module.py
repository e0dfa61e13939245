"""GraphModule: state by reference, copies, files, edits, and other tracers reading it."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from graph_helpers import assert_all_agree, same
from torch import nn

from framecap.graph import Graph, GraphError, GraphModule, check


class Config:
    def __init__(self) -> None:
        self.scale = 2.0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
        self.tied = self.block[0].weight
        self.inner = nn.Module()
        self.inner.register_buffer("kept", torch.ones(2))
        self.inner.register_buffer("passing", torch.zeros(2), persistent=False)
        self.inner.plain = torch.full((2,), 3.0)
        self.config = Config()
        self.unused = nn.Linear(100, 100)


def graph_of_model() -> Graph:
    graph = Graph()
    x = graph.placeholder("x")
    for target in ("block.0", "block.1", "block.2"):
        x = graph.call_module(target, (x,))
    x = graph.call_function(torch.nn.functional.linear, (x, graph.get_attr("tied")))
    for target in ("inner.kept", "inner.passing", "inner.plain", "config.scale", "block.0.weight"):
        x = graph.call_function(torch.add, (x, graph.get_attr(target)))
    graph.output({"result": (x, [x]), "constant": 1})
    return graph


def test_state_is_taken_over_by_reference() -> None:
    root = Model()
    module = GraphModule(root, graph_of_model(), "Mine")
    check(module.graph, module)
    assert isinstance(module, GraphModule) and type(module).__name__ == "Mine" and str(module).startswith("Mine(")
    assert getattr(module.block, "0") is root.block[0] and module.tied is root.tied is getattr(module.block, "0").weight
    assert module.inner.kept is root.inner.kept and module.inner.plain is root.inner.plain
    assert module.config is root.config
    assert not hasattr(module, "unused") and type(module.block) is nn.Module
    assert set(module.state_dict()) == {k for k in root.state_dict() if not k.startswith("unused")}
    assert "inner.passing" in dict(module.named_buffers()) and "inner.plain" not in dict(module.named_buffers())
    assert len(list(module.parameters())) == 4, "a tied parameter counts once"


def test_training_is_the_roots_and_reaches_what_it_must() -> None:
    root = Model().eval()
    module = GraphModule(root, graph_of_model())
    assert not module.training and not module.block.training
    assert same(module(torch.ones(2, 2)), assert_all_agree(graph_of_model(), root, torch.ones(2, 2)))
    module.train()
    assert root.block[1].training and module.inner.training
    before = root.block[1].running_mean.clone()
    module(torch.randn(2, 2))
    assert not torch.equal(before, root.block[1].running_mean)


def test_a_dict_of_objects_as_root() -> None:
    weight, linear = torch.ones(2, 2), nn.Linear(2, 2)
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator_matmul, (x, graph.get_attr("a.b.weight")))
    graph.output(graph.call_module("a.lin", (y,)))
    module = GraphModule({"a.b.weight": weight, "a.lin": linear}, graph)
    assert module.a.b.weight is weight and "a.b.weight" in module.state_dict() and module.a.lin is linear
    assert_all_agree(graph, {"a.b.weight": weight, "a.lin": linear}, torch.ones(1, 2))
    with pytest.raises(GraphError, match="uses 'a.lin', but the 1 objects given as root have no 'a.lin'"):
        GraphModule({"a.b.weight": weight}, graph)


def operator_matmul(a: Any, b: Any) -> Any:
    return a @ b


def test_a_module_and_what_lies_in_it() -> None:
    linear = nn.Linear(2, 2)
    for order in (["lin.weight", "lin"], ["lin", "lin.weight"]):
        graph = Graph()
        made = [graph.get_attr(target) for target in order]
        graph.output(made)
        module = GraphModule({"lin": linear, "lin.weight": linear.weight}, graph)
        assert module.lin is linear and dict(zip(order, module())) == {"lin": linear, "lin.weight": linear.weight}
        with pytest.raises(GraphError, match="'lin.weight' is another object than 'weight' of the Linear it lies in"):
            GraphModule({"lin": linear, "lin.weight": nn.Parameter(torch.ones(1))}, graph)
    assert list(linear._parameters) == ["weight", "bias"], "nothing of root's is changed"


def test_missing_state() -> None:
    graph = Graph()
    graph.output(graph.get_attr("block.7.weight"))
    with pytest.raises(GraphError, match="uses 'block.7.weight', but block, of type Sequential, has no attribute '7'"):
        GraphModule(Model(), graph)


def test_names_that_modules_have_themselves() -> None:
    graph = Graph()
    targets = ["graph.code", "code", "forward", "deep.type.weight", "training", "graph"]
    root = {target: torch.tensor(float(i)) for i, target in enumerate(targets)}
    graph.output([graph.get_attr(target) for target in targets if target != "graph"])
    module = GraphModule(root, graph)
    assert [int(value) for value in module()] == [0, 1, 2, 3, 4]
    assert [n.target for n in graph.find_nodes(op="get_attr")] == [
        "graph_.code",
        "code_",
        "forward_",
        "deep.type_.weight",
        "training_",
    ]
    check(graph, module)
    assert module.graph is graph and isinstance(module.code, str)
    assert [int(value) for value in copy.deepcopy(module)()] == [0, 1, 2, 3, 4]


def test_edits_need_a_recompile() -> None:
    module = GraphModule(Model().eval(), graph_of_model())
    x = torch.ones(1, 2)
    before = module(x)["result"][0]
    out = module.graph.output_node
    with module.graph.inserting_before(out):
        doubled = module.graph.call_function(torch.mul, (out.args[0]["result"][0], 2))
    out.args = ({"doubled": doubled},)
    assert "result" in module(x)
    generated = module.recompile()
    assert generated.source == module.code and "doubled" in module.code
    assert same(module(x), {"doubled": before * 2})
    other = Graph()
    other.output(7)
    module.graph = other
    assert module() == 7


def test_instances_do_not_share_code() -> None:
    made = []
    for i in range(3):
        graph = Graph()
        graph.output(i)
        made.append((GraphModule if i == 0 else type(made[0]))({}, graph, f"Number{i}"))
    assert [module() for module in made] == [0, 1, 2]
    assert [type(module).__name__ for module in made] == ["Number0", "Number1", "Number2"]
    assert pickle.loads(pickle.dumps(made[1]))() == 1


class Special(GraphModule):
    def extra(self) -> int:
        return len(self.graph.nodes)


def save_and_load(module: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), save_and_load])
def test_copies_are_whole_and_independent(duplicate: Any) -> None:
    root = Model().eval()
    module = Special(root, graph_of_model(), "Mine")
    module.meta["note"] = "kept"
    module.extra_state = [root.tied]
    x = torch.ones(2, 2)
    expected = module(x)
    other = duplicate(module)
    assert isinstance(other, Special) and type(other).__name__ == "Mine" and other.extra() == module.extra()
    assert same(other(x), expected) and other.code == module.code and other.meta == {"note": "kept"}
    assert other.tied is getattr(other.block, "0").weight is other.extra_state[0] and other.tied is not root.tied
    assert list(other.state_dict()) == list(module.state_dict()) and not other.training
    with torch.no_grad():
        other.tied.zero_()
    other.graph.output_node.args = (1,)
    other.recompile()
    assert same(module(x), expected) and other(x) == 1


def test_a_shallow_copy_shares_state_and_not_the_graph() -> None:
    module = GraphModule(Model().eval(), graph_of_model())
    other = copy.copy(module)
    assert other.tied is module.tied and other.graph is not module.graph and other._parameters is not module._parameters
    other.graph.output_node.args = (1,)
    other.recompile()
    assert other(torch.ones(2, 2)) == 1 and "result" in module(torch.ones(2, 2))


def test_values_in_arguments_are_copied_with_the_state() -> None:
    shared = nn.Parameter(torch.ones(2))
    graph = Graph()
    graph.output((graph.get_attr("p"), shared, [torch.ops.aten.add.Tensor, torch.ops.aten.add]))
    module = GraphModule({"p": shared}, graph)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        first, second, functions = other()
        assert first is second is other.p and first is not shared
        assert functions == [torch.ops.aten.add.Tensor, torch.ops.aten.add]


def test_a_module_may_refer_to_itself() -> None:
    graph = Graph()
    graph.output(1)
    module = GraphModule({}, graph)
    module.__dict__["me"] = [module]
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.me[0] is other and other() == 1


def test_torch_fx_traces_it() -> None:
    root = Model().eval()
    module = GraphModule(root, graph_of_model())
    traced = torch.fx.symbolic_trace(module)
    x = torch.randn(2, 2)
    assert same(traced(x), module(x))
    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert calls == ["block.0", "block.1", "block.2"]
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"].count(torch.add) == 5


def test_gradients_and_devices_go_through() -> None:
    root = Model().eval()
    module = GraphModule(root, graph_of_model())
    module(torch.ones(2, 2))["result"][0].sum().backward()
    assert root.tied.grad is not None and torch.isfinite(root.tied.grad).all()
    assert module.double().inner.kept.dtype == torch.float64
    hooks = []
    module.register_forward_hook(lambda *_: hooks.append(1))
    module(torch.ones(2, 2, dtype=torch.float64))
    assert hooks == [1]


def test_readable_text(capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("a.lin", (graph.call_function(torch.add, (x, graph.get_attr("a.w"))),)))
    module = GraphModule({"a.lin": nn.Linear(1, 1), "a.w": nn.Parameter(torch.ones(3))}, graph, "Small")
    text = module.print_readable()
    assert capsys.readouterr().out == text + "\n"
    assert text == (
        "class Small(torch.nn.Module):\n"
        "    # self.a.w: parameter float32[3]\n"
        "    # self.a.lin: Linear(in_features=1, out_features=1, bias=True)\n"
        "\n"
        "    def forward(self, x):\n"
        "        a_w = self.a.w\n"
        "        add = torch.add(x, a_w); del x, a_w\n"
        "        a_lin = self.a.lin(add); del add\n"
        "        return a_lin\n"
    )
    module.print_readable(print_output=False)
    assert capsys.readouterr().out == ""


def test_state_keeps_the_order_it_has_in_the_root() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Module()
            self.block.first, self.block.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.block.shift = nn.Parameter(torch.ones(2))
            self.block.scale = nn.Parameter(torch.ones(2))
            self.last = nn.Linear(2, 2)

    root = Root()
    graph = Graph()
    value = graph.placeholder("x")
    for target in ("last", "block.second", "block.first"):
        value = graph.call_module(target, (value,))
    for target in ("block.scale", "block.shift"):
        value = graph.call_function(torch.add, (value, graph.get_attr(target)))
    graph.output(value)
    module = GraphModule(root, graph)
    assert list(module.state_dict()) == list(root.state_dict())
    assert [name for name, _ in module.named_parameters()] == [name for name, _ in root.named_parameters()]


def test_an_error_names_the_users_lines() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    product = graph.call_function(torch.matmul, (x, y))
    product.meta["where"] = ("model.py", 3, "return a @ b")
    product.meta["stack"] = [("model.py", 3), ("main.py", 7, "inner(x, y)")]
    graph.output(product)
    module = GraphModule(nn.Module(), graph)
    with pytest.raises(RuntimeError) as raised:
        module(torch.ones(2, 3), torch.ones(2, 3))
    (note,) = raised.value.__notes__
    assert note.splitlines() == [
        "node 'matmul' of this graph stands for",
        '  File "main.py", line 7',
        "    inner(x, y)",
        '  File "model.py", line 3',
        "    return a @ b",
    ]
    with pytest.raises(TypeError) as other:
        module(torch.ones(2, 3))
    assert not hasattr(other.value, "__notes__")
