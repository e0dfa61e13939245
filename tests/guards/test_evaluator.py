"""Every kind of guard: it matches what it was made from, fails after a change, says so, and keeps nothing alive."""

from __future__ import annotations

import gc
import math
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from framecap.guards import (
    AbsentAttrGuard,
    AbsentKeyGuard,
    AbsentTypeAttrGuard,
    Attr,
    Builtins,
    Call,
    CellOf,
    Const,
    DictOf,
    DistinctGuard,
    EqualsGuard,
    Get,
    Globals,
    Guard,
    Index,
    IsGuard,
    Item,
    KeysGuard,
    LeafModuleGuard,
    LengthGuard,
    PredicateGuard,
    SameGuard,
    Slot,
    TypeAttr,
    TypeGuard,
    TypeOf,
    UnboundGuard,
    compile_guards,
)

UNBOUND = object()
A, B = Slot(0, "a"), Slot(1, "b")


def holds(guard: Guard, *slots: Any, space: dict[str, Any] | None = None) -> bool:
    program = compile_guards([guard], [])
    slots = (*slots, UNBOUND, UNBOUND)
    outputs = program.match(slots, space or {}, {}, UNBOUND)
    failure = program.failure(slots, space or {}, {}, UNBOUND)
    assert (outputs is None) == (failure is not None)
    if failure is not None:
        assert failure[0] is guard and failure[1]
    return outputs is not None


class Plain:
    kind = "class"

    def __init__(self, value: Any = 1) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)


