"""From a frame at a capture point to a region: interpret until a graph break or the return, then compile.

This is the one place that catches GraphBreak.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from framecap.graph import Graph
from framecap.guards import (
    Builtins,
    Call,
    DistinctGuard,
    EqualsGuard,
    Globals,
    Guard,
    IsGuard,
    Item,
    Slot,
    Source,
    UnboundGuard,
    compile_guards,
)

from . import models, opcodes  # noqa: F401  (fill the tables)
from .config import Config
from .errors import ESCAPES, LOOP, RAISES, SIDE_EFFECT, BreakRecord, GraphBreak, Place
from .models.registry import MODELS  # noqa: F401
from .policy import is_library
from .symbolic.arguments import outside_cell
from .symbolic.compile import build_graph, compile_backend, compile_epilogue, specialise
from .symbolic.epilogue import Emitter
from .symbolic.frame import SymbolicFrame, Unread, run_inlined
from .symbolic.stack import NULL
from .symbolic.tracer import BrokenCalls, Namespace, Tracer
from .tracing.region import Input
from .values.base import Raised, Unmaterialisable, Value
from .values.constant import Const
from .values.context_var import TokenValue
from .values.function import CellValue
from .values.lookup import HEAP_TYPE, MISSING, class_dict_lookup, instance_dict
from .values.method import MethodValue

MAX_RESTARTS = 12
MAX_BACK_JUMPS = 64


@dataclass(slots=True)
class Exit:
    """Where a region ends: target 0 is the return; else the offset of the instruction that runs natively."""

    offset: int | None
    record: BreakRecord | None


def has_saved_tensors_hooks() -> bool:
    """Whether `torch.autograd.graph.saved_tensors_hooks` are active."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


@dataclass(slots=True)
class Captured:
    """A compiled region, before it becomes a Variant of the hook.

    bare: it has no effects, and no handler of the program stands around any of its operators.
    """

    program: Any
    run: Any
    writes: tuple[tuple[int, bool], ...]
    unbinds: tuple[int, ...]
    pure: bool
    bare: bool
    exit: Exit
    graph: Graph
    operators: int
    steps: int
    call: Any = None
    offsets_by_line: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Ended:
    """Interpretation ended where nothing worth running was captured."""

    exit: Exit
    steps: int


class CaptureTracer(Tracer):
    """The tracer of one capture of a real frame: knows where slots and builtins are found."""

    unbound: Any = None

    def __init__(self, config: Config, dynamic: frozenset[Source], slots: tuple[Any, ...]) -> None:
        super().__init__(config, dynamic)
        self.real_slots = slots
        self.back_jumps: dict[tuple[int, int], int] = {}
        self.must_break: str | None = None
        self.run_code = run_inlined

    def load_unread(self, frame: SymbolicFrame, index: int) -> Any:
        """Wrap a slot of the outermost frame at its first use."""
        real = self.real_slots[index]
        names = frame.program.slot_names
        name = names[index] if index < len(names) else f"stack{index - len(names)}"
        source = Slot(index, name)
        value: Any
        if real is self.unbound:
            if index < len(names):
                self.guard(UnboundGuard(source, where=self.where))
            value = None if index < len(names) else NULL
        elif type(real) is types.CellType:
            value = outside_cell(self, real, source)
        else:
            value = self.wrap(real, source)
        return value

    def builtin(self, frame: SymbolicFrame, name: str) -> Value | None:
        space = frame.builtins
        if name not in space:
            return None
        return self.wrap(space[name], Item(Builtins(), name))

    def check_drop(self, old: Any) -> None:
        """A local is rebound or deleted. If that may run a finalizer, it has to happen in its place among the effects."""
        real = self.real_slots[old.index] if isinstance(old, Unread) else getattr(old, "real", None)
        if real is not None and has_finalizer(real):
            raise GraphBreak(
                SIDE_EFFECT,
                f"the last reference to an object of type {type(real).__name__} may go, and with it its finalizer runs",
            )

    def loop_back(self, frame: SymbolicFrame, target: int) -> None:
        """Count a backward jump; a loop that goes on for long is ended at the next instruction that may end a region."""
        key = (id(frame), target)
        count = self.back_jumps[key] = self.back_jumps.get(key, 0) + 1
        if count > MAX_BACK_JUMPS:
            if frame.parent is None:
                self.must_break = "the loop goes round many times"
            else:
                raise GraphBreak(LOOP, "the loop of a called function goes round many times")

    def is_library(self, code: types.CodeType) -> bool:
        return is_library(code)

    def release(self, frame: SymbolicFrame) -> None:
        """Let go of the program's objects now: cycles among frames and logs would keep them until a collection."""
        self.real_slots = ()
        for log in (
            self.journal,
            self.memo,
            self.by_source,
            self.kept,
            self.ops,
            self.effects,
            self.handled,
            self.states,
        ):
            log.clear()
        self.namespaces.clear()
        frame.slots = []
        frame.stack = []
        self.frame = self.outer = None


