"""Nodes and edits: links, users, names, insertion points, rollback, copies."""

from __future__ import annotations

import collections
import copy
import operator
import pickle
from typing import Any, NamedTuple

import pytest
import torch

from framecap.graph import Graph, GraphError, Node, check


class Pair(NamedTuple):
    first: Any
    second: Any


def chain(length: int) -> tuple[Graph, list[Node]]:
    graph = Graph()
    nodes = [graph.placeholder("x")]
    for _ in range(length):
        nodes.append(graph.call_function(torch.relu, (nodes[-1],)))
    return graph, nodes


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_arguments_and_users_agree_in_every_container() -> None:
    graph = Graph()
    a, b, c, d, e = (graph.placeholder(name) for name in "abcde")
    user = graph.call_function(print, ((a, [b]), slice(None, c)), {"k": {"x": Pair(d, 1)}, "again": a})
    assert user.all_input_nodes == [a, b, c, d]
    assert [list(n.users) for n in (a, b, c, d, e)] == [[user]] * 4 + [[]]
    user.args = (e,)
    assert user.all_input_nodes == [e, d, a]
    assert [list(n.users) for n in (a, b, c, d, e)] == [[user], [], [], [user], [user]]
    user.kwargs = {}
    user.update_arg(0, a)
    user.update_kwarg("late", b)
    assert user.args == (a,) and user.kwargs == {"late": b}
    graph.output(user)
    check(graph)


def test_arguments_are_not_shared_with_the_caller() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    items, table = [x], {"k": [1]}
    node = graph.call_function(torch.cat, (items,), {"t": table})
    items.append(y)
    table["k"].append(y)
    assert node.args == ([x],) and node.kwargs == {"t": {"k": [1]}} and not y.users


def test_named_tuples_keep_their_class_and_other_objects_their_identity() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    plain, held = Pair(1, "a"), collections.OrderedDict(a=1)
    node = graph.call_function(print, (Pair(x, [1]), plain, held, torch.Size([1])))
    assert type(node.args[0]) is Pair and node.args[0].first is x
    assert node.args[1] is plain and node.args[2] is held and type(node.args[3]) is torch.Size


@pytest.mark.parametrize("make", [lambda x: {x}, lambda x: collections.OrderedDict(a=x), lambda x: {x: 1},
                                  lambda x: [collections.deque([x])], lambda x: {(1, x): 1}])  # fmt: skip
def test_nodes_in_other_containers_are_refused(make: Any) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    with pytest.raises(GraphError, match="node 'print_1': .*node"):
        graph.call_function(print, (make(x),))
    assert names(graph) == ["x"] and not x.users
    assert graph.call_function(print, (x,)).name == "print_1"


def test_wrong_nodes_are_refused() -> None:
    graph, other = Graph(), Graph()
    x, foreign = graph.placeholder("x"), other.placeholder("y")
    with pytest.raises(GraphError, match="'relu' can't use 'y', a node of another graph"):
        graph.call_function(torch.relu, (foreign,))
    gone = graph.placeholder("gone")
    graph.erase_node(gone)
    with pytest.raises(GraphError, match="'gone', which was erased"):
        graph.call_function(torch.relu, (gone,))
    with pytest.raises(GraphError, match="'x' can't use 'x', itself"):
        x.args = (x,)
    with pytest.raises(GraphError, match="no operation of a graph"):
        graph.create_node("call", torch.relu)
    with pytest.raises(GraphError, match="must be callable, not of type str"):
        graph.create_node("call_function", "relu")
    with pytest.raises(GraphError, match="must be a string, not of type builtin"):
        graph.create_node("call_method", torch.relu)
    with pytest.raises(GraphError, match="strings as names"):
        graph.call_function(print, (), {1: x})  # type: ignore[dict-item]


