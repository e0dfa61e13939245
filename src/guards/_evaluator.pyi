"""The guard evaluator, in C; see tree.py for how programs are made."""

from typing import Any

Step = tuple[str, int, int, int, int, int, Any, Any]

class Program:
    """A program of loads and checks. steps: (op, dst or -1, a, b, guard index or -1, n, obj, extra)."""

    def __new__(cls, steps: tuple[Step, ...], n_registers: int, outputs: tuple[int, ...]) -> Program: ...
    @property
    def dead(self) -> bool: ...
    def check(self, slots: tuple[Any, ...], globals: Any, builtins: Any, unbound: Any, /) -> tuple[Any, ...] | None: ...
    def explain(
        self, slots: tuple[Any, ...], globals: Any, builtins: Any, unbound: Any, /
    ) -> tuple[int, bool, Any] | None: ...

def set_global_hooks(dicts: tuple[dict[Any, Any], ...], /) -> None: ...

_C_API: Any
