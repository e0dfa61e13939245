"""Calls, with every form of arguments; returns and yields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import GENERATOR, UNSUPPORTED_VALUE, GraphBreak
from ..symbolic.handlers import handles
from ..symbolic.stack import NULL
from ..values.base import Value
from ..values.constant import UNKNOWN, Const, constant_of
from ..values.mapping import DictValue, pairs_of

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame


@handles("KW_NAMES")
def kw_names(frame: SymbolicFrame, inst: Instruction) -> None:
    """Names of the keyword arguments of the call that follows; begins its group."""
    frame.keyword_names = frame.code.co_consts[inst.arg]
    frame.group_offset = inst.offset


@handles("PRECALL")
def precall(frame: SymbolicFrame, inst: Instruction) -> None:
    """Begins the group of a call, if KW_NAMES hasn't."""
    if frame.group_offset is None:
        frame.group_offset = inst.offset


@handles("CALL")
def call(frame: SymbolicFrame, inst: Instruction) -> None:
    """[NULL | method, callable | self, arguments] -> [result]"""
    names, frame.keyword_names = frame.keyword_names, ()
    arguments = frame.pop_many(inst.arg)
    first, second = frame.pop_many(2)
    if first is NULL:
        function = second
    else:
        function = first
        arguments.insert(0, second)
    positional = arguments[: len(arguments) - len(names)]
    keywords = dict(zip(names, arguments[len(positional) :], strict=True))
    result = function.call(frame.tx, positional, keywords)
    frame.push(result)
    frame.group_offset = None


@handles("CALL_FUNCTION_EX")
def call_function_ex(frame: SymbolicFrame, inst: Instruction) -> None:
    """[NULL, callable, args, kwargs if arg & 1] -> [result]"""
    keywords: dict[str, Value] = {}
    if inst.arg & 1:
        table = frame.pop()
        if not isinstance(table, DictValue) and not isinstance(getattr(table, "storage", None), DictValue):
            raise GraphBreak(UNSUPPORTED_VALUE, f"** of {table.describe()}")
        for key, item in pairs_of(frame.tx, table):
            name = constant_of(frame.tx, key)
            if name is UNKNOWN or not isinstance(name, str):
                raise GraphBreak(UNSUPPORTED_VALUE, "keywords must be strings")
            keywords[name] = item
    positional = frame.pop().unpack(frame.tx)
    function = frame.pop()
    frame.pop()
    frame.push(function.call(frame.tx, positional, keywords))


@handles("RETURN_VALUE")
def return_value(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> ends the frame."""
    frame.result = frame.pop()


@handles("YIELD_VALUE")
def yield_value(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item] -> suspends the frame; what is sent is pushed on resumption."""
    if frame.parent is None:
        raise GraphBreak(GENERATOR, "the frame yields here")
    frame.yielded = frame.pop()


@handles("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: SymbolicFrame, inst: Instruction) -> None:
    """[iterable] -> [iterator] for yield from."""
    frame.push(frame.pop().iterate(frame.tx))


@handles("SEND")
def send(frame: SymbolicFrame, inst: Instruction) -> None:
    """[receiver, sent] -> [receiver, item], or [result] and jump when the receiver returns."""
    if frame.parent is None:
        raise GraphBreak(GENERATOR, "the frame yields here")
    sent = frame.pop()
    receiver = frame.stack[-1]
    from ..values.generator import GeneratorValue

    if isinstance(receiver, GeneratorValue):
        item = receiver.resume(frame.tx, sent)
        result = receiver.frame.result
    elif isinstance(sent, Const) and sent.value is None:
        item, result = receiver.next(frame.tx), Const(None)
    else:
        raise GraphBreak(GENERATOR, "a value is sent into an iterator that isn't a generator made in the region")
    if item is None:
        frame.pop()
        frame.push(result)
        assert inst.target is not None
        frame.jump(inst.target)
    else:
        frame.push(item)
