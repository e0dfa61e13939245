"""Draw a ResNet-50 by module, and one of its blocks in full. Writes SVG files to a folder, by default a temporary one."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from resnet50 import resnet50

import framecap
from framecap.graph import draw_svg
from framecap.graph.passes import propagate_shapes


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    model = resnet50(num_classes=10, width=16).eval()
    images = torch.randn(1, 3, 64, 64)

    module = framecap.capture(model, images, is_leaf=framecap.no_leaves)
    propagate_shapes(module, images, fake=True)
    (folder / "resnet50.svg").write_text(draw_svg(module.graph))

    block = framecap.capture(model.layer1[0], torch.randn(1, 16, 16, 16))
    (folder / "block.svg").write_text(draw_svg(block.graph))
    print(f"{len(module.graph.nodes)} nodes drawn in {folder / 'resnet50.svg'}, a block in {folder / 'block.svg'}")


if __name__ == "__main__":
    main()
