"""What users call: every form of optimize, and the errors, which are one clear sentence each."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn

import framecap
from framecap import hook
from framecap.api import collect_report


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        return self.lin(x).relu() + self.steps


def work(x):
    return (x * 2).sum() + 1


X = torch.ones(2, 3)


def operators() -> int:
    return collect_report().totals.operators


# Forms of optimize


def test_with_block() -> None:
    with framecap.optimize():
        assert torch.equal(work(X), torch.tensor(13.0))
    assert operators() == 3
    assert hook.get_thread_config() is None


def test_decorators() -> None:
    @framecap.optimize
    def plain(x):
        """Says hello."""
        return x + 1

    @framecap.optimize(backend="eager", fullgraph=True)
    def with_options(x):
        return x + 2

    assert torch.equal(plain(X), X + 1) and torch.equal(with_options(X), X + 2)
    assert plain.__name__ == "plain" and plain.__doc__ == "Says hello." and plain.__wrapped__(X) is not None
    assert operators() == 2


def test_decorated_method() -> None:
    class Thing:
        k = 3

        @framecap.optimize
        def go(self, x):
            return x * self.k

    thing = Thing()
    assert torch.equal(thing.go(X), X * 3)
    thing.k = 5
    assert torch.equal(thing.go(X), X * 5)
    assert operators() == 2


def test_module_stays_a_module() -> None:
    model = Small()
    optimized = framecap.optimize(model)
    assert isinstance(optimized, Small) and isinstance(optimized, nn.Module)
    assert type(optimized).__name__ == "Small"
    assert list(optimized.state_dict()) == list(model.state_dict())
    assert [n for n, _ in optimized.named_modules()] == [n for n, _ in model.named_modules()]
    assert all(a is b for a, b in zip(optimized.parameters(), model.parameters(), strict=True))
    optimized.eval()
    assert not model.training
    optimized.lin.weight.data.fill_(1.0)
    assert torch.equal(optimized(X), model(X))
    optimized.double()
    assert model.lin.weight.dtype is torch.float64
    assert torch.equal(optimized(X.double()), model(X.double()))
    assert operators() >= 3


def test_module_in_a_module_and_training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(framecap.optimize(Small()), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model[0].lin.weight.detach().clone()
    model(torch.randn(16, 3)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model[0].lin.weight)
    assert operators() == 3


def test_module_copies_and_pickles() -> None:
    optimized = framecap.optimize(Small())
    expected = optimized(X)
    copied = copy.deepcopy(optimized)
    restored = pickle.loads(pickle.dumps(optimized))
    file = io.BytesIO()
    torch.save(optimized, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    with torch.no_grad():
        optimized.lin.weight.zero_()
    for other in (copied, restored, loaded):
        assert isinstance(other, Small)
        assert torch.equal(other(X), expected)


def test_nested_blocks_with_different_backends() -> None:
    seen = []

    def mine(module, examples):
        seen.append(len(module.graph.nodes))
        return module

    def fn(x):
        return x * 3

    with framecap.optimize():
        assert torch.equal(fn(X), X * 3)
        with framecap.optimize(backend=mine):
            assert torch.equal(fn(X), X * 3)
            assert torch.equal(fn(X), X * 3)
        assert torch.equal(fn(X), X * 3)
    assert len(seen) == 1 and collect_report().totals.graphs == 2


def test_other_threads_are_left_alone() -> None:
    results = []
    with framecap.optimize():
        thread = threading.Thread(target=lambda: results.append(work(X)))
        thread.start()
        thread.join()
    assert torch.equal(results[0], work(X)) and operators() == 0


# Backends


def test_registered_backend_gets_graph_and_inputs() -> None:
    calls = []

    def mine(module, examples):
        calls.append((module, examples))
        return lambda *args: module(*args)

    framecap.register_backend("for the test", mine)
    assert "for the test" in framecap.list_backends() and "eager" in framecap.list_backends()
    optimized = framecap.optimize(work, backend="for the test")
    assert torch.equal(optimized(X), work(X))
    assert torch.equal(optimized(torch.ones(5)), work(torch.ones(5)))
    ((module, examples),) = calls
    assert [n.op for n in module.graph.nodes].count("call_function") >= 2 and len(examples) == 1


def test_state_of_a_module_is_fixed_for_a_backend() -> None:
    model = Small()
    optimized = framecap.optimize(model, backend=lambda module, examples: module)
    assert torch.equal(optimized(X), model(X))
    model.lin = nn.Linear(3, 2)
    assert torch.equal(optimized(X), model(X))


def test_backend_of_torch_compile() -> None:
    model = Small()
    optimized = framecap.optimize(model, backend="aot_eager")
    x = torch.randn(2, 3, requires_grad=True)
    optimized(x).sum().backward()
    expected = torch.autograd.grad(model(x).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    torch.testing.assert_close(optimized(torch.randn(5, 3)).shape, torch.Size([5, 2]))


def failing(module, examples):
    raise ArithmeticError("no room")


def not_callable(module, examples):
    return 3


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (failing, "backend 'failing' raised ArithmeticError: no room"),
        (not_callable, "backend 'not_callable' returned an object of type int"),
    ],
)
def test_backend_errors(backend, message) -> None:
    log = []

    def fn(x):
        log.append("called")
        return x + 1

    optimized = framecap.optimize(fn, backend=backend)
    with pytest.raises(framecap.BackendError, match=message):
        optimized(X)
    assert torch.equal(framecap.optimize(fn)(X), X + 1)
    assert log == ["called"] or log == ["called", "called"]


def test_wrong_uses() -> None:
    with pytest.raises(framecap.UsageError, match="takes a function or an nn.Module, not an object of type int"):
        framecap.optimize(3)
    with pytest.raises(framecap.UsageError, match="not the class Small"):
        framecap.optimize(Small)
    with pytest.raises(framecap.UsageError, match="there is no backend 'nothing'"):
        framecap.optimize(work, backend="nothing")
    with pytest.raises(framecap.UsageError, match="must be a name or a callable, not int"):
        framecap.optimize(work, backend=3)
    with pytest.raises(framecap.UsageError, match='"eager" belongs to'):
        framecap.register_backend("eager", failing)
    with pytest.raises(framecap.UsageError, match="takes a function"):
        framecap.disable(3)
    with pytest.raises(framecap.UsageError, match="takes a function"):
        framecap.capture("no function")


# Breaks on purpose, and keeping out


def test_fullgraph_names_the_break() -> None:
    @framecap.optimize(fullgraph=True)
    def fn(x):
        y = x * 2
        if y.sum() > 3:
            y = y + 1
        return y

    with pytest.raises(framecap.CaptureError, match=r"data-dependent.*test_public_api.py:\d+"):
        fn(X)


def test_graph_break_disable_and_allow_in_graph() -> None:
    @framecap.disable
    def natively(x):
        return x + 10

    def leaf(x: torch.Tensor) -> torch.Tensor:
        return x.sort(0)[0] if x.shape[0] > 1 else x

    framecap.allow_in_graph(leaf)

    def fn(x):
        y = x * 2
        framecap.graph_break("here")
        y = natively(y) + 1
        return leaf(y) - 3

    optimized = framecap.optimize(fn)
    for _ in range(2):
        assert torch.equal(optimized(X), fn(X))
    codes = {b.code for b in collect_report().breaks}
    assert {"requested", "disabled"} <= codes
    assert any(b.sentence == "here" for b in collect_report().breaks)


def test_explain_and_reset() -> None:
    report = framecap.explain(work)(X)
    assert report.totals.graphs == 1 and report.totals.operators == 3
    assert "work" in str(report)
    framecap.reset()
    assert operators() == 0
