"""The graph IR: six operations, a code generator, and passes. Knows nothing of bytecode, frames or guards."""

from .check import check
from .codegen import GeneratedCode, compile_function, generate
from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node

__all__ = [
    "GeneratedCode",
    "Graph",
    "GraphError",
    "GraphModule",
    "Interpreter",
    "Node",
    "Transformer",
    "check",
    "compile_function",
    "from_fx",
    "generate",
    "to_fx",
]


def __getattr__(name: str) -> object:
    # torch.fx takes long to import, and few programs need it.
    if name in ("to_fx", "from_fx"):
        from . import interop

        return getattr(interop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
