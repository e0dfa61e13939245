"""``framecap report``: the program can't tell, and the report is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framecap import cli

PROGRAM = '''
"""A program that looks at how it was started."""
import sys
import torch

def fn(x):
    y = torch.sin(x) + 1
    if y.sum() > 1:
        y = y * 2
    return y

class Local:
    pass

print(sys.argv, sys.path[0], __name__, __file__, __doc__, __spec__ and __spec__.name, __package__)
print(sorted(globals()), type(__builtins__), sys.modules["__main__"].Local is Local)
print([fn(torch.ones(2)).tolist() for _ in range(3)])
sys.stderr.write("to stderr\\n")
what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "raise":
    def inner():
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("wrong") from error
    inner()
elif what == "exit":
    sys.exit(int(sys.argv[2]))
elif what == "exit-text":
    sys.exit("a reason")
elif what == "interrupt":
    raise KeyboardInterrupt
elif what == "hook":
    sys.excepthook = lambda kind, value, trace: print("hook:", kind.__name__, trace.tb_lineno)
    raise ValueError
elif what == "threads":
    import concurrent.futures, threading, time
    pool = concurrent.futures.ThreadPoolExecutor()
    pool.submit(print, "from the pool").result()
    threading.Thread(target=lambda: (time.sleep(0.2), print("late"))).start()
elif what == "close":
    sys.stdout.close()
elif what == "chdir":
    import os
    os.chdir("/")
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs")
    (path / "program.py").write_text(PROGRAM)
    (path / "package").mkdir()
    (path / "package" / "__init__.py").write_text("import sys\nprint('package sees', sys.argv)\n")
    (path / "package" / "__main__.py").write_text(PROGRAM)
    (path / "broken.py").write_text("def f(:\n")
    (path / "whole.py").write_text(
        "import torch\nx = torch.ones(3)\nfor i in range(10):\n    x = torch.sin(x) * 2 + i\nassert x.shape == (3,)\n"
    )
    return path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def report(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "framecap", "report", *words)


@pytest.mark.parametrize(
    "words",
    ["program.py", "./program.py a --json -x", "program.py raise", "program.py exit 3", "program.py exit-text",
     "program.py hook", "program.py threads", "program.py interrupt", "package x", "-m program a"],
)  # fmt: skip
def test_program_runs_as_without_framecap(folder: Path, words: str) -> None:
    plain, under = python(folder, *words.split()), report(folder, *words.split())
    assert under.stdout.startswith(plain.stdout)
    assert "--- framecap report: " in under.stdout[len(plain.stdout) :]
    # runpy's own frames stand in plain Python's traceback of a module; ours has none.
    assert under.stderr == plain.stderr
    assert under.returncode == plain.returncode
    if "interrupt" in words:
        assert under.returncode == -signal.SIGINT


def test_package_as_module(folder: Path) -> None:
    plain, under = python(folder, "-m", "package", "x"), report(folder, "-m", "package", "x")
    assert "package sees ['-m', 'x']" in plain.stdout
    assert under.stdout.startswith(plain.stdout)


def test_syntax_error_of_the_program(folder: Path) -> None:
    plain, under = python(folder, "broken.py"), report(folder, "broken.py")
    assert (under.stderr, under.returncode) == (plain.stderr, plain.returncode)


def test_text_names_the_break(folder: Path) -> None:
    text = report(folder, "program.py").stdout
    assert "data-dependent" in text and "program.py:8" in text
    assert "if y.sum() > 1:" in text and "Hint: " in text and "Total: " in text


def test_json(folder: Path, tmp_path: Path) -> None:
    under = report(folder, "--json", "program.py")
    data = json.loads(under.stdout[under.stdout.index('{\n  "schema"') :])
    (function,) = [f for f in data["functions"] if f["name"] == "fn"]
    (found,) = function["breaks"]
    assert (found["code"], found["line"]) == ("data-dependent", 8)
    assert function["graphs"] == 2 and function["operators"] >= 4
    assert data["totals"]["breaks"] >= 1
    assert found["filename"] == str(folder / "program.py")


def test_json_file_is_written_where_the_command_started(folder: Path, tmp_path: Path) -> None:
    relative = os.path.relpath(tmp_path / "out.json", folder)
    under = report(folder, "--json", relative, "program.py", "chdir")
    assert json.loads((tmp_path / "out.json").read_text())["totals"]["graphs"] >= 2
    assert "framecap report" not in under.stdout


def test_program_that_closes_its_output(folder: Path) -> None:
    under = report(folder, "program.py", "close")
    assert under.returncode == 0
    assert "to stderr" in under.stderr and "--- framecap report" in under.stderr


def test_fail_on_break(folder: Path) -> None:
    assert report(folder, "--fail-on-break", "program.py").returncode == 1
    assert report(folder, "--fail-on-break", "program.py", "exit", "5").returncode == 5


def test_loop_of_a_script_is_captured(folder: Path) -> None:
    """Module code is entered once; its loop body is captured all the same."""
    under = report(folder, "--json=out.json", "whole.py")
    assert under.returncode == 0, under.stderr
    data = json.loads((folder / "out.json").read_text())
    (module,) = [f for f in data["functions"] if f["name"] == "<module>" and f["filename"].endswith("whole.py")]
    assert module["graphs"] >= 1 and module["operators"] >= 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nothere.py", "can't open script 'nothere.py': No such file or directory"),
        ("-m nothere", "can't find module 'nothere': it is not on sys.path"),
        ("-m xml", "'xml' is a package and has no __main__ module to run"),
        (".", "can't find a '__main__' module in '.'"),
        ("--json=/nowhere/x program.py", "can't write '/nowhere/x': No such file or directory"),
        ("--wrong program.py", "unknown option '--wrong'"),
        ("--fail-on-break", "the name of a script is missing"),
    ],
)
def test_wrong_use_is_one_sentence(
    folder: Path,
    words: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main(["report", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"framecap: {sentence}"
    assert "Traceback" not in err and out == ""


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert cli.main(["report", "--help"]) == 0
    assert capsys.readouterr().out.count("usage: framecap report") == 2
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("framecap 0.")
    assert cli.main([]) == 2
    assert cli.main(["dance"]) == 2
    assert "unknown command 'dance'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "json_path", "target", "arguments"),
    [
        ("s.py", None, "s.py", []),
        ("s.py --json x.json", None, "s.py", ["--json", "x.json"]),
        ("--json s.py a", "", "s.py", ["a"]),
        ("--json r.json s.py", "r.json", "s.py", []),
        ("--json=r s.py", "r", "s.py", []),
        ("-m mod -m x", None, "mod", ["-m", "x"]),
        ("-mmod", None, "mod", []),
        ("-- s.py -- x", None, "s.py", ["--", "x"]),
    ],
)
def test_command_line(words: str, json_path: str | None, target: str, arguments: list[str]) -> None:
    options = cli.parse_report(words.split())
    assert (options.json, options.target, options.arguments) == (json_path, target, arguments)
    assert options.module == ("-m" in words.split()[0])
