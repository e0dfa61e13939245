"""`same_as_eager`: run something plainly and under framecap, and compare all that can be observed."""

from __future__ import annotations

import collections
import contextlib
import copy
import dis
import enum
import inspect
import io
import random
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import framecap
from framecap.api import collect_report
from framecap.report import FunctionReport, Report


@dataclass(frozen=True, slots=True)
class Call:
    """One call with keyword arguments; a plain tuple is a call with these positional arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


Step = tuple[Any, ...] | Call | Callable[..., Any]
"""A call, or something done between calls: a function without parameters (change a flag, add a hook), or with one,
which gets the function under test, to call it in some surroundings."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What framecap did, from its report. ``breaks`` counts places by reason code."""

    report: Report
    graphs: int
    operators: int
    breaks: Counter[str]
    recompiles: tuple[str, ...]

    def of(self, name: str) -> FunctionReport:
        """The report of the function whose qualified name ends in ``name``."""
        found = [f for f in self.report.functions if f.name == name or f.name.endswith("." + name)]
        assert len(found) == 1, f"{len(found)} functions called {name!r} in {[f.name for f in self.report.functions]}"
        return found[0]


def captured() -> Captured:
    """What was captured since the last reset."""
    report = collect_report()
    return Captured(
        report,
        report.totals.graphs,
        report.totals.operators,
        Counter(b.code for b in report.breaks),
        tuple(sentence for f in report.functions for sentence in f.recompiles),
    )


def same_as_eager(
    fn: Callable[..., Any] | None = None,
    *steps: Step,
    make: Callable[[], tuple[Any, ...]] | None = None,
    observe: Callable[[], Any] | None = None,
    mode: str = "wrap",
    tolerance: float = 0.0,
    lines: bool = True,
    **options: Any,
) -> Captured:
    """Run the steps plainly, then under framecap, and assert that after each step everything is the same.

    Each run gets deep copies of ``fn`` and ``steps``. What deepcopy shares (functions and their closures, globals)
    belongs into ``make() -> (fn, steps)`` or ``(fn, steps, observe)`` instead, called once for each run.
    ``observe()`` is read after every step. mode: "wrap" calls ``framecap.optimize(fn, **options)``, "with" calls
    ``fn`` inside ``with framecap.optimize(**options)``. tolerance: relative and absolute, for floating point values;
    by default they are equal bit by bit, but for the sign of a NaN. lines: compare also the line, in the file that
    ``fn`` is from, at which an exception arose.
    """
    if make is None:
        assert fn is not None and steps, "give a function and at least one call, or make="
        originals = (fn, list(steps))

        def make() -> tuple[Any, ...]:
            return copy.deepcopy(originals)

    assert mode in ("wrap", "with")
    expected = observe_run(make, observe, "eager", options, lines)
    framecap.reset()
    actual = observe_run(make, observe, mode, options, lines)
    seen = captured()
    for number, (want, got) in enumerate(zip(expected, actual, strict=True)):
        difference = first_difference(want, got, "", tolerance)
        if difference is not None:
            path, plain, under = difference
            raise AssertionError(
                f"step {number}{path}: eager has {shorten(plain)}, framecap has {shorten(under)}\n{seen.report}"
            )
    return seen


