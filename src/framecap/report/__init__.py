"""What was captured and where the graph broke, as data (`data`), as text (`text`) and as JSON (`json`)."""

from .data import Break, FunctionReport, Report, Totals

__all__ = ["Break", "FunctionReport", "Report", "Totals"]
