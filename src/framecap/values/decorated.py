"""Callables that wrap another callable: functools.partial, and functions decorated with a grad mode."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .base import Args, Kwargs, Value
from .mapping import DictValue
from .sequence import TupleValue

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class PartialValue(Value):
    """functools.partial(function, *args, **kwargs), from outside or made here."""

    __slots__ = ("arguments", "function", "keywords")

    def __init__(self, function: Value, arguments: list[Value], keywords: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.arguments = arguments
        self.keywords = keywords

    def python_type(self) -> type:
        return functools.partial

    def getattr(self, tx: Region, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return TupleValue(list(self.arguments))
        if name == "keywords":
            return self.keywords
        return super().getattr(tx, name)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        from .constant import Const, constant_of
        from .mapping import pairs_of

        named = {}
        for key, item in pairs_of(tx, self.keywords):
            assert isinstance(key, Const)
            named[constant_of(tx, key)] = item
        return self.function.call(tx, [*self.arguments, *args], {**named, **kwargs})

    def truth(self, tx: Region) -> bool:
        return True

    def hash_key(self, tx: Region) -> Any:
        return self if self.source is None else super().hash_key(tx)

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        partial = emitter.object(functools.partial, "partial")
        parts = [emitter.value(self.function), *(emitter.value(a) for a in self.arguments)]
        assert isinstance(self.keywords, DictValue)
        if self.keywords.entries:
            parts.append(f"**{emitter.value(self.keywords)}")
        return emitter.statement(f"{partial}({', '.join(parts)})", self)


class GradModeFunction(Value):
    """A function decorated with no_grad() inside the region."""

    __slots__ = ("cls", "function", "mode")

    def __init__(self, cls: type, mode: bool, function: Value) -> None:
        super().__init__()
        self.cls = cls
        self.mode = mode
        self.function = function

    def python_type(self) -> type:
        return type(lambda: None)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        from .context import GradModeValue

        guard = GradModeValue(self.cls, self.mode)
        guard.enter(tx)
        result = self.function.call(tx, args, kwargs)
        guard.exit(tx)
        return result
