"""Every test starts with nothing captured, internal errors of framecap are raised, and every graph is checked."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

os.environ["FRAMECAP_STRICT"] = "1"  # also for the processes that tests start

import pytest
import torch

import framecap
from framecap import hook
from framecap.graph import check
from framecap.points import code_states, install

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_captured() -> Iterator[None]:
    install()  # tests of the hook put callbacks of their own in its place
    framecap.reset()
    random.seed(0)
    torch.manual_seed(0)
    yield
    left_on = hook.get_thread_config()
    hook.set_thread_config(None)
    graphs = [variant.captured.graph for state in code_states() for variant in state.variants]
    framecap.reset()
    for graph in graphs:
        check(graph)
    assert left_on is None, "the test left framecap.optimize switched on for its thread"
