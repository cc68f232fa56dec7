"""The chapters in real JupyterLab, driven as a reader would, with the network closed."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest
from book_reader import BOOK

OPEN = ".jp-NotebookPanel:not(.lm-mod-hidden)"
IDLE = re.compile(r"Python 3.* \| Idle")  # in the status bar, once the kernel has started
A_MINUTE = 60_000  # milliseconds


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """The address of a JupyterLab on a copy of the chapters, set up as `make lab` does it."""
    home = tmp_path_factory.mktemp("lab")
    shutil.copytree(BOOK, home / "book")
    settings = home / "CONFIG/lab/user-settings/@jupyterlab/notebook-extension"
    settings.mkdir(parents=True)  # every cell is there to look at, also out of sight
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    own = {f"JUPYTER_{name}_DIR": str(home / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=", "book"]
    environment = {**os.environ, **own, "JUPYTER_CONFIG_PATH": str(BOOK / "_tools")}
    with open(home / "log", "w+") as log:
        server = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)
        try:
            wait_for(f"{address}/api/status", server, home / "log")
            yield address
        finally:
            server.terminate()  # asks it to end its kernels too
            server.wait(20)


def wait_for(address, server, log):
    """Wait until the server answers; fail with its log if it does not."""
    for _ in range(120):
        try:
            return urlopen(address, timeout=2).close()
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.5)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()[-3000:]}")


@pytest.fixture
def notebook(lab, window):
    """A function that opens a chapter in JupyterLab and returns the browser's page."""
    opened = []

    def notebook(name):
        # A term's target is in another notebook, which only the built book knows.
        opened.append(window(ignore=["console: Cross reference target was not found: term-"]))
        page = opened[-1].__enter__()
        page.goto(f"{lab}/lab/workspaces/{name}/tree/{name}.ipynb")
        page.get_by_text(IDLE).wait_for(timeout=A_MINUTE)
        return page

    yield notebook
    for each in opened:
        each.__exit__(None, None, None)


def run_all(page):
    """Choose Run, then Run All Cells."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()


def test_your_turn_from_480_to_960(notebook):
    page = notebook("your-turn")
    cells = page.locator(f"{OPEN} .jp-CodeCell").filter(has_text="MORE_PAGES")
    line = cells.locator(".cm-line").filter(has_text=re.compile(r"^MORE_PAGES = \d+$"))
    assert line.inner_text() == "MORE_PAGES = 480"
    line.click()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.keyboard.insert_text("MORE_PAGES = 960")
    assert line.inner_text() == "MORE_PAGES = 960"
    run_all(page)
    last = cells.locator(".jp-OutputArea-output table tr").last.locator("th, td")
    last.filter(has_text="960 pages").wait_for(timeout=A_MINUTE)
    values = last.all_inner_texts()
    assert "0.928" in values and "343" in values, values
    page.get_by_text(IDLE).wait_for(timeout=A_MINUTE)
    assert page.locator(f"{OPEN} [data-mime-type='application/vnd.jupyter.stderr']").count() == 0


def test_the_explorer_moves_once_its_cell_is_run(notebook):
    page = notebook("play-server")
    run_all(page)
    explorer = page.locator(f"{OPEN} .tsx[data-live]")
    explorer.wait_for(timeout=2 * A_MINUTE)
    explorer.get_by_role("slider", name="cache pages").focus()
    page.keyboard.press("ArrowRight")
    assert explorer.locator(".tsx-say").inner_text().startswith("The batch limit is the wall.")
    assert "0.928 s" in explorer.locator("table").inner_text()


def test_notes_are_rendered_and_nobody_asks_about_news(notebook):
    page = notebook("your-turn")
    cells = page.locator(f"{OPEN} .jp-MarkdownCell")
    cells.filter(has_text="Next:").wait_for(timeout=A_MINUTE)
    page.locator(f"{OPEN} .myst-admonition").first.wait_for(timeout=A_MINUTE)
    text = "".join(cells.all_inner_texts())
    assert "Answer" in text
    assert not re.search(r":::|[{]\w+[}]`", text)
    assert page.get_by_text("Jupyter news").count() == 0


def test_the_template_takes_a_log_of_ones_own(notebook, tmp_path):
    rows = [f"{500 * i},{300 + i % 7},{40 + i % 5}" for i in range(201)]  # two a second, in ms
    (tmp_path / "mine.csv").write_text("\n".join(["when,in,out", *rows]) + "\n")
    page = notebook("your-log")
    cell = page.locator(f"{OPEN} .jp-CodeCell").filter(has_text="LATER = 2")
    for name, value in {
        "LOG": repr(str(tmp_path / "mine.csv")),
        "COLUMNS": '{"send": "when", "prompt": "in", "reply": "out"}',
        "UNIT": '"ms"',
    }.items():
        cell.locator(".cm-line").filter(has_text=re.compile(rf"^{name} = ")).click()
        page.keyboard.press("Home")
        page.keyboard.press("Shift+End")
        page.keyboard.insert_text(f"{name} = {value}")
    run_all(page)
    said = page.locator(f"{OPEN} .jp-OutputArea-output").filter(has_text="Today, at 2 requests")
    said.wait_for(timeout=3 * A_MINUTE)
    page.get_by_text(IDLE).wait_for(timeout=A_MINUTE)
    assert "201 rows, 201 kept" in page.locator(f"{OPEN} .jp-Notebook").inner_text()
    assert page.locator(f"{OPEN} [data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert page.locator(f"{OPEN} [data-mime-type='application/vnd.jupyter.error']").count() == 0
