"""Rules for dtypes and devices of results, for reading them without fake tensors. None where no rule says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from framecap.guards import Attr, Call, EqualsGuard, Get, Item, Source

from .region import Input, Op
from .rules import BROADCAST, HANDLERS, SAME, flat, is_number, name_of

if TYPE_CHECKING:
    from .region import Region

CASTS = frozenset("to float double half bfloat16 type type_as long int bool zeros_like ones_like full_like".split())
"""Operators whose result may have another dtype than their operands."""
TRUTHS = frozenset("eq ne lt le gt ge logical_not isnan isinf isin all any argmax argmin".split())
MOVES = frozenset("view reshape expand transpose permute unsqueeze flatten cat".split()) | frozenset(
    "concat getitem split chunk stack contiguous clone detach".split()
)
"""Operators that only move data: whatever the dtype, they keep it. Others promote integers by rules of their own."""
FACTORIES = frozenset("zeros ones empty full rand randn arange new_zeros new_ones new_full new_empty tensor".split())
"""Operators whose result takes nothing but its size from their operands."""


def dtype_of(tx: Region, ref: Any) -> torch.dtype | None:
    """The dtype of tensor ``ref`` if every operator on the way keeps the one dtype of all inputs, else None."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return None
    found: set[torch.dtype] = set()
    seen: set[int] = set()
    touched: list[Source] = []
    calculated = False
    stack = [ref]
    while stack:
        item = stack.pop()
        if id(item) in seen or (isinstance(item, (Op, Input)) and is_number(item)):
            continue
        seen.add(id(item))
        if isinstance(item, Input):
            found.add(item.example.dtype)
            touched.append(item.source)
            continue
        name = name_of(item)
        cast = _cast(item, name)
        if cast is not None:
            found.add(cast)
            continue
        if name in FACTORIES and isinstance(item.kwargs.get("dtype"), torch.dtype):
            found.add(item.kwargs["dtype"])
            continue
        keeps = name in SAME or name in BROADCAST or (name in HANDLERS and name not in FACTORIES)
        if name == "to" and len(item.args) == 2 and isinstance(item.args[1], torch.device) and not item.kwargs:
            stack.append(item.args[0])  # moves the tensor, keeps its dtype
            continue
        if not keeps or name in CASTS or name in TRUTHS or "dtype" in item.kwargs or name == "where":
            return None
        calculated = calculated or name not in MOVES
        operands = flat(item.args[: {"attention": 3, "masked_fill": 1}.get(name, len(item.args))])
        if any(isinstance(a, (complex, torch.dtype)) for a in operands):
            return None
        if item.op == "call_module":
            _module_dtypes(item, found, touched)
            if name == "embedding":
                continue
        stack.extend(a for a in operands if isinstance(a, (Op, Input)))
    if len(found) != 1 or (calculated and not next(iter(found)).is_floating_point):
        return None
    (result,) = found
    for source in touched:
        tx.guard(EqualsGuard(Get(source, "dtype"), result, where=tx.where))
    for question in (_cpu_autocast, _cuda_autocast):
        tx.guard(EqualsGuard(Call(question), False, where=tx.where))
    return result


def device_of(tx: Region, ref: Any) -> torch.device | None:
    """The device of tensor ``ref`` if everything it is computed from is there, else None."""
    found: set[torch.device] = set()
    seen: set[int] = set()
    touched: list[Source] = []
    stack = [ref]
    while stack:
        item = stack.pop()
        if id(item) in seen or (isinstance(item, (Op, Input)) and is_number(item)):
            continue
        seen.add(id(item))
        if isinstance(item, Input):
            found.add(item.example.device)
            touched.append(item.source)
            continue
        name = name_of(item)
        given = [*item.args, *item.kwargs.values()]
        named = [a for a in given if isinstance(a, torch.device)]
        if (name in FACTORIES or name == "to") and len(named) == 1:
            found.add(named[0])
            continue
        keeps = name in SAME or name in BROADCAST or (name in HANDLERS and name not in FACTORIES)
        if not keeps or any(isinstance(a, (str, torch.device)) for a in given):
            return None
        if item.op == "call_module":
            for table in ("_parameters", "_buffers"):
                for key, tensor in getattr(item.target.example, table).items():
                    if tensor is not None:
                        found.add(tensor.device)
                        touched.append(Item(Attr(item.target.source, table), key))
        stack.extend(a for a in flat(given) if isinstance(a, (Op, Input)))
    if len(found) != 1:
        return None
    (result,) = found
    for source in touched:
        tx.guard(EqualsGuard(Get(source, "device"), result, where=tx.where))
    return result


def _cast(op: Op, name: str) -> torch.dtype | None:
    """The dtype that a cast names."""
    if name == "to":
        return next((a for a in (*op.args[1:], *op.kwargs.values()) if isinstance(a, torch.dtype)), None)
    return {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16}.get(
        name
    )


def _module_dtypes(op: Op, found: set[torch.dtype], touched: list[Source]) -> None:
    for table in ("_parameters", "_buffers"):
        for name, tensor in getattr(op.target.example, table).items():
            if tensor is not None and tensor.is_floating_point():
                found.add(tensor.dtype)
                touched.append(Item(Attr(op.target.source, table), name))


def _cpu_autocast() -> bool:
    return bool(torch.is_autocast_enabled("cpu"))


def _cuda_autocast() -> bool:
    return bool(torch.is_autocast_enabled("cuda"))
