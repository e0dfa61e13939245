"""What stands for an argument of which the caller of `framecap.capture` gave no example."""

from __future__ import annotations

from typing import NoReturn

from ..errors import METADATA, GraphBreak


class NoExample:
    """A tensor of which nothing is known but that it is one. Asking it anything breaks the graph."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def unknown(self) -> GraphBreak:
        """The break to raise where something of the tensor would have to be known."""
        return GraphBreak(
            METADATA,
            f"this needs to know more of {self.name!r} than that it is a tensor, and no example of it was given",
            "Give examples of the arguments: framecap.capture(fn, *examples).",
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise self.unknown()


