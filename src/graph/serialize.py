"""Graphs as flat records for pickle, so that neither the length of a graph nor its links matter."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .node import ATOMS, Node, map_arguments

Record = tuple[str, Any, tuple[Any, ...], dict[str, Any], str, dict[str, Any]]
"""op, target, args, kwargs, name, meta of a node; nodes in it are `NodeAt`, operators of torch.ops are `Path`."""


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
        args, kwargs = (map_arguments(a, index.__getitem__, _pack_leaf) for a in (node.args, node.kwargs))
        meta = {key: value for key, value in node.meta.items() if _is_plain_data(value)}
        records.append((node.op, _pack_leaf(node.target), args, kwargs, node.name, meta))
        index[node] = NodeAt(len(index))
    return records


def _pack_leaf(value: Any) -> Any:
    path = operator_path(value)
    return value if path is None else Path(path)


def unpack(records: list[Record], nodes: list[Node]) -> Iterator[Record]:
    """Records with their references resolved; the caller appends to ``nodes`` what it makes of each."""

    def leaf(value: Any) -> Any:
        if type(value) is NodeAt:
            return nodes[value.index]
        return value.find() if type(value) is Path else value

    def no_node(node: Node) -> Any:
        raise TypeError(f"the record of a graph holds the node {node.name!r} itself")

    for op, target, args, kwargs, name, meta in records:
        args, kwargs = map_arguments(args, no_node, leaf), map_arguments(kwargs, no_node, leaf)
        yield op, leaf(target), args, kwargs, name, meta


def _is_plain_data(value: Any) -> bool:
    kind = type(value)
    if kind in (tuple, list, frozenset, set):
        return all(map(_is_plain_data, value))
    if kind is dict:
        return all(map(_is_plain_data, value)) and all(map(_is_plain_data, value.values()))
    return kind in ATOMS and kind is not type
