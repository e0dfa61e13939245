"""Loads, stores and deletes of every kind of variable, attributes and imports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from framecap.guards import Const as ConstSource
from framecap.guards import Item

from ..errors import SIDE_EFFECT, UNSUPPORTED_OPCODE, UNSUPPORTED_VALUE, GraphBreak
from ..symbolic.handlers import handles
from ..symbolic.stack import NULL
from ..values.base import Raised, Value
from ..values.constant import Const
from ..values.exception import ExceptionValue
from ..values.function import CellValue, ClassValue, ModuleNamespace
from ..values.instance import DELETED
from ..values.sequence import TupleValue

if TYPE_CHECKING:
    from ..bytecode.instruction import Instruction
    from ..symbolic.frame import SymbolicFrame


@handles("NOP", "RESUME", "EXTENDED_ARG", "CACHE")
def nothing(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> []"""


@handles("POP_TOP")
def pop_top(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    frame.pop()


@handles("PUSH_NULL")
def push_null(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [NULL]"""
    frame.push(NULL)


@handles("COPY")
def copy(frame: SymbolicFrame, inst: Instruction) -> None:
    """[item_n .. item_1] -> [item_n .. item_1, item_n], n = inst.arg."""
    frame.push(frame.stack[-inst.arg])


@handles("SWAP")
def swap(frame: SymbolicFrame, inst: Instruction) -> None:
    """Exchange the top with item n = inst.arg from the top."""
    stack = frame.stack
    stack[-1], stack[-inst.arg] = stack[-inst.arg], stack[-1]


@handles("LOAD_CONST")
def load_const(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [constant]"""
    frame.push(constant_value(inst.argval))


def constant_value(value: Any) -> Value:
    """The value of an entry of co_consts: a literal, a tuple or frozenset of them, or a code object."""
    if type(value) is tuple:
        return TupleValue([constant_value(item) for item in value])
    return Const(value)


@handles("LOAD_FAST")
def load_fast(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [local]"""
    found = frame.load_slot(inst.arg)
    if found is None:
        message = f"cannot access local variable {inst.argval!r} where it is not associated with a value"
        raise Raised(ExceptionValue(UnboundLocalError, [Const(message)]))
    frame.push(found)


@handles("STORE_FAST")
def store_fast(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    value = frame.pop()
    frame.tx.check_drop(frame.slots[inst.arg])
    frame.slots[inst.arg] = value
    name_result(value, inst.argval)


def name_result(value: Value, name: str) -> None:
    """Let a graph node be called as the user's variable, if it has no name yet."""
    ref = getattr(value, "ref", None)
    if ref is not None and not ref.hint:
        ref.hint = name


@handles("DELETE_FAST")
def delete_fast(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> []"""
    if frame.slots[inst.arg] is None:
        message = f"cannot access local variable {inst.argval!r} where it is not associated with a value"
        raise Raised(ExceptionValue(UnboundLocalError, [Const(message)]))
    frame.tx.check_drop(frame.slots[inst.arg])
    frame.slots[inst.arg] = None


# Cells


@handles("MAKE_CELL")
def make_cell(frame: SymbolicFrame, inst: Instruction) -> None:
    """Turn the slot into a cell that holds what the slot held."""
    frame.slots[inst.arg] = CellValue(frame.slots[inst.arg])


@handles("COPY_FREE_VARS", "RETURN_GENERATOR")
def prologue(frame: SymbolicFrame, inst: Instruction) -> None:
    """Free variables are in place already; a generator starts with a value to pop."""
    if inst.opname == "RETURN_GENERATOR":
        frame.push(Const(None))


@handles("LOAD_CLOSURE")
def load_closure(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [cell]"""
    frame.push(frame.cell(inst.arg))


@handles("LOAD_DEREF")
def load_deref(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [contents of a cell]"""
    found = frame.cell(inst.arg).load(frame.tx)
    if found is None:
        message = (
            f"cannot access free variable {inst.argval!r} where it is not associated with a value in enclosing scope"
        )
        raise Raised(ExceptionValue(NameError, [Const(message)]))
    frame.push(found)


@handles("STORE_DEREF")
def store_deref(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    value = frame.pop()
    frame.cell(inst.arg).store(frame.tx, value)
    name_result(value, inst.argval)


@handles("DELETE_DEREF")
def delete_deref(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> []"""
    cell = frame.cell(inst.arg)
    if cell.load(frame.tx) is None:
        raise GraphBreak(UNSUPPORTED_OPCODE, "an empty cell is deleted")
    cell.store(frame.tx, None)


# Globals and names


def find_global(frame: SymbolicFrame, name: str) -> Value:
    """A global of the frame's module, or a builtin."""
    found = frame.namespace.find(frame.tx, name)
    if found is None:
        found = frame.tx.builtin(frame, name)
    if found is None:
        raise Raised(ExceptionValue(NameError, [Const(f"name {name!r} is not defined")]))
    return found


@handles("LOAD_GLOBAL")
def load_global(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [NULL if arg & 1, value]"""
    value = find_global(frame, inst.argval)
    if inst.arg & 1:
        frame.push(NULL)
    frame.push(value)


@handles("STORE_GLOBAL")
def store_global(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    frame.namespace.store(frame.tx, inst.argval, frame.pop())


@handles("DELETE_GLOBAL")
def delete_global(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> []"""
    if frame.namespace.find(frame.tx, inst.argval) is None:
        raise Raised(ExceptionValue(NameError, [Const(f"name {inst.argval!r} is not defined")]))
    frame.namespace.store(frame.tx, inst.argval, DELETED)


def _module_level(frame: SymbolicFrame) -> None:
    if not frame.names_are_globals:
        raise GraphBreak(UNSUPPORTED_OPCODE, "the body of a class runs natively")


@handles("LOAD_NAME")
def load_name(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [value]; at module level names are globals."""
    _module_level(frame)
    frame.push(find_global(frame, inst.argval))


@handles("STORE_NAME")
def store_name(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value] -> []"""
    _module_level(frame)
    value = frame.pop()
    frame.namespace.store(frame.tx, inst.argval, value)
    name_result(value, inst.argval)


@handles("DELETE_NAME")
def delete_name(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> []"""
    _module_level(frame)
    delete_global(frame, inst)


@handles("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: SymbolicFrame, inst: Instruction) -> None:
    """[] -> [AssertionError]"""
    frame.push(ClassValue(AssertionError))


# Attributes


@handles("LOAD_ATTR")
def load_attr(frame: SymbolicFrame, inst: Instruction) -> None:
    """[owner] -> [owner.name]"""
    frame.push(frame.pop().getattr(frame.tx, inst.argval))


@handles("LOAD_METHOD")
def load_method(frame: SymbolicFrame, inst: Instruction) -> None:
    """[owner] -> [NULL, owner.name]: always the form of a bound callable."""
    method = frame.pop().getattr(frame.tx, inst.argval)
    frame.push(NULL)
    frame.push(method)


@handles("STORE_ATTR")
def store_attr(frame: SymbolicFrame, inst: Instruction) -> None:
    """[value, owner] -> []"""
    owner = frame.pop()
    value = frame.pop()
    owner.setattr(frame.tx, inst.argval, value)
    name_result(value, inst.argval)


@handles("DELETE_ATTR")
def delete_attr(frame: SymbolicFrame, inst: Instruction) -> None:
    """[owner] -> []"""
    frame.pop().delattr(frame.tx, inst.argval)


# Imports


@handles("IMPORT_NAME")
def import_name(frame: SymbolicFrame, inst: Instruction) -> None:
    """[level, fromlist] -> [module]: only of what is imported already; a first import runs natively."""
    fromlist = frame.pop()
    level = frame.pop()
    if level.value != 0:
        package = frame.namespace.real.get("__package__")
        base = package.rsplit(".", level.value - 1)[0] if package else ""
        name = f"{base}.{inst.argval}" if inst.argval else base
    else:
        name = inst.argval
    wanted = isinstance(fromlist, TupleValue)
    if not wanted and level.value == 0:
        name = inst.argval.partition(".")[0]
    module = sys.modules.get(name)
    full = sys.modules.get(inst.argval) if level.value == 0 else module
    if module is None or full is None:
        raise GraphBreak(SIDE_EFFECT, f"module {name} is imported for the first time")
    source = Item(ConstSource(sys.modules), name)
    frame.push(frame.tx.wrap(module, source))


@handles("IMPORT_FROM")
def import_from(frame: SymbolicFrame, inst: Instruction) -> None:
    """[module] -> [module, module.name]"""
    module = frame.stack[-1]
    if not isinstance(module, ModuleNamespace):
        raise GraphBreak(UNSUPPORTED_VALUE, f"{module.describe()} is imported from as a module")
    frame.push(module.getattr(frame.tx, inst.argval))
