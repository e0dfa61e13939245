"""Regions for tests of the hook without a symbolic interpreter: variants made of plain Python functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from framecap._hook import UNBOUND, Point, Variant, forget, set_callbacks, set_thread_config
from framecap.bytecode import Rewritten, rewrite

CONFIG = object()


def stack_for(rewritten: Rewritten, offset: int, slots: tuple[Any, ...]) -> tuple[Any, ...]:
    """The stack that an exit to `offset` takes, from what a point there was given. LOAD_METHOD's (function,
    self) pairs are bound."""
    base = rewritten.code.co_nlocals + len(set(rewritten.code.co_cellvars) - set(rewritten.code.co_varnames))
    stack = slots[base + len(rewritten.code.co_freevars) :]
    nulls = set(rewritten.null_slots[offset])
    result = []
    for position, value in enumerate(stack):
        if position in nulls:
            continue
        if position - 1 in nulls and stack[position - 1] is not UNBOUND:
            value = stack[position - 1].__get__(value, type(value))
        result.append(value)
    return tuple(result)


def all_writes(code: CodeType) -> list[tuple[int, bool]]:
    """Writes of every slot of a frame, cells by their contents."""
    cells = set(code.co_cellvars)
    names = list(code.co_varnames) + [n for n in code.co_cellvars if n not in code.co_varnames]
    writes = [(i, name in cells) for i, name in enumerate(names)]
    return writes + [(len(names) + i, True) for i in range(len(code.co_freevars))]


def contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def identity_variant(rewritten: Rewritten, point: Point, config: object = CONFIG) -> Variant:
    """A region that does nothing: it ends where it starts, with every local written back."""
    writes = all_writes(rewritten.code)

    def run(slots: tuple[Any, ...]) -> tuple[Any, ...]:
        values = [contents(slots[slot]) if is_cell else slots[slot] for slot, is_cell in writes]
        return (rewritten.targets[point.offset], stack_for(rewritten, point.offset, slots), *values)

    return Variant(lambda slots, globals, builtins: (slots,), run, writes, (), config)


class Hook:
    """Rewrites the codes it is asked about, once, and wakes all points; `on_miss` sees every miss."""

    def __init__(
        self,
        on_miss: Callable[..., Variant | None] | None = None,
        wanted: Callable[[CodeType], bool] = lambda code: True,
        wake: bool = True,
        on_error: Callable[..., int | None] | None = None,
    ) -> None:
        self.asked: list[CodeType] = []
        self.by_id: dict[int, Rewritten] = {}
        self.wanted = wanted
        self.wake = wake
        self.on_miss = on_miss
        self.on_error = on_error
        self.misses = 0

    def on_code(self, code: CodeType) -> CodeType | None:
        self.asked.append(code)
        if not self.wanted(code):
            return None
        rewritten = self.by_id[id(code)] = rewrite(code, Point)
        if self.wake:
            for point in rewritten.points.values():
                point.wake()
        return rewritten.twin

    def missed(self, point: Point, *rest: Any) -> Variant | None:
        self.misses += 1
        return None if self.on_miss is None else self.on_miss(self.by_id[id(point.code)], point, *rest)

    @contextmanager
    def active(self, config: object = CONFIG) -> Iterator[Hook]:
        set_callbacks(self.on_code, self.missed, self.on_error)
        before = set_thread_config(config)
        try:
            yield self
        finally:
            set_thread_config(before)
            set_callbacks(None, None)
            for code in self.asked:
                forget(code)


def identity_hook(**options: Any) -> Hook:
    """Every region of every point is tried, and does nothing."""
    return Hook(lambda rewritten, point, *rest: identity_variant(rewritten, point), **options)


def only(*functions: Callable[..., Any]) -> Callable[[CodeType], bool]:
    codes = [function.__code__ for function in functions]
    return lambda code: any(code is c for c in codes)


def always(*outs: Any) -> Callable[..., tuple[Any, ...]]:
    """A guard program that matches, and gives the region these slots."""
    return lambda slots, globals, builtins: tuple(slots[i] for i in outs)


def at(opname: str, nth: int = 0, **wanted: Any) -> Callable[[Rewritten], int]:
    """Finds the offset of the nth instruction with this name."""

    def find(rewritten: Rewritten) -> int:
        found = [
            inst.offset
            for inst in rewritten.flow.instructions
            if inst.opname == opname and all(getattr(inst, k) == v for k, v in wanted.items())
        ]
        return found[nth]

    return find


def at_entry(make: Callable[[Rewritten], Variant | None]) -> Callable[..., Variant | None]:
    return lambda rewritten, point, *rest: make(rewritten) if point.offset == rewritten.flow.entry else None
