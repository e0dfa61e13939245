"""Where a value comes from: a path from a frame's slots, globals or builtins. Pure data; nothing here reads anything."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Source:
    """A path to an object. Sources are compared by value; ``base`` is the path they extend, if any.

    ``str(source)`` is how a user would write it.
    """

    __slots__ = ("_hash", "_key")
    base: Source | None = None

    def __init__(self, *key: Any) -> None:
        self._key = key
        self._hash = hash((type(self).__name__, *key))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        assert isinstance(other, Source)
        return self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class Slot(Source):
    """A local variable, cell or stack item of the frame: entry ``index`` of its slots. ``name`` is for people."""

    __slots__ = ("index", "name")

    def __init__(self, index: int, name: str) -> None:
        super().__init__(index)
        self.index = index
        self.name = name

    def __str__(self) -> str:
        return self.name


class Globals(Source):
    """The dict of the frame's globals."""

    __slots__ = ()

    def __str__(self) -> str:
        return "globals()"


class Builtins(Source):
    """The dict of the frame's builtins."""

    __slots__ = ()

    def __str__(self) -> str:
        return "builtins"


def hold(obj: Any) -> Callable[[], Any]:
    """A weak reference where the type has them, else a function that returns the object. None when it is gone."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj


class Const(Source):
    """One particular object, held weakly where possible."""

    __slots__ = ("held", "name")

    def __init__(self, obj: Any) -> None:
        super().__init__(id(obj))
        self.held = hold(obj)
        self.name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or type(obj).__name__

    @property
    def obj(self) -> Any:
        """The object, or None when it is gone."""
        return self.held()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key and self.held() is other.held()

    __hash__ = Source.__hash__

    def __str__(self) -> str:
        return str(self.name)


class _Step(Source):
    """A source that extends another by one step."""

    __slots__ = ("base",)

    def __init__(self, base: Source, *key: Any) -> None:
        super().__init__(base, *key)
        self.base: Source = base


class CellOf(_Step):
    """The contents of a closure cell."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self.base)


class Attr(_Step):
    """An attribute of the instance itself: its dict or a slot. Reading it runs no code of the program."""

    __slots__ = ("name",)

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base, name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


class Item(_Step):
    """An item of a dict, by the dict's own lookup. Keys are such that comparing them runs no code of the program."""

    __slots__ = ("key",)

    def __init__(self, base: Source, key: Any) -> None:
        super().__init__(base, type(key), key)
        self.key = key

    def __str__(self) -> str:
        if isinstance(self.base, (Globals, Builtins)):
            return str(self.key)
        if isinstance(self.base, DictOf):
            return f"{self.base.base}.{self.key}"
        if isinstance(self.base, Attr) and self.base.name in ("_modules", "_parameters", "_buffers"):
            return f"{self.base.base}.{self.key}"
        return f"{self.base}[{self.key!r}]"


class Index(_Step):
    """An item of a list or tuple, by position."""

    __slots__ = ("index",)

    def __init__(self, base: Source, index: int) -> None:
        super().__init__(base, index)
        self.index = index

    def __str__(self) -> str:
        return f"{self.base}[{self.index}]"


class TypeOf(_Step):
    """The object's exact type."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"type({self.base})"


class TypeAttr(_Step):
    """What a class has under a name, by its mro and without calling a descriptor."""

    __slots__ = ("name",)

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base, name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


class Get(_Step):
    """``base.name`` by Python's full lookup: only for attributes of trusted built-in types."""

    __slots__ = ("name",)

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base, name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


class DictOf(_Step):
    """The instance's ``__dict__`` object."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.base}.__dict__"


class Call(Source):
    """``function(base)``, or ``function()`` without a base: a trusted function without side effects."""

    __slots__ = ("base", "function")

    def __init__(self, function: Callable[..., Any], base: Source | None = None) -> None:
        super().__init__(function, base)
        self.function = function
        self.base = base

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", "function")
        return f"{name}({'' if self.base is None else self.base})"
