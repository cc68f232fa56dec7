"""What runs a live cell in a page, here in plain Python: what it runs first, and what it says."""

import importlib.util
import json
import re
import sys

import pytest
from book_reader import BOOK, ROOT, notebooks, read

TOOLS = BOOK / "_tools"


def load(name):
    """A module of book/_tools."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


live, live_cell = load("live"), load("live_cell")


def run(source, *above):
    return live_cell.run(list(above), source)


def printed(source, *above):
    """What a cell prints, if it does not fail."""
    result = run(source, *above)
    assert result["error"] is None, result["error"]
    return result["printed"]


def needs(source, *above):
    """The statements that a cell has run before it."""
    earlier = [part for text in above for part in live_cell.parts(text, "above")]
    return [part.text for part in live_cell.needed(earlier, live_cell.parts(source, "cell"))]


# What a cell shows


def test_a_cell_shows_what_it_prints_and_its_last_value():
    assert run("print(1)\nprint(2)\n3") == {
        "printed": "1\n2\n",
        "shown": ["text", "3"],
        "error": None,
    }
    assert run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')")["printed"] == (
        "a\nb\nc\n"
    )
    for quiet in ("", "# nothing", "x = 1", "None", "for i in range(3): i"):
        assert run(quiet) == {"printed": "", "shown": None, "error": None}


RICH = """
class Rich:
    def _repr_html_(self): return "<b>1</b>"
    def _repr_svg_(self): return {svg}
    def __repr__(self): return "plain"