def observe_run(
    make: Callable[[], tuple[Any, ...]],
    observe: Callable[[], Any] | None,
    mode: str,
    options: dict[str, Any],
    lines: bool,
) -> list[dict[str, Any]]:
    """One description for each step."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    fn, steps, *rest = make()
    if rest:
        observe = rest[0]
    filename = file_of(fn)

    def in_block(*args: Any, **kwargs: Any) -> Any:
        with framecap.optimize(**options):
            return fn(*args, **kwargs)

    run = {"eager": lambda: fn, "wrap": lambda: framecap.optimize(fn, **options), "with": lambda: in_block}[mode]()
    return [observe_step(run, step, observe, filename if lines else None) for step in steps]


def observe_step(
    run: Callable[..., Any], step: Step, observe: Callable[[], Any] | None, filename: str | None
) -> dict[str, Any]:
    picture = Picture()
    seen: dict[str, Any] = {}
    call_args: Any = ()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                if isinstance(step, Call):
                    call_args = (step.args, step.kwargs)
                    result = run(*step.args, **step.kwargs)
                elif isinstance(step, tuple):
                    call_args = (step, {})
                    result = run(*step)
                else:
                    result = step(run) if inspect.signature(step).parameters else step()
            except Exception as error:
                seen["raised"] = describe_error(error, picture, filename)
            else:
                seen["returned"] = picture(result)
    seen["arguments"] = picture(call_args)
    seen["printed"] = (out.getvalue(), err.getvalue())
    seen["warnings"] = [(w.category.__name__, str(w.message), w.lineno) for w in warned]
    seen["modes"] = modes()
    if observe is not None:
        seen["observed"] = picture(observe())
    return seen


def describe_error(error: BaseException, picture: Picture, filename: str | None) -> dict[str, Any]:
    own = [frame.lineno for frame in frames_of(error) if frame.filename == filename]
    return {
        "type": type(error),
        "message": str(error),
        "line": own[-1] if own else None,
        "cause": None if error.__cause__ is None else (type(error.__cause__), str(error.__cause__)),
        "context": None if error.__context__ is None else (type(error.__context__), str(error.__context__)),
        "notes": list(getattr(error, "__notes__", [])),
        "attributes": picture(getattr(error, "__dict__", {})),
    }


def frames_of(error: BaseException) -> Iterator[inspect.Traceback]:
    trace = error.__traceback__
    while trace is not None:
        yield inspect.getframeinfo(trace, context=0)
        trace = trace.tb_next


def file_of(fn: Any) -> str | None:
    """The file that a function, method, or a module's forward is from."""
    fn = inspect.unwrap(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    code = getattr(fn, "__code__", None)
    return code.co_filename if isinstance(code, types.CodeType) else None


def modes() -> dict[str, Any]:
    """Global state that a program can change and other code can see."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random": hash(random.getstate()),
        "numpy random": hash(str(numpy.random.get_state())),
        "torch random": hash(bytes(torch.get_rng_state().tolist())),
    }


@dataclass(frozen=True, slots=True)
class TensorPicture:
    """A tensor at one moment. storage: number of its memory in order of appearance, and the offset in it."""

    properties: tuple[Any, ...]
    storage: tuple[int, int] | None
    values: torch.Tensor | None
    grad: Any
    attributes: Any


@dataclass(slots=True)
class Picture:
    """Describes objects as nested tuples at one moment, keeping track of which are the same object."""

    numbers: dict[int, int] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    """What was numbered by address stays alive, so that no address is used twice."""

    def __call__(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, complex, str, bytes):
            return (type(value), value)
        if isinstance(value, (type, types.ModuleType, enum.Enum, numpy.generic)):
            return (type(value), repr(value))
        if isinstance(value, (range, slice, torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return (type(value), repr(value))
        if isinstance(value, tuple):
            return (type(value), tuple(self(item) for item in tuple.__iter__(value)))
        if id(value) in self.numbers:
            return ("same object as", self.numbers[id(value)])
        self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        return self.describe(value)

    def describe(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, numpy.ndarray):
            return (kind, value.dtype.str, value.shape, tuple(self(item) for item in value.ravel().tolist()))
        if isinstance(value, torch.nn.Module):
            return (kind, self.attributes(value, hidden=("_parameters", "_buffers", "_modules")))
        if isinstance(value, (dict, types.MappingProxyType)):
            # By the base class's methods: a subclass may count its own reads.
            items = dict.items(value) if isinstance(value, dict) else value.items()
            return (kind, tuple((self(k), self(v)) for k, v in items), self.attributes(value))
        if isinstance(value, list):
            return (kind, tuple(self(item) for item in list.__iter__(value)), self.attributes(value))
        if isinstance(value, (set, frozenset)):
            return (kind, tuple(sorted((self(item) for item in value), key=repr)))
        if isinstance(value, (collections.deque, bytearray)):
            return (kind, getattr(value, "maxlen", None), tuple(self(item) for item in value))
        if isinstance(value, BaseException):
            return (kind, self(value.args), self.attributes(value))
        if isinstance(value, types.MethodType):
            return (kind, value.__func__.__qualname__, self(value.__self__))
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            return (kind, value.__qualname__)
        return (kind, self.attributes(value))

    def tensor(self, tensor: torch.Tensor) -> TensorPicture:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            raw = tensor.detach()
            storage = None
            values = None
            if raw.layout is torch.strided and raw.device.type != "meta":
                memory = raw.untyped_storage()
                self.kept.append(memory)
                if memory.nbytes():
                    number = self.storages.setdefault(memory.data_ptr(), len(self.storages))
                    storage = (number, raw.storage_offset())
                values = raw.clone()
            elif raw.layout is not torch.strided:
                values = raw.to_dense().clone()
            strides = raw.stride() if raw.layout is torch.strided else None
            properties = (
                type(tensor), tensor.dtype, tuple(tensor.shape), strides, tensor.device, tensor.layout,
                tensor.requires_grad, tensor.is_leaf,
            )  # fmt: skip
            grad = self(tensor.grad) if tensor.is_leaf else None
        return TensorPicture(properties, storage, values, grad, self.attributes(tensor))

    def attributes(self, value: Any, hidden: Sequence[str] = ()) -> tuple[Any, ...]:
        """Slots and instance attributes by name; of private ones only those in ``hidden``."""
        found: dict[str, Any] = {}
        for cls in type(value).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                with contextlib.suppress(AttributeError):
                    found[name] = object.__getattribute__(value, name)
        with contextlib.suppress(AttributeError):
            found.update(object.__getattribute__(value, "__dict__"))
        if isinstance(value, torch.nn.Module):
            found = {k: v for k, v in found.items() if k in hidden or not k.startswith("_")}
        return tuple((k, self(found[k])) for k in sorted(found) if not k.startswith("__"))


def first_difference(want: Any, got: Any, path: str, tolerance: float) -> tuple[str, Any, Any] | None:
    """(path, wanted, got) of the first place where two descriptions differ, or None."""
    if type(want) is not type(got):
        return path, want, got
    if isinstance(want, dict):
        for key in [*want, *(k for k in got if k not in want)]:
            if key not in want or key not in got:
                return f"{path} {key}", want.get(key, "nothing"), got.get(key, "nothing")
            difference = first_difference(want[key], got[key], f"{path} {key}", tolerance)
            if difference is not None:
                return difference
        return None
    if isinstance(want, (tuple, list)):
        if len(want) != len(got):
            return path, want, got
        for i, (a, b) in enumerate(zip(want, got)):
            difference = first_difference(a, b, f"{path}[{i}]", tolerance)
            if difference is not None:
                return difference
        return None
    if isinstance(want, TensorPicture):
        for name in ("properties", "storage", "grad", "attributes"):
            difference = first_difference(getattr(want, name), getattr(got, name), f"{path}.{name}", tolerance)
            if difference is not None:
                return difference
        if want.values is None or same_values(want.values, got.values, tolerance):
            return None
        return f"{path}.values", want.values, got.values
    if isinstance(want, float):
        alike = same_values(torch.tensor(want, dtype=torch.double), torch.tensor(got, dtype=torch.double), tolerance)
        return None if alike else (path, want, got)
    return None if want == got else (path, want, got)


def same_values(want: torch.Tensor, got: torch.Tensor, tolerance: float) -> bool:
    if want.dtype != got.dtype or want.shape != got.shape:
        return False
    if want.is_complex():
        want, got = torch.view_as_real(want), torch.view_as_real(got)
    if not want.is_floating_point():
        return torch.equal(want, got)
    if tolerance:
        return torch.allclose(want, got, rtol=tolerance, atol=tolerance, equal_nan=True)
    alike = (want == got) & (torch.signbit(want) == torch.signbit(got)) | (want.isnan() & got.isnan())
    return bool(alike.all())


def shorten(value: Any, most: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."


def opcodes_of(fn: Callable[..., Any]) -> set[str]:
    """Names of the instructions in a function and the code objects inside it, as compiled."""
    names: set[str] = set()
    todo = [inspect.unwrap(fn).__code__]
    while todo:
        code = todo.pop()
        names.update(instruction.opname for instruction in dis.get_instructions(code))
        todo.extend(const for const in code.co_consts if isinstance(const, types.CodeType))
    return names
