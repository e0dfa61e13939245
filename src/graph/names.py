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
_NUMBERED = re.compile(r"(.+)_[1-9][0-9]*$")
_LONGEST = 80
_SHORT_SEARCH = 8


class Names:
    """Hands out identifiers: the hint if it is free, else the hint with a number behind it.

    Only ASCII: CPython normalises other identifiers (PEP 3131), so that two different names could become one. Numbers
    count up. If names are released newest first, as by a rollback, what is taken then is what was taken before; else
    a released name is given again only for a hint that is that very name. So no search is ever repeated, and the cost of a
    name doesn't depend on how many there are.
    """

    __slots__ = ("_next", "_reserved", "_taken")

    def __init__(self, reserved: frozenset[str] = RESERVED) -> None:
        # For a name that was numbered: its base, and the base's next number before and after.
        self._taken: dict[str, tuple[str, int, int] | None] = {}
        self._reserved = reserved
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        """Whether this very name can't be given."""
        return name in self._taken or name in self._reserved

    def take(self, hint: str) -> str:
        """A free identifier that resembles ``hint``."""
        name = clean(hint)
        if name not in self._taken and name not in self._reserved:
            self._taken[name] = None
            return name
        numbered = _NUMBERED.match(name)
        base = numbered.group(1) if numbered is not None else name
        first = count = self._next.get(base, 1)
        while (name := f"{base}_{count}") in self._taken or name in self._reserved:
            count += 1
        self._next[base] = count + 1
        # A long search isn't undone, so that it isn't repeated.
        self._taken[name] = (base, first if count - first <= _SHORT_SEARCH else count, count + 1)
        return name

    def claim(self, name: str) -> None:
        """Take this very name, reserved or not. Raises GraphError if another node has it."""
        if name in self._taken:
            raise GraphError(f"the name {name!r} is taken by another node of the graph")
        self._taken[name] = None

    def release(self, name: str) -> None:
        """Let ``name`` be given again."""
        numbering = self._taken.pop(name, None)
        if numbering is not None:
            base, before, after = numbering
            if self._next[base] == after:
                self._next[base] = before


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