"""


@pytest.mark.parametrize("svg, kind", [("'<svg/>'", "svg"), ("None", "html")])
def test_a_picture_goes_before_a_table_and_a_table_before_text(svg, kind):
    look = {"svg": "<svg/>", "html": "<b>1</b>"}[kind]
    assert run(RICH.format(svg=svg) + "Rich()")["shown"] == [kind, look]
    shown, text = run(RICH.format(svg=svg) + "Rich")["shown"]
    assert shown == "text" and "class" in text


def test_a_page_and_python_talk_in_json():
    request = json.dumps({"above": ["x = 'é'"], "source": "x"})
    assert json.loads(live_cell.answer(request)) == run("x", "x = 'é'")


def test_endless_output_is_cut():
    result = run("for i in range(100_000): print(i)\n'x' * 1_000_000")
    assert len(result["printed"]) < 2 * live_cell.LONGEST
    assert result["printed"].startswith("0\n1\n") and "cut after" in result["printed"]
    assert len(result["shown"][1]) < 2 * live_cell.LONGEST


# What runs before it


@pytest.mark.parametrize(
    "source, above, wanted",
    [
        ("a", ["a = 1", "b = 2"], ["a = 1"]),
        ("a", ["a = 1\na = 2"], ["a = 2"]),
        ("a", ["a = 1", "a = a + 1", "a += 1"], ["a = 1", "a = a + 1", "a += 1"]),
        ("a = 2\na", ["a = 1"], []),
        ("a", ["b = 1\nc, (a, d) = b, (2, 3)"], ["b = 1", "c, (a, d) = (b, (2, 3))"]),
        ("f(1)", ["k = 2\ndef f(x): return k * x"], ["k = 2", "def f(x):\n    return k * x"]),
        # Called after the second k: a name in a function is looked up late.
        ("y", ["k = 1\ndef f(): return k\nk = 2\ny = f()"],
         ["k = 1", "def f():\n    return k", "k = 2", "y = f()"]),
        ("y", ["k = 1\ny = (lambda: k)()"], ["k = 1", "y = (lambda: k)()"]),
        ("A()", ["n = 1\nclass A:\n    size = n"], ["n = 1", "class A:\n    size = n"]),
        ("s", ["n = 3\ns = [n * i for i in range(n) if i]\ni = 5"],
         ["n = 3", "s = [n * i for i in range(n) if i]"]),
        ("i", ["for i in range(3):\n    print(i)"], ["for i in range(3):\n    print(i)"]),
        ("x", ["import math\nif math.pi > 3:\n    x = 1\nelse:\n    x = 2"],
         ["import math", "if math.pi > 3:\n    x = 1\nelse:\n    x = 2"]),
        ("x", ["x = 0", "if x:\n    x = 1"], ["x = 0", "if x:\n    x = 1"]),
        ("t", ["with open('f') as t:\n    pass"], ["with open('f') as t:\n    pass"]),
        ("n", ["print(n := 5)"], ["print((n := 5))"]),
        ("rows", ["rows = []\nfor i in range(2):\n    rows.append(i)"],
         ["rows = []", "for i in range(2):\n    rows.append(i)"]),
        ("pool", ["pool = make()\npool.grow(1)", "other.grow(2)", "pool.tables, pool.free"],
         ["pool = make()", "pool.grow(1)"]),
        ("runs", ["runs = {}\nruns['a'] = 1\nruns.setdefault('b', []).append(2)\ndel runs['a']"],
         ["runs = {}", "runs['a'] = 1", "runs.setdefault('b', []).append(2)", "del runs['a']"]),
        ("q", ["q = [1]\nfirst = q.pop()"], ["q = [1]", "first = q.pop()"]),
        ("q", ["q = thing()\nq.size = 3"], ["q = thing()", "q.size = 3"]),
        ("x", ["x = 1\nassert x == 2\nx\nprint(x)\ntable(x)"], ["x = 1"]),
        ("ts.a", ["import tinyserve as ts\nfrom tinyserve import figures", "figures.kitchen()"],
         ["import tinyserve as ts"]),
        ("check(1)", ["from t import check, show, table"], ["from t import check"]),
        ("os.path", ["import os.path, numpy as np"], ["import os.path"]),
        ("xml", ["import xml.dom, xml.sax"], ["import xml.dom", "import xml.sax"]),
        ("pi", ["from math import *"], ["from math import *"]),
    ],
)  # fmt: skip
def test_what_a_cell_needs(source, above, wanted):
    assert needs(source, *above) == wanted


def test_what_is_needed_runs_and_what_it_prints_does_not_show():
    assert run("x", "x = 1\nprint('above')\nfor i in [5]:\n    print(i)\n    x = i") == {
        "printed": "",
        "shown": ["text", "5"],
        "error": None,
    }
    assert run("1", "1 / 0", "raise ValueError")["error"] is None


def test_nothing_is_left_from_the_run_before():
    pool = "import tinyserve as ts\npool = ts.PagePool(6)\npool.grow('A', 35)"
    cell = "pool.release('A')\nextra = 1\npool.held"
    for _ in range(3):
        assert run(cell, pool)["shown"] == ["text", "0"]
    assert "NameError" in run("extra", pool)["error"]
    rows = "rows = [[]]\ntotal = 0"
    for _ in range(3):
        assert run("rows[0].append(1)\ntotal += 1\nrows, total", rows)["shown"][1] == "([[1]], 1)"


def test_what_is_needed_runs_once():
    work = "import time\nx = [time.perf_counter_ns()]"
    first = run("x", work)
    assert run("x", work) == first
    assert run("x[0]", work)["shown"][1] == first["shown"][1].strip("[]")
    assert run("x", work + "  # edited") == first
    assert run("x", work.replace("[time", "[1 + time")) != first


def test_what_cannot_be_had_twice_is_made_again():
    for _ in range(3):
        assert printed("print(*pairs)", "pairs = zip('ab', 'cd')") == "('a', 'c') ('b', 'd')\n"
        assert printed("print(next(g))", "g = (i for i in range(3))") == "0\n"


def test_functions_of_other_cells_see_what_this_cell_sets():
    scale = "LIMIT = 1\ndef f(): return LIMIT"
    for limit in (2, 3):
        assert printed(f"LIMIT = {limit}\nprint(f())", scale) == f"{limit}\n"
    assert printed("print(f())", scale) == "1\n"


def test_classes_of_other_cells_stay_one_class():
    above = "import tinyserve as ts\nclass Mine(ts.Server): pass\nm = [Mine]\nd = {Mine: 1}"
    for _ in range(2):
        assert printed("print(m[0] is Mine, d[Mine], issubclass(Mine, ts.Server))", above) == (
            "True 1 True\n"
        )


# What goes wrong


def test_an_error_names_the_line_of_the_cell_and_nothing_of_the_page():
    error = run("a = 1\n\nb = a / 0")["error"]
    assert error.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "this cell", line 3, in <module>',
        "    b = a / 0",
    ]
    assert error.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "live_cell" not in error and "exec" not in error


def test_an_error_in_the_package_shows_where_without_the_machine():
    error = run("import tinyserve as ts\nts.PagePool(0)")["error"]
    assert 'File "this cell", line 2' in error and 'File "tinyserve/cache.py"' in error
    assert str(ROOT) not in error
    assert error.splitlines()[-1].startswith("ValueError: pages must be")


def test_what_was_printed_before_an_error_stays():
    result = run("print(1)\n1 / 0\nprint(2)")
    assert result["printed"] == "1\n" and "ZeroDivisionError" in result["error"]


def test_a_long_traceback_keeps_its_ends():
    calls = "\n".join(f"def f{i}(): f{i - 1}()" for i in range(1, 60))
    error = run(f"def f0(): 1 / 0\n{calls}\nf59()")["error"]
    assert len(error.splitlines()) <= live_cell.MOST_LINES
    assert 'File "this cell", line 61, in <module>' in error
    assert error.endswith("ZeroDivisionError: division by zero")
    assert len(run("def f(n): f(n + 1)\nf(0)")["error"].splitlines()) <= live_cell.MOST_LINES


def test_a_syntax_error_is_shown_in_its_line():
    lines = run("a = 1\nb = = 2")["error"].splitlines()
    assert lines[0] == '  File "this cell", line 2' and lines[-1].startswith("SyntaxError")


@pytest.mark.parametrize("stop", ["import sys; sys.exit(3)", "raise KeyboardInterrupt"])
def test_nothing_that_a_cell_does_ends_the_session(stop):
    assert run(stop)["error"].splitlines()[-1].startswith(("SystemExit", "KeyboardInterrupt"))
    assert printed("print(1)") == "1\n"


def test_a_fault_above_says_which_cell():
    error = run("x", "MORE = = 3\nx = 1")["error"]
    assert error.startswith("A cell above is not Python:\n")
    assert 'the cell "MORE = = 3"' in error and "SyntaxError" in error
    error = run("y", "k = 0\ny = 1 / k")["error"]
    assert error.startswith("This needs a cell above, which fails:\n")
    assert 'File "the cell "k = 0"", line 2' in error and "y = 1 / k" in error
    assert run("y", "k = 0\ny = 1 / k")["error"] == error
    assert run("z", "x = 1")["error"].splitlines()[-1].startswith("NameError")


@pytest.mark.parametrize("missing", ["numpy", "pandas", "tinyserve.kvstore"])
def test_what_only_jupyterlab_has_is_said_plainly(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    wanted = f"This cell needs {missing}, which is not in the page. In JupyterLab it works."
    assert run(f"import {missing}")["error"] == wanted
    assert run("x", f"import {missing}\nx = {missing}.x")["error"] == wanted


def test_a_slip_in_an_import_is_an_error_like_another():
    for slip in ("import nmupy", "from tinyserve import nothing"):
        error = run(slip)["error"]
        assert 'File "this cell", line 1' in error and "JupyterLab" not in error


# What is packed


def test_each_module_of_the_package_is_in_the_page_or_said_to_be_missing():
    files = [*(ROOT / "tinyserve").glob("*.py"), *(ROOT / "tinyserve").glob("*/__init__.py")]
    package = {path.stem if path.parent.name == "tinyserve" else path.parent.name for path in files}
    inside = set(live.MODULES)
    outside = {name.split(".")[1] for name in live_cell.ELSEWHERE if "." in name}
    assert inside | outside == package and not inside & outside


def test_the_script_is_the_same_each_time(tmp_path):
    (tmp_path / "pyodide-lock.json").write_text('{"info": {}, "packages": {"numpy": {}}}')
    (tmp_path / "package.json").write_text('{"version": "1.2.3"}')
    for name in live.PYODIDE.values():
        (tmp_path / name).write_text(f"this is {name}")
    text = live.script(tmp_path)
    live.modules.cache_clear()
    assert live.script(tmp_path) == text
    value = json.loads(re.search(r"= (\{.*\});\n$", text)[1])
    assert set(value) == {*live.PYODIDE, "modules", "lock"}
    assert json.loads(value["lock"])["packages"] == {}


def live_cells():
    """Every live cell of the book with the texts of the cells above it, as a page has them."""
    for path in notebooks():
        above = []
        for cell in read(path).cells:
            tags = cell.metadata.get("tags", [])
            if cell.cell_type == "code" and "live" in tags:
                yield pytest.param(cell.source, list(above), id=f"{path.stem}-{len(above)}")
            if cell.cell_type == "code" and "hide-cell" not in tags:
                above.append(cell.source)


@pytest.mark.parametrize("source, above", list(live_cells()))
def test_every_live_cell_runs_with_what_it_needs(source, above):
    needed = "\n".join(needs(source, *above))
    assert not re.search(r"\b(figures|numpy|pandas|matplotlib|kvstore|explorers)\b", needed)
    first = run(source, *above)
    assert first["error"] is None
    assert run(source, *above) == first
