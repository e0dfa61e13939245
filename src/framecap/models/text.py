"""str(), repr(), format() and f-strings of values that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Value
from ..values.constant import UNKNOWN, Const, constant_of, real_call
from ..values.function import ClassValue, ClosureValue
from ..values.instance import EnumMember, InstanceValue
from ..values.mapping import DictValue
from ..values.number import NumberValue
from ..values.sequence import ListValue, TupleValue

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region


def format_value(tx: Region, value: Value, conversion: Any, spec: Value) -> Value:
    """``f"{value!conversion:spec}"``."""
    if isinstance(value, InstanceValue) and not isinstance(value, EnumMember):
        if conversion is None and isinstance(spec, Const) and spec.value == "":
            found = value.special(tx, "__str__", [])
            if found is not None and isinstance(found, Const):
                return found
        raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} is formatted")
    if isinstance(value, NumberValue):
        # Its text would fix the number; a message about a number should not.
        raise GraphBreak(UNSUPPORTED_VALUE, f"the number {value.source or ''} is formatted as text")
    if isinstance(value, ExceptionTypes):
        raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} is formatted")
    real = _text_source(tx, value)
    text = constant_of(tx, spec)
    if real is UNKNOWN or text is UNKNOWN:
        raise GraphBreak(UNSUPPORTED_VALUE, f"{value.describe()} is formatted as text")
    shown = real if conversion is None else real_call(conversion, real)
    return Const(real_call(format, shown, text))


ExceptionTypes = (ClosureValue,)


def _text_source(tx: Region, value: Value) -> Any:
    if isinstance(value, EnumMember):
        value.pin(tx)
        return value.real
    if isinstance(value, ClassValue):
        value.pin(tx)
        return value.cls
    if isinstance(value, (ListValue, TupleValue)) and any(isinstance(i, NumberValue) for i in value.items):
        return UNKNOWN
    if isinstance(value, DictValue) and value.cls is dict:
        pairs = [(constant_of(tx, k), constant_of(tx, v)) for k, v in value.entries.values()]
        return UNKNOWN if any(UNKNOWN in pair for pair in pairs) else dict(pairs)
    return constant_of(tx, value)
