"""Displays, unpacking, slices, f-strings and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UNSUPPORTED_VALUE, GraphBreak
from ..models.text import format_value
from ..symbolic.handlers import handles
from ..values.base import Raised, Value
from ..values.constant import UNKNOWN, Const, constant_of
from ..values.exception import ExceptionValue
from ..values.function import ClosureValue
from ..values.instance import InstanceValue
from ..values.mapping import DictValue
from ..values.sequence import ListValue, SliceValue, TupleValue
from ..values.sets import SetValue

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame


@handles("BUILD_TUPLE")
def build_tuple(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item_1 .. item_n] -> [tuple]"""
    frame.push(TupleValue(frame.pop_many(inst.arg)))


@handles("BUILD_LIST")
def build_list(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item_1 .. item_n] -> [list]"""
    frame.push(ListValue(frame.pop_many(inst.arg)))


@handles("BUILD_SET")
def build_set(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item_1 .. item_n] -> [set]"""
    made = SetValue()
    for item in frame.pop_many(inst.arg):
        made.add(frame.tx, item)
    frame.push(made)


@handles("BUILD_MAP")
def build_map(frame: SymbolicFrame, inst: Instruction) -> None:
    """[key_1, item_1 ..] -> [dict]"""
    made = DictValue()
    flat = frame.pop_many(2 * inst.arg)
    for key, item in zip(flat[::2], flat[1::2], strict=True):
        made.setitem(frame.tx, key, item)
    frame.push(made)


