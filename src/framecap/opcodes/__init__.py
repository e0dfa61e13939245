"""One handler per opcode, by family. Importing this package fills the table."""

from ..symbolic.handlers import HANDLERS
from . import blocks, build, calls, exceptions, jumps, loads, operators, unsupported  # noqa: F401
from .unsupported import UNSUPPORTED

__all__ = ["HANDLERS", "UNSUPPORTED"]
