"""One handler per opcode, by family. Importing this package fills the table."""

from . import blocks, build, calls, exceptions, jumps, loads, operators, unsupported  # noqa: F401
from .registry import HANDLERS
from .unsupported import UNSUPPORTED

__all__ = ["HANDLERS", "UNSUPPORTED"]
