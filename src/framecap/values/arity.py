"""How models of built-in callables are called: only with arguments that the callable takes and the model looks at."""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..errors import RAISES, UNSUPPORTED_ARGUMENT, GraphBreak

_ANY = 1 << 30
_UNSIGNED: dict[Any, tuple[int, int]] = {
    getattr: (2, 3), iter: (1, 2), next: (1, 2), max: (1, _ANY), min: (1, _ANY), vars: (0, 1), dir: (0, 1), type: (1, 3),
    dict: (0, 1), collections.OrderedDict: (0, 1), collections.defaultdict: (0, 2), set: (0, 1), frozenset: (0, 1),
    slice: (1, 3), range: (1, 3), bytes: (0, 3), bytearray: (0, 3), int: (0, 2), bool: (0, 1), str: (0, 3), super: (0, 2),
    map: (2, _ANY), filter: (2, 2), functools.partial: (1, _ANY), classmethod: (1, 1), staticmethod: (1, 1), math.log: (1, 2),
    functools.reduce: (2, 3), itertools.islice: (2, 4), itertools.repeat: (1, 2),
    dict.pop: (2, 3), dict.update: (1, 2), set.add: (2, 2),
    set.discard: (2, 2), set.remove: (2, 2), set.pop: (1, 1), str.count: (2, 4), str.endswith: (2, 4), str.find: (2, 4),
    str.index: (2, 4), str.rfind: (2, 4), str.rindex: (2, 4), str.startswith: (2, 4), str.format_map: (2, 2),
    **dict.fromkeys((dict.clear, dict.copy, dict.items, dict.keys, dict.values, set.clear, set.copy, frozenset.copy), (1, 1)),
    **dict.fromkeys(
        (set.isdisjoint, set.issubset, set.issuperset, set.symmetric_difference, set.symmetric_difference_update,
         frozenset.isdisjoint, frozenset.issubset, frozenset.issuperset, frozenset.symmetric_difference), (2, 2),
    ),
}  # fmt: skip
"""Least and greatest number of positional arguments, ``self`` of a method included, of what has no signature."""


class _Watched(dict[str, Any]):
    """Keyword arguments that know which of them were looked at."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.ignored = set(given)

    def __getitem__(self, name: str) -> Any:
        self.ignored.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.ignored.discard(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self.ignored.discard(name)
        return super().pop(name, *default)

    def keys(self) -> Any:
        self.ignored.clear()
        return super().keys()

    def values(self) -> Any:
        self.ignored.clear()
        return super().values()

    def items(self) -> Any:
        self.ignored.clear()
        return super().items()

    def __iter__(self) -> Iterator[str]:
        self.ignored.clear()
        return super().__iter__()


def run_model(
    function: Any,
    model: Callable[..., Any],
    tx: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    of_method: bool = False,
) -> Any:
    """``model(tx, args, kwargs)``, which stands for a call of ``function``. of_method: ``self`` is not in args.

    Breaks the graph if the call is certain to raise TypeError, or if the model didn't look at a keyword argument.
    """
    name = getattr(function, "__name__", "it")
    if not _accepts(function, len(args) + of_method, tuple(kwargs)):
        raise GraphBreak(RAISES, f"{name}() is called with arguments that it doesn't take")
    args, kwargs = _required_by_position(function, args, kwargs, of_method)
    if not kwargs:
        return model(tx, args, kwargs)
    watched = _Watched(kwargs)
    result = model(tx, args, watched)
    if watched.ignored:
        raise GraphBreak(UNSUPPORTED_ARGUMENT, f"{name}() with the keyword argument {min(watched.ignored)!r} isn't modelled")
    return result


def _required_by_position(
    function: Any, args: Sequence[Any], kwargs: dict[str, Any], of_method: bool
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Required arguments that were given by name, in their places: models expect them there."""
    names = _required(function)[of_method:]
    if not kwargs or len(args) >= len(names):
        return args, kwargs
    rest = dict(kwargs)
    return [*args, *(rest.pop(name) for name in names[len(args) :])], rest


@lru_cache(maxsize=4096)
def _required(function: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return tuple(p.name for p in parameters if p.kind in kinds and p.default is p.empty)


@lru_cache(maxsize=4096)
def _accepts(function: Any, count: int, names: tuple[str, ...]) -> bool:
    if function is None:
        return True
    bounds = _UNSIGNED.get(function)
    if bounds is not None:
        return bounds[0] <= count <= bounds[1] or (count < bounds[0] and bool(names))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*(None,) * count, **dict.fromkeys(names))
    except TypeError:
        return False
    return True
