"""Runs a script or module as ``__main__`` the way the ``python`` command does.

What a program can see of its start is reproduced: ``sys.argv``, ``sys.path[0]``, the namespace of ``__main__``, the
meaning of its exit and how an uncaught exception is shown. See Python's documentation of ``__main__``, "Command line
and environment", and Modules/main.c.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any


class CannotStart(Exception):
    """There is no such program; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was found. argv0: what it sees as ``sys.argv[0]``. package: its ``__package__``."""

    name: str
    argv0: str
    spec: ModuleSpec | None
    loader: Any
    filename: str
    package: str | None

    def load(self) -> CodeType:
        """Read and compile. A SyntaxError of the program comes from here."""
        code: CodeType | None
        if self.spec is None and isinstance(self.loader, SourceFileLoader):
            # Not get_code(): a script is always compiled from its source, and leaves no __pycache__ behind.
            with io.open_code(self.filename) as file:
                code = compile(file.read(), self.filename, "exec", dont_inherit=True)
        else:
            code = self.loader.get_code("__main__" if self.spec is None else self.spec.name)
        if code is None:
            raise CannotStart(f"there is no Python code for {self.name!r}")
        return code


def find_script(path: str) -> Program:
    """Find the script ``path``: a source or .pyc file, or a folder or zip file with a ``__main__`` in it.

    Puts what belongs there at ``sys.path[0]``. Runs no code of the program's.
    """
    try:
        # The same errors that reading it would meet, before anything else has happened.
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CannotStart(f"can't open script {path!r}: {reason}") from None
    filename = os.path.join(os.getcwd(), path)  # as in Python/initconfig.c; "./" stays
    if os.path.isdir(path) or (os.path.isfile(path) and zipfile.is_zipfile(path)):
        spec = PathFinder.find_spec("__main__", [filename])
        if spec is None or spec.loader is None:
            raise CannotStart(f"can't find a '__main__' module in {path!r}")
        set_path0(filename)
        return Program(path, path, spec, spec.loader, spec.origin or path, "")
    loader_type = SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader
    set_path0(os.path.dirname(os.path.realpath(path)))
    return Program(path, path, None, loader_type("__main__", filename), filename, None)


def find_module(name: str) -> Program:
    """Find module ``name``, or ``name.__main__`` if it is a package. Imports the packages that it is in."""
    set_path0(os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise CannotStart(f"{name!r} is a package and has no __main__ module to run")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        # These four are what runpy, too, takes for "not found"; anything else is the program's own failure.
        raise CannotStart(f"can't find module {name!r} ({type(error).__name__}: {error})") from None
    if spec is None:
        raise CannotStart(f"can't find module {name!r}: it is not on sys.path")
    if spec.loader is None or not hasattr(spec.loader, "get_code"):
        raise CannotStart(f"module {name!r} is not a Python file that can be run")
    filename = spec.origin or ""
    return Program(name, filename, spec, spec.loader, filename, spec.parent)


def set_path0(folder: str) -> None:
    """Replace what Python put at ``sys.path[0]`` when it started framecap; there is nothing under ``python -P``."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def make_main(program: Program) -> ModuleType:
    """A fresh ``__main__`` with the names that the ``python`` command gives it, put into ``sys.modules``."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __loader__=program.loader,
        __package__=program.package,
        __spec__=program.spec,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __file__=program.filename,
        __cached__=None if program.spec is None else program.spec.cached,
    )
    sys.modules["__main__"] = main
    return main


def run(
    find: Callable[[str], Program], name: str, arguments: list[str], surroundings: AbstractContextManager[Any]
) -> int:
    """Find the program and run it inside ``surroundings`` to its end, its threads included; returns its exit status.

    Uncaught exceptions go through ``sys.excepthook`` with the program's own frames only. ``sys.argv`` and
    ``sys.modules["__main__"]`` stay the program's, for its ``atexit`` functions. A KeyboardInterrupt is shown and
    then raised again: only the interpreter itself can end as killed by the signal.
    """
    failure: BaseException | None = None
    status = 0
    sys.argv = ["-m", *arguments]  # what packages see that are imported on the way to a module
    try:
        with surroundings:
            program = find(name)
            sys.argv = [program.argv0, *arguments]
            main = make_main(program)
            exec(program.load(), main.__dict__)
    except CannotStart:
        raise
    except SystemExit as exit_:
        status = exit_status(exit_)
    except BaseException as error:
        failure = error.with_traceback(own_frames_removed(error.__traceback__))
    if failure is not None:  # shown here, where no exception is being handled any more
        status = show(failure)
    wait_for_threads()
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    return status


NOT_THE_PROGRAM = {__name__, "importlib.util", "importlib._bootstrap", "importlib._bootstrap_external"}


def own_frames_removed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first frame on; None if there is none (a syntax error)."""
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in NOT_THE_PROGRAM:
        trace = trace.tb_next
    return trace


def show(error: BaseException) -> int:
    """Show an uncaught exception as PyErr_PrintEx (Python/pythonrun.c) does; returns the exit status."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit as exit_:
        return exit_status(exit_)
    except BaseException as failure:
        print("Error in sys.excepthook:", file=sys.stderr)
        failure = failure.with_traceback(own_frames_removed(failure.__traceback__))
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def exit_status(exit_: SystemExit) -> int:
    """What the interpreter makes of ``sys.exit(x)``: anything but None and an int is printed and means 1."""
    code = exit_.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    if sys.stderr is not None:
        print(code, file=sys.stderr)
    return 1


def wait_for_threads() -> None:
    """Wait for the program's threads, as the interpreter does before it ends.

    Not by joining them: idle workers of an executor that was never shut down only end when threading's own exit
    functions tell them to (Lib/threading.py, ``_shutdown``; harmless when called again by the interpreter).
    """
    shutdown = getattr(threading, "_shutdown", None)
    if shutdown is not None:
        shutdown()
