"""How the values and functions of a graph are written in generated code."""

from __future__ import annotations

import builtins
import enum
import math
import operator
import sys
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from .errors import GraphError
from .names import RESERVED, Names, is_plain
from .node import Node, is_named_tuple
from .serialize import operator_path

INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.lshift: "<<", operator.rshift: ">>",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lt: "<", operator.le: "<=",
    operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">=", operator.is_: "is",
    operator.is_not: "is not",
}  # fmt: skip
PREFIX = {operator.neg: "-", operator.pos: "+", operator.invert: "~", operator.not_: "not "}
INPLACE = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
    operator.ifloordiv: "//=", operator.imod: "%=", operator.ipow: "**=", operator.imatmul: "@=",
    operator.ilshift: "<<=", operator.irshift: ">>=", operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=",
}  # fmt: skip
# By identity: targets may be objects that have no hash.
INFIX_BY_ID = {id(function): sign for function, sign in INFIX.items()}
PREFIX_BY_ID = {id(function): sign for function, sign in PREFIX.items()}
INPLACE_BY_ID = {id(function): sign for function, sign in INPLACE.items()}

DOT = "\x1f"
"""Stands in unfinished code for a dot inside the name of one object; no literal or comment can hold it.

A reader sees ``torch.add``; the function that runs has ``torch_add``, a name of the same length, so that columns in
tracebacks fit, as a global that is bound to the object itself: exact when torch.add is replaced later, and faster.
"""

_FUNCTION_TYPES = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, type)
_CONSTANT_TYPES = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_HOMES = (
    ("torch.", vars(torch)),
    ("torch.nn.functional.", vars(torch.nn.functional)),
    ("operator.", vars(operator)),
    ("math.", vars(math)),
    ("torch.Tensor.", {**vars(torch._C.TensorBase), **vars(torch.Tensor)}),
)
_PREFIXED = {"linalg_": "torch.linalg", "fft_": "torch.fft", "special_": "torch.special"}
_BUILTINS = vars(builtins)
_DECIMAL_BITS = 10_000  # longer integers are written in hexadecimal: CPython limits decimal digits (to 4,300)


