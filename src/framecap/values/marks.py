"""Marks for what was deleted."""

from __future__ import annotations

from typing import Any


class _Deleted:
    def __repr__(self) -> str:
        return "DELETED"


DELETED: Any = _Deleted()
"""Stands for an attribute, key or global that the region deleted."""
