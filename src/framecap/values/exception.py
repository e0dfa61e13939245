"""Exceptions raised inside a region. They live and die there: one that must leave it is raised natively instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Value

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region


class ExceptionValue(Value):
    """An exception of class ``cls``; ``attrs`` holds what the program set on it."""

    __slots__ = ("arguments", "attrs", "cls", "offset")

    def __init__(self, cls: type[BaseException], arguments: list[Value], offset: int | None = None) -> None:
        super().__init__()
        self.cls = cls
        self.arguments = arguments
        self.attrs: dict[str, Value] = {}
        self.offset = offset

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        from .constant import Const

        shown = ", ".join(str(a.value) for a in self.arguments if isinstance(a, Const))
        return f"{self.cls.__name__}({shown})"

    def getattr(self, tx: Region, name: str) -> Value:
        from .lookup import class_getattr
        from .sequence import TupleValue

        if name == "args":
            return TupleValue(list(self.arguments))
        if name in self.attrs:
            return self.attrs[name]
        if name == "value" and self.cls is StopIteration:
            from .constant import Const

            return self.arguments[0] if self.arguments else Const(None)
        if name in (
            "__traceback__",
            "__context__",
            "__cause__",
            "__suppress_context__",
            "__notes__",
            "add_note",
            "with_traceback",
        ):
            return super().getattr(tx, name)
        return class_getattr(tx, self, self.cls, name, lambda _tx, _name: None)

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        if name.startswith("__"):
            super().setattr(tx, name, value)
        before = dict(self.attrs)

        def undo() -> None:
            self.attrs = before

        tx.undo_later(undo)
        self.attrs = {**before, name: value}

    def truth(self, tx: Region) -> bool:
        return True

    def hash_key(self, tx: Region) -> Any:
        self.refuse("use as a dict key")

    def born_at(self) -> int | None:
        return self.offset
