"""Note shapes, types and devices, by running the graph on real or fake inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..graph import Graph
from ..interpreter import Interpreter
from ..node import Node, map_arguments
from ..state import Root
from .fake import faking


@dataclass(frozen=True, slots=True, repr=False)
class TensorMeta:
    """What is known of a tensor without its data. stride is in elements; None for layouts that have none."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    stride: tuple[int, ...] | None

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{', '.join(map(str, self.shape))}]"

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorMeta:
        """Of a real tensor."""
        stride = tuple(tensor.stride()) if tensor.layout is torch.strided else None
        return TensorMeta(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad, stride)


def propagate_shapes(module: Root, *args: Any, graph: Graph | None = None, fake: bool = False, **kwargs: Any) -> Any:
    """Run the graph and note in each node's meta what it computed; returns the result.

    meta["type"] is the result's class. meta["tensor_meta"], for results that are or hold tensors, is the result with a
    `TensorMeta` for each tensor. It is a real run: in-place operators, batch statistics and random numbers have their
    effects; unless ``fake``: then nothing is computed, and tensors of the result are fake ones, without data. module: a
    GraphModule, or any root for ``graph``.
    """
    if fake:
        known = graph if graph is not None else _ShapeInterpreter(module, None).graph
        with faking(module) as (root, to_fake):
            return _ShapeInterpreter(root, known).run(*to_fake(args), **to_fake(kwargs))
    return _ShapeInterpreter(module, graph).run(*args, **kwargs)


class _ShapeInterpreter(Interpreter):
    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        found = False

        def describe(part: Any) -> Any:
            nonlocal found
            if isinstance(part, torch.Tensor):
                found = True
                return TensorMeta.of(part)
            return part

        # torch.return_types and the like are tuples to whoever reads the notes.
        plain = tuple(value) if isinstance(value, tuple) and hasattr(value, "n_fields") else value
        noted = map_arguments(plain, lambda other: other, describe)
        node.meta["type"] = type(value)
        node.meta.pop("tensor_meta", None)
        if found:
            node.meta["tensor_meta"] = noted
        return value
