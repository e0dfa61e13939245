"""bytecode/instruction.py and bytecode/flow.py: decoding, stacks, exception ranges, places, liveness."""

from __future__ import annotations

import argparse
import asyncio.base_events
import dis
import inspect
from typing import Any

import bytecode_corpus as corpus
import pytest

from framecap.bytecode import Flow, Instruction, analyse, decode, entry_offset, live_slots, slot_names
from framecap.bytecode.flow import _after, exception_ranges

CODES = corpus.codes_of(corpus, argparse, asyncio.base_events, dis, inspect)


def named(flow: Flow, opname: str, nth: int = 0) -> Instruction:
    return [inst for inst in flow.instructions if inst.opname == opname][nth]


def test_decoding_agrees_with_dis() -> None:
    for code in CODES:
        expected = [inst for inst in dis.get_instructions(code) if inst.opname != "EXTENDED_ARG"]
        got = decode(code)
        assert [i.opname for i in got] == [i.opname for i in expected]
        assert [i.arg for i in got] == [i.arg for i in expected]
        assert [i.positions for i in got] == [tuple(i.positions) for i in expected if i.positions]
        starts = {i.offset: i.index for i in got}
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.offset <= theirs.offset < mine.end
            if mine.target is not None:
                assert mine.target in starts
                assert mine.target == theirs.argval
            elif (
                theirs.opname != "KW_NAMES"
                and mine.arg is not None
                and theirs.opcode in dis.hasname + dis.haslocal
            ):
                assert mine.argval == theirs.argval


def test_slot_names_are_the_frame_layout() -> None:
    def outer(a: int, b: int, *c: int) -> Any:
        d = e = 1

        def inner() -> tuple[int, ...]:
            return a, d

        return inner, b, c, e

    assert slot_names(outer.__code__) == ("a", "b", "c", "e", "inner", "d")
    assert slot_names(outer(1, 2)[0].__code__) == ("a", "d")


def test_stacks_agree_on_every_way() -> None:
    for code in CODES:
        flow = analyse(code)
        deepest = 0
        for inst in flow.instructions:
            stack = flow.stacks[inst.index]
            if stack is None:
                continue
            deepest = max(deepest, len(stack))
            ways = []
            if inst.opname not in ("RETURN_VALUE", "RERAISE", "RAISE_VARARGS"):
                if not inst.opname.startswith("JUMP_") or inst.opname.endswith("_OR_POP"):
                    ways.append((inst.index + 1, _after(inst, stack, False)))
                if inst.target is not None:
                    ways.append((flow.index_of[inst.target], _after(inst, stack, True)))
            for index, after in ways:
                assert flow.stacks[index] == after, (code, inst)
        assert deepest <= code.co_stacksize


def test_exception_ranges_are_dis_s() -> None:
    for code in CODES:
        entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        expected = [(e.start, e.end, e.target, e.depth, e.lasti) for e in entries]
        assert [(r.start, r.end, r.target, r.depth, r.lasti) for r in exception_ranges(code)] == expected


def test_entry_is_behind_the_prologue() -> None:
    def closure_generator(a: int) -> Any:
        yield lambda: a

    code = closure_generator.__code__
    before = [i.opname for i in decode(code) if i.offset < entry_offset(code)]
    assert before == ["MAKE_CELL", "RETURN_GENERATOR", "POP_TOP", "RESUME"]
    assert entry_offset(corpus.simple.__code__) == 2
    assert analyse(code).depth(entry_offset(code)) == 0


def test_null_slots() -> None:
    def f(p: Any, x: Any) -> Any:
        return g(x, p.m(x + 1))  # noqa: F821

    flow = analyse(f.__code__)
    assert flow.null_slots(named(flow, "BINARY_OP").offset) == (0, 3)  # NULL g x (NULL m) x 1
    assert flow.depth(named(flow, "BINARY_OP").offset) == 7
    assert flow.null_slots(named(flow, "LOAD_GLOBAL").offset) == ()


def test_a_call_is_one_break_place() -> None:
    def f(g: Any, x: Any) -> Any:
        y = g(x, key=1)
        return y

    flow = analyse(f.__code__)
    assert [flow.instructions[flow.index_of[b]].opname for b in flow.break_places] == ["KW_NAMES"]
    (point,) = flow.after[named(flow, "KW_NAMES").offset]
    assert flow.instructions[flow.index_of[point]].opname == "STORE_FAST"
    assert flow.capture_points == (flow.entry, point)


