"""What is checked: one frozen class a check. A guard names its source, what was found, and can say what changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .source import Source, hold

Where = tuple[str, int]
MISSING: Any = object()
HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE."""


def _show(value: Any) -> str:
    """A value in a sentence. Only built-in types are shown by their repr: that of others is the program's code."""
    if type(value).__flags__ & HEAP_TYPE:
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A check of what was read. where: file and line of the user's code that made the read."""

    where: Where | None = field(default=None, compare=False)

    def sources(self) -> tuple[Source, ...]:
        """What the check needs to reach."""
        raise NotImplementedError

    def explain(self, found: Any = MISSING) -> str:
        """One sentence: what was expected and what was found instead (MISSING: it can't be reached any more)."""
        source = self.sources()[0]
        if found is MISSING:
            return f"{source} can't be reached any more"
        return self.sentence(found)

    def sentence(self, found: Any) -> str:
        raise NotImplementedError

    def claim(self) -> str | None:
        """The condition as Python would write it; None if it says nothing of a value (a type, say, or an identity)."""
        return None


class _One(Guard):
    """A check of one object."""

    __slots__ = ()
    source: Source

    def sources(self) -> tuple[Source, ...]:
        return (self.source,)


class IsGuard(_One):
    """The object is ``obj`` itself. Held weakly where the type allows it: a guard keeps nothing alive."""

    __slots__ = ("_id", "held", "source")
    held: Callable[[], Any]
    _id: int

    def __init__(self, source: Source, obj: Any, *, where: Where | None = None) -> None:
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "held", hold(obj))
        object.__setattr__(self, "_id", id(obj))
        object.__setattr__(self, "where", where)

    @property
    def obj(self) -> Any:
        """The object, or None when it is gone."""
        return self.held()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IsGuard) and self.source == other.source and self.held() is other.held()

    def __hash__(self) -> int:
        return hash((self.source, self._id))

    def sentence(self, found: Any) -> str:
        return f"{self.source} is another object than before"


class _Typed(_One):
    """A check that names a class, held weakly."""

    __slots__ = ("_id", "held", "source")
    held: Callable[[], Any]
    _id: int

    def __init__(self, source: Source, cls: type, *, where: Where | None = None) -> None:
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "held", hold(cls))
        object.__setattr__(self, "_id", id(cls))
        object.__setattr__(self, "where", where)

    @property
    def type(self) -> Any:
        """The class, or None when it is gone."""
        return self.held()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, _Typed) and self.source == other.source and self.type is other.type

    def __hash__(self) -> int:
        return hash((self.source, self._id))

    def sentence(self, found: Any) -> str:
        was = "of a class that is gone" if self.type is None else f"a {self.type.__name__}"
        return f"{self.source} is a {type(found).__name__}, it was {was}"


class TypeGuard(_Typed):
    """The object's exact type."""

    __slots__ = ()


class EqualsGuard(_One):
    """Exact type and value: ints, floats (bit by bit), strings, None, torch's constants, and tuples of these."""

    __slots__ = ("source", "value")
    value: Any

    def __init__(self, source: Source, value: Any, *, where: Where | None = None) -> None:
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "where", where)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualsGuard) and self.source == other.source and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.source)

    def sentence(self, found: Any) -> str:
        return f"{self.source} is {_show(found)}, it was {_show(self.value)}"

    def claim(self) -> str:
        return f"{self.source} == {_show(self.value)}"


def same_value(a: Any, b: Any) -> bool:
    """Equality as EqualsGuard means it."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)
    if isinstance(a, complex):
        return same_value(a.real, b.real) and same_value(a.imag, b.imag)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, frozenset):
        return a == b and {(type(x), x) for x in a} == {(type(x), x) for x in b}
    return bool(a == b)


@dataclass(frozen=True, slots=True)
class LengthGuard(_One):
    """Number of items of a list, tuple, dict or set, by the built-in's own count."""

    source: Source
    length: int

    def sentence(self, found: Any) -> str:
        return f"{self.source} doesn't have {self.length} items any more"

    def claim(self) -> str:
        return f"len({self.source}) == {self.length}"


@dataclass(frozen=True, slots=True)
class KeysGuard(_One):
    """The keys of a dict, in order."""

    source: Source
    keys: tuple[Any, ...]

    def sentence(self, found: Any) -> str:
        return f"{self.source} has other keys than before"

    def claim(self) -> str:
        return f"list({self.source}) == {list(self.keys)!r}"


@dataclass(frozen=True, slots=True)
class AbsentKeyGuard(_One):
    """A dict has no such key."""

    source: Source
    key: Any

    def sentence(self, found: Any) -> str:
        return f"{self.source} has a key {self.key!r} now"

    def claim(self) -> str:
        return f"{self.key!r} not in {self.source}"


@dataclass(frozen=True, slots=True)
class AbsentAttrGuard(_One):
    """The instance itself has no such attribute."""

    source: Source
    name: str

    def sentence(self, found: Any) -> str:
        return f"{self.source} has an attribute {self.name!r} now"


@dataclass(frozen=True, slots=True)
class AbsentTypeAttrGuard(_One):
    """The class has no such attribute, anywhere on its mro."""

    source: Source
    name: str

    def sentence(self, found: Any) -> str:
        return f"class {self.source} has an attribute {self.name!r} now"


@dataclass(frozen=True, slots=True)
class UnboundGuard(_One):
    """The local variable is unbound, or the cell empty."""

    source: Source

    def sentence(self, found: Any) -> str:
        return f"{self.source} is bound now"


@dataclass(frozen=True, slots=True)
class SameGuard(Guard):
    """Two paths lead to one object."""

    a: Source
    b: Source

    def sources(self) -> tuple[Source, ...]:
        return (self.a, self.b)

    def sentence(self, found: Any) -> str:
        return f"{self.a} and {self.b} are no longer the same object"

    def claim(self) -> str:
        return f"{self.a} is {self.b}"


@dataclass(frozen=True, slots=True)
class DistinctGuard(Guard):
    """The paths lead to different objects."""

    paths: tuple[Source, ...]

    def sources(self) -> tuple[Source, ...]:
        return self.paths

    def sentence(self, found: Any) -> str:
        return f"{' and '.join(str(p) for p in self.paths)} are the same object now"

    def claim(self) -> str:
        return " is not ".join(str(p) for p in self.paths)


@dataclass(frozen=True, slots=True)
class PredicateGuard(Guard):
    """``bool(function(*values))`` is ``expected``. The function has no side effects; an exception means no match."""

    function: Callable[..., Any]
    paths: tuple[Source, ...]
    text: str = field(compare=False)
    expected: bool = True

    def sources(self) -> tuple[Source, ...]:
        return self.paths

    def sentence(self, found: Any) -> str:
        return f"{self.text} is {not self.expected} now"

    def claim(self) -> str:
        return self.text if self.expected else f"not {self.text}"


class LeafModuleGuard(_Typed):
    """An nn.Module of this exact class without hooks (nor global ones) and without a forward of its own."""

    __slots__ = ()

    def sentence(self, found: Any) -> str:
        if type(found) is not self.type:
            return super().sentence(found)
        return f"{self.source} has hooks or a forward of its own now"
