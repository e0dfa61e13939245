"""What a thread's ``optimize`` was asked to do. A variant belongs to the configuration it was compiled for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_VARIANTS = 8
"""Variants of one capture point for one configuration; beyond that, no more are made (design section 7)."""
MAX_INLINE_DEPTH = 40
"""Calls nested inside a region."""
MAX_STEPS = 60_000
"""Instructions interpreted for one region."""
MAX_UNROLL = 64
"""Iterations of a known loop that are unrolled; a longer loop's body is captured once."""


def strict() -> bool:
    """Whether internal errors are raised (``FRAMECAP_STRICT=1``) rather than warned of once."""
    return os.environ.get("FRAMECAP_STRICT", "") not in ("", "0")


@dataclass(frozen=True, eq=False)
class Config:
    """One ``optimize`` request. Compared by identity: equal requests share an object through ``api``.

    backend: callable(graph_module, example_inputs) -> callable, or None for our own generated code.
    """

    backend_name: str
    backend: Callable[..., Any] | None
    fullgraph: bool = False