def test_erase_refuses_what_is_used() -> None:
    graph, nodes = chain(2)
    with pytest.raises(GraphError, match="'relu' can't be erased: it is used by 'relu_1'"):
        graph.erase_node(nodes[1])
    graph.erase_node(nodes[2])
    graph.erase_node(nodes[1])
    with pytest.raises(GraphError, match="isn't in this graph"):
        graph.erase_node(nodes[1])
    assert names(graph) == ["x"] and len(graph.nodes) == 1 and not nodes[0].users


def test_rollback_leaves_no_trace() -> None:
    def append(graph: Graph, nodes: list[Node]) -> None:
        for i in range(50):
            function = (torch.relu, torch.add, operator.add)[i % 3]
            hint = (None, "x", "x_1", "relu_7")[i % 4]
            args = (nodes[-1],) if function is torch.relu else (nodes[-1], nodes[0])
            nodes.append(graph.create_node("call_function", function, args, name=hint))

    graph, nodes = chain(3)
    append(graph, nodes)
    first = names(graph)
    for keep in (4, 20, 4, 53):
        graph.truncate(keep)
        assert names(graph) == first[:keep] and len(graph.nodes) == keep
        del nodes[keep:]
        graph.truncate(4)
        del nodes[4:]
        append(graph, nodes)
        assert names(graph) == first
    graph.truncate(0)
    assert names(graph) == [] and graph.placeholder("x").name == "x"


def test_names_after_many_rollbacks_cost_no_search() -> None:
    """Each name is found at once: no set of names is searched longer than it is changed."""
    graph, nodes = chain(1)

    class Counting(dict):  # type: ignore[type-arg]
        asked = 0

        def __contains__(self, item: object) -> bool:
            Counting.asked += 1
            return super().__contains__(item)

    graph._names._taken = Counting(graph._names._taken)
    for _ in range(300):
        graph.truncate(2)
        last = nodes[1]
        for _ in range(20):
            last = graph.call_function(torch.relu, (last,))
    assert Counting.asked < 300 * 20 * 5


def test_insertion_points() -> None:
    graph, (x, a, b) = chain(2)
    with graph.inserting_before(a):
        graph.call_method("first", (x,))
        graph.call_method("second", (x,))
        with graph.inserting_after(b):
            graph.call_method("end", (x,))
            graph.call_method("end2", (x,))
        graph.call_method("third", (x,))
    with graph.inserting_after(x):
        graph.call_method("zeroth", (x,))
    graph.call_method("last", (x,))
    assert names(graph) == ["x", "zeroth", "first", "second", "third", "relu", "relu_1", "end", "end2", "last"]


def test_an_insertion_point_outlives_the_node_it_stands_before() -> None:
    graph, (x, a, b) = chain(2)
    with graph.inserting_before(b):
        graph.erase_node(b)
        graph.call_method("instead", (a,))
        graph.call_method("behind", (a,))
    assert names(graph) == ["x", "relu", "instead", "behind"]
    with pytest.raises(GraphError, match="can't insert next to 'relu_1'"), graph.inserting_after(b):
        pass


def test_moving_nodes() -> None:
    graph = Graph()
    a, b, c = (graph.placeholder(name) for name in "abc")
    a.append(c)
    assert names(graph) == ["a", "c", "b"]
    a.prepend(b)
    assert names(graph) == ["b", "a", "c"]
    a.prepend(b)
    c.append(a)
    assert names(graph) == ["b", "c", "a"] and [n.name for n in reversed(graph.nodes)] == ["a", "c", "b"]
    assert b.next is c and c.prev is b and a.next.op == "root" and b.prev.op == "root"
    with pytest.raises(GraphError, match="expected two nodes of one graph"):
        a.append(a)


def test_nodes_can_be_erased_inserted_and_moved_while_iterating() -> None:
    graph, nodes = chain(6)
    seen = []
    for node in reversed(graph.nodes):
        seen.append(node.name)
        if node.op == "call_function":
            graph.erase_node(node)
    assert seen == ["relu_5", "relu_4", "relu_3", "relu_2", "relu_1", "relu", "x"]
    graph, nodes = chain(4)
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.name == "relu_1":
            graph.truncate(2)  # erases this one and all that follow
    assert seen == ["x", "relu", "relu_1"]
    graph, nodes = chain(2)
    for node in graph.nodes:
        if node.name == "relu":
            with graph.inserting_after(node):
                graph.call_method("new", (node,))
    assert names(graph) == ["x", "relu", "new", "relu_1"]


