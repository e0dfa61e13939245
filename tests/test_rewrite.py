"""bytecode/rewrite.py and tables.py: the twin has everything of the original, and changes nothing."""

from __future__ import annotations

import argparse
import asyncio.base_events
import dis
import math
import time
import types
from collections.abc import Callable
from typing import Any

import bytecode_corpus as corpus
import pytest
from hook_helpers import CONFIG, Hook, identity_hook, stack_for

from framecap._hook import Point, Variant
from framecap.bytecode import Rewritten, decode, rewrite
from framecap.bytecode.flow import exception_ranges
from framecap.bytecode.rewrite import _null_plan

CODES = corpus.codes_of(corpus, argparse, asyncio.base_events)


def with_code(function: Callable[..., Any], code: types.CodeType) -> Callable[..., Any]:
    assert isinstance(function, types.FunctionType)
    other = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    other.__kwdefaults__ = function.__kwdefaults__
    return other


@pytest.mark.parametrize(("function", "cases"), corpus.CASES, ids=corpus.IDS)
@pytest.mark.parametrize("awake", [False, True])
def test_twins_behave_the_same_without_the_hook(function: Any, cases: Any, awake: bool) -> None:
    rewritten = rewrite(function.__code__, Point)
    for point in rewritten.points.values():
        if awake:
            point.wake()
    twin = with_code(function, rewritten.twin)
    for arguments in cases:
        for _ in range(2 if "run_" in function.__name__ else 9):  # past quickening; event loops are slow
            assert corpus.outcome(twin, arguments) == corpus.outcome(function, arguments)


@pytest.mark.parametrize(("function", "cases"), corpus.CASES, ids=corpus.IDS)
@pytest.mark.parametrize("kind", ["asleep", "no variant", "identity"])
def test_the_whole_corpus_behaves_the_same_under_the_hook(function: Any, cases: Any, kind: str) -> None:
    hook = identity_hook() if kind == "identity" else Hook(wake=kind != "asleep")
    expected = [corpus.outcome(function, arguments) for arguments in cases]
    for _ in range(4):
        with hook.active():
            got = [corpus.outcome(function, arguments) for arguments in cases]
        assert got == expected
    assert id(function.__code__) in hook.by_id
    if kind == "identity":
        assert sum(p.hits for p in hook.by_id[id(function.__code__)].points.values()) > 0


def test_what_a_twin_keeps() -> None:
    for code in CODES:
        twin = rewrite(code, Point).twin
        for name in (
            "co_name", "co_qualname", "co_filename", "co_firstlineno", "co_flags", "co_names", "co_varnames",
            "co_cellvars", "co_freevars", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount",
            "co_nlocals",
        ):  # fmt: skip
            assert getattr(twin, name) == getattr(code, name)
        assert twin.co_consts[: len(code.co_consts)] == code.co_consts
        assert twin.co_stacksize >= code.co_stacksize


