"""Fuse a ResNet-50, hand it to torch.export by way of torch.fx, write ONNX, and run that. Needs framecap[export]."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import onnxruntime
import torch
from resnet50 import resnet50

import framecap
from framecap.graph import to_fx
from framecap.graph.passes import fuse_conv_bn


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = resnet50(num_classes=10, width=16).eval()
    x = torch.randn(2, 3, 64, 64)
    module = framecap.capture(model, x)
    fuse_conv_bn(module)

    exported = torch.export.export(to_fx(module), (x,))
    path = Path(tempfile.mkdtemp()) / "resnet50.onnx"
    torch.onnx.export(exported, (x,), path, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    with torch.no_grad():
        expected = model(x)
    close = torch.allclose(torch.from_numpy(result), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    size = sum(file.stat().st_size for file in path.parent.iterdir())
    print(f"{size / 1e6:.1f} MB of ONNX, run by onnxruntime: equal to eager: {close}")


if __name__ == "__main__":
    main()
