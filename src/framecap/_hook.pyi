"""The frame hook, in C. See hook.py for what each piece is for."""

from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final, final

@final
class UnboundType: ...

UNBOUND: Final[UnboundType]
"""Stands for an unbound local, an empty stack slot (NULL); written to a slot it unbinds it, to a cell it
empties it."""

@final
class Point:
    """A capture point of a rewritten code object.

    R's constants own it, and it refers to R and C weakly. What it holds (variants, data) can't be collected
    before R is, since code objects take no part in garbage collection: let it not refer to C, R or a function
    over C.
    """

    def __init__(self, offset: int, depth: int, index: int) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def variants(self) -> list[Variant]:
        """Most recent first; a hit moves to the front. It may be changed in place."""
    @property
    def awake(self) -> bool: ...
    @property
    def twin(self) -> CodeType | None:
        """The rewritten code R; None before bind() or when it is gone."""
    @property
    def code(self) -> CodeType | None:
        """The original code C; None before bind() or when it is gone."""
    hits: int
    misses: int
    data: Any
    def wake(self) -> None:
        """Patch the stub in R's bytecode; frames that are running take it when they come by."""
    def sleep(self) -> None: ...
    def bind(
        self,
        twin: CodeType,
        code: CodeType,
        jump_unit: int,
        jump_arg: int,
        invert_unit: int,
        orders: tuple[bytes, ...],
        copies: bytes,
        /,
    ) -> None:
        """For the rewriter: where the stub is (code units), how exits unpack, where instructions were copied
        to."""
    def __invert__(self) -> tuple[int, tuple[Any, ...]] | None:
        """For stubs only: None unless it is executed by this point's own stub in the running frame."""

@final
class Variant:
    """A region compiled for one set of guards.

    `program` is a framecap.guards program; or, for tests, a callable ``program(slots, globals, builtins)``
    that returns the arguments for `run`, or None for no match. ``run(*outs)`` returns ``(target, stack,
    *written)``: see bytecode.Rewritten. The i-th written value goes to ``writes[i] = (slot, is_cell)``.
    `unbinds` are slots to unbind; a cell's slot among them gets its cell emptied. If a `pure` variant's run
    raises an Exception, nothing has happened and the original code goes on from the point.
    """

    def __init__(
        self,
        program: object,
        run: Callable[..., tuple[Any, ...]],
        writes: Iterable[tuple[int, bool]] = ...,
        unbinds: Iterable[int] = ...,
        config: object = None,
        pure: bool = False,
        data: Any = None,
    ) -> None: ...
    @property
    def program(self) -> object: ...
    @property
    def run(self) -> Callable[..., tuple[Any, ...]]: ...
    @property
    def writes(self) -> tuple[tuple[int, bool], ...]: ...
    @property
    def unbinds(self) -> tuple[int, ...]: ...
    @property
    def config(self) -> object: ...
    pure: bool
    data: Any
    hits: int
    deopts: int

@final
class OptimizedFunction:
    """Calls `fn` with the thread's config set, without a Python frame of its own. Attributes it lacks are
    `fn`'s."""

    def __init__(self, fn: Callable[..., Any], config: object) -> None: ...
    @property
    def __wrapped__(self) -> Callable[..., Any]: ...
    @property
    def config(self) -> object: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
    def __getattr__(self, name: str, /) -> Any: ...

def set_callbacks(
    on_code: Callable[[CodeType], CodeType | None] | None,
    on_miss: Callable[
        [Point, tuple[Any, ...], FunctionType, dict[str, Any], dict[str, Any], object], Variant | None
    ]
    | None,
    on_error: Callable[[Variant, type[BaseException], BaseException, TracebackType | None], int | bool | None]
    | None = None,
) -> None: ...
def set_thread_config(config: object, /) -> Any: ...
def in_region() -> bool:
    """Whether this thread is inside the code of a captured region."""

def get_thread_config() -> Any: ...
def forget(code: CodeType, /) -> None: ...
def code_state(code: CodeType, /) -> CodeType | bool | None: ...
