"""Generated code: what it looks like, that it means the graph, and that it can be debugged."""

from __future__ import annotations

import gc
import inspect
import linecache
import math
import operator
import struct
import traceback
import types
import warnings
import weakref
from collections import namedtuple
from typing import Any

import pytest
import torch
from graph_helpers import assert_all_agree, same

from framecap.graph import Graph, GraphError, GraphModule, Node, compile_function, generate

Point = namedtuple("Point", "x y")


def source_of(build: Any, state: str = "self") -> list[str]:
    graph = Graph()
    graph.output(build(graph, graph.placeholder("x")))
    return [line.strip() for line in generate(graph, state=state).source.splitlines()]


def expression(function: Any, *args: Any, **kwargs: Any) -> str:
    """How a call is written; "x" among the arguments is the input."""
    lines = source_of(lambda g, x: g.call_function(function, tuple(x if a == "x" else a for a in args), kwargs))
    return lines[1].partition(" = ")[2].removesuffix("; del x")


class Custom:
    def __call__(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    "text, function, args",
    [
        ("torch.add(x, 1)", torch.add, ("x", 1)),
        ("torch.nn.functional.gelu(x)", torch.nn.functional.gelu, ("x",)),
        ("torch.nn.functional.relu(x)", torch.nn.functional.relu, ("x",)),
        ("torch.linalg.norm(x)", torch.linalg.norm, ("x",)),
        ("torch.fft.fft(x)", torch.fft.fft, ("x",)),
        ("torch.einsum('ii', x)", torch.einsum, ("ii", "x")),
        ("torch.Tensor.add(x, x)", torch.Tensor.add, ("x", "x")),
        ("torch.nn.init.zeros_(x)", torch.nn.init.zeros_, ("x",)),
        ("torch.ops.aten.add.Tensor(x, x)", torch.ops.aten.add.Tensor, ("x", "x")),
        ("torch.ops.aten.add(x, x)", torch.ops.aten.add, ("x", "x")),
        ("math.sqrt(x)", math.sqrt, ("x",)),
        ("operator.index(x)", operator.index, ("x",)),
        ("len(x)", len, ("x",)),
        ("isinstance(x, torch.Tensor)", isinstance, ("x", torch.Tensor)),
        ("isinstance(x, (int, torch.Size))", isinstance, ("x", (int, torch.Size))),
        ("Custom_1(x)", Custom(), ("x",)),
        ("Custom_1(x)", Custom, ("x",)),
        ("lambda_2(x)", lambda x: x, ("x",)),
        ("source_of_1(x)", source_of, ("x",)),
        ("x + 1", operator.add, ("x", 1)),
        ("x + (-1)", operator.add, ("x", -1)),
        ("(-2.0) ** x", operator.pow, (-2.0, "x")),
        ("x ** 2", operator.pow, ("x", 2)),
        ("[1] @ x", operator.matmul, ([1], "x")),
        ("1 <= x", operator.le, (1, "x")),
        ("-x", operator.neg, ("x",)),
        ("not x", operator.not_, ("x",)),
        ("x is None", operator.is_, ("x", None)),
        ("operator.is_(x, 1)", operator.is_, ("x", 1)),
        ("'a' in x", operator.contains, ("x", "a")),
        ("operator.add(1, 2)", operator.add, (1, 2)),
        ("operator.neg(1)", operator.neg, (1,)),
        ("operator.getitem((1, 2), x)", operator.getitem, ((1, 2), "x")),
        ("x[0]", operator.getitem, ("x", 0)),
        ("x[()]", operator.getitem, ("x", ())),
        ("x[1,]", operator.getitem, ("x", (1,))),
        ("x[:]", operator.getitem, ("x", slice(None))),
        ("x[1:-1:2, ..., None]", operator.getitem, ("x", (slice(1, -1, 2), ..., None))),
        ("x[(0, slice(1, None, None)), [1, 2]]", operator.getitem, ("x", ((0, slice(1, None)), [1, 2]))),
        ("x[:, Point(1, slice(None, 2, None))]", operator.getitem, ("x", (slice(None), Point(1, slice(2))))),
        ("x.shape", getattr, ("x", "shape")),
        ("getattr(x, 'class')", getattr, ("x", "class")),
        ("getattr(x, 'ﬁ')", getattr, ("x", "ﬁ")),
        ("getattr(x, 'shape', None)", getattr, ("x", "shape", None)),
    ],
)
def test_how_functions_are_written(text: str, function: Any, args: tuple[Any, ...]) -> None:
    assert expression(function, *args) == text


