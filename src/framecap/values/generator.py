"""A generator made in the region: a suspended symbolic frame that runs when it is asked for an item."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..errors import GENERATOR, GraphBreak
from .base import Args, Kwargs, Raised, Value
from .constant import Const
from .exception import ExceptionValue
from .iterator import Iterator
from .method import BuiltinMethod

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region


class GeneratorValue(Iterator):
    """``frame`` is suspended at a yield (or not started). It can't leave the region: see `born_at`."""

    __slots__ = ("done", "frame", "offset", "running", "started")

    def __init__(self, frame: Any, offset: int | None) -> None:
        super().__init__()
        self.frame = frame
        self.offset = offset
        self.started = False
        self.running = False
        self.done = False

    def python_type(self) -> type:
        return types.GeneratorType

    def born_at(self) -> int | None:
        return self.offset

    def _remember(self, tx: Region) -> None:
        frame = self.frame
        state = (
            self.started,
            self.done,
            list(frame.slots),
            list(frame.stack),
            frame.index,
            frame.result,
            list(frame.exceptions),
        )

        def undo() -> None:
            self.started, self.done, frame.slots, frame.stack, frame.index, frame.result, frame.exceptions = state
            frame.yielded = None
            frame.group_offset = None
            self.running = False

        tx.undo_later(undo)

    def resume(self, tx: Region, sent: Value, error: Value | None = None) -> Value | None:
        """Run to the next yield: the item, or None when the generator returns (``frame.result``)."""
        if self.running:
            raise Raised(ExceptionValue(ValueError, [Const("generator already executing")]))
        if self.done:
            if error is not None:
                raise Raised(error)
            self.frame.result = Const(None)
            return None
        self._remember(tx)
        frame = self.frame
        if error is not None and not self.started:
            self.done = True
            raise Raised(error)
        frame.parent = tx.frame
        frame.depth = tx.frame.depth + 1 if tx.frame is not None else 0
        frame.yielded = None
        if self.started:
            frame.push(sent)
        self.started = True
        self.running = True
        try:
            if error is not None and not frame.unwind(error):
                self.done = True
                raise Raised(error)
            try:
                result = frame.run()
            except Raised as raised:
                self.done = True
                if raised.value.python_type() is StopIteration:
                    raise Raised(ExceptionValue(RuntimeError, [Const("generator raised StopIteration")])) from None
                raise
            except GraphBreak as graph_break:
                if graph_break.place is None and not tx.is_library(frame.code):
                    graph_break.place = frame.place()
                raise
        finally:
            self.running = False
        if result is not None:
            self.done = True
            return None
        item = frame.yielded
        assert isinstance(item, Value)
        return item

    def next(self, tx: Region) -> Value | None:
        return self.resume(tx, Const(None))

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("send", "throw", "close"):
            return BuiltinMethod(self, name, _drive)
        return super().getattr(tx, name)


def _drive(owner: Value, tx: Region, name: str, args: Args, kwargs: Kwargs) -> Value:
    assert isinstance(owner, GeneratorValue)
    if name == "close":
        if not owner.started or owner.done:
            owner._remember(tx)
            owner.done = True
            return Const(None)
        try:
            item = owner.resume(tx, Const(None), ExceptionValue(GeneratorExit, []))
        except Raised as raised:
            if raised.value.python_type() in (GeneratorExit, StopIteration):
                return Const(None)
            raise
        if item is not None:
            raise GraphBreak(GENERATOR, "a generator ignores GeneratorExit")
        return Const(None)
    error = None
    sent: Value = Const(None)
    if name == "throw":
        thrown = args[-1] if len(args) == 1 else args[1]
        if len(args) == 3 and isinstance(args[1], Const) and args[1].value is None:
            thrown = args[0]
        if not isinstance(thrown, ExceptionValue):
            raise GraphBreak(GENERATOR, "throw() of something that isn't an exception made in the region")
        error = thrown
    else:
        (sent,) = args
    item = owner.resume(tx, sent, error)
    if item is None:
        result = owner.frame.result
        arguments = [] if isinstance(result, Const) and result.value is None else [result]
        raise Raised(ExceptionValue(StopIteration, arguments))
    return item
