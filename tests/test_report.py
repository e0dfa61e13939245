"""The report as data, text and JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch

import framecap
from framecap.api import collect_report
from framecap.report import Break, FunctionReport, Report
from framecap.report import json as as_json
from framecap.report import text as as_text

SENTENCE = "Python needs the value of a tensor here, and it is known only when the operators have run."


def a_break(filename: str, line: int, col: int, end_col: int, **others: object) -> Break:
    fields: dict[str, object] = {
        "code": "data-dependent", "sentence": SENTENCE, "hint": "Use torch.where.", "filename": filename,
        "function": "fn", "line": line, "end_line": line, "col": col, "end_col": end_col, "times": 3,
    }  # fmt: skip
    return Break(**(fields | others))  # type: ignore[arg-type]


def a_report(*breaks: Break, filename: str = "file.py") -> Report:
    return Report((FunctionReport("fn", filename, 1, graphs=2, operators=5, breaks=breaks),))


def source_file(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def marked(text: str) -> str:
    """The characters of a report's source line above its carets."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "^" in line)
    start, end = lines[at].index("^"), lines[at].rindex("^") + 1
    return lines[at - 1][start:end]


def test_totals() -> None:
    two = FunctionReport("g", "g.py", 1, 1, 2, (a_break("g.py", 1, 0, 1, times=4),), ("x changed",))
    totals = Report((*a_report(a_break("f.py", 1, 0, 1), a_break("f.py", 2, 0, 1)).functions, two)).totals
    assert (totals.functions, totals.graphs, totals.operators) == (2, 3, 7)
    assert (totals.breaks, totals.break_times, totals.recompiles) == (3, 10, 1)


def test_json_round_trip() -> None:
    report = a_report(a_break("caf\u00e9.py", 7, 4, 9))
    text = as_json.render(report)
    assert text.isascii() and text.endswith("}\n")
    data = json.loads(text)
    assert data == report.to_dict()
    assert data["functions"][0]["breaks"][0]["filename"] == "caf\u00e9.py"
    assert data["totals"]["breaks"] == 1


def test_text_says_everything(tmp_path: Path) -> None:
    filename = source_file(tmp_path, "def fn(x):\n    if x.sum() > 1:\n        pass\n")
    function = FunctionReport(
        "fn", filename, 1, 2, 5, (a_break(filename, 2, 7, 18),), ("self.training changed from True to False",)
    )
    text = as_text.render(Report((function,)))
    assert text == str(Report((function,)))
    flat = " ".join(text.split())
    for part in (
        "2 graphs, 5 operators captured, 1 graph break, 1 recompile", "data-dependent", "program.py:2, 3 times",
        SENTENCE, "Hint: Use torch.where.", "recompiled self.training changed from True to False",
        "Total: 1 function, 2 graphs, 5 operators captured, 1 graph break, met 3 times, 1 recompile.",
    ):  # fmt: skip
        assert part in flat
    assert marked(text) == "x.sum() > 1"


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("    y = f(x) + g(x)", "f(x)"),
        ('    y = "\u00e9\u00e8" + f(x)', "f(x)"),
        ("\ty = 1 +\tf(x)", "f(x)"),
        ("    y = [" + "first_long_name, " * 6 + "f(x), " + "last_long_name, " * 6 + "]", "f(x)"),
        ("    " + "a" * 200 + " = f(x)", "f(x)"),
    ],
)
def test_expression_is_marked(tmp_path: Path, line: str, expression: str) -> None:
    filename = source_file(tmp_path, f"def fn(x):\n{line}\n")
    start = len(line[: line.index(expression)].encode())
    text = as_text.render(a_report(a_break(filename, 2, start, start + len(expression.encode()))))
    assert marked(text) == expression
    assert max(len(t) for t in text.splitlines() if "program.py" not in t) <= 80


def test_wide_characters_move_the_marker() -> None:
    source, marks = as_text.mark("s = '\u65e5\u672c' + f(x)", 11, 15, 70)
    assert source[11:15] == "f(x)"
    assert marks == " " * 13 + "^^^^"


def test_expression_over_several_lines(tmp_path: Path) -> None:
    filename = source_file(tmp_path, "def fn(x):\n    y = call(\n        x,\n    ) + 1\n")
    text = as_text.render(a_report(a_break(filename, 2, 8, 5, end_line=4)))
    assert "2 | y = call(" in text and "3 |     x," in text and "4 | ) + 1" in text
    assert [line.count("^") for line in text.splitlines() if "^" in line] == [5, 2, 1]


def test_long_expression_is_shortened_and_says_so(tmp_path: Path) -> None:
    filename = source_file(tmp_path, "y = call(\n" + "    x,\n" * 20 + ")\n")
    assert "... (18 more lines)" in as_text.render(a_report(a_break(filename, 1, 4, 1, end_line=22)))


@pytest.mark.parametrize(("filename", "line"), [("<string>", 3), ("nowhere.py", 3), ("nowhere.py", 0)])
def test_nothing_else_is_lost_without_source(filename: str, line: int) -> None:
    text = " ".join(as_text.render(a_report(a_break(filename, line, -1, -1, function="inner"))).split())
    assert f"{filename}:3 in inner, 3 times" in text if line else f"{filename} in inner" in text
    assert SENTENCE in text and "Use torch.where." in text


def test_unknown_columns_mark_the_line(tmp_path: Path) -> None:
    filename = source_file(tmp_path, "def fn(x):\n    return x.item()\n")
    assert marked(as_text.render(a_report(a_break(filename, 2, -1, -1)))) == "return x.item()"


def test_narrow_output_wraps_and_cuts_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    long_name = "a_very_long_file_name_that_does_not_fit_into_thirty_columns.py"
    text = as_text.render(a_report(a_break(long_name, 3, 0, 1)))
    assert long_name in "".join(text.split())
    assert SENTENCE in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 30


def test_output_that_lacks_characters(tmp_path: Path) -> None:
    filename = source_file(tmp_path, "y = '\u65e5' + f(x)\n")
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    as_text.write(a_report(a_break(filename, 1, 10, 14)), out)
    out.flush()
    assert b"\\u65e5" in raw.getvalue()


def test_markup_in_texts_is_left_alone() -> None:
    text = as_text.render(a_report(a_break("f.py", 1, 0, 1, sentence="x[bold]y[/bold] :smile: [0]")))
    assert "x[bold]y[/bold] :smile: [0]" in text


def test_no_colours_unless_a_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in as_text.render(a_report(a_break("f.py", 1, 0, 1)))


def test_quiet_functions_are_counted_not_listed() -> None:
    report = Report((*a_report().functions, FunctionReport("helper", "h.py", 1, 0, 0)))
    text = as_text.render(report)
    assert "helper" not in text
    assert "1 other function had no tensor code of its own" in text


def test_empty_report() -> None:
    assert "captured nothing" in as_text.render(Report())


def test_what_needs_the_value_of_a_tensor_is_named() -> None:
    @framecap.optimize
    def fn(x):
        largest = float(x.max() + 1)
        if x.sum() > 3:
            x = -x
        return largest, int(x[0]), x

    fn(torch.ones(3))
    assert [b.sentence for b in collect_report().breaks] == [
        "float() needs the value of a tensor",
        "a branch depends on the value of a tensor",
        "int() needs the value of a tensor",
    ]