@pytest.mark.parametrize(
    "text, value",
    [
        ("-1", -1), ("1.5", 1.5), ("-0.0", -0.0), ("inf", math.inf), ("minus_inf", -math.inf), ("nan", math.nan),
        ("complex(-0.0, 1.0)", complex(-0.0, 1)), ("complex(nan, inf)", complex(math.nan, math.inf)),
        ("True", True), ("None", None), ("...", ...), ("'a\\nb'", "a\nb"), ("b'\\x00'", b"\0"), ("'\\ud800'", "\ud800"),
        ("torch.float32", torch.float32), ("device_cpu", torch.device("cpu")), ("device_cuda_1", torch.device("cuda:1")),
        ("torch.strided", torch.strided), ("torch.channels_last", torch.channels_last), ("torch.Size((2, 3))", torch.Size([2, 3])),
        ("Point(1, [])", Point(1, [])), ("slice(None, 1, None)", slice(1)), ("{'a': (1,), 2: {}}", {"a": (1,), 2: {}}),
        ("int", int), ("torch.relu", torch.relu), ("tensor", torch.ones(2)), ("range(0, 3, 1)", range(3)),
        ("generator", torch.Generator()),
        ("_ParameterKind_POSITIONAL_ONLY", inspect.Parameter.POSITIONAL_ONLY),
    ],
)  # fmt: skip
def test_how_values_are_written(text: str, value: Any) -> None:
    graph = Graph()
    graph.output(value)
    generated = generate(graph)
    assert generated.source.splitlines()[1] == f"    return {text}"
    result = (
        assert_all_agree(graph, {}) if not isinstance(value, torch.Generator) else compile_function(generated)(None)
    )
    assert type(result) is type(value) and (same(result, value) or isinstance(value, torch.Generator))


def test_nan_keeps_its_bits_and_identity() -> None:
    odd = struct.unpack("d", struct.pack("Q", 0xFFF8000000000123))[0]
    graph = Graph()
    graph.output([odd, math.nan, odd, (odd,), math.inf, -math.inf, float("inf")])
    result = compile_function(generate(graph))(None)
    assert result[0] is odd and result[1] is math.nan and result[2] is odd and result[3][0] is odd
    assert result[4:] == [math.inf, -math.inf, math.inf]


def test_integers_longer_than_python_will_print() -> None:
    graph = Graph()
    value = 10**5000 + 7
    x = graph.placeholder("x")
    graph.output([value, -value, graph.call_function(operator.add, (value, x))])
    assert GraphModule({}, graph)(1) == [value, -value, value + 1]
    assert len(str(graph)) < 1000


def test_lists_and_dicts_are_new_in_each_call() -> None:
    graph = Graph()
    graph.output([[], {}, {"k": [1]}])
    run = compile_function(generate(graph))
    run(None)[2]["k"].append(2)
    run(None)[0].append(1)
    assert run(None) == [[], {}, {"k": [1]}]


def test_in_place_operators_and_item_assignment_are_statements() -> None:
    def build(graph: Graph, x: Node) -> Node:
        y = graph.call_function(torch.clone, (x,))
        z = graph.call_function(operator.iadd, (y, 1))
        graph.call_function(operator.imul, (z, 2))
        graph.call_function(operator.setitem, (z, (slice(1), 0), x))
        used = graph.call_function(operator.setitem, (z, 0, x))
        return graph.call_function(print, (z, used))

    assert source_of(build)[1:] == [
        "clone = torch.clone(x)",
        "iadd = clone",
        "iadd += 1; del clone",
        "operator.imul(iadd, 2)",
        "iadd[:1, 0] = x",
        "setitem_1 = operator.setitem(iadd, 0, x); del x",
        "print_1 = print(iadd, setitem_1); del iadd, setitem_1",
        "return print_1",
    ]


