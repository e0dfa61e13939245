"""A frame being interpreted symbolically: its slots, its stack, and the step loop."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..bytecode.instruction import Instruction
from ..bytecode.program import Program, program_of
from ..config import MAX_INLINE_DEPTH
from ..errors import GENERATOR, TOO_DEEP, UNSUPPORTED_OPCODE, GraphBreak, Place
from ..values.base import Raised, Value
from ..values.exception import ExceptionValue
from ..values.function import CellValue
from .handlers import HANDLERS, REASONS

if TYPE_CHECKING:
    from .arguments import Signature
    from .tracer import Namespace, Tracer


class Unread:
    """A slot of the outermost frame that nobody has looked at: it holds what it held on entry."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class SymbolicFrame:
    """One frame. ``slots`` follows CPython's localsplus: locals, cells, free variables."""

    def __init__(
        self,
        tx: Tracer,
        code: types.CodeType,
        namespace: Namespace,
        builtins: dict[str, Any],
        parent: SymbolicFrame | None,
    ) -> None:
        self.tx = tx
        self.code = code
        self.program: Program = program_of(code)
        self.namespace = namespace
        self.builtins = builtins
        self.parent = parent
        self.slots: list[Any] = [None] * self.program.slot_count
        self.stack: list[Any] = []
        self.index = 0
        self.inst: Instruction = self.program.instructions[0]
        self.group_offset: int | None = None
        self.keyword_names: tuple[str, ...] = ()
        self.result: Value | None = None
        self.yielded: Value | None = None
        self.exceptions: list[Value] = []
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.names_are_globals = False

    # Places

    @property
    def offset(self) -> int:
        """Byte offset of the instruction being interpreted; of the whole group for a call."""
        return self.group_offset if self.group_offset is not None else self.inst.offset

    def where(self) -> tuple[str, int]:
        return (self.code.co_filename, self.inst.line or self.code.co_firstlineno)

    def place(self) -> Place:
        line, end_line, col, end_col = self.inst.positions
        first = line or self.code.co_firstlineno
        return Place(self.code.co_filename, self.code.co_qualname, first, end_line or first, col or 0, end_col or 0)

    def stack_summary(self) -> tuple[tuple[str, int], ...]:
        """File and line of every frame, innermost first."""
        found = []
        frame: SymbolicFrame | None = self
        while frame is not None:
            found.append(frame.where())
            frame = frame.parent
        return tuple(found)

    def in_try(self) -> bool:
        handler = self.program.handler_at(self.inst.offset)
        while handler is not None:
            if not self.program.is_cleanup(handler.target) and (self.code, handler.target) not in self.tx.mode_handlers:
                return True
            handler = self.program.handler_at(handler.target)
        return False

    # Stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Any]:
        if count == 0:
            return []
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    # Slots

    def load_slot(self, index: int) -> Any:
        found = self.slots[index]
        if isinstance(found, Unread):
            found = self.tx.load_unread(self, index)
        return found

    def cell(self, index: int) -> CellValue:
        found = self.load_slot(index)
        assert isinstance(found, CellValue), found
        return found

    def jump(self, offset: int) -> None:
        self.index = self.program.index_of[offset]

    # Running

    def step(self) -> None:
        """Interpret one instruction, or unwind to a handler if it raises."""
        inst = self.inst = self.program.instructions[self.index]
        self.index += 1
        self.tx.count_step()
        handler = HANDLERS.get(inst.opname)
        if handler is None:
            reason = REASONS.get(inst.opname, "it has no handler")
            kind = GENERATOR if "gives up control" in reason else UNSUPPORTED_OPCODE
            raise GraphBreak(kind, f"{inst.opname} runs natively: {reason}")
        try:
            handler(self, inst)
        except Raised as raised:
            if not self.unwind(raised.value):
                raise

    def unwind(self, exception: Value) -> bool:
        """Go to the handler around the current instruction; False if there is none."""
        handler = self.program.handler_at(self.inst.offset)
        if handler is None:
            return False
        if isinstance(exception, ExceptionValue) and exception.offset is None and self.tx.outer is not None:
            exception.offset = self.tx.outer.offset
        del self.stack[handler.depth :]
        if handler.lasti:
            from ..values.constant import Const

            self.push(Const(self.inst.offset))
        self.push(exception)
        self.group_offset = None
        self.jump(handler.target)
        return True

    def run(self) -> Value | None:
        """Run until the frame returns (its result) or yields (None; see ``yielded``)."""
        tx = self.tx
        previous = tx.frame
        tx.frame = self
        try:
            while True:
                self.step()
                if self.result is not None:
                    return self.result
                if self.yielded is not None:
                    return None
        finally:
            tx.frame = previous


MAX_TRIES = 3
"""A call that broke so often, with no success between, is a break without a try: nested calls then cost linear time."""


def run_inlined(tx: Tracer, function: Value, signature: Signature, slots: list[Value | None]) -> Value:
    """Interpret a called function's code to its return; its breaks are the caller's."""
    caller = tx.frame
    assert caller is not None
    code = signature.code
    if caller.depth >= MAX_INLINE_DEPTH:
        raise GraphBreak(TOO_DEEP, f"{signature.name} is called at depth {caller.depth}")
    key = (caller.code, caller.inst.offset, code)
    broken = tx.broken_calls.get(*key)
    if broken is not None and broken.times >= MAX_TRIES:
        raise broken.cause.again()
    from ..models.builtins import BUILTINS

    frame = SymbolicFrame(tx, code, signature.namespace, BUILTINS, caller)
    for i, value in enumerate(slots):
        frame.slots[i] = value
    free = frame.program.slot_count - len(code.co_freevars)
    for i, cell in enumerate(signature.cells):
        frame.slots[free + i] = cell
    if frame.program.is_generator:
        from ..values.generator import GeneratorValue

        if not frame.program.is_plain_generator:
            raise GraphBreak(GENERATOR, f"{signature.name} is a coroutine or asynchronous generator")
        return GeneratorValue(frame, tx.outer.offset if tx.outer is not None else None)
    try:
        result = frame.run()
    except GraphBreak as graph_break:
        if graph_break.place is None and not tx.is_library(code):
            graph_break.place = frame.place()
        tx.broken_calls.note(*key, graph_break)
        raise
    assert result is not None
    if broken is not None:
        tx.broken_calls.forget(*key)
    return result


__all__ = ["SymbolicFrame", "Unread", "run_inlined"]
