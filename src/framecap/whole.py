"""framecap.capture: one graph for a whole call, from the same interpreter but without a real frame."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from framecap.graph import GraphModule
from framecap.guards import EqualsGuard, Globals, Slot, Source

from . import hook
from .backends import config_for
from .capturing import CaptureTracer, make_record
from .errors import CaptureError, GraphBreak, UsageError
from .points import describe_break
from .symbolic.arguments import outside_cell
from .symbolic.compile import state_path
from .symbolic.frame import SymbolicFrame, Unread
from .symbolic.tracer import Namespace
from .tracing.examples import NoExample
from .tracing.known import known_value
from .tracing.region import Input, is_argument
from .values.base import Raised, Value
from .values.constant import Const
from .values.mapping import DictValue
from .values.module import ModuleValue, has_hooks, is_leaf_class
from .values.sequence import TupleValue
from .values.tensor import TensorValue
from .whole_graph import build_module

LeafPolicy = Callable[[nn.Module, str], bool]

MAX_STEPS = 5_000_000
"""Instructions interpreted for one whole graph: loops are unrolled, however long they are."""
MAX_ROUNDS = 8


def torch_nn_leaves(module: nn.Module, path: str) -> bool:
    """The default of `capture`: modules of torch.nn are one node, but for its containers."""
    return is_leaf_class(type(module))


def no_leaves(module: nn.Module, path: str) -> bool:
    """For `capture`: torch.nn modules are interpreted too, down to functions of tensors."""
    return False


@dataclass(slots=True)
class Call:
    """A call to be captured: the function, its arguments by slot, and which of them are the graph's inputs.

    slots: those of the function's code, then one for each part of ``*args`` and ``**kwargs``, which the call makes anew.
    inputs: the slots of what the caller gave, by the placeholder that stands for it, in the signature's order. owner: the
    module that is captured, whose state keeps its own paths.
    """

    function: Any
    slots: list[Any]
    inputs: dict[str, Slot] = field(default_factory=dict)
    star_args: list[Slot] = field(default_factory=list)
    star_kwargs: dict[str, Slot] = field(default_factory=dict)
    owner: Slot | None = None
    without_examples: bool = False


class WholeTracer(CaptureTracer):
    """Interprets a call without a frame. Only what the caller gave as an argument is an input; the rest is state."""

    def __init__(self, call: Call, is_leaf: LeafPolicy, leaf_functions: frozenset[Any], fixed: frozenset[Source]) -> None:
        super().__init__(config_for("eager", True), frozenset(), tuple(call.slots))
        self.call = call
        self.is_leaf = is_leaf
        self.leaf_functions = leaf_functions
        self.fixed = fixed
        self.unbound = hook.UNBOUND
        self.without_examples = call.without_examples

    def wrap(self, real: Any, source: Source) -> Value:
        """As ever, but two arguments are two inputs, also where one tensor was the example of both."""
        if type(real) not in (torch.Tensor, nn.Parameter) or not self.is_input(source):
            return super().wrap(real, source)
        known = self.by_source.get(source)
        if known is None:
            known = self.by_source[source] = TensorValue(Input(source, real, str(source)), type(real), source)
        return known

    def is_leaf_module(self, module: ModuleValue) -> bool:
        assert module.source is not None
        return bool(self.is_leaf(module.real, state_path(module.source)))

    def is_leaf_function(self, function: Any) -> bool:
        return function in self.leaf_functions

    def is_dynamic(self, source: Source) -> bool:
        return source not in self.fixed and is_argument(source) and self.is_input(source)

    def is_input(self, source: Source) -> bool:
        """Whether an object comes in by an argument of the caller's, rather than being state of the function's."""
        while source.base is not None:
            source = source.base
        if not isinstance(source, Slot) or source not in self.call.inputs.values():
            return False
        return not isinstance(self.real_slots[source.index], nn.Module)

    def known_value(self, ref: Any) -> Any:
        return known_value(self, ref)

    def count_step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            super().count_step()

    def loop_back(self, frame: SymbolicFrame, target: int) -> None:
        """Loops are unrolled; `count_step` ends one that doesn't end."""

    def check_drop(self, old: Any) -> None:
        """Nothing runs, so nothing is dropped."""


