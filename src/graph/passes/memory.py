"""How long values live, and how much memory they need at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, last_uses
from ..state import Root
from .costs import tensors_in
from .fake import faking


@dataclass(slots=True)
class Lifetime:
    """Memory that a node made. size: bytes. made: the node. last: the node after which nothing leads to it; None if the
    result does."""

    made: Node
    last: Node | None
    size: int


@dataclass(slots=True)
class MemoryReport:
    """Memory of the values of one call, node by node; inputs, parameters and buffers are counted apart.

    live: bytes of the graph's own values that are held while a node runs, its result included. peak_node: where that is
    most. inputs, state: bytes of the arguments, and of the parameters and buffers that the graph uses.
    """

    lifetimes: list[Lifetime]
    live: dict[Node, int] = field(default_factory=dict)
    inputs: int = 0
    state: int = 0

    @property
    def peak(self) -> int:
        """The most bytes of the graph's own values at one time."""
        return max(self.live.values(), default=0)

    @property
    def peak_node(self) -> Node | None:
        return max(self.live, key=self.live.__getitem__, default=None)

    @property
    def total(self) -> int:
        """The bytes of all values, as if none were freed."""
        return sum(lifetime.size for lifetime in self.lifetimes)


def estimate_memory(module: GraphModule, *args: Any, **kwargs: Any) -> MemoryReport:
    """The memory that a call with these arguments needs for its values, of which only shapes and types matter.

    As the generated code runs it without gradients: a value is freed after its last use. Views share the memory of what
    they show, and results of operators that work in place are their argument. What a node that is a whole module, or a
    composed operator, needs in between isn't counted; capture with ``is_leaf=framecap.no_leaves`` to see into modules.
    """
    with faking(module) as (root, to_fake):
        meter = _Meter(root, module)
        with torch.no_grad():
            result = meter.run(*to_fake(args), **to_fake(kwargs))
        return meter.report(result)


class _Meter(Interpreter):
    """Notes which memory each node's value holds."""

    def __init__(self, fake: Root, module: GraphModule) -> None:
        super().__init__(fake, module.graph)
        self.order: list[Node] = []
        self.held: dict[Node, set[int]] = {}
        self.sizes: dict[int, int] = {}
        self.maker: dict[int, Node] = {}
        self.kept: list[Any] = []  # storages, so that their identities stay theirs

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        self.order.append(node)
        self.held[node] = set()
        for tensor in tensors_in(value):
            if tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self.sizes:
                self.kept.append(storage)
                self.sizes[key] = storage.nbytes()
                self.maker[key] = node
            self.held[node].add(key)
        return value

    def report(self, result: Any) -> MemoryReport:
        at = {node: i for i, node in enumerate(self.order)}
        dies = {node: at[user] for user, nodes in last_uses(self.order).items() for node in nodes}
        last: dict[int, int] = {}
        for node, keys in self.held.items():
            end = dies.get(node, at[node])
            for key in keys:
                last[key] = max(last.get(key, 0), end)
        returned = self.held[self.order[-1]] if self.order and self.order[-1].op == "output" else set()
        report = MemoryReport([])
        change = [0] * (len(self.order) + 1)
        for key, size in self.sizes.items():
            maker = self.maker[key]
            if maker.op == "placeholder":
                report.inputs += size
            elif maker.op == "get_attr":
                report.state += size
            elif maker.op != "output":
                end = len(self.order) - 1 if key in returned else last[key]
                report.lifetimes.append(Lifetime(maker, None if key in returned else self.order[end], size))
                change[at[maker]] += size
                change[end + 1] -= size
        held = 0
        for node, step in zip(self.order, change, strict=False):
            held += step
            report.live[node] = held
        return report
