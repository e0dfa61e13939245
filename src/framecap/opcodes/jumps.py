"""Jumps and loops. A branch on a tensor breaks; a loop over something long or unknown is left to native code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import MAX_UNROLL
from ..errors import LOOP, GraphBreak
from ..symbolic.handlers import handles
from ..values.base import Value
from ..values.constant import Const, Opaque
from ..values.iterator import Iterator, hint_of

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame


@handles("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> []"""
    assert inst.target is not None
    if inst.opname == "JUMP_BACKWARD":
        frame.tx.loop_back(frame, inst.target)
    frame.jump(inst.target)


@handles(
    "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE"
)  # fmt: skip
def pop_jump_if(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    truth = frame.pop().truth(frame.tx)
    if truth is inst.opname.endswith("TRUE"):
        assert inst.target is not None
        if "BACKWARD" in inst.opname:
            frame.tx.loop_back(frame, inst.target)
        frame.jump(inst.target)


@handles(
    "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE"
)  # fmt: skip
def pop_jump_if_none(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    if is_none(frame.pop()) is not inst.opname.endswith("NOT_NONE"):
        assert inst.target is not None
        frame.jump(inst.target)


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


@handles("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_if_or_pop(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> [value] and jump, or [] and go on."""
    truth = frame.stack[-1].truth(frame.tx)
    if truth is (inst.opname == "JUMP_IF_TRUE_OR_POP"):
        assert inst.target is not None
        frame.jump(inst.target)
    else:
        frame.pop()


@handles("GET_ITER")
def get_iter(frame: SymbolicFrame, inst: Instruction) -> None:
    """[iterable] -> [iterator]"""
    value = frame.pop()
    iterator = value.iterate(frame.tx)
    if hint_of(iterator) > MAX_UNROLL:
        raise GraphBreak(LOOP, f"the loop has more than {MAX_UNROLL} iterations")
    frame.push(iterator)


@handles("FOR_ITER")
def for_iter(frame: SymbolicFrame, inst: Instruction) -> None:
    """[iterator] -> [iterator, item], or [] and jump at the end."""
    iterator = frame.stack[-1]
    if isinstance(iterator, Opaque) or (
        not isinstance(iterator, Iterator) and iterator.source is not None and frame.parent is None
    ):
        raise GraphBreak(LOOP, f"the loop runs over {iterator.describe()}")
    item = iterator.next(frame.tx)
    if item is None:
        frame.pop()
        assert inst.target is not None
        frame.jump(inst.target)
    else:
        frame.push(item)
