"""OptimizedFunction (_optimized.h), and what Variant accepts."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
from hook_helpers import CONFIG, always

from framecap.hook import (
    OptimizedFunction,
    Variant,
    get_thread_config,
    thread_config,
)


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
