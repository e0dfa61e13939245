"""_hook.c: which code a frame runs, what a point does, what is kept alive; with plain functions for
regions."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hook_helpers import CONFIG, Hook, contents, identity_hook

from framecap.bytecode import Rewritten, rewrite
from framecap.hook import (
    UNBOUND,
    OptimizedFunction,
    Point,
    Variant,
    code_state,
    forget,
    get_thread_config,
    set_callbacks,
    set_thread_config,
    thread_config,
)


def only(*functions: Callable[..., Any]) -> Callable[[types.CodeType], bool]:
    codes = [function.__code__ for function in functions]
    return lambda code: any(code is c for c in codes)


def always(*outs: Any) -> Callable[..., tuple[Any, ...]]:
    """A guard program that matches, and gives the region these slots."""
    return lambda slots, globals, builtins: tuple(slots[i] for i in outs)


def at(opname: str, nth: int = 0, **wanted: Any) -> Callable[[Rewritten], int]:
    """Finds the offset of the nth instruction with this name."""

    def find(rewritten: Rewritten) -> int:
        found = [
            inst.offset
            for inst in rewritten.flow.instructions
            if inst.opname == opname and all(getattr(inst, k) == v for k, v in wanted.items())
        ]
        return found[nth]

    return find


def at_entry(make: Callable[[Rewritten], Variant | None]) -> Callable[..., Variant | None]:
    return lambda rewritten, point, *rest: make(rewritten) if point.offset == rewritten.flow.entry else None


# ---- regions
# ----------------------------------------------------------------------------------------------------


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

    rewritten = rewrite(f.__code__)
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


# ---- errors
# -----------------------------------------------------------------------------------------------------


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

    with Hook(on_miss, only(f)).active():
        with pytest.raises(KeyboardInterrupt):
            f(10)
        assert events == ["finally"]
        assert f(3) == 0


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
        set_callbacks(lambda code: 3 if code is g.__code__ else None, None)  # type: ignore[arg-type, return-value]
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
        for stub in rewrite(f.__code__).points.values():
            assert ~stub is None
        twin = code_state(f.__code__)
        assert isinstance(twin, types.CodeType)

        class Inverts:
            def __abs__(self) -> list[Any]:
                return [~c for c in twin.co_consts if isinstance(c, Point)]

        assert set(f(Inverts())) == {None}


# ---- frames
# ------------------------------------------------------------------------------------------------------


def test_state_of_a_code() -> None:
    def f() -> int:
        return 1

    def g() -> int:
        return 2

    hook = Hook(None, only(f))
    assert code_state(f.__code__) is None
    with hook.active():
        f(), g()
        assert code_state(f.__code__) is hook.by_id[id(f.__code__)].twin
        assert code_state(g.__code__) is False
        forget(f.__code__)
        assert code_state(f.__code__) is None
        f()
        assert isinstance(code_state(f.__code__), types.CodeType)
    for wrong in (forget, code_state):
        with pytest.raises(TypeError):
            wrong(f)  # type: ignore[operator]


def test_generators_look_and_work_like_generators() -> None:
    def count(n: int) -> Any:
        try:
            for i in range(n):
                yield i
        finally:
            pass

    count.__qualname__ = "somewhere.count"
    with identity_hook(wanted=only(count)).active():
        g = count(3)
        assert (g.__name__, g.__qualname__) == ("count", "somewhere.count")
        assert g.gi_code is count.__code__
        assert inspect.getgeneratorstate(g) == inspect.GEN_CREATED
        assert g.gi_frame.f_lineno == count.__code__.co_firstlineno
        assert next(g) == 0
        assert inspect.getgeneratorstate(g) == inspect.GEN_SUSPENDED
        assert inspect.getgeneratorlocals(g) == {"n": 3, "i": 0}
        assert g.gi_frame.f_lineno == count.__code__.co_firstlineno + 3
        with pytest.raises(KeyError):
            g.throw(KeyError())
        assert inspect.getgeneratorstate(g) == inspect.GEN_CLOSED
        h = count(3)
        h.close()
        with pytest.raises(StopIteration):
            next(h)
        assert list(count(3)) == [0, 1, 2]

        outer = count(2)
        delegating = (lambda it: (yield from it))(outer)
        next(delegating)
        assert delegating.gi_yieldfrom is outer


def test_coroutines_look_and_work_like_coroutines() -> None:
    async def c(x: Any) -> Any:
        await asyncio.sleep(0)
        return x

    async def a(n: int) -> Any:
        for i in range(n):
            yield i

    with identity_hook(wanted=only(c, a)).active():
        made = c(1)
        assert inspect.iscoroutine(made)
        assert made.cr_code is c.__code__
        assert inspect.getcoroutinestate(made) == inspect.CORO_CREATED
        assert asyncio.run(made) == 1
        assert a(1).ag_code is a.__code__
        with pytest.warns(RuntimeWarning, match="'test_coroutines.*c' was never awaited"):
            c(2)
            gc.collect()


def test_a_generator_keeps_its_function_alive() -> None:
    def make() -> tuple[Any, weakref.ref[Any]]:
        def count(n: int) -> Any:
            yield n

        return count(1), weakref.ref(count)

    with Hook().active():
        g, ref = make()
        assert ref() is not None
        assert next(g) == 1
        assert list(g) == []
        gc.collect()
        assert ref() is None


def test_tracebacks_show_each_frame_once() -> None:
    def inner(x: int) -> float:
        return 1 / x

    def outer(x: int) -> float:
        return inner(x)

    with identity_hook(wanted=only(inner, outer)).active(), pytest.raises(ZeroDivisionError) as caught:
        outer(0)
    frames = traceback.extract_tb(caught.value.__traceback__)[1:]
    assert [(f.name, f.line) for f in frames] == [("outer", "return inner(x)"), ("inner", "return 1 / x")]
    assert [f.colno for f in frames] == [15, 15]


def test_recursion_limit_is_what_it_was() -> None:
    def depth() -> int:
        n = 0

        def recurse() -> None:
            nonlocal n
            n += 1
            recurse()

        with pytest.raises(RecursionError):
            recurse()
        return n

    depth()
    expected = depth()
    with Hook(wake=False).active():
        depth()
        assert depth() == expected


def test_recursion_deeper_than_the_c_stack() -> None:
    def down(n: int) -> int:
        return 0 if n == 0 else 1 + down(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(150_000)
    try:
        with Hook(wake=False).active():
            assert down(100_000) == 100_000
            assert down(10) == 10
    finally:
        sys.setrecursionlimit(limit)


def test_the_data_stack_is_never_overrun() -> None:
    """Frames at every distance from the end of a chunk; R needs more stack than C."""

    def f(n: int, a: int = 0) -> int:
        return f(n - 1, abs(n)) + 1 if n else 0

    wide = "def wide(n, fn):\n " + "\n ".join(f"v{i} = n" for i in range(101)) + "\n return fn(n)\n"
    scope: dict[str, Any] = {}
    exec(wide, scope)
    with identity_hook(wanted=only(f, scope["wide"])).active():
        for n in range(0, 700, 7):
            assert scope["wide"](n % 300, f) == n % 300
        for n in range(200):
            assert f(n) == n


def test_threads_are_apart() -> None:
    def f(x: int) -> int:
        return x

    hook = Hook(at_entry(lambda r: Variant(always(), lambda: (0, (99,)), config=CONFIG)), only(f))
    results: dict[str, Any] = {}
    with hook.active():
        f(0)

        def plain() -> None:
            results["config"] = get_thread_config()
            results["plain"] = {f(i) for i in range(1000)}

        def configured() -> None:
            set_thread_config(CONFIG)
            results["configured"] = {f(i) for i in range(1000)}
            # left on: the thread's end must give it back

        threads = [threading.Thread(target=target) for target in (plain, configured) * 3]
        for thread in threads:
            thread.start()
        assert {f(i) for i in range(1000)} == {99}
        for thread in threads:
            thread.join()
    assert results == {"config": None, "plain": set(range(1000)), "configured": {99}}
    assert f(1) == 1


def test_configs_of_ended_threads_are_dropped() -> None:
    class Config:
        pass

    config = Config()
    ref = weakref.ref(config)
    thread = threading.Thread(target=set_thread_config, args=(config,))
    thread.start()
    thread.join()
    del thread, config
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("setter", [sys.settrace, sys.setprofile])
def test_traced_frames_run_the_original(setter: Callable[[Any], None]) -> None:
    def f(x: int) -> Any:
        y = abs(x)
        return sys._getframe().f_code

    before = sys.gettrace(), sys.getprofile()
    lines: list[int] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_name == "f":
            lines.append(frame.f_lineno - f.__code__.co_firstlineno)
        return tracer

    hook = identity_hook(wanted=only(f))
    with hook.active():
        assert f(1) is not f.__code__
        hits = hook.by_id[id(f.__code__)].points[2].hits
        setter(tracer)
        try:
            code = f(1)
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])
        assert code is f.__code__
        assert hook.by_id[id(f.__code__)].points[2].hits == hits
        assert lines == ([0, 1, 2, 2] if setter is sys.settrace else [0, 1, 1, 2, 2, 2])[: len(lines)]
        assert lines


def test_tracing_that_starts_within_a_frame() -> None:
    def f(start: Callable[[], None]) -> list[int]:
        lines.append(0)
        start()
        a = abs(1)
        b = abs(2)
        return [a, b]

    lines: list[int] = []
    before = sys.gettrace()

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            lines.append(frame.f_lineno - f.__code__.co_firstlineno)
        return tracer

    def start() -> None:
        sys.settrace(tracer)
        sys._getframe(1).f_trace = tracer

    with identity_hook(wanted=only(f)).active():
        try:
            assert f(start) == [1, 2]
        finally:
            sys.settrace(before)
    assert lines[:4] == [0, 3, 4, 5]


def test_nothing_is_captured_while_a_region_or_callback_runs() -> None:
    def helper(x: int) -> int:
        return x + 1

    def f(x: int) -> int:
        return helper(x)

    states: list[Any] = []

    def region(x: int) -> tuple[Any, ...]:
        states.append((helper(x), code_state(helper.__code__)))
        return (0, (x,))

    def make(r: Rewritten) -> Variant:
        helper(1)
        return Variant(always(0), region, config=CONFIG)

    with Hook(at_entry(make), only(f, helper)).active():
        f(1)
        assert states == [(2, None)]
        helper(1)
        assert code_state(helper.__code__) is not None


def test_another_evaluator_is_kept() -> None:
    torch_eval_frame = pytest.importorskip("torch._C._dynamo.eval_frame")

    def f(x: int) -> int:
        return x

    hook = Hook(at_entry(lambda r: Variant(always(), lambda: (0, (99,)), config=CONFIG)), only(f))
    previous = torch_eval_frame.set_eval_frame(False)
    try:
        with hook.active():
            assert f(1) == 99
    finally:
        torch_eval_frame.set_eval_frame(previous)
    assert f(1) == 1


def test_fork() -> None:
    def f(x: int) -> int:
        return x

    with Hook(at_entry(lambda r: Variant(always(), lambda: (0, (99,)), config=CONFIG)), only(f)).active():
        f(1)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if f(1) == 99 and get_thread_config() is CONFIG else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---- what is kept alive
# --------------------------------------------------------------------------------------------


def growth(act: Callable[[], Any], n: int) -> int:
    """Blocks that n calls leave allocated, after as many to warm up."""
    for _ in range(n // 10):
        act()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(n):
        act()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_nothing_leaks_over_many_calls() -> None:
    class Thing:
        alive = 0

        def __init__(self) -> None:
            Thing.alive += 1

        def __del__(self) -> None:
            Thing.alive -= 1

    def f(x: Any, k: Any = None) -> Any:
        y = Thing()
        z = [x, y, abs(-1)]
        return z, k

    def g(n: int) -> Any:
        t = Thing()
        for _ in range(n):
            yield t

    def fails(x: Any) -> Any:
        return x.missing

    def failing_call() -> None:
        try:
            fails(Thing())
        except AttributeError:
            pass

    with identity_hook(wanted=only(f, g, fails)).active():
        assert growth(lambda: f(Thing(), k=Thing()), 100_000) < 100
        assert growth(lambda: list(g(2)), 20_000) < 100
        assert growth(failing_call, 20_000) < 100
    assert Thing.alive == 0


def test_references_of_regions_are_exact() -> None:
    def f(a: Any, b: Any) -> Any:
        c = abs(1)
        return [a, abs(2), c]

    value = object()
    a, b = object(), object()

    def on_miss(r: Rewritten, point: Point, *rest: Any) -> Variant | None:
        offset = at("PRECALL", 1)(r)
        if point.offset != at("LOAD_CONST", argval=2)(r):
            return None
        target = r.targets[offset]
        return Variant(
            lambda s, g, bi: s,
            lambda *s: (target, (s[0], abs, 2), value, UNBOUND),
            [(2, False), (1, False)],
            [],
            CONFIG,
        )

    hook = Hook(on_miss, only(f))
    with hook.active():
        f(a, b)
        counts = [sys.getrefcount(x) for x in (a, b, value, abs, None)]
        for _ in range(1000):
            assert f(a, b) == [a, 2, value]
        after = [sys.getrefcount(x) for x in (a, b, value, abs, None)]
        assert after[:4] == counts[:4]
        assert abs(after[4] - counts[4]) < 20
    assert sum(p.hits for p in hook.by_id[id(f.__code__)].points.values()) == 1001


def test_collected_codes_free_their_twins() -> None:
    class Marker:
        pass

    refs: list[weakref.ref[Any]] = []

    def on_code(code: types.CodeType) -> types.CodeType | None:
        if code.co_name != "fresh":
            return None
        rewritten = rewrite(code)
        for point in rewritten.points.values():
            point.data = Marker()
            point.variants.append(
                Variant(always(), lambda: None, config=point)
            )  # a cycle through the collector
            refs.append(weakref.ref(point.data))
        refs.append(weakref.ref(rewritten.twin))
        return rewritten.twin

    set_callbacks(on_code, None)
    before = set_thread_config(CONFIG)
    try:
        for _ in range(3):
            scope: dict[str, Any] = {}
            exec("def fresh(x):\n  return abs(x)\n", scope)
            scope["fresh"](1)
    finally:
        set_thread_config(before)
        set_callbacks(None, None)
    assert all(ref() is not None for ref in refs[:2])
    del scope
    gc.collect()  # the function and its globals, and so the codes
    gc.collect()  # points and variants, which the codes held
    assert [ref() for ref in refs] == [None] * len(refs)


def test_a_suspended_generator_outlives_its_code() -> None:
    scope: dict[str, Any] = {}
    exec("def fresh(x):\n  yield abs(x)\n  yield abs(x + 1)\n", scope)
    with identity_hook().active() as hook:
        g = scope["fresh"](-3)
        assert next(g) == 3
        hook.by_id.clear()
        hook.asked.clear()
        scope.clear()
        gc.collect()
    assert next(g) == 2


def test_checked_allocator() -> None:
    """The whole of this file's machinery once more under CPython's checking allocator."""
    program = (
        "import bytecode_corpus as c, hook_helpers as h\n"
        "expected = [c.outcome(f, a) for f, cases in c.CASES for a in cases]\n"
        "for _ in range(3):\n"
        "    with h.identity_hook().active():\n"
        "        got = [c.outcome(f, a) for f, cases in c.CASES for a in cases]\n"
        "    assert got == expected\n"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- OptimizedFunction
# ---------------------------------------------------------------------------------------------


def documented(a: int, *, b: int = 2) -> int:
    """Adds."""
    return a + b


wrapped = OptimizedFunction(documented, CONFIG)


def test_optimized_functions_look_like_functions() -> None:
    assert wrapped.__wrapped__ is documented
    assert (wrapped.__name__, wrapped.__qualname__, wrapped.__module__) == (
        "documented",
        "documented",
        __name__,
    )
    assert wrapped.__doc__ == "Adds."
    assert inspect.signature(wrapped) == inspect.signature(documented)
    assert wrapped.__kwdefaults__ == {"b": 2}
    assert wrapped.config is CONFIG
    assert "documented" in repr(wrapped)
    other = OptimizedFunction(documented, None)
    other.tag = 1  # type: ignore[attr-defined]
    other.__name__ = "renamed"
    assert (other.__dict__["tag"], other.__name__, documented.__name__) == (1, "renamed", "documented")
    assert weakref.ref(other)() is other
    assert copy.deepcopy(other) is other
    with pytest.raises(AttributeError):
        wrapped.nothing  # noqa: B018
    with pytest.raises(TypeError, match="callable"):
        OptimizedFunction(3, None)  # type: ignore[arg-type]


def test_optimized_functions_pickle_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "documented", wrapped)
    assert pickle.loads(pickle.dumps(wrapped)) is wrapped


def test_optimized_functions_set_and_restore_the_config() -> None:
    seen: list[Any] = []

    def fn(*args: Any, **kwargs: Any) -> Any:
        seen.append(get_thread_config())
        if args == ("fail",):
            raise LookupError
        return args, kwargs

    f = OptimizedFunction(fn, "one")
    assert f(1, b=2) == ((1,), {"b": 2})
    with pytest.raises(LookupError):
        f("fail")
    with thread_config("two"):
        f()
        OptimizedFunction(fn, None)()
        assert get_thread_config() == "two"
    assert seen == ["one", "one", "one", None]
    assert get_thread_config() is None


def test_optimized_functions_bind() -> None:
    class C:
        @lambda f: OptimizedFunction(f, CONFIG)  # type: ignore[arg-type]
        def method(self, x: int) -> Any:
            return self, x

    c = C()
    assert c.method(1) == (c, 1)
    assert C.method(c, 2) == (c, 2)
    assert isinstance(C.__dict__["method"], OptimizedFunction)


def test_optimized_functions_are_collected() -> None:
    def fn() -> None:
        pass

    f = OptimizedFunction(fn, CONFIG)
    f.me = f  # type: ignore[attr-defined]
    ref = weakref.ref(f)
    del f
    gc.collect()
    assert ref() is None


def test_variant_arguments() -> None:
    run = lambda: (0, ())
    v = Variant(always(), run, [(1, False), (2, True)], [3], CONFIG, True, "data")
    assert (v.writes, v.unbinds, v.config, v.pure, v.data) == (
        ((1, False), (2, True)),
        (3,),
        CONFIG,
        True,
        "data",
    )
    assert (v.hits, v.deopts, v.run) == (0, 0, run)
    for wrong in (
        lambda: Variant(3, run),
        lambda: Variant(always(), run, [1]),  # type: ignore[list-item]
        lambda: Variant(always(), run, [("a", False)]),  # type: ignore[list-item]
        lambda: Variant(always(), run, [], ["a"]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="negative"):
        Variant(always(), run, [(-1, False)])
