"""Running a graph without computing anything: torch's fake tensors, which have shapes and types but no data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..node import map_arguments
from ..state import Root


@contextmanager
def faking(root: Root) -> Iterator[tuple[Root, Callable[[Any], Any]]]:
    """Within the block operators work on fake tensors.

    Gives a copy of ``root`` with fake parameters and buffers, so that operators that work in place don't reach the real
    ones, and a function that makes fake tensors of arguments. The state of the random generator is put back.
    """
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode  # not cheap to import

    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        return mode.from_tensor(value, static_shapes=True)

    def to_fake(arguments: Any) -> Any:
        return map_arguments(arguments, lambda node: node, leaf)

    with FakeCopyMode(mode):
        copied = copy.deepcopy(root)
    state = torch.get_rng_state()
    try:
        with mode:
            yield copied, to_fake
    finally:
        torch.set_rng_state(state)
