"""Conv-BN fusion on ResNet-50: eager, torch.fx's own fusion and framecap's, in one run.

python -m benchmarks.fuse [--rounds N] [--size PIXELS] [--batch N]

The case study of the torch.fx paper (section 6.2.2), for one thread and for all. The engines take turns call by call;
times are medians. "Eager" is the model as it is; "captured" the graph before fusion.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch.fx.experimental.optimization import fuse as fx_fuse

import framecap
from benchmarks.table import markdown
from examples.resnet50 import resnet50
from framecap.graph.passes import fuse_conv_bn


def medians(engines: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of a call of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    names = list(engines)
    for round_ in range(rounds + 2):
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            start = time.perf_counter()
            engines[name]()
            if round_ >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(options.batch, 3, options.size, options.size)
    model = resnet50().eval()
    captured = framecap.capture(model, x)
    fused = copy.copy(captured)
    pairs = len(fuse_conv_bn(fused).fused)
    models = {"eager": model, "torch.fx fused": fx_fuse(model), "captured": captured, "framecap fused": fused}
    rows = []
    threads = torch.get_num_threads()
    with torch.no_grad():
        expected = model(x)
        for name, other in models.items():
            torch.testing.assert_close(other(x), expected, rtol=1e-3, atol=1e-3, msg=name)
        for count in dict.fromkeys((1, threads)):
            torch.set_num_threads(count)
            found = medians({name: (lambda m=m: m(x)) for name, m in models.items()}, options.rounds)  # type: ignore[misc]
            rows += [[f"{count}", name, f"{t * 1e3:.1f}", f"{t / found['eager']:.2f}"] for name, t in found.items()]
    torch.set_num_threads(threads)
    print(f"ResNet-50, batch {options.batch}, {options.size} x {options.size} pixels; {pairs} pairs fused")
    print(markdown(["threads", "model", "ms", "ratio to eager"], rows))


if __name__ == "__main__":
    main()
