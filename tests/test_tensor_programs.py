"""Tensor programs: views, in-place changes, random numbers, modes, autograd, shapes and dtypes, each as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import same_as_eager

X = torch.arange(6.0).reshape(2, 3)
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}


def program(*calls: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = (fn, list(calls))
        return fn

    return register


@program((X.clone(),), (X.clone(),))
def view_alias(x):
    y = x[0]
    z = x.view(-1)
    z[1] = 50
    w = y + 1
    x.mul_(2)
    return y, w, z


@program((X.clone(),), (X.clone().requires_grad_(),))
def detach_data(x):
    y = x.detach()
    y += 1
    return y, x.requires_grad, y.requires_grad, (x * 2).requires_grad


@program((X,), (X.to(torch.int64),))
def reduce_named(x):
    m = x.max(dim=1)
    v, i = x.min(1)
    s = torch.sort(x, descending=True)
    return m.values, m.indices, v, i, s[0], m[1], torch.max(x), x.max()


@program((X,), (X * 2,))
def random_ops(x):
    a = torch.rand(3)
    b = F.dropout(x, 0.5, True)
    c = torch.randn_like(x)
    return a, b, c, torch.randint(0, 5, (2,))


@program((X, True), (X, False))
def grad_modes(x, off):
    x = x.clone().requires_grad_()
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        c = torch.is_grad_enabled()
    with torch.set_grad_enabled(not off):
        d = x * 4
    return a.requires_grad, b.requires_grad, c, d.requires_grad, torch.is_grad_enabled()


@program((X.clone().requires_grad_(),), (X,))
def decorated_no_grad(x):
    y, e = under_no_grad(x)
    return y, e, torch.is_grad_enabled(), x + 1


@program((X,), (X,))
def error_in_no_grad(x):
    try:
        with torch.no_grad():
            x @ x
    except RuntimeError as e:
        r = type(e).__name__
    return r, torch.is_grad_enabled()


@program((X,), (X.double(),))
def auto(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x.float() @ x.float().T
    return y.dtype, y


@program((X,), (X,))
def backward_inside(x):
    w = torch.ones(3, requires_grad=True)
    loss = (x @ w).sum()
    loss.backward()
    g = w.grad + 1
    gg = torch.autograd.grad((w * 2).sum(), w)[0]
    return g, gg


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


@program((X,), (X,))
def custom_function(x):
    y = x.clone().requires_grad_()
    z = Sq.apply(y + 1) * 2
    z.sum().backward()
    return y.grad, z


@program((X,), (X,))
def vm(x):
    f = torch.func.vmap(lambda r: (r * 2).sum())
    g = torch.func.grad(lambda r: (r**2).sum())
    return f(x), g(x)


@program((X,), (X,))
def lists_of_ops(x):
    a, b, c = x.unbind(1)
    s = torch.stack([a, b])
    ch = x.chunk(3, 1)
    sp = torch.split(x, 2, dim=1)
    return s, torch.cat(ch, 1), sp, len(ch), [t.shape for t in sp]


@program((X,), (X,))
def meshes(x):
    a, b = torch.meshgrid(x[0], x[1], indexing="ij")
    i = torch.where(x > 2)
    n = torch.nonzero(x)
    return a + b, i, n, x.unique(), torch.broadcast_tensors(x, x[0])


@program((X,), (X.half(),))
def dtype_reads(x):
    if x.dtype == torch.float32:
        y = x.to(torch.float64)
    else:
        y = x.to(dtype=torch.float32)
    return (
        y,
        y.dtype,
        y.is_floating_point(),
        torch.finfo(y.dtype).eps,
        y.element_size(),
        x.type_as(y),
        y.device.type,
        y.numel(),
    )


@program((X,), (X,))
def tolist_numpy(x):
    a = x + 1
    l = a.tolist()
    n = a.numpy()
    t = torch.from_numpy(n)
    return l, n.sum(), t * 2, float(a[0, 0]), int(a.sum()), bool(a.any())


@program((X, 2), (X, 0))
def index_kinds(x, i):
    return (
        x[..., i],
        x[:, None],
        x[x > 1],
        x[torch.tensor([0, 1]), [1, 0]],
        x[-1][i],
        x[:, ::2],
        x[None, :, :, None].shape,
        x[[True, False]],
    )


@program((torch.zeros(2, 3),), (torch.zeros(2, 3),))
def setitem_kinds(x):
    x[0] = 1
    x[:, 1] += 5
    x[x > 4] = -1
    x[1, [0, 2]] = torch.tensor([7.0, 8.0])
    return x, x.sum()


@program((X,), (X,))
def out_kw(x):
    o = torch.empty(2, 3)
    r = torch.add(x, 1, out=o)
    return r is o, o


@program((X,), (X,))
def inplace_chain(x):
    y = x.clone()
    z = y.add_(1).mul_(2)
    F.relu(y, inplace=True)
    y.clamp_(max=5)
    return y is z, y, z


@program(
    (X.clone().requires_grad_(),),
)
def hooks_on_result(x):
    y = x * 2
    log = []
    y.register_hook(lambda g: log.append(g.sum().item()))
    y.sum().backward()
    return log, x.grad


@program((X,), (X,))
def print_tensor(x):
    print(x * 2)
    return str(x + 1), repr(x), f"{x.sum():.1f}"


@program((X,), (X.to_sparse(),))
def sparse(x):
    return (x * 2).to_dense() if x.is_sparse else x * 3


@program((X, torch.tensor(2)), (X, torch.tensor(0)))
def zero_dim(x, n):
    return x + n, x[n % 2], n.item() + 1, [1, 2, 3][n], range(n)[-1] if n > 0 else None


@program((X,), (X,))
def compare_tensors(x):
    return x == x, (x == 3).any(), x is x, x in [x], x.equal(x), torch.allclose(x, x), (x != None), x.eq(2)  # noqa: E711


@program((X, nn.LSTM(3, 4)), (X, nn.LSTM(3, 4)))
def rnn(x, m):
    o, (h, c) = m(x[:, None])
    return o, h, c


@program(
    (X, nn.MultiheadAttention(3, 1)),
)
def mha(x, m):
    y, w = m(x, x, x)
    return y, w


@program((X,), (X,))
def seed(x):
    torch.manual_seed(3)
    a = torch.rand(2)
    s = torch.get_rng_state().sum()
    return a, s, x + torch.rand(1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["wrap", "with"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tensor_program(name: str, mode: str) -> None:
    fn, calls = PROGRAMS[name]
    seen = same_as_eager(fn, *calls, mode=mode)
    assert seen.operators >= 1, seen.report


@torch.no_grad()
def under_no_grad(x):
    return x * 2, torch.is_grad_enabled()


def test_set_grad_enabled_as_block_and_as_call() -> None:
    def fn(x, on, stop):
        with torch.set_grad_enabled(on):
            y = x * 2
            if stop:
                print("inside", torch.is_grad_enabled())
            y = y + 1
        torch.set_grad_enabled(on)
        z = x * 3
        torch.set_grad_enabled(True)
        with torch.no_grad(), torch.set_grad_enabled(True):
            w = x * 4
        return y.requires_grad, z.requires_grad, w.requires_grad, torch.is_grad_enabled(), y, z

    x = torch.ones(2, requires_grad=True)
    calls = [(x, a, b) for a, b in [(True, False), (False, False), (False, True), (True, True), (False, False)]]
    assert same_as_eager(fn, *calls).operators >= 12


def test_mode_is_restored_when_an_operator_fails() -> None:
    def fn(x, on):
        with torch.set_grad_enabled(on):
            y = x @ torch.ones(7, 7)
        return y

    x = torch.ones(2)
    assert same_as_eager(fn, (x, False), (x, True), (torch.ones(7), True)).operators >= 1
