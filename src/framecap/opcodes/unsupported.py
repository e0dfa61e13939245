"""Opcodes without a handler, each with its reason. An opcode met here is a graph break."""

from __future__ import annotations

from ..symbolic.handlers import REASONS

UNSUPPORTED: dict[str, str] = {
    "ASYNC_GEN_WRAP": "asynchronous generators run natively between their awaits",
    "BEFORE_ASYNC_WITH": "async with awaits, which gives up control",
    "CHECK_EG_MATCH": "exception groups are handled natively",
    "PREP_RERAISE_STAR": "exception groups are handled natively",
    "END_ASYNC_FOR": "async for awaits, which gives up control",
    "GET_AITER": "async for awaits, which gives up control",
    "GET_ANEXT": "async for awaits, which gives up control",
    "GET_AWAITABLE": "await gives up control",
    "IMPORT_STAR": "import * writes an unknown set of names",
    "LOAD_BUILD_CLASS": "class statements run natively",
    "LOAD_CLASSDEREF": "occurs only in class bodies, which run natively",
    "PRINT_EXPR": "occurs only at the interactive prompt",
    "SETUP_ANNOTATIONS": "occurs only in module and class bodies with annotations, and writes to the namespace",
}

REASONS.update(UNSUPPORTED)
