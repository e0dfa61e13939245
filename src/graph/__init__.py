"""The graph IR: six operations, a code generator, and passes. Knows nothing of bytecode, frames or guards.

``to_fx``, ``from_fx`` and ``torch_backend`` come from `framecap.graph.interop`, which is imported at their first use.
"""

from typing import TYPE_CHECKING

from .check import check
from .codegen import GeneratedCode, compile_function, generate
from .diff import diff
from .draw import draw_dot, draw_svg
from .errors import GraphError
from .files import load, save
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node
from .pipeline import PipelineRun, run_pipeline
from .printer import table
from .rewrite import AnyOf, Match, OfType, find_matches, replace_pattern
from .split import Part, split, split_by_support, split_into_stages
from .targets import register_target
from .text import from_text, to_text

if TYPE_CHECKING:
    from .interop import from_fx, to_fx, torch_backend

__all__ = [
    "AnyOf",
    "GeneratedCode",
    "Graph",
    "GraphError",
    "GraphModule",
    "Interpreter",
    "Match",
    "Node",
    "OfType",
    "Part",
    "PipelineRun",
    "Transformer",
    "check",
    "compile_function",
    "diff",
    "draw_dot",
    "draw_svg",
    "find_matches",
    "from_fx",
    "from_text",
    "generate",
    "load",
    "register_target",
    "replace_pattern",
    "run_pipeline",
    "save",
    "split",
    "split_by_support",
    "split_into_stages",
    "table",
    "to_fx",
    "to_text",
    "torch_backend",
]


def __getattr__(name: str) -> object:
    if name in ("to_fx", "from_fx", "torch_backend"):
        from . import interop

        return getattr(interop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
