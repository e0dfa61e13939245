"""Unique Python identifiers for the nodes and globals of a graph."""

from __future__ import annotations

import builtins
import keyword
import re

RESERVED = frozenset([*keyword.kwlist, *dir(builtins), "self", "torch", "nan", "inf"])
_OUTSIDE = re.compile(r"[^0-9a-zA-Z_]+")
_SUFFIX = re.compile(r"(.*)_(\d+)$")


class Names:
    """Hands out names: the hint if it is free, else the hint with the least free number behind it.

    Names given once are never given again unless released, so that texts and logs stay unambiguous.
    """

    def __init__(self, reserved: frozenset[str] = RESERVED) -> None:
        self.taken: set[str] = set()
        self.reserved = reserved
        self.next: dict[str, int] = {}

    def take(self, hint: str) -> str:
        """A free identifier that resembles ``hint``."""
        base = clean(hint)
        name = base
        if name in self.taken or name in self.reserved:
            match = _SUFFIX.match(base)
            if match is not None and match.group(1):
                base = match.group(1)
            count = self.next.get(base, 1)
            name = f"{base}_{count}"
            while name in self.taken or name in self.reserved:
                count += 1
                name = f"{base}_{count}"
            self.next[base] = count + 1
        self.taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Let ``name`` be given again."""
        self.taken.discard(name)
        match = _SUFFIX.match(name)
        if match is not None:
            base, count = match.group(1), int(match.group(2))
            if self.next.get(base, 1) > count:
                self.next[base] = count


def clean(hint: str) -> str:
    """``hint`` as an identifier: other characters become underscores, a leading digit gets one before it."""
    text = _OUTSIDE.sub("_", hint).strip("_") if not hint.isidentifier() else hint
    if not text:
        return "value"
    return f"_{text}" if text[0].isdigit() else text
