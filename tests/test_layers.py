"""Imports go one way. A part may import itself and what its row names, and nothing else of the project."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"

LOW = {"errors", "config", "graph", "guards"}
VALUES = LOW | {"tracing", "values", "policy"}
MODELS = VALUES | {"models"}
SYMBOLIC = MODELS | {"bytecode", "symbolic"}
OPCODES = SYMBOLIC | {"opcodes"}
CAPTURE = OPCODES | {"policy", "hook", "backends", "points", "capturing"}
API = CAPTURE | {"api", "report"}

MAY_IMPORT: dict[str, set[str]] = {
    "graph": set(),
    "guards": set(),
    "errors": set(),
    "config": set(),
    "bytecode": set(),
    "report": set(),
    "hook": {"_hook", "guards", "config", "errors"},
    "tracing": LOW,
    "values": VALUES,
    "models": MODELS,
    "symbolic": SYMBOLIC,
    "opcodes": OPCODES,
    "backends": {"errors", "config", "graph"},
    "policy": set(),
    "modules": {"config", "hook", "backends"},
    "whole": CAPTURE | {"whole_graph"},
    "whole_graph": CAPTURE,
    "points": CAPTURE,
    "capturing": CAPTURE,
    "api": API | {"whole", "modules"},
    "program": set(),
    "cli": {"api", "report", "program", "errors"},
    "__main__": {"cli"},
    "__init__": API,
}


def part_of(path: Path) -> str:
    """The part a file belongs to: a folder below src/, or a folder or file below src/framecap."""
    relative = path.relative_to(SRC)
    return Path(relative.parts[1]).stem if relative.parts[0] == "framecap" else relative.parts[0]


def module_of(path: Path) -> list[str]:
    """The dotted name of the package that a file's relative imports start from."""
    folder = list(path.relative_to(SRC).parent.parts)
    return folder if folder[0] == "framecap" else ["framecap", *folder]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, part) for every import of something of ours, those inside functions included, those for types not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body.clear()
    for node in ast.walk(tree):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                package = module_of(path)
                base = package[: len(package) - node.level + 1] + base
            names = [base] if len(base) > 1 else [[*base, alias.name] for alias in node.names]
        for name in names:
            if name[0] == "framecap":
                yield node.lineno, name[1] if len(name) > 1 else "__init__"


FILES = sorted(path for path in SRC.rglob("*.py") if "__pycache__" not in path.parts)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_one_way(path: Path) -> None:
    part = part_of(path)
    assert part in MAY_IMPORT, f"{part} has no row in MAY_IMPORT: say what it may import"
    allowed = MAY_IMPORT[part] | {part}
    wrong = [f"line {line} imports {name}" for line, name in imported(path) if name not in allowed]
    assert not wrong, f"{path.relative_to(SRC)} ({part}) may import {sorted(allowed)}: {'; '.join(wrong)}"


def test_the_test_sees_imports(tmp_path: Path) -> None:
    source = "import framecap.api\nfrom framecap import hook\nfrom framecap.graph.node import Node\nimport torch\n"
    path = tmp_path / "sample.py"
    path.write_text(source)
    assert list(imported(path)) == [(1, "api"), (2, "hook"), (3, "graph")]
    relative = list(imported(SRC / "framecap" / "cli.py"))
    assert {"api", "report", "program"} <= {name for _, name in relative}


def test_nothing_comes_from_dynamo() -> None:
    """backends.py alone may reach it, for the names of torch.compile's backends."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and path.name != "backends.py":
                assert "_dynamo" not in ast.unparse(node), f"{path}:{node.lineno}"
