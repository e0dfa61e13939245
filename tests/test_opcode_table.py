"""Every opcode of the running Python is interpreted or listed with a reason, never both."""

from __future__ import annotations

import dis

from framecap.opcodes import HANDLERS, UNSUPPORTED


def test_every_opcode_is_handled_or_has_a_reason() -> None:
    known = {name for name in dis.opmap if not name.startswith("<")}
    assert set(HANDLERS) | set(UNSUPPORTED) == known
    assert not set(HANDLERS) & set(UNSUPPORTED)
    assert all(reason and not reason.endswith(".") for reason in UNSUPPORTED.values())


def test_handlers_say_what_they_do_to_the_stack() -> None:
    for name, handler in HANDLERS.items():
        assert handler.__doc__, name
