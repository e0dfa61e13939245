"""Costs of nodes, against torch's own counter and against sums done by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import framecap
from benchmarks.models import BUILDERS, build
from framecap.graph.passes import estimate_costs, propagate_shapes

X = torch.ones(8, 16)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 4, bias=False)

    def forward(self, x):
        return F.softmax(self.head(self.block(x).view(8, 32)), -1)


def test_by_hand() -> None:
    module = framecap.capture(Small(), X)
    report = estimate_costs(module, X)
    costs = {node.name: cost for node, cost in report.nodes.items()}
    linear = costs["input_1"]
    assert linear.flops == 2 * 8 * 16 * 32
    assert linear.parameter_bytes == 4 * (16 * 32 + 32)
    assert linear.bytes_read == 4 * (8 * 16 + 16 * 32 + 32) and linear.bytes_written == linear.result_bytes == 4 * 8 * 32
    relu = costs["input_2"]
    assert (relu.flops, relu.elementwise) == (0, 8 * 32)
    assert not any(vars_of(costs["view"]))
    assert costs["softmax"].elementwise == 8 * 4
    assert report.total.flops == 2 * 8 * 32 * (16 + 4)
    assert report.total.parameter_bytes == 4 * (16 * 32 + 32 + 32 * 4)
    assert next(iter(module.graph.nodes)).meta["cost"] is costs["x"]


def vars_of(cost) -> list[int]:
    return [getattr(cost, name) for name in type(cost).__slots__]


def test_shared_weights_count_once() -> None:
    layer = nn.Linear(16, 16)
    module = framecap.capture(lambda x: layer(layer(x)), X)
    assert estimate_costs(module, X).total.parameter_bytes == 4 * (16 * 16 + 16)


def test_sums_by_module_and_tables() -> None:
    report = estimate_costs(framecap.capture(Small(), X), X)
    groups = report.by_module()
    assert set(groups) == {"", "block", "head"}
    assert groups["block"].flops == 2 * 8 * 16 * 32
    text = report.table(depth=1)
    assert text.splitlines()[-1].startswith("total") and "block" in text
    assert "head" in report.table()


def test_roofline() -> None:
    report = estimate_costs(framecap.capture(Small(), X), X)
    compute_bound, memory_bound = report.seconds(1.0, 1e30), report.seconds(1e30, 1.0)
    assert compute_bound == report.total.flops + report.total.elementwise
    assert memory_bound == report.total.bytes_read + report.total.bytes_written


def test_nothing_is_computed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    x = torch.ones(4, 3)
    module = framecap.capture(model, x)
    state, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    estimate_costs(module, x)
    result = propagate_shapes(module, x, fake=True)
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert result.shape == (4, 3)
    shapes = [node.meta["tensor_meta"].shape for node in module.graph.nodes if node.op == "call_module"]
    assert shapes == [(4, 3)] * 3


@pytest.mark.slow
@pytest.mark.parametrize("level", ["torch_nn_leaves", "no_leaves"])
@pytest.mark.parametrize("name", BUILDERS)
def test_real_models_as_torch_counts(name: str, level: str) -> None:
    if name != "resnet50":
        pytest.importorskip("transformers")
    workload = build(name)
    kwargs = {k: v for k, v in workload.kwargs.items() if k != "attention_mask"}
    options = {"use_cache": False} if name in ("gpt2", "llama", "t5") else {}
    module = framecap.capture(workload.model, *workload.args, **kwargs, **options, is_leaf=getattr(framecap, level))
    report = estimate_costs(module, *workload.args, **kwargs)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        workload.model(*workload.args, **kwargs, **options)
    assert report.total.flops == counter.get_total_flops() > 0
    assert report.total.parameter_bytes >= sum(p.numel() * p.element_size() for p in workload.model.parameters())
    tops = {path.partition(".")[0] for path, _ in workload.model.named_children()} | {""}
    assert set(report.by_module(1)) <= tops
