"""The chapters as files: stored outputs, figures, shape, terms, shown source, where they run."""

import difflib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from book_reader import (
    BOOK,
    ROOT,
    code_lines,
    figure_texts,
    listings,
    notebooks,
    outputs,
    pages,
    plain,
    read,
    reading_order,
    texts,
)
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

NOTEBOOKS = {path.stem: path for path in notebooks()}
every_notebook = pytest.mark.parametrize("name", NOTEBOOKS)

# What a page lacks of a chapter's shape. A page that is not here lacks nothing.
ALL = {"predict", "edit", "exercises", "next", "length"}
LACKS = {
    "opening": {"predict", "edit", "exercises", "length"},
    "your-turn": {"edit", "exercises", "length"},
    "play-slots": {"edit", "exercises", "length"},  # an explorer instead
    "play-server": {"edit", "exercises", "length"},
    "two-parts": {"length"},  # ends with five questions
    "your-log": {"predict", "edit", "exercises", "length"},  # a template to fill in
    "source": ALL,
    "colophon": ALL,
}


def chapters_with(part):
    """Parametrize over the chapters that must have a part of the shape."""
    return pytest.mark.parametrize("name", [n for n in NOTEBOOKS if part not in LACKS.get(n, ())])


def test_the_table_of_contents_names_every_page():
    assert sorted(reading_order()) == sorted(path.stem for path in pages())
    assert set(LACKS) <= set(reading_order())


# Stored outputs

# What must not be stored: it warns, or it is true on one machine or in one run only.
UNWANTED = {
    "a warning": r"\b\w*Warning\b",
    "a traceback": r"\bTraceback\b",
    "a machine path": r"(?<![\w.])/(?:home|root|tmp|usr|opt|private|Users)/|\b[A-Z]:\\"
    rf"|site-packages|{re.escape(str(ROOT))}|{re.escape(sys.prefix)}",
    "an object address": r"\b0x[0-9a-fA-F]{4,}",
    "a name of one run": r"<ipython-input|ipykernel_\d",
    "a colour code": r"\x1b\[",
}


def unwanted(notebook):
    """What a notebook's stored outputs should not hold: (cell, what, where)."""
    for n, output in outputs(notebook):
        if output.output_type == "error":
            yield n, "an error", output.ename
        if output.get("name") == "stderr":
            yield n, "stderr", output.text
        for text in [output.get("text", ""), *map(str, output.get("data", {}).values())]:
            for what, pattern in UNWANTED.items():
                if match := re.search(pattern, text):
                    yield n, what, text[max(0, match.start() - 20) : match.end() + 20]
        if {"image/png", "image/jpeg"} & set(output.get("data", {})):
            yield n, "a picture of dots", "only SVG is compared"


@every_notebook
def test_every_cell_was_run_in_order(name):
    cells = [cell for cell in read(NOTEBOOKS[name]).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.source.strip() for cell in cells)


@every_notebook
def test_stored_outputs_hold_nothing_unwanted(name):
    assert list(unwanted(read(NOTEBOOKS[name]))) == []


@pytest.mark.parametrize(
    "output, what",
    [
        (new_output("error", ename="ValueError", evalue="no"), "an error"),
        (new_output("stream", name="stderr", text="hm"), "stderr"),
        (new_output("stream", name="stdout", text="x.py:3: UserWarning: no"), "a warning"),
        (new_output("stream", name="stdout", text="Traceback (most"), "a traceback"),
        (new_output("display_data", {"text/html": "<p>/home/x/y"}), "a machine path"),
        (new_output("display_data", {"text/plain": "C:\\x"}), "a machine path"),
        (new_output("display_data", {"text/plain": f"'{ROOT}/x'"}), "a machine path"),
        (new_output("display_data", {"text/plain": "<A at 0x7f3a20>"}), "an object address"),
        (new_output("display_data", {"image/png": "iVBO"}), "a picture of dots"),
    ],
)
def test_an_unwanted_output_is_seen(output, what):
    found = list(unwanted(new_notebook(cells=[new_code_cell("1", outputs=[output])])))
    assert what in [kind for _, kind, _ in found]


@every_notebook
def test_the_metadata_is_of_no_machine(name):
    notebook = read(NOTEBOOKS[name])
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    keys = {key for cell in notebook.cells for key in cell.metadata}
    assert keys <= {"jupyter", "mystnb", "tags"}
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


# Figures


