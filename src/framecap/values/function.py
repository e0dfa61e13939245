"""What can be called: Python functions (real, or made in the region), classes, built-ins, modules' namespaces, cells."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from framecap.guards import AbsentKeyGuard, DictOf, IsGuard, Item

from ..errors import UNKNOWN_CALL, UNSUPPORTED_ATTRIBUTE, GraphBreak
from ..policy import is_installed
from .base import Args, Kwargs, Raised, Value
from .constant import Const
from .exception import ExceptionValue

if TYPE_CHECKING:
    from framecap.guards import Source

    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: classes without it can't be changed, so what is found on them needs no guard."""


class RealCallable(Value):
    """Shared by real objects that are compared by identity: functions, classes, built-ins, modules."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        if not isinstance(self, (FunctionConst, ClassValue)) and type(self.value).__flags__ & HEAP_TYPE:
            return f"an object of type {type(self.value).__name__}"  # its attributes may be computed by the program
        name = getattr(self.value, "__qualname__", getattr(self.value, "__name__", type(self.value).__name__))
        module = getattr(self.value, "__module__", None)
        return f"{module}.{name}" if module and module not in ("builtins", "__main__") else str(name)

    def pin(self, tx: Region) -> None:
        """Guard the object's identity."""
        if self.source is not None:
            tx.guard(IsGuard(self.source, self.value, where=tx.where))

    def truth(self, tx: Region) -> bool:
        return True

    def hash_key(self, tx: Region) -> Any:
        self.pin(tx)
        return self.value

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        return emitter.object(self.value, getattr(self.value, "__name__", "object"))


class FunctionConst(RealCallable):
    """A real Python function. Inlined by its code; what else it is made of is guarded where it is read."""

    __slots__ = ()

    def getattr(self, tx: Region, name: str) -> Value:
        from framecap.guards import Get

        function = self.value
        if self.source is not None and name in (
            "__defaults__",
            "__kwdefaults__",
            "__globals__",
            "__closure__",
            "__code__",
        ):
            return tx.wrap(getattr(function, name), Get(self.source, name))
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            self.pin(tx)
            return Const(getattr(function, name))
        if name == "__wrapped__" or name in function.__dict__:
            self.pin(tx)
            if name not in function.__dict__:
                raise Raised(ExceptionValue(AttributeError, [Const(f"'function' object has no attribute {name!r}")]))
            if self.source is None:
                return super().getattr(tx, name)
            return tx.wrap(function.__dict__[name], Item(DictOf(self.source), name))
        if not hasattr(function, name):
            self.pin(tx)
            if self.source is not None:
                tx.guard(AbsentKeyGuard(DictOf(self.source), name, where=tx.where))
            raise Raised(ExceptionValue(AttributeError, [Const(f"'function' object has no attribute {name!r}")]))
        return super().getattr(tx, name)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return tx.call_function(self, args, kwargs)


class BuiltinValue(RealCallable):
    """A function or descriptor written in C, or any other real callable: called through the tables of models."""

    __slots__ = ()

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            self.pin(tx)
            return Const(getattr(self.value, name, None))
        return super().getattr(tx, name)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return tx.call_builtin(self, args, kwargs)


class ClassValue(RealCallable):
    """A class."""

    __slots__ = ()

    @property
    def cls(self) -> type:
        assert isinstance(self.value, type)
        return self.value

    def describe(self) -> str:
        return f"class {super().describe()}"

    def getattr(self, tx: Region, name: str) -> Value:
        from .lookup import class_object_getattr

        return class_object_getattr(tx, self, name)

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"setting attribute {name!r} of {self.describe()} runs natively")

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return tx.instantiate(self, args, kwargs)

    def getitem(self, tx: Region, key: Value) -> Value:
        import enum

        from .constant import UNKNOWN, constant_of

        if isinstance(self.value, enum.EnumMeta):
            real = constant_of(tx, key)
            if real is not UNKNOWN and real in self.value.__members__:
                return tx.enum_member(self.value.__members__[real])
        self.refuse("subscripting")

    def iterate(self, tx: Region) -> Value:
        import enum

        from .sequence import TupleValue

        if isinstance(self.value, enum.EnumMeta):
            members: list[Any] = list(self.value)
            return TupleValue([tx.enum_member(member) for member in members]).iterate(tx)
        self.refuse("iteration")


class ModuleNamespace(RealCallable):
    """A Python module (a namespace, not an nn.Module): attributes are items of its dict."""

    __slots__ = ()

    def getattr(self, tx: Region, name: str) -> Value:
        from .lookup import class_dict_lookup

        reader = class_dict_lookup(type(self.value), "__getattribute__")
        if reader is not types.ModuleType.__getattribute__:
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"the class of {self.describe()} has a __getattribute__ of its own")
        space = self.value.__dict__
        overlay = tx.namespace_of(space, DictOf(self.source) if self.source is not None else None)
        found = overlay.find(tx, name)
        if found is not None:
            return found
        if name == "__dict__":
            return super().getattr(tx, name)
        if "__getattr__" in space or type(self.value) is not types.ModuleType:
            if not is_installed(space.get("__file__")):
                raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of {self.describe()} is computed by its code")
            try:
                real = getattr(self.value, name)
            except AttributeError:
                real = None
            if real is None or self.source is None:
                return super().getattr(tx, name)
            from framecap.guards import Get

            return tx.wrap(real, Get(self.source, name))
        if self.source is not None:
            tx.guard(AbsentKeyGuard(DictOf(self.source), name, where=tx.where))
        message = f"module {self.value.__dict__.get('__name__', '?')!r} has no attribute {name!r}"
        raise Raised(ExceptionValue(AttributeError, [Const(message)]))

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        if type(self.value) is not types.ModuleType or self.source is None:
            super().setattr(tx, name, value)
            return
        tx.namespace_of(self.value.__dict__, DictOf(self.source)).store(tx, name, value)


