"""What can stand on the stack besides values."""

from __future__ import annotations

from typing import Any


class Null:
    """The NULL that CPython keeps below a callable that isn't a method."""

    def __repr__(self) -> str:
        return "NULL"


NULL: Any = Null()
