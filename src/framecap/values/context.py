"""Context managers of torch that only switch the grad mode. They become nodes, and are undone if the region raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .base import Args, Kwargs, Value
from .constant import Const
from .method import BuiltinMethod

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region
    from ..tracing.region import Op


class GradModeValue(Value):
    """torch.no_grad(), torch.enable_grad() or torch.set_grad_enabled(mode) made in the region.

    ``previous`` is the graph's reading of the mode before it was entered. set_grad_enabled switches when it is made.
    """

    __slots__ = ("cls", "mode", "previous", "previous_known")

    def __init__(self, cls: type, mode: bool) -> None:
        super().__init__()
        self.cls = cls
        self.mode = mode
        self.previous: Op | None = None
        self.previous_known: bool | None = None

    def python_type(self) -> type:
        return self.cls

    def enter(self, tx: Region) -> Value:
        if self.cls is not torch.set_grad_enabled:
            self.switch(tx)
        return Const(None)

    def switch(self, tx: Region) -> None:
        """Remember the mode, and set the new one."""
        self.remember(tx)
        tx.set_grad_mode(self.mode)

    def remember(self, tx: Region) -> None:
        before = (self.previous, self.previous_known)

        def undo() -> None:
            self.previous, self.previous_known = before

        tx.undo_later(undo)
        self.previous = tx.add_op("call_function", torch.is_grad_enabled, (), keep=True, scalar=True)
        self.previous_known = tx.grad_mode

    def exit(self, tx: Region) -> Value:
        assert self.previous is not None
        tx.set_grad_mode(self.previous, self.previous_known)
        return Const(None)

    def getattr(self, tx: Region, name: str) -> Value:
        if name == "__enter__":
            return BuiltinMethod(self, name, lambda owner, t, n, a, k: self.enter(t))
        if name == "__exit__":
            return BuiltinMethod(self, name, lambda owner, t, n, a, k: self.exit(t))
        return super().getattr(tx, name)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        # Used as a decorator: the wrapped function is entered and left by these same nodes.
        from .decorated import GradModeFunction

        (function,) = args
        return GradModeFunction(self.cls, self.mode, function)

    def truth(self, tx: Region) -> bool:
        return True

    def emit(self, emitter: Emitter) -> str:
        cls = emitter.object(self.cls, self.cls.__name__)
        new = emitter.object(object.__new__, "object_new")
        name = emitter.statement(f"{new}({cls})", self)
        if self.previous is not None:
            emitter.line(f"{name}.prev = {emitter.reference(self.previous)}")
        elif self.cls is not torch.set_grad_enabled:
            emitter.line(f"{name}.prev = False")
        if self.cls is torch.set_grad_enabled:
            emitter.line(f"{name}.mode = {self.mode}")
        return name
