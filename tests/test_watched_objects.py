"""Objects that notice being looked at: interpretation looks at everything without running the program's code."""

from __future__ import annotations

import abc
import weakref

import pytest
import torch

import framecap
from helpers import same_as_eager

X = torch.ones(3)


class Watched:
    """Counts every attribute that is looked up on it, the class included."""

    log: list[str] = []

    def __getattribute__(self, name):
        Watched.log.append(name)
        return object.__getattribute__(self, name)


def test_attributes_are_looked_up_as_often_as_in_eager() -> None:
    def fn(x):
        Watched.log.clear()
        seen = Watched()
        y = x + 1
        print(len(Watched.log))
        z = y * 2
        return z, seen.__class__ is Watched, list(Watched.log)

    same_as_eager(fn, (X,), (X,), (X,))


class OddKey:
    """Compares equal to an attribute's name, and notes that it was compared."""

    log: list[str] = []

    def __hash__(self):
        return hash("field")

    def __eq__(self, other):
        OddKey.log.append("compared")
        return False


def test_instance_dicts_with_keys_of_their_own() -> None:
    class Holder:
        field = 3

    def fn(x):
        OddKey.log.clear()
        holder = Holder()
        holder.__dict__[OddKey()] = 1
        y = x * holder.field
        return y, len(OddKey.log)

    same_as_eager(fn, (X,), (X,))


class CountingInt(int):
    hashed = 0

    def __hash__(self):
        CountingInt.hashed += 1
        return int.__hash__(self)


def test_hashes_are_not_computed() -> None:
    def fn(x):
        CountingInt.hashed = 0
        table = dict.fromkeys(map(CountingInt, range(4)))
        y = x + len(table)
        return y, CountingInt.hashed, sorted(table)

    same_as_eager(fn, (X,), (X,))


def test_dead_proxies() -> None:
    class Thing:
        pass

    def fn(x):
        proxy = weakref.proxy(Thing())
        y = x + 1
        print("between")
        z = y * 2
        try:
            proxy.anything
        except ReferenceError as error:
            return z, str(error)

    same_as_eager(fn, (X,), (X,))


def test_metaclass_that_computes_its_names() -> None:
    class Meta(type):
        log: list[str] = []

        @property
        def __module__(cls):
            Meta.log.append("module")
            return "elsewhere"

        def __setattr__(cls, name, value):
            Meta.log.append(name)
            super().__setattr__(name, value)

    class Thing(metaclass=Meta):
        def __init__(self, x):
            self.x = x

    def fn(x):
        Meta.log.clear()
        thing = Thing(x + 1)
        Thing.total = 5
        return thing.x * Thing.total, list(Meta.log)

    same_as_eager(fn, (X,), (X,))


def test_except_clauses_ask_no_metaclass() -> None:
    class Meta(type):
        def __subclasscheck__(cls, other):
            raise ValueError("asked")

    class Special(Exception, metaclass=Meta):
        pass

    def fn(x):
        try:
            raise KeyError("k")
        except Special:
            return x
        except KeyError:
            return x + 1

    seen = same_as_eager(fn, (X,), (X,))
    assert seen.operators == 1


def test_classes_registered_between_calls() -> None:
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    square = Square()

    def fn(x, register):
        if register:
            Shape.register(Square)
        return x * (2 if isinstance(square, Shape) else 3)

    def ask(x):
        return x * (2 if isinstance(square, Shape) else 3)

    import framecap

    optimized = framecap.optimize(ask)
    assert torch.equal(optimized(X), X * 3)
    Shape.register(Square)
    assert torch.equal(optimized(X), X * 2)


def test_subclass_hooks_of_the_program_run_as_often() -> None:
    class Sized(abc.ABC):
        asked = 0

        @classmethod
        def __subclasshook__(cls, other):
            Sized.asked += 1
            return hasattr(other, "size_of")

    class Box:
        size_of = 2

    def fn(x):
        y = x + 1
        return y * (2 if isinstance(Box(), Sized) else 3)

    same_as_eager(fn, (X,), (X,))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: str(object=5) + str(),
        lambda x: sum([1, 2], start=10),
        lambda x: list(enumerate("ab", start=3)),
        lambda x: sorted([3, 1], reverse=True),
        lambda x: max([], default=7),
        lambda x: max("b", "aa", key=len),
        lambda x: dict([("a", 1)], b=2),
        lambda x: int("11", base=2),
        lambda x: "a-b".split(sep="-", maxsplit=1),
        lambda x: list(zip([1], [2], strict=True)),
    ],
)
def test_keyword_arguments_are_not_ignored(call) -> None:
    same_as_eager(lambda x: (x + 1, call(x)), (X,), (X,))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: [].append(),
        lambda x: len(),
        lambda x: {}.get(),
        lambda x: isinstance(x),
        lambda x: int(x=1),
        lambda x: zip([1], wrong=2),
        lambda x: set().add(1, 2),
        lambda x: list(zip([1], [1, 2], strict=True)),
        lambda x: range(),
        lambda x: super(),
    ],
)
def test_wrong_calls_raise_as_in_eager(call) -> None:
    same_as_eager(lambda x: (x + 1, call(x)), (X,), (X,))


def test_comprehensions_that_go_on_in_a_long_list() -> None:
    def fn(x, flags):
        return [x * i for i, flag in enumerate(flags) if flag() or True]

    same_as_eager(fn, (X, [lambda: True] * 600))


def test_abs_of_an_object() -> None:
    class Value:
        def __init__(self, x):
            self.x = x

        def __abs__(self):
            return self.x.abs()

    seen = same_as_eager(lambda x: abs(Value(x - 2)), (X,), (X,))
    assert seen.operators == 2


def test_id_of_objects_from_outside_and_of_new_ones() -> None:
    def fn(x, thing):
        seen = {id(thing): 2.0, id(fn_of_the_module): 3.0}
        return x * seen[id(thing)] + seen[id(fn_of_the_module)]

    first, second = Thing(), Thing()
    seen = same_as_eager(fn, (torch.ones(2), first), (torch.zeros(2), first), (torch.ones(2), second))
    assert (seen.operators, seen.breaks) == (4, {})
    optimized = framecap.optimize(lambda thing: id(thing))
    assert [optimized(thing) for thing in (first, second, first)] == [id(first), id(second), id(first)]

    def of_new(x):
        y = x + 1
        return id(Thing()) > 0, y * 2

    seen = same_as_eager(of_new, (torch.ones(2),), (torch.ones(2),))
    assert (seen.operators, sum(seen.breaks.values())) == (2, 1)


class Thing:
    pass


def fn_of_the_module() -> None:
    pass
