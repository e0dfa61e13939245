"""A code object as the symbolic interpreter reads it: instructions by offset, and its exception handlers."""

from __future__ import annotations

import inspect
from types import CodeType
from weakref import WeakKeyDictionary

from framecap.bytecode.flow import ExceptionRange, exception_ranges
from framecap.bytecode.instruction import decode, slot_names


class Program:
    """The decoded form of one code object; see `program_of`."""

    def __init__(self, code: CodeType) -> None:
        self.instructions = decode(code)
        self.index_of = {inst.offset: inst.index for inst in self.instructions}
        self.ranges = exception_ranges(code)
        self.slot_names = slot_names(code)
        self.slot_count = len(self.slot_names)
        self.is_generator = bool(
            code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
        )
        self.is_plain_generator = bool(code.co_flags & inspect.CO_GENERATOR)

    def handler_at(self, offset: int) -> ExceptionRange | None:
        """The handler of the instruction at ``offset``; entries of the table don't overlap."""
        return next((r for r in self.ranges if r.start <= offset < r.end), None)

    def is_cleanup(self, target: int) -> bool:
        """Whether the handler at ``target`` only restores the exception state and raises again."""
        index = self.index_of[target]
        return [inst.opname for inst in self.instructions[index : index + 3]] == ["COPY", "POP_EXCEPT", "RERAISE"]


_programs: WeakKeyDictionary[CodeType, tuple[int, Program]] = WeakKeyDictionary()


def program_of(code: CodeType) -> Program:
    """The Program of ``code``. Code objects that are equal may differ in positions, hence the check of identity."""
    known = _programs.get(code)
    if known is not None and known[0] == id(code):
        return known[1]
    program = Program(code)
    _programs[code] = (id(code), program)
    return program
