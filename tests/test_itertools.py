"""The iterators of itertools: as lazy as they are, and the same iterators when a region ends with them half used."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framecap
from helpers import same_as_eager

X = torch.arange(4.0)
MAKERS: list[Callable[[Any], Any]] = [
    lambda x: itertools.repeat(x, 4),
    lambda x: itertools.repeat(x, times=-1),
    lambda x: itertools.repeat(x),
    lambda x: itertools.count(),
    lambda x: itertools.count(2, 3),
    lambda x: itertools.count(0.5, step=0.1),
    lambda x: itertools.chain([x, 1], (2,), "ab", range(3)),
    lambda x: itertools.chain(),
    lambda x: itertools.chain([], [x], [], iter([3, 4])),
    lambda x: itertools.chain.from_iterable([[x], (1, 2), {"k": 3}]),
    lambda x: itertools.chain.from_iterable([i] * i for i in range(4)),
    lambda x: itertools.islice([x, 1, 2, 3, 4], 3),
    lambda x: itertools.islice(itertools.count(), 2, None),
    lambda x: itertools.islice(iter([x, 1, 2, 3, 4, 5, 6]), 1, 6, 2),
    lambda x: itertools.islice(itertools.count(), 1, 12, 3),
    lambda x: itertools.islice(range(9), 5, 3),
    lambda x: itertools.islice(range(3), 0),
    lambda x: itertools.islice(range(9), None, None, 4),
    lambda x: itertools.takewhile(lambda i: i < 3, range(9)),
    lambda x: itertools.dropwhile(lambda i: i < 3, [1, 4, 2, 5, 6]),
    lambda x: itertools.filterfalse(lambda i: i % 2, range(9)),
    lambda x: itertools.filterfalse(None, [0, 1, "", 2, (), []]),
    lambda x: itertools.filterfalse(bool, [0, 1, "", 2]),
    lambda x: itertools.starmap(operator.add, [(x, 1), [2, x], (3, 4)]),
    lambda x: itertools.compress([x, 1, 2, 3], [1, 0, True, "a", 5]),
    lambda x: itertools.compress("abc", [0, 1]),
    lambda x: itertools.accumulate([x, 1, 2]),
    lambda x: itertools.accumulate([1, 2, 3], initial=x),
    lambda x: itertools.accumulate([1, 2, 3], operator.mul),
    lambda x: itertools.accumulate([1, 2, x, 3], lambda a, b: a * b + 1, initial=None),
    lambda x: itertools.accumulate([]),
    lambda x: itertools.cycle([x, 1, 2]),
    lambda x: itertools.cycle(iter([x])),
    lambda x: itertools.cycle([]),
    lambda x: itertools.zip_longest([x, 1], range(4), "abc"),
    lambda x: itertools.zip_longest([x], [], fillvalue=x * 2),
    lambda x: itertools.zip_longest(),
    lambda x: itertools.pairwise([x, 1, 2, 3]),
    lambda x: itertools.pairwise([x]),
    lambda x: itertools.product([x, 1], "ab"),
    lambda x: itertools.product([0, 1], repeat=2),
    lambda x: itertools.product(iter([1, 2]), [x]),
    lambda x: itertools.permutations([x, 1, 2], 2),
    lambda x: itertools.permutations((1, 2)),
    lambda x: itertools.combinations([x, 1, 2, 3], 2),
    lambda x: itertools.combinations_with_replacement([x, 1], r=2),
    lambda x: itertools.combinations([1], 3),
]


@pytest.mark.parametrize("make", MAKERS, ids=range(len(MAKERS)))
@pytest.mark.parametrize("before", [0, 1, 2, 3, 9])
def test_iterators_leave_a_region_as_they_are(make: Any, before: int) -> None:
    def function(x: Any) -> Any:
        iterator = make(x + 1)
        first = [next(iterator, "end") for _ in range(before)]
        y = x * 2
        framecap.graph_break()
        rest = [next(iterator, "end") for _ in range(12)]
        return y, type(iterator).__name__, first, rest

    assert set(same_as_eager(function, (X,), (X * 3,)).breaks) <= {"requested", "unsupported-value", "escapes"}


@pytest.mark.parametrize("make", [m for i, m in enumerate(MAKERS) if i not in (2, 3, 4, 5, 12, 31, 32)])
def test_loops_over_them_are_captured(make: Any) -> None:
    def function(x: Any) -> Any:
        total, items = x, []
        for item in make(x):
            total = total * 2
            items.append(item)
        return total, items

    seen = same_as_eager(function, (X,), (X * 3,))
    assert not seen.breaks


def test_class_methods_of_builtins() -> None:
    def function(x: Any) -> Any:
        return dict.fromkeys(["a", "b"], x + 1), float.fromhex("0x1p3"), int.from_bytes(b"ab", "big"), bytes.fromhex("ff")

    assert not same_as_eager(function, (X,)).breaks


def test_they_share_the_iterator_they_read() -> None:
    def function(x: Any) -> Any:
        source = iter([x, x + 1, x + 2, x + 3, x + 4, x + 5])
        first = list(itertools.islice(source, 2))
        second = next(source)
        pairs = itertools.pairwise(source)
        third = next(pairs)
        return first, second, third, list(source), list(pairs)

    assert not same_as_eager(function, (X,)).breaks


def test_loops_without_an_end_are_left_to_python() -> None:
    def function(x: Any) -> Any:
        for step in itertools.count():
            x = x + step
            if step == 200:
                return x

    assert same_as_eager(function, (X,)).graphs


def test_a_failed_region_gives_back_what_it_took() -> None:
    def function(x: Any, source: Any) -> Any:
        first = next(source)
        pairs = list(itertools.islice(source, 2))
        if (x + first).sum() > 0:
            return x * 2, pairs, list(source)
        return x, pairs

    for sign in (1, -1):
        expected = function(X * sign, itertools.chain([1, 2], [3, 4]))
        with framecap.optimize():
            actual = function(X * sign, itertools.chain([1, 2], [3, 4]))
        assert torch.equal(actual[0], expected[0]) and actual[1:] == expected[1:]
