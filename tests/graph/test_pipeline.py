"""Pipelines: the same results as one stage after the other, and work that overlaps."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch import nn

import framecap
from framecap.graph import GraphError, run_pipeline, split_into_stages


def test_results_are_those_of_the_whole_in_order() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh()).eval()
    _, stages = split_into_stages(framecap.capture(model), 3)
    inputs = [torch.full((2, 4), float(i)) for i in range(7)]
    run = run_pipeline([stage.module for stage in stages], inputs)
    assert len(run.results) == 7 and len(run.steps) == 21
    for given, result in zip(inputs, run.results, strict=True):
        assert torch.equal(result, model(given)) and result.requires_grad


def test_stages_work_at_the_same_time() -> None:
    # Each first stage but one ends only once the second has begun with the input before: without overlap, a deadlock.
    begun = [threading.Event() for _ in range(4)]

    def first(i: int) -> int:
        assert i == 0 or begun[i - 1].wait(20)
        return i

    def second(i: int) -> int:
        begun[i].set()
        time.sleep(0.02)
        return i * 10

    run = run_pipeline([first, second], range(4))
    assert run.results == [0, 10, 20, 30]
    lines = run.timeline(40).splitlines()
    assert lines[0].startswith("stage 0  ") and "D" in lines[1] and lines[2].endswith(" ms")
    assert {(step.stage, step.item) for step in run.steps} == {(stage, item) for stage in (0, 1) for item in range(4)}


def test_overlap_is_a_share_of_the_busy_time() -> None:
    from framecap.graph.pipeline import PipelineRun, Step

    steps = [Step(0, 0, 0.0, 1.0), Step(1, 0, 1.0, 3.0), Step(0, 1, 2.0, 4.0)]
    assert PipelineRun([], steps).overlap == pytest.approx(0.25)
    assert PipelineRun([]).overlap == 0


def test_tuples_are_arguments_and_grad_mode_is_the_callers() -> None:
    def add(a: Any, b: Any) -> Any:
        return a + b, torch.is_grad_enabled()

    with torch.no_grad():
        assert run_pipeline([add], [(1, 2)]).results == [(3, False)]
    assert run_pipeline([add], [(1, 2)]).results == [(3, True)]


def test_an_error_reaches_the_caller() -> None:
    def fail(i: int) -> int:
        if i == 2:
            raise ValueError("two")
        return i

    with pytest.raises(ValueError, match="two") as raised:
        run_pipeline([lambda i: i, fail], range(5))
    assert raised.value.__notes__ == ["in stage 1 of a pipeline, at input 2"]
    with pytest.raises(GraphError, match="at least one stage"):
        run_pipeline([], [])
