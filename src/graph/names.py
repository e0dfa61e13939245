"""Unique Python identifiers for the nodes of a graph and for what their code refers to."""

from __future__ import annotations

import builtins
import keyword
import re

from .errors import GraphError

KEYWORDS = frozenset([*keyword.kwlist, "__debug__"])

# What no node may be called: nodes become local variables, and these have a meaning in generated code. The last
# group is what torch.fx keeps for itself, so that a name given here is also one that torch.fx will take.
RESERVED = KEYWORDS | frozenset(dir(builtins)) | {"self", "math", "operator", "torch"}
RESERVED |= {"NoneType", "device", "fx_pytree", "inf", "nan", "pytree"}

_OUTSIDE = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.+)_(0|[1-9][0-9]{0,8})$")
_LONGEST = 80


class Names:
    """Hands out identifiers: the hint if it is free, else the hint with a number behind it.

    Only ASCII: CPython normalises other identifiers (PEP 3131), so that two different names could become one.
    `take`, `claim` and `release` cost the same however many names there are. Numbers count up; a number is handed
    out again only if its name is released before any later one of its kind was taken, which makes a rollback
    (newest first) leave no trace and keeps the cost of a name independent of what was released.
    """

    __slots__ = ("_next", "_reserved", "_taken")

    def __init__(self, reserved: frozenset[str] = RESERVED) -> None:
        self._taken: set[str] = set()
        self._reserved = reserved
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        """Whether this very name can't be given."""
        return name in self._taken or name in self._reserved

    def take(self, hint: str) -> str:
        """A free identifier that resembles ``hint``."""
        name = clean(hint)
        if name in self._taken or name in self._reserved:
            numbered = _NUMBERED.match(name)
            base = numbered.group(1) if numbered is not None else name
            count = self._next.get(base, 1)
            name = f"{base}_{count}"
            while name in self._taken or name in self._reserved:
                count += 1
                name = f"{base}_{count}"
            self._next[base] = count + 1
        self._taken.add(name)
        return name

    def claim(self, name: str) -> None:
        """Take this very name, reserved or not. Raises GraphError if another node has it."""
        if name in self._taken:
            raise GraphError(f"the name {name!r} is taken by another node of the graph")
        self._taken.add(name)

    def release(self, name: str) -> None:
        """Let ``name`` be given again."""
        self._taken.discard(name)
        numbered = _NUMBERED.match(name)
        if numbered is not None:
            base, count = numbered.group(1), int(numbered.group(2))
            if self._next.get(base) == count + 1:
                self._next[base] = count


def clean(hint: str) -> str:
    """``hint`` as an ASCII identifier: other characters become underscores, a leading digit gets one before it."""
    if len(hint) <= _LONGEST and hint.isascii() and hint.isidentifier():
        return hint
    text = _OUTSIDE.sub("_", hint).strip("_")[:_LONGEST]
    if not text:
        return "value"
    return f"_{text}" if text[0].isdigit() else text


def is_plain(name: str) -> bool:
    """Whether ``name`` can stand in code as an attribute or keyword argument and mean exactly itself."""
    return name.isidentifier() and name.isascii() and name not in KEYWORDS
