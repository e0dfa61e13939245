"""Metadata on demand: what Python asks of a tensor or a derived number is computed for the slice it depends on.

A number whose slice reaches inputs only through their sizes gets a guard on a predicate over those inputs. Anything
else is computed with torch's FakeTensorMode, guarded by the metadata of every input in the slice (design section 6).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from framecap.guards import Attr, EqualsGuard, Get, Item, PredicateGuard, Source

from ..errors import METADATA, GraphBreak
from .examples import NoExample
from .region import Input, Op

if TYPE_CHECKING:
    from .region import Region


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()
SIZE_METHODS = ("size", "dim", "numel")


def is_size(ref: Any) -> bool:
    """Whether ``ref`` reads a size of an input tensor directly."""
    return (
        isinstance(ref, Op)
        and ref.op == "call_method"
        and ref.target in SIZE_METHODS
        and isinstance(ref.args[0], Input)
    )


def peek(tx: Region, ref: Any) -> Any:
    """The number that ``ref`` has in this call, without a guard; UNKNOWN if it isn't a matter of inputs alone."""
    if isinstance(ref, Input):
        return UNKNOWN if isinstance(ref.example, NoExample) else ref.example
    if not isinstance(ref, Op):
        return ref
    if is_size(ref) and isinstance(ref.args[0].example, NoExample):
        return UNKNOWN
    if is_size(ref):
        return getattr(ref.args[0].example, ref.target)(*ref.args[1:])
    if ref.op != "call_function":
        return UNKNOWN
    args = [peek(tx, a) for a in ref.args]
    if any(a is UNKNOWN for a in args) or any(isinstance(a, torch.Tensor) for a in args):
        return UNKNOWN
    return ref.target(*args)


def number_of(tx: Region, ref: Op, test: Callable[[Any], Any] | None) -> Any:
    """The number computed by ``ref`` (or ``test`` of it), with a guard under which it is the same."""
    value = peek(tx, ref)
    if value is not UNKNOWN:
        sources: list[Source] = []
        text = _text(ref, sources)
        code = f"lambda {', '.join(f'v{i}' for i in range(len(sources)))}: {text}"
        names: dict[str, Any] = {}
        function = eval(code, {"torch": torch, **_operators(ref)}, names)  # our own text, built from structured pieces
        described = _described(ref)
        if test is bool:
            tx.guard(PredicateGuard(_key(code, function), tuple(sources), described, bool(value), where=tx.where))
            return bool(value)
        tx.guard(_value_guard(code, function, tuple(sources), described, value, tx))
        return value
    fake = fake_of(tx, ref)
    if isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor)):
        raise GraphBreak(METADATA)
    return bool(fake) if test is bool else fake


_functions: dict[str, Any] = {}


def _key(code: str, function: Any) -> Any:
    """One function object for one text, so that equal guards are recognised."""
    return _functions.setdefault(code, function)


def _value_guard(code: str, function: Any, sources: tuple[Source, ...], described: str, value: Any, tx: Region) -> Any:
    text = f"{code} == {value!r}"

    def same(*values: Any) -> bool:
        found = function(*values)
        return type(found) is type(value) and (found == value)

    return PredicateGuard(_key(text, same), sources, f"{described} == {value!r}", True, where=tx.where)


def _operators(ref: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    stack = [ref]
    while stack:
        item = stack.pop()
        if isinstance(item, Op):
            if item.op == "call_function":
                found[_operator_name(item.target)] = item.target
            stack.extend(item.args)
    return found


def _operator_name(target: Any) -> str:
    return f"{target.__module__.replace('.', '_')}_{target.__name__}" if target.__module__ else target.__name__


def _text(ref: Any, sources: list[Source]) -> str:
    """Python code for a number in terms of v0, v1, ... which stand for ``sources``."""

    def variable(source: Source) -> str:
        if source not in sources:
            sources.append(source)
        return f"v{sources.index(source)}"

    if isinstance(ref, Input):
        return variable(ref.source)
    if not isinstance(ref, Op):
        return repr(ref)
    if is_size(ref):
        return f"{variable(ref.args[0].source)}.{ref.target}({', '.join(repr(a) for a in ref.args[1:])})"
    return f"{_operator_name(ref.target)}({', '.join(_text(a, sources) for a in ref.args)})"


_SIGNS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
    operator.pow: "**", operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">",
    operator.ge: ">=",
}  # fmt: skip


