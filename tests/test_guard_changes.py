"""Whatever a region has read may change between calls: the next call is right, and what didn't change isn't recaptured."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import framecap
from framecap.api import collect_report
from helpers import same_as_eager

FACTOR = 2
TABLE = {"a": 1, "b": 2}
NAMES = ["x"]


def helper(x):
    return x + FACTOR


def other_helper(x):
    return x - 5


class Config:
    gain = 1.0

    def apply(self, x):
        return x * self.gain

    @property
    def size(self):
        return 3


class Special(Config):
    pass


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.flag = True
        self.sizes = [1, 2]
        self.options = {"k": 1}
        self.config = Special()

    def forward(self, x):
        x = self.drop(self.lin(x))
        if self.flag and self.training is False:
            x = x * len(self.sizes)
        for key, value in self.options.items():
            x = x + value + len(key)
        return self.config.apply(x) * self.config.size + helper(x) * len(NAMES) + sum(TABLE.values())


def set_global(name: str, value: Any) -> Callable[[], None]:
    return lambda: globals().__setitem__(name, value)


def changes(model: Model) -> dict[str, Callable[[], Any]]:
    """A change of each kind of thing that the model's forward reads."""
    return {
        "global number": set_global("FACTOR", 7),
        "global function": set_global("helper", other_helper),
        "code of a function": lambda: setattr(helper, "__code__", (lambda x: x * 9).__code__),
        "item of a global dict": lambda: TABLE.__setitem__("a", 10),
        "new key of a global dict": lambda: TABLE.__setitem__("c", 10),
        "length of a global list": lambda: NAMES.append("y"),
        "attribute of a module": lambda: setattr(model, "flag", False),
        "training flag": lambda: model.train(),
        "length of a list": lambda: model.sizes.append(3),
        "list replaced": lambda: setattr(model, "sizes", [1, 2, 3, 4]),
        "key of a dict": lambda: model.options.__setitem__("more", 2),
        "order of keys": lambda: setattr(model, "options", {"zz": 1, "k": 1}),
        "dict emptied": lambda: model.options.clear(),
        "class attribute": lambda: setattr(Special, "gain", 4.0),
        "attribute of a base class": lambda: setattr(Config, "gain", 5.0),
        "instance attribute over class attribute": lambda: setattr(model.config, "gain", 6.0),
        "method on the class": lambda: setattr(Special, "apply", lambda self, x: x - 100),
        "method on the instance": lambda: setattr(model.config, "apply", lambda x: x - 7),
        "property on the class": lambda: setattr(Special, "size", 11),
        "class of the instance": lambda: setattr(model.config, "__class__", Config),
        "object replaced": lambda: setattr(model, "config", Config()),
        "forward hook": lambda: model.lin.register_forward_hook(lambda m, a, out: out + 1),
        "hook on a module that is interpreted": lambda: model.register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
        "parameter replaced": lambda: setattr(model.lin, "weight", nn.Parameter(torch.ones(3, 3))),
        "submodule replaced": lambda: setattr(model, "lin", nn.Linear(3, 3, bias=False)),
        "submodule of another class": lambda: setattr(model, "lin", nn.Identity()),
        "forward on the class": lambda: setattr(Model, "forward", lambda self, x: x.sum()),
    }


KINDS = list(changes(Model()))


@pytest.fixture(autouse=True)
def restored() -> Any:
    """Put every global thing back that a change touches."""
    space = dict(globals())
    code = helper.__code__
    saved = {cls: dict(cls.__dict__) for cls in (Config, Special, Model)}
    table, names = dict(TABLE), list(NAMES)
    yield
    helper_function = space["helper"]
    helper_function.__code__ = code
    globals().update(space)
    TABLE.clear()
    TABLE.update(table)
    NAMES[:] = names
    for cls, attributes in saved.items():
        for name in set(cls.__dict__) - set(attributes):
            delattr(cls, name)
        for name, value in attributes.items():
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__") and cls.__dict__.get(name) is not value:
                setattr(cls, name, value)


@pytest.mark.parametrize("kind", KINDS)
def test_change_is_seen(kind: str) -> None:
    torch.manual_seed(0)
    model = Model().eval()

    def fn(x):
        return model(x) * 1

    x = torch.randn(2, 3)
    optimized = framecap.optimize(fn)
    for _ in range(2):
        assert torch.equal(optimized(x), fn(x))
    before = collect_report().totals
    assert before.graphs == 1 and before.operators >= 9
    changes(model)[kind]()
    for seed in range(2):
        torch.manual_seed(seed)
        expected = fn(x)
        torch.manual_seed(seed)
        assert torch.equal(optimized(x), expected), kind


def test_closure_cell_and_its_type() -> None:
    def make():
        k: Any = 2

        def fn(x):
            return x * k

        def change(value):
            def step():
                nonlocal k
                k = value

            return step

        x = torch.ones(2)
        steps = [(x,)]
        for value in (3, 2.5, True, torch.ones(2) * 4, 3):
            steps += [change(value), (x,)]
        return fn, steps

    assert same_as_eager(make=make).operators >= 2


def test_types_of_an_argument() -> None:
    def fn(x, y):
        z = x * 2
        return z + y if y is not None else z

    x = torch.ones(2)
    seen = same_as_eager(fn, (x, 1), (x, 1.5), (x, None), (x, x), (x, True), (x, nn.Parameter(x)), (x, 1))
    assert seen.operators >= 5


def test_aliasing_of_two_inputs() -> None:
    def fn(a, b, x):
        a.append(x + 1)
        return len(b), a is b, b[-1]

    def make():
        one, two = [1], [2]
        x = torch.ones(1)
        return fn, [(one, two, x), (one, one, x), (two, one, x), (one, one, x)]

    assert same_as_eager(make=make).operators >= 2


def test_fresh_objects_of_the_same_shape_need_no_new_region() -> None:
    class Box:
        def __init__(self, value):
            self.value = value

    def fn(x, box, items, options, callback):
        return callback(x * box.value + items[0] + options["k"])

    optimized = framecap.optimize(fn)
    x = torch.ones(2)
    for i in range(10):
        args = (x, Box(3), [i * 0.5, 2], {"k": i}, lambda v: v + 1)
        assert torch.equal(optimized(*args), fn(*args))
    assert collect_report().totals.graphs <= 2


def test_module_namespace_attribute() -> None:
    space = types.ModuleType("space_of_the_test")
    space.value = 3

    def fn(x):
        return x * space.value

    optimized = framecap.optimize(fn)
    x = torch.ones(2)
    for value in (3, 4, 5.5, torch.ones(2)):
        space.value = value
        assert torch.equal(optimized(x), fn(x))
    del space.value
    with pytest.raises(AttributeError, match="has no attribute 'value'"):
        optimized(x)
