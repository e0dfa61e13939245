"""What the tests of framecap.graph share: exact comparison, and every way to execute a graph."""

from __future__ import annotations

import copy
import pickle
import struct
from collections.abc import Callable
from typing import Any

import torch

from framecap.graph import Graph, GraphModule, Interpreter, check, compile_function, generate
from framecap.graph.state import find


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure and bits; objects that aren't data must be the same object or equal."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a is b or a == b


def outcome(function: Callable[..., Any], *args: Any) -> tuple[str, Any]:
    """What a call returns, or the type and text of the error it raises."""
    try:
        return "returned", function(*args)
    except Exception as error:
        return "raised", (type(error), str(error))


def with_state_arguments(graph: Graph, root: Any) -> Callable[..., Any]:
    """The graph's function in the form that takes its state as arguments, given the state."""
    generated = generate(graph, state="arguments")
    function = compile_function(generated, "graph")
    state = [find(root, target) for target in generated.state_targets]
    return lambda *args: function(*args, *state)


def ways_to_run(graph: Graph, root: Any) -> dict[str, Callable[..., Any]]:
    """Every way to execute a graph. All must have the same outcome."""
    check(graph, root)
    module = GraphModule(root, graph)
    check(module.graph, module)
    source = generate(graph)
    namespace = dict(source.globals)
    exec(source.source, namespace)
    ways = {
        "interpreter": Interpreter(module).run,
        "interpreter of graph and root": Interpreter(root, graph).run,
        "code": module,
        "code as shown": lambda *args: namespace["forward"](module, *args),
        "state as arguments": with_state_arguments(graph, root),
        "deepcopy": copy.deepcopy(module),
        "copy": copy.copy(module),
        "pickle": pickle.loads(pickle.dumps(module)),
    }
    return ways


def assert_all_agree(graph: Graph, root: Any, *args: Any) -> Any:
    """Execute the graph in every way on copies of ``args``; returns the result, or the error's type and text."""
    results = {name: outcome(run, *copy.deepcopy(args)) for name, run in ways_to_run(graph, root).items()}
    first = results.pop("interpreter")
    for name, result in results.items():
        assert same(first, result), f"{name}: {result}\ninterpreter: {first}\n{generate(graph).source}"
    return first[1]
