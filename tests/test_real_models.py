"""Real architectures, forward and backward, in both modes: results, gradients, buffers and random state as in eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import framecap
from benchmarks.models import BUILDERS, build, tensors_in
from framecap.api import collect_report
from framecap.graph import check, from_fx, split_into_stages, to_fx
from framecap.graph.passes import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    normalize_calls,
    run_passes,
)
from framecap.hook import in_region

pytestmark = pytest.mark.slow
pytest.importorskip("transformers")

BREAKS = {"bert": 1}
"""Only BERT's code branches on data: on whether the attention mask is full."""


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", BUILDERS)
def test_three_steps_with_gradients(name: str, training: bool) -> None:
    workload = build(name).double()
    plain = workload.model.train(training)
    twin = copy.deepcopy(plain)
    optimized = framecap.optimize(twin)

    def step(model: torch.nn.Module, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(seed)
        model.zero_grad()
        loss = workload.loss(model(*workload.args, **workload.kwargs))
        loss.backward()
        return loss.detach(), torch.get_rng_state()

    for seed in range(3):
        expected, actual = step(plain, seed), step(optimized, seed)
        assert torch.equal(actual[0], expected[0])
        assert torch.equal(actual[1], expected[1])
        for (key, mine), theirs in zip(plain.named_parameters(), twin.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None), key
            if mine.grad is not None:
                torch.testing.assert_close(theirs.grad, mine.grad, rtol=0, atol=1e-12)
        for mine, theirs in zip(plain.buffers(), twin.buffers(), strict=True):
            assert torch.equal(mine, theirs)
    totals = collect_report().totals
    assert totals.breaks == BREAKS.get(name, 0)
    assert totals.recompiles == 0
    assert name in BREAKS or totals.graphs == 1


class Counter(TorchDispatchMode):
    """Counts the operators that torch executes, and those inside of regions."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.all = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.all += 1
        self.inside += in_region()
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", BUILDERS)
def test_share_of_operators_in_regions(name: str) -> None:
    workload = build(name)
    plain, optimized = workload.model.eval(), framecap.optimize(workload.model)
    with torch.no_grad():
        for _ in range(3):
            optimized(*workload.args, **workload.kwargs)
        with Counter() as eager:
            plain(*workload.args, **workload.kwargs)
        with Counter() as captured:
            optimized(*workload.args, **workload.kwargs)
    assert captured.all == eager.all
    assert captured.inside == captured.all if name not in BREAKS else captured.inside >= 0.98 * captured.all


WITHOUT = {"bert": ("attention_mask",)}
"""Arguments that the program branches on the values of."""


@pytest.mark.parametrize("level", ["torch_nn_leaves", "no_leaves"])
@pytest.mark.parametrize("name", BUILDERS)
def test_whole_graphs(name: str, level: str) -> None:
    workload = build(name).double()
    model = workload.model.train()
    kwargs = {k: v for k, v in workload.kwargs.items() if k not in WITHOUT.get(name, ())}
    options = {"use_cache": False} if hasattr(getattr(model, "config", None), "use_cache") and name != "bert" else {}
    module = framecap.capture(model, *workload.args, **kwargs, **options, is_leaf=getattr(framecap, level))
    check(module.graph)
    assert ("call_module" in {node.op for node in module.graph.nodes}) == (level == "torch_nn_leaves")
    assert set(module.state_dict()) <= set(model.state_dict())
    twin = build(name).double().model.train()
    twin_state = {key: value.clone() for key, value in module.state_dict().items()}
    torch.manual_seed(0)
    expected = twin(*workload.args, **kwargs, **options)
    back = from_fx(to_fx(module))
    assert back.code == module.code and list(back.state_dict()) == list(module.state_dict())
    stages, _ = split_into_stages(module, 3)
    tidy = copy.deepcopy(module)
    passes = [normalize_calls, fold_constants, eliminate_common_subexpressions, eliminate_dead_code]
    assert run_passes(tidy, passes, until_stable=True).changes["normalize_calls"] == 1
    for form in (module, to_fx(module), back, stages, tidy):
        module.load_state_dict(twin_state)
        torch.manual_seed(0)
        actual = form(*workload.args, **kwargs)
        assert type(actual) is type(expected)
        for mine, theirs in zip(tensors_in(expected), tensors_in(actual), strict=True):
            assert torch.equal(mine, theirs)