class CellValue(Value):
    """A closure cell; ``contents`` is None while empty. A real cell (``source``) is read and written at the exit."""

    __slots__ = ("contents", "loaded", "real", "written")

    def __init__(
        self, contents: Value | None = None, real: types.CellType | None = None, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.contents = contents
        self.real = real
        self.loaded = real is None
        self.written = False

    def python_type(self) -> type:
        return types.CellType

    def load(self, tx: Region) -> Value | None:
        """The contents, or None if the cell is empty."""
        from framecap.guards import CellOf, UnboundGuard

        if self.loaded:
            return self.contents
        assert self.real is not None and self.source is not None
        try:
            real = self.real.cell_contents
        except ValueError:
            tx.guard(UnboundGuard(CellOf(self.source), where=tx.where))
            return None
        return tx.wrap(real, CellOf(self.source))

    def store(self, tx: Region, value: Value | None) -> None:
        before = (self.contents, self.loaded, self.written)

        def undo() -> None:
            self.contents, self.loaded, self.written = before

        tx.undo_later(undo)
        self.contents, self.loaded, self.written = value, True, True
        if self.source is not None:
            tx.record("cell", self, value)

    def getattr(self, tx: Region, name: str) -> Value:
        if name == "cell_contents" and (found := self.load(tx)) is not None:
            return found
        return super().getattr(tx, name)

    def emit(self, emitter: Emitter) -> str:
        if self.source is not None:
            return emitter.input(self.source)
        cell = emitter.object(types.CellType, "CellType")
        return emitter.container(self, f"{cell}()", lambda name: self._fill(emitter, name))

    def _fill(self, emitter: Emitter, name: str) -> None:
        if self.contents is not None:
            emitter.line(f"{name}.cell_contents = {emitter.value(self.contents)}")


class ClosureValue(Value):
    """A function made in the region by a def, lambda or comprehension."""

    __slots__ = ("annotations", "attrs", "cells", "code", "defaults", "globals", "kwdefaults", "name", "qualname")

    def __init__(
        self, code: types.CodeType, globals_: Any, cells: list[CellValue], defaults: list[Value], kwdefaults: Kwargs
    ) -> None:
        super().__init__()
        self.code = code
        self.globals = globals_
        self.cells = cells
        self.defaults = defaults
        self.kwdefaults = kwdefaults
        self.annotations: Value | None = None
        self.attrs: dict[str, Value] = {}
        self.name = code.co_name
        self.qualname = code.co_qualname

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return self.qualname

    def truth(self, tx: Region) -> bool:
        return True

    def getattr(self, tx: Region, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        if name == "__name__":
            return Const(self.name)
        if name == "__qualname__":
            return Const(self.qualname)
        if name == "__module__":
            found = self.globals.find(tx, "__name__")
            return found if found is not None else Const(None)
        if not hasattr(FUNCTION_SAMPLE, name):
            raise Raised(ExceptionValue(AttributeError, [Const(f"'function' object has no attribute {name!r}")]))
        return super().getattr(tx, name)

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        before = self.attrs

        def undo() -> None:
            self.attrs = before

        if name.startswith("__") and name not in ("__wrapped__",):
            super().setattr(tx, name, value)
        tx.undo_later(undo)
        self.attrs = {**before, name: value}

    def hash_key(self, tx: Region) -> Any:
        return self

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return tx.call_closure(self, args, kwargs)

    def emit(self, emitter: Emitter) -> str:
        function = emitter.object(types.FunctionType, "FunctionType")
        code = emitter.object(self.code, "code")
        space = emitter.namespace(self.globals)
        cells = f"({', '.join(emitter.value(c) for c in self.cells)},)" if self.cells else "None"
        if (known := emitter.known(self)) is not None:
            return known  # a cell of its own holds the function: it was made while the cell was filled
        name = emitter.statement(f"{function}({code}, {space}, {self.code.co_name!r}, None, {cells})", self)
        if self.defaults:
            emitter.line(f"{name}.__defaults__ = ({', '.join(emitter.value(d) for d in self.defaults)},)")
        if self.kwdefaults:
            inner = ", ".join(f"{k!r}: {emitter.value(v)}" for k, v in self.kwdefaults.items())
            emitter.line(f"{name}.__kwdefaults__ = {{{inner}}}")
        if self.annotations is not None:
            emitter.line(f"{name}.__annotations__ = {emitter.value(self.annotations)}")
        for key, item in self.attrs.items():
            emitter.line(f"{name}.{key} = {emitter.value(item)}")
        return name


def FUNCTION_SAMPLE() -> None:
    """Stands for any function when its built-in attributes are asked for."""


class PropertyLike(RealCallable):
    """A descriptor object itself (property, classmethod, staticmethod) met as a value."""

    __slots__ = ()

    def getattr(self, tx: Region, name: str) -> Value:
        if self.source is not None and isinstance(self.value, property) and name in ("fget", "fset", "fdel"):
            from framecap.guards import Get

            return tx.wrap(getattr(self.value, name), Get(self.source, name))
        return super().getattr(tx, name)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        raise GraphBreak(UNKNOWN_CALL, f"{self.describe()} is called")


__all__ = [
    "BuiltinValue", "CellValue", "ClassValue", "ClosureValue", "FunctionConst", "ModuleNamespace", "PropertyLike", "RealCallable",
]  # fmt: skip
