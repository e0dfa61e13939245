"""Tensors: known only as a node of the graph; metadata is worked out when Python asks for it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from framecap.guards import Call, EqualsGuard, Get, SameGuard, Source

from ..errors import AUTOGRAD, DATA_DEPENDENT, UNSUPPORTED_ATTRIBUTE, GraphBreak
from ..tracing import dtypes, metadata, rules
from ..tracing.region import Input, Op
from .base import Args, Kwargs, Raised, Value
from .constant import Const, constant_of
from .deferred import Deferred
from .number import NumberValue

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region

OBSERVED = {
    "grad",
    "grad_fn",
    "_backward_hooks",
    "_base",
    "_version",
    "is_leaf",
    "retains_grad",
    "output_nr",
    "names",
    "requires_grad_",
}
"""Attributes that tell of autograd's state: read natively."""
VIEWS = {"T", "mT", "H", "mH", "real", "imag"}
"""Attributes that are operators."""
METADATA = {
    "dtype",
    "device",
    "layout",
    "is_cuda",
    "is_cpu",
    "is_meta",
    "is_sparse",
    "is_quantized",
    "is_mps",
    "is_xpu",
    "is_nested",
    "itemsize",
    "nbytes",
    "is_mkldnn",
}


class TensorValue(Value):
    """A plain torch.Tensor (or Parameter, ``kind``), the result of ``ref`` (an Op or an Input)."""

    __slots__ = ("kind", "ref")

    def __init__(self, ref: Op | Input, kind: type = torch.Tensor, source: Source | None = None) -> None:
        super().__init__(source)
        self.ref = ref
        self.kind = kind

    def python_type(self) -> type:
        return self.kind

    def describe(self) -> str:
        return "a tensor" if self.source is None else f"the tensor {self.source}"

    @property
    def example(self) -> torch.Tensor | None:
        """The real tensor, for an input of the region of which there is one."""
        example = self.ref.example if isinstance(self.ref, Input) else None
        return example if isinstance(example, torch.Tensor) else None

    # Attributes

    def getattr(self, tx: Region, name: str) -> Value:
        if name == "shape":
            return self.shape(tx)
        if name == "ndim":
            return Const(self.rank(tx))
        if name in METADATA:
            return self.deferred(tx, name) if self.is_open(tx) else Const(self.read(tx, name))
        if name == "requires_grad":
            return Const(self.requires_grad(tx))
        if name in VIEWS:
            return tx.tensor_op("call_function", getattr, (self, Const(name)))
        if name == "data":
            return tx.tensor_op("call_function", getattr, (self, Const(name)))
        if name == "__class__":
            from .function import ClassValue

            return ClassValue(self.kind)
        if name in OBSERVED:
            raise GraphBreak(AUTOGRAD, f"{name} of {self.describe()} is a matter of autograd")
        if (example := self.example) is not None and name in getattr(example, "__dict__", ()):
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"{self.describe()} has an attribute {name!r} of its own")
        method = tx.tensor_method(self.kind, name)
        if method is None:
            if not hasattr(self.kind, name):
                if self.source is not None:
                    from framecap.guards import AbsentAttrGuard

                    tx.guard(AbsentAttrGuard(self.source, name, where=tx.where))
                from .exception import ExceptionValue

                message = f"{self.kind.__name__!r} object has no attribute {name!r}"
                raise Raised(ExceptionValue(AttributeError, [Const(message)]))
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"attribute {name!r} of a tensor isn't modelled")
        return TensorMethod(self, name)

    def setattr(self, tx: Region, name: str, value: Value) -> None:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"setting {name!r} of a tensor runs natively")

    def read(self, tx: Region, name: str) -> Any:
        """A metadata attribute, guarded."""
        if isinstance(self.ref, Input):
            value = getattr(self.ref.example, name)
            tx.guard(EqualsGuard(Get(self.ref.source, name), value, where=tx.where))
            return value
        if name == "dtype" and (known := dtypes.dtype_of(tx, self.ref)) is not None:
            return known
        if name == "device" and (place := dtypes.device_of(tx, self.ref)) is not None:
            return place
        return getattr(self.fake(tx), name)

    def fake(self, tx: Region) -> Any:
        fake = metadata.fake_of(tx, self.ref)
        if not isinstance(fake, torch.Tensor):
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"a result of type {type(fake).__name__} was taken for a tensor")
        return fake

    def is_open(self, tx: Region) -> bool:
        """Whether nothing may be known of the tensor, because no examples were given."""
        return tx.without_examples and self.example is None

    def deferred(self, tx: Region, name: str) -> Value:
        return Deferred(tx.add_op("call_function", getattr, (self.ref, name), scalar=True), self, name)

    def requires_grad(self, tx: Region) -> bool:
        if isinstance(self.ref, Input):
            if any(op.impure for op in tx.ops):
                raise GraphBreak(AUTOGRAD, "requires_grad is read after an in-place change")
            return bool(self.read(tx, "requires_grad"))
        if any(op.target in INPLACE_SEEN or op.impure for op in tx.ops):
            raise GraphBreak(AUTOGRAD, "requires_grad is read after an in-place change")
        if tx.grad_mode is None:
            tx.guard(EqualsGuard(Call(torch.is_grad_enabled, None), torch.is_grad_enabled(), where=tx.where))
        return bool(self.fake(tx).requires_grad)

    def rank(self, tx: Region) -> int:
        """Number of dimensions: by rule where there is one, so that sizes stay unguarded."""
        shape = rules.shape_of(tx, self.ref)
        return len(shape) if shape is not None else int(self.fake(tx).dim())

    def size(self, tx: Region, dim: int) -> Value:
        """The size of one dimension: a number by rule in terms of inputs, else an operator of the graph."""
        shape = rules.shape_of(tx, self.ref)
        known = shape[dim] if shape is not None and -len(shape) <= dim < len(shape) else None
        if isinstance(known, int):
            return Const(known)
        if known is not None:
            return NumberValue(tx.adopt(known), int)
        op = tx.add_op("call_method", "size", (self.ref, dim), scalar=True)
        return NumberValue(op, int)

    def shape(self, tx: Region) -> Value:
        from .sequence import TupleValue

        if self.is_open(tx) and rules.shape_of(tx, self.ref) is None:
            return self.deferred(tx, "shape")
        return TupleValue([self.size(tx, i) for i in range(self.rank(tx))], torch.Size)

    # Protocols

    def getitem(self, tx: Region, key: Value) -> Value:
        return tx.tensor_op("call_function", operator.getitem, (self, key))

    def setitem(self, tx: Region, key: Value, value: Value) -> None:
        tx.tensor_op("call_function", operator.setitem, (self, key, value), mutates=self)

    def truth(self, tx: Region) -> bool:
        return bool(self.known_item(tx, "a branch depends on"))

    def known_item(self, tx: Region, what: str) -> torch.Tensor:
        """The tensor's one value, if it is known without running the program; else a graph break that says ``what``."""
        known = tx.known_value(self.ref)
        if known is not None and known.numel() == 1:
            return known
        raise GraphBreak(DATA_DEPENDENT, f"{what} the value of {self.describe()}")

    def length(self, tx: Region) -> int:
        if self.rank(tx) == 0:
            from .constant import raised

            raise raised(TypeError("len() of a 0-d tensor"))
        return int(constant_of(tx, self.size(tx, 0)))

    def iterate(self, tx: Region) -> Value:
        from .iterator import SequenceIterator
        from .sequence import TupleValue

        if self.rank(tx) == 0:
            self.refuse("iteration over a 0-d tensor")
        count = self.length(tx)
        unbound = tx.add_op("call_method", "unbind", (self.ref, 0))
        items = [TensorValue(tx.add_op("call_function", operator.getitem, (unbound, i))) for i in range(count)]
        return SequenceIterator(TupleValue(list(items)), None)

    def contains(self, tx: Region, item: Value) -> bool:
        raise GraphBreak(DATA_DEPENDENT, "a membership test depends on the values of a tensor")

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        self.refuse("calling")

    def as_argument(self, tx: Region) -> Any:
        return self.ref

    def emit(self, emitter: Emitter) -> str:
        return emitter.reference(self.ref)


