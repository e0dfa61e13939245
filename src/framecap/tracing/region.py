"""A region under construction: the operators recorded so far, what was read (guards), what was written (effects).

Everything here can be rolled back to a checkpoint at the cost of what is undone, so a call that turns out to
break is undone in time proportional to what it recorded (design section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framecap.guards import (
    CellOf,
    EqualsGuard,
    Get,
    Guard,
    Index,
    Item,
    SameGuard,
    Slot,
    Source,
)

from ..config import MAX_STEPS, Config
from ..errors import IMPURE, TOO_LONG, GraphBreak

if TYPE_CHECKING:
    from ..symbolic.frame import SymbolicFrame
    from ..values.base import Value


class Input:
    """Something the region's graph takes from outside: a tensor, a number, a parameter or a leaf module.

    role: "placeholder", "get_attr" or "module". example: the object met while capturing; never kept afterwards.
    """

    __slots__ = ("example", "fake", "hint", "role", "source")

    def __init__(self, source: Source, example: Any, hint: str, role: str = "placeholder") -> None:
        self.source = source
        self.example = example
        self.hint = hint
        self.role = role
        self.fake: Any = None


class Op:
    """One operator of the region, a graph node to be.

    op: call_function, call_method or call_module (target is then an Input of role "module"). keep: not removed
    though unused. impure: changes a tensor that exists outside. random: draws random numbers. offset: of the
    instruction of the outermost frame. module: the module in whose forward it stands. grad_mode: the grad
    mode if known (None: as outside).
    """

    __slots__ = (
        "args",
        "fake",
        "grad_mode",
        "hint",
        "impure",
        "index",
        "keep",
        "kwargs",
        "module",
        "offset",
        "op",
        "random",
        "scalar",
        "stack",
        "target",
    )

    def __init__(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op = op
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self.hint = ""
        self.keep = False
        self.impure = False
        self.random = False
        self.scalar = False
        self.offset = -1
        self.stack: tuple[tuple[str, int], ...] = ()
        self.grad_mode: bool | None = None
        self.module: Source | None = None
        self.fake: Any = None
        self.index = -1


@dataclass(frozen=True, slots=True)
class Effect:
    """A mutation that others can observe, replayed after the graph in program order.

    kind: see `epilogue.py`, which has the code for each. where: file and line of the user's code.
    """

    kind: str
    operands: tuple[Any, ...]
    where: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Lengths of the logs of a region, to roll back to."""

    ops: int
    guards: int
    effects: int
    journal: int
    memo: int
    by_source: int
    impure: bool
    mode_depth: int
    grad_mode: bool | None
    relations: int


