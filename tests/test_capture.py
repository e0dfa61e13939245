"""framecap.capture: one graph of a whole call, called as the program is, equal to it; and where that can't be."""

from __future__ import annotations

import copy
import functools
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framecap
from framecap.graph import GraphModule, check

X = torch.linspace(-1, 1, 6).reshape(2, 3)
FACTOR = torch.tensor([2.0, 3.0, 4.0])
Pair = namedtuple("Pair", "first second")


@dataclass
class Result:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.zeros(3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.plain = torch.full((3,), 0.5)

    def forward(self, x, mask=None):
        x = self.norm(x) * self.scale + self.shift * self.scratch - self.plain
        x = self.layers(x)
        return x if mask is None else x * mask


def captured(fn, *args, **kwargs) -> GraphModule:
    graph_module = framecap.capture(fn, *args, **kwargs)
    check(graph_module.graph)
    return graph_module


def ops(graph_module: GraphModule) -> list[str]:
    return [node.op for node in graph_module.graph.nodes]


def targets(graph_module: GraphModule, op: str) -> list:
    return [node.target for node in graph_module.graph.nodes if node.op == op]


def assert_same(actual, expected) -> None:
    assert type(actual) is type(expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


# Inputs


def test_a_function_is_called_as_before() -> None:
    def fn(x, y, *, z):
        return x * y + z

    module = captured(fn, X, X + 1, z=X)
    assert targets(module, "placeholder") == ["x", "y", "z"]
    for args in ((X, X), (X * 2, X - 1)):
        assert_same(module(*args, z=X + 3), fn(*args, z=X + 3))


@pytest.mark.parametrize(
    "argument",
    [{"a": X, "b": [X + 1]}, {"a": X + 2, "b": (X,), "c": 1}],
    ids=["list", "tuple"],
)
def test_tensors_inside_an_argument(argument: dict) -> None:
    def fn(inputs):
        return inputs["a"] + inputs["b"][0]

    module = captured(fn, argument)
    assert targets(module, "placeholder") == ["inputs"]
    assert_same(module(argument), fn(argument))


def test_tensors_inside_an_object() -> None:
    class Batch:
        def __init__(self, x):
            self.x = x

    def fn(batch):
        return batch.x * 2

    module = captured(fn, Batch(X))
    assert_same(module(Batch(X + 1)), (X + 1) * 2)


def test_starred_parameters() -> None:
    def fn(*xs, **named):
        named["extra"] = xs[0]
        return xs[0] + xs[1] * named["z"] + named["extra"]

    module = captured(fn, X, X + 1, z=X)
    assert targets(module, "placeholder") == ["xs_0", "xs_1", "z"]
    assert_same(module(X, X, z=X), fn(X, X, z=X))


def test_a_decorated_forward_keeps_its_parameters_names() -> None:
    def decorate(forward):
        @functools.wraps(forward)
        def wrapper(*args, **kwargs):
            return forward(*args, **kwargs)

        return wrapper

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        @decorate
        def forward(self, ids, weights=None):
            return self.linear(ids) * weights

    model = Model()
    module = captured(model, X, weights=X)
    assert targets(module, "placeholder") == ["ids", "weights"]
    assert targets(module, "call_module") == ["linear"]
    assert_same(module(X, weights=X), model(X, weights=X))


def test_unused_arguments_stay_in_the_signature() -> None:
    module = captured(lambda x, y, flag: x, X, X, True)
    assert targets(module, "placeholder") == ["x", "y"]
    assert module(X, X + 1) is X


def test_numbers_are_inputs_unless_python_reads_them() -> None:
    def scaled(x, factor):
        return x * factor, factor

    module = captured(scaled, X, 2)
    assert targets(module, "placeholder") == ["x", "factor"]
    assert_same(module(X, 5), scaled(X, 5))

    def repeated(x, count):
        for _ in range(count):
            x = x + count
        return x

    module = captured(repeated, X, 3)
    assert targets(module, "placeholder") == ["x"]
    assert_same(module(X), repeated(X, 3))


def test_what_was_read_of_arguments_is_told() -> None:
    def fn(x, n, parts):
        if x.shape[0] > 1 and n < 10:
            x = x * n
        for part in parts:
            x = x + part
        return x

    told = captured(fn, X, 2, [X, X]).meta["assumptions"]
    assert {"x.size(0) > 1", "n < 10", "len(parts) == 2"} <= set(told)


def test_constants() -> None:
    def fn(x, weight, count):
        return x * weight * count

    module = captured(fn, X, constants={"weight": FACTOR, "count": 3})
    assert targets(module, "placeholder") == ["x"]
    assert targets(module, "get_attr") == ["weight"]
    assert_same(module(X), fn(X, FACTOR, 3))
    with pytest.raises(framecap.UsageError, match="'count' is given both"):
        framecap.capture(fn, X, FACTOR, count=1, constants={"count": 3})


def test_partial_and_bound_methods() -> None:
    class Scaler:
        factor = 3

        def scale(self, x, by):
            return x * self.factor * by

    scaler = Scaler()
    assert_same(captured(scaler.scale, X, X)(X, X + 1), scaler.scale(X, X + 1))
    fixed = functools.partial(scaler.scale, by=FACTOR)
    module = captured(fixed, X)
    assert targets(module, "placeholder") == ["x"]
    assert_same(module(X), fixed(X))


# State


def test_state_keeps_its_paths_and_is_shared() -> None:
    model = Block()
    module = captured(model, X)
    assert targets(module, "call_module") == ["norm", "layers.0", "layers.1", "layers.2"]
    assert set(module.state_dict()) == set(model.state_dict())
    assert module.scale is model.scale and module.norm is model.norm
    assert_same(module(X), copy.deepcopy(model)(X))
    with torch.no_grad():
        model.scale.add_(1)
    model.eval()
    assert_same(module(X), model(X))
    assert not hasattr(module, "unused")


def test_tensors_from_elsewhere_are_state() -> None:
    offset = torch.ones(3)

    def fn(x):
        return x * FACTOR + offset

    module = captured(fn, X)
    assert set(targets(module, "get_attr")) == {"FACTOR", "offset"}
    assert module.FACTOR is FACTOR
    assert_same(module(X), fn(X))

    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x) * FACTOR

    model = Uses()
    module = captured(model, X)
    assert set(module.state_dict()) == {"linear.weight", "linear.bias", "FACTOR"}
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]
    assert_same(module(X), model(X))


