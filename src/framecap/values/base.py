"""The base of all values: what the symbolic interpreter knows of one Python object.

Every operation that a kind of value doesn't define raises GraphBreak, so a missing model is never a guess. The
methods mirror Python's data model; ``tx`` is the region under construction (see `Region`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_VALUE, GraphBreak

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region

Args = Sequence["Value"]
Kwargs = dict[str, "Value"]


class Raised(Exception):
    """The interpreted program raises ``value`` here; unwinds to a handler in an interpreted frame."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class Value:
    """One Python object. Values are compared by identity: one object of the program is one value."""

    __slots__ = ("source",)
    source: Source | None

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # What it is

    def python_type(self) -> type:
        """The object's exact type."""
        raise NotImplementedError(type(self).__name__)

    def describe(self) -> str:
        """The object in a few words, for messages."""
        where = f" ({self.source})" if self.source is not None else ""
        return f"an object of type {self.python_type().__name__}{where}"

    def refuse(self, what: str) -> NoReturn:
        """Break the graph: ``what`` can't be done with this value."""
        raise GraphBreak(UNSUPPORTED_VALUE, f"{what} isn't modelled for {self.describe()}")

    # Attributes

    def getattr(self, tx: Region, name: str) -> Value:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of {self.describe()} isn't modelled")

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"setting attribute {name!r} of {self.describe()} isn't modelled")

    def delattr(self, tx: Region, name: str) -> None:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"deleting attribute {name!r} of {self.describe()} isn't modelled")

    def computed_attribute(self, tx: Region, cls: type, name: str) -> Value:
        """An attribute that C code of the class computes, such as ``__dict__``."""
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of class {cls.__name__} is computed by C code")

    # Protocols

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        self.refuse("calling")

    def getitem(self, tx: Region, key: Value) -> Value:
        self.refuse("subscripting")

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        self.refuse("item assignment")

    def delitem(self, tx: Region, key: Value) -> None:
        self.refuse("item deletion")

    def iterate(self, tx: Region) -> Value:
        """``iter(self)``: a value with `next`."""
        self.refuse("iteration")

    def next(self, tx: Region) -> Value | None:
        """The next item, or None at the end (without raising StopIteration)."""
        self.refuse("next()")

    def truth(self, tx: Region) -> bool:
        self.refuse("truth testing")

    def length(self, tx: Region) -> int:
        self.refuse("len()")

    def contains(self, tx: Region, item: Value) -> bool:
        self.refuse("a membership test")

    def unpack(self, tx: Region) -> list[Value]:
        """All items, as ``[*self]`` gives them."""
        iterator = self.iterate(tx)
        items: list[Value] = []
        while (item := iterator.next(tx)) is not None:
            tx.count_step()
            items.append(item)
        return items

    def hash_key(self, tx: Region) -> Any:
        """A hashable that is equal exactly for objects that are equal as dict keys; see `mapping.py`."""
        self.refuse("use as a dict key")

    # Into and out of the graph

    def as_argument(self, tx: Region) -> Any:
        """As an argument of a graph operator: an Op, an Input, an immutable, or a container of these."""
        from ..errors import UNSUPPORTED_ARGUMENT

        raise GraphBreak(UNSUPPORTED_ARGUMENT, f"{self.describe()} can't be an argument of a tensor operator")

    def emit(self, emitter: Emitter) -> str:
        """Code that makes the object when the region ends; a name or an expression without side effects."""
        raise Unmaterialisable(self)

    def born_at(self) -> int | None:
        """Offset of the instruction of the outermost frame that made it, if it can't be materialised."""
        return None


class Unmaterialisable(Exception):
    """A region would have to end while ``value``, which exists only symbolically, is still needed."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.describe())
        self.value = value
