"""CPython's own tests, run with the hook on for the whole process: what passes without framecap passes with it.

    python tests/cpython/suite.py [test_name ...]      # a table: tests run, failures without and with framecap

Frames of the standard library are captured here too (else the policy leaves them alone), and threads that the tests
start. Few of these programs have tensors: what is tested is that a rewritten frame behaves as the original does, and
that symbolic interpretation, which looks at everything they do, has no effects of its own and no internal errors
(FRAMECAP_STRICT=1).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUICK = (
    "test_grammar", "test_scope", "test_with", "test_generators", "test_coroutines", "test_exceptions", "test_contextlib",
    "test_descr", "test_patma", "test_super", "test_class", "test_set",
)  # fmt: skip
"""Run by the project's tests."""
ALL = (
    *QUICK, "test_dataclasses", "test_enum", "test_functools", "test_itertools", "test_inspect", "test_traceback", "test_sys",
    "test_sys_settrace", "test_sys_setprofile", "test_threading", "test_weakref", "test_pickle", "test_copy", "test_typing",
    "test_types", "test_call", "test_dict", "test_list", "test_tuple", "test_fstring", "test_asyncgen", "test_raise",
    "test_baseexception", "test_exception_group", "test_except_star", "test_unpack", "test_unpack_ex", "test_compile",
    "test_opcodes", "test_dictcomps", "test_listcomps", "test_setcomps", "test_genexps", "test_named_expressions",
    "test_positional_only_arg", "test_keywordonlyarg", "test_extcall", "test_augassign", "test_binop", "test_compare",
    "test_bool", "test_property", "test_decorators", "test_collections", "test_deque", "test_defaultdict", "test_ordered_dict",
    "test_userdict", "test_userlist", "test_heapq", "test_bisect", "test_operator", "test_builtin", "test_frame", "test_code",
    "test_funcattrs", "test_slice", "test_range", "test_enumerate", "test_iter", "test_context", "test_abc", "test_metaclass",
    "test_subclassinit", "test_string", "test_format", "test_random", "test_statistics", "test_fractions",
)  # fmt: skip
KNOWN = {
    "test_slots": "counts the objects that the garbage collector knows, and captures make some",
    "test_getframe": "frame.f_code is the rewritten twin of the code",
    "test_co_positions_artificial_instructions": "disassembles frame.f_code, which is the twin",
    "test_objecttypes": "the size of a frame object depends on the twin's stack",
    "test_getallocatedblocks": "counts blocks of memory, and captures make some",
    "test_refcount": "counts references to None, and captures make some",
    "doctests (test.test_genexps": "expects a tuple to be made again in the same place of memory",
}
"""Tests that fail with framecap, and why they may."""
NOT_RUN = {
    "test_lru_reentrancy_with_len": "replaces builtins.len, which framecap calls too",
    "test_reduce_mutating_builtins_iter": "deletes builtins.iter, which framecap calls too",
}
"""Tests that would end in an internal error of framecap, and why."""


def run_one(name: str, with_hook: bool) -> dict[str, Any]:
    """Run one test module in a process of its own: {"run": count, "failed": [names]}."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        environment = {**os.environ, "FRAMECAP_STRICT": "1"}
        command = [sys.executable, __file__, "--one", name, "hook" if with_hook else "plain", str(result)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=600)
        if not result.exists():
            return {"run": 0, "failed": [f"the process ended with status {done.returncode}: {done.stderr[-2000:]}"]}
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def new_failures(name: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The results without and with framecap, and what fails only with it."""
    plain, hooked = run_one(name, False), run_one(name, True)
    known = [test for test in hooked["failed"] if any(test.startswith(k) for k in KNOWN)]
    return plain, hooked, [test for test in hooked["failed"] if test not in plain["failed"] and test not in known]


def in_this_process(name: str, with_hook: bool, result: Path) -> None:
    import framecap.api  # also without the hook: importing torch changes what some tests see

    if with_hook:
        capture_everything(framecap.api.config_for("eager", False))
    from test import support

    support.verbose = 0
    support.use_resources = None
    module = __import__(f"test.{name}", fromlist=["module"])
    loaded = unittest.TestLoader().loadTestsFromModule(module)
    tests = unittest.TestSuite(test for test in flat(loaded) if name_of(test) not in NOT_RUN)
    with open(os.devnull, "w") as nowhere:
        outcome = unittest.TextTestRunner(nowhere).run(tests)
    failed = sorted(str(test) for test, _ in (*outcome.failures, *outcome.errors))
    result.write_text(json.dumps({"run": outcome.testsRun, "failed": failed}))


def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def name_of(test: unittest.TestCase) -> str:
    return test.id().rpartition(".")[2]


def capture_everything(config: Any) -> None:
    """Switch the hook on for all threads, and for all code but framecap's and torch's own."""
    from framecap import capturing, hook, points, policy

    def is_library(code: Any) -> bool:
        return code.co_filename.startswith(("<frozen", "<framecap", policy.HERE, policy.TORCH))

    def why_skipped(code: Any) -> str | None:
        if is_library(code) or (not code.co_flags & 1 and code.co_name != "<module>"):
            return "framecap's own, or the body of a class"
        return None

    capturing.is_library = is_library
    points.why_skipped = why_skipped
    run = threading.Thread.run

    def run_with_hook(thread: threading.Thread) -> None:
        hook.set_thread_config(config)
        run(thread)

    threading.Thread.run = run_with_hook  # type: ignore[method-assign]
    hook.set_thread_config(config)


def main(names: list[str]) -> int:
    bad = 0
    print(f"{'test':28} {'run':>5} {'failed without':>15} {'with':>5}  only with framecap")
    for name in names or ALL:
        plain, hooked, new = new_failures(name)
        bad += len(new)
        print(f"{name:28} {hooked['run']:5} {len(plain['failed']):15} {len(hooked['failed']):5}  {'; '.join(new)}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        in_this_process(sys.argv[2], sys.argv[3] == "hook", Path(sys.argv[4]))
    else:
        sys.exit(main(sys.argv[1:]))
