"""The kinds of graph breaks and their page."""

from __future__ import annotations

import sys
from pathlib import Path

from framecap.errors import KINDS, OF_TENSORS

ROOT = Path(__file__).parent.parent


def test_every_kind_says_what_and_what_to_do() -> None:
    for kind in KINDS.values():
        assert kind.explanation.endswith(".") and kind.hint.endswith("."), kind.code
        assert kind.code == kind.code.lower() and " " not in kind.code
    assert set(KINDS.values()) >= OF_TENSORS


def test_the_page_of_graph_breaks_is_up_to_date() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from write_break_docs import text
    finally:
        sys.path.pop(0)
    page = (ROOT / "docs" / "graph_breaks.md").read_text(encoding="utf-8")
    assert page == text(), "run tools/write_break_docs.py"
