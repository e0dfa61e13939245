"""The report as text for people: one paragraph a function, each break with its source line and a marker.

Nothing is cut off for being long: what doesn't fit is wrapped. Only a source line longer than the output is wide is
shown in part, the part with the marked expression.
"""

from __future__ import annotations

import io
import linecache
import os
from collections.abc import Iterator
from typing import IO, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .data import Break, FunctionReport, Report, Totals

PLAIN_WIDTH = 80
"""Columns where the output isn't a terminal and COLUMNS isn't set."""
MOST_LINES = 5
"""Source lines shown of one expression."""
TAB = 4
DOTS = "..."


def render(report: Report) -> str:
    """The report as a plain string, without colours."""
    out = io.StringIO()
    write(report, out)
    return out.getvalue()


def write(report: Report, out: TextIO) -> None:
    """Write the report to ``out``: in colour and as wide as the terminal if it is one, else plain."""
    lenient = cast(IO[str], Lenient(out))
    console = Console(file=lenient, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_WIDTH
    printer = Printer(console)
    for function in report.functions:
        if function.graphs or function.breaks or function.recompiles:
            printer.function(function)
    printer.totals(report)


class Lenient:
    """A text stream that escapes what its encoding lacks instead of raising: a report has any file name in it."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.encoding = getattr(out, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        return self.out.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))

    def flush(self) -> None:
        self.out.flush()

    def isatty(self) -> bool:
        return self.out.isatty()

    def fileno(self) -> int:
        return self.out.fileno()


class Printer:
    """Writes the parts of a report to a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: Text | str = "", indent: int = 0) -> None:
        """Print ``text`` wrapped, every line of it indented. A word longer than the width is folded, not cut."""
        text = Text(text) if isinstance(text, str) else text
        # A narrow terminal gives up the indent rather than text.
        indent = min(indent, max(self.console.width - 20, 0))
        for part in text.wrap(self.console, self.console.width - indent, overflow="fold"):
            part.rstrip()
            self.raw(Text.assemble(" " * indent, part))

    def function(self, function: FunctionReport) -> None:
        place = f"{_short_path(function.filename)}:{function.line}"
        self.line(Text.assemble((function.name, "bold"), "  ", (place, "dim")))
        self.line(
            ", ".join(
                (
                    _count(function.graphs, "graph"),
                    f"{_count(function.operators, 'operator')} captured",
                    _count(len(function.breaks), "graph break"),
                    *([_count(len(function.recompiles), "recompile")] if function.recompiles else []),
                )
            ),
            2,
        )
        for found in function.breaks:
            self.line()
            self.graph_break(found, function)
        if function.recompiles:
            self.line()
            for sentence in function.recompiles:
                self.line(Text.assemble(("recompiled ", "yellow"), sentence), 2)
        self.line()

    def graph_break(self, found: Break, function: FunctionReport) -> None:
        place = f"{_short_path(found.filename)}:{found.line}" if found.line > 0 else _short_path(found.filename)
        where = f" in {found.function}" if found.function != function.name else ""
        times = "once" if found.times == 1 else f"{found.times} times"
        self.line(Text.assemble((found.code, "bold red"), f"  {place}{where}, {times}"), 2)
        number_width = len(str(found.end_line))
        # Room for the indent, the line number, the rule and spaces between them.
        room = max(self.console.width - 4 - number_width - 3, 10)
        for number, source, marks in self.source(found, room):
            shown = str(number) if number else ""
            gutter = f"    {shown:>{number_width}} | "
            self.raw(Text.assemble((gutter, "dim"), source))
            if marks.strip():
                self.raw(Text.assemble((f"    {'':>{number_width}} | ", "dim"), (marks, "red")))
        self.line(found.sentence, 4)
        if found.hint:
            self.line(Text.assemble(("Hint: ", "green"), found.hint), 4)

    def raw(self, text: Text) -> None:
        """Print a line that already fits, as it is."""
        text.rstrip()
        self.console.print(text, soft_wrap=True)

    def source(self, found: Break, room: int) -> Iterator[tuple[int, str, str]]:
        """(line number, source, markers) for each line of the broken expression; nothing without source."""
        if found.line <= 0:
            return
        last = max(found.end_line, found.line)
        numbers: list[int] = list(range(found.line, last + 1))
        left_out = len(numbers) > MOST_LINES
        if left_out:
            numbers = numbers[: MOST_LINES - 1]
        lines = [linecache.getline(found.filename, number).rstrip("\r\n") for number in numbers]
        if not any(lines):
            return
        common = min((len(t) - len(t.lstrip()) for t in lines if t.strip()), default=0)
        for number, text in zip(numbers, lines):
            start, end = len(text) - len(text.lstrip()), len(text)
            if found.col >= 0 and number == found.line:
                start = _char_index(text, found.col)
            if found.end_col >= 0 and number == last:
                end = _char_index(text, found.end_col)
            yield number, *mark(text[common:], start - common, end - common, room)
        if left_out:
            yield 0, f"{DOTS} ({_count(last - numbers[-1], 'more line')})", ""

    def totals(self, report: Report) -> None:
        totals = report.totals
        quiet = sum(1 for f in report.functions if not (f.graphs or f.breaks or f.recompiles))
        if not totals.graphs and not totals.breaks:
            self.line("framecap captured nothing: no tensor code ran, or none under framecap.optimize.")
            return
        self.line(Text.assemble(("Total: ", "bold"), total_sentence(totals)))
        if quiet:
            self.line(f"{_count(quiet, 'other function')} had no tensor code of its own to capture.")