def has_finalizer(real: Any) -> bool:
    """Whether dropping ``real`` may run a ``__del__``: its own, or that of something it holds directly."""
    if class_dict_lookup(type(real), "__del__") is not MISSING:
        return True
    held: Any = ()
    if type(real) in (list, tuple, set):
        held = real
    elif type(real) is dict:
        held = real.values()
    elif type(real).__flags__ & HEAP_TYPE:
        held = instance_dict(real).values()
    return any(class_dict_lookup(type(item), "__del__") is not MISSING for item in itertools.islice(held, 64))


class Checkpoint:
    """State of the outermost frame before an instruction at which a region may end."""

    __slots__ = ("index", "log", "offset", "slots", "stack")

    def __init__(self, tx: Tracer, frame: SymbolicFrame, offset: int) -> None:
        self.log = tx.checkpoint()
        self.offset = offset
        self.stack = list(frame.stack)
        self.slots = list(frame.slots)
        self.index = frame.index

    def restore(self, tx: Tracer, frame: SymbolicFrame) -> None:
        tx.rollback(self.log)
        frame.stack = self.stack
        frame.slots = self.slots
        frame.index = self.index
        frame.group_offset = None
        frame.keyword_names = ()
        frame.result = None
        frame.yielded = None


@dataclass(slots=True)
class FrameState:
    """A real frame at a capture point. slots: localsplus and the stack up to the point's depth."""

    code: types.CodeType
    offset: int
    slots: tuple[Any, ...]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    unbound: Any
    module_level: bool
    targets: dict[int, int]
    null_slots: dict[int, tuple[int, ...]]


def capture_frame(
    state: FrameState,
    config: Config,
    *,
    forced: set[int],
    dynamic: frozenset[Source],
    broken_calls: BrokenCalls,
    live: Callable[[int], frozenset[int]] | None = None,
) -> Captured | Ended:
    """Interpret the frame from where it stands. ``forced`` (added to) are offsets where a region has to end."""
    for _ in range(MAX_RESTARTS):
        tx = CaptureTracer(config, dynamic, state.slots)
        tx.unbound = state.unbound
        tx.broken_calls = broken_calls
        frame = outer_frame(tx, state)
        try:
            found = attempt(tx, frame, state, forced, live)
        finally:
            tx.release(frame)
        if found is not None:
            return found
    return Ended(Exit(state.offset, None), 0)


def attempt(
    tx: CaptureTracer,
    frame: SymbolicFrame,
    state: FrameState,
    forced: set[int],
    live: Callable[[int], frozenset[int]] | None,
) -> Captured | Ended | None:
    """One interpretation; None to try again with one more forced end."""
    exit_ = interpret(tx, frame, state, forced)
    try:
        return finish(tx, frame, state, exit_, live)
    except Unmaterialisable as problem:
        offset = problem.value.born_at()
        if offset is None or offset in forced or offset not in state.targets:
            record = exit_.record or BreakRecord(ESCAPES, str(problem), ESCAPES.hint, frame.place())
            return Ended(Exit(exit_.offset if exit_.offset is not None else state.offset, record), tx.steps)
        forced.add(offset)
        return None


def outer_frame(tx: CaptureTracer, state: FrameState) -> SymbolicFrame:
    frame = SymbolicFrame(tx, state.code, Namespace(state.globals, Globals()), state.builtins, None)
    tx.namespaces[id(state.globals)] = frame.namespace
    frame.slots = [Unread(i) for i in range(frame.program.slot_count)]
    frame.names_are_globals = state.module_level
    frame.jump(state.offset)
    tx.frame = tx.outer = frame
    frame.inst = frame.program.instructions[frame.index]
    for i in range(frame.program.slot_count, len(state.slots)):
        frame.stack.append(StackItem(i))
    return frame


class StackItem(Unread):
    """A stack item that was there on entry and that nobody has looked at."""

    __slots__ = ()