def test_instructions_and_positions_are_copied() -> None:
    for code in CODES:
        rewritten = rewrite(code, Point)
        copies = {inst.offset: inst for inst in decode(rewritten.twin)}
        positions = list(rewritten.twin.co_positions())
        for inst in rewritten.flow.instructions:
            offset = rewritten.twin_offset(inst.offset)
            copy = copies[offset]
            assert (copy.opname, copy.positions) == (inst.opname, inst.positions)
            assert set(positions[offset // 2 : copy.end // 2]) == {inst.positions}
            if inst.target is None:
                assert copy.arg == inst.arg
            else:  # it jumps to the stub before the target's copy, if there is one
                assert copy.target is not None
                target = rewritten.twin_offset(inst.target)
                if inst.target in rewritten.points:
                    assert copies[copy.target].opname == "JUMP_FORWARD"
                    assert copies[copy.target].target == target
                else:
                    assert copy.target == target


def test_stubs_stand_in_the_range_and_at_the_place_of_their_instruction() -> None:
    seen = 0
    for code in CODES:
        rewritten = rewrite(code, Point)
        instructions = decode(rewritten.twin)
        index = {inst.offset: inst.index for inst in instructions}
        ranges = exception_ranges(rewritten.twin)
        originals = rewritten.flow.ranges
        assert len(ranges) == len(originals)
        for mine, theirs in zip(ranges, originals, strict=True):
            assert (mine.depth, mine.lasti) == (theirs.depth, theirs.lasti)
            assert mine.target == rewritten.twin_offset(theirs.target)  # no point, so no stub, at a handler
        for offset in rewritten.points:
            copy = index[rewritten.twin_offset(offset)]
            stub = copy - 6
            assert instructions[stub].opname == "JUMP_FORWARD"
            number = next((i for i, r in enumerate(originals) if r.start <= offset < r.end), None)
            for inst in instructions[stub : copy + 1]:
                inside = next((i for i, r in enumerate(ranges) if r.start <= inst.offset < r.end), None)
                assert inside == number
                assert inst.positions == instructions[copy].positions
            seen += number is not None
        last = rewritten.twin_offset(rewritten.flow.instructions[-1].offset)
        assert all(r.end <= instructions[index[last]].end for r in ranges)
    assert seen > 200


def test_nothing_behind_the_code_raises_or_handles_signals() -> None:
    allowed = {
        "SWAP", "POP_TOP", "UNPACK_SEQUENCE", "COPY", "LOAD_CONST", "COMPARE_OP", "POP_JUMP_FORWARD_IF_FALSE",
        "PUSH_NULL", "RETURN_VALUE", "JUMP_BACKWARD_NO_INTERRUPT",
    }  # fmt: skip
    for code in CODES:
        rewritten = rewrite(code, Point)
        last = rewritten.twin_offset(rewritten.flow.instructions[-1].offset)
        assert {inst.opname for inst in decode(rewritten.twin) if inst.offset > last} <= allowed


@pytest.mark.parametrize(
    "stack",
    [(), (False,), (True,), (True, False), (False, True), (True, True), (True, False, True, False, False),
     (False, True, True, False), (True,) * 5, (False,) * 4 + (True,), tuple(i % 3 == 0 for i in range(300))],
)  # fmt: skip
def test_null_plan(stack: tuple[bool, ...]) -> None:
    order, swaps = _null_plan(stack)
    values = [i for i, null in enumerate(stack) if not null]
    built: list[int | None] = []
    for i in reversed(memoryview(order).cast("H").tolist()):
        built.append(values[i])
    for swap in swaps:
        built.append(None)
        built[-1], built[-swap] = built[-swap], built[-1]
    assert built == [None if null else i for i, null in enumerate(stack)]


def test_targets() -> None:
    rewritten = rewrite(corpus.with_for.__code__, Point)
    flow = rewritten.flow
    assert set(rewritten.targets) == {*flow.break_places, *flow.exit_only, *flow.capture_points}
    assert sorted(rewritten.targets.values()) == list(range(1, len(rewritten.targets) + 1))
    assert set(rewritten.null_slots) == set(rewritten.targets)
    assert flow.entry in rewritten.points
    assert not any(point.awake for point in rewritten.points.values())
    assert all(point.offset == offset for offset, point in rewritten.points.items())
    assert [p.index for p in rewritten.points.values()] == list(range(len(rewritten.points)))
    assert {p.twin for p in rewritten.points.values()} == {rewritten.twin}
    assert {p.code for p in rewritten.points.values()} == {flow.code}


def big_function(n: int) -> Callable[..., Any]:
    """A loop whose body, of n calls and n branches, needs long jumps; its last calls have deep stacks."""
    lines = ["def big(f, items):", "    total = 0", "    for x in items:", "        try:"]
    for i in range(n):
        lines += [f"            if f(x) > {i}:", f"                total += f({i}) - x"]
    lines += ["        finally:", "            total += 1"]
    lines += [f"    return total, {' ** '.join(['f(1)'] * 300)}"]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return scope["big"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("identity", [False, True])
def test_very_large_functions(identity: bool) -> None:
    big = big_function(400)
    expected = big(abs, range(-20, 20))
    hook = identity_hook() if identity else Hook()
    with hook.active():
        for _ in range(3):
            assert big(abs, range(-20, 20)) == expected
    rewritten = hook.by_id[id(big.__code__)]
    assert len(rewritten.flow.break_places) > 1200
    assert max(rewritten.flow.depth(o) for o in rewritten.targets) > 255
    assert any(inst.opname == "EXTENDED_ARG" for inst in dis.get_instructions(rewritten.twin))


def test_module_code_and_class_bodies() -> None:
    source = "import math\nout = []\nfor i in range(4):\n"
    source += "    class C:\n        y = i + math.floor(2.5)\n    out.append(C.y)\n"
    code = compile(source, "<module>", "exec")
    scope: dict[str, Any] = {"__name__": "m"}
    hook = identity_hook()
    with hook.active():
        exec(code, scope)
    assert scope["out"] == [2, 3, 4, 5]
    rewritten = hook.by_id[id(code)]
    assert sum(p.hits for p in rewritten.points.values()) > 20
    assert "C" not in [r.code.co_name for r in hook.by_id.values()]
    with hook.active():
        hits = sum(p.hits for p in rewritten.points.values())
        exec(code, {"__name__": "m", "i": 1, "math": math}, {})  # other locals than globals: native
        assert sum(p.hits for p in hook.by_id[id(code)].points.values()) == hits


def test_cost() -> None:
    code = argparse.ArgumentParser._parse_known_args.__code__  # type: ignore[attr-defined]
    n = len(decode(code))
    best = min(timed(lambda: rewrite(code, Point)) for _ in range(5))
    assert best / n < 100e-6  # some 15 µs an instruction; the bound is for slow machines


def timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def test_make_point_and_rewritten_twice() -> None:
    made = []

    def make_point(offset: int, depth: int, index: int) -> Point:
        made.append((offset, depth, index))
        return Point(offset, depth, index)

    rewritten = rewrite(corpus.nested_expression.__code__, make_point)
    assert made == [(p.offset, p.depth, p.index) for p in rewritten.points.values()]
    assert isinstance(rewritten, Rewritten)
    with pytest.raises(RuntimeError, match="bound"):
        point = rewritten.points[rewritten.flow.entry]
        point.bind(rewritten.twin, rewritten.code, 1, 6, 3, (), b"")
    with pytest.raises(ValueError, match="sleeping stub"):
        Point(0, 0, 0).bind(rewritten.twin, rewritten.code, 0, 6, 3, (), b"")


def test_every_exit_is_reachable_from_the_entry() -> None:
    """From the entry of a straight-line function to each of its break places, with a stack made up for it."""

    class P:
        def m(self, x: int) -> int:
            return x + 1

    def f(p: Any, x: int) -> list[int]:
        return [p.m(x), max(p.m(x), p.m(abs(x))), min(x, len(str(abs(x))))]

    p = P()
    expected = f(p, 3)
    rewritten = rewrite(f.__code__, Point)
    tried = 0
    stacks: dict[int, tuple[Any, ...]] = {}

    def record(r: Rewritten, point: Point, slots: tuple[Any, ...], *rest: Any) -> None:
        stacks[point.offset] = stack_for(r, point.offset, slots)

    with Hook(record, wanted=lambda c: c is f.__code__).active():
        assert f(p, 3) == expected
    for offset, stack in stacks.items():
        if offset == rewritten.flow.entry:
            continue

        def jump(
            r: Rewritten, point: Point, *rest: Any, offset: int = offset, stack: Any = stack
        ) -> Variant | None:
            if point.offset != r.flow.entry:
                return None
            return Variant(lambda s, g, b: (), lambda: (r.targets[offset], copied(stack)), config=CONFIG)

        with Hook(jump, wanted=lambda c: c is f.__code__).active():
            assert f(p, 3) == expected
        tried += 1
    assert tried > 15


def copied(stack: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(list(item) if isinstance(item, list) else item for item in stack)