def test_a_returned_parameter() -> None:
    class Shows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x + 1, self.weight

    shows = Shows()
    assert captured(shows, X)(X)[1] is shows.weight


# Levels


def test_torch_nn_modules_are_leaves_unless_told() -> None:
    model = Block().eval()
    assert targets(captured(model, X), "call_module") == ["norm", "layers.0", "layers.1", "layers.2"]
    low = captured(model, X, is_leaf=framecap.no_leaves)
    assert "call_module" not in ops(low)
    assert targets(low, "call_function").count(F.linear) == 2
    assert set(low.state_dict()) <= set(model.state_dict())
    assert_same(low(X), model(X))


def test_no_leaves_in_training_updates_statistics() -> None:
    model = Block()
    twin = copy.deepcopy(model)
    low = captured(model, X, is_leaf=framecap.no_leaves)
    for _ in range(2):
        assert_same(low(X), twin(X))
    assert torch.equal(model.norm.running_mean, twin.norm.running_mean)
    assert model.norm.num_batches_tracked == 2


def test_leaves_of_the_users_choice() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    model = Outer().eval()
    seen = []

    def is_leaf(module, path):
        seen.append(path)
        return path == "blocks.1" or framecap.torch_nn_leaves(module, path)

    module = captured(model, X, is_leaf=is_leaf)
    assert targets(module, "call_module")[-2:] == ["blocks.0.layers.2", "blocks.1"]
    assert "blocks.0" in seen
    assert_same(module(X), model(X))


def inner(x, factor):
    if x.sum() > 0:  # can't be interpreted, so it has to be a leaf
        return x * factor, x
    return x, x


def test_functions_as_leaves() -> None:
    def fn(x):
        a, b = inner(x, 2)
        return a + b

    with pytest.raises(framecap.CaptureError, match="data-dependent"):
        framecap.capture(fn, X)

    def leaf(x, factor):
        return torch.where(x > 0, x * factor, x), x

    def with_leaf(x):
        a, b = leaf(x, 2)
        return a + b

    module = captured(with_leaf, X, leaf_functions=[leaf])
    assert leaf in targets(module, "call_function")
    assert_same(module(X), with_leaf(X))


# Without examples