def test_in_place_operators_do_what_they_do_to_both_names() -> None:
    graph = Graph()
    x, n = graph.placeholder("x"), graph.placeholder("n")
    kept = graph.call_function(operator.iadd, (x, 1))
    number = graph.call_function(operator.iadd, (n, 1))
    graph.output((x, kept, n, number))
    x_, kept_, n_, number_ = GraphModule({}, graph)(torch.zeros(1), 5)
    assert x_ is kept_ and x_.item() == 1 and (n_, number_) == (5, 6)


def in_order(**kwargs: Any) -> list[str]:
    return list(kwargs)


def forward(x: Any) -> str:
    return f"forward {x}"


def torch_relu(x: Any) -> str:
    return f"mine {x}"


def test_keyword_arguments_keep_their_order() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(in_order, (), {"b": 1, "class": 2, "a": x, "ﬁ": 3}))
    assert "(b=1, **{'class': 2, 'a': x, 'ﬁ': 3})" in generate(graph).source
    assert assert_all_agree(graph, {}, 1) == ["b", "class", "a", "ﬁ"]


def test_methods() -> None:
    def build(graph: Graph, x: Node) -> Node:
        a = graph.call_method("view", (x, -1), {"k": 1})
        b = graph.call_method("class", (x,))
        return graph.call_function(
            print, (a, b, graph.call_method("upper", ("a",)), graph.call_method("bit_length", (5,)))
        )

    assert source_of(build)[1:5] == ["view = x.view(-1, k=1)", "class_1 = getattr(x, 'class')(); del x",
                                     "upper = ('a').upper()", "bit_length = (5).bit_length()"]  # fmt: skip


