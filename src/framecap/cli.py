"""The command line: ``framecap report [options] SCRIPT [ARGS...]`` or ``-m MODULE [ARGS...]``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TextIO, TypeGuard

from . import api, program
from .report import Report
from .report import json as as_json
from .report import text as as_text

USAGE = """\
usage: framecap report [--json [FILE.json]] [--fail-on-break] SCRIPT [ARGS...]
       framecap report [--json [FILE.json]] [--fail-on-break] -m MODULE [ARGS...]
       framecap --help | --version
"""

HELP = (
    USAGE
    + """
Runs a Python program under framecap.optimize, as `python SCRIPT ARGS...` would, and when it has ended prints for each
function: graphs, operators captured, and graph breaks with the reason and what to change.

  --json             print the report as JSON instead of text
  --json FILE.json   write it as JSON to this file (--json=FILE takes any name) and print no text
  --fail-on-break    exit with status 1 if the program succeeded and there are graph breaks
  -m MODULE          run a module, as `python -m MODULE` would

The report follows the program's own output on standard output. The exit status is the program's own; it is 2 if
there is no such program, or for wrong options.
"""
)


class WrongUsage(Exception):
    """The command line makes no sense; the message is one sentence."""


@dataclass(slots=True)
class Options:
    """A parsed ``report`` command. json: None for text, "" for standard output, else a file name."""

    json: str | None = None
    fail_on_break: bool = False
    module: bool = False
    target: str = ""
    arguments: list[str] = field(default_factory=list)


def parse_report(words: list[str]) -> Options:
    """Options end at the script or module; all that follows is the program's."""
    options = Options()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--fail-on-break":
            options.fail_on_break = True
        elif word == "--json":
            # `--json report.json script.py` and `--json script.py` are told apart by the file's name.
            options.json = rest.pop(0) if rest and rest[0].endswith(".json") else ""
        elif word.startswith("--json="):
            options.json = word.removeprefix("--json=")
            if not options.json:
                raise WrongUsage("--json= needs the name of a file after it")
        elif word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            options.module = True
            options.target = word[2:] or (rest.pop(0) if rest else "")
            break
        elif word == "--":
            options.target = rest.pop(0) if rest else ""
            break
        elif word.startswith("-") and word != "-":
            raise WrongUsage(f"unknown option {word!r}")
        else:
            options.target = word
            break
    if not options.target:
        raise WrongUsage("the name of a module is missing" if options.module else "the name of a script is missing")
    options.arguments = rest
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status. Replaces ``__main__`` and ``sys.argv`` if it runs a program."""
    words = sys.argv[1:] if argv is None else argv
    try:
        match words:
            case ["-h" | "--help", *_] | ["report", "-h" | "--help", *_]:
                print(HELP, end="")
                return 0
            case ["--version"]:
                print(f"framecap {version('framecap')}")
                return 0
            case ["report", *rest]:
                return report(parse_report(rest))
            case []:
                raise WrongUsage("a command is missing")
            case [word, *_]:
                raise WrongUsage(f"unknown command {word!r}")
    except WrongUsage as problem:
        print(f"framecap: {problem}\n{USAGE}", end="", file=sys.stderr)
    except program.CannotStart as problem:
        print(f"framecap: {problem}", file=sys.stderr)
    return 2


def report(options: Options) -> int:
    """Run the program, then print the report. The program's own failure goes before ours in the exit status."""
    out = sys.stdout  # the program may replace or close it
    if options.json:
        check_writable(options.json)
    json_path = os.path.abspath(options.json) if options.json else options.json  # it may change directory too
    find = program.find_module if options.module else program.find_script
    interrupted = False
    status = 0
    try:
        status = program.run(find, options.target, options.arguments, api.optimize())
    except KeyboardInterrupt:
        interrupted = True
    collected = api.collect_report()
    written = publish(collected, options.target, json_path, out)
    if interrupted:
        # Already shown. The interpreter now ends as if killed by the signal, which the shell wants to know.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    if status == 0 and not written:
        status = 2
    if status == 0 and options.fail_on_break and collected.breaks:
        status = 1
    return status


def check_writable(path: str) -> None:
    """Refuse early: not after the program has run for an hour. An existing file keeps its content until then."""
    try:
        open(path, "a", encoding="utf-8").close()
    except OSError as error:
        raise WrongUsage(f"can't write {path!r}: {error.strerror or error}") from None


def publish(collected: Report, title: str, json_path: str | None, out: TextIO | None) -> bool:
    """Write the report where it was asked for; returns whether that went well (if not, stderr says why)."""
    try:
        if json_path:
            with open(json_path, "w", encoding="utf-8") as file:
                file.write(as_json.render(collected))
            return True
        if is_open(sys.stdout):
            sys.stdout.flush()
        stream = next((s for s in (out, sys.stdout, sys.stderr) if is_open(s)), None)
        if stream is None:
            return True  # the program closed all output: nobody is to be told anything
        if json_path is None:
            stream.write(f"\n--- framecap report: {ascii(title)[1:-1]} ---\n\n")
            as_text.write(collected, stream)
        else:
            stream.write(as_json.render(collected))
        stream.flush()
    except BrokenPipeError:
        # The reader (head, say) has seen enough. Keep the interpreter from failing in its own last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except OSError as error:
        print(f"framecap: can't write the report: {error}", file=sys.stderr)
        return False
    return True


def is_open(stream: TextIO | None) -> TypeGuard[TextIO]:
    try:
        return stream is not None and not stream.closed
    except ValueError:  # its buffer was detached
        return False
