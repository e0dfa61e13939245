"""Immutable objects that are used as the real object, by the real Python operation (design: concrete first)."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ..errors import UNSUPPORTED_ARGUMENT, UNSUPPORTED_ATTRIBUTE, GraphBreak
from .base import Args, Kwargs, Raised, Value

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region

NUMBERS = (bool, int, float, complex)
LITERALS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
TORCH_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
IMMUTABLE = (*LITERALS, *TORCH_CONSTANTS)
"""Types whose objects are wholly described by their value: a guard on the value is enough."""


def is_immutable(value: Any) -> bool:
    """Whether ``value`` can be compared by value: a literal, a torch constant, or a tuple or frozenset of these."""
    kind = type(value)
    if kind in IMMUTABLE:
        return True
    return kind in (tuple, frozenset) and all(is_immutable(item) for item in value)


class Const(Value):
    """An immutable object. ``value`` is the object itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        text = repr(self.value)
        return text if len(text) < 60 else f"a constant of type {type(self.value).__name__}"

    def getattr(self, tx: Region, name: str) -> Value:
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            raise raised(error) from None
        if is_immutable(found):
            return Const(found)
        if callable(found) and not isinstance(found, type):
            return ConstMethod(self, name)
        if isinstance(found, type):
            from .function import ClassValue

            return ClassValue(found)
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of {self.describe()} isn't modelled")

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        if type(self.value) in LITERALS:
            real_call(setattr, self.value, name, None)
        super().setattr(tx, name, value)

    def truth(self, tx: Region) -> bool:
        return bool(self.value)

    def length(self, tx: Region) -> int:
        return int(real_call(len, self.value))

    def getitem(self, tx: Region, key: Value) -> Value:
        if isinstance(self.value, (str, bytes)):
            real = constant_of(tx, key)
            if real is not UNKNOWN:
                return Const(real_call(operator.getitem, self.value, real))
        if type(self.value) in LITERALS and not isinstance(self.value, (str, bytes)):
            real_call(operator.getitem, self.value, 0)
        self.refuse("subscripting")

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        if type(self.value) in LITERALS:
            real_call(operator.setitem, self.value, 0, 0)
        self.refuse("item assignment")

    def contains(self, tx: Region, item: Value) -> bool:
        if isinstance(self.value, (str, bytes, frozenset)):
            real = constant_of(tx, item)
            if real is not UNKNOWN:
                return bool(real_call(operator.contains, self.value, real))
        self.refuse("a membership test")

    def iterate(self, tx: Region) -> Value:
        from .iterator import SequenceIterator
        from .sequence import TupleValue

        if isinstance(self.value, (str, bytes)):
            return SequenceIterator(TupleValue([Const(item) for item in self.value]), None)
        if isinstance(self.value, frozenset):
            return SequenceIterator(TupleValue([Const(item) for item in self.value]), None)
        real_call(iter, self.value)
        self.refuse("iteration")

    def hash_key(self, tx: Region) -> Any:
        return self.value

    def as_argument(self, tx: Region) -> Any:
        if is_immutable(self.value):
            return self.value
        raise GraphBreak(UNSUPPORTED_ARGUMENT, f"{self.describe()} can't be an argument of a tensor operator")

    def emit(self, emitter: Emitter) -> str:
        return emitter.constant(self.value)


class Opaque(Const):
    """An object that is only passed along, compared by identity, or handed back (an iterator, a lock, a numpy array)."""

    __slots__ = ()

    def describe(self) -> str:
        return Value.describe(self)

    def getattr(self, tx: Region, name: str) -> Value:
        return Value.getattr(self, tx, name)

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        Value.setattr(self, tx, name, value)

    def truth(self, tx: Region) -> bool:
        return Value.truth(self, tx)

    def length(self, tx: Region) -> int:
        return Value.length(self, tx)

    def getitem(self, tx: Region, key: Value) -> Value:
        return Value.getitem(self, tx, key)

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        Value.setitem(self, tx, key, value)

    def contains(self, tx: Region, item: Value) -> bool:
        return Value.contains(self, tx, item)

    def iterate(self, tx: Region) -> Value:
        return Value.iterate(self, tx)

    def hash_key(self, tx: Region) -> Any:
        return Value.hash_key(self, tx)

    def as_argument(self, tx: Region) -> Any:
        return Value.as_argument(self, tx)

    def emit(self, emitter: Emitter) -> str:
        if self.source is None:
            return Value.emit(self, emitter)
        return emitter.input(self.source)


