"""Split a ResNet-50 into two stages of equal cost, and run them as a pipeline over micro-batches."""

from __future__ import annotations

import torch
from resnet50 import resnet50

import framecap
from framecap.graph import run_pipeline, split_into_stages
from framecap.graph.passes import estimate_costs


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the stages are to be what runs at the same time
    model = resnet50(num_classes=10, width=16).eval()
    batches = list(torch.randn(6, 4, 3, 64, 64))

    module = framecap.capture(model, batches[0])
    costs = estimate_costs(module, batches[0])
    _, stages = split_into_stages(module, 2, cost=lambda node: costs.nodes[node].flops)
    for stage in stages:
        print(f"{stage.name}: {len(stage.module.graph.nodes)} nodes, takes {stage.inputs}, gives {stage.outputs}")

    with torch.no_grad():
        run = run_pipeline([stage.module for stage in stages], batches)
        equal = all(torch.equal(result, model(batch)) for result, batch in zip(run.results, batches, strict=True))
    print(run.timeline())
    print(f"two stages at work for {run.overlap:.0%} of the time")
    print("equal to eager:", equal)


if __name__ == "__main__":
    main()