def interpret(tx: CaptureTracer, frame: SymbolicFrame, state: FrameState, forced: set[int]) -> Exit:
    """Run the outermost frame to its return or to a break, and leave it in the state before the broken instruction."""
    last: Checkpoint | None = None
    try:
        while True:
            inst = frame.program.instructions[frame.index]
            offset = inst.offset
            if frame.group_offset is None and offset in state.targets:
                last = Checkpoint(tx, frame, offset)
                frame.inst = inst
                if offset in forced:
                    raise GraphBreak(ESCAPES, "an object that is made here has to exist when the region ends")
                if tx.must_break is not None and offset != state.offset:
                    raise GraphBreak(LOOP, tx.must_break)
            _read_stack(tx, frame, inst)
            frame.step()
            if frame.result is not None:
                return Exit(None, None)
    except GraphBreak as graph_break:
        record = make_record(tx, frame, graph_break)
    except Raised as raised:
        record = BreakRecord(RAISES, f"{raised.value.describe()} is raised", RAISES.hint, frame.place())
    if last is None:
        return Exit(state.offset, record)
    last.restore(tx, frame)
    tx.frame = frame
    return Exit(last.offset, record)


def _read_stack(tx: CaptureTracer, frame: SymbolicFrame, inst: Any) -> None:
    """Wrap stack items from the entry that this instruction may touch: they are read like locals."""
    stack = frame.stack
    if not stack:
        return
    name = inst.opname
    depth = 1 if name.startswith("POP_JUMP") else _REACH.get(name, 5)
    reach = min(len(stack), depth + (inst.arg if name in _REACH_BY_ARG else 0))
    for i in range(len(stack) - reach, len(stack)):
        if isinstance(stack[i], StackItem):
            stack[i] = tx.load_unread(frame, stack[i].index)


_REACH_BY_ARG = {
    "CALL", "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_CONST_KEY_MAP", "BUILD_STRING", "LIST_APPEND", "SET_ADD", "MAP_ADD",
    "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "BUILD_SLICE", "RAISE_VARARGS", "BUILD_MAP",
}  # fmt: skip
_REACH: dict[str, int] = {
    **dict.fromkeys(
        ("COPY", "SWAP", "POP_TOP", "LOAD_FAST", "LOAD_CONST", "PUSH_NULL", "NOP", "RESUME", "KW_NAMES", "PRECALL", "LOAD_GLOBAL",
         "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_NAME", "JUMP_FORWARD", "JUMP_BACKWARD", "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET",
         "BUILD_STRING", "BUILD_SLICE", "RAISE_VARARGS", "DELETE_FAST", "DELETE_DEREF", "LOAD_ASSERTION_ERROR"),
        0,
    ),
    **dict.fromkeys(
        ("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME", "LOAD_ATTR", "LOAD_METHOD", "DELETE_ATTR", "UNARY_NOT",
         "UNARY_NEGATIVE", "UNARY_INVERT", "GET_ITER", "FOR_ITER", "RETURN_VALUE", "YIELD_VALUE", "UNPACK_SEQUENCE", "UNPACK_EX",
         "BEFORE_WITH", "LIST_TO_TUPLE", "GET_LEN", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", "PUSH_EXC_INFO", "POP_EXCEPT",
         "IMPORT_FROM", "BUILD_CONST_KEY_MAP"),
        1,
    ),
    **dict.fromkeys(
        ("BINARY_OP", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "BINARY_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "IMPORT_NAME", "SEND",
         "CALL", "FORMAT_VALUE", "RERAISE", "CHECK_EXC_MATCH"),
        2,
    ),
    "BUILD_MAP": 1 << 16,
}  # fmt: skip
"""How deep an opcode looks into the stack, besides its argument; 5 if it isn't listed."""


def make_record(tx: CaptureTracer, frame: SymbolicFrame, graph_break: GraphBreak) -> BreakRecord:
    """The break as users see it: at the innermost line if a called function breaks."""
    outer = frame.place()
    inner = graph_break.place
    detail = graph_break.detail or graph_break.kind.explanation
    caller = outer if inner is not None and inner != outer else None
    return BreakRecord(graph_break.kind, detail, graph_break.hint, inner or outer, caller)


# Finishing