@handles("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item_1 .. item_n, keys] -> [dict]"""
    keys = frame.pop().unpack(frame.tx)
    made = DictValue()
    for key, item in zip(keys, frame.pop_many(inst.arg), strict=True):
        made.setitem(frame.tx, key, item)
    frame.push(made)


@handles("BUILD_SLICE")
def build_slice(frame: SymbolicFrame, inst: Instruction) -> None:
    """[start, stop, step if arg == 3] -> [slice]"""
    parts = frame.pop_many(inst.arg)
    frame.push(SliceValue(parts if inst.arg == 3 else [*parts, Const(None)]))


@handles("BUILD_STRING")
def build_string(frame: SymbolicFrame, inst: Instruction) -> None:
    """[str_1 .. str_n] -> [str]"""
    parts = [constant_of(frame.tx, item) for item in frame.pop_many(inst.arg)]
    if any(part is UNKNOWN for part in parts):
        raise GraphBreak(UNSUPPORTED_VALUE, "an f-string shows something that isn't a constant")
    frame.push(Const("".join(parts)))


@handles("FORMAT_VALUE")
def format_value_op(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value, spec if arg & 4] -> [str]"""
    spec = frame.pop() if inst.arg & 4 else Const("")
    conversion = {0: None, 1: str, 2: repr, 3: ascii}[inst.arg & 3]
    frame.push(format_value(frame.tx, frame.pop(), conversion, spec))


# Growing displays


@handles("LIST_APPEND")
def list_append(frame: SymbolicFrame, inst: Instruction) -> None:
    """[.. list .., item] -> [.. list ..]"""
    item = frame.pop()
    made = frame.stack[-inst.arg]
    if not isinstance(made, ListValue):
        made.refuse("going on with a comprehension of so many items")
    made.append(frame.tx, item)


@handles("SET_ADD")
def set_add(frame: SymbolicFrame, inst: Instruction) -> None:
    """[.. set .., item] -> [.. set ..]"""
    item = frame.pop()
    made = frame.stack[-inst.arg]
    if not isinstance(made, SetValue):
        made.refuse("going on with a comprehension of such items")
    made.add(frame.tx, item)


@handles("MAP_ADD")
def map_add(frame: SymbolicFrame, inst: Instruction) -> None:
    """[.. dict .., key, item] -> [.. dict ..]"""
    key, item = frame.pop_many(2)
    frame.stack[-inst.arg].setitem(frame.tx, key, item)


@handles("LIST_EXTEND")
def list_extend(frame: SymbolicFrame, inst: Instruction) -> None:
    """[.. list .., iterable] -> [.. list ..]"""
    more = frame.pop()
    frame.stack[-inst.arg].extend(frame.tx, more.unpack(frame.tx))


@handles("SET_UPDATE")
def set_update(frame: SymbolicFrame, inst: Instruction) -> None:
    """[.. set .., iterable] -> [.. set ..]"""
    more = frame.pop().unpack(frame.tx)
    for item in more:
        frame.stack[-inst.arg].add(frame.tx, item)


@handles("DICT_UPDATE", "DICT_MERGE")
def dict_update(frame: SymbolicFrame, inst: Instruction) -> None:
    """[.. dict .., mapping] -> [.. dict ..]; DICT_MERGE refuses a key twice."""
    more = frame.pop()
    into: DictValue = frame.stack[-inst.arg]
    if not isinstance(more, DictValue) and not (
        isinstance(more, InstanceValue) and isinstance(more.storage, DictValue)
    ):
        raise GraphBreak(UNSUPPORTED_VALUE, f"** of {more.describe()}")
    from ..values.mapping import pairs_of

    for key, item in pairs_of(frame.tx, more):
        if inst.opname == "DICT_MERGE" and into.contains(frame.tx, key):
            raise Raised(ExceptionValue(TypeError, [Const("got multiple values for a keyword argument")]))
        into.setitem(frame.tx, key, item)


@handles("LIST_TO_TUPLE")
def list_to_tuple(frame: SymbolicFrame, inst: Instruction) -> None:
    """[list] -> [tuple]"""
    frame.push(TupleValue(list(frame.pop().items)))


# Unpacking


@handles("UNPACK_SEQUENCE")
def unpack_sequence(frame: SymbolicFrame, inst: Instruction) -> None:
    """[iterable] -> [item_n .. item_1]"""
    value = frame.pop()
    items = unpack_items(frame, value)
    if len(items) != inst.arg:
        few = f"not enough values to unpack (expected {inst.arg}, got {len(items)})"
        many = f"too many values to unpack (expected {inst.arg})"
        raise Raised(ExceptionValue(ValueError, [Const(few if len(items) < inst.arg else many)]))
    frame.stack.extend(reversed(items))


def unpack_items(frame: SymbolicFrame, value: Value) -> list[Value]:
    return value.unpack(frame.tx)


@handles("UNPACK_EX")
def unpack_ex(frame: SymbolicFrame, inst: Instruction) -> None:
    """[iterable] -> [after.. , list, before..], reversed; arg holds both counts."""
    before, after = inst.arg & 0xFF, inst.arg >> 8
    items = unpack_items(frame, frame.pop())
    if len(items) < before + after:
        message = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        raise Raised(ExceptionValue(ValueError, [Const(message)]))
    middle = ListValue(items[before : len(items) - after])
    frame.stack.extend(reversed([*items[:before], middle, *items[len(items) - after :]]))


# Functions


@handles("MAKE_FUNCTION")
def make_function(frame: SymbolicFrame, inst: Instruction) -> None:
    """[defaults, kwdefaults, annotations, closure (by flags), code] -> [function]"""
    code = frame.pop().value
    cells = list(frame.pop().items) if inst.arg & 8 else []
    annotations = frame.pop() if inst.arg & 4 else None
    kwdefaults = {}
    if inst.arg & 2:
        table = frame.pop()
        kwdefaults = {key.value: item for key, item in table.entries.values()}
    defaults = list(frame.pop().items) if inst.arg & 1 else []
    made = ClosureValue(code, frame.namespace, cells, defaults, kwdefaults)
    if annotations is not None:
        flat = annotations.unpack(frame.tx)
        table = DictValue()
        for key, item in zip(flat[::2], flat[1::2], strict=True):
            table.setitem(frame.tx, key, item)
        made.annotations = table
    frame.push(made)
