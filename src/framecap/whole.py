"""framecap.capture: one graph for a whole call, from the same interpreter but without a real frame."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from framecap.graph import GraphModule
from framecap.guards import Globals, Slot, Source

from . import hook
from .backends import config_for
from .capturing import CaptureTracer, make_record
from .config import Config
from .errors import CaptureError, GraphBreak, UsageError
from .points import describe_break
from .symbolic.compile import BuiltGraph, build_graph
from .symbolic.frame import SymbolicFrame, Unread
from .symbolic.tracer import Namespace
from .tracing.region import Input, Op
from .values.base import Raised, Value
from .values.constant import Const
from .values.mapping import DictValue
from .values.number import NumberValue
from .values.sequence import ListValue, TupleValue
from .values.tensor import TensorValue


def capture_whole(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphModule:
    """See `framecap.api.capture`."""
    function, bound = underlying(fn)
    code = function.__code__
    signature = inspect.signature(function)
    try:
        arguments = signature.bind(*bound, *args, **kwargs)
    except TypeError as error:
        raise UsageError(f"framecap.capture: {error}") from None
    given = set(arguments.arguments)
    arguments.apply_defaults()
    slots: list[Any] = [hook.UNBOUND] * (code.co_nlocals + len(code.co_cellvars) + len(code.co_freevars))
    for i, name in enumerate(code.co_varnames[: len(arguments.arguments)]):
        slots[i] = arguments.arguments[name]
    config: Config = config_for("eager", True)
    tx = CaptureTracer(config, frozenset(), tuple(slots))
    tx.unbound = hook.UNBOUND
    tx.fixed = {Slot(i, name) for i, name in enumerate(code.co_varnames) if name not in given}
    frame = SymbolicFrame(tx, code, Namespace(function.__globals__, Globals()), _builtins(), None)
    tx.namespaces[id(function.__globals__)] = frame.namespace
    frame.slots = [Unread(i) for i in range(frame.program.slot_count)]
    free = frame.program.slot_count - len(code.co_freevars)
    from .symbolic.arguments import outside_cell

    for i, cell in enumerate(function.__closure__ or ()):
        frame.slots[free + i] = outside_cell(tx, cell, Slot(free + i, code.co_freevars[i]))
    tx.frame = tx.outer = frame
    before = hook.set_thread_config(None)
    try:
        result = run_whole(tx, frame)
        return to_module(tx, result, type(fn).__name__ if isinstance(fn, nn.Module) else function.__name__, function)
    finally:
        hook.set_thread_config(before)


def underlying(fn: Any) -> tuple[Any, tuple[Any, ...]]:
    """The Python function that a call of ``fn`` runs, and what it is bound to."""
    if isinstance(fn, nn.Module):
        return type(fn).forward, (fn,)
    if inspect.ismethod(fn):
        return fn.__func__, (fn.__self__,)
    wrapped = getattr(fn, "__wrapped__", fn) if isinstance(fn, hook.OptimizedFunction) else fn
    if inspect.isfunction(wrapped):
        return wrapped, ()
    if callable(type(wrapped)) and inspect.isfunction(type(wrapped).__call__):
        return type(wrapped).__call__, (wrapped,)
    raise UsageError(
        f"framecap.capture takes a Python function or an nn.Module, not an object of type {type(fn).__name__}"
    )


def _builtins() -> dict[str, Any]:
    import builtins

    return builtins.__dict__


def run_whole(tx: CaptureTracer, frame: SymbolicFrame) -> Value:
    """Interpret the frame from its first instruction to its return, or raise CaptureError."""
    name = frame.code.co_qualname
    try:
        # The cells of arguments are made by the interpreted prologue; free variables are in place.
        for index in range(frame.program.slot_count):
            if isinstance(frame.slots[index], Unread) and tx.real_slots[index] is hook.UNBOUND:
                frame.slots[index] = None
        while frame.result is None:
            inst = frame.program.instructions[frame.index]
            if inst.opname == "MAKE_CELL" and isinstance(frame.slots[inst.arg or 0], Unread):
                frame.slots[inst.arg or 0] = frame.load_slot(inst.arg or 0)
            frame.step()
    except GraphBreak as graph_break:
        record = make_record(tx, frame, graph_break)
        raise CaptureError(describe_break(record, name)) from None
    except Raised as raised:
        place = frame.place()
        raise CaptureError(
            f"{name} can't be captured: it raises {raised.value.describe()} at {place.filename}:{place.line} in {place.function}"
        ) from None
    return frame.result


def to_module(tx: CaptureTracer, result: Value, class_name: str, function: Any) -> GraphModule:
    """The GraphModule of a finished whole capture."""
    if tx.effects:
        kinds = sorted({effect.kind for effect in tx.effects})
        raise CaptureError(
            f"{function.__qualname__} changes objects outside of the graph ({', '.join(kinds)}), which a graph can't express; "
            "return the new values instead"
        )
    output = structure(tx, result)
    refs = _refs(output)
    built = build_graph(tx, [r for r in refs if isinstance(r, Op)])
    root = {target: item.example for target, item in built.state}
    add_missing_inputs(tx, built, root, refs)
    out = built.graph.output_node
    nodes = dict(zip((id(op) for op in built.outputs), out.args[0], strict=True))

    def resolve(part: Any) -> Any:
        if isinstance(part, Op):
            return nodes[id(part)]
        if isinstance(part, Input):
            return built.input_nodes[part.source]
        if isinstance(part, dict):
            return {k: resolve(v) for k, v in part.items()}
        if type(part) in (tuple, list):
            return type(part)(resolve(p) for p in part)
        return part

    out.args = (resolve(output),)
    return GraphModule(root, built.graph, class_name)


def add_missing_inputs(tx: CaptureTracer, built: BuiltGraph, root: dict[str, Any], refs: list[Any]) -> None:
    """Give the graph every tensor and number among the arguments as an input, in the signature's order, used or not."""
    graph = built.graph
    first = next(iter(graph.nodes))
    names = tx.outer.program.slot_names if tx.outer is not None else ()
    arguments: list[Source] = []
    for index, real in enumerate(tx.real_slots):
        slot = Slot(index, names[index])
        if isinstance(real, torch.Tensor) or (type(real) in (int, float) and slot not in tx.fixed):
            arguments.append(slot)
    with graph.inserting_before(first):
        for source in arguments:
            if source not in built.input_nodes:
                built.input_nodes[source] = graph.placeholder(str(source))
        for ref in refs:
            if isinstance(ref, Input) and ref.source not in built.input_nodes:
                name = str(ref.source).replace(".", "_")
                root[name] = ref.example
                built.input_nodes[ref.source] = graph.get_attr(name)
    for source in reversed(arguments):
        node = built.input_nodes[source]
        head = next(iter(graph.nodes))
        if head is not node:
            head.prepend(node)


def structure(tx: CaptureTracer, value: Value) -> Any:
    """A result as a graph's output: nodes in tuples, lists and dicts."""
    if isinstance(value, (TensorValue, NumberValue)):
        return value.ref
    if isinstance(value, TupleValue):
        return tuple(structure(tx, item) for item in value.items)
    if isinstance(value, ListValue):
        return [structure(tx, item) for item in value.items]
    if isinstance(value, DictValue):
        return {key.value: structure(tx, item) for key, item in value.entries.values() if isinstance(key, Const)}
    if isinstance(value, Const):
        return value.value
    storage = getattr(value, "storage", None)
    if isinstance(storage, DictValue):
        return structure(tx, storage)
    raise CaptureError(f"the result holds {value.describe()}, which a graph can't return")


def _refs(output: Any) -> list[Any]:
    if isinstance(output, (Op, Input)):
        return [output]
    if isinstance(output, dict):
        return [r for item in output.values() for r in _refs(item)]
    if isinstance(output, (tuple, list)):
        return [r for item in output for r in _refs(item)]
    return []
