"""Cut a graph into parts that are graph modules of their own, called by a graph of the whole."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_nodes, nodes_in
from .passes.purity import why_impure
from .state import find

Rule = Callable[[Node], int | str]


@dataclass(slots=True)
class Part:
    """A part of a split module. label: what the rule said of its nodes. inputs: nodes of the split graph whose values it
    takes, in order; outputs: those whose values it gives."""

    name: str
    label: int | str
    module: GraphModule
    inputs: list[Node]
    outputs: list[Node]


def split(module: GraphModule, rule: Rule, *, name: str = "part") -> tuple[GraphModule, list[Part]]:
    """Cut a graph by a rule: nodes that it gives the same label go to one part, as far as the order allows.

    rule: called once for each node but placeholders, attributes and the output; its labels can be numbers or names.
    A label comes back as a second part where one part would depend on itself by way of another, or would carry something
    with effects past what it may affect. Returns a module that calls the parts ``part_0``, ``part_1``, ... in order, and
    the parts; state is shared with ``module``, each part having what it uses. Placeholders' names and defaults stay.
    """
    return _assemble(module, [
        _make_part(module, f"{name}_{i}", label, nodes) for i, (label, nodes) in enumerate(_assign(module, rule))
    ])  # fmt: skip


def split_by_support(module: GraphModule, supported: Callable[[Node], bool]) -> tuple[GraphModule, list[Part]]:
    """Cut a graph into parts whose operators a backend supports, labelled "supported", and the "eager" rest."""
    return split(module, lambda node: "supported" if supported(node) else "eager")


def split_into_stages(
    module: GraphModule, count: int, cost: Callable[[Node], float] = lambda node: 1.0
) -> tuple[GraphModule, list[Part]]:
    """Cut a graph into ``count`` stages of consecutive nodes whose most expensive one is as cheap as can be.

    cost: of a node, in any unit, such as its FLOPs from `passes.estimate_costs`. Every value that a later stage needs is
    passed on from stage to stage, so each takes what the one before gives; the first takes all inputs. Raises GraphError
    if there are fewer nodes than stages.
    """
    nodes = [node for node in module.graph.nodes if _is_work(node)]
    if not 1 <= count <= len(nodes):
        raise GraphError(f"a graph of {len(nodes)} operators can't be cut into {count} stages")
    stage = dict(zip(nodes, _balance([float(cost(node)) for node in nodes], count), strict=True))
    return _chain(module, [[node for node in nodes if stage[node] == i] for i in range(count)])


def _is_work(node: Node) -> bool:
    return node.op not in ("placeholder", "get_attr", "output")


def _assign(module: GraphModule, rule: Rule) -> list[tuple[int | str, list[Node]]]:
    """Parts in an order in which they can be executed: each has a label and nodes in the graph's order."""
    labels: list[int | str] = []
    place: dict[Node, int] = {}
    current: dict[int | str, int] = {}
    barrier = 0  # no node may go to a part before this one
    newest = 0  # the last part that has a node
    for node in module.graph.nodes:
        if not _is_work(node):
            continue
        label = rule(node)
        earliest = max([barrier, *(place[used] for used in node.all_input_nodes if used in place)])
        effects = why_impure(node, module) is not None
        if effects:
            # What comes before in the program must come before here, too.
            earliest = max(earliest, newest)
        index = current.get(label, -1)
        if index < earliest:
            if earliest < len(labels) and labels[earliest] == label:
                index = earliest
            else:
                index = len(labels)
                labels.append(label)
            current[label] = index
        place[node] = index
        newest = max(newest, index)
        if effects:
            barrier = index
    parts: list[list[Node]] = [[] for _ in labels]
    for node, index in place.items():
        parts[index].append(node)
    return list(zip(labels, parts, strict=True))


