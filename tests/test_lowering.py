"""Leaf modules are called through their functions: whatever changes about them between calls has to count."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framecap
from framecap.api import collect_report


def modules() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    return {
        "linear": (nn.Linear(3, 4), torch.randn(2, 3)),
        "linear without bias": (nn.Linear(3, 4, bias=False), torch.randn(2, 3)),
        "layer norm": (nn.LayerNorm(3), torch.randn(2, 3)),
        "layer norm without weights": (nn.LayerNorm(3, elementwise_affine=False), torch.randn(2, 3)),
        "embedding": (nn.Embedding(5, 3, padding_idx=1), torch.tensor([[1, 2], [0, 4]])),
        "convolution": (nn.Conv2d(3, 4, 3, padding=1, stride=2), torch.randn(2, 3, 6, 6)),
        "reflecting convolution": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), torch.randn(2, 3, 6, 6)),
        "batch norm": (nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4)),
        "batch norm without statistics": (nn.BatchNorm2d(3, track_running_stats=False), torch.randn(2, 3, 4, 4)),
        "gelu": (nn.GELU(approximate="tanh"), torch.randn(2, 3)),
        "relu": (nn.ReLU(), torch.randn(2, 3)),
        "dropout": (nn.Dropout(0.5), torch.randn(20, 3)),
    }


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


def agree(model: nn.Module, optimized: nn.Module, x: torch.Tensor) -> None:
    torch.manual_seed(3)
    expected = model(x)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    actual = optimized(x)
    assert torch.equal(actual, expected)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", modules())
@pytest.mark.parametrize("training", [False, True])
def test_modules_agree_with_eager(name: str, training: bool) -> None:
    inner, x = modules()[name]
    model = Wrapper(inner).train(training)
    twin = Wrapper(modules()[name][0]).train(training)
    twin.load_state_dict(model.state_dict())
    optimized = framecap.optimize(twin)
    for _ in range(3):
        agree(model, optimized, x)
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert collect_report().totals.operators == 2


def replace_weight(m: nn.Module) -> None:
    m.inner.weight = nn.Parameter(torch.randn(4, 3))


def drop_bias(m: nn.Module) -> None:
    m.inner.bias = None


def double_in_place(m: nn.Module) -> None:
    with torch.no_grad():
        m.inner.weight.mul_(2)


def other_data(m: nn.Module) -> None:
    m.inner.weight.data = torch.ones(4, 3)


def other_module(m: nn.Module) -> None:
    m.inner = nn.Linear(3, 4, bias=False)
    nn.init.ones_(m.inner.weight)


def own_forward(m: nn.Module) -> None:
    m.inner.forward = lambda x: x.sum()


def hook_on(m: nn.Module) -> None:
    m.inner.register_forward_hook(lambda module, args, output: output + 1)


def pre_hook_on(m: nn.Module) -> None:
    m.inner.register_forward_pre_hook(lambda module, args: (args[0] * 3,))


@pytest.mark.parametrize(
    "change", [replace_weight, drop_bias, double_in_place, other_data, other_module, own_forward, hook_on, pre_hook_on]
)
def test_changes_of_a_linear_count(change: Callable[[nn.Module], None]) -> None:
    torch.manual_seed(0)
    model = Wrapper(nn.Linear(3, 4))
    optimized = framecap.optimize(model)
    x = torch.randn(2, 3)
    agree(model, optimized, x)
    agree(model, optimized, x)
    torch.manual_seed(1)
    change(model)
    agree(model, optimized, x)
    agree(model, optimized, x)
    assert collect_report().totals.operators >= 2


def test_settings_of_a_convolution_count() -> None:
    model = Wrapper(nn.Conv2d(3, 3, 3, padding=1))
    optimized = framecap.optimize(model)
    x = torch.randn(1, 3, 8, 8)
    for name, value in [("padding", (0, 0)), ("stride", (2, 2)), ("dilation", (2, 2)), ("padding", (1, 1))]:
        agree(model, optimized, x)
        setattr(model.inner, name, value)
    agree(model, optimized, x)


def test_forward_of_the_class_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Wrapper(nn.Linear(3, 4))
    optimized = framecap.optimize(model)
    x = torch.randn(2, 3)
    agree(model, optimized, x)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: F.linear(x, self.weight) - 7)
    agree(model, optimized, x)
    monkeypatch.undo()
    agree(model, optimized, x)


def test_global_hooks_count() -> None:
    model = Wrapper(nn.Linear(3, 4))
    optimized = framecap.optimize(model)
    x = torch.randn(2, 3)
    agree(model, optimized, x)
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: output * 5 if isinstance(module, nn.Linear) else None
    )
    try:
        agree(model, optimized, x)
    finally:
        handle.remove()
    agree(model, optimized, x)


def test_instances_of_a_class_share_a_region() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(x).relu()

    blocks = [Block() for _ in range(12)]

    @framecap.disable
    def run_natively(block, x):
        with framecap.optimize():
            return block(x)

    x = torch.randn(2, 3)
    for block in blocks:
        assert torch.equal(run_natively(block, x), torch.relu(block.inner(x)))
    (report,) = [f for f in collect_report().functions if f.name.endswith("Block.forward")]
    assert report.graphs == 1