def figures(notebook):
    """(cell number, cell) of every cell with a picture among its outputs or a figure's name."""
    for n, cell in enumerate(notebook.cells):
        kinds = [kind for o in cell.get("outputs", []) for kind in o.get("data", {})]
        if "figure" in cell.metadata.get("mystnb", {}) or "image/svg+xml" in kinds:
            yield n, cell


@every_notebook
def test_figures_are_svg_with_name_caption_and_alternative_text(name):
    for n, cell in figures(read(NOTEBOOKS[name])):
        where = f"{name}, cell {n}"
        kinds = [sorted(output.get("data", {})) for output in cell.outputs]
        assert kinds == [["image/svg+xml", "text/plain"]], where
        figure, said = cell.metadata["mystnb"]["figure"], figure_texts(cell)
        assert figure["name"].startswith("fig-"), where
        assert len(said["caption"].split()) > 5, where
        assert len(said["alt"].split()) > 8, where
        has_axes = re.search(r'id="[xy]tick_', cell.outputs[0].data["image/svg+xml"])
        assert re.search(r"\d", said["alt"]) or not has_axes, where
        alike = difflib.SequenceMatcher(None, said["caption"], said["alt"]).ratio()
        assert alike < 0.8, f"{where}: the alternative text repeats the caption"


def test_names_of_figures_are_unique():
    names = [
        cell.metadata["mystnb"]["figure"]["name"]
        for path in NOTEBOOKS.values()
        for _, cell in figures(read(path))
    ]
    assert len(names) > 10
    assert len(set(names)) == len(names)


# Shape


def headings(notebook):
    """The headings of a notebook as (cell number, level, text)."""
    for n, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            prose = re.sub(r"(?ms)^(```+).*?^\1", "", cell.source)
            for marks, text in re.findall(r"(?m)^(#+) +(.+)$", prose):
                yield n, len(marks), text


@every_notebook
def test_one_title_and_it_comes_first(name):
    notebook = read(NOTEBOOKS[name])
    assert notebook.cells[0].source.startswith("# ")
    assert [level for _, level, _ in headings(notebook)].count(1) == 1


@chapters_with("predict")
def test_a_prediction_is_asked_for_before_the_first_result(name):
    cells = read(NOTEBOOKS[name]).cells
    asked = [n for n, cell in enumerate(cells) if cell.source.count("**Predict")]
    shown = [n for n, cell in enumerate(cells) if cell.get("outputs")]
    assert asked and shown and asked[0] < shown[0]


@chapters_with("edit")
def test_a_cell_to_edit_opens_with_its_setting(name):
    notebook = read(NOTEBOOKS[name])
    [at] = [n for n, _, text in headings(notebook) if text.startswith("Edit this cell")]
    cell = next(cell for cell in notebook.cells[at:] if cell.cell_type == "code")
    assert re.match(r"[A-Z][A-Z_]* = \S", cell.source.splitlines()[0])
    assert cell.outputs


@chapters_with("exercises")
def test_three_exercises_each_checked_and_solved(name):
    cells = [c for c in read(NOTEBOOKS[name]).cells if re.search(r"(?<!_)check\(", c.source)]
    cells = [cell for cell in cells if cell.cell_type == "code"]
    printed = ["".join(o.get("text", "") for o in cell.outputs).split()[:2] for cell in cells]
    folded = ["hide-cell" in cell.metadata.get("tags", []) for cell in cells]
    assert folded == [False, True] * 3
    assert [words == ["No", "answer"] for words in printed] == [True, False] * 3
    assert all(words[0].startswith("Right") for words in printed[1::2])
    called = [re.findall(r'check\("(.+?)"', cell.source) for cell in cells]
    assert called == [[f"{name.replace('-', ' ')} {n}"] for n in (1, 2, 3) for _ in "ab"]


@chapters_with("next")
def test_the_last_line_leads_to_the_next_chapter(name):
    order = reading_order()
    last = read(NOTEBOOKS[name]).cells[-1].source.strip().splitlines()[-1]
    following = order[order.index(name) + 1]
    assert last.startswith("**Next:**")
    assert re.findall(r"\]\(([\w-]+)\.(?:ipynb|md)", last)[0] == following


@every_notebook
def test_code_cells_are_short(name):
    for n, cell in enumerate(read(NOTEBOOKS[name]).cells):
        if cell.cell_type == "code" and "hide-cell" not in cell.metadata.get("tags", []):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 12, f"{name}, cell {n}: {len(lines)} lines"


def word_count(notebook):
    """Words and numbers of the text and the captions; code and outputs do not count."""
    read_aloud = [plain(text) for _, kind, text in texts(notebook) if kind in ("prose", "caption")]
    return sum(bool(re.search(r"\w", word)) for word in " ".join(read_aloud).split())


