"""contextvars.ContextVar: what is set in a region is read there, and has to be reset before it ends."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from framecap.guards import Call, IsGuard

from ..errors import UNSUPPORTED_VALUE, GraphBreak
from .base import Args, Kwargs, Raised, Value
from .constant import Const, Opaque
from .exception import ExceptionValue
from .function import RealCallable
from .method import BuiltinMethod

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.tracer import Tracer as Region

UNSET: Any = object()


def read(variable: contextvars.ContextVar[Any]) -> Any:
    """What the variable is set to, or UNSET; its default doesn't count."""
    return variable.get(UNSET)


def read_or_default(variable: contextvars.ContextVar[Any]) -> Any:
    """What the variable is set to or its default, or UNSET."""
    try:
        return variable.get()
    except LookupError:
        return UNSET


class ContextVarValue(RealCallable):
    """A context variable. ``stack`` holds what the region has set and not reset yet."""

    __slots__ = ("lost", "set_at", "stack")

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(value, source)
        self.stack: list[Value] = []
        self.set_at: int | None = None
        self.lost = False

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("get", "set", "reset"):
            return BuiltinMethod(self, name, getattr(self, f"_{name}"))
        if name == "name":
            return Const(self.value.name)
        return super().getattr(tx, name)

    @property
    def cls(self) -> type:
        return contextvars.ContextVar

    def _get(self, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
        if self.stack:
            return self.stack[-1]
        if self.lost:
            raise GraphBreak(
                UNSUPPORTED_VALUE, f"the context variable {self.value.name} is read after native code's set was undone"
            )
        assert self.source is not None
        reader = read if args else read_or_default
        real, source = reader(self.value), Call(reader, self.source)
        if real is not UNSET:
            return tx.wrap(real, source)
        tx.guard(IsGuard(source, UNSET, where=tx.where))
        if args:
            return args[0]
        raise Raised(ExceptionValue(LookupError, [self]))

    def _set(self, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
        tx.undo_later(lambda: self.stack.__delitem__(-1))
        self.stack.append(args[0])
        tx.set_variables[id(self)] = self
        self.set_at = tx.outer.offset if tx.outer is not None else None
        return TokenValue(self, len(self.stack), self.set_at)

    def _reset(self, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
        (token,) = args
        if isinstance(token, Opaque) and not self.stack:
            tx.record("method", self, "reset", token)
            before = self.lost
            tx.undo_later(lambda: setattr(self, "lost", before))
            self.lost = True
            return Const(None)
        if not isinstance(token, TokenValue) or token.variable is not self or token.depth != len(self.stack):
            raise GraphBreak(
                UNSUPPORTED_VALUE, f"the context variable {self.value.name} is reset to a state of native code"
            )
        value = self.stack.pop()
        tx.undo_later(lambda: self.stack.append(value))
        return Const(None)


class TokenValue(Value):
    """What set() returned. It can't leave the region."""

    __slots__ = ("depth", "offset", "variable")

    def __init__(self, variable: ContextVarValue, depth: int, offset: int | None) -> None:
        super().__init__()
        self.variable = variable
        self.depth = depth
        self.offset = offset

    def python_type(self) -> type:
        return contextvars.Token

    def truth(self, tx: Region) -> bool:
        return True

    def born_at(self) -> int | None:
        return self.offset