def finish(
    tx: CaptureTracer,
    frame: SymbolicFrame,
    state: FrameState,
    exit_: Exit,
    live: Callable[[int], frozenset[int]] | None,
) -> Captured | Ended:
    """Compile what was captured; Ended if no tensor operator was."""
    if not any(not op.scalar for op in tx.ops):
        return Ended(exit_, tx.steps)
    if tx.handled:
        raise Unmaterialisable(tx.handled[0])
    tx.frame = None
    for variable in tx.set_variables.values():
        if variable.stack:
            # The token of the set may be needed by native code: it has to be made there.
            raise Unmaterialisable(TokenValue(variable, 0, variable.set_at))
    emitter = Emitter()
    for effect in tx.effects:
        emitter.effect(effect)
    if exit_.offset is None:
        result = frame.result
        assert result is not None
        values = [emitter.value(result)]
        locals_: list[str] = []
        target = 0
        writes: list[tuple[int, bool]] = []
        unbinds: list[int] = []
    else:
        target = state.targets[exit_.offset]
        values = stack_values(tx, frame, state, exit_.offset, emitter)
        locals_, writes, unbinds = local_values(frame, state, emitter, live(exit_.offset) if live is not None else None)
    outputs = list(emitter.outputs)
    built = build_graph(tx, outputs)
    operators = sum(not op.scalar for op in built.ops)
    if operators == 0:
        return Ended(exit_, tx.steps)
    if tx.config.backend is None:
        running = build_graph(tx, outputs, lowered=True)
    else:
        running = built
        specialise(tx, built)
    call, function = compile_backend(running, tx.config.backend, tx.config.backend_name, emitter)
    tail = "".join(f", {text}" for text in locals_)
    result_text = f"({target}, ({', '.join(values)}{',' if values else ''}){tail})"
    pure = not any(op.impure for op in built.ops)
    bare = not tx.effects and not tx.tried
    run = compile_epilogue(
        emitter,
        call,
        [emitter.outputs[op] for op in outputs],
        emitter.lines,
        result_text,
        switches=tx.switches,
        random=pure and any(op.random for op in built.ops),
        has_graph=True,
    )
    # Under a torch function mode other code runs in the place of operators: such frames are left alone.
    plain = EqualsGuard(Call(torch._C._len_torch_function_stack), 0)
    guards = [plain, *tx.guards, *alias_guards(tx)]
    if pure and not bare:
        # Were a hook to raise, as checkpointing's do, the region could neither run again nor raise in its place.
        guards.append(EqualsGuard(Call(has_saved_tensors_hooks), False))
    program = compile_guards(guards, list(emitter.inputs))
    return Captured(
        program, run, tuple(writes), tuple(unbinds), pure, bare, exit_, built.graph, operators, tx.steps, function
    )


def stack_values(
    tx: CaptureTracer, frame: SymbolicFrame, state: FrameState, offset: int, emitter: Emitter
) -> list[str]:
    """Code for the non-NULL stack items of an exit, bottom to top."""
    stack = list(frame.stack)
    for i, item in enumerate(stack):
        if isinstance(item, StackItem):
            real = state.slots[item.index]
            stack[i] = NULL if real is state.unbound else Passed(Slot(item.index, f"stack{i}"))
    nulls = state.null_slots.get(offset, ())
    for i in nulls:
        if stack[i] is not NULL:
            stack[i], stack[i + 1] = NULL, MethodValue(stack[i], stack[i + 1])
    return [emitter.value(item) for item in stack if item is not NULL]


class Passed(Value):
    """A stack item that goes back where it was, unread."""

    __slots__ = ()

    def python_type(self) -> type:
        return object

    def emit(self, emitter: Emitter) -> str:
        assert self.source is not None
        return emitter.input(self.source)


def local_values(
    frame: SymbolicFrame, state: FrameState, emitter: Emitter, live: frozenset[int] | None
) -> tuple[list[str], list[tuple[int, bool]], list[int]]:
    """Code for the locals that differ from those on entry; a dead local that can't be rebuilt is left unbound."""
    texts: list[str] = []
    writes: list[tuple[int, bool]] = []
    unbinds: list[int] = []
    for index, value in enumerate(frame.slots):
        if isinstance(value, (Unread, CellValue)):
            continue
        if value is None:
            if state.slots[index] is not state.unbound:
                unbinds.append(index)
            continue
        try:
            texts.append(emitter.value(value))
        except Unmaterialisable:
            if live is None or index in live:
                raise
            unbinds.append(index)
            continue
        writes.append((index, False))
    return texts, writes, unbinds


def alias_guards(tx: CaptureTracer) -> list[Guard]:
    """Objects that were changed must not be the same as others of their type that were read under another name."""
    changed: dict[int, Value] = {}
    for effect in tx.effects:
        owner = effect.operands[0]
        if isinstance(owner, Value) and owner.source is not None:
            changed[id(owner)] = owner
    pinned = {guard.source for guard in tx.guards if isinstance(guard, IsGuard)}
    guards: list[Guard] = []
    for owner in changed.values():
        for other in tx.memo.values():
            if other is owner or other.source is None or isinstance(other, Const):
                continue
            if other.python_type() is owner.python_type() and not {owner.source, other.source} <= pinned:
                assert owner.source is not None
                if id(other) in changed and id(other) < id(owner):
                    continue
                guards.append(DistinctGuard((owner.source, other.source)))
    return guards


def place_of(code: types.CodeType) -> Place:
    return Place(code.co_filename, code.co_qualname, code.co_firstlineno, code.co_firstlineno, 0, 0)


__all__ = ["Captured", "Ended", "Exit", "FrameState", "Input", "capture_frame"]
