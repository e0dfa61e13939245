"""The table of opcode handlers, filled by the modules of opcodes/; names are checked at registration."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], None]
HANDLERS: dict[str, Handler] = {}
REASONS: dict[str, str] = {}
"""Why an opcode without a handler has none; filled by opcodes/unsupported.py."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of one or more opcodes of the running Python."""

    def register(handler: Handler) -> Handler:
        for name in names:
            if name not in dis.opmap:
                raise LookupError(f"this Python has no opcode {name}")
            if name in HANDLERS:
                raise LookupError(f"opcode {name} has a handler already")
            HANDLERS[name] = handler
        return handler

    return register
