"""Code objects, their capture points and variants: what is tried where, what was learned, what the report shows."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from framecap.guards import EqualsGuard, Source
from framecap.guards._evaluator import set_global_hooks

from . import hook
from .bytecode import Rewritten, live_slots, rewrite
from .capturing import Captured, Ended, FrameState, capture_frame, has_saved_tensors_hooks
from .config import MAX_VARIANTS, Config, strict
from .errors import BackendError, BreakRecord, CaptureError, InternalError
from .policy import why_skipped
from .symbolic.tracer import BrokenCalls

MAX_EMPTY = 4
"""A point at which so many attempts found no tensor operator goes to sleep for good."""
LONG_EMPTY = 3_000
"""An attempt of so many steps without a tensor operator is not repeated."""


@dataclass(slots=True)
class PointState:
    """What is known of one capture point."""

    code: CodeState
    empty: int = 0
    full: bool = False
    dynamic: set[Source] = field(default_factory=set)
    recompiles: list[str] = field(default_factory=list)


@dataclass(slots=True)
class VariantData:
    """What the owner keeps of a variant: for explanations, the report, and errors in the middle of a region."""

    captured: Captured
    record: BreakRecord | None


@dataclass(slots=True, eq=False)
class CodeState:
    """What is known of one code object that may be captured."""

    name: str
    filename: str
    line: int
    rewritten_points: list[Any] = field(default_factory=list)
    forced: set[int] = field(default_factory=set)
    breaks: dict[tuple[Any, ...], BreakRecord] = field(default_factory=dict)
    graphs: int = 0
    operators: int = 0
    recompiles: list[str] = field(default_factory=list)
    variants: list[VariantData] = field(default_factory=list)
    explained: bool = False
    targets: dict[int, int] = field(default_factory=dict)
    null_slots: dict[int, tuple[int, ...]] = field(default_factory=dict)
    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    live: dict[int, frozenset[int]] = field(default_factory=dict)
    handler_points: dict[int, tuple[int, ...]] = field(default_factory=dict)
    points: dict[int, Any] = field(default_factory=dict)


_states: WeakKeyDictionary[CodeType, tuple[int, CodeState]] = WeakKeyDictionary()
_codes: list[weakref.ref[CodeType]] = []
_order: list[CodeState] = []
_broken_calls = BrokenCalls()
_warned: set[str] = set()


def on_code(code: CodeType) -> CodeType | None:
    """The hook meets a code object for the first time: its twin, or None to leave it alone."""
    try:
        if why_skipped(code) is not None:
            return None
        return prepare(code).twin
    except Exception as error:
        internal_error(error, code)
        return None


def prepare(code: CodeType) -> Rewritten:
    """Rewrite ``code`` and wake its first point."""
    state = CodeState(code.co_qualname, code.co_filename, code.co_firstlineno)

    def make_point(offset: int, depth: int, index: int) -> Any:
        point = hook.Point(offset, depth, index)
        point.data = PointState(state)
        return point

    rewritten = rewrite(code, make_point)
    state.targets = rewritten.targets
    state.null_slots = rewritten.null_slots
    state.after = rewritten.after
    state.live = live_slots(code, rewritten.flow)
    state.points = rewritten.points
    for offset in rewritten.flow.break_places:
        handler = rewritten.flow.range_of(offset)
        if handler is not None:
            state.handler_points[offset] = rewritten.after.get(handler.target, ())
    _states[code] = (id(code), state)
    _codes.append(weakref.ref(code))
    _order.append(state)
    rewritten.points[rewritten.flow.entry].wake()
    return rewritten


# A miss


def on_miss(
    point: Any,
    slots: tuple[Any, ...],
    function: Any,
    globals_: dict[str, Any],
    builtins: dict[str, Any],
    config: object,
) -> Any:
    """No variant of a point fits the frame: capture one, or None to run natively."""
    code = point.code
    state: PointState = point.data
    if not isinstance(config, Config) or code is None or torch._C._len_torch_function_stack() > 0:
        return None
    if type(globals_) is not dict or type(builtins) is not dict:
        return None  # the look-up of a name may run code of the program
    point.variants[:] = [v for v in point.variants if not v.program.dead]
    own = [v for v in point.variants if v.config is config]
    if len(own) >= MAX_VARIANTS:
        _note_full(point, state)
        return None
    try:
        if own:
            explain_miss(state, own[0], slots, globals_, builtins)
        return _capture(point, code, state, slots, globals_, builtins, config)
    except (CaptureError, BackendError):
        raise
    except (RecursionError, MemoryError):
        return None
    except Exception as error:
        point.sleep()
        internal_error(error, code)
        return None


def _capture(
    point: Any,
    code: CodeType,
    state: PointState,
    slots: tuple[Any, ...],
    globals_: dict[str, Any],
    builtins: dict[str, Any],
    config: Config,
) -> Any:
    owner = state.code
    frame_state = FrameState(
        code,
        point.offset,
        slots,
        globals_,
        builtins,
        hook.UNBOUND,
        not code.co_flags & 1,
        owner.targets,
        owner.null_slots,
    )
    found = capture_frame(
        frame_state,
        config,
        forced=owner.forced,
        dynamic=frozenset(state.dynamic),
        broken_calls=_broken_calls,
        live=owner.live.__getitem__,
    )
    record = note_break(owner, found)
    if record is not None and config.fullgraph:
        raise CaptureError(describe_break(record, code.co_qualname))
    wake_after(owner, found.exit.offset)
    if isinstance(found, Ended):
        state.empty += 1
        if state.empty >= MAX_EMPTY or found.steps > LONG_EMPTY:
            point.sleep()
        return None
    state.empty = 0
    owner.graphs += 1
    owner.operators += found.operators
    data = VariantData(found, record)
    owner.variants.append(data)
    return hook.Variant(found.program, found.run, found.writes, found.unbinds, config, found.pure, data)


def wake_after(owner: CodeState, offset: int | None) -> None:
    """Wake the points that follow a break, those of its handler included."""
    if offset is None:
        return
    for place in (*owner.after.get(offset, ()), *owner.handler_points.get(offset, ())):
        other = owner.points.get(place)
        if other is not None and not other.awake and other.data.empty < MAX_EMPTY:
            other.wake()


def note_break(owner: CodeState, found: Captured | Ended) -> BreakRecord | None:
    """The record of a break place, one for each place and reason."""
    record = found.exit.record
    if record is None:
        return None
    key = (record.place, record.kind.code)
    return owner.breaks.setdefault(key, record)


def explain_miss(state: PointState, variant: Any, slots: tuple[Any, ...], globals_: Any, builtins: Any) -> None:
    """Say which guard failed, and pass a number that keeps changing as a dynamic scalar from now on."""
    failure = variant.program.failure(slots, globals_, builtins, hook.UNBOUND)
    if failure is None:
        return
    guard, sentence = failure
    if guard is not None and guard.where is not None:
        sentence = f"{guard.where[0]}:{guard.where[1]}: {sentence}"
    state.recompiles.append(sentence)
    state.code.recompiles.append(sentence)
    if isinstance(guard, EqualsGuard) and type(guard.value) in (int, float):
        state.dynamic.add(guard.source)


def _note_full(point: Any, state: PointState) -> None:
    if not state.full:
        state.full = True
        state.code.recompiles.append(
            f"{MAX_VARIANTS} variants are the limit of one capture point; {state.code.name} runs natively where none of them fits"
        )


def describe_break(record: BreakRecord, name: str) -> str:
    """The sentence of a CaptureError."""
    import linecache

    place = record.place
    line = linecache.getline(place.filename, place.line).strip()
    shown = f"\n    {line}" if line else ""
    return (
        f"{name} can't be captured whole: graph break {record.kind.code!r} at {place.filename}:{place.line} in "
        f"{place.function}: {record.detail}.{shown}\n    {record.hint}"
    )


def on_error(variant: Any, kind: Any, error: BaseException, traceback: Any) -> int | bool | None:
    """A region raised: True if the original code is to run instead, else the offset of the instruction that raised.

    A pure region has changed nothing and runs again natively, unless the program has watched its operators: its hooks on
    saved tensors (as activation checkpointing has) and dispatch modes must not see them twice. The region's own frames
    are taken out of the traceback; those of Python code that an operator ran stay.
    """
    captured: Captured = variant.data.captured
    if variant.pure and isinstance(error, Exception) and not (captured.bare and is_watched()):
        return True
    lines: dict[int, int] = getattr(captured.call, "line_to_offset", {})
    offset = -1
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith("<framecap"):
        if lines and traceback.tb_frame.f_code is captured.call.__code__:
            offset = lines.get(traceback.tb_lineno, -1)
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    return offset if offset >= 0 else None


def is_watched() -> bool:
    """Whether code of the program sees operators as they run, besides torch function modes."""
    return torch._C._len_torch_dispatch_stack() > 0 or has_saved_tensors_hooks()


# Errors of our own


def internal_error(error: Exception, code: CodeType) -> None:
    """One warning for each kind of fault, or the error itself under FRAMECAP_STRICT=1."""
    if strict():
        raise InternalError(
            f"framecap failed on {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}): {type(error).__name__}: {error}"
        ) from error
    key = f"{type(error).__name__}: {error}"
    if key not in _warned:
        _warned.add(key)
        warnings.warn(
            f"framecap could not capture {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) because of a fault of "
            f"its own ({key}); the function runs natively. Please report it.",
            RuntimeWarning,
            stacklevel=2,
        )


# What the report and tests read


def code_states() -> Iterator[CodeState]:
    """All code objects that were entered, in the order of their first entry."""
    return iter(_order)


def state_of(code: CodeType) -> CodeState | None:
    known = _states.get(code)
    return known[1] if known is not None and known[0] == id(code) else None


def forget_all() -> None:
    """Drop everything captured and learned; running frames go on."""
    for reference in _codes:
        code = reference()
        if code is not None:
            hook.forget(code)
    _codes.clear()
    _states.clear()
    _order.clear()
    _broken_calls.clear()
    _warned.clear()


def install() -> None:
    """Attach this module to the hook; called once, by the API."""
    hook.set_callbacks(on_code, on_miss, on_error)
    shared = torch.nn.modules.module
    names = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    set_global_hooks(tuple(getattr(shared, name) for name in names))