class Region:
    """The state shared by all frames that are interpreted for one region."""

    def __init__(self, config: Config, dynamic: frozenset[Source] = frozenset()) -> None:
        self.config = config
        self.dynamic = dynamic
        self.ops: list[Op] = []
        self.guards: list[Guard] = []
        self.guard_keys: set[Any] = set()
        self.effects: list[Effect] = []
        self.journal: list[Callable[[], None]] = []
        self.memo: dict[Any, Value] = {}
        self.by_source: dict[Source, Value] = {}
        self.kept: list[Any] = []
        self.frame: SymbolicFrame | None = None
        self.outer: SymbolicFrame | None = None
        self.impure = False
        self.steps = 0
        self.modules: list[Source] = []
        """The modules whose forwards are being interpreted, innermost last."""
        self.tried = False
        """Whether a handler of the program stood around an operator."""
        self.grad_mode: bool | None = None
        self.mode_handlers: list[Any] = []
        self.shapes: dict[int, Any] = {}
        self.without_examples = False
        """Whether arguments stand for tensors of which nothing is known (`framecap.capture` without examples)."""
        self.handled: list[Value] = []
        """Exceptions being handled symbolically, innermost last."""

    # Logs

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            len(self.ops), len(self.guards), len(self.effects), len(self.journal), len(self.memo),
            len(self.by_source), self.impure, len(self.handled), self.grad_mode, len(self.kept),
        )  # fmt: skip

    def rollback(self, to: Checkpoint) -> None:
        while len(self.journal) > to.journal:
            self.journal.pop()()
        del self.ops[to.ops :]
        for guard in self.guards[to.guards :]:
            self.guard_keys.discard(guard)
        del self.guards[to.guards :]
        del self.effects[to.effects :]
        del self.kept[to.relations :]
        while len(self.memo) > to.memo:
            self.memo.popitem()
        while len(self.by_source) > to.by_source:
            self.by_source.popitem()
        self.impure = to.impure
        self.grad_mode = to.grad_mode

    def undo_later(self, undo: Callable[[], None]) -> None:
        """Register how to undo a change of a model; called newest first on rollback."""
        self.journal.append(undo)

    def count_step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise GraphBreak(TOO_LONG)

    # Reads

    def guard(self, guard: Guard) -> None:
        """Add a guard once."""
        if guard not in self.guard_keys:
            self.guard_keys.add(guard)
            self.guards.append(guard)

    def is_dynamic(self, source: Source) -> bool:
        """Whether a number found here may change from call to call: it is then an input, not a constant."""
        return source in self.dynamic or is_argument(source)

    def known_value(self, ref: Any) -> Any:
        """The tensor that ``ref`` computes if that is a matter of constants and sizes; None if not, or not to be asked."""
        return None

    @property
    def where(self) -> tuple[str, int] | None:
        """File and line of the user's code that is being interpreted."""
        return self.frame.where() if self.frame is not None else None

    def guard_equals(self, source: Source, value: Any) -> None:
        self.guard(EqualsGuard(source, value, where=self.where))

    def same(self, a: Source, b: Source) -> None:
        if a != b:
            self.guard(SameGuard(a, b, where=self.where))

    # Operators

    def add_op(
        self,
        op: str,
        target: Any,
        args: Iterable[Any],
        kwargs: dict[str, Any] | None = None,
        *,
        keep: bool = False,
        impure: bool = False,
        random: bool = False,
        scalar: bool = False,
    ) -> Op:
        """Record an operator; ``args`` are graph arguments (see `Value.as_argument`).

        scalar: works on Python numbers, or takes a part of a result: not an operator of its own, and can't fail.
        """
        if not scalar and self.impure:
            if self.effects:
                raise GraphBreak(IMPURE)
            if self.in_try():
                raise GraphBreak(
                    IMPURE, "an exception handler stands around an operator that follows an in-place change"
                )
        if impure:
            if self.effects:
                raise GraphBreak(IMPURE)
            self.impure = True
        self.tried = self.tried or (not scalar and self.in_try())
        new = Op(op, target, tuple(args), kwargs or {})
        new.keep = keep or impure or random
        new.impure = impure
        new.random = random
        new.scalar = scalar
        if self.outer is not None:
            new.offset = self.outer.offset
        if self.frame is not None:
            new.stack = self.frame.stack_summary()
        new.grad_mode = self.grad_mode
        new.module = self.modules[-1] if self.modules else None
        new.index = len(self.ops)
        self.ops.append(new)
        return new

    def record(self, kind: str, *operands: Any) -> None:
        """Record an effect."""
        self.effects.append(Effect(kind, operands, self.where))

    def in_try(self) -> bool:
        """Whether a handler of the program (not of a torch mode) stands around the current instruction."""
        frame = self.frame
        while frame is not None:
            if frame.in_try():
                return True
            frame = frame.parent
        return False


def slot_rooted(source: Source) -> bool:
    """Whether a value came by argument, local variable or closure cell rather than by global name or class."""
    while True:
        base = getattr(source, "base", None)
        if base is None:
            return isinstance(source, Slot)
        source = base


def is_argument(source: Source) -> bool:
    """Whether a number from here is passed as a dynamic scalar: a local, a cell, or an item of a local tuple or list."""
    while isinstance(source, (Index, Item, CellOf)):
        source = source.base
    return isinstance(source, Slot)


__all__ = ["Checkpoint", "Effect", "Get", "Input", "Op", "Region", "is_argument", "slot_rooted"]