def _described(ref: Any, inner: bool = False) -> str:
    """The number as a user would write it."""
    if isinstance(ref, Input):
        return str(ref.source)
    if not isinstance(ref, Op):
        return repr(ref)
    if is_size(ref):
        return f"{ref.args[0].source}.{ref.target}({', '.join(map(repr, ref.args[1:]))})"
    sign = _SIGNS.get(ref.target)
    if sign is not None and len(ref.args) == 2:
        text = f"{_described(ref.args[0], True)} {sign} {_described(ref.args[1], True)}"
        return f"({text})" if inner else text
    return f"{ref.target.__name__}({', '.join(_described(a) for a in ref.args)})"


# Fake tensors


def fake_mode() -> Any:
    """The FakeTensorMode of this module, made at first use (its import is not cheap)."""
    global _mode
    if _mode is None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        _mode = FakeTensorMode(allow_non_fake_inputs=True)
    return _mode


_mode: Any = None
METADATA_FIELDS = ("shape", "dtype", "device", "requires_grad", "layout")


def fake_of(tx: Region, ref: Any) -> Any:
    """What ``ref`` evaluates to under fake tensors; guards the metadata of the inputs it depends on."""
    if isinstance(ref, Input):
        if ref.role == "module":
            raise GraphBreak(METADATA)
        if isinstance(ref.example, torch.Tensor):
            guard_metadata(tx, ref)
            if ref.fake is None:
                ref.fake = _to_fake(ref.example)
            return ref.fake
        if isinstance(ref.example, NoExample):
            raise ref.example.unknown()
        tx.guard_equals(ref.source, ref.example)
        return ref.example
    if not isinstance(ref, Op):
        return ref
    # Long chains are evaluated iteratively, in recording order.
    pending = slice_of(ref)
    for op in pending:
        if op.fake is None:
            op.fake = _run_fake(tx, op)
    for item in _inputs(pending):
        fake_of(tx, item)
    return ref.fake[0]


def guard_metadata(tx: Region, ref: Input) -> None:
    """Guard shape, dtype, device, requires_grad and layout of an input tensor."""
    guard_tensor(tx, ref.source, ref.example)


def guard_tensor(tx: Region, source: Source, tensor: torch.Tensor) -> None:
    for name in METADATA_FIELDS:
        tx.guard(EqualsGuard(Get(source, name), getattr(tensor, name), where=tx.where))


def slice_of(ref: Op) -> list[Op]:
    """``ref`` and the operators that it depends on, each after those it uses."""
    seen: dict[int, Op] = {}
    stack: list[Any] = [ref]
    while stack:
        op = stack.pop()
        if id(op) in seen:
            continue
        seen[id(op)] = op
        stack.extend(leaf for leaf in _leaves((op.args, op.kwargs)) if isinstance(leaf, Op) and id(leaf) not in seen)
    order: list[Op] = []
    done: set[int] = set()

    def visit(start: Op) -> None:
        path: list[tuple[Op, bool]] = [(start, False)]
        while path:
            op, ready = path.pop()
            if id(op) in done:
                continue
            if ready:
                done.add(id(op))
                order.append(op)
                continue
            path.append((op, True))
            path.extend(
                (leaf, False) for leaf in _leaves((op.args, op.kwargs)) if isinstance(leaf, Op) and id(leaf) not in done
            )

    visit(ref)
    return order


def _inputs(ops: list[Op]) -> list[Input]:
    found: dict[int, Input] = {}
    for op in ops:
        for leaf in _leaves((op.args, op.kwargs)):
            if isinstance(leaf, Input) and leaf.role != "module":
                found[id(leaf)] = leaf
    return list(found.values())


