"""The report as plain, frozen data. Renderers read it; nothing here knows how it was collected."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = 1
"""Version of the layout that `Report.to_dict` gives; raised when a key changes its meaning or goes away."""


@dataclass(frozen=True, slots=True)
class Break:
    """One place where a graph ends because an instruction runs natively.

    ``line`` and ``end_line`` count from 1; ``col`` and ``end_col`` count from 0 in bytes of UTF-8, the end being
    excluded, as in ``code.co_positions()``. ``line`` 0 and ``col`` -1 mean unknown. ``times`` counts how often a
    region ended here.
    """

    code: str
    sentence: str
    hint: str
    filename: str
    function: str
    line: int
    end_line: int
    col: int
    end_col: int
    times: int


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """What became of one code object.

    name: its qualified name. line: of its first line. graphs: compiled regions. operators: graph nodes in them
    that call something. recompiles: one sentence for each, saying which guard failed.
    """

    name: str
    filename: str
    line: int
    graphs: int
    operators: int
    breaks: tuple[Break, ...] = ()
    recompiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all functions. ``breaks`` counts places, ``break_times`` how often they were met."""

    functions: int
    graphs: int
    operators: int
    breaks: int
    break_times: int
    recompiles: int


@dataclass(frozen=True, slots=True)
class Report:
    """All functions that were looked at, in the order in which they were first entered."""

    functions: tuple[FunctionReport, ...] = ()

    @property
    def totals(self) -> Totals:
        return Totals(
            functions=len(self.functions),
            graphs=sum(f.graphs for f in self.functions),
            operators=sum(f.operators for f in self.functions),
            breaks=sum(len(f.breaks) for f in self.functions),
            break_times=sum(b.times for f in self.functions for b in f.breaks),
            recompiles=sum(len(f.recompiles) for f in self.functions),
        )

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The breaks of all functions."""
        return tuple(b for f in self.functions for b in f.breaks)

    def to_dict(self) -> dict[str, Any]:
        """Only dicts, lists, strings and integers, so that any serialiser takes it."""
        return {
            "schema": SCHEMA,
            "functions": [function_to_dict(f) for f in self.functions],
            "totals": asdict(self.totals),
        }

    def __str__(self) -> str:
        # Here and not at the top: rich takes tens of milliseconds to import, and most programs print no report.
        from .text import render

        return render(self)


def function_to_dict(function: FunctionReport) -> dict[str, Any]:
    """Like ``asdict``, with lists where JSON would turn tuples into lists."""
    data = asdict(function)
    data["breaks"] = list(data["breaks"])
    data["recompiles"] = list(data["recompiles"])
    return data
