"""raise, try, except and finally, for exceptions that are raised and handled inside one region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RAISES, UNSUPPORTED_VALUE, GraphBreak
from ..symbolic.handlers import handles
from ..values.base import Raised, Value
from ..values.constant import Const
from ..values.exception import ExceptionValue
from ..values.function import ClassValue
from ..values.lookup import mro_of
from ..values.sequence import TupleValue

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame


@handles("RAISE_VARARGS")
def raise_varargs(frame: SymbolicFrame, inst: Instruction) -> None:
    """[exception, cause] -> raises, as many operands as arg."""
    tx = frame.tx
    if inst.arg == 0:
        if not tx.handled:
            raise GraphBreak(RAISES, "an exception of native code is raised again")
        raise Raised(tx.handled[-1])
    if inst.arg == 2:
        frame.pop()
    exception = frame.pop()
    if isinstance(exception, ClassValue):
        exception = exception.call(tx, [], {})
    if not isinstance(exception, ExceptionValue):
        raise GraphBreak(RAISES, f"{exception.describe()} is raised")
    if tx.outer is not None and exception.offset is None:
        exception.offset = tx.outer.offset
    raise Raised(exception)


@handles("PUSH_EXC_INFO")
def push_exc_info(frame: SymbolicFrame, inst: Instruction) -> None:
    """[exception] -> [previous exception, exception]"""
    exception = frame.pop()
    frame.push(Const(None))
    frame.push(exception)
    handled = frame.tx.handled
    handled.append(exception)
    frame.tx.undo_later(lambda: handled.__delitem__(-1))
    frame.exceptions.append(exception)


@handles("POP_EXCEPT")
def pop_except(frame: SymbolicFrame, inst: Instruction) -> None:
    """[previous exception] -> []"""
    frame.pop()
    handled = frame.tx.handled
    if not handled:
        raise GraphBreak(UNSUPPORTED_VALUE, "the handling of an exception of native code ends")
    exception = handled.pop()
    frame.tx.undo_later(lambda: handled.append(exception))


@handles("CHECK_EXC_MATCH")
def check_exc_match(frame: SymbolicFrame, inst: Instruction) -> None:
    """[exception, class or tuple] -> [exception, whether it matches]"""
    classes = frame.pop()
    exception = frame.stack[-1]
    if not isinstance(exception, ExceptionValue):
        raise GraphBreak(UNSUPPORTED_VALUE, "an exception of native code is matched")
    options = classes.unpack(frame.tx) if isinstance(classes, TupleValue) else [classes]
    frame.push(Const(any(matches(exception, option) for option in options)))


def matches(exception: ExceptionValue, option: Value) -> bool:
    if not isinstance(option, ClassValue) or BaseException not in mro_of(option.cls):
        raise GraphBreak(UNSUPPORTED_VALUE, f"{option.describe()} stands in an except clause")
    return option.cls in mro_of(exception.cls)


@handles("RERAISE")
def reraise(frame: SymbolicFrame, inst: Instruction) -> None:
    """[lasti if arg, exception] -> raises"""
    exception = frame.pop()
    if not isinstance(exception, ExceptionValue):
        raise GraphBreak(RAISES, "an exception of native code is raised again")
    raise Raised(exception)