def test_compiling_gives_no_warnings() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    for function in (operator.is_, operator.is_not, operator.eq, operator.getitem, operator.contains, operator.add):
        for args in ((x, 1), (1, x), (1, 2), ("a", x), ((1,), (2,)), (None, x), (x, "a")):
            graph.call_function(function, args)
    graph.call_function(operator.getitem, ([1], (1, 2)))
    graph.call_method("x", (1,))
    graph.output(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_function(generate(graph))


def test_functions_are_bound_when_the_code_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output([graph.call_function(torch.relu, (x,)), graph.call_function(len, (x,)),
                  graph.call_function(getattr, (x, "class", None)), graph.call_function(math.floor, (1.5,))])  # fmt: skip
    module = GraphModule({}, graph)
    monkeypatch.setattr(torch, "relu", None)
    monkeypatch.setattr(math, "floor", None)
    monkeypatch.setattr("builtins.len", None)
    relu, length, nothing, floor = module(torch.tensor([-1.0]))
    monkeypatch.undo()
    assert relu.item() == 0 and (length, nothing, floor) == (1, None, 1)
    assert "torch.relu(x)" in module.code


def test_a_global_never_meets_another_name() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    named = ((forward, "forward"), (torch_relu, "a"), (torch.relu, "torch_relu"), (forward, "b"))
    results = [graph.create_node("call_function", function, (x,), name=name) for function, name in named]
    graph.output(results)
    value = torch.tensor([1.0])
    assert_all_agree(graph, {}, value)
    assert GraphModule({}, graph)(value)[:2] == [f"forward {value}", f"mine {value}"]


@pytest.mark.parametrize("state", ["self", "arguments"])
def test_values_are_dropped_after_their_last_use(state: str) -> None:
    class Value:
        pass

    made: list[weakref.ref[Value]] = []
    alive: list[list[bool]] = []

    def make(*args: Any) -> Value:
        value = Value()
        made.append(weakref.ref(value))
        return value

    def look(*args: Any) -> None:
        alive.append([ref() is not None for ref in made])

    graph = Graph()
    a = graph.call_function(make)
    b = graph.call_function(make, ([a],))
    graph.call_function(make)  # never used
    graph.call_function(look)
    c = graph.call_function(make, (a, a))
    graph.call_function(look)
    graph.call_function(look, (b,))
    graph.call_function(look)
    graph.output({"c": c})
    run = compile_function(generate(graph, state=state))
    result = run(*([None] if state == "self" else []))
    assert alive == [
        [True, True, False],
        [False, True, False, True],
        [False, True, False, True],
        [False, False, False, True],
    ]
    assert made[3]() is result["c"]


def test_state_comes_as_arguments() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", 3)
    first = graph.get_attr("layers.0.weight")
    again = graph.get_attr("layers.0.weight")
    called = graph.call_module("layers.0", (x,))
    twice = graph.call_module("layers.0", (called,))
    graph.output((first, again, twice, y))
    generated = generate(graph, state="arguments")
    assert generated.state_targets == ["layers.0.weight", "layers.0"]
    assert generated.source == (
        "def forward(x, y, layers_0_weight, layers_0_2):\n"
        "    layers_0 = layers_0_2(x); del x\n"
        "    layers_0_1 = layers_0_2(layers_0); del layers_0\n"
        "    return (layers_0_weight, layers_0_weight, layers_0_1, y)\n"
    )
    function = compile_function(generated, "graph")
    assert function.__name__ == "graph" and function.__code__.co_name == "graph"  # type: ignore[attr-defined]
    assert function(1, 2, "w", lambda v: v + 1) == ("w", "w", 3, 2)
    assert "self" not in generated.source and inspect.getsource(function).startswith("def graph(x, y, ")


def test_state_paths() -> None:
    graph = Graph()
    graph.output((graph.get_attr("a.0.b"), graph.get_attr("a.class.é"), graph.call_module("a.0", ())))
    assert generate(graph).source.splitlines()[1:4] == [
        "    a_0_b = getattr(self.a, '0').b",
        "    a_class = getattr(getattr(self.a, 'class'), 'é')",
        "    a_0 = getattr(self.a, '0')()",
    ]


def test_parameters() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", 2)
    z = graph.placeholder("z", [])
    rest = graph.placeholder("*rest")
    more = graph.placeholder("**more")
    graph.output((x, y, z, rest, more))
    module = GraphModule({}, graph)
    assert str(inspect.signature(module.forward)) == "(x, y=2, z=[], *rest, **more)"
    assert module(1) == (1, 2, [], (), {}) and module(1)[2] is module(1)[2], "a default is one object, as in Python"
    assert module(1, 3, 4, 5, 6, k=7) == (1, 3, 4, (5, 6), {"k": 7})
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        module()


def test_parameters_keep_their_names_even_those_of_builtins() -> None:
    graph = Graph()
    named = [("input", "input_1"), ("len", "len_1"), ("self", "me"), ("torch", "t"), ("x", "x"), ("x", "again")]
    nodes = [graph.create_node("placeholder", target, name=name) for target, name in named]
    length = graph.call_function(len, (nodes[4],))
    relu = graph.call_function(torch.relu, (nodes[3],))
    graph.output((*nodes, length, relu))
    generated = generate(graph)
    assert generated.source.startswith("def forward(self, input, len, self_1, torch, x, x_1):\n")
    value = torch.ones(1)
    result = compile_function(generated)(None, 1, 2, 3, value, "xx", 6)
    assert result == (1, 2, 3, value, "xx", 6, 2, value)


def test_a_parameter_without_default_after_one_with_is_an_error() -> None:
    graph = Graph()
    graph.placeholder("x", 1)
    graph.placeholder("y")
    with pytest.raises(GraphError, match="placeholder 'y' has no default, but one before it has"):
        generate(graph)
    with pytest.raises(GraphError, match="state is 'self' or 'arguments', not 'both'"):
        generate(graph, state="both")


def test_an_empty_graph_and_one_without_output_return_none() -> None:
    assert GraphModule({}, Graph())() is None
    graph = Graph()
    graph.call_method("append", (graph.placeholder("x"), 1))
    items: list[int] = []
    assert GraphModule({}, graph)(items) is None and items == [1]


def test_a_use_before_the_definition_is_an_error() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.relu, (a,))
    b.append(a)
    graph.output(b)
    with pytest.raises(UnboundLocalError):
        compile_function(generate(graph))(None, torch.ones(1))


