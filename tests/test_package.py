"""The package as a thing to read and to install: its size, its imports, its docstrings."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest
from book_reader import pages, read

import tinyserve as ts

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tinyserve"
SOURCES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}
SOURCES["logs"] = SOURCES.pop("logs.__init__")  # a package of its own
MODULES = {name: ast.parse(source) for name, source in SOURCES.items()}

# A module imports only from those before it.
CORE = ["checks", "configs", "roofline", "workload", "slots", "cache", "batcher", "metrics"]
LOGS = ["logs.files", "logs.requests", "logs.results", "logs.metrics_text", "logs.polls", "logs"]
LATER = ["ondemand", "compiled", "fast", *LOGS, "sweep", "tables", "presets", "causes", "planning"]
LATER += ["calibrate", "kvstore", "exercises", "style", "figures", "explorers", "notebook"]
ORDER = [*CORE, *LATER, "__main__"]
ALONE = [*CORE, "ondemand", "fast", "tables", "presets", "causes", "planning", "exercises"]
STANDARD_ONLY = [*ALONE, "__init__"]
WITHOUT_CODE = {
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def documented(tree):
    """The module, classes and functions of a tree, each with its docstring node or None."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            has = text and isinstance(first.value.value, str)
            yield node, first.value if has else None


def code_lines(source):
    """The numbers of the lines that hold code: no blank line, comment or docstring."""
    docstrings = {
        (text.lineno, text.col_offset) for _, text in documented(ast.parse(source)) if text
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in WITHOUT_CODE and token.start not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def test_the_core_can_be_held_in_the_head():
    sizes = {name: len(code_lines(SOURCES[name])) for name in ("cache", "batcher", "metrics")}
    assert sum(sizes.values()) < 150, sizes


def test_the_counter_counts():
    source = '''\
"""A docstring
of two lines."""

# a comment
import os  # and one behind code


class A:
    """One line."""

    text = """not a docstring,
    two lines"""

    def f(self): "a docstring beside code"

    @property
    def g(
        self,
    ):
        r"""Raw.

        And long.
        """
        "a string, but not the first"
        return (
            1

            + 2
        )
'''
    counted = [5, 8, 11, 12, 14, 16, 17, 18, 19, 24, 25, 26, 28, 29]
    assert sorted(code_lines(source)) == counted
    assert code_lines("") == set() == code_lines('"""Only words."""\n\n# And these.\n')
    # One more line of code is seen, one more line of words is not.
    for words in ("\n", "    # why\n"):
        assert len(code_lines(source + words)) == len(counted)
    assert len(code_lines(source + "x = 1\n")) == len(counted) + 1


# Imports.


def imports(tree):
    """(name of the imported module, whether it is at the top level) for each import in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "the package imports by full name"
            names = [node.module]
            if node.module == "tinyserve":
                names = [f"tinyserve.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            yield name, node in tree.body


def test_every_module_has_its_place():
    assert set(MODULES) - {"__init__"} <= set(ORDER)
    assert set(CORE) <= set(MODULES)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_from_those_before_it(name):
    earlier = [*CORE, "causes"] if name == "__init__" else ORDER[: ORDER.index(name)]
    for imported, _ in imports(MODULES[name]):
        package, _, module = imported.partition(".")
        if package == "tinyserve":
            assert module in earlier, f"{name} imports {imported}"


@pytest.mark.parametrize("name", STANDARD_ONLY)
def test_the_core_imports_the_standard_library_only(name):
    for imported, at_top in imports(MODULES[name]):
        package = imported.partition(".")[0]
        inside = package in sys.stdlib_module_names or package == "tinyserve"
        assert inside or not at_top, f"{name} imports {imported}"
        # Run.trace, a table where there is pandas, and a progress bar need it when called.
        called = {"batcher": "pandas", "tables": "pandas", "fast": "tqdm", "planning": "tqdm"}
        assert inside or package == called.get(name)


def fresh(code, *options):
    """What `code` prints in a Python of its own that has seen nothing of this one."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    command = [sys.executable, "-I", *options, "-c", start + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_core_runs_where_nothing_else_is_installed():
    # -S leaves out site-packages: there is no numpy to be found.
    code = """if True:
        import tinyserve as ts
        run = ts.serve(ts.invented_chats().at_rate(40), pages=240, limit=16)
        report = ts.report(run)
        slots = ts.simulate(ts.batching_requests().at_rate(8), slots=8)
        print(f"{report.ttft_p99:.3f} {report.wall} {slots.all_done:.2f}")
        import tinyserve.exercises
        try:
            import numpy
        except ImportError:
            print("no numpy")
    """
    assert fresh(code, "-S").split("\n") == ["3.492 cache 8.45", "no numpy"]


def test_what_no_memory_could_hold_is_refused_at_once():
    # In a Python of its own with 1 GB, because a free list of 10**12 pages would take 30,000 GB.
    code = """if True:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        import tinyserve as ts
        chats = ts.invented_chats(3)
        for refused in (
            lambda: ts.PagePool(10**12),
            lambda: ts.serve(chats, pages=10**12, limit=1),
            lambda: ts.simulate(chats, slots=10**12),
        ):
            try:
                refused()
            except ValueError as error:
                print(10**12 == int(str(error).split()[-1]))
    """
    assert fresh(code, "-S").split() == ["True"] * 3


def test_importing_the_package_brings_in_nothing_else():
    code = """if True:
        before = set(sys.modules)
        import tinyserve
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(new - set(sys.stdlib_module_names)))
    """
    assert fresh(code) == "tinyserve"


def test_importing_draws_nothing_at_random_and_prints_nothing():
    code = """if True:
        import random
        random.seed(1)
        before = random.getstate()
        import tinyserve as ts
        ts.invented_chats(), ts.batching_requests(), ts.invented_chats(9).shuffled(3)
        print(random.getstate() == before)
    """
    assert fresh(code) == "True"


# Names and docstrings.


def test_the_names_others_rely_on():
    for name in (
        "Workload invented_chats batching_requests serve Server Run Step report Report percentile "
        "step_seconds users_that_fit simulate SlotRun PagePool pages_for Chip Model A100 LLAMA_8B "
        "split_waits Wait what_if can_finish goodput max_rate fast OnDemandServer sweep figures"
    ).split():
        assert hasattr(ts, name), name
    fields = "start seconds chats joined queue held owed blocked"
    assert ts.Step._fields == tuple(fields.split())
    fields = (
        "ttft_p50 ttft_p99 tbt_p50 tbt_p99 mean_tbt_p50 mean_tbt_p99 queue_max pages_max "
        "cache_steps batch_steps cache_full_at chats_per_second tokens_per_second wall"
    )
    assert ts.Report._fields == tuple(fields.split())


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert ts.__version__ == project["version"]
    assert project["dependencies"] == []


def public(module):
    """(dotted name, node, docstring or "", the class around it or None) of what is public."""
    texts = {node: text.value if text else "" for node, text in documented(module)}

    def inside(node, path, around):
        for child in node.body:
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                yield [*path, child.name], child, texts[child], around
                yield from inside(child, [*path, child.name], child)
            elif isinstance(child, ast.FunctionDef):
                doors = ("__init__", "__post_init__")
                if not child.name.startswith("_") or child.name in doors:
                    yield [*path, child.name], child, texts[child], around

    for path, *rest in inside(module, [], None):
        yield ".".join(path), *rest
    yield "", module, texts[module], None


@pytest.mark.parametrize("name", sorted(MODULES))
def test_everything_public_says_what_it_is(name):
    without = [
        path
        for path, _, text, _ in public(MODULES[name])
        if not text.strip() and not path.endswith("__")
    ]
    assert without == []


def refuses(node):
    """Whether a function raises ValueError itself or asks one of the doors of `checks` to."""
    for part in ast.walk(node):
        if isinstance(part, ast.Raise) and "ValueError" in ast.unparse(part):
            return True
        doors = ("whole", "number", "every_chat_fits")
        if isinstance(part, ast.Call) and ast.unparse(part.func) in doors:
            return True
    return False


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_refuses_says_so(name):
    silent = []
    texts = {node: text.value if text else "" for node, text in documented(MODULES[name])}
    for path, node, text, around in public(MODULES[name]):
        if isinstance(node, ast.FunctionDef) and refuses(node):
            said = texts[around] if path.endswith("__") else text
            if "ValueError" not in said:
                silent.append(path)
    assert silent == []


def test_the_check_of_docstrings_sees_what_is_missing():
    module = ast.parse(
        'def f(n):\n    "Text."\n    return whole("n", n)\n\n\ndef g():\n    return 1\n'
        '\n\nclass A:\n    "Raises ValueError."\n\n    def __init__(self, n):\n'
        '        number("n", n)\n\n    def _h(self):\n        pass\n'
    )
    found = {path: (refuses(node), text) for path, node, text, _ in public(module)}
    assert found == {
        "f": (True, "Text."),
        "g": (False, ""),
        "A": (True, "Raises ValueError."),
        "A.__init__": (True, ""),
        "": (True, ""),
    }


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_a_module_says_where_it_is_introduced(name):
    said = " ".join(ast.get_docstring(MODULES[name]).split())
    assert re.search('[Ii]ntroduced in the chapters? "|Used by all chapters', said)


def test_the_chapters_that_docstrings_name_are_in_the_book():
    titles = [re.search(r"(?m)^# (.+)$", read(page).cells[0].source)[1] for page in pages()]
    named = set()
    for name, tree in MODULES.items():
        for _, text in documented(tree):
            said = " ".join(text.value.split()) if text else ""
            for part in re.findall(r'chapters? ("[^"]+"(?:(?:, | and )"[^"]+")*)', said):
                named.update((name, chapter) for chapter in re.findall(r'"([^"]+)"', part))
    assert len(named) > 20
    missing = [pair for pair in sorted(named) if not any(t.startswith(pair[1]) for t in titles)]
    assert missing == []
