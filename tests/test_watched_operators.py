"""Operators that code of the program watches as they run: hooks on saved tensors, dispatch modes."""

from __future__ import annotations

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import framecap
from helpers import same_as_eager

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def test_checkpoint_stops_a_region_in_the_middle() -> None:
    def block(x):
        return torch.sin(x) * 2

    def fn(x):
        x = x.clone().requires_grad_()
        y = checkpoint(block, x, use_reentrant=False) + 1
        y.sum().backward()
        return y, x.grad

    seen = same_as_eager(fn, (X,), (X + 1,), (X,))
    assert seen.of("block").operators >= 2


def test_checkpoint_of_a_block_with_effects() -> None:
    log = []

    def block(x):
        y = torch.sin(x)
        log.append("between")
        try:
            return y * 2
        finally:
            log.append("after")

    def fn(x):
        log.clear()
        x = x.clone().requires_grad_()
        y = checkpoint(block, x, use_reentrant=False) + 1
        y.sum().backward()
        return y, x.grad, list(log)

    same_as_eager(fn, (X,), (X + 1,), (X,))


def test_a_hook_that_raises_is_called_once() -> None:
    calls = []

    def pack(tensor):
        calls.append(tensor.shape)
        if len(calls) == 2:
            raise ValueError("enough")
        return tensor

    def block(x):
        return (torch.sin(x) * x).exp()

    def fn(x):
        calls.clear()
        x = x.clone().requires_grad_()
        try:
            with saved_tensors_hooks(pack, lambda packed: packed):
                block(x)
        except ValueError as error:
            return str(error), len(calls)

    same_as_eager(fn, (X,), (X,), (X,))


class Failing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        if "exp" in self.seen[-1]:
            raise ValueError("no exp")
        return function(*args, **(kwargs or {}))


def test_a_dispatch_mode_that_raises_sees_each_operator_once() -> None:
    @framecap.optimize
    def block(x):
        return (torch.sin(x) * x).exp()

    block(X)
    for _ in range(2):
        mode = Failing()
        try:
            with mode:
                block(X)
        except ValueError as error:
            assert str(error) == "no exp"
            assert [frame.tb_frame.f_code.co_name for frame in tracebacks(error)][1] == "block"
        assert mode.seen == ["aten.sin.default", "aten.mul.Tensor", "aten.exp.default"]


def tracebacks(error):
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
