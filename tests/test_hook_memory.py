"""What the hook keeps alive, and that it counts references exactly."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from hook_helpers import CONFIG, Hook, always, at, identity_hook, only

from framecap.bytecode import Rewritten, rewrite
from framecap.hook import (
    UNBOUND,
    Point,
    Variant,
    set_callbacks,
    set_thread_config,
)


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
        rewritten = rewrite(code, Point)
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
