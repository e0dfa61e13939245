"""What ``import framecap`` costs beyond ``import torch``, each time in a new process.

python -m benchmarks.import_time [--runs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

CHILD = """
import json, sys, time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import framecap
end = time.perf_counter()
heavy = [name for name in ("torch._dynamo", "sympy", "rich", "bytecode", "transformers") if name in sys.modules]
print(json.dumps([middle - start, end - middle, heavy]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    results = [
        json.loads(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True, text=True).stdout)
        for _ in range(runs + 1)
    ][1:]  # the first run fills the disk cache
    torch_s, own_s = (statistics.median(r[i] for r in results) for i in (0, 1))
    print(f"import torch:    {torch_s * 1e3:6.0f} ms")
    print(f"import framecap: {own_s * 1e3:6.0f} ms more (median of {runs} processes)")
    print(f"loaded by it, of the heavy ones: {', '.join(results[-1][2]) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
