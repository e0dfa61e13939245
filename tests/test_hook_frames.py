"""Which code a frame runs (_hook.c): generators, recursion, threads, tracing, other evaluators, fork."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hook_helpers import CONFIG, Hook, always, at_entry, identity_hook, only

from framecap.bytecode import Rewritten
from framecap.hook import (
    Variant,
    code_state,
    forget,
    get_thread_config,
    set_thread_config,
)


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
        abs(x)
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
