"""Fold batch norms into convolutions: a pass that changes weights, on a captured ResNet-50.

In eval mode a batch norm is an affine function of each channel, so the convolution before it can do its work: the
graph loses 53 modules and the results stay the same.
"""

from __future__ import annotations

import torch
from resnet50 import resnet50

import framecap
from framecap.graph.passes import fuse_conv_bn


def main() -> None:
    torch.manual_seed(0)
    model = resnet50(num_classes=10, width=16).eval()
    x = torch.randn(1, 3, 64, 64)

    module = framecap.capture(model, x)
    before = len(module.graph.nodes)
    report = fuse_conv_bn(module)
    print(f"{len(report.fused)} norms folded, {len(report.refused)} left; {before} nodes before, {len(module.graph.nodes)} now")
    print(f"the first: {report.fused[0]}; the graph relies on: {report.relies_on[0]}")

    with torch.no_grad():
        difference = (module(x) - model(x)).abs().max().item()
    print(f"largest difference of the results: {difference:.1e}")
    print("the model that was captured is unchanged:", isinstance(model.bn1, torch.nn.BatchNorm2d))


if __name__ == "__main__":
    main()