def test_comments_show_the_users_line(tmp_path: Any) -> None:
    path = tmp_path / "user.py"
    path.write_text("a = x.relu()\nb = 'odd\x0c\u2028é' + a\t# tab\n")
    graph = Graph()
    x = graph.placeholder("x")
    places = [
        (str(path), 1),
        (str(path), 1),
        (str(path), 2),
        None,
        (str(path), 2),
        ("<stdin>", 7),
        ("other.py", 3, "  given "),
    ]
    for place in places:
        graph.call_method("relu", (x,)).meta["where"] = place
    graph.output(None)
    assert [line.strip() for line in generate(graph).source.splitlines()][1:] == [
        "# user.py:1  a = x.relu()", "x.relu()", "x.relu()",
        "# user.py:2  b = 'odd  é' + a # tab", "x.relu()", "x.relu()", "x.relu()",
        "# <stdin>:7", "x.relu()", "# other.py:3  given", "x.relu(); del x", "return None",
    ]  # fmt: skip
    compile_function(generate(graph))


class Boom(Exception):
    pass


def explode(value: Any) -> Any:
    raise Boom("no")


def test_tracebacks_show_the_line_and_lead_to_the_node() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.nn.functional.relu, (x,))
    bad = graph.call_function(operator.add, (y, graph.call_function(explode, (y,))))
    graph.output(bad)
    module = GraphModule({}, graph)
    with pytest.raises(Boom) as caught:
        module(torch.ones(1))
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename.startswith("<framecap graph")]
    assert [f.name for f in frames] == ["forward"]
    assert frames[0].line == module.code.splitlines()[frames[0].lineno - 1].strip() != ""
    node = module.node_of(caught.value)
    assert node is not None and node.target is explode
    assert module.node_of(ValueError()) is None and module.node_of(None) is None


def test_columns_in_tracebacks_fit_the_shown_text() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.nn.functional.linear, (x, graph.call_function(torch.relu, (x,)))))
    module = GraphModule({}, graph)
    with pytest.raises(RuntimeError) as caught:
        module(torch.ones(2, 3, 4))
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    at = next(i for i, line in enumerate(lines) if "linear = " in line)
    start, end = lines[at + 1].index("^"), lines[at + 1].rindex("^") + 1
    assert lines[at][start:end] == "torch.nn.functional.linear(x, relu)"


def test_both_lines_of_an_in_place_operator_lead_to_the_node() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    node = graph.call_function(operator.iadd, (x, "text"))
    graph.output(node)
    generated = generate(graph)
    assert [generated.line_to_node[line] for line in (2, 3)] == [node, node]
    module = GraphModule({}, graph)
    with pytest.raises(TypeError) as caught:
        module(1)
    assert module.node_of(caught.value) is node


def entries() -> set[str]:
    return {name for name in linecache.cache if name.startswith("<framecap graph")}


def test_source_is_registered_as_long_as_the_code_lives() -> None:
    graph = Graph()
    graph.output(graph.call_function(explode, (graph.placeholder("x"),)))
    gc.collect()
    before = entries()
    function = compile_function(generate(graph))
    (filename,) = entries() - before
    assert inspect.getsource(function) == generate(graph).source
    linecache.checkcache()
    assert filename in entries()
    try:
        function(None, 1)
    except Boom as error:
        kept = error
    del function
    assert filename in entries(), "the traceback still shows it"
    assert "explode = explode_1(x)" in "".join(traceback.format_exception(kept))
    kept.__traceback__ = None
    gc.collect()
    assert filename not in entries()


def test_a_function_is_freed_without_the_garbage_collector() -> None:
    graph = Graph()
    graph.output(None)
    gc.disable()
    try:
        function = compile_function(generate(graph))
        ref = weakref.ref(function)
        assert isinstance(function, types.FunctionType)
        del function
        assert ref() is None
    finally:
        gc.enable()
