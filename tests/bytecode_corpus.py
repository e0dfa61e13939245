"""Functions of many shapes, each called with arguments in CASES: what a rewriting must leave unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

GLOBAL = 3


class Log(list):
    """Events in order."""

    def __call__(self, event: Any) -> Any:
        self.append(event)
        return event


class Manager:
    def __init__(self, log: Log, swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> Manager:
        self.log("enter")
        return self

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log(("exit", kind and kind.__name__))
        return self.swallow

    async def __aenter__(self) -> Manager:
        await asyncio.sleep(0)
        return self.__enter__()

    async def __aexit__(self, kind: Any, value: Any, tb: Any) -> bool:
        await asyncio.sleep(0)
        return self.__exit__(kind, value, tb)

    async def __aiter__(self):
        for i in range(3):
            await asyncio.sleep(0)
            yield i


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def moved(self, by: int = 1, *more: int) -> Point:
        return Point(self.x + by, self.y + sum(more))


def simple(a, b=2):
    return a + b * 2


def nothing():
    pass


def signature(a, /, b, *rest, c=3, d, **more):
    return a, b, rest, c, d, sorted(more.items())


def call_signature(n):
    return signature(n, 2, *range(n), d=4, **{"z": n, "y": 1})


def loop(n, log):
    total = 0
    for i in range(n):
        if i % 3 == 0:
            continue
        if i > 7:
            log("stop")
            break
        total += i
    else:
        log("else")
    return total


def while_loop(n):
    steps = 0
    while n != 1 and steps < 50:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def nested_expression(p, q):
    return [
        p.moved(abs(q.x), *[q.y, abs(p.y)]).x,
        max(min(p.x, abs(q.y)), len(str(p.moved(2).y))),
        f"{p.x!r:>4}{q.y}",
    ]


def comparisons(a, b, c):
    return a < b < c, a in (b, c), a is None or b is not c, not a and b, (a if b else c) or a


def with_for(items, log):
    acc = 0
    with Manager(log):
        for x in items:
            with Manager(log, swallow=True) as m:
                y = x * 2
                m.log(y)
                acc = acc + y
                if acc > 100:
                    raise ValueError(acc)
            if y == 8:
                break
    return acc


def with_raises(x, log):
    with Manager(log):
        with Manager(log):
            return 1 // x


def try_all(x, log):
    try:
        try:
            value = 10 // x
            log("no error")
        except ZeroDivisionError as error:
            log(str(error))
            value = len(log)
        except TypeError:
            raise RuntimeError("converted") from None
        else:
            log("else")
        finally:
            log("inner")
        if value == 5:
            return "returned"
        log(value)
    finally:
        log("outer")
    return value


def finally_overrides(n):
    for i in range(n):
        try:
            if i == 1:
                continue
            if i == 3:
                raise KeyError(i)
            if i == 4:
                return "inner"
        except KeyError:
            pass
        finally:
            if i == 5:
                break
    return i


def raises_deep(x):
    def inner(y):
        return [1, 2][y] + missing_name  # noqa: F821

    return inner(x)


def except_star(errors, log):
    try:
        raise ExceptionGroup("g", errors)
    except* ValueError as group:
        log([str(e) for e in group.exceptions])
    except* TypeError:
        log("type")
    return "done"


def unbound_local(flag):
    if flag:
        value = 1
    return value


def deleted_local(flag):
    value = 1
    if flag:
        del value
    return value


def closure(n, log):
    total = 0

    def add(x):
        nonlocal total
        total += x
        return total, n

    log(add(1))
    n += 5
    log(add(2))
    return add(n), total


def cell_argument(x, *, key=None):
    key = key or (lambda: x)
    x = x + 1
    return [key() for _ in range(2)], x


def deleted_cell(flag):
    value = 4

    def read():
        return value

    if flag:
        del value
    return read()


def comprehensions(n):
    return (
        [i for i in range(n) if i % 2],
        {i: str(i) for i in range(n)},
        {i // 2 for i in range(n)},
        sum(i for i in range(n)),
    )


def generator(n, log):
    try:
        for i in range(n):
            got = yield i
            log(("got", got))
            if got == "stop":
                return "stopped"
    except KeyError as error:
        log(("error", repr(error)))
        yield "after"
    finally:
        log("closed")
    return n


def drive_generator(n, log):
    g = generator(n, log)
    out = [next(g)]
    with contextlib.suppress(StopIteration):
        out.append(g.send("x"))
        out.append(g.throw(KeyError("k")))
        out.append(next(g))
    g.close()
    return out, list(generator(2, log)), g.gi_frame


def delegating(n, log):
    result = yield from generator(n, log)
    log(("result", result))
    yield result


def drive_delegating(n, log):
    g = delegating(n, log)
    out = [next(g), g.send("a"), g.throw(KeyError(1))]
    out.extend(g)
    h = delegating(3, log)
    next(h)
    h.close()
    k = delegating(3, log)
    next(k)
    out.append(k.send("stop"))
    return out


async def coroutine(n, log):
    total = 0
    async with Manager(log) as m:
        async for i in m:
            await asyncio.sleep(0)
            total += i * n
        total += sum([j async for j in m])
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.001)
    except asyncio.TimeoutError:
        log("timeout")
    return total, await asyncio.gather(*(small(i) for i in range(n)))


async def small(i):
    await asyncio.sleep(0)
    return i


def run_coroutine(n, log):
    return asyncio.run(coroutine(n, log))


async def numbers(n, log):
    try:
        for i in range(n):
            sent = yield i
            log(sent)
    finally:
        await asyncio.sleep(0)
        log("end")


def run_async_generator(n, log):
    async def main():
        g = numbers(n, log)
        out = [await g.asend(None), await g.asend("s")]
        try:
            await g.athrow(ValueError("thrown"))
        except ValueError as error:
            out.append(str(error))
        return out, [x async for x in numbers(n, log)]

    return asyncio.run(main())


def matching(value):
    match value:
        case 0 | 1:
            return "small"
        case [x, *rest] if rest:
            return x, rest
        case {"k": v, **others}:
            return v, others
        case Point(x=0, y=y):
            return "axis", y
        case Point(a, b):
            return a, b
        case str() as s:
            return s
        case _:
            return None


def unpacking(pair, more):
    a, (b, *c) = pair
    a, b = b, a
    (x, y), *_, z = more
    return a, b, c, x, y, z, [*c, *more], {**{"a": a}, "b": b}


def augmented(p, items):
    p.x += 2
    items[0] -= 1
    items[1:2] = [p.x, *items[::-1]]
    p.y, items[-1] = items[-1], p.y
    del items[0]
    return p.x, p.y, items


def global_state(n):
    global GLOBAL
    before = GLOBAL
    GLOBAL = n
    try:
        return before + GLOBAL
    finally:
        GLOBAL = before


def class_body(n):
    class Inner(Point):
        attribute = n + 1

        def method(self):
            return super().moved(self.attribute).x, __class__.__name__

    return Inner(1, 2).method()


def imports(name):
    import json
    from json import decoder as d

    return json.dumps(name), d.__name__


def recursion(n):
    return 1 if n <= 1 else n * recursion(n - 1)


def walrus(items):
    return [y for x in items if (y := x * 2) > 4], y


def assertion(x):
    assert x > 1, f"too small: {x}"
    return x


def chained_error(x, log):
    try:
        {}[x]
    except KeyError as error:
        try:
            raise TypeError("second")
        finally:
            log(repr(error.__context__))


def deep_stack(p, n):
    return [abs(1), (abs(2), {"a": p.moved(abs(3), abs(min(n, *[p.moved().x, abs(4)]))).y}), *[abs(5)]]


def starred_call(fn, args, kwargs):
    return fn(*args, **kwargs), fn(0, *args, k=1, **kwargs)


def echo(*args, **kwargs):
    return args, kwargs


def locals_seen(a):
    b = a + 1
    seen = dict(locals())
    eval("a + b")
    return seen


CASES: list[tuple[Callable[..., Any], list[Callable[[], tuple[Any, ...]]]]] = [
    (simple, [lambda: (1,), lambda: (1, "x"), lambda: ("a", "b")]),
    (nothing, [lambda: ()]),
    (call_signature, [lambda: (0,), lambda: (3,)]),
    (loop, [lambda: (3, Log()), lambda: (20, Log())]),
    (while_loop, [lambda: (27,), lambda: (1,)]),
    (nested_expression, [lambda: (Point(1, -2), Point(-5, 6)), lambda: (Point(1, 2), None)]),
    (comparisons, [lambda: (1, 2, 3), lambda: (3, 2, 1), lambda: (0, "", None)]),
    (with_for, [(lambda v: lambda: (v, Log()))(v) for v in ([1, 2, 3], [40, 30, 60], [4, 1], [None])]),
    (with_raises, [lambda: (1, Log()), lambda: (0, Log())]),
    (try_all, [lambda: (2, Log()), lambda: (0, Log()), lambda: ("x", Log()), lambda: (3, Log())]),
    (finally_overrides, [lambda: (3,), lambda: (5,), lambda: (9,), lambda: (0,)]),
    (raises_deep, [lambda: (0,), lambda: (7,)]),
    (except_star, [
        lambda: ([ValueError(1), TypeError(2)], Log()), lambda: ([KeyError(1), ValueError(3)], Log())]),
    (unbound_local, [lambda: (True,), lambda: (False,)]),
    (deleted_local, [lambda: (True,), lambda: (False,)]),
    (closure, [lambda: (1, Log()), lambda: ("x", Log())]),
    (cell_argument, [lambda: (1,)]),
    (deleted_cell, [lambda: (True,), lambda: (False,)]),
    (comprehensions, [lambda: (6,)]),
    (drive_generator, [lambda: (4, Log())]),
    (drive_delegating, [lambda: (4, Log())]),
    (run_coroutine, [lambda: (3, Log())]),
    (run_async_generator, [lambda: (3, Log())]),
    (matching, [(lambda v: lambda: (v(),))(v) for v in (
        lambda: 1, lambda: [1, 2, 3], lambda: [1], lambda: {"k": 2, "l": 3}, lambda: Point(0, 4),
        lambda: Point(5, 6), lambda: "text", lambda: 2.5)]),
    (unpacking, [lambda: ((1, (2, 3, 4)), [(5, 6), 7, 8]), lambda: ((1, ()), [])]),
    (augmented, [lambda: (Point(1, 2), [1, 2, 3]), lambda: (Point(1, 2), [])]),
    (global_state, [lambda: (4,), lambda: ("x",)]),
    (class_body, [lambda: (3,)]),
    (imports, [lambda: ("n",)]),
    (recursion, [lambda: (12,)]),
    (walrus, [lambda: ([1, 2, 3],), lambda: ([],)]),
    (assertion, [lambda: (1,), lambda: (2,)]),
    (chained_error, [lambda: (1, Log())]),
    (deep_stack, [lambda: (Point(1, 2), 3), lambda: (None, 3)]),
    (starred_call, [lambda: (echo, (1, 2), {"a": 3}), lambda: (echo, (1,), {"k": 3}), lambda: (echo, 1, {})]),
    (locals_seen, [lambda: (1,)]),
]  # fmt: skip

IDS = [function.__name__ for function, _ in CASES]


def shown(value: Any) -> Any:
    """Something comparable for results that aren't."""
    if isinstance(value, Point):
        return ("Point", value.x, value.y)
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return value


def outcome(function: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> Any:
    """What a call did: its result, or its error with the traceback's lines and columns in this file; and its
    events."""
    given = arguments()
    logs = [item for item in given if isinstance(item, Log)]
    try:
        result: Any = ("returned", shown(function(*given)))
    except Exception as error:
        result = ("raised", type(error), str(error), places(error), error.__cause__, repr(error.__context__))
    return result, logs


def places(error: BaseException) -> list[tuple[Any, ...]]:
    """Where the traceback of an error goes through this file."""
    frames = traceback.TracebackException.from_exception(error).stack
    return [(f.name, f.lineno, f.end_lineno, f.colno, f.end_colno) for f in frames if f.filename == __file__]


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and those nested in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes_in(const)


def codes_of(*modules: types.ModuleType) -> list[types.CodeType]:
    """All codes of the modules' sources, freshly compiled."""
    return [
        code
        for module in modules
        for code in codes_in(compile(inspect.getsource(module), module.__file__ or "?", "exec"))
    ]
