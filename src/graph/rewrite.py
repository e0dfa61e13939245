"""Find occurrences of one graph in another, and replace them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, is_named_tuple, map_nodes, nodes_in
from .passes.purity import why_impure
from .state import find

Predicate = Callable[[Any], bool]
_MISSING = object()


class AnyOf:
    """A target in a pattern that stands for any of several, functions or names of methods."""

    __name__ = "any_of"

    def __init__(self, *targets: Any) -> None:
        self.targets = targets

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise GraphError("a pattern with AnyOf can be matched, but not run")

    def holds(self, target: Any) -> bool:
        return any(target is own or (isinstance(own, str) and target == own) for own in self.targets)


class OfType:
    """A target in a pattern that stands for calls of modules of these classes, wherever they lie."""

    __name__ = "of_type"

    def __init__(self, *classes: type[nn.Module]) -> None:
        self.classes = classes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise GraphError("a pattern with OfType can be matched, but not run")


@dataclass(slots=True)
class Match:
    """An occurrence of a pattern. nodes: what stands for each node of the pattern, placeholders excepted, in the pattern's
    order. values: what stands for its placeholders: nodes or constants."""

    nodes: dict[Node, Node]
    values: dict[Node, Any]

    def __getitem__(self, name: str) -> Any:
        """What stands for the pattern's node of this name."""
        for table in (self.nodes, self.values):
            for node, value in table.items():
                if node.name == name:
                    return value
        raise KeyError(name)


def find_matches(
    module: GraphModule,
    pattern: Graph | GraphModule,
    *,
    where: Iterable[Callable[[Match], bool]] = (),
    predicates: dict[str, Predicate] | None = None,
) -> list[Match]:
    """Occurrences of ``pattern`` that don't share nodes, in the order of the module's graph.

    pattern: a graph, such as ``framecap.capture`` makes of a function without example inputs. Its placeholders stand for
    any argument, node or constant; the same one for the same argument everywhere. Its outputs may be used outside, nodes
    between may not. `AnyOf` and `OfType` stand for several targets. predicates: by name of a placeholder or node of the
    pattern, a function that says whether what stands for it will do. where: functions of the whole match, all of which
    must hold. Raises GraphError if the pattern has nodes that lead to none of its outputs.
    """
    wanted = _graph_of(pattern)
    conditions = tuple(where)
    used: set[Node] = set()
    found = []
    anchor = _result_nodes(wanted)[-1]
    for node in module.graph.nodes:
        match = _Matcher(module, wanted, predicates or {}).match(anchor, node)
        if match is None or not used.isdisjoint(match.nodes.values()):
            continue
        if _is_closed(wanted, match) and all(condition(match) for condition in conditions):
            used.update(_work(wanted, match))
            found.append(match)
    return found


def replace_pattern(
    module: GraphModule,
    pattern: Graph | GraphModule,
    replacement: Graph | GraphModule,
    *,
    where: Iterable[Callable[[Match], bool]] = (),
    predicates: dict[str, Predicate] | None = None,
) -> list[Match]:
    """Put ``replacement`` in the place of each occurrence of ``pattern`` (see `find_matches`); recompiles the module.

    The replacement has the pattern's placeholders, by name, or fewer, and as many outputs. It may use modules and
    parameters of ``module`` by their paths. What it puts in carries the place in the user's code of what it
    replaces. An occurrence that has an operator with effects between its nodes is left as it is. Returns the matches that were
    replaced, whose nodes are erased then. Raises GraphError if the two graphs don't fit each other or the module.

    Before: ``y = torch.relu(x + 1)``. After, with ``torch.relu(x)`` as pattern and ``F.gelu(x)`` as replacement:
    ``y = F.gelu(x + 1)``.
    """
    wanted, new = _graph_of(pattern), _graph_of(replacement)
    given = {node.name: node for node in wanted.nodes if node.op == "placeholder"}
    unknown = [node.name for node in new.nodes if node.op == "placeholder" and node.name not in given]
    if unknown:
        raise GraphError(f"the replacement has the input {unknown[0]!r}, which the pattern hasn't; it has {list(given)}")
    if len(_results(wanted)) != len(_results(new)):
        raise GraphError(f"the pattern has {len(_results(wanted))} outputs, but the replacement has {len(_results(new))}")
    for node in new.nodes:
        if node.op in ("get_attr", "call_module"):
            find(module, node.target)
    replaced: list[Match] = []
    # What a replacement put in may be an input of a later match.
    moved: dict[Node, Any] = {}
    for match in find_matches(module, wanted, where=where, predicates=predicates):
        match.values = {key: _now(value, moved) for key, value in match.values.items()}
        point = _place_for(module, wanted, match)
        if point is None:
            continue
        _replace(module.graph, wanted, new, match, point, moved)
        replaced.append(match)
    if replaced:
        module.recompile()
    return replaced


