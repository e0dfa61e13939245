"""Post-training quantization of the DeepRecommender autoencoder: float32 eager against int8, in one run.

python -m benchmarks.quantize [--rounds N] [--items N]

The case study of the torch.fx paper (section 6.2.1). The engines take turns call by call; times are medians. The limit
is what the roofline model gives for this machine's peaks, which are measured first: products of large matrices in both
types, and reading memory. A speed-up above it means that eager doesn't reach the peak of float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import framecap
from benchmarks.fuse import medians
from benchmarks.table import markdown
from examples.quantize import DeepRecommender, quantize, some_ratings
from framecap.graph.passes import estimate_costs
from framecap.graph.quantized import QuantizedLinear


def best(call: Callable[[], object], rounds: int = 7) -> float:
    """Seconds of a call at this machine's best."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peaks() -> tuple[float, float, float]:
    """Operations a second in float32 and int8, and bytes a second read from memory."""
    size = 1024
    linear, x = nn.Linear(size, size, bias=False), torch.rand(size, size)
    layer = QuantizedLinear(linear, 0.0, 1.0)
    quantized = layer.quantize(x)
    large = torch.ones(64 << 20)
    seconds = best(lambda: linear(x)), best(lambda: layer.product(quantized)), best(lambda: large.sum())
    return 2 * size**3 / seconds[0], 2 * size**3 / seconds[1], large.nbytes / seconds[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--items", type=int, default=17768)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = DeepRecommender(options.items).eval()
    captured = framecap.capture(model)
    int8 = quantize(model, [some_ratings(16, options.items, seed) for seed in range(4)])
    threads = torch.get_num_threads()
    rows = []
    with torch.no_grad():
        for count in dict.fromkeys((1, threads)):
            torch.set_num_threads(count)
            float_peak, int_peak, bandwidth = peaks()
            print(f"{count} threads: {float_peak / 1e9:.0f} GFLOP/s float32, {int_peak / 1e9:.0f} GOP/s int8, "
                  f"{bandwidth / 1e9:.1f} GB/s")  # fmt: skip
            for batch in (1, 16, 64, 128):
                x = some_ratings(batch, options.items, seed=9)
                error = float((int8(x) - model(x)).norm() / model(x).norm())
                models = {"eager": model, "captured": captured, "int8": int8}
                found = medians({name: (lambda m=m, x=x: m(x)) for name, m in models.items()}, options.rounds)  # type: ignore[misc]
                total = estimate_costs(captured, x).total
                limit = max(total.flops / float_peak, total.parameter_bytes / bandwidth) / max(
                    total.flops / int_peak, total.parameter_bytes / 4 / bandwidth
                )
                rows.append((f"{count} threads, batch {batch}", found["eager"] * 1e3, found["captured"] / found["eager"],
                             found["int8"] * 1e3, found["eager"] / found["int8"], limit, f"{error:.3f}"))  # fmt: skip
    torch.set_num_threads(threads)
    header = ("", "eager ms", "captured/eager", "int8 ms", "speed-up", "limit", "relative error")
    print(markdown(header, rows))
    print(f"median speed-up {statistics.median(row[4] for row in rows):.1f}")


if __name__ == "__main__":
    main()
