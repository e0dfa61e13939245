"""Context variables: set, unset, with and without defaults, changed between calls by others."""

from __future__ import annotations

import contextvars

import torch

import framecap
from helpers import same_as_eager

WITH_DEFAULT = contextvars.ContextVar("WITH_DEFAULT", default=3)
WITHOUT = contextvars.ContextVar("WITHOUT")


def test_unset_variables_have_their_own_default_or_the_readers() -> None:
    def fn(x):
        return x * WITH_DEFAULT.get(), x + WITH_DEFAULT.get(5), x - WITHOUT.get(7)

    seen = same_as_eager(fn, (torch.ones(3),), (torch.zeros(2),))
    assert (seen.graphs, seen.operators, seen.breaks) == (1, 3, {})


def test_an_unset_variable_raises_an_error_that_holds_it() -> None:
    def fn(x):
        try:
            return x * WITHOUT.get()
        except LookupError as error:
            return x + 1, error.args[0] is WITHOUT

    seen = same_as_eager(fn, (torch.ones(3),))
    assert (seen.graphs, seen.operators, seen.breaks) == (1, 1, {})


def test_set_and_reset_in_a_region() -> None:
    def fn(x, value):
        before = WITH_DEFAULT.get() or {}
        token = WITH_DEFAULT.set({"scale": value})
        try:
            y = x * WITH_DEFAULT.get()["scale"] + WITH_DEFAULT.get(None)["scale"]
        finally:
            WITH_DEFAULT.reset(token)
        return y, before, WITH_DEFAULT.get()

    seen = same_as_eager(fn, (torch.ones(3), 2), (torch.zeros(2), 2.5))
    assert (seen.operators, seen.breaks) == (4, {})


def test_others_set_it_between_calls() -> None:
    def fn(x):
        return x * WITH_DEFAULT.get(5) + WITHOUT.get(4) - WITH_DEFAULT.get()

    optimized = framecap.optimize(fn)
    x = torch.ones(2)
    for _ in range(2):
        assert torch.equal(optimized(x), fn(x))
        outer = WITHOUT.set(10)
        assert torch.equal(optimized(x), fn(x))
        inner = WITH_DEFAULT.set(100)
        assert torch.equal(optimized(x), x * 100 + 10 - 100)
        WITH_DEFAULT.reset(inner)
        WITHOUT.reset(outer)
        assert torch.equal(optimized(x), x * 5 + 4 - 3)
