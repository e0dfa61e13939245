"""What framecap knows of CPython's bytecode, and of nothing else: decoding, flow analysis, rewriting."""

from framecap.bytecode.flow import ExceptionRange, Flow, analyse, entry_offset, live_slots
from framecap.bytecode.instruction import Instruction, decode, slot_names
from framecap.bytecode.rewrite import Rewritten, rewrite

__all__ = [
    "ExceptionRange",
    "Flow",
    "Instruction",
    "Rewritten",
    "analyse",
    "decode",
    "entry_offset",
    "live_slots",
    "rewrite",
    "slot_names",
]