def _graph_of(pattern: Graph | GraphModule) -> Graph:
    return pattern.graph if isinstance(pattern, GraphModule) else pattern


def _results(pattern: Graph) -> list[Any]:
    value = pattern.output_node.args[0]
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _result_nodes(pattern: Graph) -> list[Node]:
    found = [value for value in _results(pattern) if isinstance(value, Node) and value.op != "placeholder"]
    if len(found) != len(_results(pattern)):
        raise GraphError("a pattern must return what its operators compute, one or several in a tuple")
    inside = set(found)
    for node in found:
        inside.update(_needed(node))
    unused = [n for n in pattern.nodes if n.op not in ("placeholder", "output") and n not in inside]
    if unused:
        raise GraphError(f"the pattern's node {unused[0].name!r} leads to none of its outputs")
    return sorted(found, key=list(pattern.nodes).index)


def _needed(node: Node) -> set[Node]:
    found: set[Node] = set()
    todo = [node]
    while todo:
        for used in todo.pop().all_input_nodes:
            if used not in found:
                found.add(used)
                todo.append(used)
    return found


class _Matcher:
    """One attempt to match, from the pattern's last output backwards."""

    def __init__(self, module: GraphModule, pattern: Graph, predicates: dict[str, Predicate]) -> None:
        self.module = module
        self.pattern = pattern
        self.predicates = predicates
        self.nodes: dict[Node, Node] = {}
        self.values: dict[Node, Any] = {}

    def match(self, anchor: Node, node: Node) -> Match | None:
        if not self.node(anchor, node) or not self.other_results():
            return None
        order = [n for n in self.pattern.nodes if n in self.nodes]
        return Match({n: self.nodes[n] for n in order}, self.values)

    def other_results(self) -> bool:
        """Match outputs that the others don't lead to, by way of the inputs they share with what has been matched."""
        for result in reversed(_result_nodes(self.pattern)):
            if result not in self.nodes and not self.by_shared_input(result):
                return False
        return True

    def by_shared_input(self, result: Node) -> bool:
        for candidate in self.candidates(result):
            nodes, values = dict(self.nodes), dict(self.values)
            if candidate not in nodes.values() and self.node(result, candidate):
                return True
            self.nodes, self.values = nodes, values
        return False

    def candidates(self, wanted: Node) -> Iterator[Node]:
        """Nodes that may stand for one whose inputs were matched in part."""
        for used in wanted.all_input_nodes:
            here = self.nodes.get(used, self.values.get(used))
            if isinstance(here, Node):
                yield from list(here.users)
            elif here is None:
                for inner in self.candidates(used):
                    yield from list(inner.users)

    def node(self, wanted: Node, node: Node) -> bool:
        if wanted in self.nodes:
            return self.nodes[wanted] is node
        if node in self.nodes.values() or not self.same_call(wanted, node):
            return False
        self.nodes[wanted] = node
        args, kwargs = node.args, node.kwargs
        if len(args) != len(wanted.args) or set(kwargs) != set(wanted.kwargs):
            return False
        if not all(map(self.value, wanted.args, args)):
            return False
        if not all(self.value(value, kwargs[key]) for key, value in wanted.kwargs.items()):
            return False
        return self.fits(wanted, node)

    def same_call(self, wanted: Node, node: Node) -> bool:
        if isinstance(wanted.target, OfType):
            return node.op == "call_module" and isinstance(find(self.module, node.target), wanted.target.classes)
        if isinstance(wanted.target, AnyOf):
            return node.op in ("call_function", "call_method") and wanted.target.holds(node.target)
        if wanted.op != node.op:
            return False
        return node.target is wanted.target or (isinstance(wanted.target, str) and node.target == wanted.target)

    def fits(self, wanted: Node, value: Any) -> bool:
        predicate = self.predicates.get(wanted.name)
        return predicate is None or bool(predicate(value))

    def value(self, wanted: Any, value: Any) -> bool:
        if isinstance(wanted, Node):
            if wanted.op != "placeholder":
                return isinstance(value, Node) and self.node(wanted, value)
            known = self.values.get(wanted, _MISSING)
            if known is not _MISSING:
                return _same_argument(known, value)
            self.values[wanted] = value
            return self.fits(wanted, value)
        kind = type(wanted)
        if kind is not type(value):
            return False
        if kind in (tuple, list) or is_named_tuple(kind):
            return len(wanted) == len(value) and all(map(self.value, wanted, value))
        if kind is dict:
            return list(wanted) == list(value) and all(self.value(wanted[key], value[key]) for key in wanted)
        if kind is slice:
            return self.value((wanted.start, wanted.stop, wanted.step), (value.start, value.stop, value.step))
        return _same_argument(wanted, value)


