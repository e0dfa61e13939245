"""Graph modules in files: what is read is what was written, and files can't name what they may not."""

from __future__ import annotations

import json
import math
import operator
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_helpers import same
from torch import nn

import framecap
from framecap.graph import Graph, GraphError, GraphModule, check, load, register_target, save, split_into_stages
from framecap.graph.state import find

X = torch.arange(6.0).reshape(2, 3)


def there_and_back(module: GraphModule, path: Path) -> GraphModule:
    save(module, path / "module.zip")
    found = load(path / "module.zip")
    check(found.graph, found)
    assert found.code == module.code
    assert str(found.graph) == str(module.graph)
    assert found.training == module.training
    assert list(found.state_dict()) == list(module.state_dict())
    for key, value in module.state_dict().items():
        assert same(value, found.state_dict()[key]), key
    assert [(k, p.requires_grad) for k, p in found.named_parameters()] == [
        (k, p.requires_grad) for k, p in module.named_parameters()
    ]
    return found


def of(function: Any, *args: Any, **kwargs: Any) -> GraphModule:
    """A graph of one call, with the placeholder where an argument is ``X``."""
    graph = Graph()
    x = graph.placeholder("x")
    args = tuple(x if a is X else a for a in args)
    graph.output(graph.call_function(function, args, kwargs))
    return GraphModule(nn.Module(), graph)


