"""The report as JSON text."""

from __future__ import annotations

import json

from .data import Report


def render(report: Report) -> str:
    """Indented JSON, ASCII only (so that no output encoding can spoil it), ending in a line feed."""
    return json.dumps(report.to_dict(), indent=2) + "\n"
