"""What a callable means symbolically, by family. Importing this package fills the table of models."""

from . import builtins, classes, functions, itertools, operators, torch_functions  # noqa: F401
from .registry import MODELS

__all__ = ["MODELS"]