def test_both_ways_of_a_branch_follow_its_comparison() -> None:
    def f(a: Any, b: Any) -> Any:
        if a < b:
            return 1
        return 2

    flow = analyse(f.__code__)
    compare, jump = named(flow, "COMPARE_OP"), named(flow, "POP_JUMP_FORWARD_IF_FALSE")
    assert jump.target is not None
    assert set(flow.after[compare.offset]) == {jump.end, jump.target} == set(flow.after[jump.offset])
    assert jump.offset in flow.break_places
    assert jump.offset not in flow.capture_points


def test_a_point_after_yield_is_behind_resume() -> None:
    def f(x: Any) -> Any:
        got = yield x + 1
        return got

    flow = analyse(f.__code__)
    resume = named(flow, "RESUME", 1)
    assert flow.after[named(flow, "YIELD_VALUE").offset] == (resume.end,)
    assert flow.after[named(flow, "BINARY_OP").offset] == (resume.end,)


def test_await_loops_hold_no_points() -> None:
    async def f(x: Any) -> Any:
        return await x

    flow = analyse(f.__code__)
    send = named(flow, "SEND")
    assert not any(send.offset < point < (send.target or 0) for point in flow.capture_points)


def test_loads_that_may_be_unbound_are_exits() -> None:
    flow = analyse(corpus.unbound_local.__code__)
    assert flow.exit_only == (named(flow, "LOAD_FAST", -1).offset,)
    assert analyse(corpus.loop.__code__).exit_only == ()
    flow = analyse(corpus.deleted_cell.__code__)
    assert named(flow, "DELETE_DEREF").offset in flow.exit_only

    def caught(f: Any) -> Any:
        try:
            value = f()
        except ValueError:
            pass
        return value

    flow = analyse(caught.__code__)
    assert {flow.instructions[flow.index_of[o]].argval for o in flow.exit_only} == {"value"}


def test_unreachable_code_has_no_places() -> None:
    def f(g: Any) -> Any:
        while True:
            g()

    flow = analyse(f.__code__)
    reachable = {inst.offset for inst in flow.instructions if flow.stacks[inst.index] is not None}
    assert {*flow.break_places, *flow.capture_points} <= reachable
    for code in CODES:
        flow = analyse(code)
        for inst in flow.instructions:
            if flow.stacks[inst.index] is None:
                assert inst.offset not in flow.after
                with pytest.raises(ValueError, match="unreachable"):
                    flow.depth(inst.offset)


def test_handlers_are_analysed() -> None:
    flow = analyse(corpus.with_for.__code__)
    inside = [inst for inst in flow.instructions if inst.opname == "WITH_EXCEPT_START"]
    assert inside
    assert all(inst.offset in flow.break_places and flow.after[inst.offset] for inst in inside)


@pytest.mark.parametrize(
    ("source", "opname", "live"),
    [
        ("def f(a, b):\n c = a()\n return b", "PRECALL", {"b"}),
        ("def f(a, b):\n b = a()\n return b", "PRECALL", set()),
        ("def f(a, b):\n for i in a:\n  b = b + i\n return 1", "FOR_ITER", {"b"}),
        ("def f(a, b):\n try:\n  a()\n except E:\n  return b", "PRECALL", {"b"}),
        ("def f(a, b):\n a()\n locals()", "PRECALL", {"a", "b"}),
        ("def f(a, b):\n a()\n lambda: b", "PRECALL", {"b"}),
        ("def f(a, b):\n a()\n del b", "PRECALL", {"b"}),
    ],
)
def test_liveness(source: str, opname: str, live: set[str]) -> None:
    scope: dict[str, Any] = {}
    exec(source, scope)
    code = scope["f"].__code__
    flow = analyse(code)
    names = slot_names(code)
    assert {names[i] for i in live_slots(code, flow)[named(flow, opname).offset]} == live


def test_every_place_has_liveness() -> None:
    for code in CODES:
        flow = analyse(code)
        assert set(live_slots(code, flow)) == {*flow.break_places, *flow.exit_only, *flow.capture_points}
