"""What can be said of a code object without running it: its stack, its exception ranges, where regions may
start and end, which locals matter.

Terms. A *break place* is an instruction that can run the user's code or needs a value that a symbolic
interpreter may not have; everything else (loads, stores, stack moves, jumps) can't break a region. KW_NAMES,
PRECALL and CALL are one break place, at the first of them. An *exit-only* place is a load of a slot that may
be unbound: a region may have to end before it, but nothing new starts after it. A *capture point* is an
instruction that follows a break place natively, where a region may start; and the first instruction after the
function's prologue.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from opcode import opmap
from types import CodeType

from framecap.bytecode.instruction import Instruction, decode, slot_names

Stack = tuple[bool, ...]  # one item for each stack slot from the bottom: whether it is NULL


def _opcodes(*names: str) -> frozenset[int]:
    return frozenset(opmap[name] for name in names if name in opmap)


_PROLOGUE = _opcodes("COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP", "NOP")
_UNCONDITIONAL = _opcodes("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
_FINAL = _opcodes("RETURN_VALUE", "RERAISE", "RAISE_VARARGS")
_SAFE = _PROLOGUE | _UNCONDITIONAL | _opcodes(
    "RESUME", "COPY", "SWAP", "PUSH_NULL", "KW_NAMES", "PRECALL", "LOAD_FAST", "STORE_FAST", "DELETE_FAST",
    "LOAD_CONST", "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "BUILD_TUPLE", "BUILD_LIST", "RETURN_VALUE",
)  # fmt: skip
_CONDITIONAL = frozenset(opmap[name] for name in opmap if name.startswith("POP_JUMP"))
_COMPARISONS = _opcodes("COMPARE_OP", "IS_OP", "CONTAINS_OP")
# A region can't do anything from these on, so no stub stands before them.
_BARREN = _opcodes("RETURN_VALUE", "YIELD_VALUE", "ASYNC_GEN_WRAP", "RERAISE", "JUMP_BACKWARD_NO_INTERRUPT")
_NO_PUSH = _UNCONDITIONAL | _CONDITIONAL | _FINAL | _opcodes(
    "POP_TOP", "NOP", "STORE_SUBSCR", "DELETE_SUBSCR", "PRINT_EXPR", "IMPORT_STAR", "SETUP_ANNOTATIONS",
    "POP_EXCEPT", "STORE_NAME", "DELETE_NAME", "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL",
    "STORE_FAST", "DELETE_FAST", "MAKE_CELL", "STORE_DEREF", "DELETE_DEREF", "LIST_APPEND", "SET_ADD", "MAP_ADD",
    "COPY_FREE_VARS", "RESUME", "LIST_EXTEND", "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE", "KW_NAMES", "PRECALL",
    "END_ASYNC_FOR",
    "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP",
)  # fmt: skip
_PUSH_TWO = _opcodes("BEFORE_WITH", "BEFORE_ASYNC_WITH", "PUSH_EXC_INFO", "CHECK_EG_MATCH")
_OBSERVERS = frozenset({"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "stack"})

PUSH_NULL, COPY, SWAP = opmap["PUSH_NULL"], opmap["COPY"], opmap["SWAP"]
LOAD_GLOBAL, LOAD_METHOD, CALL, PRECALL = (
    opmap[n] for n in ("LOAD_GLOBAL", "LOAD_METHOD", "CALL", "PRECALL")
)
KW_NAMES, RESUME, RETURN_GENERATOR = opmap["KW_NAMES"], opmap["RESUME"], opmap["RETURN_GENERATOR"]
FOR_ITER = opmap["FOR_ITER"]
LOAD_FAST, STORE_FAST, DELETE_FAST = opmap["LOAD_FAST"], opmap["STORE_FAST"], opmap["DELETE_FAST"]
_DEREFS = _opcodes("LOAD_DEREF", "LOAD_CLASSDEREF", "DELETE_DEREF")
_UNPACKS = {
    opmap["UNPACK_SEQUENCE"]: lambda arg: arg,
    opmap["UNPACK_EX"]: lambda arg: (arg & 0xFF) + (arg >> 8) + 1,
}


@dataclass(frozen=True, slots=True)
class ExceptionRange:
    """An entry of the exception table. Instructions in [start, end) unwind the stack to `depth` items and go
    on at `target`, with the exception pushed, beneath it the offset of the instruction if `lasti`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The analysis of one code object. All offsets are of instructions' starts (see Instruction)."""

    code: CodeType
    instructions: list[Instruction]
    index_of: dict[int, int]  # offset -> index in `instructions`
    stacks: list[Stack | None]  # by index: the stack before the instruction; None: unreachable
    ranges: list[ExceptionRange]
    entry: int  # offset of the first capture point
    break_places: tuple[int, ...]
    exit_only: tuple[int, ...]
    capture_points: tuple[int, ...]  # in order, `entry` among them
    after: dict[int, tuple[int, ...]]  # break place -> the capture points that follow it natively

    def depth(self, offset: int) -> int:
        """Number of stack slots, NULL ones included, before the instruction. It must be reachable."""
        return len(self.stack(offset))

    def stack(self, offset: int) -> Stack:
        stack = self.stacks[self.index_of[offset]]
        if stack is None:
            raise ValueError(f"offset {offset} of {self.code.co_qualname} is unreachable")
        return stack

    def null_slots(self, offset: int) -> tuple[int, ...]:
        """Positions, from the bottom, of the stack slots that hold NULL. The first of the pair that
        LOAD_METHOD pushes counts as one: who builds a stack there gives a bound callable as the second."""
        return tuple(i for i, null in enumerate(self.stack(offset)) if null)

    def range_of(self, offset: int) -> ExceptionRange | None:
        """The innermost exception range around the instruction."""
        return next((r for r in self.ranges if r.start <= offset < r.end), None)