def test_without_examples() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()
            self.heads = 3

        def forward(self, x, y):
            batch, width = x.shape[0], x.size(-1)
            x = self.block(x).to(y.dtype) + y
            return x.view(batch, width // self.heads, self.heads).sum(-1)

    model = Model().eval()
    module = captured(model)
    assert targets(module, "placeholder") == ["x", "y"]
    assert targets(module, "call_module")[0] == "block.norm"
    for x in (X, torch.ones(5, 3)):
        assert_same(module(x, x), model(x, x))


def test_without_examples_says_what_it_would_need() -> None:
    def ranks(x):
        return x.reshape(-1) if x.dim() > 2 else x

    def unpacks(x):
        batch, width = x.shape
        return x.view(width, batch)

    for fn in (ranks, unpacks):
        with pytest.raises(framecap.CaptureError, match="[Gg]ive examples") as raised:
            framecap.capture(fn)
        assert "metadata" in str(raised.value) and "x." in str(raised.value)


def test_all_examples_or_none() -> None:
    with pytest.raises(framecap.UsageError, match="also needs 'y'"):
        framecap.capture(lambda x, y: x + y, X)


# Results


def test_results_keep_their_structure() -> None:
    def fn(x, y):
        return {"sum": x + y, "parts": [x, (y, 3, None)], "named": Pair(x, y + 1), "object": Result(x * 2)}

    module = captured(fn, X, X + 1)
    actual, expected = module(X, X * 5), fn(X, X * 5)
    assert list(actual) == list(expected)
    assert actual["parts"][0] is X and actual["parts"][1][1:] == (3, None)
    assert type(actual["named"]) is Pair and torch.equal(actual["named"].second, expected["named"].second)
    assert type(actual["object"]) is Result and torch.equal(actual["object"].logits, X * 2)
    assert actual["object"].hidden is None


def test_values_that_follow_from_sizes_alone() -> None:
    def fn(x):
        positions = torch.arange(x.shape[1])
        mask = positions[None, :] <= positions[:, None]
        if mask.all():
            return x
        return x * int(positions.sum().item()), mask

    module = captured(fn, X)
    assert_same(module(X), fn(X))
    assert "x.size(1) == 3" in module.meta["assumptions"]

    def changed(x):
        mask = torch.zeros(3)
        mask[0] = x[0, 0]
        return x if mask.sum() > 0 else -x

    with pytest.raises(framecap.CaptureError, match="data-dependent"):
        framecap.capture(changed, X)


def test_a_captured_graph_is_captured_again() -> None:
    model = Block().eval()
    once = captured(model, X)
    twice = captured(once, X)
    assert ops(twice) == ops(once)
    assert set(targets(twice, "call_module")) == set(targets(once, "call_module"))
    assert_same(twice(X), model(X))


def test_an_optimized_module_or_function() -> None:
    model = Block().eval()
    assert targets(captured(framecap.optimize(model), X), "call_module")[0] == "norm"
    fn = framecap.optimize(lambda x: x * 2)
    assert_same(captured(fn, X)(X), X * 2)


# Refusals


def test_effects_are_named_with_their_line() -> None:
    log = []

    def writes(x):
        log.append(x)
        return x + 1

    with pytest.raises(framecap.CaptureError, match=r"calls append\(\) of .* at .*test_capture.py:\d+"):
        framecap.capture(writes, X)
    assert log == []

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2

    model = Counts()
    with pytest.raises(framecap.CaptureError, match="sets the attribute 'calls'"):
        framecap.capture(model, X)
    assert model.calls == 0


def test_hooks_are_not_lost() -> None:
    model = Block()
    model.register_forward_hook(lambda module, args, result: result * 2)
    with pytest.raises(framecap.CaptureError, match="has hooks"):
        framecap.capture(model, X)


def test_what_cannot_be_captured_at_all() -> None:
    def generator(x):
        yield x

    with pytest.raises(framecap.UsageError, match="generator"):
        framecap.capture(generator, X)
    with pytest.raises(framecap.UsageError, match="builtin_function_or_method"):
        framecap.capture(torch.relu, X)
    with pytest.raises(framecap.UsageError, match="unexpected keyword argument 'y'"):
        framecap.capture(lambda x: x, X, y=1)

    def raises(x):
        raise ValueError("no")

    with pytest.raises(framecap.CaptureError, match=r"raises ValueError\(no\) at .*test_capture.py"):
        framecap.capture(raises, X)


def test_results_that_a_graph_cannot_return() -> None:
    class Thing:
        def __init__(self, x):
            self.x = x

    with pytest.raises(framecap.CaptureError, match="Thing, which a graph can't return"):
        framecap.capture(lambda x: Thing(x + 1), X)
