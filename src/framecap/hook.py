"""The frame hook, as the rest of framecap uses it.

In a thread that has a config, a frame that starts runs the rewritten twin of its code (see
bytecode/rewrite.py), once ``on_code`` has made one. An awake point of it tries its variants, those whose
`config` is the thread's; if none matches, ``on_miss`` may supply one, which is tried once. While a callback,
a guard or a region runs, the hook is paused for the thread: what they call runs as it is. Threads without a
config, frames that start while the thread is traced or profiled, class bodies, and code executed with
separate locals run their original code.

What stays visible of the rewriting: ``frame.f_code`` is the twin, and ``f_lasti`` counts in it; names, lines,
columns, locals, ``gi_code`` and the rest are the original's. Calls that the interpreter makes inside itself
without a frame evaluator (``__getitem__`` written in Python, once specialised) aren't seen by the hook.

When a region raises, ``on_error`` says whether the original instructions run instead (True) or which of them raised.
An error that a region raises propagates from the stub, so it is the try range around the *point* that handles
it: a region that isn't pure must not go on into another range with something that may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, TracebackType
from typing import Any

from framecap._hook import (
    UNBOUND,
    OptimizedFunction,
    Point,
    UnboundType,
    Variant,
    code_state,
    forget,
    get_thread_config,
    in_region,
    set_callbacks,
    set_thread_config,
)

OnCode = Callable[[CodeType], CodeType | None]
OnMiss = Callable[
    [Point, tuple[Any, ...], FunctionType, dict[str, Any], dict[str, Any], object], Variant | None
]
OnError = Callable[[Variant, type[BaseException], BaseException, TracebackType | None], int | bool | None]

__all__ = [
    "UNBOUND",
    "OnCode",
    "OnError",
    "OnMiss",
    "OptimizedFunction",
    "Point",
    "UnboundType",
    "Variant",
    "code_state",
    "forget",
    "get_thread_config",
    "in_region",
    "set_callbacks",
    "set_thread_config",
    "thread_config",
]


@contextmanager
def thread_config(config: object) -> Iterator[None]:
    """Within the block, frames that this thread starts have `config`. The frame of the block itself runs
    on."""
    before = set_thread_config(config)
    try:
        yield
    finally:
        set_thread_config(before)