class Renderer:
    """Expressions for the values of one function, and the globals that they need."""

    __slots__ = ("_by_object", "_devices", "globals", "local", "names", "shadowed")

    def __init__(self) -> None:
        self.names = Names(RESERVED)
        self.globals: dict[str, Any] = {}
        self.local: dict[Node, str] = {}
        self.shadowed: set[str] = set()  # builtins that parameters have the names of
        self._by_object: dict[int, str] = {}
        self._devices: dict[torch.device, torch.device] = {}  # equal ones are one, or copies' names would differ

    def object(self, value: Any, hint: str) -> str:
        """A global that is this very object."""
        known = self._by_object.get(id(value))
        if known is None:
            known = self._by_object[id(value)] = self.names.take(hint)
            self.globals[known] = value
        return known

    def path(self, value: Any, path: str) -> str:
        """An object under the dotted path by which users know it."""
        known = self._by_object.get(id(value))
        if known is not None:
            return known
        flat = path.replace(".", "_")
        if flat in self.names:
            return self.object(value, flat)
        self.names.claim(flat)
        self.globals[flat] = value
        root = path.partition(".")[0]
        self.globals[root] = sys.modules[root]  # for debuggers, and whoever executes the source itself
        text = self._by_object[id(value)] = path.replace(".", DOT)
        return text

    def function(self, function: Any) -> str:
        """A callable as an expression."""
        known = self._by_object.get(id(function))
        if known is not None:
            return known
        path = public_path(function)
        if path is not None:
            return self.path(function, path)
        name = getattr(function, "__name__", None)
        if not isinstance(name, str):
            name = type(function).__name__
        elif _BUILTINS.get(name) is function and name not in self.shadowed:
            self.globals[name] = function
            self._by_object[id(function)] = name
            return name
        return self.object(function, name)

    def value(self, value: Any) -> str:
        """An argument as an expression."""
        kind = type(value)
        if kind is Node:
            try:
                return self.local[value]
            except KeyError:
                raise GraphError(f"{value.name!r} is used before it is defined") from None
        render = _RENDERERS.get(kind)
        return render(self, value) if render is not None else self.other(value)

    def other(self, value: Any) -> str:
        """An argument of a type without literals."""
        kind = type(value)
        if is_named_tuple(kind):
            return self.named_tuple(value)
        if isinstance(value, _FUNCTION_TYPES):
            return self.function(value)
        if isinstance(value, enum.Enum):
            return self.object(value, f"{kind.__name__}_{value.name}")
        if isinstance(value, _CONSTANT_TYPES):
            text = str(value)
            if vars(torch).get(text.removeprefix("torch.")) is value:
                return self.path(value, text)
        if kind is torch.device:
            return self.object(self._devices.setdefault(value, value), f"device_{value}")
        path = operator_path(value)
        if path is not None:
            return self.path(value, path)
        return self.object(value, kind.__name__.lower())

    def named_tuple(self, value: Any) -> str:
        kind = type(value)
        items = ", ".join(map(self.value, value))
        name = self.object(kind, kind.__name__)
        # Classes with a __new__ of their own may do anything in it; the value is there already.
        if getattr(kind.__new__, "__module__", "").startswith("namedtuple_"):
            return f"{name}({items})"
        return f"{self.function(tuple)}.__new__({name}, ({items}{',' if len(value) == 1 else ''}))"

    def operand(self, value: Any) -> str:
        """An argument as part of an expression: of an operator or an attribute."""
        if type(value) is Node:
            return self.value(value)
        text = self.value(value)
        return f"({text})" if text[0] == "-" else text

    def owner(self, value: Any) -> str:
        """An argument whose attribute is taken."""
        text = self.value(value)
        return text if type(value) is Node else f"({text})"

    def index(self, value: Any) -> str:
        """What stands between brackets."""
        if type(value) is slice:
            return self.slice(value)
        if type(value) is tuple and value:
            items = [self.slice(item) if type(item) is slice else self.value(item) for item in value]
            return f"{', '.join(items)}{',' if len(items) == 1 else ''}"
        return self.value(value)

    def slice(self, value: slice) -> str:
        start, stop, step = ("" if p is None else self.value(p) for p in (value.start, value.stop, value.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of a call. Names that can't be written as keywords go, with all that follow, into a ``**{}``."""
        parts = list(map(self.value, args))
        rest: list[str] = []
        for key, value in kwargs.items():
            if rest or not is_plain(key):
                rest.append(f"{key!r}: {self.value(value)}")
            else:
                parts.append(f"{key}={self.value(value)}")
        if rest:
            parts.append(f"**{{{', '.join(rest)}}}")
        return ", ".join(parts)


def public_path(function: Any) -> str | None:
    """The dotted path under which users know a function or class of torch, operator or math; None for others."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        return operator_path(function)
    if name.isidentifier():
        for prefix, home in _HOMES:
            if home.get(name) is function:
                return prefix + name
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or not module.startswith("torch"):
        return None
    for start, path in _PREFIXED.items():
        if name.startswith(start) and vars(sys.modules[path]).get(name.removeprefix(start)) is function:
            return f"{path}.{name.removeprefix(start)}"
    if "._" not in module and name.isidentifier() and vars(sys.modules.get(module, torch)).get(name) is function:
        return f"{module}.{name}"
    return operator_path(function)


# Literals, by exact type


def _integer(_: Renderer, value: int) -> str:
    return repr(value) if value.bit_length() < _DECIMAL_BITS else hex(value)


def _float(renderer: Renderer, value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    # As an object: a NaN has a sign and a payload, and is found in containers by identity.
    name = "nan" if math.isnan(value) else "inf" if value > 0 else "minus_inf"
    known = renderer.globals.get(name)
    if known is None and name not in renderer.shadowed:
        renderer.globals[name] = known = value
    return name if known is value or known == value else renderer.object(value, name)


def _complex(renderer: Renderer, value: complex) -> str:
    # repr's form loses the sign of zeros.
    return f"{renderer.function(complex)}({_float(renderer, value.real)}, {_float(renderer, value.imag)})"


def _tuple(renderer: Renderer, value: tuple[Any, ...]) -> str:
    return f"({', '.join(map(renderer.value, value))}{',' if len(value) == 1 else ''})"


def _list(renderer: Renderer, value: list[Any]) -> str:
    return f"[{', '.join(map(renderer.value, value))}]"


def _dict(renderer: Renderer, value: dict[Any, Any]) -> str:
    text = renderer.value
    return "{" + ", ".join([f"{text(key)}: {text(item)}" for key, item in value.items()]) + "}"


def _slice(renderer: Renderer, value: slice) -> str:
    parts = ", ".join(map(renderer.value, (value.start, value.stop, value.step)))
    return f"{renderer.function(slice)}({parts})"


def _range(renderer: Renderer, value: range) -> str:
    parts = ", ".join(map(renderer.value, (value.start, value.stop, value.step)))
    return f"{renderer.function(range)}({parts})"


def _size(renderer: Renderer, value: torch.Size) -> str:
    return f"{renderer.path(torch.Size, 'torch.Size')}({_tuple(renderer, tuple(value))})"


_RENDERERS: dict[type, Any] = {
    int: _integer,
    float: _float,
    complex: _complex,
    bool: lambda _, value: repr(value),
    str: lambda _, value: repr(value),
    bytes: lambda _, value: repr(value),
    type(None): lambda _, value: "None",
    type(...): lambda _, value: "...",
    tuple: _tuple,
    list: _list,
    dict: _dict,
    slice: _slice,
    range: _range,
    torch.Size: _size,
}
