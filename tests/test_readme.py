"""The README says what is so."""

import re
import subprocess
import sys
import tomllib

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
    named = set(re.findall(r"\b[a-z_]+\.py\b", README.split("## Where things are")[1]))
    modules = {path.name for path in (ROOT / "tinyserve").rglob("[a-z]*.py")}
    assert modules <= named
    for module in named - modules:
        assert any(list((ROOT / part).glob(module)) for part in ("tinyserve", "book/_tools")), (
            module
        )


def test_its_example_runs():
    [example] = re.findall(r"```python\n(.*?)```", README, re.S)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd="/")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("3.492") and "cache" in run.stdout.splitlines()[0]


def test_its_numbers_are_the_chapters():
    stored = (BOOK / "opening.ipynb").read_text(encoding="utf-8")
    assert "0.042 s and 3.49 s" in stored
    assert "0.042 s" in README and "3.49 s" in README


def test_its_installs_are_extras_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"pip install \.\[([a-z]+)\]", README))
    assert named == set(project["optional-dependencies"])
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for packages in project["optional-dependencies"].values():
        assert all(re.search(rf"(?m)^{package}==", pinned) for package in packages)


def test_its_rate_of_all_at_once_is_what_can_finish_finds():
    found = ts.can_finish(ts.invented_chats(400), pages=240, limit=16)
    assert f"# chats a second, all there at once; {found:.1f}\n" in README


def test_its_highest_rate_is_what_max_rate_finds():
    found = ts.max_rate(ts.invented_chats(400), ttft=1, tbt=0.05, pages=240, limit=16)
    assert f"# for 99 in 100 of these chats; {found:.1f}\n" in README
