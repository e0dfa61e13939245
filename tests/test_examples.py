"""The examples, run as a user runs them, and the benchmarks' builders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.models import BUILDERS, build, tensors_in
from benchmarks.table import markdown
from examples.resnet50 import resnet50

ROOT = Path(__file__).parent.parent


def run_example(name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}", *args], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_resnet50() -> None:
    assert "equal to eager:  True, and when called again: True" in run_example("resnet50.py")


def test_resnet50_is_the_standard_network() -> None:
    model = resnet50()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032
    assert sum(isinstance(m, torch.nn.Conv2d) for m in model.modules()) == 53
    assert "layer4.2.bn3.running_var" in model.state_dict() and "layer2.0.downsample.0.weight" in model.state_dict()


def test_train_loop() -> None:
    out = run_example("train_loop.py")
    assert "losses equal to eager: True" in out
    assert out.count("accuracy") == 3


def test_report_demo_runs_without_framecap() -> None:
    assert "largest eigenvalue: 12.057" in run_example("report_demo.py")


def test_capture() -> None:
    assert "equal to eager: True" in run_example("capture.py")


def test_fuse_conv_bn() -> None:
    out = run_example("fuse_conv_bn.py")
    assert "53 norms folded, 0 left" in out and "unchanged: True" in out


def test_count_flops() -> None:
    out = run_example("count_flops.py")
    assert "8,178" in out.splitlines()[-3]  # 2 x 4.089 G multiply-adds, the number that is known for this network


def test_swap_activation() -> None:
    out = run_example("swap_activation.py")
    assert "replaced: 3, left: 0" in out and "runs: (4,)" in out


def test_write_a_pass() -> None:
    out = run_example("write_a_pass.py")
    assert "equal: True" in out and "+ %relu = call_function torch.relu(%x)" in out


def test_quantize() -> None:
    out = run_example("quantize.py")
    assert "state: 14.5 MB in float32, 3.7 MB in int8" in out
    assert float(out.split("relative error: ")[1]) < 0.03


def test_split_and_pipeline() -> None:
    out = run_example("split_and_pipeline.py")
    assert "equal to eager: True" in out and "stage 1  " in out


def test_pipeline_processes() -> None:
    assert "4 micro-batches: equal to one process: True" in run_example("pipeline_processes.py")


def test_export_onnx() -> None:
    pytest.importorskip("onnxruntime")
    assert "run by onnxruntime: equal to eager: True" in run_example("export_onnx.py")


def test_draw(tmp_path: Path) -> None:
    assert "444 nodes drawn" in run_example("draw.py", str(tmp_path))
    assert "layer3.5" in (tmp_path / "resnet50.svg").read_text() and "conv2" in (tmp_path / "block.svg").read_text()


def test_write_a_backend() -> None:
    out = run_example("write_a_backend.py")
    assert "equal: True" in out and "equal under torch.compile: True" in out
    first, second = [line for line in out.splitlines() if line.startswith("operators:")]
    assert first == second and "'sin': 2" in first


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", BUILDERS)
def test_builders_are_repeatable(name: str, train: bool) -> None:
    if name != "resnet50":
        pytest.importorskip("transformers")
    results = []
    for _ in range(2):
        workload = build(name, train=train).double()
        torch.manual_seed(1)
        result = workload.model(*workload.args, **workload.kwargs)
        workload.loss(result).backward()
        results.append(tensors_in(result) + [p.grad for p in workload.model.parameters() if p.grad is not None])
    first, second = results
    assert len(first) == len(second) > 1
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_tables_are_aligned() -> None:
    lines = markdown(("model", "us"), [("a", 1234.5), ("longer", 0.5)]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].endswith("1,234 |") and lines[1].endswith(":" + " |")
