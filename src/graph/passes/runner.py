"""Run passes in order, with the graph's invariants checked after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..check import check
from ..errors import GraphError
from ..graph_module import GraphModule

Pass = Callable[[Any], Any]
_MOST_ROUNDS = 100


@dataclass(slots=True)
class PassReport:
    """What a run of passes did. changes: how often each pass, by name, changed the graph. rounds: how often all ran."""

    changes: dict[str, int] = field(default_factory=dict)
    rounds: int = 0

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return any(self.changes.values())


def run_passes(module: GraphModule, passes: Sequence[Pass], *, until_stable: bool = False) -> PassReport:
    """Apply passes to a graph module in order; until_stable: again and again, until a round changes nothing.

    A pass is a function of the module that edits it and returns something true if it changed anything; one whose first
    parameter is called ``graph`` gets the module's graph. After each the invariants are checked and the code is
    generated anew. Raises GraphError, naming the pass, if it leaves a graph that isn't well formed, or if 100 rounds
    don't lead to an end.
    """
    report = PassReport()
    while True:
        report.rounds += 1
        again = False
        for apply in passes:
            name = _name(apply)
            changed = bool(apply(module.graph if _takes_graph(apply) else module))
            report.changes[name] = report.changes.get(name, 0) + changed
            again = again or changed
            try:
                check(module.graph, module)
            except GraphError as error:
                raise GraphError(f"the pass {name!r} left a graph that isn't well formed: {error}") from None
            if changed:
                module.recompile()
        if not until_stable or not again:
            return report
        if report.rounds == _MOST_ROUNDS:
            busy = ", ".join(name for name, count in report.changes.items() if count == _MOST_ROUNDS)
            raise GraphError(f"the passes don't come to an end; in each of {_MOST_ROUNDS} rounds these changed the graph: {busy}")


def _name(apply: Pass) -> str:
    return getattr(apply, "__name__", type(apply).__name__)


def _takes_graph(apply: Pass) -> bool:
    code = getattr(apply, "__code__", None)
    return code is not None and code.co_argcount > 0 and code.co_varnames[0] == "graph"
