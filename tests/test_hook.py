"""What points and variants do (_point.h, _variant.h), with plain functions for regions; and their errors."""

from __future__ import annotations

import signal
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest
from hook_helpers import CONFIG, Hook, always, at, at_entry, contents, only

from framecap.bytecode import Rewritten, rewrite
from framecap.hook import (
    UNBOUND,
    Point,
    Variant,
    code_state,
    set_callbacks,
    set_thread_config,
    thread_config,
)


def test_a_region_that_returns() -> None:
    def f(a: int, b: int) -> int:
        return a + b

    hook = Hook(at_entry(lambda r: Variant(always(0, 1), lambda a, b: (0, (a * b,)), config=CONFIG)), only(f))
    with hook.active():
        assert [f(3, 4), f(5, 6)] == [12, 30]
        point = hook.by_id[id(f.__code__)].points[2]
        assert (point.hits, point.misses, hook.misses) == (2, 1, 1)
        assert point.variants[0].hits == 2
    assert f(3, 4) == 7


def test_a_region_in_a_loop_writes_locals_and_goes_on() -> None:
    def f(xs: list[int], log: list[Any]) -> int:
        acc = 0
        for x in xs:
            log.append(x)
            y = x * 2
            acc = acc + y
        return acc

    def on_miss(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> Variant | None:
        if point.offset != at("POP_TOP")(r):  # just after log.append(x): iterator and None on the stack
            return None
        target = r.targets[at("FOR_ITER")(r)]

        def region(acc: int, x: int, iterator: Any) -> tuple[Any, ...]:
            return (target, (iterator,), x * 1000, acc + x * 1000)

        return Variant(always(2, 3, -2), region, [(4, False), (2, False)], config=CONFIG)

    hook = Hook(on_miss, only(f))
    log: list[Any] = []
    with hook.active():
        assert f([1, 2, 3], log) == 6000
    assert log == [1, 2, 3]


def test_with_in_for_keeps_exits_and_lines() -> None:
    events: list[Any] = []

    class Manager:
        def __enter__(self) -> None:
            events.append("enter")

        def __exit__(self, *info: Any) -> None:
            events.append(("exit", info[0]))

    def f(xs: list[int]) -> int:
        acc = 0
        with Manager():
            for x in xs:
                y = x * 2
                events.append(y)
                acc = acc + y
                if acc > 100:
                    raise ValueError(acc)
        return acc

    def on_miss(r: Rewritten, point: Point, *rest: Any) -> Variant | None:
        if point.offset != at("POP_TOP", 1)(r):
            return None
        target = r.targets[at("COMPARE_OP")(r)]

        def region(acc: int, y: int, exit_function: Any, iterator: Any) -> tuple[Any, ...]:
            return (target, (exit_function, iterator, acc + y, 100), acc + y)

        return Variant(always(1, 3, -3, -2), region, [(1, False)], config=CONFIG)

    hook = Hook(on_miss, only(f))
    with hook.active():
        assert f([1, 2, 3]) == 12
        assert events == ["enter", 2, 4, 6, ("exit", None)]
        events.clear()
        with pytest.raises(ValueError, match="140") as caught:
            f([40, 30, 60])
    assert events == ["enter", 80, 60, ("exit", ValueError)]
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.line for frame in frames if frame.name == "f"] == ["raise ValueError(acc)"]
    assert sum(p.hits for p in hook.by_id[id(f.__code__)].points.values()) == 5


