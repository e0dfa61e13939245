"""Graphs as flat records for pickle, so that neither the length of a graph nor its links matter."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .node import ATOMS, Node, is_named_tuple

Record = tuple[str, Any, tuple[Any, ...], dict[str, Any], str, dict[str, Any]]
"""op, target, args, kwargs, name, meta of a node. Nodes in it are `NodeAt`, operators of torch.ops are `Path`, and named
tuples are `Fields`, since pickle would call their constructors."""


class NodeAt:
    """In a record, the node with this index."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> Any:
        return NodeAt, (self.index,)


class Path:
    """In a record, an object to be found by its dotted path: operators of torch.ops, which pickle refuses."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path, (self.path,)

    def find(self) -> Any:
        """The object. Raises AttributeError if the library that registers it hasn't been imported."""
        first, *rest = self.path.split(".")
        value: Any = sys.modules[first]
        for part in rest:
            value = getattr(value, part)
        return value


class Fields:
    """In a record, a named tuple."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: type, items: list[Any]) -> None:
        self.kind = kind
        self.items = items

    def __reduce__(self) -> Any:
        return Fields, (self.kind, self.items)


def operator_path(value: Any) -> str | None:
    """``torch.ops.aten.add.Tensor`` for such an operator or its packet of overloads, None for all else."""
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{value}"
    return None


def pack(nodes: Iterable[Node]) -> list[Record]:
    """Records of nodes. Of their meta only what is plain data is kept: numbers, strings, shapes, places."""
    index: dict[Node, NodeAt] = {}
    records: list[Record] = []
    for node in nodes:
        args = tuple([_pack(value, index) for value in node.args])
        kwargs = {key: _pack(value, index) for key, value in node.kwargs.items()}
        meta = {key: value for key, value in node.meta.items() if _is_plain_data(value)}
        records.append((node.op, _pack(node.target, index), args, kwargs, node.name, meta))
        index[node] = NodeAt(len(index))
    return records


def _pack(value: Any, index: dict[Node, NodeAt]) -> Any:
    kind = type(value)
    if kind is Node:
        return index[value]
    if kind is tuple or kind is list:
        return kind([_pack(item, index) for item in value])
    if kind is dict:
        return {key: _pack(item, index) for key, item in value.items()}
    if kind is slice:
        return slice(*[_pack(part, index) for part in (value.start, value.stop, value.step)])
    if is_named_tuple(kind):
        return Fields(kind, [_pack(item, index) for item in value])
    path = operator_path(value)
    return value if path is None else Path(path)


def unpack(records: list[Record], nodes: list[Node]) -> Iterator[Record]:
    """Records with their references resolved; the caller appends to ``nodes`` what it makes of each."""
    for op, target, args, kwargs, name, meta in records:
        yield op, _unpack(target, nodes), _unpack(args, nodes), _unpack(kwargs, nodes), name, meta


def _unpack(value: Any, nodes: list[Node]) -> Any:
    kind = type(value)
    if kind is NodeAt:
        return nodes[value.index]
    if kind is tuple or kind is list:
        return kind([_unpack(item, nodes) for item in value])
    if kind is dict:
        return {key: _unpack(item, nodes) for key, item in value.items()}
    if kind is slice:
        return slice(*[_unpack(part, nodes) for part in (value.start, value.stop, value.step)])
    if kind is Fields:
        return tuple.__new__(value.kind, [_unpack(item, nodes) for item in value.items])
    return value.find() if kind is Path else value


def _is_plain_data(value: Any) -> bool:
    kind = type(value)
    if kind in (tuple, list, frozenset, set):
        return all(map(_is_plain_data, value))
    if kind is dict:
        return all(map(_is_plain_data, value)) and all(map(_is_plain_data, value.values()))
    return kind in ATOMS and kind is not type
