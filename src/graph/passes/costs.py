"""What each node costs: floating point operations, bytes of memory traffic, bytes of weights and of results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, function_name
from ..state import Root, find
from .fake import faking

COLUMNS = ("flops", "elementwise", "bytes_read", "bytes_written", "parameter_bytes", "result_bytes")


@dataclass(slots=True)
class Cost:
    """Costs of one node, or of several.

    flops: of matrix products, convolutions and attention, two for a multiplication with an addition, as counted by
    torch.utils.flop_counter. elementwise: results of pointwise operators and inputs of reductions, one operation each; no
    part of flops. bytes_read, bytes_written: memory traffic if every operator reads its inputs from memory and writes its
    results there; views cost none. parameter_bytes: parameters and buffers used, each counted once in a sum.
    result_bytes: of the node's result, if it is new memory.
    """

    flops: int = 0
    elementwise: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    parameter_bytes: int = 0
    result_bytes: int = 0

    @property
    def intensity(self) -> float:
        """Operations for each byte of memory traffic."""
        return (self.flops + self.elementwise) / max(self.bytes_read + self.bytes_written, 1)

    def seconds(self, flops_per_second: float, bytes_per_second: float) -> float:
        """The least time that a machine with these peaks needs (the roofline model)."""
        traffic = self.bytes_read + self.bytes_written
        return max((self.flops + self.elementwise) / flops_per_second, traffic / bytes_per_second)

    def add(self, other: Cost) -> None:
        for name in COLUMNS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class CostReport:
    """Costs by node, in the graph's order."""

    nodes: dict[Node, Cost]
    state: dict[Node, dict[int, int]] = field(default_factory=dict)
    """The parameters and buffers that a node uses: bytes by identity."""

    @property
    def total(self) -> Cost:
        return self._sum(self.nodes)

    def by_module(self, depth: int = 1) -> dict[str, Cost]:
        """Sums over the modules at this depth of the hierarchy; "" for what stands outside of any."""
        groups: dict[str, list[Node]] = {}
        for node in self.nodes:
            groups.setdefault(".".join(module_path(node).split(".")[:depth]), []).append(node)
        return {path: self._sum(nodes) for path, nodes in groups.items()}

    def seconds(self, flops_per_second: float, bytes_per_second: float) -> float:
        """The least time of the whole, node after node."""
        return sum(cost.seconds(flops_per_second, bytes_per_second) for cost in self.nodes.values())

    def table(self, depth: int | None = None) -> str:
        """As text: a line for each node, or for each module at ``depth``, and the total."""
        if depth is None:
            rows = [(node.name, _what(node), cost) for node, cost in self.nodes.items() if any(_numbers(cost))]
        else:
            rows = [(path or "(top)", "", cost) for path, cost in self.by_module(depth).items() if any(_numbers(cost))]
        rows.append(("total", "", self.total))
        cells = [["name", "what", "MFLOP", "Melem", "MB read", "MB written", "MB state", "MB result", "op/byte"]]
        for name, what, cost in rows:
            cells.append([name, what, *(f"{n / 1e6:,.2f}" for n in _numbers(cost)), f"{cost.intensity:.2f}"])
        if not any(row[1] for row in cells[1:]):
            cells = [[row[0], *row[2:]] for row in cells]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        left = 2 if cells[0][1] == "what" else 1
        lines = [
            "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in cells
        ]
        lines.insert(1, "-" * len(lines[0]))
        lines.insert(-1, "-" * len(lines[0]))
        return "\n".join(line.rstrip() for line in lines)

    def _sum(self, nodes: Any) -> Cost:
        total = Cost()
        used: dict[int, int] = {}
        for node in nodes:
            total.add(self.nodes[node])
            used.update(self.state.get(node, {}))
        total.parameter_bytes = sum(used.values())
        return total


def estimate_costs(module: GraphModule, *args: Any, **kwargs: Any) -> CostReport:
    """The costs of a call with these arguments, of which only shapes and types matter: nothing is computed.

    Each node's is noted in ``meta["cost"]``, too. Operators are counted as torch executes them, below modules and
    functions, so a module as one node costs what it does inside. The sum of ``flops`` is what
    torch.utils.flop_counter.FlopCounterMode counts for the call.
    """
    with faking(module) as (root, to_fake):
        counter = _Counter(root, module)
        counter.run(*to_fake(args), **to_fake(kwargs))
    for node, cost in counter.costs.items():
        node.meta["cost"] = cost
    return CostReport(counter.costs, counter.state)


def module_path(node: Node) -> str:
    """The path of the module that a node belongs to: the one it calls, or in whose forward it stands."""
    if node.op == "call_module":
        return str(node.target)
    if node.op == "get_attr":
        return str(node.target).rpartition(".")[0]
    return str(node.meta.get("module", ""))


class _Counter(Interpreter):
    """Runs a fake copy of a module, node by node of the module's own graph."""

    def __init__(self, fake: Root, module: GraphModule) -> None:
        super().__init__(fake, module.graph)
        self.real = module
        self.costs: dict[Node, Cost] = {}
        self.state: dict[Node, dict[int, int]] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        from torch.utils.flop_counter import FlopCounterMode  # not cheap to import

        with torch.no_grad(), FlopCounterMode(display=False) as self.flops, _Traffic() as self.traffic:
            return super().run(*args, **kwargs)

    def run_node(self, node: Node) -> Any:
        before, self.traffic.cost = self.flops.get_total_flops(), Cost()
        value = super().run_node(node)
        cost = self.costs[node] = self.traffic.cost
        cost.flops = self.flops.get_total_flops() - before
        if node.op in ("get_attr", "call_module"):
            self.state[node] = dict(_state_bytes(find(self.real, node.target)))
            cost.parameter_bytes = sum(self.state[node].values())
        if cost.bytes_written:
            cost.result_bytes = sum(_bytes(tensor) for tensor in tensors_in(value))
        return value


class _Traffic(TorchDispatchMode):
    """Adds up what operators read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.cost = Cost()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        returns = function._schema.returns
        if returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            return result  # a view
        inputs, outputs = list(tensors_in((args, kwargs))), list(tensors_in(result))
        if not outputs:
            return result  # a question, such as for the device
        self.cost.bytes_read += sum(map(_bytes, inputs))
        self.cost.bytes_written += sum(map(_bytes, outputs))
        if torch.Tag.pointwise in function.tags:
            self.cost.elementwise += sum(t.numel() for t in outputs)
        elif function._opname in _REDUCTIONS:
            self.cost.elementwise += sum(t.numel() for t in inputs[:1])
        return result


_REDUCTIONS = frozenset(
    """sum mean amax amin max min argmax argmin prod var std norm logsumexp all any cumsum cumprod _softmax _log_softmax
    native_layer_norm native_batch_norm native_group_norm _native_batch_norm_legit var_mean std_mean linalg_vector_norm
    avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices""".split()
)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _state_bytes(value: Any) -> Iterator[tuple[int, int]]:
    tensors = [value] if isinstance(value, torch.Tensor) else []
    if isinstance(value, nn.Module):
        tensors = [*value.parameters(), *value.buffers()]
    for tensor in tensors:
        yield id(tensor), _bytes(tensor)


def _numbers(cost: Cost) -> list[int]:
    return [getattr(cost, name) for name in COLUMNS]


def _what(node: Node) -> str:
    if node.op in ("placeholder", "output", "get_attr"):
        return node.op
    return node.target if isinstance(node.target, str) else function_name(node.target)