class Loud:
    """Code of the program that no guard may run."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a guard ran __getattr__")

    @property
    def shown(self) -> Any:
        raise AssertionError("a guard ran a property")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a guard ran __eq__")

    __hash__ = object.__hash__


VALUES = [
    (1, [True, 1.0, 2, "1", None]),
    (1.0, [1, 1.5, float("nan")]),
    (0.0, [-0.0, 0]),
    (float("nan"), [1.0]),
    (2**80, [2**80 + 1]),
    ("a", ["b", b"a"]),
    (None, [0, False]),
    (True, [1, False]),
    (1j, [complex(0, -1), complex(-0.0, 1)]),
    ((1, (2.0, "x")), [(1, (2, "x")), (True, (2.0, "x")), [1], (1,)]),
    (frozenset([1, 2]), [frozenset([1, 3]), frozenset([True, 2]), {1, 2}]),
    (torch.float32, [torch.float64, "torch.float32"]),
    (torch.device("cpu"), [torch.device("meta"), "cpu"]),
    (torch.Size([1, 2]), [(1, 2), torch.Size([2, 1])]),
]


@pytest.mark.parametrize(("value", "others"), VALUES, ids=lambda v: str(v)[:20])
def test_equals(value: Any, others: list[Any]) -> None:
    guard = EqualsGuard(A, value)
    again = type(value)(value) if isinstance(value, (float, tuple, frozenset)) else value
    assert holds(guard, value) and holds(guard, again)
    for other in others:
        assert not holds(guard, other), other
        assert guard != EqualsGuard(A, other)
    assert not holds(guard, Loud())


def test_identity_and_type() -> None:
    one, two = Plain(), Plain()
    assert holds(IsGuard(A, one), one) and not holds(IsGuard(A, one), two)
    assert holds(TypeGuard(A, Plain), one) and not holds(TypeGuard(A, Plain), 3)
    one.__class__ = type("Other", (Plain,), {})
    assert not holds(TypeGuard(A, Plain), one)
    assert holds(SameGuard(A, B), one, one) and not holds(SameGuard(A, B), one, two)
    assert holds(DistinctGuard((A, B)), one, two) and not holds(DistinctGuard((A, B)), one, one)
    assert holds(UnboundGuard(A)) and not holds(UnboundGuard(A), 1)
    assert holds(UnboundGuard(CellOf(A)), types.CellType()) and not holds(UnboundGuard(CellOf(A)), types.CellType(1))


def test_containers() -> None:
    assert holds(LengthGuard(A, 2), [1, 2]) and not holds(LengthGuard(A, 2), [1]) and not holds(LengthGuard(A, 2), Loud())
    assert holds(LengthGuard(A, 1), {"a": 1}) and holds(LengthGuard(A, 0), ()) and holds(LengthGuard(A, 1), {3})
    assert holds(KeysGuard(A, ("a", "b")), {"a": 1, "b": 2}) and not holds(KeysGuard(A, ("a", "b")), {"b": 1, "a": 2})
    assert not holds(KeysGuard(A, (1,)), {True: 1})
    assert holds(AbsentKeyGuard(A, "z"), {"a": 1}) and not holds(AbsentKeyGuard(A, "a"), {"a": 1})
    assert holds(EqualsGuard(Item(A, "k"), 3), {"k": 3}) and not holds(EqualsGuard(Item(A, "k"), 3), {"j": 3})
    assert holds(EqualsGuard(Index(A, 1), 3), [0, 3]) and not holds(EqualsGuard(Index(A, 1), 3), (0,))
    assert holds(EqualsGuard(Item(Globals(), "g"), 3), space={"g": 3})


def test_attributes_run_no_code_of_the_program() -> None:
    loud = Loud()
    loud.own = 3
    assert holds(EqualsGuard(Attr(A, "own"), 3), loud)
    for name in ("shown", "nothing"):
        assert holds(AbsentAttrGuard(A, name), loud)
        assert not holds(EqualsGuard(Attr(A, name), 3), loud)
    slotted = Slotted()
    assert holds(AbsentAttrGuard(A, "value"), slotted)
    slotted.value = 5
    assert holds(EqualsGuard(Attr(A, "value"), 5), slotted) and not holds(AbsentAttrGuard(A, "value"), slotted)


def test_attribute_reads_leave_inline_values_alone() -> None:
    objects = [Plain(i) for i in range(3)]
    program = compile_guards([EqualsGuard(Attr(A, "value"), 1)], [Attr(A, "value")])
    assert [program.match((o,), {}, {}) for o in objects] == [None, (1,), None]
    objects[0].__dict__["value"] = 1
    assert program.match((objects[0],), {}, {}) == (1,)
    del objects[1].value
    assert program.match((objects[1],), {}, {}) is None


def remembered(guards: list[Guard], slots: tuple[Any, ...], change: Callable[[], Any], back: Callable[[], Any]) -> None:
    """A program that has matched notices a change, and its undoing."""
    program = compile_guards(guards, [])
    for _ in range(2):
        assert program.match(slots, {}, {}) is not None
    change()
    for _ in range(2):
        assert program.match(slots, {}, {}) is None
    back()
    assert program.match(slots, {}, {}) is not None


def test_changes_after_a_match() -> None:
    class Base:
        level = 1

    class Derived(Base):
        pass

    plain, space, items = Plain(), {"a": 1}, [1, 2]
    cls = Const(Derived)
    set_value: Callable[[Any], Callable[[], None]] = lambda v: lambda: setattr(plain, "value", v)  # noqa: E731
    remembered([EqualsGuard(Attr(A, "value"), 1)], (plain,), set_value(2), set_value(1))
    remembered([EqualsGuard(Item(A, "a"), 1)], (space,), lambda: space.update(a=2), lambda: space.update(a=1))
    remembered([AbsentKeyGuard(A, "z")], (space,), lambda: space.update(z=2), lambda: space.pop("z"))
    remembered([KeysGuard(A, ("a",))], (space,), lambda: space.update(z=2), lambda: space.pop("z"))
    remembered([LengthGuard(A, 2)], (items,), lambda: items.append(1), lambda: items.pop())
    level: list[Guard] = [EqualsGuard(TypeAttr(cls, "level"), 1)]
    remembered(level, (), lambda: setattr(Base, "level", 2), lambda: setattr(Base, "level", 1))
    remembered(level, (), lambda: setattr(Derived, "level", 2), lambda: delattr(Derived, "level"))
    remembered([AbsentTypeAttrGuard(cls, "new")], (), lambda: setattr(Base, "new", 2), lambda: delattr(Base, "new"))
    remembered([EqualsGuard(Item(DictOf(A), "value"), 1)], (plain,), set_value(2), set_value(1))


def test_leaf_modules() -> None:
    module = nn.Linear(2, 2)
    guard = [LeafModuleGuard(A, nn.Linear)]
    handles: list[Any] = []
    for register in (module.register_forward_hook, module.register_forward_pre_hook, module.register_full_backward_hook):
        remembered(guard, (module,), lambda register=register: handles.append(register(print)), lambda: handles.pop().remove())
    remembered(guard, (module,), lambda: setattr(module, "forward", print), lambda: delattr(module, "forward"))
    assert holds(guard[0], module.train()) and not holds(guard[0], nn.ReLU())


def test_functions_and_calls() -> None:
    def fn(x: int = 1) -> int:
        return x

    assert holds(IsGuard(Get(A, "__code__"), fn.__code__), fn)
    assert holds(EqualsGuard(Index(Get(A, "__defaults__"), 0), 1), fn)
    assert holds(EqualsGuard(Call(len, A), 2), [1, 2]) and not holds(EqualsGuard(Call(len, A), 2), 3)
    assert holds(EqualsGuard(Call(lambda: 7), 7))
    assert holds(PredicateGuard(math.isclose, (A, B), "close"), 1.0, 1.0)
    assert holds(PredicateGuard(math.isclose, (A, B), "close", False), 1.0, 2.0)
    assert not holds(PredicateGuard(math.isclose, (A, B), "close"), "no", "numbers")
    assert holds(IsGuard(TypeOf(A), int), 3)


def test_outputs_come_in_order_and_once() -> None:
    plain = Plain([1, 2])
    sources = [Index(Attr(A, "value"), 1), A, Attr(A, "value"), Builtins(), Globals()]
    space: dict[str, Any] = {}
    outputs = compile_guards([], sources).match((plain,), space, {"len": len})
    assert outputs is not None
    assert outputs[0] == 2 and outputs[1] is plain and outputs[2] is plain.value and outputs[4] is space
    failure = compile_guards([], [Attr(A, "gone")]).failure((plain,), {}, {})
    assert failure == (None, "an object that is used can't be reached any more")


def test_nothing_is_kept_alive_and_dead_programs_are_known() -> None:
    def fn() -> None: ...

    cls = type("Gone", (), {})
    objects: list[Any] = [Plain(), fn, nn.Linear(1, 1), torch.ones(1), cls]
    programs = [compile_guards([IsGuard(A, o)], []) for o in objects]
    programs.append(compile_guards([TypeGuard(A, cls)], []))
    programs.append(compile_guards([EqualsGuard(TypeAttr(Const(cls), "x"), 1)], []))
    refs = [weakref.ref(o) for o in objects]
    assert not any(p.dead for p in programs)
    del objects, fn, cls
    gc.collect()
    assert [r() for r in refs] == [None] * 5
    assert all(p.dead for p in programs)
    assert all(p.match((Plain(),), {}, {}) is None for p in programs)


def test_reference_counts_are_exact() -> None:
    plain, space, items = Plain([3]), {"k": Plain()}, [Plain()]
    guards: list[Guard] = [
        TypeGuard(A, Plain),
        LengthGuard(Attr(A, "value"), 1),
        EqualsGuard(Index(Attr(A, "value"), 0), 3),
        IsGuard(Item(B, "k"), space["k"]),
        AbsentAttrGuard(A, "zz"),
        PredicateGuard(lambda a, b: True, (A, B), "yes"),
        DistinctGuard((A, B)),
    ]
    program = compile_guards(guards, [A, Item(B, "k")])
    failing = compile_guards([*guards, EqualsGuard(Slot(2, "c"), 1)], [A])
    watched = [plain, plain.value, space, space["k"], items, program, Plain, None]
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(10_000):
        program.match((plain, space), {}, {})
        failing.match((plain, space, items), {}, {})
        failing.failure((plain, space, items), {}, {})
    after = [sys.getrefcount(o) for o in watched]
    assert all(abs(a - b) < 5 for a, b in zip(after, before, strict=True)), (before, after)


def test_an_ordered_dict_that_is_reordered() -> None:
    ordered = OrderedDict(a=1, b=2)
    keys: Callable[[Any], tuple[Any, ...]] = lambda d: tuple(OrderedDict.keys(d))  # noqa: E731
    guard = EqualsGuard(Call(keys, A), ("a", "b"))
    remembered([guard], (ordered,), lambda: ordered.move_to_end("a"), lambda: ordered.move_to_end("b"))