def test_null_slots_are_put_back() -> None:
    class P:
        def m(self, *args: int) -> tuple[int, ...]:
            return args

    def f(p: P, x: int) -> Any:
        return max(abs(x), p.m(abs(x), x)[0], len(str(p.m(x, abs(x)))))

    p, seen = P(), set()

    def on_miss(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> Variant | None:
        """Jump from the entry to each later place with a stack of our own making."""
        if point.offset != r.flow.entry or offset not in r.targets:
            return None
        seen.add(r.null_slots[offset])
        stack = [max, 7, p.m, abs, 3][: 5 - 2 * (r.flow.depth(offset) < 8)]
        return Variant(always(), lambda: (r.targets[offset], tuple(stack)), config=CONFIG)

    rewritten = rewrite(f.__code__, Point)
    second_abs = [i for i in rewritten.flow.instructions if i.opname == "PRECALL"][1]
    offset = second_abs.offset
    with Hook(on_miss, only(f)).active():
        assert rewritten.null_slots[offset] == (0, 3, 5)
        assert f(p, -3) == max(7, 3, len(str((-3, 3))))
    assert seen == {(0, 3, 5)}


def test_cells_and_unbinding() -> None:
    def f(a: int, b: int) -> Any:
        c = a

        def read() -> int:
            return a + c

        abs(b)
        return read, b

    def on_miss(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> Variant | None:
        if point.offset != at("POP_TOP")(r):
            return None
        names = [
            *f.__code__.co_varnames,
            *(n for n in f.__code__.co_cellvars if n not in f.__code__.co_varnames),
        ]
        a, b, c = (names.index(name) for name in "abc")
        assert contents(slots[a]) == 1
        target = r.targets[point.offset]
        return Variant(always(), lambda: (target, (None,), 10, 20), [(a, True), (c, True)], [b], CONFIG)

    with Hook(on_miss, only(f)).active():
        with pytest.raises(UnboundLocalError):
            f(1, 2)

    def empties(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> Variant | None:
        if point.offset != at("POP_TOP")(r):
            return None
        return Variant(always(), lambda: (r.targets[point.offset], (None,), UNBOUND), [(0, True)], [], CONFIG)

    with Hook(empties, only(f)).active():
        read, b = f(1, 2)
    assert b == 2
    with pytest.raises(NameError, match="'a'"):
        read()


def test_unbound_is_what_python_sees_of_null() -> None:
    def f(a: int) -> int:
        b = abs(a)
        return b

    seen = {}

    def on_miss(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> None:
        seen[point.offset] = slots

    with Hook(on_miss, only(f)).active():
        f(-1)
    assert seen[2] == (-1, UNBOUND)
    assert [slots for slots in seen.values() if len(slots) == 4] == [(-1, UNBOUND, UNBOUND, abs)]
    assert repr(UNBOUND) == "UNBOUND"


def test_what_on_miss_is_given() -> None:
    def f(x: int) -> int:
        return x

    seen: list[Any] = []
    with Hook(lambda r, *rest: seen.append(rest), only(f)).active():
        f(1)
    point, slots, func, module, builtins, config = seen[0]
    assert isinstance(point, Point)
    assert (slots, func, config) == ((1,), f, CONFIG)
    assert module is globals()
    assert builtins["abs"] is abs


def test_most_recent_variant_first_and_configs_apart() -> None:
    def f(x: Any) -> Any:
        return x

    other = object()

    def variant(kind: type, config: object) -> Variant:
        return Variant(
            lambda s, g, b: () if type(s[0]) is kind else None, lambda: (0, ((kind, config),)), config=config
        )

    hook = Hook(lambda r, p, slots, fn, g, b, config: variant(type(slots[0]), config), only(f))
    with hook.active():
        assert f(1) == (int, CONFIG)
        assert f("s") == (str, CONFIG)
        variants = hook.by_id[id(f.__code__)].points[2].variants
        assert [v.hits for v in variants] == [1, 1]
        f(2)
        assert [v.hits for v in variants] == [2, 1]
        with thread_config(other):
            assert f(1) == (int, other)
        assert len(variants) == 3
        assert hook.misses == 3


def test_a_variant_that_does_not_match_is_tried_once() -> None:
    def f(x: int) -> int:
        return x

    with Hook(
        at_entry(lambda r: Variant(lambda s, g, b: None, lambda: (0, (9,)), config=CONFIG)), only(f)
    ).active():
        assert f(1) == 1


@pytest.mark.parametrize(
    "result",
    [
        None,
        (0,),
        (0, ()),
        (0, (1, 2)),
        (99, ()),
        (-1, ()),
        ("0", (1,)),
        (0, [1]),
        (0, (1,), 2),
        (1 << 80, ()),
    ],
)
def test_ill_formed_results_are_errors_and_do_nothing(result: Any) -> None:
    def f(x: int) -> int:
        return x

    with Hook(at_entry(lambda r: Variant(always(), lambda: result, config=CONFIG)), only(f)).active():
        with pytest.raises(RuntimeError, match="a region returned"):
            f(1)


def test_writes_outside_the_frame_are_errors() -> None:
    def f(x: int) -> int:
        return x

    for writes in ([(5, False)], [(0, True)]):
        with Hook(
            at_entry(lambda r: Variant(always(), lambda: (0, (1,), 2), writes, config=CONFIG)), only(f)
        ).active():
            with pytest.raises(RuntimeError, match="a region writes slot"):
                f(1)


def test_waking_and_sleeping_in_a_running_frame() -> None:
    def f(n: int, act: Callable[[int], None]) -> int:
        acc = 0
        for i in range(n):
            act(i)
            acc = acc + 1
        return acc

    hook = Hook(None, only(f), wake=False)

    def on_miss(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> Variant:
        target = r.targets[at("FOR_ITER")(r)]
        return Variant(always(2, -2), lambda acc, it: (target, (it,), acc + 100), [(2, False)], config=CONFIG)

    hook.on_miss = on_miss
    with hook.active():
        f(1, abs)
        r = hook.by_id[id(f.__code__)]
        point = r.points[at("POP_TOP")(r)]

        def act(i: int) -> None:
            if i == 20:
                point.wake()
            if i == 30:
                point.sleep()

        for _ in range(3):
            assert f(40, act) == 30 + 1000
    assert not point.awake


def failing(pure: bool, error: BaseException) -> tuple[Callable[[int], Any], Hook, list[Any]]:
    events: list[Any] = []

    def f(x: int) -> Any:
        try:
            events.append("body")
            y = x + 1
            return 1 // x + y
        except (ZeroDivisionError, OSError) as caught:
            return type(caught).__name__
        finally:
            events.append("finally")

    def region() -> Any:
        raise error

    def on_miss(r: Rewritten, point: Point, *rest: Any) -> Variant | None:
        return (
            Variant(always(), region, pure=pure, config=CONFIG) if point.offset == at("POP_TOP")(r) else None
        )

    return f, Hook(on_miss, only(f)), events


def test_a_pure_region_that_raises_runs_natively() -> None:
    f, hook, events = failing(True, OSError())
    with hook.active():
        assert f(0) == "ZeroDivisionError"
        assert f(1) == 3
        point = next(p for p in hook.by_id[id(f.__code__)].points.values() if p.variants)
        assert (point.variants[0].deopts, point.variants[0].hits, point.hits) == (2, 0, 0)
    assert events == ["body", "finally"] * 2


def test_an_impure_region_raises_in_its_try_range() -> None:
    f, hook, events = failing(False, OSError())
    with hook.active():
        assert f(1) == "OSError"
    assert events == ["body", "finally"]


@pytest.mark.parametrize("pure", [True, False])
def test_interrupts_are_not_hidden(pure: bool) -> None:
    f, hook, events = failing(pure, KeyboardInterrupt())
    with hook.active(), pytest.raises(KeyboardInterrupt):
        f(1)
    assert events == ["body", "finally"]


def test_a_signal_during_a_region_reaches_finally() -> None:
    # A shell's background jobs start with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    events: list[str] = []

    def f(n: int) -> int:
        total = 0
        try:
            for i in range(n):
                abs(i)
                total = total + i
        finally:
            events.append("finally")
        return total

    def on_miss(r: Rewritten, point: Point, *rest: Any) -> Variant | None:
        if point.offset != at("POP_TOP")(r):
            return None
        target = r.targets[at("FOR_ITER")(r)]

        def region(i: int, iterator: Any) -> tuple[Any, ...]:
            if i == 3:
                signal.raise_signal(signal.SIGINT)
            return (target, (iterator,))

        return Variant(always(2, -2), region, pure=True, config=CONFIG)

    try:
        with Hook(on_miss, only(f)).active():
            with pytest.raises(KeyboardInterrupt):
                f(10)
            assert events == ["finally"]
            assert f(3) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_on_error_gives_the_traceback_its_line() -> None:
    def f(x: int) -> int:
        abs(x)
        y = x + 1
        z = y * 2
        return z

    seen: list[Any] = []

    def on_miss(r: Rewritten, point: Point, *rest: Any) -> Variant | None:
        def region() -> Any:
            raise OSError("region")

        if point.offset != at("POP_TOP")(r):
            return None
        return Variant(always(), region, config=CONFIG, data=at("BINARY_OP", 1)(r))

    def on_error(variant: Variant, kind: Any, error: Any, tb: Any) -> int:
        seen.append((kind, error, tb is not None))
        return int(variant.data)

    for handler in (on_error, lambda *a: None, lambda *a: 1 / 0, lambda *a: 10**9):
        unraisable: list[Any] = []
        old, sys.unraisablehook = sys.unraisablehook, unraisable.append
        try:
            with Hook(on_miss, only(f), on_error=handler).active(), pytest.raises(OSError) as caught:
                f(1)
        finally:
            sys.unraisablehook = old
        lines = [
            frame.line for frame in traceback.extract_tb(caught.value.__traceback__) if frame.name == "f"
        ]
        assert lines == ["z = y * 2" if handler is on_error else "abs(x)"]
        assert [type(u.exc_value) for u in unraisable] in ([], [ZeroDivisionError])
    assert seen[0][0] is OSError
    assert seen[0][2]


def test_callback_errors_propagate() -> None:
    def f(x: int) -> int:
        try:
            return abs(x) + 1
        except ZeroDivisionError:
            return -1

    def on_miss(r: Rewritten, point: Point, *rest: Any) -> None:
        if point.offset == at("BINARY_OP")(r) - 2:
            raise ZeroDivisionError

    with Hook(on_miss, only(f)).active():
        assert f(1) == -1

    def g() -> None:
        pass

    def on_code(code: types.CodeType) -> Any:
        if code is g.__code__:
            raise LookupError("on_code")

    set_callbacks(on_code, None)
    before = set_thread_config(CONFIG)
    try:
        with pytest.raises(LookupError):
            g()
        wrong: Any = lambda code: 3 if code is g.__code__ else None
        set_callbacks(wrong, None)
        with pytest.raises(TypeError, match="not a rewritten twin"):
            g()
        set_callbacks(None, None)
        assert g() is None  # type: ignore[func-returns-value]
    finally:
        set_thread_config(before)
        set_callbacks(None, None)


def test_points_outside_their_stub_do_nothing() -> None:
    point = Point(0, 0, 0)
    assert ~point is None
    assert (point.twin, point.code, point.awake, point.data) == (None, None, False, None)
    point.wake()
    assert not point.awake

    def f(x: Any) -> Any:
        return abs(x)

    with Hook(None, only(f)).active():
        f(1)
        for stub in rewrite(f.__code__, Point).points.values():
            assert ~stub is None
        twin = code_state(f.__code__)
        assert isinstance(twin, types.CodeType)

        class Inverts:
            def __abs__(self) -> list[Any]:
                return [~c for c in twin.co_consts if isinstance(c, Point)]

        assert set(f(Inverts())) == {None}
