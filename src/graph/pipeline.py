"""Software pipelining: stages that work on different micro-batches at the same time, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import torch

from .errors import GraphError

Stage = Callable[..., Any]
_BAR = 72


@dataclass(frozen=True, slots=True)
class Step:
    """One stage at work on one input; start, end: seconds since the pipeline began."""

    stage: int
    item: int
    start: float
    end: float


@dataclass(slots=True)
class PipelineRun:
    """What a pipeline computed, in the order of the inputs, and when each step took place."""

    results: list[Any]
    steps: list[Step] = field(default_factory=list)

    @property
    def overlap(self) -> float:
        """The share of the busy time in which at least two stages worked at once: 0 if they took turns."""
        edges = sorted([(s.start, 1) for s in self.steps] + [(s.end, -1) for s in self.steps])
        busy = both = 0.0
        active, since = 0, 0.0
        for at, change in edges:
            busy += (at - since) * (active > 0)
            both += (at - since) * (active > 1)
            active, since = active + change, at
        return both / busy if busy else 0.0

    def timeline(self, width: int = _BAR) -> str:
        """A line of text for each stage: which input it worked on at what time; dots where it waited."""
        end = max((s.end for s in self.steps), default=0.0) or 1.0
        lines = []
        for stage in sorted({s.stage for s in self.steps}):
            bar = ["."] * width
            for s in self.steps:
                if s.stage == stage:
                    first, last = int(s.start / end * width), int(s.end / end * width)
                    bar[first : max(last, first + 1)] = [chr(ord("A") + s.item % 26)] * max(last - first, 1)
            lines.append(f"stage {stage}  {''.join(bar[:width])}")
        return "\n".join([*lines, f"{'':9}0{f'{end * 1e3:.1f} ms':>{width - 1}}"])


def run_pipeline(stages: Sequence[Stage], inputs: Sequence[Any]) -> PipelineRun:
    """Send inputs through stages, such as those of `split_into_stages`; stage 1 works on the first input while stage 0
    has begun with the second.

    stages: functions, each called with what the one before gave; a tuple is spread over its arguments, for inputs as
    well. Grad mode is that of the caller on all threads. The order of results is that of inputs. Threads overlap because
    operators release the interpreter's lock. An error in a stage is raised here, once all threads have ended.
    """
    if not stages:
        raise GraphError("a pipeline needs at least one stage")
    queues: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(len(stages) + 1)]
    steps: list[list[Step]] = [[] for _ in stages]
    errors: list[BaseException] = []
    grad = torch.is_grad_enabled()
    began = time.perf_counter()

    def work(index: int) -> None:
        with torch.set_grad_enabled(grad):
            while (entry := queues[index].get()) is not None:
                item, value = entry
                if errors:
                    continue
                start = time.perf_counter() - began
                try:
                    value = stages[index](*value) if isinstance(value, tuple) else stages[index](value)
                except BaseException as error:
                    error.add_note(f"in stage {index} of a pipeline, at input {item}")
                    errors.append(error)
                    continue
                steps[index].append(Step(index, item, start, time.perf_counter() - began))
                queues[index + 1].put((item, value))
            queues[index + 1].put(None)

    threads = [threading.Thread(target=work, args=(i,), name=f"pipeline stage {i}") for i in range(len(stages))]
    for thread in threads:
        thread.start()
    for entry in enumerate(inputs):
        queues[0].put(entry)
    queues[0].put(None)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    results: list[Any] = []
    while (entry := queues[-1].get()) is not None:
        results.append(entry[1])
    return PipelineRun(results, sorted((s for of in steps for s in of), key=lambda s: s.start))
