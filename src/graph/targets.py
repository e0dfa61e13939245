"""Functions and classes by name, for files: what may be named at all, and how it is found again.

A file may name operators of torch (functions that torch.overrides knows, those of its C library, operators of
torch.ops), a few functions of Python, and the classes of torch.nn. All else has to be registered under a name of its own
by the program that saves and by the one that loads.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from .errors import GraphError
from .quantized import QuantizedLinear
from .serialize import operator_path
from .sizes import broadcast_size

_OPERATORS = ("aten", "prims", "quantized", "mkldnn", "onednn")
"""Namespaces of torch.ops."""
_BUILTINS = frozenset(
    """abs bool complex dict divmod float getattr int len list max min pow range round slice sorted str sum tuple""".split()
)
_NEVER = frozenset(["from_file", "attrgetter", "call", "itemgetter", "methodcaller"])
"""They open files, or call what they are given."""
_OWN = {
    "torch.Size": torch.Size,
    "torch.tensor": torch.tensor,
    "torch._C._set_grad_enabled": torch._C._set_grad_enabled,
    "framecap.graph.quantized.QuantizedLinear": QuantizedLinear,
    "framecap.graph.sizes.broadcast_size": broadcast_size,
}
_HOMES = (
    "torch.nn.functional", "torch", "torch.Tensor", "torch._C._nn", "torch.linalg", "torch.fft", "torch.special", "torch.nested",
)  # fmt: skip
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)
_registered: dict[str, Any] = {}


def register_target(name: str, target: Callable[..., Any]) -> None:
    """Let files name a function or a class of modules of your own: ``name`` stands for it in `save` and in `load`.

    Raises GraphError if the name stands for something else.
    """
    if _registered.setdefault(name, target) is not target:
        raise GraphError(f"{name!r} is registered for another object: {_registered[name]!r}")


def path_of(target: Any) -> str:
    """The name of a function or class in files. Raises GraphError if it has none."""
    for name, own in _registered.items():
        if own is target:
            return f"registered:{name}"
    path = operator_path(target)
    candidates = [path] if path is not None else [name for name, own in _OWN.items() if own is target]
    short = getattr(target, "__name__", None)
    if isinstance(short, str):
        module = getattr(target, "__module__", None)
        homes = (*_HOMES, "operator", "math", "builtins", *([module] if isinstance(module, str) else []))
        candidates += [f"{home}.{short}" for home in homes]
    for candidate in candidates:
        try:
            if find_target(candidate) is target:
                return candidate
        except GraphError:
            continue
    shown = getattr(target, "__qualname__", type(target).__name__)
    raise GraphError(
        f"{shown} can't be named in a file: it is no operator of torch; give it a name with framecap.graph.register_target"
    )


def find_target(path: str) -> Any:
    """The function or class that a file names. Raises GraphError if there is none, or if files may not name it."""
    if path.startswith("registered:"):
        name = path.removeprefix("registered:")
        if name not in _registered:
            raise GraphError(f"the file names {name!r}, which isn't registered here: call framecap.graph.register_target first")
        return _registered[name]
    if path in _OWN:
        return _OWN[path]
    first, *rest = path.split(".")
    home = {"operator": operator, "_operator": operator, "math": math}.get(first)
    if home is not None and len(rest) == 1 and not rest[0].startswith("_") and rest[0] not in _NEVER:
        found = getattr(home, rest[0], None)
        if callable(found):
            return found
    if first == "builtins" and len(rest) == 1 and rest[0] in _BUILTINS:
        return getattr(sys.modules["builtins"], rest[0])
    found = _in_torch(rest) if first == "torch" and rest else None
    if found is None:
        raise GraphError(f"the file names {path!r}, which isn't an operator of this torch or isn't allowed in files")
    return found


def _in_torch(parts: list[str]) -> Any:
    """What is at this path below torch, if it is an operator or a class of torch.nn; else None."""
    if parts[0] == "ops" and (len(parts) < 3 or parts[1] not in _OPERATORS):
        return None
    value: Any = torch
    for part in parts:
        value = getattr(value, part, None)
    if parts[0] == "ops":
        return value if operator_path(value) is not None else None
    if isinstance(value, type):
        return value if issubclass(value, nn.Module) and value.__module__.startswith("torch.nn.modules.") else None
    return value if _is_operator(value) and parts[-1] not in _NEVER else None


def _is_operator(value: Any) -> bool:
    try:
        if value in _overridable():
            return True
    except TypeError:
        return False
    name = getattr(value, "__name__", "")
    return any(getattr(home, name, None) is value for home in (torch._C._VariableFunctions, torch._C._nn))


@lru_cache(maxsize=1)
def _overridable() -> frozenset[Any]:
    from torch.overrides import get_overridable_functions

    return frozenset(f for functions in get_overridable_functions().values() for f in functions if f.__hash__ is not None)


def is_allowed_method(name: str) -> bool:
    """Whether a file may call a method of this name: those of tensors, private ones excepted."""
    method = getattr(torch.Tensor, name, None)
    operators = name.startswith("__") and name.endswith("__") and name in operator.__dict__
    return callable(method) and (operators or not name.startswith("_"))


def constant_name(value: Any) -> str | None:
    """The name in torch of a type, layout or memory format; None for all else."""
    return str(value).removeprefix("torch.") if isinstance(value, _CONSTANTS) else None


def find_constant(name: str) -> Any:
    """The type, layout or memory format of this name in torch. Raises GraphError."""
    found = getattr(torch, name, None)
    if not isinstance(found, _CONSTANTS):
        raise GraphError(f"torch.{name} is no type, layout or memory format")
    return found
