"""The tuple that a multi-output operator returns, such as torch.return_types.max: one object, and its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tracing.region import Op
from .base import Raised, Value
from .constant import Const
from .exception import ExceptionValue
from .sequence import TupleValue

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class TensorTuple(TupleValue):
    """``ref`` gives the whole tuple, ``items`` its parts; struct sequences have fields by name."""

    __slots__ = ("ref",)

    def __init__(self, ref: Op, items: list[Value], cls: type) -> None:
        super().__init__(items, cls)
        self.ref = ref

    def getattr(self, tx: Region, name: str) -> Value:
        fields = getattr(self.cls, "__match_args__", ())
        if name in fields:
            return self.items[fields.index(name)]
        if not hasattr(self.cls, name):
            raise Raised(ExceptionValue(AttributeError, [Const(f"object has no attribute {name!r}")]))
        if self.cls is tuple:
            return super().getattr(tx, name)
        self.refuse(f"attribute {name!r}")

    def getitem(self, tx: Region, key: Value) -> Value:
        found = self._select(tx, key)
        return TupleValue(found) if isinstance(found, list) else found

    def length(self, tx: Region) -> int:
        return len(self.items)

    def emit(self, emitter: Emitter) -> str:
        return emitter.reference(self.ref)
