"""What is installed, what an import loads, and what set-up says when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"framecap": "src/framecap", "framecap.graph": "src/graph", "framecap.guards": "src/guards"}


def run_python(code: str, **environment: str) -> str:
    """Run code in a new process, outside of the source tree's sys.path; returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd="/", env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy() -> None:
    heavy = ("torch._dynamo", "torch._inductor", "sympy", "rich", "transformers")
    code = f"import sys, torch, framecap; print([m for m in {heavy!r} if m in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_no_bare_names_are_installed() -> None:
    """A user's own graph.py or guards.py must not meet ours."""
    code = "import importlib.util as u; print([n for n in ('graph', 'guards', 'src', 'tests') if u.find_spec(n)])"
    assert run_python(code).strip() == "[]"


def test_packages_of_the_tree_are_all_listed() -> None:
    listed = set(PYPROJECT["tool"]["setuptools"]["packages"])
    found = set()
    for name, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inside = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *inside)))
    assert listed == found


def test_console_script() -> None:
    (script,) = [e for e in entry_points(group="console_scripts") if e.name == "framecap"]
    assert script.value == "framecap.cli:main"
    command = Path(sys.executable).with_name("framecap")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"framecap {PYPROJECT['project']['version']}\n"


@pytest.mark.slow
def test_wheel_and_source_archive(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    build = "from setuptools import build_meta as b; print(b.build_sdist('dist')); print(b.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tree, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    (wheel,) = (tree / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"framecap"}
    assert not [n for n in names if n.endswith((".c", ".h"))]
    assert {"framecap/py.typed", "framecap/_hook.pyi", "framecap/guards/_evaluator.pyi"} <= set(names)
    assert [n for n in names if n.startswith("framecap/_hook.") and n.endswith(".so")]
    assert [n for n in names if n.startswith("framecap/guards/_evaluator.") and n.endswith(".so")]
    assert "framecap/graph/node.py" in names

    (archive,) = (tree / "dist").glob("*.tar.gz")
    inside = {n.split("/", 1)[1] for n in tarfile.open(archive).getnames() if "/" in n}
    assert {
        "src/framecap/_hook.c", "src/framecap/_cpython.h", "src/guards/_evaluator.c", "src/guards/_evaluator.h",
        "src/framecap/py.typed", "setup.py", "pyproject.toml",
    } <= inside  # fmt: skip


def check_host(**environment: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "tools" / "check_host.py")
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, env=os.environ | environment
    )


def test_set_up_accepts_this_machine() -> None:
    done = check_host()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("compiler", "words"), [("no-such-compiler", "no C compiler"), ("false", "fails on an empty program")]
)
def test_set_up_without_a_compiler(compiler: str, words: str) -> None:
    done = check_host(CC=compiler)
    assert done.returncode == 1
    assert done.stderr.startswith("framecap: ") and words in done.stderr and done.stderr.count("\n") == 1


def load_check_host() -> dict[str, object]:
    names: dict[str, object] = {"__name__": "check_host"}
    exec((ROOT / "tools" / "check_host.py").read_text(), names)
    return names


def test_set_up_with_another_python() -> None:
    names = load_check_host()
    names["SUPPORTED"] = [(3, 99)]
    sentence = names["why_not_python"]()  # type: ignore[operator]
    assert "framecap needs CPython 3.99 and this is CPython 3." in sentence and "too old" in sentence


def test_set_up_without_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = load_check_host()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert "Python.h is missing: install the Python headers" in names["why_not_headers"]()  # type: ignore[operator]