INPLACE_SEEN: set[Any] = {operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem}


class TensorMethod(Value):
    """``tensor.name`` before it is called."""

    __slots__ = ("name", "tensor")

    def __init__(self, tensor: TensorValue, name: str) -> None:
        super().__init__()
        self.tensor = tensor
        self.name = name

    def python_type(self) -> type:
        return type(torch.Tensor().add)

    def describe(self) -> str:
        return f"the tensor method {self.name}"

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        return tx.call_tensor_method(self.tensor, self.name, args, kwargs)

    def emit(self, emitter: Emitter) -> str:
        return f"{self.tensor.emit(emitter)}.{self.name}"


def same_tensor(tx: Region, a: TensorValue, b: TensorValue) -> bool:
    """``a is b``; breaks where two operators might have returned the same object."""
    from framecap.guards import DistinctGuard

    if a.ref is b.ref:
        return True
    if isinstance(a.ref, Input) and isinstance(b.ref, Input):
        if a.ref.example is b.ref.example:
            tx.guard(SameGuard(a.ref.source, b.ref.source, where=tx.where))
            return True
        tx.guard(DistinctGuard((a.ref.source, b.ref.source), where=tx.where))
        return False
    raise GraphBreak(DATA_DEPENDENT, "whether two results are the same tensor object is known only at run time")
