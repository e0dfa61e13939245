"""Every test starts with nothing captured, and internal errors of framecap are raised."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

os.environ["FRAMECAP_STRICT"] = "1"  # also for the processes that tests start

import pytest
import torch

import framecap
from framecap import hook

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_captured() -> Iterator[None]:
    framecap.reset()
    random.seed(0)
    torch.manual_seed(0)
    yield
    left_on = hook.get_thread_config()
    hook.set_thread_config(None)
    framecap.reset()
    assert left_on is None, "the test left framecap.optimize switched on for its thread"
