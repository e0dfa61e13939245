"""How much of what torch executes runs inside captured regions: every operator of a call is counted.

python -m benchmarks.coverage [--models NAME ...] [--train]

A TorchDispatchMode sees each operator that reaches torch's dispatcher, whoever called it; whether a region's code was
running at that moment is asked of the hook.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import framecap
from benchmarks.models import BUILDERS, build
from benchmarks.table import markdown
from framecap.hook import in_region


class CountOperators(TorchDispatchMode):
    """Counts operators inside and outside of regions by name."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: Counter[str] = Counter()
        self.outside: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counter = self.inside if in_region() else self.outside
        counter[str(func)] += 1
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Operators of one warm call, and what the report says of the same model."""

    name: str
    inside: int
    outside: Counter[str]
    graphs: int
    breaks: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.inside + self.outside.total()

    @property
    def share(self) -> float:
        """Part of the operators that ran inside regions, from 0 to 1."""
        return self.inside / self.total if self.total else 1.0


def count(call: Callable[[], Any]) -> CountOperators:
    """Count the operators of one call."""
    with CountOperators() as counter:
        call()
    return counter


def measure(name: str, train: bool = False, warm_calls: int = 3) -> Coverage:
    """Coverage of a forward call of model ``name``, after ``warm_calls`` that capture it."""
    framecap.reset()
    workload = build(name, train=train)
    run = framecap.optimize(workload.model)
    with torch.set_grad_enabled(train):
        for _ in range(warm_calls):
            run(*workload.args, **workload.kwargs)
        report = framecap.api.collect_report()
        counter = count(lambda: run(*workload.args, **workload.kwargs))
    return Coverage(
        name,
        counter.inside.total(),
        counter.outside,
        report.totals.graphs,
        Counter(b.code for b in report.breaks),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BUILDERS), default=list(BUILDERS))
    parser.add_argument("--train", action="store_true", help="in train mode, with gradients")
    options = parser.parse_args()
    rows = []
    outside: Counter[str] = Counter()
    for name in options.models:
        print(f"counting {name}", file=sys.stderr)
        found = measure(name, options.train)
        breaks = ", ".join(f"{n} {code}" for code, n in found.breaks.items()) or "none"
        rows.append((name, found.total, found.inside, f"{found.share:.1%}", found.graphs, breaks))
        outside += found.outside
    print(f"\n{'train' if options.train else 'eval'} mode, forward: operators that torch executed in one call\n")
    print(markdown(("model", "operators", "in regions", "share", "graphs", "breaks"), rows))
    if outside:
        print("\noutside of regions:", ", ".join(f"{name} x{n}" for name, n in outside.most_common(20)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
