"""What a chapter's cells call: `show`, `check`, `table`, and figures as SVG."""

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import tinyserve as ts
import tinyserve.batcher
import tinyserve.cache
from tinyserve import exercises
from tinyserve.exercises import check, compare
from tinyserve.notebook import ROOT, show, trace
from tinyserve.tables import PlainTable, bars, clipboard, table, text

# show


@pytest.mark.parametrize(
    "thing, file, first_line, last_line",
    [
        (ts.serve, "batcher", "def serve(", "return Server("),
        (ts.PagePool.grow, "cache", "def grow(self, chat, tokens):", "self.tables[chat] ="),
        (ts.PagePool(3).grow, "cache", "def grow(self, chat, tokens):", "self.tables[chat] ="),
        (ts.PagePool.held, "cache", "@property", "return self.pages - len(self.free)"),
        (ts.PagePool, "cache", "class PagePool:", "self.promised -="),
        (ts.Step, "batcher", "class Step(namedtuple(", "__slots__ = ()"),
        (ts.Chip, "roofline", "@dataclass(frozen=True)", "object.__setattr__("),
        (tinyserve.cache, "cache", '"""The KV cache as pages', "PAGE_SIZE = 16"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_show_gives_the_source_with_its_place(thing, file, first_line, last_line):
    shown = show(thing)
    lines = shown.source.splitlines()
    assert lines[0].startswith(first_line)
    assert lines[-1].strip().startswith(last_line)
    path = f"tinyserve/{file}.py"
    there = (ROOT / path).read_text(encoding="utf-8").splitlines()
    first = next(n for n in range(len(there)) if there[n:] and lines_at(there, n, lines) == lines)
    assert shown.place == f"{path}, lines {first + 1} to {first + len(lines)}"
    assert repr(shown) == f"{shown.place}\n\n{shown.source}"


def lines_at(there, n, lines):
    return textwrap.dedent("\n".join(there[n : n + len(lines)])).splitlines()


def test_show_can_stop_before_a_method():
    whole, head = show(ts.Server).source, show(ts.Server, before="arrive").source
    assert whole.startswith(head)
    assert whole[len(head) :].strip().startswith("def arrive(self):")
    assert show(ts.PagePool, before="can_promise").source.endswith("len(self.free)")
    with pytest.raises(ValueError, match="arrives"):
        show(ts.Server, before="arrives")


def test_a_listing_of_one_line_says_line():
    assert "line 4" in repr(tinyserve.notebook.Listing("tinyserve/x.py", 4, "x = 1"))


@dataclass
class Mine:
    """Not of the package."""

    size: int = 1


@pytest.mark.parametrize(
    "thing", [3, "x", None, len, ts.LLAMA_8B, ts.PagePool(3), json, json.dumps, Path, Mine, np.mean]
)
def test_show_refuses_what_is_not_source_of_the_package(thing):
    with pytest.raises(TypeError):
        show(thing)


# check


@pytest.fixture
def ask(monkeypatch, capsys):
    """Ask an exercise made for the test; returns what is printed."""
    monkeypatch.setattr(exercises, "EXERCISES", {})

    def ask(answer, right, **options):
        exercises.exercise("test 1", **options)(right if callable(right) else lambda: right)
        check("test 1", answer)
        return capsys.readouterr().out

    return ask


@pytest.mark.parametrize("answer", [10, 10.0, np.int64(10), np.float64(10)])
def test_a_right_answer(ask, answer):
    assert ask(answer, 10, hint="Count again.").startswith("Right: 10")


@pytest.mark.parametrize("answer", [9, 10.5, "10", None, [10], np.int64(9), float("nan")])
def test_a_wrong_answer_gets_the_hint(ask, answer):
    said = ask(answer, 10, hint="Count again.")
    assert said.startswith("Not yet")
    assert said.endswith("Count again.\n")


def test_no_answer_yet(ask):
    assert ask(..., 10, hint="Count again.").startswith("No answer yet")
    assert ask(..., lambda answer: True).startswith("No answer yet")


def test_an_exercise_that_does_not_exist():
    with pytest.raises(KeyError, match="pages 99"):
        check("pages 99", 1)


@pytest.mark.parametrize(
    "right, digits, accepted, refused",
    [
        (8.103, 2, [8.1, 8.103, 8.149, np.float64(8.1)], [7.9, 8.0, 8.2, 8.4, 81.0, -8.1]),
        (0.0416, 2, [0.042, 0.0416], [0.043, 0.04, 0.041]),
        (99.6, 2, [99.6, 100, 99.9], [99, 101, 103]),
        (1291.4, 4, [1291, 1291.4], [1290, 1292]),
        (8.103, 2, [], [None, "eight", [8.1], float("nan"), float("inf")]),
    ],
)
def test_a_number_must_have_its_digits_right(ask, right, digits, accepted, refused):
    for answers, verdict in ((accepted, "Right"), (refused, "Not yet")):
        for answer in answers:
            said = ask(answer, right, hint="Again.", digits=digits)
            assert said.startswith(verdict), (answer, said)


def test_a_text_is_compared_as_it_is(ask):
    assert ask("batch", "batch", hint="Again.", digits=3).startswith("Right: batch")
    assert ask("cache", "batch", hint="Again.", digits=3).startswith("Not yet: 'cache'")


def test_an_exercise_that_judges_the_answer_itself(ask):
    def judge(function):
        return compare(function, [(1,), (2,)], lambda n: n * n)

    assert ask(lambda n: n**2, judge) == "Right.\n"
    assert ask(lambda n: n, judge) == "Not yet: with 2 it gives 2, not 4.\n"
    assert ask(4, judge) == "Not yet: 4 is not a function.\n"


@pytest.mark.parametrize("name", exercises.EXERCISES)
def test_no_exercise_takes_nonsense(name, capsys):
    for answer in (None, -1, "nonsense", lambda *arguments: None):
        check(name, answer)
        assert capsys.readouterr().out.startswith("Not yet")


# table


@pytest.mark.parametrize(
    "value, decimals, printed",
    [
        (1234.5678, 1, "1,234.6"),
        (0.0416, 3, "0.042"),
        (1234.5, 0, "1,234"),
        (np.float64(1234.5678), 1, "1,234.6"),
        (1291, 3, "1,291"),
        (np.int64(1291), 3, "1,291"),
        (None, 3, "-"),
        (float("nan"), 3, "-"),
        ("cache", 3, "cache"),
        (True, 3, "True"),
        (-0.00001, 3, "0.000"),
    ],
)
def test_one_cell_of_a_table(value, decimals, printed):
    assert text(value, decimals) == printed


def test_a_column_is_printed_to_the_decimals_of_its_unit():
    columns = ["p99 s", "gap ms", "busy %", "made tokens/s", "rate chats/s", "wait times", "x"]
    printed = table([[1234.56789] * 7], columns).iloc[0].tolist()
    assert printed == [
        "1,234.568",
        "1,234.6",
        "1,234.6",
        "1,235",
        "1,234.6",
        "1,234.6",
        "1,234.568",
    ]


def test_a_table_keeps_whole_numbers_whole_beside_a_gap():
    frame = table([[1291, 0.5], [None, None]], ["queue", "wait s"], index=["a", "b"])
    assert frame.loc["a"].tolist() == ["1,291", "0.500"]
    assert frame.loc["b"].tolist() == ["-", "-"]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError):
        table([[1, 2, 3]], ["queue", "wait s"])


def test_the_plain_table_shows_what_the_frame_shows():
    chats = ts.invented_chats(20)
    runs = {"a": ts.serve(chats, 60, 4), "b": ts.serve(chats.at_rate(50), 60, 4)}
    for frame in (clipboard(runs), clipboard(runs, "ttft_p99", "cache_full_at", "wall")):
        plain = PlainTable(frame.values.tolist(), frame.columns, frame.index, None)
        cells = re.findall("<t[hd]>(.*?)</t[hd]>", plain._repr_html_())
        rows = [[index, *row] for index, row in zip(frame.index, frame.values.tolist())]
        assert cells == ["", *frame.columns, *(cell for row in rows for cell in row)]
        assert repr(plain).split() == frame.to_string().split()


def test_a_trace_to_read():
    run = ts.serve(ts.Workload([0, 0, 0], [34, 20, 5], [10, 20, 5]), pages=6, limit=4)
    frame = trace(run, [1, 11], ["took ms", "new", "waits for"])
    assert frame.values.tolist() == [["7.9", "2", "cache"], ["7.9", "1", ""]]
    assert len(trace(run)) == len(run.steps)


def test_small_bars():
    chart = bars({"light": 0.0416, "heavy": 3.492}, "s")
    assert repr(chart) == "light: 0.042 s\nheavy: 3.492 s"
    widths = re.findall(r'width="([\d.]+)" height="20"', chart._repr_html_())
    assert [float(w) for w in widths] == [pytest.approx(220 * 0.0416 / 3.492, abs=0.05), 220]
    assert ">3.492 s</text>" in chart._repr_html_() and "http" not in chart._repr_html_()
    for values in ({}, {"a": -1}, {"a": float("nan")}, {"a": "much"}):
        with pytest.raises(ValueError):
            bars(values, "s")


# In a notebook


def test_what_a_notebook_stores():
    cells = [
        "from tinyserve.notebook import show\nimport tinyserve as ts",
        "show(ts.percentile)",
        "from tinyserve.style import new_figure\nfigure, axes = new_figure(2)\n"
        "axes.plot([1, 3, 2])\nfigure",
    ]
    runs = []
    for _ in range(2):
        notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
        NotebookClient(notebook, kernel_name="python3", record_timing=False).execute()
        runs.append([[o.data for o in cell.outputs] for cell in notebook.cells])
    assert runs[0] == runs[1]
    nothing, [listing], [figure] = runs[0]
    assert nothing == []
    assert listing["text/plain"] == repr(show(ts.percentile))
    assert show(ts.percentile).source in listing["text/markdown"]
    assert sorted(figure) == ["image/svg+xml", "text/plain"]
    assert figure["image/svg+xml"].count("</svg>") == 1
