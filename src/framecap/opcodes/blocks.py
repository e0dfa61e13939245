"""with statements and pattern matching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UNSUPPORTED_VALUE, GraphBreak
from ..symbolic.handlers import handles
from ..values.base import Value
from ..values.constant import Const, Opaque
from ..values.context import GradModeValue
from ..values.exception import ExceptionValue
from ..values.mapping import DictValue
from ..values.sequence import TupleValue

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame


@handles("BEFORE_WITH")
def before_with(frame: SymbolicFrame, inst: Instruction) -> None:
    """[manager] -> [exit function, result of __enter__]"""
    manager = frame.pop()
    if isinstance(manager, Opaque):
        from ..errors import CONTEXT_MANAGER

        raise GraphBreak(CONTEXT_MANAGER, f"{manager.describe()} is entered")
    tx = frame.tx
    leave = manager.getattr(tx, "__exit__")
    if isinstance(manager, GradModeValue):
        following = frame.program.instructions[frame.index].offset
        handler = frame.program.handler_at(following)
        if handler is not None:
            tx.mode_handlers.append((frame.code, handler.target))
    frame.push(leave)
    frame.push(manager.getattr(tx, "__enter__").call(tx, [], {}))


@handles("WITH_EXCEPT_START")
def with_except_start(frame: SymbolicFrame, inst: Instruction) -> None:
    """[exit, lasti, previous, exception] -> [.., exit(type, exception, traceback)]"""
    leave, _, _, exception = frame.stack[-4:]
    if not isinstance(exception, ExceptionValue):
        raise GraphBreak(UNSUPPORTED_VALUE, "an exception of native code is handled")
    from ..values.function import ClassValue

    arguments: list[Value] = [ClassValue(exception.cls), exception, TracebackValue()]
    frame.push(leave.call(frame.tx, arguments, {}))


class TracebackValue(Value):
    """The traceback handed to __exit__: it may be passed on, not looked at."""

    __slots__ = ()

    def python_type(self) -> type:
        import types

        return types.TracebackType

    def truth(self, tx: object) -> bool:
        return True


# Pattern matching


@handles("GET_LEN")
def get_len(frame: SymbolicFrame, inst: Instruction) -> None:
    """[subject] -> [subject, len(subject)]"""
    frame.push(Const(frame.stack[-1].length(frame.tx)))


@handles("MATCH_SEQUENCE")
def match_sequence(frame: SymbolicFrame, inst: Instruction) -> None:
    """[subject] -> [subject, whether it is a sequence]"""
    kind = frame.stack[-1].python_type()
    frame.push(Const(bool(kind.__flags__ & (1 << 5))))


@handles("MATCH_MAPPING")
def match_mapping(frame: SymbolicFrame, inst: Instruction) -> None:
    """[subject] -> [subject, whether it is a mapping]"""
    kind = frame.stack[-1].python_type()
    frame.push(Const(bool(kind.__flags__ & (1 << 6))))


@handles("MATCH_KEYS")
def match_keys(frame: SymbolicFrame, inst: Instruction) -> None:
    """[subject, keys] -> [subject, keys, tuple of items or None]"""
    keys, subject = frame.stack[-1], frame.stack[-2]
    if not isinstance(subject, DictValue):
        raise GraphBreak(UNSUPPORTED_VALUE, f"{subject.describe()} is matched as a mapping")
    found = [subject.find(frame.tx, key) for key in keys.unpack(frame.tx)]
    frame.push(Const(None) if any(f is None for f in found) else TupleValue([f for f in found if f is not None]))


@handles("MATCH_CLASS")
def match_class(frame: SymbolicFrame, inst: Instruction) -> None:
    """[subject, class, names] -> [tuple of attributes or None]"""
    from ..models.classes import is_instance
    from ..values.base import Raised
    from ..values.constant import constant_of

    subject, cls, names = frame.pop_many(3)
    tx = frame.tx
    if not is_instance(tx, subject, cls):
        frame.push(Const(None))
        return
    attributes: list[str] = []
    if inst.arg:
        real = cls.value
        if real in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple):
            frame.push(TupleValue([subject]))
            return
        try:
            positional = constant_of(tx, cls.getattr(tx, "__match_args__"))
        except Raised:
            positional = ()
        if not isinstance(positional, tuple) or len(positional) < inst.arg:
            raise GraphBreak(UNSUPPORTED_VALUE, f"{cls.describe()} has too few __match_args__")
        attributes.extend(positional[: inst.arg])
    attributes.extend(constant_of(tx, names))
    found = []
    for name in attributes:
        try:
            found.append(subject.getattr(tx, name))
        except Raised as raised:
            if raised.value.python_type() is not AttributeError:
                raise
            frame.push(Const(None))
            return
    frame.push(TupleValue(found))
