"""Numbers that aren't fixed at capture: arguments, and sizes of tensors.

They flow into operators without a guard. When Python needs the value (a branch, an index, a loop), the value is
given and a guard on the predicate that was read is added (design section 6).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from framecap.guards import EqualsGuard, PredicateGuard, Source

from ..tracing import metadata
from ..tracing.region import Input, Op
from .base import Args, Kwargs, Value
from .constant import Const, ConstMethod, from_real, real_call

if TYPE_CHECKING:
    from ..symbolic.epilogue import Emitter
    from ..symbolic.tracer import Tracer as Region


class NumberValue(Value):
    """An int, float or bool computed by ``ref`` (an Op on numbers, or an Input)."""

    __slots__ = ("kind", "ref")

    def __init__(self, ref: Op | Input, kind: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.ref = ref
        self.kind = kind

    def python_type(self) -> type:
        return self.kind

    def concrete(self, tx: Region) -> Any:
        """The number, now fixed by a guard."""
        if isinstance(self.ref, Input):
            tx.guard_equals(self.ref.source, self.ref.example)
            return self.ref.example
        return metadata.number_of(tx, self.ref, None)

    def truth(self, tx: Region) -> bool:
        if isinstance(self.ref, Input):
            return self._test(tx, operator.truth, "bool({})")
        return bool(metadata.number_of(tx, self.ref, bool))

    def _test(self, tx: Region, test: Any, text: str) -> bool:
        assert isinstance(self.ref, Input)
        expected = bool(test(self.ref.example))
        tx.guard(PredicateGuard(test, (self.ref.source,), text.format(self.ref.source), expected, where=tx.where))
        return expected

    def getattr(self, tx: Region, name: str) -> Value:
        if name in ("real", "numerator") and self.kind is int:
            return self
        return (
            ConstMethod(Const(self.concrete(tx)), name)
            if name in dir(self.kind)
            else Const(self.concrete(tx)).getattr(tx, name)
        )

    def hash_key(self, tx: Region) -> Any:
        return self.concrete(tx)

    def call(self, tx: Region, args: Args, kwargs: Kwargs) -> Value:
        real_call(self.concrete(tx))
        self.refuse("calling")

    def as_argument(self, tx: Region) -> Any:
        return self.ref

    def emit(self, emitter: Emitter) -> str:
        return emitter.reference(self.ref)


def number_op(tx: Region, target: Any, *operands: Value) -> Value:
    """``target(*operands)`` on numbers, of which at least one isn't fixed: recorded, not computed.

    The kind of the result must not depend on the numbers; where it does (``2 ** -1``), they are made concrete.
    """
    examples = [
        metadata.peek(tx, o.ref) if isinstance(o, NumberValue) else o.value
        for o in operands
        if isinstance(o, (NumberValue, Const))
    ]
    unstable = target in (operator.pow, operator.ipow) or any(e is metadata.UNKNOWN for e in examples)
    if unstable and target not in _TOTAL and not (tx.without_examples and target in _ARITHMETIC):
        reals = [o.concrete(tx) if isinstance(o, NumberValue) else o.value for o in operands]  # type: ignore[attr-defined]
        return from_real(real_call(target, *reals))
    if any(e is metadata.UNKNOWN for e in examples):
        kinds = [o.python_type() for o in operands]
        kind = bool if target in _COMPARISONS else (float if float in kinds or target is operator.truediv else int)
    else:
        try:
            kind = type(target(*examples))
        except Exception:
            reals = [o.concrete(tx) if isinstance(o, NumberValue) else o.value for o in operands]  # type: ignore[attr-defined]
            return from_real(real_call(target, *reals))
    if kind not in (int, float, bool):
        reals = [o.concrete(tx) if isinstance(o, NumberValue) else o.value for o in operands]  # type: ignore[attr-defined]
        return from_real(real_call(target, *reals))
    op = tx.add_op("call_function", target, [o.as_argument(tx) for o in operands], scalar=True)
    return NumberValue(op, kind)


_COMPARISONS = {operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge}
_ARITHMETIC = {operator.floordiv, operator.mod, operator.truediv, operator.neg}
"""Operators whose result's type doesn't depend on the numbers, though they may raise."""
_TOTAL = {operator.add, operator.sub, operator.mul, *_COMPARISONS}


def equals_guard(tx: Region, source: Source, value: Any) -> EqualsGuard:
    return EqualsGuard(source, value, where=tx.where)