def _varints(data: bytes) -> Iterator[int]:
    iterator = iter(data)
    for byte in iterator:
        value = byte & 63
        while byte & 64:
            byte = next(iterator)
            value = value << 6 | byte & 63
        yield value


def exception_ranges(code: CodeType) -> list[ExceptionRange]:
    """The exception table, in order; its ranges don't overlap. Format:
    Objects/exception_handling_notes.txt."""
    numbers = _varints(code.co_exceptiontable)
    result = []
    for start in numbers:
        length, target, depth = next(numbers), next(numbers), next(numbers)
        result.append(
            ExceptionRange(start * 2, (start + length) * 2, target * 2, depth >> 1, bool(depth & 1))
        )
    return result


def entry_offset(code: CodeType) -> int:
    """Offset of the first instruction after the prologue, the first RESUME being its last."""
    raw = code.co_code
    resume = next(i for i in range(0, len(raw), 2) if raw[i] == RESUME)
    return resume + 2


def _after(inst: Instruction, stack: Stack, jump: bool) -> Stack:
    """The stack after the instruction, on the way given."""
    op, arg = inst.opcode, inst.arg
    if op == SWAP:
        assert arg is not None
        items = list(stack)
        items[-1], items[-arg] = items[-arg], items[-1]
        return tuple(items)
    if op == COPY:
        assert arg is not None
        return (*stack, stack[-arg])
    if op == PUSH_NULL:
        return (*stack, True)
    if op == LOAD_METHOD:
        return (*stack[:-1], True, False)
    if op == LOAD_GLOBAL:
        assert arg is not None
        return (*stack, True, False) if arg & 1 else (*stack, False)
    if op == PRECALL:
        return stack
    if op == CALL:
        assert arg is not None
        return (*stack[: len(stack) - arg - 2], False)
    if op == RETURN_GENERATOR:
        return (*stack, False)  # None is sent to a generator that starts
    if op in _NO_PUSH or (op == FOR_ITER and jump):
        pushed = 0
    elif op in _PUSH_TWO:
        pushed = 2
    elif op in _UNPACKS:
        pushed = _UNPACKS[op](arg)
    else:
        pushed = 1
    depth = len(stack) + dis.stack_effect(op, arg, jump=jump)
    return stack[: depth - pushed] + (False,) * pushed


