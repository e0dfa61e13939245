"""Unary and binary operators, comparisons, subscripts."""

from __future__ import annotations

import dis
import operator
from typing import TYPE_CHECKING, Any

from ..models import operators as model
from ..symbolic.handlers import handles
from ..values.constant import Const

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame

BINARY: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
COMPARE: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
UNARY: dict[str, Any] = {
    "UNARY_NEGATIVE": operator.neg, "UNARY_POSITIVE": operator.pos, "UNARY_INVERT": operator.invert,
}  # fmt: skip
_NB_OPS: list[tuple[str, str]] = dis._nb_ops  # type: ignore[attr-defined]


@handles("BINARY_OP")
def binary_op(frame: SymbolicFrame, inst: Instruction) -> None:
    """[left, right] -> [left op right]"""
    left, right = frame.pop_many(2)
    frame.push(model.binary(frame.tx, BINARY[_NB_OPS[inst.arg][1]], left, right))


@handles(*UNARY)
def unary_op(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> [op value]"""
    frame.push(model.unary(frame.tx, UNARY[inst.opname], frame.pop()))


@handles("UNARY_NOT")
def unary_not(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> [not value]"""
    frame.push(Const(not frame.pop().truth(frame.tx)))


@handles("COMPARE_OP")
def compare_op(frame: SymbolicFrame, inst: Instruction) -> None:
    """[left, right] -> [left op right]"""
    left, right = frame.pop_many(2)
    frame.push(model.compare(frame.tx, COMPARE[inst.argval], left, right))


@handles("IS_OP")
def is_op(frame: SymbolicFrame, inst: Instruction) -> None:
    """[left, right] -> [left is right], inverted if arg."""
    left, right = frame.pop_many(2)
    frame.push(Const(model.identical(frame.tx, left, right) is not bool(inst.arg)))


@handles("CONTAINS_OP")
def contains_op(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item, container] -> [item in container], inverted if arg."""
    item, container = frame.pop_many(2)
    frame.push(Const(container.contains(frame.tx, item) is not bool(inst.arg)))


@handles("BINARY_SUBSCR")
def binary_subscr(frame: SymbolicFrame, inst: Instruction) -> None:
    """[container, key] -> [container[key]]"""
    container, key = frame.pop_many(2)
    frame.push(container.getitem(frame.tx, key))


@handles("STORE_SUBSCR")
def store_subscr(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value, container, key] -> []"""
    value, container, key = frame.pop_many(3)
    container.setitem(frame.tx, key, value)


@handles("DELETE_SUBSCR")
def delete_subscr(frame: SymbolicFrame, inst: Instruction) -> None:
    """[container, key] -> []"""
    container, key = frame.pop_many(2)
    container.delitem(frame.tx, key)
