"""An attribute of a tensor that is read when the graph runs, because nothing is known of the tensor at capture."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import METADATA, GraphBreak
from ..tracing.region import Op
from .base import Value
from .constant import UNKNOWN, constant_of
from .number import NumberValue

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region
    from .tensor import TensorValue


class Deferred(Value):
    """``tensor.name``, computed by ``ref``: can be passed to operators, and a shape can be subscripted."""

    __slots__ = ("name", "ref", "tensor")

    def __init__(self, ref: Op, tensor: TensorValue, name: str) -> None:
        super().__init__()
        self.ref = ref
        self.tensor = tensor
        self.name = name

    def describe(self) -> str:
        return f"the {self.name} of {self.tensor.describe()}"

    def python_type(self) -> type:
        self.refuse("asking for the type")

    def refuse(self, what: str) -> NoReturn:
        raise GraphBreak(
            METADATA,
            f"{what} needs {self.describe()}, which isn't known without an example",
            "Give examples of the arguments: framecap.capture(fn, *examples).",
        )

    def getitem(self, tx: Region, key: Value) -> Value:
        index = constant_of(tx, key)
        if self.name != "shape" or index is UNKNOWN:
            self.refuse("subscripting")
        if isinstance(index, int):
            return NumberValue(tx.add_op("call_method", "size", (self.tensor.ref, index), scalar=True), int)
        part = tx.add_op("call_function", operator.getitem, (self.ref, index), scalar=True)
        return Deferred(part, self.tensor, "shape, cut,")

    def as_argument(self, tx: Region) -> Any:
        return self.ref
