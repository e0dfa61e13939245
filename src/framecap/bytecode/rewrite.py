"""Build the twin R of a code object C: the same instructions, with a stub before each capture point and,
behind them all, an exit to each place where a region may end.

    C                R
    <inst>           <inst>
    <inst k>         JUMP_FORWARD over_k             asleep; NOP when the point is awake
                     LOAD_CONST <Point k>
                     UNARY_INVERT                    in C; not a call: no signal is handled on the way out
                     COPY 1
                     POP_JUMP_FORWARD_IF_NOT_NONE taken_d
                     POP_TOP
            over_k:  <inst k>
    ...              ...
            taken_d: SWAP 2; POP_TOP                 one pair for each of the d stack items beneath the answer
            taken_0: UNPACK_SEQUENCE 2               [values, target]
                     <binary search over target>
            exit_t:  POP_TOP; UNPACK_SEQUENCE n; (PUSH_NULL; SWAP p) for each NULL
                     JUMP_BACKWARD_NO_INTERRUPT over_t
            exit_0:  POP_TOP; UNPACK_SEQUENCE 1; RETURN_VALUE

The stub stands in the try range of its instruction and leaves the stack beneath it alone, so that handlers
unwind as ever; what is behind the original code stands in no range, and nothing in it raises or handles
signals.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from opcode import opmap
from types import CodeType
from typing import TYPE_CHECKING

from framecap.bytecode.flow import Flow, Stack, analyse
from framecap.bytecode.instruction import CACHES, EXTENDED_ARG, OPNAMES, Positions
from framecap.bytecode.tables import encode_exception_table, encode_positions

if TYPE_CHECKING:
    from framecap._hook import Point

MakePoint = Callable[[int, int, int], "Point"]

NOWHERE: Positions = (None, None, None, None)
_BACKWARD = tuple("BACKWARD" in name for name in OPNAMES)
_JUMP_FORWARD = opmap["JUMP_FORWARD"]
_JUMP_BACK = opmap["JUMP_BACKWARD_NO_INTERRUPT"]
_IF_NOT_NONE = opmap["POP_JUMP_FORWARD_IF_NOT_NONE"]
_IF_FALSE = opmap["POP_JUMP_FORWARD_IF_FALSE"]
_LOAD_CONST, _INVERT, _COPY, _SWAP = (opmap[n] for n in ("LOAD_CONST", "UNARY_INVERT", "COPY", "SWAP"))
_POP_TOP, _PUSH_NULL, _UNPACK = (opmap[n] for n in ("POP_TOP", "PUSH_NULL", "UNPACK_SEQUENCE"))
_RETURN, _COMPARE = opmap["RETURN_VALUE"], opmap["COMPARE_OP"]


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """What a code object was rewritten to. Offsets are of the original code.

    A region that ends at `offset` returns ``(targets[offset], stack, *written values)``. `stack` holds the
    items of the operand stack there, bottom to top, without those at the positions ``null_slots[offset]``,
    which the exit makes NULL itself. (The order in which exits unpack is the hook's business.) Target 0
    returns from the frame: its `stack` is the return value alone.
    """

    code: CodeType
    twin: CodeType
    flow: Flow
    points: dict[int, Point]  # capture point -> its Point, asleep
    targets: dict[int, int]  # break place, exit-only place or capture point -> target number
    null_slots: dict[int, tuple[int, ...]]  # the same keys
    after: dict[int, tuple[int, ...]]  # break place -> the capture points to wake when it breaks a region
    copies: bytes  # int32 by original code unit: the code unit of its copy in the twin

    def twin_offset(self, offset: int) -> int:
        """Byte offset in the twin of the copy of the instruction at `offset`."""
        return memoryview(self.copies).cast("i")[offset // 2] * 2


class _Assembler:
    """A growing list of instructions whose jumps go to labels (ints of the caller's choice)."""

    def __init__(self) -> None:
        self.items: list[tuple[int, int, int, Positions]] = []  # opcode, argument, label or -1, positions
        self.labels: dict[int, int] = {}  # label -> index of the item it stands before

    def label(self, label: int) -> None:
        self.labels[label] = len(self.items)

    def assemble(self) -> tuple[bytes, list[int]]:
        """The code, and for each item the code unit where it starts (one more: the end)."""
        items, labels = self.items, self.labels
        sizes = [1 + CACHES[op] + (0 if arg < 256 else _prefixes(arg)) for op, arg, _, _ in items]
        jumps = [(i, op, labels[label]) for i, (op, _, label, _) in enumerate(items) if label >= 0]
        growing = True
        while growing:  # a jump only ever grows, so this ends
            growing = False
            starts = [0, *accumulate(sizes)]
            for i, op, to in jumps:
                distance = starts[i + 1] - starts[to] if _BACKWARD[op] else starts[to] - starts[i + 1]
                if distance > 255 and 1 + _prefixes(distance) > sizes[i]:
                    sizes[i] = 1 + _prefixes(distance)
                    growing = True
        distances = {}
        for i, op, to in jumps:
            distances[i] = starts[i + 1] - starts[to] if _BACKWARD[op] else starts[to] - starts[i + 1]
        output = bytearray()
        for i, (op, arg, label, _) in enumerate(items):
            if label >= 0:
                arg = distances[i]
            caches = CACHES[op]
            for shift in range(8 * (sizes[i] - caches - 1), 0, -8):
                output.append(EXTENDED_ARG)
                output.append(arg >> shift & 255)
            output.append(op)
            output.append(arg & 255)
            if caches:
                output.extend(bytes(2 * caches))
        return bytes(output), starts


def _prefixes(arg: int) -> int:
    """Number of EXTENDED_ARG prefixes that an argument needs."""
    return (max(arg.bit_length(), 1) - 1) // 8


def _null_plan(stack: Stack) -> tuple[bytes, list[int]]:
    """How an exit builds `stack`: the order of its real items in the values tuple (as uint16 bytes), and, for
    each NULL, the argument of the SWAP that follows its PUSH_NULL (1: none).

    UNPACK_SEQUENCE pushes the last item first. Then each NULL, from the lowest, is pushed and swapped into
    place; what stood there goes to the top. Undoing this from the end gives the order.
    """
    names = iter(range(len(stack)))
    items = [-1 if null else next(names) for null in stack]
    swaps = []
    for position in range(len(stack) - 1, -1, -1):
        if stack[position]:
            swaps.append(len(items) - position)
            items[position], items[-1] = items[-1], items[position]
            items.pop()
    return array("H", reversed(items)).tobytes(), swaps[::-1]


def rewrite(code: CodeType, make_point: MakePoint, flow: Flow | None = None) -> Rewritten:
    """Rewrite `code`. ``make_point(offset, depth, index)`` makes the Points, which are bound here and left
    asleep.

    The twin has the same slots, name, file, flags and positions; its stubs and exits have the positions of
    the instructions they lead to. It costs about 15 µs an instruction.
    """
    flow = flow or analyse(code)
    instructions = flow.instructions
    n = len(instructions)
    points: dict[int, Point] = {}
    consts: list[object] = list(code.co_consts)
    assembler = _Assembler()
    items, labels = assembler.items, assembler.labels
    stubs: list[tuple[Point, int]] = []
    capture_points = set(flow.capture_points)
    max_depth = 0
    # Labels: i is where instruction i starts with its stub, n + i without it, 2n + d where d items are
    # popped.
    for index, inst in enumerate(instructions):
        labels[index] = len(items)
        if inst.offset in capture_points:
            depth = flow.depth(inst.offset)
            max_depth = max(max_depth, depth)
            point = points[inst.offset] = make_point(inst.offset, depth, len(points))
            stubs.append((point, len(items)))
            where = inst.positions
            items += (
                (_JUMP_FORWARD, 0, n + index, where),
                (_LOAD_CONST, len(consts), -1, where),
                (_INVERT, 0, -1, where),
                (_COPY, 1, -1, where),
                (_IF_NOT_NONE, 0, 2 * n + depth, where),
                (_POP_TOP, 0, -1, where),
            )
            consts.append(point)
        labels[n + index] = len(items)
        label = -1 if inst.target is None else flow.index_of[inst.target]
        items.append((inst.opcode, inst.arg or 0, label, inst.positions))
    assembler.label(3 * n + max_depth + 1)
    for depth in range(max_depth, 0, -1):
        assembler.label(2 * n + depth)
        items += ((_SWAP, 2, -1, NOWHERE), (_POP_TOP, 0, -1, NOWHERE))
    assembler.label(2 * n)
    places = sorted({*flow.break_places, *flow.exit_only, *capture_points})
    orders = _exits(assembler, flow, places, consts, 3 * n + max_depth + 2)
    raw, starts = assembler.assemble()

    deepest = max(max_depth + 2, 4, *(flow.depth(place) for place in places)) if places else 0
    copied = starts[: labels[3 * n + max_depth + 1] + 1]
    twin = code.replace(
        co_code=raw,
        co_consts=tuple(consts),
        co_stacksize=max(code.co_stacksize, deepest),
        co_linetable=encode_positions(code.co_firstlineno, [item[3] for item in items], starts),
        co_exceptiontable=encode_exception_table(
            [
                (copied[labels[flow.index_of[r.start]]], copied[_end_label(flow, labels, r.end)],
                 copied[labels[flow.index_of[r.target]]], r.depth, r.lasti)
                for r in flow.ranges
            ]
        ),
    )  # fmt: skip
    copies = array("i", bytes(2 * len(code.co_code)))
    for index, inst in enumerate(instructions):
        unit = starts[labels[n + index]]
        for original in range(inst.offset // 2, inst.end // 2):
            copies[original] = unit
    for point, item in stubs:
        point.bind(
            twin,
            code,
            starts[item],
            starts[item + 6] - starts[item + 1],
            starts[item + 2],
            orders,
            copies.tobytes(),
        )
    return Rewritten(
        code,
        twin,
        flow,
        points,
        {place: number for number, place in enumerate(places, 1)},
        {place: flow.null_slots(place) for place in places},
        flow.after,
        copies.tobytes(),
    )


def _end_label(flow: Flow, labels: dict[int, int], offset: int) -> int:
    """Index of the item where the instruction at `offset` starts, or where the copied code ends."""
    index = flow.index_of.get(offset)
    return labels[len(flow.instructions) - 1] + 1 if index is None else labels[index]


def _exits(
    assembler: _Assembler, flow: Flow, places: list[int], consts: list[object], free_label: int
) -> tuple[bytes, ...]:
    """Append the dispatcher and the exits; target t > 0 is places[t - 1]. Returns the orders by target
    number."""
    items = assembler.items
    n = len(flow.instructions)
    orders: list[bytes] = [array("H", [0]).tobytes()]
    numbers = {value: i for i, value in enumerate(consts) if type(value) is int}

    def number(value: int) -> int:
        if value not in numbers:
            numbers[value] = len(consts)
            consts.append(value)
        return numbers[value]

    def leave(offset: int) -> None:
        index = flow.index_of[offset]
        where = flow.instructions[index].positions
        order, swaps = _null_plan(flow.stack(offset))
        orders.append(order)
        items.append((_POP_TOP, 0, -1, where))
        items.append((_UNPACK, len(order) // 2, -1, where) if order else (_POP_TOP, 0, -1, where))
        for swap in swaps:
            items.append((_PUSH_NULL, 0, -1, where))
            if swap > 1:
                items.append((_SWAP, swap, -1, where))
        items.append((_JUMP_BACK, 0, n + index, where))

    items.append((_UNPACK, 2, -1, NOWHERE))
    # A binary search, depth first, by a list of what is left: a function that calls itself would be a reference cycle.
    pending: list[tuple[int, int, int]] = [(0, len(places) + 1, -1)]
    while pending:
        low, high, label = pending.pop()  # code for the targets from `low` up to, not including, `high`
        if label >= 0:
            assembler.label(label)
        if high - low > 1:
            middle = (low + high) // 2
            items.extend(
                (
                    (_COPY, 1, -1, NOWHERE),
                    (_LOAD_CONST, number(middle), -1, NOWHERE),
                    (_COMPARE, 0, -1, NOWHERE),  # "<"
                    (_IF_FALSE, 0, free_label, NOWHERE),
                )
            )
            pending += [(middle, high, free_label), (low, middle, -1)]
            free_label += 1
        elif low == 0:
            items.extend(((_POP_TOP, 0, -1, NOWHERE), (_UNPACK, 1, -1, NOWHERE), (_RETURN, 0, -1, NOWHERE)))
        else:
            leave(places[low - 1])
    return tuple(orders)