class Record(Opaque):
    """An immutable object whose public attributes are constants: a code object, torch.finfo."""

    __slots__ = ()

    def getattr(self, tx: Region, name: str) -> Value:
        if not name.startswith("_") and hasattr(self.value, name) and not callable(getattr(self.value, name)):
            return from_real(getattr(self.value, name))
        return super().getattr(tx, name)

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        return emitter.object(self.value, type(self.value).__name__)


class ConstMethod(Value):
    """A bound method of a constant, such as ``",".join``."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Const, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return type(getattr(self.owner.value, self.name))

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        if not isinstance(self.owner.value, (str, bytes, int, float, complex, frozenset, *TORCH_CONSTANTS)):
            self.refuse("calling")
        reals = [constant_of(tx, a) for a in args]
        named = {k: constant_of(tx, v) for k, v in kwargs.items()}
        if any(r is UNKNOWN for r in (*reals, *named.values())):
            self.refuse(f"calling .{self.name}() with values that aren't constant")
        result = real_call(getattr(self.owner.value, self.name), *reals, **named)
        return from_real(result)

    def emit(self, emitter: Emitter) -> str:
        return (
            f"{self.owner.emit(emitter)}.{self.name}"
            if not isinstance(self.owner.value, NUMBERS)
            else super().emit(emitter)
        )


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()
"""What `constant_of` returns for a value that isn't a constant."""


def constant_of(tx: Region, value: Value) -> Any:
    """The real object that ``value`` stands for if it is immutable and known, else UNKNOWN.

    Numbers derived from tensors' shapes or passed as arguments are made concrete: a guard on the number is added.
    """
    from .number import NumberValue
    from .sequence import ListValue, SliceValue, TupleValue

    if isinstance(value, Opaque):
        return UNKNOWN
    if isinstance(value, Const):
        return value.value
    if isinstance(value, NumberValue):
        return value.concrete(tx)
    if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size):
        items = [constant_of(tx, item) for item in value.items]
        return UNKNOWN if any(item is UNKNOWN for item in items) else value.cls(items)
    if isinstance(value, SliceValue):
        parts = [constant_of(tx, item) for item in value.parts]
        return UNKNOWN if any(part is UNKNOWN for part in parts) else slice(*parts)
    if isinstance(value, ListValue) and value.cls is list:
        items = [constant_of(tx, item) for item in value.items]
        return UNKNOWN if any(item is UNKNOWN for item in items) else items
    return UNKNOWN


def why_not_constant(tx: Region, value: Value) -> str | None:
    """Why ``value`` isn't a constant, or None if it is."""
    return f"{value.describe()} isn't a constant" if constant_of(tx, value) is UNKNOWN else None


def from_real(value: Any) -> Value:
    """The value of a fresh result of a real, pure operation on constants."""
    from .sequence import ListValue, SliceValue, TupleValue

    if is_immutable(value) and type(value) is not tuple:
        return Const(value)
    if type(value) in (tuple, torch.Size):
        return TupleValue([from_real(item) for item in value], type(value))
    if type(value) is list:
        return ListValue([from_real(item) for item in value])
    if type(value) is slice:
        return SliceValue([from_real(part) for part in (value.start, value.stop, value.step)])
    if type(value) is range:
        from .sequence import RangeValue

        return RangeValue(value)
    if type(value) is dict:
        from .mapping import DictValue

        made = DictValue()
        for key, item in value.items():
            made.entries[key] = (from_real(key), from_real(item))
        return made
    if isinstance(value, type):
        from .function import ClassValue

        return ClassValue(value)
    raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"a result of type {type(value).__name__} isn't modelled")


def raised(error: BaseException) -> Raised:
    """The symbolic counterpart of a real exception of a built-in type with constant arguments."""
    from .exception import ExceptionValue

    arguments: list[Value] = [Const(a) if is_immutable(a) else Opaque(a) for a in error.args]
    return Raised(ExceptionValue(type(error), arguments))


def real_call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a pure built-in for real on constants; an exception becomes one of the interpreted program."""
    try:
        return function(*args, **kwargs)
    except (RecursionError, MemoryError):
        raise
    except Exception as error:
        raise raised(error) from None
