"""What a model costs, by module, without running it: operations, memory traffic, and the least time it can take."""

from __future__ import annotations

import torch
from resnet50 import resnet50

import framecap
from framecap.graph.passes import estimate_costs

FLOPS_PER_SECOND = 80e9  # one core of a server, in float32: change these two to your machine's
BYTES_PER_SECOND = 10e9


def main() -> None:
    model = resnet50().eval()
    x = torch.empty(1, 3, 224, 224)

    report = estimate_costs(framecap.capture(model, x), x)
    print(report.table(depth=1))

    heaviest = sorted(report.nodes.items(), key=lambda item: -item[1].flops)[:3]
    print("the heaviest nodes:", ", ".join(f"{node.name} ({cost.flops / 1e6:.0f} MFLOP)" for node, cost in heaviest))
    print(f"least time on such a machine: {report.seconds(FLOPS_PER_SECOND, BYTES_PER_SECOND) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
