"""Functions of sizes that graphs may call, beside Python's operators."""

from __future__ import annotations


def broadcast_size(a: int, b: int) -> int:
    """The size that two sizes of a dimension broadcast to, if they do."""
    return b if a == 1 else a
