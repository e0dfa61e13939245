"""Backends by name: "eager" is framecap's own generated code; others are registered, or known to torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .config import Config
from .errors import UsageError

Backend = Callable[..., Any]
_registered: dict[str, Backend] = {}


SPECIALIZES = ("shape", "stride", "dtype", "device", "requires_grad")
"""What a backend may declare, in an attribute ``specializes``, that it fixes of every input: it is guarded then."""


def register_backend(name: str, backend: Backend) -> None:
    """Make ``backend(graph_module, example_inputs) -> callable`` known as ``name``.

    Raises UsageError if the name isn't a string, is "eager", or the backend can't be called.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a backend's name must be a string that isn't empty, not {name!r}")
    if name == "eager":
        raise UsageError('the name "eager" belongs to framecap\'s own backend; choose another one')
    if not callable(backend):
        raise UsageError(
            f"backend {name!r} must be a callable of a graph module and example inputs, not {type(backend).__name__}"
        )
    _registered[name] = backend


def list_backends() -> list[str]:
    """Names that ``optimize(backend=...)`` takes: our own, the registered ones, and torch.compile's."""
    return sorted({"eager", *_registered, *_torch_names()})


def _torch_names() -> list[str]:
    """torch.compile's registry. Importing it is slow, so it is asked only for names we don't know."""
    try:
        import torch._dynamo as registry
    except ImportError:
        return []
    return [str(name) for name in registry.list_backends(exclude_tags=())]


def resolve(backend: str | Backend) -> tuple[str, Backend | None]:
    """The name and callable of a backend; (\"eager\", None) for our own. Raises UsageError for an unknown one."""
    if not isinstance(backend, str):
        if not callable(backend):
            raise UsageError(f"backend must be a name or a callable, not {type(backend).__name__}")
        return getattr(backend, "__name__", type(backend).__name__), backend
    if backend == "eager":
        return "eager", None
    if backend in _registered:
        return backend, _registered[backend]
    if backend in _torch_names():
        return backend, _torch_backend(backend)
    known = ", ".join(list_backends())
    raise UsageError(f"there is no backend {backend!r}; known are {known}")


def _torch_backend(name: str) -> Backend:
    """A backend of torch.compile; it gets the graph as a torch.fx.GraphModule."""
    from torch._dynamo.backends.registry import lookup_backend

    compiler = lookup_backend(name)

    def compile_with(module: Any, examples: list[Any]) -> Any:
        from framecap.graph.interop import to_fx

        return compiler(to_fx(module), examples)

    compile_with.__name__ = name
    compile_with.specializes = SPECIALIZES  # type: ignore[attr-defined]
    return compile_with


_configs: dict[tuple[Any, bool], Config] = {}


def config_for(backend: str | Backend, fullgraph: bool) -> Config:
    """One Config for equal requests, so that they share variants. Raises UsageError as `resolve` does."""
    name, function = resolve(backend)
    key = (function if function is not None else name, fullgraph)
    try:
        known = _configs.get(key)
    except TypeError:
        return Config(name, function, fullgraph)
    if known is None:
        known = _configs[key] = Config(name, function, fullgraph)
    return known


def forget_configs() -> None:
    """Let go of the backends of earlier requests."""
    _configs.clear()