def _same_argument(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, (Node, torch.Tensor)):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same_argument, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, slice):
        return _same_argument((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return bool(a == b)


def _is_closed(pattern: Graph, match: Match) -> bool:
    """Whether only outputs of the pattern are used outside of the match."""
    results = set(_result_nodes(pattern))
    inside = set(match.nodes.values())
    # An attribute of the module is read, not computed: others may read it, too.
    return all(
        wanted in results or node.op == "get_attr" or all(user in inside for user in node.users)
        for wanted, node in match.nodes.items()
    )


def _work(pattern: Graph, match: Match) -> set[Node]:
    """The nodes that a replacement takes the place of. Others only read attributes of the module: where they stand, and who
    else uses them, doesn't matter."""
    results = _results(pattern)
    return {node for wanted, node in match.nodes.items() if node.op != "get_attr" or wanted in results}


def _place_for(module: GraphModule, pattern: Graph, match: Match) -> Node | None:
    """The node before which a replacement can stand: behind all inputs, before all users; None if there is none.

    None, too, if something with effects would change places with something else.
    """
    inside = _work(pattern, match)
    inputs = {node for value in match.values.values() for node in nodes_in((value,))}
    first, last = _span(inside)
    between: list[Node] = []
    node = first
    while node is not last:
        if node not in inside:
            between.append(node)
        node = node.next
    user = next((n for n in between if not inside.isdisjoint(n.all_input_nodes)), None)
    behind = between[between.index(user) :] if user is not None else []
    if not inputs.isdisjoint(behind):
        return None
    passed = [n for n in between if n.op != "get_attr"]
    if passed and any(why_impure(n, module) is not None for n in (*inside, *passed)):
        return None
    return user if user is not None else last.next


def _span(nodes: set[Node]) -> tuple[Node, Node]:
    """The first and the last of some nodes in the graph's order, found from one of them to both sides."""
    first = last = left = right = next(iter(nodes))
    missing = len(nodes) - 1
    while missing:
        left, right = left.prev if left.op != "root" else left, right.next if right.op != "root" else right
        if left in nodes:
            first, missing = left, missing - 1
        if right in nodes:
            last, missing = right, missing - 1
    return first, last


def _now(value: Any, moved: dict[Node, Any]) -> Any:
    return map_nodes(value, lambda node: moved.get(node, node))


def _replace(graph: Graph, pattern: Graph, new: Graph, match: Match, point: Node, moved: dict[Node, Any]) -> None:
    by_name = {node.name: value for node, value in match.values.items()}
    known: dict[Node, Any] = {node: by_name[node.name] for node in new.nodes if node.op == "placeholder"}
    olds = [match.nodes[result] for result in _results(pattern)]
    with graph.inserting_before(point):
        for node in new.nodes:
            if node.op == "output" or node in known:
                continue
            made = known[node] = graph.node_copy(node, known.__getitem__)
            made.meta = {key: value for key, value in olds[-1].meta.items() if key in ("where", "stack", "module")}
    for old, result in zip(olds, _results(new), strict=True):
        value = moved[old] = known[result] if isinstance(result, Node) else result
        old.replace_all_uses_with(value)
    for node in reversed(list(match.nodes.values())):
        if not node.users:
            graph.erase_node(node)
