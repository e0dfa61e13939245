"""framecap: capture PyTorch programs at bytecode level, as graphs with guards, with unchanged results.

See README.md for a tour and ARCHITECTURE.md for how it works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import BackendError, CaptureError, FramecapError, InternalError, UsageError

if TYPE_CHECKING:
    from .api import allow_in_graph, capture, disable, explain, graph_break, optimize, reset
    from .backends import list_backends, register_backend
    from .whole import no_leaves, torch_nn_leaves

_LAZY = {
    **dict.fromkeys(("allow_in_graph", "capture", "disable", "explain", "graph_break", "optimize", "reset"), "api"),
    **dict.fromkeys(("list_backends", "register_backend"), "backends"),
    **dict.fromkeys(("no_leaves", "torch_nn_leaves"), "whole"),
}
"""Public names by module, imported at first use: ``import framecap`` costs next to nothing."""


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


__all__ = [
    "BackendError", "CaptureError", "FramecapError", "InternalError", "UsageError", "allow_in_graph", "capture", "disable",
    "explain", "graph_break", "list_backends", "no_leaves", "optimize", "register_backend", "reset", "torch_nn_leaves",
]  # fmt: skip
