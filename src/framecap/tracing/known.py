"""Values of tensors that are made of constants and sizes alone, such as a causal mask or a range of positions.

A whole graph may not break where Python branches on such a tensor, and need not: its value is a matter of the sizes
that it is made from, which are then fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import metadata
from .examples import NoExample
from .region import Input, Op
from .rules import is_number

if TYPE_CHECKING:
    from .region import Region


def known_value(tx: Region, ref: Any) -> torch.Tensor | None:
    """The tensor that ``ref`` computes, if it depends on no tensor from outside; fixes the sizes it depends on."""
    if not isinstance(ref, Op):
        return None
    ops = metadata.slice_of(ref)
    inside = {id(op) for op in ops}
    if any(is_opaque(op) for op in ops) or any(changes(op) and touches(op, inside) for op in tx.ops):
        return None
    values: dict[int, Any] = {}

    def resolve(leaf: Any) -> Any:
        if isinstance(leaf, Input):
            tx.guard_equals(leaf.source, leaf.example)
            return leaf.example
        return values[id(leaf)]

    with metadata.unobserved(), torch.no_grad():
        for op in ops:
            if metadata.is_size(op):
                values[id(op)] = metadata.number_of(tx, op, None)
                continue
            args, kwargs = metadata.map_leaves((op.args, op.kwargs), resolve)
            if op.op == "call_method":
                values[id(op)] = getattr(args[0], op.target)(*args[1:], **kwargs)
            else:
                values[id(op)] = op.target(*args, **kwargs)
    value = values[id(ref)]
    return value if isinstance(value, torch.Tensor) else None


def is_opaque(op: Op) -> bool:
    """Whether the result of an operator is a matter of more than constants and the operators before it."""
    if op.random or changes(op) or op.op == "call_module":
        return True
    if metadata.is_size(op):
        return isinstance(op.args[0].example, NoExample)
    found: list[Any] = []
    metadata.map_leaves((op.args, op.kwargs), lambda leaf: found.append(leaf))
    return any(isinstance(leaf, Input) and not is_number(leaf) for leaf in found)


def changes(op: Op) -> bool:
    """Whether an operator may change a tensor in place."""
    return op.impure or (op.keep and not op.random and not op.scalar)


def touches(op: Op, inside: set[int]) -> bool:
    return any(id(other) in inside for other in metadata.slice_of(op))