def _argument_count(code: CodeType) -> int:
    flags = code.co_flags
    variable = bool(flags & inspect.CO_VARARGS) + bool(flags & inspect.CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + variable


def _simulate(
    code: CodeType, instructions: list[Instruction], index_of: dict[int, int], ranges: list[ExceptionRange]
) -> tuple[list[Stack | None], list[int]]:
    """Stacks by instruction, and bit masks of the slots that are bound for certain before each."""
    n = len(instructions)
    stacks: list[Stack | None] = [None] * n
    bound = [0] * n
    handlers = _handlers(instructions, ranges)
    work: list[tuple[int, Stack, int]] = [(0, (), (1 << _argument_count(code)) - 1)]
    while work:
        index, stack, mask = work.pop()
        while True:
            known = stacks[index]
            if known is None:
                stacks[index] = stack
            else:
                mask &= bound[index]
                if mask == bound[index]:
                    break
                # One way may give a real object where another gives NULL (never both in what compilers emit).
                stack = known
            bound[index] = mask
            inst = instructions[index]
            op = inst.opcode
            handler = handlers[index]
            left = mask
            if op == STORE_FAST:
                mask |= 1 << (inst.arg or 0)
            elif op == DELETE_FAST:
                mask &= ~(1 << (inst.arg or 0))
                left = mask
            if handler is not None:
                pushed = (False,) * (2 if handler.lasti else 1)
                work.append((index_of[handler.target], stack[: handler.depth] + pushed, left))
            if op in _FINAL:
                break
            if inst.target is not None:
                target = index_of[inst.target]
                if op in _UNCONDITIONAL:
                    index = target
                    continue
                work.append((target, _after(inst, stack, True), mask))
            stack = _after(inst, stack, False)
            index += 1
    return stacks, bound


def _handlers(instructions: list[Instruction], ranges: list[ExceptionRange]) -> list[ExceptionRange | None]:
    result: list[ExceptionRange | None] = []
    position = 0
    for inst in instructions:
        while position < len(ranges) and ranges[position].end <= inst.offset:
            position += 1
        inside = position < len(ranges) and ranges[position].start <= inst.offset
        result.append(ranges[position] if inside else None)
    return result


def _group_end(instructions: list[Instruction], index: int) -> int:
    """Index of the last instruction of the call that starts here, or the index itself."""
    while instructions[index].opcode in (KW_NAMES, PRECALL):
        index += 1
    return index


def analyse(code: CodeType) -> Flow:
    """Analyse `code`. Linear in its size, about 3 µs an instruction."""
    instructions = decode(code)
    index_of = {inst.offset: inst.index for inst in instructions}
    ranges = exception_ranges(code)
    stacks, bound = _simulate(code, instructions, index_of, ranges)
    entry = entry_offset(code)
    breaks: list[int] = []
    exits: list[int] = []
    after: dict[int, tuple[int, ...]] = {}
    points = {entry}

    def settle(index: int, behind: int, seen: frozenset[int] = frozenset()) -> Iterator[int]:
        """The capture points for going natively to `index` from an instruction with opcode `behind`."""
        inst = instructions[index]
        if index in seen:
            return
        if inst.opcode == RESUME:
            yield from settle(index + 1, RESUME, seen)
        elif inst.opcode in _BARREN or (inst.opcode in _CONDITIONAL and behind in _COMPARISONS):
            yield from successors(index, seen | {index})
        else:
            yield inst.offset

    def successors(index: int, seen: frozenset[int] = frozenset()) -> Iterator[int]:
        inst = instructions[index]
        if inst.opcode in _FINAL or inst.opcode in _UNCONDITIONAL:
            return
        yield from settle(index + 1, inst.opcode, seen)
        if inst.target is not None:
            yield from settle(index_of[inst.target], inst.opcode, seen)

    for index, inst in enumerate(instructions):
        if (
            stacks[index] is None
            or inst.offset < entry
            or (index and instructions[index - 1].opcode == PRECALL)
        ):
            continue
        op = inst.opcode
        if op == PRECALL and instructions[index - 1].opcode == KW_NAMES:
            continue
        if op in _SAFE and op not in (KW_NAMES, PRECALL):
            unsure = op in (LOAD_FAST, DELETE_FAST) and not bound[index] >> (inst.arg or 0) & 1
            if unsure or op in _DEREFS:
                exits.append(inst.offset)
            continue
        breaks.append(inst.offset)
        following = tuple(dict.fromkeys(successors(_group_end(instructions, index))))
        after[inst.offset] = following
        points.update(following)
    return Flow(
        code,
        instructions,
        index_of,
        stacks,
        ranges,
        entry,
        tuple(breaks),
        tuple(exits),
        tuple(sorted(points)),
        after,
    )


def live_slots(code: CodeType, flow: Flow | None = None) -> dict[int, frozenset[int]]:
    """For each capture point, break place and exit-only place: the frame's slots that may be read from there
    on.

    Cell and free slots are always live (others may hold the cells). In a function that mentions ``locals``,
    ``eval`` and the like, every slot is. A traceback or a debugger may see more than this.
    """
    flow = flow or analyse(code)
    names = slot_names(code)
    cells = set(code.co_cellvars) | set(code.co_freevars)
    always = sum(1 << i for i, name in enumerate(names) if name in cells)
    if not _OBSERVERS.isdisjoint(code.co_names):
        always = (1 << len(names)) - 1
    instructions = flow.instructions
    handlers = [None if r is None else flow.index_of[r.target] for r in _handlers(instructions, flow.ranges)]
    live = [always] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            inst = instructions[index]
            op = inst.opcode
            mask = always
            if op not in _FINAL and op not in _UNCONDITIONAL:
                mask |= live[index + 1]
            if inst.target is not None:
                mask |= live[flow.index_of[inst.target]]
            if op == STORE_FAST:
                mask &= ~(1 << (inst.arg or 0)) | always
            elif op in (LOAD_FAST, DELETE_FAST):
                mask |= 1 << (inst.arg or 0)
            handler = handlers[index]
            if handler is not None:
                mask |= live[handler]
            if mask != live[index]:
                live[index] = mask
                changed = True
    places = {*flow.break_places, *flow.exit_only, *flow.capture_points}
    sets: dict[int, frozenset[int]] = {}
    result = {}
    for offset in sorted(places):
        mask = live[flow.index_of[offset]]
        if mask not in sets:
            sets[mask] = frozenset(i for i in range(len(names)) if mask >> i & 1)
        result[offset] = sets[mask]
    return result
