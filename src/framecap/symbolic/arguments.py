"""Binding of call arguments to the slots of a code object, as CPython's ceval.c does (initialize_locals)."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framecap.guards import EqualsGuard, Get, Index

from ..values.base import Args, Kwargs, Raised, Value
from ..values.constant import Const
from ..values.exception import ExceptionValue
from ..values.function import CellValue, ClosureValue, FunctionConst
from ..values.mapping import DictValue
from ..values.sequence import TupleValue

if TYPE_CHECKING:
    from .tracer import Namespace, Tracer


@dataclass(slots=True)
class Signature:
    """What a call needs of a function: code, defaults, closure cells and globals."""

    code: types.CodeType
    name: str
    defaults: list[Value]
    kwdefaults: Kwargs
    cells: list[CellValue]
    namespace: Namespace

    @staticmethod
    def of_real(tx: Tracer, function: FunctionConst) -> Signature:
        real = function.value
        source = function.source
        defaults: list[Value] = []
        kwdefaults: Kwargs = {}
        cells: list[CellValue] = []
        if real.__defaults__:
            if source is None:
                defaults = [_fixed(item) for item in real.__defaults__]
            else:
                whole = tx.wrap(real.__defaults__, Get(source, "__defaults__"))
                assert isinstance(whole, TupleValue)
                defaults = list.copy(whole.items)
        elif source is not None and real.__code__.co_argcount:
            tx.guard(EqualsGuard(Get(source, "__defaults__"), None, where=tx.where))
        if real.__kwdefaults__:
            if source is None:
                kwdefaults = {k: _fixed(v) for k, v in real.__kwdefaults__.items()}
            else:
                table = tx.wrap(real.__kwdefaults__, Get(source, "__kwdefaults__"))
                assert isinstance(table, DictValue)
                kwdefaults = {k: item for k, (_, item) in table.entries.items()}
        elif source is not None and real.__code__.co_kwonlyargcount:
            tx.guard(EqualsGuard(Get(source, "__kwdefaults__"), None, where=tx.where))
        for i, cell in enumerate(real.__closure__ or ()):
            if source is None:
                cells.append(outside_cell(tx, cell, None))
            else:
                cells.append(outside_cell(tx, cell, Index(Get(source, "__closure__"), i)))
        namespace = tx.namespace_of(real.__globals__, Get(source, "__globals__") if source is not None else None)
        return Signature(real.__code__, real.__qualname__, defaults, kwdefaults, cells, namespace)

    @staticmethod
    def of_closure(function: ClosureValue) -> Signature:
        return Signature(
            function.code, function.qualname, function.defaults, function.kwdefaults, function.cells, function.globals
        )


def _fixed(item: Any) -> Value:
    from ..values.constant import Opaque, is_immutable

    return Const(item) if is_immutable(item) else Opaque(item)


def outside_cell(tx: Tracer, cell: types.CellType, source: Any) -> CellValue:
    """The value of a real cell; one per cell, however it is reached."""
    known = tx.memo.get(("cell", id(cell)))
    if isinstance(known, CellValue):
        if known.source is not None and source is not None and known.source != source:
            tx.same(known.source, source)
        return known
    new = CellValue(None, cell, source)
    tx.memo["cell", id(cell)] = new
    tx.kept.append(cell)
    return new


def bind_arguments(tx: Tracer, function: Value, signature: Signature, args: Args, kwargs: Kwargs) -> list[Value | None]:
    """Values of the argument slots (positional, keyword-only, *args, **kwargs); a wrong call raises TypeError."""
    code = signature.code
    positional = code.co_argcount
    total = positional + code.co_kwonlyargcount
    names = code.co_varnames
    slots: list[Value | None] = [None] * total
    given = list(args)
    for i in range(min(len(given), positional)):
        slots[i] = given[i]
    extra = given[positional:]
    if extra and not code.co_flags & inspect.CO_VARARGS:
        raise _type_error(f"{signature.name}() takes {positional} positional arguments but {len(given)} were given")
    rest: dict[str, Value] = {}
    for key, item in kwargs.items():
        if key in names[code.co_posonlyargcount : total]:
            index = names.index(key, code.co_posonlyargcount, total)
            if slots[index] is not None:
                raise _type_error(f"{signature.name}() got multiple values for argument {key!r}")
            slots[index] = item
        elif code.co_flags & inspect.CO_VARKEYWORDS:
            rest[key] = item
        else:
            raise _type_error(f"{signature.name}() got an unexpected keyword argument {key!r}")
    first_default = positional - len(signature.defaults)
    for i in range(positional):
        if slots[i] is None:
            if i < first_default:
                raise _type_error(f"{signature.name}() missing a required positional argument: {names[i]!r}")
            slots[i] = signature.defaults[i - first_default]
    for i in range(positional, total):
        if slots[i] is None:
            if names[i] not in signature.kwdefaults:
                raise _type_error(f"{signature.name}() missing a required keyword-only argument: {names[i]!r}")
            slots[i] = signature.kwdefaults[names[i]]
    from ..values.sequence import force

    slots = [force(tx, slot) if slot is not None else None for slot in slots]
    if code.co_flags & inspect.CO_VARARGS:
        slots.append(TupleValue(extra))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        table = DictValue()
        for key, item in rest.items():
            table.entries[key] = (Const(key), item)
        slots.append(table)
    return slots


def _type_error(message: str) -> Raised:
    return Raised(ExceptionValue(TypeError, [Const(message)]))