def capture_whole(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_leaf: LeafPolicy,
    leaf_functions: Iterable[Any],
    constants: Mapping[str, Any],
) -> GraphModule:
    """See `framecap.api.capture`."""
    call = bind(fn, args, kwargs, constants)
    title = type(fn).__name__ if isinstance(fn, nn.Module) else call.function.__name__
    fixed: frozenset[Source] = frozenset()
    before = hook.set_thread_config(None)
    try:
        for _ in range(MAX_ROUNDS):
            tx = WholeTracer(call, is_leaf, frozenset(leaf_functions), fixed)
            frame = outer_frame(tx)
            try:
                result = run_whole(tx, frame, title)
                # A number that Python has looked at can't be an input: the graph would ignore another one.
                pinned = {g.source for g in tx.guards if isinstance(g, EqualsGuard) and tx.is_dynamic(g.source)}
                if not pinned:
                    return build_module(tx, result, title)
            finally:
                tx.release(frame)
            fixed |= pinned
    finally:
        hook.set_thread_config(before)
    raise CaptureError(f"{call.function.__qualname__} reads other numbers of its arguments each time it is interpreted")


# The call


def underlying(fn: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The Python function that a call of ``fn`` runs, and the arguments that it is bound to."""
    if isinstance(fn, hook.OptimizedFunction):
        fn = fn.__wrapped__
    if isinstance(fn, functools.partial):
        function, before, named = underlying(fn.func)
        return function, (*before, *fn.args), {**named, **fn.keywords}
    if isinstance(fn, nn.Module):
        return module_call(fn)
    if inspect.ismethod(fn):
        return fn.__func__, (fn.__self__,), {}
    if inspect.isfunction(fn):
        return fn, (), {}
    if not isinstance(fn, type) and inspect.isfunction(type(fn).__call__):
        return type(fn).__call__, (fn,), {}
    raise UsageError(
        f"framecap.capture takes a Python function or an nn.Module, not an object of type {type(fn).__name__}"
    )


def module_call(module: nn.Module) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What calling a module runs: forward, where nothing else has been hung on it."""
    if has_hooks(module):
        raise CaptureError(
            f"{type(module).__name__} has hooks, which are no part of its forward and would be lost in a graph; "
            "remove them, or capture a function that does what they do"
        )
    own = module.__dict__.get("forward")
    if own is not None:
        return underlying(own)
    caller = next(c for c in type(module).__mro__ if "__call__" in c.__dict__ and "__framecap__" not in c.__dict__)
    if caller is not nn.Module:
        return caller.__dict__["__call__"], (module,), {}
    forward = type(module).forward
    if not inspect.isfunction(forward):
        raise UsageError(f"framecap.capture needs a forward that is a Python function, which {type(module).__name__} hasn't")
    return forward, (module,), {}


def bind(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], constants: Mapping[str, Any]) -> Call:
    """The call, with every parameter given, defaulted, or without any example (then it stands for a tensor)."""
    function, before, named = underlying(fn)
    code = function.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise UsageError(f"framecap.capture: {function.__qualname__} is a generator or coroutine, which is no one graph")
    signature = inspect.signature(function, follow_wrapped=False)
    twice = sorted(set(constants) & {*kwargs, *named})
    if twice:
        raise UsageError(f"framecap.capture: {twice[0]!r} is given both as an argument and as a constant")
    try:
        arguments = signature.bind_partial(*before, *args, **{**named, **kwargs, **constants})
    except TypeError as error:
        raise UsageError(f"framecap.capture: {error}") from None
    values = arguments.arguments
    missing = [
        p.name
        for p in signature.parameters.values()
        if p.name not in values and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    without_examples = bool(missing) and not args and not kwargs
    if missing and not without_examples:
        raise UsageError(
            f"framecap.capture: {function.__qualname__}() also needs {', '.join(map(repr, missing))}; give an example of every "
            "argument, or of none"
        )
    given = {*values, *missing} - {*signature.bind_partial(*before, **named).arguments, *constants}
    arguments.apply_defaults()
    values = arguments.arguments
    for name in missing:
        values[name] = NoExample(name)
    slots: list[Any] = [hook.UNBOUND] * (code.co_nlocals + len(code.co_cellvars) + len(code.co_freevars))
    for i, name in enumerate(code.co_varnames):
        if name in values:
            slots[i] = values[name]
    call = Call(function, slots, without_examples=without_examples)
    if code.co_argcount:
        call.owner = Slot(0, code.co_varnames[0])
    names = positional_names(function)
    for parameter in signature.parameters.values():
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            first = len([p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
            own = max(len(before) - first, 0)
            for i, item in enumerate(values[name]):
                known = names[first + i] if first + i < len(names) else None
                slot = new_slot(call, known or f"{name}[{i}]", item)
                call.star_args.append(slot)
                if i >= own:
                    call.inputs[known or f"{name}_{i}"] = slot
        elif parameter.kind is parameter.VAR_KEYWORD:
            for key, item in values[name].items():
                slot = call.star_kwargs[key] = new_slot(call, key, item)
                if key not in named and key not in constants:
                    call.inputs[key] = slot
        elif name in given:
            call.inputs[name] = Slot(code.co_varnames.index(name), name)
    if call.star_args and not code.co_argcount:
        call.owner = call.star_args[0]
    if not before or not isinstance(before[0], nn.Module):
        call.owner = None
    return call


def positional_names(function: Any) -> list[str]:
    """Names for positional arguments: of the function that ``function`` wraps, if it is a decorator's ``*args``."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def new_slot(call: Call, name: str, item: Any) -> Slot:
    call.slots.append(item)
    return Slot(len(call.slots) - 1, name)


# Interpretation


def outer_frame(tx: WholeTracer) -> SymbolicFrame:
    function = tx.call.function
    code = function.__code__
    frame = SymbolicFrame(tx, code, Namespace(function.__globals__, Globals()), builtins.__dict__, None)
    tx.namespaces[id(function.__globals__)] = frame.namespace
    reals = tx.real_slots[: frame.program.slot_count]
    frame.slots = [Unread(i) if real is not hook.UNBOUND else None for i, real in enumerate(reals)]
    free = frame.program.slot_count - len(code.co_freevars)
    for i, cell in enumerate(function.__closure__ or ()):
        frame.slots[free + i] = outside_cell(tx, cell, Slot(free + i, code.co_freevars[i]))
    tx.frame = tx.outer = frame
    count = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        frame.slots[count] = TupleValue([tx.wrap(tx.real_slots[slot.index], slot) for slot in tx.call.star_args])
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        table = frame.slots[count] = DictValue()
        for key, slot in tx.call.star_kwargs.items():
            table.entries[key] = (Const(key), tx.wrap(tx.real_slots[slot.index], slot))
    return frame


def run_whole(tx: WholeTracer, frame: SymbolicFrame, title: str) -> Value:
    """Interpret the frame from its first instruction to its return, or raise CaptureError."""
    try:
        while frame.result is None:
            inst = frame.program.instructions[frame.index]
            if inst.opname == "MAKE_CELL" and isinstance(frame.slots[inst.arg or 0], Unread):
                frame.slots[inst.arg or 0] = frame.load_slot(inst.arg or 0)
            frame.step()
    except GraphBreak as graph_break:
        record = make_record(tx, frame, graph_break)
        raise CaptureError(describe_break(record, title)) from None
    except Raised as raised:
        place = (tx.frame or frame).place()
        raise CaptureError(
            f"{title} can't be captured: it raises {raised.value.describe()} at {place.filename}:{place.line} in {place.function}"
        ) from None
    return frame.result
