"""Batch norms folded into the layer before them: the same results, other weights, nothing of the original changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn

import framecap
from framecap.graph import GraphModule, check
from framecap.graph.passes import fuse_conv_bn, propagate_shapes


def settled(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """The model in float64 and eval mode, with weights and statistics that are no defaults."""
    model.double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) + (0.5 if "var" in name else -0.4))
    return model.eval()


def fused(model: nn.Module, x: torch.Tensor, *, shapes: bool = True, **options) -> tuple[GraphModule, object]:
    module = framecap.capture(model, x, **options)
    if shapes:
        propagate_shapes(module, x)
    before = copy.deepcopy(model.state_dict())
    report = fuse_conv_bn(module)
    check(module.graph, module)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(before.values(), model.state_dict().values(), strict=True))
    torch.testing.assert_close(module(x), model(x), rtol=1e-9, atol=1e-9)
    assert model(x).std() > 0 and not torch.equal(module(x), module(x + 0.1))
    return module, report


def norms_left(module: GraphModule) -> int:
    return sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()) + sum(
        node.target is F.batch_norm for node in module.graph.nodes
    )


PAIRS = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, bias=False), lambda: nn.BatchNorm1d(6), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: nn.BatchNorm2d(6), (2, 4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(4, 6, 2), lambda: nn.BatchNorm3d(6), (2, 4, 5, 5, 5)),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 6, 3), lambda: nn.BatchNorm1d(6), (2, 4, 9)),
    "transposed2d in groups": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), lambda: nn.BatchNorm2d(6), (2, 4, 5, 5)),
    "linear": (lambda: nn.Linear(4, 6), lambda: nn.BatchNorm1d(6), (5, 4)),
    "no affine": (lambda: nn.Conv2d(4, 6, 3), lambda: nn.BatchNorm2d(6, affine=False), (2, 4, 9, 9)),
}


@pytest.mark.parametrize(
    ("pair", "level"),
    [(pair, "torch_nn_leaves") for pair in PAIRS] + [(pair, "no_leaves") for pair in PAIRS if "transposed" not in pair],
)
def test_pairs(pair: str, level: str) -> None:
    layer, norm, shape = PAIRS[pair]
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = settled(nn.Sequential(layer(), norm(), nn.Tanh()), x)
    module, report = fused(model, x, is_leaf=getattr(framecap, level))
    assert len(report.fused) == 1 and not report.refused and report
    assert norms_left(module) == 0
    assert {name.partition(".")[0] for name in module.state_dict()} == {"0"}


def test_a_whole_network() -> None:
    from examples.resnet50 import resnet50

    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    model = resnet50(num_classes=10, width=8)
    for _ in range(2):
        model(x)
    model.eval().double()
    x = x.double()
    module, report = fused(model, x, shapes=False)
    assert len(report.fused) == 53 and norms_left(module) == 0
    assert module.graph.find_nodes(op="call_module")[0].target == "conv1"


class Shared(nn.Module):
    """One convolution under two norms, and one norm behind two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.other = nn.Conv2d(3, 3, 1)
        self.first = nn.BatchNorm2d(3)
        self.second = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.first(self.conv(x)) + self.second(self.conv(x)) + self.first(self.other(x)) + self.conv(x)


def test_shared_modules_are_not_confused() -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    module, report = fused(settled(Shared(), x), x)
    assert len(report.fused) == 3 and norms_left(module) == 0
    assert len({node.target for node in module.graph.find_nodes(op="call_module")}) == 4


class Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.trains = nn.BatchNorm2d(3)
        self.forgets = nn.BatchNorm2d(3, track_running_stats=False)
        self.used_twice = nn.BatchNorm2d(3)
        self.alone = nn.BatchNorm2d(3)

    def forward(self, x):
        y = self.conv(x)
        return self.trains(self.conv(x)) + self.forgets(self.conv(x)) + self.used_twice(y) + y + self.alone(x)


