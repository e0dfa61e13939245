"""Importing framecap.graph is cheap: it brings nothing that `import torch` doesn't bring."""

from __future__ import annotations

import subprocess
import sys


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_nothing_heavy_is_imported() -> None:
    torch_alone = modules_after("import torch")
    ours = modules_after("import torch, framecap.graph, framecap.graph.passes")
    new = ours - torch_alone
    assert not {name for name in new if name.startswith(("torch", "sympy"))}
    assert "sympy" not in ours and "torch._dynamo" not in ours
    assert "framecap.graph.interop" not in ours and "framecap.graph.codegen" in ours


def test_the_interchange_with_torch_fx_is_imported_when_asked_for() -> None:
    assert "framecap.graph.interop" in modules_after("import framecap.graph as g; assert callable(g.to_fx)")
    assert "framecap.graph.interop" in modules_after("from framecap.graph import from_fx")
