"""Bound methods: of built-in models, and of Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .arity import run_model
from .base import Args, Kwargs, Value

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class BuiltinMethod(Value):
    """A method of a modelled built-in object: ``run(owner, tx, name, args, kwargs)``, or bound already."""

    __slots__ = ("name", "owner", "run")

    def __init__(self, owner: Value, name: str, run: Callable[..., Value]) -> None:
        super().__init__()
        self.owner = owner
        self.name = name
        self.run = run

    def python_type(self) -> type:
        return type([].append)

    def describe(self) -> str:
        return f"the method {self.name} of {self.owner.describe()}"

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        method = getattr(self.owner.python_type(), self.name, None)
        first = () if hasattr(self.run, "__self__") else (self.owner,)

        def model(tx: Region, args: Args, kwargs: Kwargs) -> Value:
            return self.run(*first, tx, self.name, args, kwargs)

        return run_model(method, model, tx, args, kwargs, of_method=True)

    def emit(self, emitter: Emitter) -> str:
        return f"{emitter.value(self.owner)}.{self.name}"


class MethodValue(Value):
    """A Python function bound to an object (or a class)."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.owner = owner

    def python_type(self) -> type:
        return type(BuiltinMethod(self, "", max).call)

    def describe(self) -> str:
        return f"the method {self.function.describe()}"

    def getattr(self, tx: Region, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.getattr(tx, name)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(tx, [self.owner, *args], kwargs)

    def truth(self, tx: Region) -> bool:
        return True

    def hash_key(self, tx: Region) -> Any:
        self.refuse("use as a dict key")

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        import types

        return f"{emitter.object(types.MethodType, 'MethodType')}({emitter.value(self.function)}, {emitter.value(self.owner)})"