def test_refusals_have_reasons() -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    model = settled(Refused(), x)
    model.trains.train()
    module = framecap.capture(model, x)
    report = fuse_conv_bn(module)
    assert not report and not report.fused
    reasons = {
        "trains": "training mode", "forgets": "keeps no statistics", "used_twice": "used elsewhere", "alone": "doesn't follow",
    }  # fmt: skip
    assert set(report.refused) == set(reasons)
    for name, words in reasons.items():
        assert words in report.refused[name]


def test_a_norm_of_another_dimension_stays() -> None:
    x = torch.randn(2, 4, 4, dtype=torch.float64)
    model = settled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), x)
    for shapes, words in ((True, "another than its channels"), (False, "propagate_shapes")):
        module, report = fused(model, x, shapes=shapes)
        assert words in next(iter(report.refused.values())) and norms_left(module) == 1


def test_copies_that_share_state_are_left_alone() -> None:
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    model = settled(nn.Sequential(nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6))), x)
    module = framecap.capture(model, x)
    twin = copy.copy(module)
    fuse_conv_bn(module)
    assert norms_left(twin) == 1 and norms_left(module) == 0
    torch.testing.assert_close(twin(x), model(x), rtol=0, atol=0)


def test_memory_format_and_gradients_are_kept() -> None:
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    model = settled(nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)), x).to(memory_format=torch.channels_last)
    model[0].weight.requires_grad_(False)
    module, _ = fused(model, x)
    layer = module.get_submodule("0")
    assert layer.weight.is_contiguous(memory_format=torch.channels_last) and not layer.weight.requires_grad
    assert isinstance(layer.bias, nn.Parameter)


def random_network(random: Any) -> tuple[nn.Module, torch.Tensor]:
    """Convolutions of all sorts with and without norms behind them, and an input."""
    dims = random.choice([1, 2, 3])
    plain = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1]
    transposed = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d][dims - 1]
    norm = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d][dims - 1]
    first = channels = random.choice([2, 4])
    layers: list[nn.Module] = []
    for _ in range(random.randint(1, 4)):
        cls, kernel, wanted = random.choice([plain, transposed]), random.choice([1, 3]), random.choice([2, 4, 8])
        options = {"groups": random.choice([1, 2]), "bias": random.random() < 0.5, "stride": random.choice([1, 2])}
        if kernel == 3:
            options |= {"padding": 2, "dilation": 2} if random.random() < 0.3 else {"padding": random.choice([0, 1])}
            if cls is plain:
                options["padding_mode"] = random.choice(["zeros", "reflect", "circular", "replicate"])
        layers.append(cls(channels, wanted, kernel, **options))
        channels = wanted
        if random.random() < 0.8:
            affine, keeps = random.random() < 0.7, random.random() < 0.9
            layers.append(norm(channels, affine=affine, track_running_stats=keeps, eps=random.choice([1e-5, 1e-2])))
        if random.random() < 0.3:
            layers.append(nn.ReLU(inplace=random.random() < 0.5))
    network = nn.Sequential(*layers).double()
    for layer in network:
        if isinstance(layer, norm):
            for tensor in (layer.running_mean, layer.weight, layer.bias):
                if tensor is not None:
                    nn.init.normal_(tensor)
            if layer.running_var is not None:
                nn.init.uniform_(layer.running_var, 0.1, 2)
    return network.eval(), torch.randn(2, first, *[9] * dims, dtype=torch.double)


@pytest.mark.parametrize("is_leaf", [framecap.torch_nn_leaves, framecap.no_leaves])
@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_networks_stay_the_same(is_leaf: Any, random: Any, shapes: bool) -> None:
    torch.manual_seed(0)
    network, x = random_network(random)
    try:
        expected = network(x.clone())
    except RuntimeError:  # a size that gets too small
        assume(False)
    module = framecap.capture(network, x.clone(), is_leaf=is_leaf)
    if shapes:
        propagate_shapes(module, x.clone())
    report = fuse_conv_bn(module)
    norms = [i for i, layer in enumerate(network) if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    # Every norm is looked at, and follows a convolution here: it is fused where it can be.
    assert len(report.fused) + len(report.refused) == len(norms)
    fusable = [i for i in norms if network[i].track_running_stats]
    assert not shapes or len(report.fused) == len(fusable)
    assert torch.allclose(module(x.clone()), expected)