@chapters_with("length")
def test_a_chapter_has_900_to_1900_words(name):
    assert 900 <= word_count(read(NOTEBOOKS[name])) <= 1900


def test_who_quotes_the_toys_seconds_says_once_how_far_they_are_from_a_card():
    order = reading_order()
    before = [name for name in order[: order.index("real-card")] if name in NOTEBOOKS]
    quotes = {}
    for name in before:
        said = [text for _, kind, text in texts(read(NOTEBOOKS[name])) if kind == "prose"]
        if re.search(r"\d (?:s|ms|seconds?)\b", " ".join(map(plain, said))):
            quotes[name] = "\n".join(said).count("(real-card.ipynb)")
    assert len(quotes) > 10
    assert set(quotes.values()) == {1}, quotes


FILLER = re.compile(
    r"\b(simply|just|obviously|basically|leverag\w+|delv\w+|crucial\w*|seamless\w*|in order to"
    r"|(?:please )?note that)\b",
    re.I,
)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_no_filler_words(path):
    found = [
        (n, kind, match[0])
        for n, kind, text in texts(read(path))
        for match in FILLER.finditer(re.sub(r"`[^`]*`", "", text))
    ]
    assert found == []


# Terms


def glossary_terms():
    """The terms of the glossary, as written there."""
    text = (BOOK / "glossary.md").read_text(encoding="utf-8")
    [block] = re.findall(r"(?ms)^(?:```|:::)\{glossary\}\n(.*?)^(?:```|:::)$", text)
    return re.findall(r"(?m)^(?![:\s])(.+)$", block)


NO_TERM = re.compile(  # where a term need not be linked: headings, code, maths, links, comments
    r"^\#[^\n]*|^(```+).*?^\1|\$[^$]+\$|\[[^\]]*\]\([^)]*\)|<!--.*?-->"
    r"|(?P<role>\{term\})?(?:\{[\w:-]+\})?`[^`]*`",
    re.M | re.S,
)
TERM_LINK = re.compile(r"\{term\}`([^`<]*?)(?:\s*<([^`>]*)>)?`")


