"""The README says what is so."""

import re
import subprocess
import sys

import nbformat
from book_reader import BOOK, ROOT

import tinyserve as ts

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_picture_is_the_chapters():
    cells = nbformat.read(BOOK / "real-run.ipynb", as_version=4).cells
    [cell] = [
        cell
        for cell in cells
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == "fig-first-seconds"
    ]
    picture = (BOOK / "_static" / "first-seconds.svg").read_text(encoding="utf-8")
    assert picture == "".join(cell.outputs[0].data["image/svg+xml"]), "run make pin"
    assert "](book/_static/first-seconds.svg)" in README


def test_its_files_and_commands_exist():
    for path in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|    )make ([a-z]+)", README)):
        assert re.search(rf"(?m)^{target}:", makefile), target
    for module in re.findall(r"(?m)\b([a-z]+\.py)\b", README.split("## Where things are")[1]):
        assert list(ROOT.glob(f"*/{module}")) or list(ROOT.glob(f"*/_tools/{module}")), module
    modules = {path.name for path in (ROOT / "tinyserve").glob("[a-z]*.py")}
    assert modules <= set(re.findall(r"\b[a-z]+\.py\b", README))


def test_its_example_runs():
    [example] = re.findall(r"```python\n(.*?)```", README, re.S)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd="/")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("3.492") and "cache" in run.stdout.splitlines()[0]


def test_its_numbers_are_the_chapters():
    stored = (BOOK / "opening.ipynb").read_text(encoding="utf-8")
    assert "0.042 s and 3.49 s" in stored
    assert "0.042 s" in README and "3.49 s" in README


def test_its_highest_rate_is_what_max_rate_finds():
    found = ts.max_rate(ts.invented_chats(400), ttft=1, tbt=0.05, pages=240, limit=16)
    assert f"# for 99 in 100 of these chats; {found:.1f}\n" in README
