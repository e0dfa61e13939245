"""Eight-bit linear layers: close to float32, by the error that rounding allows, and kept by copies and files."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import framecap
from framecap.graph import GraphError, GraphModule, check, load, save
from framecap.graph.passes import calibrate, convert_to_int8, insert_observers, propagate_shapes
from framecap.graph.quantized import QuantizedLinear

DATA = list(torch.randn(4, 8, 32, generator=torch.Generator().manual_seed(0)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.SELU(), nn.Linear(64, 16, bias=False))
        self.twice = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        h = self.twice(self.layers(x))
        return self.twice(h * 3)


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


def quantized(model: Model, **options: Any) -> GraphModule:
    module = framecap.capture(model)
    assert insert_observers(module, **options)
    check(module.graph, module)
    calibrate(module, DATA)
    assert convert_to_int8(module)
    check(module.graph, module)
    return module


def test_a_layer_is_as_exact_as_its_steps_allow() -> None:
    torch.manual_seed(0)
    for bias in (True, False):
        linear = nn.Linear(128, 48, bias=bias)
        x = torch.randn(5, 7, 128)
        layer = QuantizedLinear(linear, float(x.min()), float(x.max()))
        with torch.no_grad():
            error = (layer(x) - linear(x)).abs()
            # Half a step for each operand, times the other, for each product.
            bound = (x.abs().sum(-1, keepdim=True) * layer.weight_scale / 2) + layer.scale / 2 * (
                linear.weight.abs().sum(1) + 128 * layer.weight_scale / 2
            )
        assert layer(x).shape == (5, 7, 48) and bool((error <= bound + 1e-5).all())
        assert float(error.max()) < 0.05


def test_integers_in_range_are_exact() -> None:
    linear = nn.Linear(4, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[127.0, -1, 2, 0], [0, 0, 127, 3]]))
    x = torch.tensor([[0.0, 5, 200, 55], [255, 1, 2, 3]])
    assert torch.allclose(QuantizedLinear(linear, 0.0, 255.0)(x), linear(x), rtol=1e-6)


def test_values_out_of_range_are_clamped() -> None:
    linear = nn.Linear(1, 1, bias=False)
    layer = QuantizedLinear(linear, -1.0, 1.0)
    assert torch.allclose(layer(torch.tensor([[50.0], [-50.0]])), linear(torch.tensor([[1.0], [-1.0]])), atol=0.02)


def test_each_call_is_converted_and_the_program_stays(model: Model) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    module = quantized(model)
    calls = module.graph.find_nodes(op="call_module")
    assert [call.target for call in calls if "int8" in call.target] == [
        "layers.0_int8", "layers.2_int8", "twice_int8", "twice_int8_1"
    ]  # fmt: skip
    assert not any("observer" in name for name, _ in module.named_modules())
    assert all(type(m) is not nn.Linear for m in module.modules()) and type(model.layers[0]) is nn.Linear
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    x = torch.cat(DATA)
    with torch.no_grad():
        expected, actual = model(x), module(x)
    assert float((actual - expected).norm()) < 0.02 * float(expected.norm())
    assert not torch.equal(actual, expected)


def test_calls_that_are_not_chosen_stay(model: Model) -> None:
    module = quantized(model, where=lambda node: node is node.graph.find_nodes(target="twice")[0])
    targets = [call.target for call in module.graph.find_nodes(op="call_module")]
    assert targets == ["layers.0", "layers.1", "layers.2", "twice_int8", "twice"]


def test_copies_and_files(model: Model) -> None:
    module = quantized(model)
    x = torch.randn(8, 32)
    expected = module(x)
    file = io.BytesIO()
    save(module, file)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), load(file), module.double().float()):
        assert torch.equal(other(x), expected)
    other = copy.deepcopy(module)
    other.load_state_dict({key: torch.zeros_like(value) for key, value in module.state_dict().items()})
    assert not other(x).any() and torch.equal(module(x), expected)


def test_observers_that_saw_nothing(model: Model) -> None:
    module = framecap.capture(model)
    insert_observers(module)
    assert not insert_observers(module)
    with pytest.raises(GraphError, match="'observer_0' has seen nothing; run the module on typical inputs"):
        convert_to_int8(module)


def test_observers_skip_empty_batches_and_keep_nan(model: Model) -> None:
    module = framecap.capture(model)
    insert_observers(module)
    calibrate(module, [torch.empty(0, 32)])
    with pytest.raises(GraphError, match="'observer_0' has seen nothing"):
        convert_to_int8(module)
    calibrate(module, [*DATA, torch.full((1, 32), float("nan")), *DATA])
    with pytest.raises(GraphError, match="'observer_0' has seen values that aren't finite"):
        convert_to_int8(module)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 32).to(dtype)
    x = torch.randn(8, 64).to(dtype)
    layer = QuantizedLinear(linear, float(x.min()), float(x.max()))
    with torch.no_grad():
        expected = linear(x)
        assert layer(x).dtype == dtype
        assert float((layer(x) - expected).norm()) < 0.02 * float(expected.norm())


def test_the_plain_product_is_the_same_one() -> None:
    torch.manual_seed(0)
    for bias in (True, False):
        layer = QuantizedLinear(nn.Linear(33, 17, bias=bias), -3, 5)
        numbers = layer.quantize(torch.randn(9, 33) * 3)
        assert torch.allclose(layer.plain_product(numbers), layer.product(numbers), rtol=1e-6, atol=1e-6)


def test_is_captured_again_as_one_node(model: Model) -> None:
    module = quantized(model)
    x = torch.randn(8, 32)
    fresh = copy.deepcopy(module)
    propagate_shapes(fresh, x)
    assert fresh.graph.output_node.args[0].meta["tensor_meta"].shape == (8, 16)
    again = framecap.capture(fresh, x)
    assert [call.target for call in again.graph.find_nodes(op="call_module")] == [
        call.target for call in module.graph.find_nodes(op="call_module")
    ]
    assert torch.equal(again(x), module(x))


def test_nothing_to_quantize() -> None:
    module = framecap.capture(nn.ReLU())
    assert not insert_observers(module) and not convert_to_int8(module)
