"""Writers of a code object's position table and exception table.

Formats: Objects/locations.md and Objects/exception_handling_notes.txt of CPython 3.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from framecap.bytecode.instruction import Positions


def _varint(value: int) -> bytes:
    """Six bits a byte, lowest first, 64 marking that more follow."""
    output = bytearray()
    while value > 63:
        output.append(value & 63 | 64)
        value >>= 6
    output.append(value)
    return bytes(output)


def _signed_varint(value: int) -> bytes:
    return _varint(-value << 1 | 1 if value < 0 else value << 1)


def encode_positions(first_line: int, positions: Sequence[Positions], starts: Sequence[int]) -> bytes:
    """The position table of instructions that start at the code units `starts` (one more: the end).
    Neighbours with equal positions share an entry."""
    output = bytearray()
    line_before = first_line
    count = len(positions)
    i = 0
    while i < count:
        position = positions[i]
        start = starts[i]
        i += 1
        while i < count and positions[i] == position:
            i += 1
        units = starts[i] - start
        while units > 0:
            length = min(units, 8)
            units -= length
            code, data = _entry(position, line_before)
            output.append(128 | code << 3 | length - 1)
            output += data
            if position[0] is not None:
                line_before = position[0]
    return bytes(output)


def _entry(position: Positions, line_before: int) -> tuple[int, bytes]:
    """The code of the shortest entry for a position, and the bytes after its first."""
    line, end_line, column, end_column = position
    if line is None:
        return 15, b""
    delta = line - line_before
    if end_line is None:
        end_line = line
    if column is None or end_column is None:
        if end_line == line:
            return 13, _signed_varint(delta)
        return 14, _signed_varint(delta) + _varint(end_line - line) + b"\0\0"
    if end_line == line:
        width = end_column - column
        if delta == 0 and column < 80 and 0 <= width < 16:
            return column >> 3, bytes(((column & 7) << 4 | width,))
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            return 10 + delta, bytes((column, end_column))
    return 14, _signed_varint(delta) + _varint(end_line - line) + _varint(column + 1) + _varint(
        end_column + 1
    )


def encode_exception_table(entries: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """The exception table of (start, end, target, depth, lasti), in code units, sorted by start, not
    overlapping."""
    output = bytearray()
    for start, end, target, depth, lasti in entries:
        mark = 128
        for value in (start, end - start, target, depth << 1 | lasti):
            shift = max(value.bit_length() - 1, 0) // 6 * 6
            while shift >= 0:
                output.append(value >> shift & 63 | (64 if shift else 0) | mark)
                mark = 0
                shift -= 6
    return bytes(output)