def test_replacing_uses() -> None:
    graph, (x, a, b) = chain(2)
    other = graph.call_function(torch.add, (a, [a]), {"k": slice(a, 1)})
    with graph.inserting_after(a):
        new = graph.call_method("sigmoid", (a,))
    assert a.replace_all_uses_with(new, where=lambda user: user is not other) == [b]
    assert b.args == (new,) and other.args == (a, [a])
    assert a.replace_all_uses_with(new) == [other]
    assert other.args == (new, [new]) and other.kwargs["k"].start is new
    assert list(a.users) == [new] and list(new.users) == [b, other]


def test_find_and_rename() -> None:
    graph, (x, a, b) = chain(2)

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("targets are compared by identity")

        def __call__(self) -> None: ...

    odd = graph.create_node("call_function", Odd())
    method = graph.call_method("relu", (x,))
    assert graph.find_nodes(op="call_function", target=torch.relu) == [a, b]
    assert graph.find_nodes(target="relu") == [method] and graph.find_nodes(op="placeholder") == [x]
    assert graph.find_nodes(target=odd.target) == [odd]
    assert graph.rename(a, "relu_1") == "relu_3" and graph.rename(a, "relu") == "relu"
    with pytest.raises(GraphError, match="no output"):
        _ = graph.output_node
    assert graph.output(b) is graph.output_node


def test_copies_are_equal_and_independent() -> None:
    graph, (x, a, b) = chain(2)
    weight = torch.ones(2)
    b.update_kwarg("weight", [weight])
    b.meta = {"where": ("f.py", 3), "source": a, "note": weight}
    graph.output((b, a))
    shared, deep, pickled = graph.copy(), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))
    for other in (shared, deep, pickled):
        check(other)
        assert names(other) == names(graph)
        assert [list(map(str, n.users)) for n in other.nodes] == [list(map(str, n.users)) for n in graph.nodes]
        other.erase_node(other.output_node)
        assert other.call_function(torch.relu).name == "relu_2"
    copied = [list(g.nodes)[2] for g in (shared, deep, pickled)]
    assert [n.kwargs["weight"][0] is weight for n in copied] == [True, False, False]
    assert copied[0].meta["source"] is list(shared.nodes)[1]
    assert copied[2].meta == {"where": ("f.py", 3)}, "of meta, pickle keeps plain data"
    assert copy.deepcopy(a).name == "relu" and copy.deepcopy(a).graph is not graph
    assert pickle.loads(pickle.dumps(a)).args[0].name == "x"


def test_a_deep_copy_keeps_what_is_shared() -> None:
    graph = Graph()
    weight = torch.ones(1)
    graph.output([weight, (weight,)])
    first, (second,) = copy.deepcopy(graph).output_node.args[0]
    assert first is second and first is not weight


def test_graph_copy_puts_a_graph_into_another() -> None:
    inner, (x, a, b) = chain(2)
    inner.output({"r": b})
    outer = Graph()
    start = outer.placeholder("relu")
    result = outer.graph_copy(inner, {x: start})
    outer.output(result["r"])
    check(outer)
    assert str(outer) == (
        "graph:\n    %relu = placeholder relu\n    %relu_1 = call_function torch.relu(%relu)\n"
        "    %relu_2 = call_function torch.relu(%relu_1)\n    output %relu_2"
    )


def test_a_long_graph_needs_no_deep_recursion() -> None:
    graph, nodes = chain(5000)
    graph.output(nodes[-1])
    assert len(copy.deepcopy(graph).nodes) == len(pickle.loads(pickle.dumps(graph)).nodes) == 5002
    check(graph)