def unlinked_terms(notebook, terms):
    """The glossary's terms that a notebook uses before it links them, each with the place."""
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    prose = NO_TERM.sub(lambda m: m[0] if m["role"] else re.sub(r"\S", " ", m[0]), prose)
    links = {}
    for match in TERM_LINK.finditer(prose):
        links.setdefault((match[2] or match[1]).lower(), match.start())
    prose = TERM_LINK.sub(lambda match: "`" * len(match[0]), prose)
    for term in sorted(terms, key=len, reverse=True):  # "page table" before "page"
        uses = list(re.finditer(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", prose, re.I))
        if uses and uses[0].start() < links.get(term.lower(), len(prose)):
            start, end = uses[0].span()
            yield term, " ".join(prose[max(0, start - 30) : end + 30].split())
        for use in uses:
            prose = prose[: use.start()] + " " * len(use[0]) + prose[use.end() :]


@chapters_with("next")
def test_the_first_use_of_a_term_is_a_link(name):
    assert list(unlinked_terms(read(NOTEBOOKS[name]), glossary_terms())) == []


def test_an_unlinked_term_is_seen():
    def unlinked(*cells):
        notebook = new_notebook(cells=[new_markdown_cell(cell) for cell in cells])
        return [term for term, _ in unlinked_terms(notebook, ["page", "page table", "TTFT"])]

    assert unlinked("# A page\n`page` $page$ [page](page.md)", "{term}`page`: a page") == []
    assert unlinked("The {term}`pages <page>`", "and pages") == []
    assert unlinked("The pages", "and a {term}`page`") == ["page"]
    assert unlinked("A {term}`page table`, a page table and a page") == ["page"]
    assert unlinked("A homepage; the ttft") == ["TTFT"]


# Shown source


def misplaced(shown):
    """Why a listing is not the package's source, or None if it is."""
    lines = (ROOT / shown.file).read_text(encoding="utf-8").splitlines()
    there = textwrap.dedent("\n".join(lines[shown.first - 1 : shown.last]))
    if shown.source != there:
        return f"{shown.file}, lines {shown.first} to {shown.last}, read otherwise"


@every_notebook
def test_shown_source_is_the_packages_source(name):
    assert [wrong for shown in listings(read(NOTEBOOKS[name])) if (wrong := misplaced(shown))] == []


CORE = ["tinyserve/cache.py", "tinyserve/batcher.py", "tinyserve/metrics.py"]


def all_listings():
    """What the chapters show, without the page that shows whole modules."""
    paths = [path for name, path in NOTEBOOKS.items() if name != "source"]
    return [shown for path in paths for shown in listings(read(path))]


def unshown(shown):
    """The code lines of the core that no listing holds, as "file:line: text"."""
    for file in CORE:
        source = (ROOT / file).read_text(encoding="utf-8")
        seen = {n for s in shown if s.file == file for n in range(s.first, s.last + 1)}
        for n in sorted(code_lines(source) - seen):
            yield f"{file}:{n}: {source.splitlines()[n - 1]}"


def test_the_chapters_show_every_line_of_the_core():
    assert list(unshown(all_listings())) == []


@pytest.mark.parametrize("file", CORE)
def test_a_listing_taken_away_leaves_lines_unshown(file):
    shown = all_listings()
    last = max(code_lines((ROOT / file).read_text(encoding="utf-8")))
    without = [s for s in shown if not (s.file == file and s.first <= last <= s.last)]
    assert len(without) < len(shown)
    assert any(line.startswith(f"{file}:{last}:") for line in unshown(without))


def test_a_changed_or_moved_listing_is_seen():
    shown = all_listings()[0]
    assert misplaced(shown) is None
    assert misplaced(shown._replace(source=shown.source.replace("e", "a", 1)))
    assert misplaced(shown._replace(first=shown.first + 1, last=shown.last + 1))


# Running


def rerun_module():
    spec = importlib.util.spec_from_file_location("rerun", BOOK / "_tools" / "rerun.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", ["root", "book", "elsewhere"])
def test_a_chapter_runs_from_any_folder(folder, tmp_path):
    cwd = {"root": ROOT, "book": BOOK, "elsewhere": tmp_path}[folder]
    run = rerun_module().run(NOTEBOOKS["queue"], cwd=cwd)
    assert [cell.get("outputs") for cell in run.cells] == [
        cell.get("outputs") for cell in read(NOTEBOOKS["queue"]).cells
    ]


def command(*arguments, cwd):
    """Run Python with these arguments; returns the finished process, its output as text."""
    run = [sys.executable, *map(str, arguments)]
    return subprocess.run(run, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("broken", ["1 / 0", "%nosuchmagic", "%%nosuchmagic\n1", "x ="])
def test_a_broken_chapter_fails_and_stays_as_it_was(broken, tmp_path):
    path = tmp_path / "broken.ipynb"
    cells = [new_code_cell("2 + 2"), new_code_cell(broken), new_code_cell("3 + 3")]
    nbformat.write(new_notebook(cells=cells), path)
    before = path.read_bytes()
    done = command(BOOK / "_tools" / "rerun.py", path, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "broken.ipynb" in done.stderr
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["broken.ipynb"]


def test_a_sound_chapter_is_stored(tmp_path):
    path = tmp_path / "sound.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("2 + 2")]), path)
    assert command(BOOK / "_tools" / "rerun.py", path, cwd=tmp_path).returncode == 0
    assert read(path).cells[0].outputs[0].data["text/plain"] == "4"


# Comparing


def changed(notebook, kind, pattern, replacement):
    """Replace the first match of a pattern in a stored output of this kind; True if one was."""
    for _, output in outputs(notebook):
        text = output.get("data", {}).get(kind, "")
        new = re.sub(pattern, replacement, text, count=1)
        if new != text:
            output.data[kind] = new
            return True
    return False


def other_digit(match):
    return match[1] + str((int(match[2]) + 1) % 10)


@pytest.mark.parametrize(
    "kind, pattern",
    [
        (None, None),
        ("text/html", r"(<td>[\d.]*)(\d)(?=</td>)"),
        ("image/svg+xml", r'(<path d="M [\d.]*)(\d)'),
    ],
    ids=["unaltered", "a digit of a table", "a path of a figure"],
)
def test_nbval_sees_a_changed_output(kind, pattern, tmp_path):
    path = Path(shutil.copy(NOTEBOOKS["real-run"], tmp_path))
    if kind is not None:
        notebook = read(path)
        assert changed(notebook, kind, pattern, other_digit)
        nbformat.write(notebook, path)
    options = ["--nbval", "--nbval-current-env", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    done = command("-m", "pytest", *options, path, cwd=tmp_path)
    failed = re.search(r"(\d+) failed", done.stdout)
    assert "passed" in done.stdout, done.stdout + done.stderr
    assert (failed and int(failed[1])) == (None if kind is None else 1), done.stdout
