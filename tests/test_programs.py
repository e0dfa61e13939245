"""Small programs that mix Python and tensors, each as in eager over several calls, with what must be captured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from helpers import same_as_eager

PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], int]] = {}
X = torch.arange(6.0).reshape(2, 3)


def program(*calls: tuple[Any, ...], captured: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program with its calls and the least number of operators to be captured."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = (fn, list(calls), captured)
        return fn

    return register


@program((X, 3), (X, 0), (X, 5), captured=2)
def for_else(x, n):
    for i in range(n):
        x = x + i
        if i == 3:
            break
    else:
        x = x * 100
    return x


@program((X, [1, 2, 3]), (X, []), (X, [7]), captured=2)
def comprehension_of_tensors(x, ks):
    parts = [x * k for k in ks if k != 2]
    table = {k: x + k for k in ks}
    return parts, table, {k % 2 for k in ks}, tuple(p.sum() for p in parts)


@program((X,), (X * 2,), captured=4)
def nested_closures(x):
    total = 0

    def add(v):
        nonlocal total
        total = total + v
        return total

    add(x)
    add(x * 2)
    return add(1), total


@program((X, 2), (X, 3), captured=2)
def default_and_keyword_arguments(x, k):
    def scale(v, by=k, *rest, shift=1, **more):
        return v * by + shift + len(rest) + sum(more.values())

    return scale(x), scale(x, 4, 5, 6), scale(x, shift=2, z=3), scale(v=x)


@program((X, None), (X, 1.5), (X, None), captured=1)
def optional_argument(x, bias):
    y = x * 2
    if bias is not None:
        y = y + bias
    return y


@program((X, "sum"), (X, "mean"), (X, "none"), (X, "other"), captured=1)
def dispatch_by_name(x, how):
    y = x + 1
    table = {"sum": torch.sum, "mean": torch.mean}
    if how in table:
        return table[how](y)
    if how == "none":
        return y
    raise ValueError(f"unknown {how!r}")


@program((X, [X]), (X, [X, X * 2]), captured=1)
def appended_to_the_callers_list(x, log):
    log.append(x * 2)
    log.insert(0, len(log))
    log[-1] = log[-1] + 1
    return len(log)


@program((X, {"a": X}), (X, {}), captured=1)
def changed_the_callers_dict(x, d):
    d["b"] = x + 1
    d.setdefault("a", x * 3)
    d.update(c=d["a"] + d["b"])
    if "z" in d:
        del d["z"]
    popped = d.pop("nothing", 7)
    return list(d), popped


@program((X,), (X,), captured=2)
def aliased_containers(x):
    a = [x]
    b = a
    b.append(x * 2)
    c = {"l": a}
    c["l"][0] = x + 1
    return a, b is a, c["l"] is b, len(a)


@program((X,), (X + 1,), captured=3)
def tuple_unpacking(x):
    a, (b, *c), d = x, (x + 1, x + 2, x + 3), x * 4
    (e,) = [a + d]
    a, d = d, a
    return a, b, c, d, e


@program((X, 1), (X, 2), (X, 1), captured=1)
def chained_comparison_and_boolean(x, n):
    y = x * n
    flag = 0 < n < 2 and n != 5 or None
    return y, flag, not flag, n if flag else -n


@program((X,), (X.double(),), captured=1)
def try_except_finally(x):
    log = []
    try:
        try:
            log.append("a")
            raise KeyError("k")
        except ValueError:
            log.append("wrong")
        except (IndexError, KeyError) as error:
            log.append(type(error).__name__)
            y = x + len(error.args)
        else:
            log.append("else")
        finally:
            log.append("finally")
    finally:
        log.append("outer")
    return y, log


@program((X, 0), (X, 1), (X, 2), captured=1)
def return_in_finally_and_loops(x, n):
    for i in range(3):
        try:
            if i == n:
                return x * i
            continue
        finally:
            x = x + 10
    return x


@program((X,), (-X,), captured=2)
def while_on_a_number(x):
    n = 3
    while n:
        x = x + n
        n -= 1
        if n == 1:
            continue
    return x, n


@program((torch.tensor([5.0]),), (torch.tensor([100.0]),), (torch.tensor([0.5]),), captured=2)
def while_on_data(x):
    n = 0
    while x > 1:
        x = x / 2
        n += 1
    return x, n


@program((X,), (X * 3,), captured=2)
def generators(x):
    def pieces(v):
        for i in range(3):
            got = yield v * i
            if got:
                yield got

    g = pieces(x)
    first = next(g)
    second = g.send("sent")
    rest = list(g)

    def outer():
        result = yield from inner()
        yield result

    def inner():
        yield x + 1
        return "done"

    return first, second, rest, list(outer())


Pair = namedtuple("Pair", "left right")


@program((X, Pair(X, 2)), (X, Pair(X * 2, 3)), captured=1)
def named_tuples(x, p):
    q = p._replace(right=p.right + 1)
    left, right = q
    return Pair(left + x, right), q.right, p == q if p.right != q.right else None, q._fields


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: int = 3
    tags: list[str] = dataclasses.field(default_factory=list)

    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by, y=self.y + 1)


@program((X,), (X + 1,), captured=1)
def dataclasses_made_inside(x):
    p = Point(x)
    p.tags.append("t")
    q = p.moved(2)
    return q, p.tags is q.tags, p.y


class Account:
    interest = 2

    def __init__(self, value):
        self.value = value
        self.history = []

    def __add__(self, other):
        return Account(self.value + (other.value if isinstance(other, Account) else other))

    __radd__ = __add__

    def __iadd__(self, other):
        self.history.append("iadd")
        self.value = self.value + other
        return self

    def __getitem__(self, i):
        return self.value[i]

    def __len__(self):
        return len(self.value)

    def __bool__(self):
        return True

    def __contains__(self, item):
        return item == "x"

    def __call__(self, k, *, extra=0):
        return self.value * k * self.interest + extra

    def __eq__(self, other):
        return isinstance(other, Account)

    def __iter__(self):
        return iter([self.value, self.value + 1])

    @property
    def doubled(self):
        return self.value * 2

    @doubled.setter
    def doubled(self, v):
        self.value = v / 2

    @staticmethod
    def helper(v):
        return v - 1

    @classmethod
    def make(cls, v):
        return cls(v)

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return name
        raise AttributeError(name)


@program((X, Account(X)), (X, Account(X * 2)), captured=5)
def operators_of_a_class(x, a):
    b = a + x
    b += 1
    c = 5 + Account.make(x)
    b.doubled = x * 4
    first, second = b
    missing = hasattr(a, "nothing"), a.auto_this
    return b(3), c.value, b.history, a[0], len(a), "x" in a, a == b, first, second, b.helper(x), missing, b.doubled


@program((X,), (X,), captured=1)
def with_of_the_program(x):
    log = []

    class Manager:
        def __enter__(self):
            log.append("enter")
            return 2

        def __exit__(self, *error):
            log.append(error[0].__name__ if error[0] else None)
            return error[0] is ValueError

    with Manager() as k:
        x = x * k
    with Manager():
        x = x + 1
        raise ValueError("swallowed")
    return x, log


@contextlib.contextmanager
def scaled(by):
    STACK.append(by)
    try:
        yield by * 2
    finally:
        STACK.pop()


STACK: list[int] = []


@program((X, False), (X, True), (X, False), captured=1)
def contextlib_managers(x, fail):
    with scaled(3) as a, scaled(a) as b:
        y = x * a + b + len(STACK)
        if fail:
            raise RuntimeError("inside")
    with contextlib.suppress(ZeroDivisionError):
        y = y + 1
        1 // 0
    with contextlib.nullcontext(4) as four:
        y = y * four
    return y, list(STACK)


@program((X, {"k": 1}), (X, [1, 2, X]), (X, (1, X)), (X, "s"), (X, Point(X, 9)), captured=1)
def match_statement(x, subject):
    y = x + 1
    match subject:
        case {"k": v, **rest}:
            return y * v, rest
        case [a, b, *rest] if a == 1 and isinstance(subject, list):
            return y * b, rest
        case (1, t):
            return y + t
        case Point(x=t, y=9):
            return y - t
        case str() as s:
            return s, y
    return None


@program((X, 7), (X, 12), (X, 7), captured=1)
def formatting(x, n):
    y = x * 2
    label = f"{'a':>3}|{3.14159:.2f}|{'r'!r}|{[1, 2]}"
    return y, label, "%s-%d" % ("a", 3), "{:03d}".format(7), ",".join(["p", "q"])


@program((X,), (X * 2,), captured=3)
def functional_tools(x):
    double = functools.partial(operator.mul, 2)
    add = functools.partial(lambda a, b, c=0: a + b + c, b=1)
    total = functools.reduce(lambda a, b: a + b, [x, x * 2, x * 3])
    mapped = list(map(double, [x, x + 1]))
    kept = list(filter(lambda v: v > 1, [1, 2, 3]))
    zipped = [(i, t.sum()) for i, t in enumerate(mapped)]
    return total, mapped, kept, zipped, add(x), add(x, c=5), list(itertools.chain([1], [2])), max([1, 3, 2], key=lambda v: -v)


@program((X,), (X,), captured=1)
def containers_of_the_library(x):
    d = defaultdict(list)
    d["a"].append(x + 1)
    o = OrderedDict([("b", 1), ("a", 2)])
    o["c"] = 3
    s = {1, 2} | {3}
    s.add(4)
    return d, list(o), 4 in s, len(s), sorted([3, 1, 2], reverse=True)


@program((X, deque([1], maxlen=2), Counter("aab")), (X, deque(), Counter()), captured=1)
def library_objects_from_outside(x, queue, counts):
    y = x * 2
    queue.append(3)
    counts["z"] += 1
    return y + len(queue), queue, counts


@program((X, 3), (X, 4), captured=1)
def recursion(x, n):
    def go(v, k):
        return v if k == 0 else go(v + k, k - 1)

    return go(x, n)


@program((X,), (X,), captured=1)
def class_made_inside(x):
    class Local:
        factor = 3

        def go(self, v):
            return v * self.factor

    y = x + 1
    return Local().go(y)


class Base:
    def run(self, x):
        return x + 1

    @classmethod
    def name(cls):
        return cls.__name__


class Derived(Base):
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k

    def run(self, x):
        return super().run(x) * self.k

    @classmethod
    def name(cls):
        return "D" + super().name()


@program((X, Derived(2)), (X, Derived(3)), (X, Base()), captured=2)
def inheritance(x, thing):
    return thing.run(x), thing.name(), isinstance(thing, Derived), type(thing).__mro__[0].__name__


@program((X,), (X,), captured=2)
def shadowed_and_deleted_names(x):
    y = x + 1
    del x
    x = y * 2
    y = None
    try:
        del y
        y  # noqa: F821
    except UnboundLocalError as error:
        z = type(error).__name__
    return x, z


@program((X, True), (X, False), captured=1)
def unbound_on_one_path(x, flag):
    y = x * 2
    if flag:
        z = y + 1
    return z


@program((X, 1), (X, True), (X, 1.0), (X, 2), captured=1)
def types_of_numbers(x, n):
    y = x * n
    return y, type(n).__name__, n == 1, isinstance(n, bool), n is True


@program((X, float("nan")), (X, -0.0), (X, 0.0), captured=1)
def special_floats(x, f):
    y = x + f
    return y, f != f, math.copysign(1.0, f), f or "falsy"


@program((X, X), (X, X * 2), captured=1)
def identity_of_arguments(a, b):
    return (a + b, "same") if a is b else (a - b, "other")


@program((torch.ones(3), 1.0), (torch.ones(4), 2.0), captured=2)
def assertions(x, limit):
    y = x * 2
    assert x.shape[0] < 4, f"too long by {x.shape[0] - 3}"
    return y + limit


@program((X,), (X,), captured=2)
def print_between(x):
    y = x + 1
    print("y", y.sum().item())
    z = y * 2
    print(f"z {z.shape[0]}", end="!")
    return z - 1


@program((torch.zeros(2, 3), torch.ones(3)), (torch.zeros(2, 3), torch.ones(3)), captured=3)
def in_place_on_arguments(x, v):
    x += v
    x[0] = 7
    view = x[1]
    view.mul_(3)
    x.add_(view)
    return x, view


@program((X, torch.ones(3, 2)), (X, torch.ones(4, 2)), (X, torch.ones(3, 2)), captured=2)
def failing_operator_caught(x, w):
    try:
        y = x @ w
    except RuntimeError as error:
        return str(error), x.sum()
    return y + 1


@program((X, [0.5, 1.5]), (X, [2.5]), captured=1)
def numbers_from_a_list(x, ks):
    total = x
    for k in ks:
        total = total * k
    return total, sum(ks), max(ks), round(ks[0], 1)


@program((X,), (X,), captured=2)
def lambda_defaults_in_a_loop(x):
    fs = [lambda v, k=k: v * k for k in (1, 2, 3)]
    late = [lambda v: v + k for k in (1, 2)]
    return [f(x) for f in fs], [f(x) for f in late]


@program((X, 3), (X, 4), captured=1)
def star_calls(x, n):
    def collect(*args, a=0, **kwargs):
        return args, a, kwargs

    args = (x, n)
    options = {"a": 1, "b": x + 1}
    return collect(*args, *[1, 2], **options), collect(*(), **{**options, "c": 3}), [*args, 5], {**options}


@program((X,), (X,), captured=1)
def walrus_and_slices(x):
    if (n := x.shape[0]) > 1:
        x = x + n
    s = slice(0, 2)
    return x[s, ..., None], [1, 2, 3][s], "abc"[::-1], x[:, [0, 2]], x[x > 2]


@program((X, 2), (X, 3), captured=2)
def matrix_of_operators(x, n):
    y = -x + +x - x * n / 2 // 1 % 5
    z = (x > 1) & (x < 4) | ~(x == 2)
    return y**2, z, x @ x.T, n << 2, n ^ 1, abs(-n), divmod(n, 2), 2**n, x**n


@pytest.mark.parametrize("mode", ["wrap", "with"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, mode: str) -> None:
    fn, calls, least = PROGRAMS[name]
    seen = same_as_eager(fn, *calls, mode=mode)
    assert seen.operators >= least, seen.report


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 1)})
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Identity())
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("offset", torch.zeros(3))
        self.calls = 0

    def forward(self, x, which="a"):
        self.calls += 1
        for i, layer in enumerate(self.layers):
            x = layer(x) if i % 2 == 0 else layer(x).relu()
        x = self.body(x) * self.scale + self.offset
        return self.heads[which](x) + self.calls


@pytest.mark.parametrize("mode", ["wrap", "with"])
def test_module_of_modules(mode: str) -> None:
    torch.manual_seed(0)
    seen = same_as_eager(Net(), (X,), (X, "b"), (X,), (X, "a"), (X, "c"), (X,), mode=mode)
    assert seen.operators >= 9
