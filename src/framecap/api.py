"""The public functions: optimize, capture, explain, reset, disable, graph_break, allow_in_graph."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from framecap.graph import GraphModule

from . import hook, points
from .backends import Backend, config_for, forget_configs
from .config import Config
from .errors import OF_TENSORS, UsageError
from .models.registry import MODELS
from .models.torch_functions import requested_break
from .modules import optimize_module
from .report.data import Break, FunctionReport, Report
from .symbolic.tracer import EAGER_FUNCTIONS, LEAF_FUNCTIONS
from .whole import LeafPolicy, capture_whole, torch_nn_leaves


class optimize:
    """Run tensor regions of Python code as captured graphs, with unchanged results.

    Three forms: ``with framecap.optimize(): ...`` captures in what the block calls; ``@framecap.optimize`` (or
    ``@framecap.optimize(backend=...)``) decorates a function; ``framecap.optimize(model)`` wraps a function or an
    nn.Module, which stays one: its parameters, state_dict, train/eval and pickling are those of the original.

    fn: a callable, or None for the other forms. backend: "eager" (framecap's own generated code), a callable
    ``(graph_module, example_inputs) -> callable``, or a name of `list_backends`. fullgraph: raise CaptureError at
    the first graph break instead of running it natively.

    Raises UsageError for an fn that can't be called or an unknown backend, BackendError when a backend fails.
    """

    def __new__(cls, fn: Any = None, *, backend: str | Backend = "eager", fullgraph: bool = False) -> Any:
        config = config_for(backend, fullgraph)
        if fn is None:
            self = super().__new__(cls)
            self._config = config
            self._options = {"backend": backend, "fullgraph": fullgraph}
            self._before = []
            return self
        return _wrap(fn, config, {"backend": backend, "fullgraph": fullgraph})

    _config: Config
    _options: dict[str, Any]
    _before: list[Any]

    def __call__(self, fn: Any) -> Any:
        return _wrap(fn, self._config, self._options)

    def __enter__(self) -> optimize:
        self._before.append(hook.set_thread_config(self._config))
        return self

    def __exit__(self, *error: object) -> None:
        hook.set_thread_config(self._before.pop())


def _wrap(fn: Any, config: Config, options: dict[str, Any]) -> Any:
    if isinstance(fn, nn.Module):
        return optimize_module(fn, config, options)
    if isinstance(fn, type) or not callable(fn):
        what = f"the class {fn.__name__}" if isinstance(fn, type) else f"an object of type {type(fn).__name__}"
        raise UsageError(f"framecap.optimize takes a function or an nn.Module, not {what}")
    return hook.OptimizedFunction(fn, config)


def disable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark ``fn`` to run natively: it is neither captured nor inlined, and nothing that it calls is captured.

    Works as a decorator. Raises UsageError if ``fn`` can't be called.
    """
    if not callable(fn):
        raise UsageError(f"framecap.disable takes a function, not an object of type {type(fn).__name__}")

    @functools.wraps(fn)
    def natively(*args: Any, **kwargs: Any) -> Any:
        with hook.thread_config(None):
            return fn(*args, **kwargs)

    EAGER_FUNCTIONS.add(natively)
    if isinstance(fn, types.FunctionType):
        EAGER_FUNCTIONS.add(fn)
    return natively


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let calls of ``fn`` be one graph node: it must compute tensors from tensors and have no other effect.

    Returns ``fn``. Raises UsageError if it can't be called.
    """
    if not callable(fn):
        raise UsageError(f"framecap.allow_in_graph takes a function, not an object of type {type(fn).__name__}")
    LEAF_FUNCTIONS.add(fn)
    return fn


def graph_break(message: str = "") -> None:
    """End the graph here. Does nothing when it runs; ``message`` appears in the report."""


MODELS[graph_break] = requested_break


def reset() -> None:
    """Forget all captured regions and everything learned; code that runs under optimize is captured afresh."""
    points.forget_all()
    forget_configs()


def explain(fn: Callable[..., Any]) -> Callable[..., Report]:
    """``explain(fn)(*args)`` runs ``fn(*args)`` under a fresh optimize and returns the Report of that call.

    Raises what ``fn`` raises, and UsageError if it can't be called.
    """
    if not callable(fn):
        raise UsageError(
            f"framecap.explain takes a function or an nn.Module, not an object of type {type(fn).__name__}"
        )

    def explained(*args: Any, **kwargs: Any) -> Report:
        reset()
        with optimize():
            fn(*args, **kwargs)
        return collect_report()

    return explained


def collect_report() -> Report:
    """What was captured and where graphs broke since the last `reset`, by function.

    A break is listed with the function in which it stands, not with those that call it. What only kept a function
    without tensor code from being captured is left out.
    """
    states = list(points.code_states())
    times: dict[int, int] = {}
    for state in states:
        for point in state.points.values():
            for variant in point.variants:
                record = variant.data.record
                if record is not None:
                    times[id(record)] = times.get(id(record), 0) + variant.hits
    own = {(r.place, r.kind.code) for s in states for r in s.breaks.values() if r.caller is None}
    reached = {(r.place, r.kind.code) for s in states if s.graphs for r in s.breaks.values()}
    functions = []
    for state in states:
        breaks = []
        for record in state.breaks.values():
            key = (record.place, record.kind.code)
            if record.caller is not None and key in own:
                continue
            if state.graphs or key in reached or record.kind in OF_TENSORS:
                breaks.append(_as_break(record, times.get(id(record), 0)))
        if state.graphs or breaks:
            report = FunctionReport(
                state.name,
                state.filename,
                state.line,
                state.graphs,
                state.operators,
                tuple(breaks),
                tuple(state.recompiles),
            )
            functions.append(report)
    return Report(tuple(functions))


def _as_break(record: Any, times: int) -> Break:
    place = record.place
    return Break(
        record.kind.code, record.detail, record.hint, place.filename, place.function, place.line, place.end_line,
        place.col, place.end_col, max(times, 1),
    )  # fmt: skip


def capture(
    fn: Any,
    /,
    *args: Any,
    is_leaf: LeafPolicy = torch_nn_leaves,
    leaf_functions: Iterable[Callable[..., Any]] = (),
    constants: Mapping[str, Any] = MappingProxyType({}),
    **kwargs: Any,
) -> GraphModule:
    """One whole graph of ``fn(*args, **kwargs)`` as a GraphModule; nothing of ``fn`` is run.

    fn: a function, bound method, functools.partial or nn.Module. Tensors and numbers among the arguments, also inside
    tuples, lists, dicts and objects, are the graph's inputs: it is called as ``fn`` is. Left out of its signature are
    arguments that are constants of it: those of other types, defaults, and numbers that Python has looked at, say as the
    count of a loop. Without any arguments, those that ``fn`` needs are taken for tensors of which nothing is known;
    where the program asks for more, a shape say, it can't be captured so. Parameters, buffers and modules keep their paths.

    is_leaf: ``(module, path) -> bool``, whether a call of a module is one node. By default the modules of torch.nn are;
    `no_leaves` goes down to functions of tensors. A module of your own that is a leaf must have no other effects.
    leaf_functions: Python functions that become one node each, as with `allow_in_graph`. constants: arguments of ``fn``
    that are constants of the graph, tensors and numbers too. To pass arguments that have one of these three names, wrap
    ``fn``.

    What the program has read of its arguments (that a size is greater than 1, that a list has 3 items) is told as
    conditions in ``meta["assumptions"]`` of the result: the graph does what the program does where they hold.

    Raises CaptureError where the program has a graph break or changes objects outside, with the line, the reason and what
    to do, and UsageError if ``fn`` can't be captured at all or doesn't take the arguments.
    """
    if not callable(fn):
        raise UsageError(
            f"framecap.capture takes a function or an nn.Module, not an object of type {type(fn).__name__}"
        )
    return capture_whole(fn, args, kwargs, is_leaf, leaf_functions, constants)


points.install()
