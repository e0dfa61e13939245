"""A code object as a list of instructions, each with its EXTENDED_ARG prefixes and inline caches folded in.

Much like ``dis.get_instructions``, several times faster, and with the offsets that a rewriter needs: an
instruction is known by the offset where it starts, prefixes included, which is where jumps to it land.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

EXTENDED_ARG = opcode.EXTENDED_ARG
CACHES: tuple[int, ...] = tuple(opcode._inline_cache_entries)  # type: ignore[attr-defined]
OPNAMES: tuple[str, ...] = tuple(opcode.opname)

Positions = tuple[int | None, int | None, int | None, int | None]


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction. Offsets are in bytes from the start of ``co_code``.

    ``offset`` counts from the first EXTENDED_ARG prefix; ``end`` is the next instruction's offset (after the
    inline caches). ``arg`` is None for opcodes without one. ``argval`` is what ``arg`` stands for: the
    constant, the name, the comparison, the slot's name, the target's offset; else ``arg`` itself.
    ``positions`` is (line, end line, column, end column), columns in utf-8 bytes.
    """

    index: int
    offset: int
    end: int
    opcode: int
    opname: str
    arg: Any  # an int; None for opcodes without one
    argval: Any
    target: int | None
    positions: Positions

    @property
    def line(self) -> int | None:
        return self.positions[0]


def slot_names(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots (localsplus), in order: locals, cells that aren't arguments too, free
    variables."""
    local = code.co_varnames
    cells = tuple(name for name in code.co_cellvars if name not in local)
    return local + cells + code.co_freevars


def decode(code: CodeType) -> list[Instruction]:
    """All instructions of `code`, unspecialised, in order."""
    raw = code.co_code
    positions: list[Positions] = list(code.co_positions())
    positions += [(None, None, None, None)] * (len(code.co_code) // 2 - len(positions))  # a code with a table not its own
    consts, names, slots = code.co_consts, code.co_names, slot_names(code)
    result: list[Instruction] = []
    start = position = 0
    extended = 0
    while position < len(raw):
        op, arg = raw[position], raw[position + 1] | extended
        position += 2
        if op == EXTENDED_ARG:
            extended = arg << 8
            continue
        end = position + 2 * CACHES[op]
        value: Any = arg
        target = None
        if op < opcode.HAVE_ARGUMENT:
            actual = None
        else:
            actual = arg
            kind = _KINDS[op]
            if kind is not None:
                if kind == "slot":
                    value = slots[arg]
                elif kind == "const":
                    value = consts[arg]
                elif kind == "name":
                    value = names[arg]
                elif kind == "global":
                    value = names[arg >> 1]
                elif kind == "forward":
                    value = target = end + 2 * arg
                elif kind == "backward":
                    value = target = end - 2 * arg
                else:
                    value = opcode.cmp_op[arg]
        result.append(
            Instruction(
                len(result),
                start,
                end,
                op,
                OPNAMES[op],
                actual,
                value if actual is not None else None,
                target,
                positions[(position - 2) // 2],
            )
        )
        start = position = end
        extended = 0
    return result


def _kind_table() -> list[str | None]:
    table: list[str | None] = [None] * 256
    groups: tuple[tuple[Iterable[int], str], ...] = (
        (opcode.haslocal, "slot"),
        (opcode.hasfree, "slot"),
        (opcode.hasconst, "const"),
        (opcode.hasname, "name"),
        (opcode.hascompare, "compare"),
        (dis.hasjrel, "forward"),
    )
    for opcodes, kind in groups:
        for op in opcodes:
            table[op] = "backward" if kind == "forward" and "BACKWARD" in OPNAMES[op] else kind
    table[opcode.opmap["LOAD_GLOBAL"]] = "global"
    return table


_KINDS = _kind_table()
