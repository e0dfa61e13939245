"""The three outcomes of an interpretation that don't mix: a graph break, a chosen skip, an error of our own.

A graph break is ordinary: the broken instruction runs natively. Its *kind* is one of the constants below; reports
group by the kind's code, and docs/graph_breaks.md lists them all.
"""

from __future__ import annotations

from dataclasses import dataclass


class FramecapError(Exception):
    """Base class of every error that framecap raises on purpose."""


class UsageError(FramecapError, TypeError):
    """framecap was asked for something that makes no sense; the sentence says what to do instead."""


class BackendError(FramecapError, RuntimeError):
    """A backend raised, or returned something that can't be called."""


class CaptureError(FramecapError, RuntimeError):
    """A whole graph was asked for (``fullgraph=True`` or ``capture``) and the program has a graph break."""


class InternalError(FramecapError, RuntimeError):
    """A fault of framecap itself. Users see one warning; ``FRAMECAP_STRICT=1`` raises it."""


@dataclass(frozen=True, slots=True)
class BreakKind:
    """One reason for a graph break. ``code`` is stable; ``explanation`` and ``hint`` are sentences for users."""

    code: str
    explanation: str
    hint: str


KINDS: dict[str, BreakKind] = {}


def _kind(code: str, explanation: str, hint: str) -> BreakKind:
    kind = KINDS[code] = BreakKind(code, explanation, hint)
    return kind


DATA_DEPENDENT = _kind(
    "data-dependent",
    "Python needs the value of a tensor here, and it is known only when the operators have run.",
    "Use torch.where or a masked operator if the branch isn't needed; else this break is in the program itself.",
)
UNKNOWN_CALL = _kind(
    "unknown-call",
    "The function that is called is not Python code and has no model.",
    "If it is a pure tensor function, mark it with framecap.allow_in_graph.",
)
SIDE_EFFECT = _kind(
    "side-effect",
    "The call has an effect outside of the program's data (output, files, time, random state).",
    "Move it out of the hot path, or accept the break: the code on both sides of it is captured.",
)
DISABLED = _kind(
    "disabled",
    "The function is marked to run natively, or belongs to a part of Python or torch that is never captured.",
    "Remove framecap.disable from it if it should be captured.",
)
REQUESTED = _kind(
    "requested",
    "framecap.graph_break() was called.",
    "Remove the call to capture across this line.",
)
UNSUPPORTED_OPCODE = _kind(
    "unsupported-opcode",
    "This kind of statement is not interpreted symbolically.",
    "Move tensor code out of the statement, or accept the break.",
)
UNSUPPORTED_VALUE = _kind(
    "unsupported-value",
    "An object of this type can't be used symbolically in this way.",
    "Take the needed numbers or tensors out of the object before the tensor code.",
)
UNSUPPORTED_ATTRIBUTE = _kind(
    "unsupported-attribute",
    "This attribute can't be read or written symbolically.",
    "Read the attribute before the tensor code, or give the class an ordinary attribute.",
)
UNSUPPORTED_ARGUMENT = _kind(
    "unsupported-argument",
    "An argument of this type can't be passed to a tensor operator inside a graph.",
    "Pass tensors, numbers, strings, and lists, tuples or dicts of them.",
)
TENSOR_SUBCLASS = _kind(
    "tensor-subclass",
    "The tensor is of a subclass with behaviour of its own.",
    "Unwrap it to a plain torch.Tensor before the tensor code.",
)
AUTOGRAD = _kind(
    "autograd",
    "The call drives or observes autograd (backward, hooks, grad), which runs natively.",
    "None needed: forward and optimizer code around it is captured.",
)
RAISES = _kind(
    "raises",
    "The program raises an exception here.",
    "None needed: the exception is raised by the original code.",
)
LOOP = _kind(
    "loop",
    "The loop runs over something that is known only at run time, or is long: its body is captured once, not unrolled.",
    "None needed: every iteration runs the captured body.",
)
GENERATOR = _kind(
    "generator",
    "The frame gives up control here (yield or await).",
    "None needed: the code between two yields is captured.",
)
CONTEXT_MANAGER = _kind(
    "context-manager",
    "The context manager of this with statement has no model.",
    "The body of the with statement is captured on its own.",
)
TOO_DEEP = _kind(
    "too-deep",
    "Calls are nested more deeply than is inlined.",
    "Turn the recursion into a loop, or accept the break.",
)
TOO_LONG = _kind(
    "too-long",
    "The region has reached the greatest number of steps that is captured in one go.",
    "A long loop over Python data can be moved into a tensor operator.",
)
ESCAPES = _kind(
    "escapes",
    "An object made here (a generator, say) would have to be handed to native code in the middle of its use.",
    "Turn a generator expression into a list.",
)
IMPURE = _kind(
    "impure-order",
    "An in-place change of an outside tensor and other effects would have to be undone if an operator failed here.",
    "None needed: the region ends before the operator and the next one begins with it.",
)
METADATA = _kind(
    "metadata",
    "The shape or type of this tensor can't be worked out without running the operators.",
    "None needed unless it is in a hot loop: the value is read natively.",
)
RANDOM_STATE = _kind(
    "random-state",
    "The call reads or sets the state of a random number generator.",
    "Seed outside of the hot path.",
)


OF_TENSORS = frozenset([DATA_DEPENDENT, TENSOR_SUBCLASS, AUTOGRAD, METADATA, IMPURE, REQUESTED])
"""Kinds that occur only where tensors are: worth a line of the report even in a function without a graph."""


class GraphBreak(Exception):
    """Interpretation can't go past this instruction: run it natively.

    kind: one of the constants of this module. detail: what exactly, a clause or sentence that names the object.
    The frame adds the place.
    """

    def __init__(self, kind: BreakKind, detail: str = "", hint: str | None = None) -> None:
        super().__init__(f"{kind.code}: {detail or kind.explanation}")
        self.kind = kind
        self.detail = detail
        self.hint = kind.hint if hint is None else hint
        self.place: Place | None = None

    def again(self) -> GraphBreak:
        """The same break, to be raised once more for a call that is known to break inside."""
        copy = GraphBreak(self.kind, self.detail, self.hint)
        copy.place = self.place
        return copy


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the user's source: file, function and a range of lines and columns (0-based columns, in bytes)."""

    filename: str
    function: str
    line: int
    end_line: int
    col: int
    end_col: int


@dataclass(slots=True)
class BreakRecord:
    """A graph break as the report shows it.

    place: of the broken expression. caller: where the captured frame calls the function that breaks, if it isn't the
    frame itself.
    """

    kind: BreakKind
    detail: str
    hint: str
    place: Place
    caller: Place | None = None