def _make_part(
    module: GraphModule, path: str, label: int | str, nodes: Sequence[Node], passed: Sequence[Node] | None = None,
    inputs: Sequence[Node] | None = None,
) -> Part:  # fmt: skip
    """A part of these nodes. passed, inputs: what it gives and takes, if that isn't just what is needed."""
    inside = set(nodes)
    if inputs is None:
        needed = dict.fromkeys(used for node in nodes for used in node.all_input_nodes)
        inputs = [used for used in needed if used not in inside and used.op != "get_attr"]
    if passed is None:
        passed = [node for node in nodes if any(user not in inside for user in node.users)]
    graph = Graph()
    known: dict[Node, Node] = {}
    for node in inputs:
        made = known[node] = graph.placeholder(node.name)
        made.meta = dict(node.meta)
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in known:
                known[used] = graph.node_copy(used, known.__getitem__)
        known[node] = graph.node_copy(node, known.__getitem__)
    for node in passed:
        if node.op == "get_attr" and node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    results = [known[node] for node in passed]
    graph.output(results[0] if len(results) == 1 else tuple(results))
    return Part(path, label, GraphModule(module, graph, module._class_name), list(inputs), list(passed))


def _take_results(outer: Graph, call: Node, outputs: Sequence[Node], known: dict[Node, Node]) -> None:
    if len(outputs) == 1:
        known[outputs[0]] = call
        return
    for i, node in enumerate(outputs):
        made = known[node] = outer.create_node("call_function", operator.getitem, (call, i), name=node.name)
        made.meta = dict(node.meta)


def _balance(costs: Sequence[float], count: int) -> list[int]:
    """The stage of each of consecutive costs, so that the largest sum of a stage is the least possible."""
    low, high = max(costs), sum(costs)
    for _ in range(60):
        middle = (low + high) / 2
        if _fill(costs, middle)[-1] < count:
            high = middle
        else:
            low = middle
    stages = _fill(costs, high)
    # Fewer stages than asked for: cut the fullest further, from the end, so that none is empty.
    missing = count - 1 - stages[-1]
    for i in range(len(costs) - 1, 0, -1):
        if missing and stages[i] == stages[i - 1]:
            stages[i:] = [stage + 1 for stage in stages[i:]]
            missing -= 1
    return stages


def _fill(costs: Sequence[float], limit: float) -> list[int]:
    stages = []
    stage, held = 0, 0.0
    for i, cost in enumerate(costs):
        if i and held + cost > limit:
            stage, held = stage + 1, 0.0
        held += cost
        stages.append(stage)
    return stages


def _chain(module: GraphModule, groups: Iterable[Sequence[Node]]) -> tuple[GraphModule, list[Part]]:
    """Stages that each take what the one before gives."""
    stages = list(groups)
    graph = module.graph
    result = graph.output_node
    wanted = list(nodes_in(result.args))
    live: list[list[Node]] = []  # what each stage gives
    after: dict[Node, None] = dict.fromkeys(wanted)
    for nodes in reversed(stages):
        live.append(list(after))
        inside = set(nodes)
        before = dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used.op != "get_attr")
        after = {node: None for node in (*before, *after) if node not in inside and node.op != "get_attr"}
    live.reverse()
    taken = [node for node in graph.nodes if node.op == "placeholder"]
    parts = []
    for i, (nodes, gives) in enumerate(zip(stages, live, strict=True)):
        parts.append(_make_part(module, f"stage_{i}", i, nodes, passed=gives, inputs=taken))
        taken = gives
    return _assemble(module, parts)


def _assemble(module: GraphModule, parts: list[Part]) -> tuple[GraphModule, list[Part]]:
    """The module that calls the parts in order, and the parts."""
    outer = Graph()
    known: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            known[node] = outer.node_copy(node, known.__getitem__)
    for part in parts:
        call = outer.call_module(part.name, tuple(known[node] for node in part.inputs))
        _take_results(outer, call, part.outputs, known)
    result = module.graph.output_node
    for used in nodes_in(result.args):
        if used not in known:
            known[used] = outer.node_copy(used, known.__getitem__)
    outer.output(map_nodes(result.args[0], known.__getitem__))
    attributes = {node.target: find(module, node.target) for node in outer.find_nodes(op="get_attr")}
    whole = GraphModule({**{part.name: part.module for part in parts}, **attributes}, outer, module._class_name)
    whole.training = module.training
    whole.meta.update(module.meta)
    return whole, parts
