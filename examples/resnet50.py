"""ResNet-50 (He et al., "Deep Residual Learning for Image Recognition"), run eagerly and under framecap.optimize.

The standard bottleneck network, with the stride on the 3x3 convolution; parameter names are those of the usual
checkpoints, so their state dicts load.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around which the input is added again."""

    expansion = 4

    def __init__(self, in_planes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None) -> None:
        super().__init__()
        out_planes = planes * self.expansion
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, out_planes, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x

        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))

        if self.downsample is not None:
            identity = self.downsample(x)

        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, and a classifier. ``blocks`` is the number of bottlenecks in each stage."""

    def __init__(self, blocks: Sequence[int], num_classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self.stage(width, blocks[0], stride=1)
        self.layer2 = self.stage(width * 2, blocks[1], stride=2)
        self.layer3 = self.stage(width * 4, blocks[2], stride=2)
        self.layer4 = self.stage(width * 8, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(self.in_planes, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stage(self, planes: int, count: int, stride: int) -> nn.Sequential:
        out_planes = planes * Bottleneck.expansion
        downsample = None
        if stride != 1 or self.in_planes != out_planes:
            downsample = nn.Sequential(
                nn.Conv2d(self.in_planes, out_planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(out_planes),
            )
        layers = [Bottleneck(self.in_planes, planes, stride, downsample)]
        self.in_planes = out_planes
        layers += [Bottleneck(out_planes, planes) for _ in range(count - 1)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)

        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)

        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def resnet50(num_classes: int = 1000, width: int = 64) -> ResNet:
    """The 50-layer network; ``width`` below 64 gives a thinner one of the same shape."""
    return ResNet([3, 4, 6, 3], num_classes, width)


def main() -> None:
    import framecap

    torch.manual_seed(0)
    model = resnet50().eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(images)

        optimized = framecap.optimize(model)
        actual = optimized(images)
        again = optimized(images)

    print(f"equal to eager:  {torch.equal(expected, actual)}, and when called again: {torch.equal(expected, again)}")
    print(framecap.explain(model)(images).totals)


if __name__ == "__main__":
    main()
