"""The comparison that all capture tests rely on notices what it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from helpers import Picture, first_difference


def differ(want: Any, got: Any, tolerance: float = 0.0) -> bool:
    return first_difference(Picture()(want), Picture()(got), "", tolerance) is not None


def shared() -> Any:
    x = torch.zeros(3)
    return [x, x]


def view() -> Any:
    x = torch.zeros(4)
    return [x, x[1:]]


ALIKE: dict[str, Callable[[], Any]] = {
    "numbers": lambda: (1, 2.5, float("nan"), -0.0, 1j, True, None, "s", b"b"),
    "containers": lambda: [{"a": {1, 2}}, (3, [4]), range(3), slice(1, None)],
    "tensors": lambda: [torch.arange(3.0), torch.tensor(float("nan")), torch.ones(2, dtype=torch.complex64)],
    "aliases": shared,
    "views": view,
    "modules": lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten()),
}


@pytest.mark.parametrize("name", ALIKE)
def test_equal_things_have_no_difference(name: str) -> None:
    assert not differ(ALIKE[name](), ALIKE[name]())


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "int and float": (1, 1.0),
    "int and bool": (1, True),
    "sign of zero": (0.0, -0.0),
    "sign of zero in a tensor": (torch.tensor([0.0]), torch.tensor([-0.0])),
    "tuple and list": ((1,), [1]),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "dtype": (torch.ones(2), torch.ones(2, dtype=torch.double)),
    "strides": (torch.ones(2, 2), torch.ones(2, 2).t().clone(memory_format=torch.preserve_format)),
    "requires grad": (torch.ones(2), torch.ones(2, requires_grad=True)),
    "parameter": (torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))),
    "same object": (shared(), [torch.zeros(3), torch.zeros(3)]),
    "shared memory": (view(), [torch.zeros(4), torch.zeros(4)[1:].clone()]),
    "training flag": (torch.nn.ReLU().train(), torch.nn.ReLU().eval()),
    "last bit": (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23])),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_difference_is_found(name: str) -> None:
    assert differ(*DIFFERENT[name])


def test_tolerance_is_for_values_only() -> None:
    assert not differ(torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]), tolerance=1e-6)
    assert differ(torch.tensor([1.0]), torch.tensor([1.1]), tolerance=1e-6)
    assert differ(torch.tensor([1]), torch.tensor([2]), tolerance=2)