def _leaves(args: Any) -> list[Any]:
    if isinstance(args, (tuple, list)):
        return [leaf for item in args for leaf in _leaves(item)]
    if isinstance(args, dict):
        return [leaf for item in args.values() for leaf in _leaves(item)]
    if isinstance(args, slice):
        return _leaves((args.start, args.stop, args.step))
    return [args]


def map_leaves(args: Any, function: Callable[[Any], Any]) -> Any:
    """``args`` with every Op and Input replaced; containers keep their type."""
    if isinstance(args, (Op, Input)):
        return function(args)
    if type(args) in (tuple, list):
        return type(args)(map_leaves(item, function) for item in args)
    if isinstance(args, torch.Size):
        return args
    if isinstance(args, tuple):
        return type(args)(*(map_leaves(item, function) for item in args))
    if isinstance(args, dict):
        return {key: map_leaves(item, function) for key, item in args.items()}
    if isinstance(args, slice):
        return slice(*(map_leaves(p, function) for p in (args.start, args.stop, args.step)))
    return args


def _run_fake(tx: Region, op: Op) -> tuple[Any]:
    def resolve(leaf: Any) -> Any:
        if isinstance(leaf, Input):
            return fake_of(tx, leaf)
        return leaf.fake[0]

    args = map_leaves(op.args, resolve)
    kwargs = map_leaves(op.kwargs, resolve)
    grad = torch.is_grad_enabled() if op.grad_mode is None else op.grad_mode
    try:
        with unobserved(), fake_mode(), torch.set_grad_enabled(grad):
            if op.op == "call_function":
                return (op.target(*args, **kwargs),)
            if op.op == "call_method":
                return (getattr(args[0], op.target)(*args[1:], **kwargs),)
            return (_run_fake_module(tx, op, args, kwargs),)
    except GraphBreak:
        raise
    except Exception as error:
        raise GraphBreak(
            METADATA, f"its operators can't run on fake tensors ({type(error).__name__}: {error})"
        ) from None


def _run_fake_module(tx: Region, op: Op, args: Any, kwargs: Any) -> Any:
    """Run a leaf module on fake copies of its parameters, leaving the module untouched.

    The module's own state (sizes, flags) is part of what the result depends on, so its metadata is guarded.
    """
    module = op.target.example
    state: dict[str, Any] = {}
    for path, owner in module.named_modules():
        source: Source = op.target.source
        for part in path.split(".") if path else ():
            source = Item(Attr(source, "_modules"), part)
        for name, setting in settings_of(owner).items():
            tx.guard(EqualsGuard(Attr(source, name), setting, where=tx.where))
        for table in ("_parameters", "_buffers"):
            for name, tensor in getattr(owner, table).items():
                if tensor is not None:
                    state[f"{path}.{name}" if path else name] = _to_fake(tensor)
                    guard_tensor(tx, Item(Attr(source, table), name), tensor)
    with torch.random.fork_rng(devices=[]):
        return torch.func.functional_call(module, state, args, kwargs)


def settings_of(module: Any) -> dict[str, Any]:
    """A leaf module's plain attributes: what decides the shapes of its results besides its parameters."""
    return {k: v for k, v in module.__dict__.items() if not k.startswith("_") and is_plain(v)}


def is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(is_plain(item) for item in value)
    return type(value) in (int, float, str, bool, type(None))


def unobserved() -> Any:
    """A context in which dispatch modes of the program don't see what is computed for framecap itself."""
    if torch._C._len_torch_dispatch_stack() == 0:
        return nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _to_fake(tensor: torch.Tensor) -> Any:
    try:
        with unobserved(), torch.no_grad():
            return fake_mode().from_tensor(tensor.detach(), static_shapes=True).requires_grad_(tensor.requires_grad)
    except Exception as error:
        raise GraphBreak(METADATA, f"the tensor has no fake counterpart ({type(error).__name__}: {error})") from None
