"""framecap beside torch.compile(backend="eager") and plain eager, in one run.

python -m benchmarks.side_by_side [--models NAME ...] [--rounds N] [--train]

The engines take turns, call by call, in a rotating order, so that a change of the machine's speed hits all alike; a
time is the median. "First call" is that of a fresh model once the engine itself is warm. All three engines run the
same operators, so what differs is the cost of Python, guards and calls.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import framecap
from benchmarks.models import BUILDERS, Workload, build
from benchmarks.table import markdown

ENGINES = ("eager", "dynamo", "framecap")


def warm_up_engines() -> None:
    """Let every engine do its own imports and first set-up on a function that isn't measured."""

    def small(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1

    x = torch.ones(2)
    torch.compile(small, backend="eager")(x)
    framecap.optimize(small)(x)
    forget_captures()


def forget_captures() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    framecap.reset()


def prepare(engine: str, model: nn.Module) -> Callable[..., Any]:
    if engine == "dynamo":
        return torch.compile(model, backend="eager")
    if engine == "framecap":
        return framecap.optimize(model)
    return model


def captured(engine: str) -> tuple[object, object]:
    """(graphs, breaks) since `forget_captures`."""
    if engine == "dynamo":
        counters = torch._dynamo.utils.counters
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    if engine == "framecap":
        totals = framecap.api.collect_report().totals
        return totals.graphs, totals.breaks
    return "", ""


@dataclass(slots=True)
class Measured:
    """One engine on one model. Times in seconds."""

    engine: str
    call: Callable[[], Any]
    first: float = 0.0
    times: list[float] = field(default_factory=list)
    graphs: object = ""
    breaks: object = ""


def one_call(workload: Workload, run: Callable[..., Any], train: bool) -> Callable[[], Any]:
    def forward() -> Any:
        with torch.no_grad():
            return run(*workload.args, **workload.kwargs)

    def forward_and_backward() -> Any:
        workload.model.zero_grad()
        result = run(*workload.args, **workload.kwargs)
        workload.loss(result).backward()
        return result

    return forward_and_backward if train else forward


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(name: str, rounds: int, train: bool) -> list[Measured]:
    forget_captures()
    engines = []
    for engine in ENGINES:
        workload = build(name, train=train)
        measured = Measured(engine, one_call(workload, prepare(engine, workload.model), train))
        measured.first = timed(measured.call)
        # Some captures happen only on the second call (one more variant, a point that wakes up).
        for _ in range(3):
            measured.call()
        measured.graphs, measured.breaks = captured(engine)
        engines.append(measured)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for i in range(len(engines)):
                measured = engines[(number + i) % len(engines)]
                measured.times.append(timed(measured.call))
    finally:
        gc.enable()
    return engines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BUILDERS), default=list(BUILDERS))
    parser.add_argument("--rounds", type=int, default=60, help="calls of each engine that are timed")
    parser.add_argument("--train", action="store_true", help="train mode, forward and backward")
    options = parser.parse_args()

    torch.set_num_threads(1)
    warm_up_engines()
    rows = []
    for name in options.models:
        print(f"measuring {name}", file=sys.stderr)
        engines = measure(name, options.rounds, options.train)
        eager = statistics.median(engines[0].times)
        for m in engines:
            per_call = statistics.median(m.times)
            rows.append((f"{name} {m.engine}", m.first, per_call * 1e6, per_call / eager, m.graphs, m.breaks))
    what = "train mode, forward and backward" if options.train else "eval mode, forward"
    print(f"\n{what}, one thread, median of {options.rounds} calls, torch {torch.__version__}\n")
    print(markdown(("model, engine", "first call s", "per call µs", "x eager", "graphs", "breaks"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