def total_sentence(totals: Totals) -> str:
    """All sums in one sentence."""
    times = f", met {_count(totals.break_times, 'time')}" if totals.breaks else ""
    return (
        f"{_count(totals.functions, 'function')}, {_count(totals.graphs, 'graph')}, "
        f"{_count(totals.operators, 'operator')} captured, {_count(totals.breaks, 'graph break')}{times}, "
        f"{_count(totals.recompiles, 'recompile')}."
    )


def mark(text: str, start: int, end: int, room: int) -> tuple[str, str]:
    """``text`` and a line of carets under its characters ``start`` to ``end``, both at most ``room`` columns wide.

    Tabs become spaces; wide characters get two carets. Of a longer line the part around ``start`` is shown.
    """
    start = max(min(start, len(text)), 0)
    end = max(min(end, len(text)), start)
    before, inside, after = (part.expandtabs(TAB) for part in (text[:start], text[start:end], text[end:]))
    if cell_len(before) + cell_len(inside) + cell_len(after) > room:
        budget = room - 2 * len(DOTS)
        inside_width = min(cell_len(inside), budget)
        spare = budget - inside_width
        if cell_len(before) > spare // 2:
            kept = _last_cells(before, max(spare // 2, spare - cell_len(after)))
            before = DOTS + kept if len(kept) < len(before) else before
        left = room - cell_len(before)
        if cell_len(inside) + cell_len(after) > left:
            if cell_len(inside) > left - len(DOTS):
                inside, after = _first_cells(inside, left - len(DOTS)), DOTS
            else:
                after = _first_cells(after, left - cell_len(inside) - len(DOTS)) + DOTS
    return before + inside + after, " " * cell_len(before) + "^" * cell_len(inside)


def _first_cells(text: str, width: int) -> str:
    """The longest beginning of ``text`` that is at most ``width`` columns wide."""
    end = 0
    while end < len(text) and cell_len(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def _last_cells(text: str, width: int) -> str:
    return _first_cells(text[::-1], width)[::-1]


def _char_index(text: str, byte_offset: int) -> int:
    """Character index of a UTF-8 byte offset."""
    return len(text.encode("utf-8", "surrogatepass")[:byte_offset].decode("utf-8", "ignore"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _short_path(filename: str) -> str:
    """Relative to the current directory if it lies below it, so that editors and shells can open it."""
    if not os.path.isabs(filename):
        return filename
    try:
        relative = os.path.relpath(filename)
    except (OSError, ValueError):  # no current directory any more, or another drive
        return filename
    return filename if relative.startswith(os.pardir) else relative