class Layers(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x


LAYERS: dict[str, tuple[list[nn.Module], tuple[int, ...]]] = {
    "linear": ([nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3), nn.Dropout(0.5)], (2, 3)),
    "convolution": ([nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.MaxPool2d(2)], (1, 3, 8, 8)),
    "recurrent": ([nn.LSTM(3, 4, num_layers=2, bidirectional=True), nn.GRU(8, 2)], (5, 1, 3)),
    "transformer": ([nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)], (2, 5, 8)),
    "frozen": ([nn.Linear(3, 3).requires_grad_(False), nn.BatchNorm1d(3, affine=False)], (2, 3)),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, training: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers, shape = LAYERS[name]
    x = torch.randn(shape)
    module = framecap.capture(Layers(*layers).train(training), x)
    found = there_and_back(module, tmp_path)
    torch.manual_seed(1)
    expected = module(x)
    torch.manual_seed(1)
    assert torch.equal(found(x), expected)
    assert len(found.graph.find_nodes(op="call_module")) == len(layers)
    if expected.requires_grad:
        expected.sum().backward()
        found.zero_grad()
        found(x)
        assert all(p.grad is None for p in found.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("level", ["torch_nn_leaves", "no_leaves"])
@pytest.mark.parametrize("name", ["resnet50", "bert", "gpt2", "llama", "t5", "vit"])
def test_real_models(name: str, level: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from benchmarks.models import build, tensors_in

    workload = build(name)
    model = workload.model.eval()
    kwargs = {k: v for k, v in workload.kwargs.items() if k != "attention_mask"}
    options = {"use_cache": False} if name in ("gpt2", "llama", "t5") else {}
    module = framecap.capture(model, *workload.args, **kwargs, **options, is_leaf=getattr(framecap, level))
    for node in module.graph.find_nodes(op="call_function"):
        if getattr(node.target, "__module__", "") == "transformers.modeling_outputs":
            register_target(node.target.__name__, node.target)
    found = there_and_back(module, tmp_path)
    with torch.no_grad():
        expected, actual = (list(tensors_in(m(*workload.args, **kwargs))) for m in (module, found))
    assert expected and all(map(torch.equal, actual, expected))


VALUES = [
    None, True, 0, -1, 2**70, 1.5, -0.0, math.inf, -math.inf, math.nan, 1e-310, complex(-0.0, math.nan), "a'\n\0\ud800é", b"\0\xff",
    ..., (), (1, (2,)), [1, [2]], {}, {"a": 1, 2: (3,), None: 4, (1, "x"): 5}, slice(None), slice(1, None, (2,)), range(1, 9, 2),
    torch.float16, torch.strided, torch.channels_last, torch.device("cpu"), torch.device("cuda:1"), torch.Size([2, 3]),
    torch.relu, torch.nn.functional.gelu, operator.add, math.sqrt, len, torch.ops.aten.add.Tensor, torch.Tensor.sin, nn.ReLU,
    torch._C._set_grad_enabled,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:40])
def test_arguments(value: Any, tmp_path: Path) -> None:
    graph = Graph()
    graph.placeholder("x", value)
    graph.output([value, {"key": value}])
    found = there_and_back(GraphModule(nn.Module(), graph), tmp_path)
    assert same(found(0), [value, {"key": value}])
    assert same(found(), [value, {"key": value}])


def test_tensors_keep_their_kind_and_are_shared(tmp_path: Path) -> None:
    root = nn.Module()
    root.weight = nn.Parameter(torch.randn(3, 3))
    root.tied = root.weight
    root.frozen = nn.Parameter(torch.tensor(1), requires_grad=False)
    root.register_buffer("kept", torch.ones(3, dtype=torch.bfloat16))
    root.register_buffer("passing", torch.zeros(0, 2, dtype=torch.complex64), persistent=False)
    root.plain = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    root.inner = nn.Module()
    root.inner.buffers_own = torch.tensor(math.nan)
    graph = Graph()
    names = ["weight", "tied", "frozen", "kept", "passing", "plain", "inner.buffers_own"]
    graph.output([graph.get_attr(name) for name in names])
    module = GraphModule(root, graph)
    found = there_and_back(module, tmp_path)
    assert found.weight is found.tied
    assert type(found.frozen) is nn.Parameter
    for name in names:
        mine, theirs = find(module, name), find(found, name)
        assert type(mine) is type(theirs) and same(mine.detach(), theirs.detach()), name
        assert mine.stride() == theirs.stride(), name
    assert dict(found.named_buffers()).keys() == {"kept", "passing"}


def test_notes_that_are_data_stay(tmp_path: Path) -> None:
    def fn(x):
        return x.relu() + 1

    module = framecap.capture(fn, X)
    module.graph.find_nodes(op="call_method")[0].meta["mine"] = object()
    found = there_and_back(module, tmp_path)
    for node, other in zip(module.graph.nodes, found.graph.nodes, strict=True):
        assert other.meta == {k: v for k, v in node.meta.items() if k in other.meta}
        assert ("where" in node.meta) == ("where" in other.meta)
        assert "mine" not in other.meta


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


class Doubler(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return double(x)


def test_functions_of_the_program_need_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from framecap.graph import targets

    monkeypatch.setattr(targets, "_registered", {})
    module = of(double, X)
    with pytest.raises(GraphError, match=r"node %double = .* can't be saved: double can't be named in a file.*register_target"):
        save(module, tmp_path / "module.zip")
    assert not (tmp_path / "module.zip").exists()
    register_target("double", double)
    register_target("double", double)
    assert torch.equal(there_and_back(module, tmp_path)(X), X + X)
    with pytest.raises(GraphError, match="'double' is registered for another object"):
        register_target("double", torch.relu)
    monkeypatch.setattr(targets, "_registered", {})
    with pytest.raises(GraphError, match=r"module.zip' can't be loaded: node 'double': .*'double', which isn't registered here"):
        load(tmp_path / "module.zip")


def test_modules_of_the_program_need_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from framecap.graph import targets

    monkeypatch.setattr(targets, "_registered", {})
    module = framecap.capture(Layers(Doubler()), X, is_leaf=lambda module, name: isinstance(module, Doubler))
    with pytest.raises(GraphError, match=r"the module 'layers.0' can't be saved: Doubler can't be named"):
        save(module, tmp_path / "module.zip")
    register_target("my.Doubler", Doubler)
    assert torch.equal(there_and_back(module, tmp_path)(X), X + X)


def test_what_cant_be_written_is_refused(tmp_path: Path) -> None:
    hooked = framecap.capture(Layers(nn.Linear(3, 3)), X)
    find(hooked, "layers.0").register_forward_hook(print)
    for module, message in [
        (of(torch.add, X, object()), "a value of type object can't be written"),
        (of(torch.add, X, torch.ones(2).to_sparse()), "layout torch.sparse_coo can't be written"),
        (of(lambda x: x, X), "<lambda> can't be named"),
        (hooked, "the module 'layers.0' can't be saved: it has _forward_hooks"),
    ]:
        with pytest.raises(GraphError, match=message):
            save(module, tmp_path / "module.zip")


CALLS = [
    "os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "builtins.open", "torch.load", "torch.os.system",
    "torch.save", "torch.serialization.load", "torch.hub.load", "torch.ops.load_library", "torch.from_file", "operator.attrgetter",
    "operator.methodcaller", "operator.call", "torch.jit.load", "torch.utils.cpp_extension.load", "subprocess.run", "torch",
    "torch.ops.aten", "torch.nn.Module.__init__", "framecap.graph.load", "", ".", "torch.nn.functional", "registered:nothing",
    "torch._C._jit_get_operation", "torch.sys.modules.clear", "math.__loader__", "torch.compile", "torch.nn.Sequential.__init__",
    "torch.classes.load_library", "torch.package.PackageImporter", "torch.distributed.rpc.rpc_sync", "torch.multiprocessing.spawn",
]  # fmt: skip


@pytest.mark.parametrize("target", CALLS)
def test_files_name_operators_only(target: str, tmp_path: Path) -> None:
    path = tmp_path / "module.zip"
    save(of(torch.relu, X), path)
    rewrite(path, lambda graph: graph["nodes"][1].update(target=target))
    with pytest.raises(GraphError, match="module.zip' can't be loaded: node 'relu': "):
        load(path)
    save(of(torch.add, X, other=torch.relu), path)
    rewrite(path, lambda graph: graph["nodes"][1]["kwargs"].update(other={"function": target}))
    with pytest.raises(GraphError, match="module.zip' can't be loaded: node 'add': "):
        load(path)


@pytest.mark.parametrize("name", ["__class__", "__reduce_ex__", "_make_subclass", "save", "format", "", "__init_subclass__", "\0"])
def test_files_call_methods_of_tensors_only(name: str, tmp_path: Path) -> None:
    path = tmp_path / "module.zip"
    save(of(torch.relu, X), path)
    rewrite(path, lambda graph: graph["nodes"][1].update(op="call_method", target=name))
    with pytest.raises(GraphError, match="'relu'"):
        load(path)


@pytest.mark.parametrize("name", ["__class__", "_base", 3, None, {"node": 0}])
def test_files_read_public_attributes_only(name: Any, tmp_path: Path) -> None:
    path = tmp_path / "module.zip"
    save(of(getattr, X, "shape"), path)
    assert load(path)(X) == X.shape
    rewrite(path, lambda graph: graph["nodes"][1].update(args=[{"node": 0}, name]))
    with pytest.raises(GraphError, match="only public attributes"):
        load(path)


@pytest.mark.parametrize("setting", ["forward", "__class__", "_parameters", "_forward_hooks", "register_buffer"])
def test_files_set_settings_of_modules_only(setting: str, tmp_path: Path) -> None:
    path = tmp_path / "module.zip"
    save(framecap.capture(Layers(nn.Linear(3, 3)), X), path)
    rewrite(path, lambda graph: graph["state"]["layers.0"]["module"]["settings"].update({setting: {"function": "torch.relu"}}))
    with pytest.raises(GraphError, match=f"'{setting}' is no setting of a Linear"):
        load(path)


def rewrite(path: Path, change: Any) -> None:
    with zipfile.ZipFile(path) as archive:
        document, state = json.loads(archive.read("graph.json")), archive.read("state.safetensors")
    change(document)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("graph.json", json.dumps(document))
        archive.writestr("state.safetensors", state)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g.clear(),
        lambda g: g.update(nodes=None),
        lambda g: g["nodes"][0].pop("op"),
        lambda g: g["nodes"][0].update(op="eval"),
        lambda g: g["nodes"][0].update(args=[{"node": 5}]),
        lambda g: g["nodes"][1].update(args=[{"node": 1}]),
        lambda g: g["nodes"][1].update(args=[{"node": -1}]),
        lambda g: g["nodes"][1].update(args=[{"unknown": 1}]),
        lambda g: g["nodes"][1].update(args=[{}]),
        lambda g: g["nodes"][1].update(args=7),
        lambda g: g["nodes"][1].update(name=["x"]),
        lambda g: g["nodes"][1].update(target=["torch", "relu"]),
        lambda g: g["nodes"][1].update(args=[{"tensor": "missing", "requires_grad": False}]),
        lambda g: g["nodes"][1].update(args=[{"torch": "os"}]),
        lambda g: g["nodes"][1].update(args=[{"device": "no such"}]),
        lambda g: g["nodes"][1].update(op="get_attr", target="nothing", args=[]),
        lambda g: g.update(state={"a..b": {"value": 1}}),
        lambda g: g.update(state={"__class__": {"value": 1}}),
        lambda g: g.update(state={"x": {"module": {"class": "torch.relu"}}}),
        lambda g: g.update({"framecap graph": 99}),
    ],
)
def test_damaged_files(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "module.zip"
    save(of(torch.relu, X), path)
    rewrite(path, change)
    with pytest.raises(GraphError, match=r"module.zip' (can't be loaded|is no graph module that framecap wrote)"):
        load(path)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"not a zip archive")
    with pytest.raises(GraphError, match="is no graph module that framecap wrote"):
        load(path)
    torch.save({"a": X}, path)
    with pytest.raises(GraphError, match="is no graph module that framecap wrote"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


def test_graph_modules_in_a_graph_module(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    whole, _ = split_into_stages(framecap.capture(model), 2)
    found = there_and_back(whole, tmp_path)
    assert found.stage_1.code == whole.stage_1.code
    assert getattr(found.stage_0, "0").weight is getattr(found.stage_1, "2").weight
    assert torch.equal(found(X), model(X))
