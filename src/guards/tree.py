"""From guards to a program of the C evaluator. Paths that share a beginning are walked once: a tree of sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _evaluator
from .guard import (
    MISSING,
    AbsentAttrGuard,
    AbsentKeyGuard,
    AbsentTypeAttrGuard,
    DistinctGuard,
    EqualsGuard,
    Guard,
    IsGuard,
    KeysGuard,
    LeafModuleGuard,
    LengthGuard,
    PredicateGuard,
    SameGuard,
    TypeGuard,
    UnboundGuard,
)
from .source import (
    Attr,
    Builtins,
    Call,
    CellOf,
    Const,
    DictOf,
    Get,
    Globals,
    Index,
    Item,
    Slot,
    Source,
    TypeAttr,
    TypeOf,
)

UNBOUND: Any = object()
"""Default mark for an unbound slot in `Program.match` and `Program.failure`."""


class Program(_evaluator.Program):
    """Guards compiled for the evaluator. A match gives the objects found at ``outputs``."""

    guards: tuple[Guard, ...]
    outputs: tuple[Source, ...]

    def match(
        self, slots: tuple[Any, ...], globals_: Any, builtins: Any, unbound: Any = UNBOUND
    ) -> tuple[Any, ...] | None:
        """The outputs if every guard holds, else None."""
        return self.check(slots, globals_, builtins, unbound)

    def failure(
        self, slots: tuple[Any, ...], globals_: Any, builtins: Any, unbound: Any = UNBOUND
    ) -> tuple[Guard | None, str] | None:
        """The first guard that doesn't hold and a sentence about it; None on a match. No guard: an output is gone."""
        found = self.explain(slots, globals_, builtins, unbound)
        if found is None:
            return None
        index, reached, value = found
        if index < 0:
            return None, "an object that is used can't be reached any more"
        guard = self.guards[index]
        return guard, guard.explain(value if reached else MISSING)


class _Compiler:
    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self.registers: dict[Source, int] = {}
        self.guard = -1

    def add(self, op: str, a: int = -1, b: int = -1, n: int = 0, obj: Any = None, extra: Any = None) -> None:
        self.steps.append((op, -1, a, b, self.guard, n, obj, extra))

    def load(self, source: Source) -> int:
        """The register that holds the object at ``source``."""
        known = self.registers.get(source)
        if known is not None:
            return known
        op, base, n, obj = _LOADS[type(source)](source)
        a = self.load(base) if base is not None else -1
        register = len(self.registers)
        self.steps.append((op, register, a, -1, self.guard, n, obj, None))
        self.registers[source] = register
        return register

    def check(self, guard: Guard) -> None:
        if isinstance(guard, UnboundGuard):
            if isinstance(guard.source, Slot):
                self.add("unbound", n=guard.source.index)
            else:
                assert isinstance(guard.source, CellOf)
                self.add("empty_cell", self.load(guard.source.base))
            return
        at = [self.load(source) for source in guard.sources()]
        _CHECKS[type(guard)](self, guard, at)


_Load = tuple[str, Source | None, int, Any]
_LOADS: dict[type, Callable[[Any], _Load]] = {
    Slot: lambda s: ("slot", None, s.index, None),
    Globals: lambda s: ("globals", None, 0, None),
    Builtins: lambda s: ("builtins", None, 0, None),
    Const: lambda s: ("const", None, 0, s.obj),
    CellOf: lambda s: ("cell", s.base, 0, None),
    Attr: lambda s: ("attr", s.base, -1, s.name),
    Item: lambda s: ("item", s.base, 0, s.key),
    Index: lambda s: ("index", s.base, s.index, None),
    TypeOf: lambda s: ("type", s.base, 0, None),
    TypeAttr: lambda s: ("typeattr", s.base, 0, s.name),
    Get: lambda s: ("get", s.base, 0, s.name),
    DictOf: lambda s: ("dict", s.base, 0, None),
    Call: lambda s: ("call0" if s.base is None else "call1", s.base, 0, s.function),
}
_CHECKS: dict[type, Callable[[_Compiler, Any, list[int]], None]] = {
    IsGuard: lambda c, g, at: c.add("is", at[0], obj=g.obj),
    TypeGuard: lambda c, g, at: c.add("is_type", at[0], obj=g.type),
    EqualsGuard: lambda c, g, at: c.add("equals", at[0], obj=g.value),
    LengthGuard: lambda c, g, at: c.add("length", at[0], n=g.length),
    KeysGuard: lambda c, g, at: c.add("keys", at[0], obj=g.keys),
    AbsentKeyGuard: lambda c, g, at: c.add("no_key", at[0], obj=g.key),
    AbsentAttrGuard: lambda c, g, at: c.add("no_attr", at[0], n=-1, obj=g.name),
    AbsentTypeAttrGuard: lambda c, g, at: c.add("no_typeattr", at[0], obj=g.name),
    SameGuard: lambda c, g, at: c.add("same", at[0], at[1]),
    DistinctGuard: lambda c, g, at: c.add("distinct", at[0], extra=tuple(at)),
    PredicateGuard: lambda c, g, at: c.add("predicate", at[0], n=int(g.expected), obj=g.function, extra=tuple(at)),
    LeafModuleGuard: lambda c, g, at: c.add("leaf", at[0], obj=g.type),
}


def _first(guard: Guard) -> bool:
    """Whether a guard is cheap and decides most mismatches: the type or value of a slot."""
    return isinstance(guard, (TypeGuard, EqualsGuard)) and isinstance(guard.source, Slot)


def compile_guards(guards: Iterable[Guard], outputs: Sequence[Source]) -> Program:
    """A program that checks ``guards`` and gives the objects at ``outputs``, in that order.

    Guards are checked in the given order, but for checks of a slot's type or value, which come first. A guard must come
    after those that make its path safe to walk, as it does when guards are recorded while a program is read.
    """
    wanted = list(guards)
    ordered = [*(g for g in wanted if _first(g)), *(g for g in wanted if not _first(g))]
    compiler = _Compiler()
    for index, guard in enumerate(ordered):
        compiler.guard = index
        compiler.check(guard)
    compiler.guard = -1
    registers = tuple(compiler.load(source) for source in outputs)
    program = Program(tuple(compiler.steps), len(compiler.registers), registers)
    program.guards = tuple(ordered)
    program.outputs = tuple(outputs)
    return program
