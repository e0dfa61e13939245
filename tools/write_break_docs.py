"""Writes docs/graph_breaks.md from the kinds in framecap.errors: ``python tools/write_break_docs.py``."""

from __future__ import annotations

from pathlib import Path

from framecap.errors import KINDS

HEAD = """\
# Graph breaks

A graph break is an instruction that framecap leaves to CPython: it runs natively, in its own frame, and the code behind
it is captured again. Each has one of these codes, which don't change between versions. The report adds the place and
what exactly was met there.

| code | what it means | what to do |
| --- | --- | --- |
"""


def text() -> str:
    """The page."""
    return HEAD + "".join(f"| `{k.code}` | {k.explanation} | {k.hint} |\n" for k in KINDS.values())


if __name__ == "__main__":
    (Path(__file__).parent.parent / "docs" / "graph_breaks.md").write_text(text(), encoding="utf-8")
