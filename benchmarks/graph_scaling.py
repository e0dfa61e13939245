"""Time per node to build, edit, check, copy and write graphs of growing length: constant if all of it is linear.

python -m benchmarks.graph_scaling
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.table import markdown
from framecap.graph import Graph, GraphModule, check, from_text, generate, replace_pattern, to_text
from framecap.graph.passes import eliminate_common_subexpressions, eliminate_dead_code

SIZES = (1_000, 10_000, 100_000)


def build(count: int) -> Graph:
    """A chain of additions and relus, with one unused and one repeated node in ten."""
    graph = Graph()
    value = graph.placeholder("x")
    for i in range(count // 2):
        added = graph.call_function(operator.add, (value, i % 7))
        if i % 10 == 0:
            graph.call_function(torch.neg, (added,))
            again = graph.call_function(operator.add, (value, i % 7))
            added = graph.call_function(operator.mul, (added, again))
        value = graph.call_method("relu", (added,))
    graph.output(value)
    return graph


def edit(graph: Graph) -> None:
    """Insert a node behind every tenth, let its users use it, and erase it again."""
    for i, node in enumerate(list(graph.nodes)):
        if i % 10 == 5 and node.op == "call_method":
            with graph.inserting_after(node):
                made = graph.call_function(torch.abs, (node,))
            node.replace_all_uses_with(made)
            made.replace_all_uses_with(node)
            graph.erase_node(made)


def there_and_back(graph: Graph) -> Graph:
    return from_text(to_text(graph))


def pattern() -> Graph:
    graph = Graph()
    graph.output(graph.call_method("relu", (graph.placeholder("x"),)))
    return graph


def replacement() -> Graph:
    graph = Graph()
    graph.output(graph.call_function(torch.sigmoid, (graph.placeholder("x"),)))
    return graph


def main() -> None:
    rows: dict[str, list[object]] = {}

    def timed(name: str, call: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = call()
        rows.setdefault(name, [name]).append((time.perf_counter() - start) / len(made.nodes) * 1e6)
        return result

    for size in SIZES:
        made = build(100)  # the first graph is slower
        start = time.perf_counter()
        made = build(size)
        rows.setdefault("build", ["build"]).append((time.perf_counter() - start) / len(made.nodes) * 1e6)
        timed("edit", partial(edit, made))
        timed("check", partial(check, made))
        timed("copy", made.copy)
        timed("generate code", partial(generate, made))
        timed("text and back", partial(there_and_back, made))
        timed("common subexpressions", partial(eliminate_common_subexpressions, made))
        timed("dead code", partial(eliminate_dead_code, made))
        module = GraphModule(nn.Module(), made)
        timed("replace a pattern everywhere", partial(replace_pattern, module, pattern(), replacement()))
    print(markdown(("microseconds a node", *(f"{size:,} nodes" for size in SIZES)), list(rows.values())))


if __name__ == "__main__":
    main()
