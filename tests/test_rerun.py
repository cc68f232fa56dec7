"""book/_tools/rerun.py: what it stores, and what it does on a strange machine or when stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from book_reader import BOOK, read
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

RERUN = [sys.executable, str(BOOK / "_tools" / "rerun.py")]


def write(path, *sources, **metadata):
    """A notebook of code cells."""
    cells = [new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path


def finished(*command, **environment):
    """A command that has ended, its output as text."""
    environment = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture
def strange(tmp_path):
    """A machine where the kernelspec python3 starts nothing and IPython starts with a file."""
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = ["/bin/false", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "broken", "language": "python"}))
    start = tmp_path / "ipython" / "profile_default" / "startup" / "start.py"
    start.parent.mkdir(parents=True)
    start.write_text("from_start_up = 1")
    return {
        "JUPYTER_PATH": str(tmp_path / "jupyter"),
        "JUPYTER_DATA_DIR": str(tmp_path / "jupyter"),
        "JUPYTER_PREFER_ENV_PATH": "0",
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }


def test_a_strange_machine_changes_nothing(strange, tmp_path):
    source = "import sys\nprint(sys.executable)\n'from_start_up' in globals()"
    path = write(tmp_path / "a.ipynb", source, kernelspec={"name": "mine", "display_name": "Mine"})
    done = finished(*RERUN, str(path), **strange)
    assert done.returncode == 0, done.stderr
    printed, value = read(path).cells[0].outputs
    assert printed.text.strip() == sys.executable
    assert value.data["text/plain"] == "False"
    assert read(path).metadata.kernelspec.name == "python3"
    write(tmp_path / "b.ipynb", "1 + 1")
    assert finished(*RERUN, str(tmp_path / "b.ipynb"), **strange).returncode == 0
    compare = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        "-p",
        "no:cacheprovider",
    ]
    compared = finished(*compare, str(tmp_path / "b.ipynb"), **strange)
    assert compared.returncode == 0, compared.stdout


def test_only_what_a_reader_needs_is_stored(tmp_path):
    path = tmp_path / "a.ipynb"
    code = new_code_cell("print(1)\nprint(2)", id="first", execution_count=7)
    code.metadata.update(
        tags=["hide-cell"], execution={"iopub.status.idle": "2026"}, collapsed=True
    )
    cells = [code, new_markdown_cell("text", id="second"), new_code_cell("3", id="third")]
    nbformat.write(new_notebook(cells=cells, metadata={"widgets": {}, "toc": 1}), path)
    assert finished(*RERUN, str(path)).returncode == 0
    stored = read(path)
    assert stored.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert [cell.id for cell in stored.cells] == ["first", "second", "third"]
    assert [cell.get("execution_count") for cell in stored.cells] == [1, None, 2]
    assert stored.cells[0].metadata == {"tags": ["hide-cell"]}
    assert [output.text for output in stored.cells[0].outputs] == ["1\n2\n"]
    again = finished(*RERUN, str(path))
    assert "changed in none" in again.stdout


def test_one_broken_chapter_does_not_keep_the_others(tmp_path):
    good, bad = write(tmp_path / "good.ipynb", "1 + 1"), write(tmp_path / "bad.ipynb", "2", "1 / 0")
    before = bad.read_bytes()
    done = finished(*RERUN, str(bad), str(good))
    assert done.returncode == 1
    assert (
        "bad.ipynb, cell 1 (cell-1): 1 / 0\n    ZeroDivisionError: division by zero" in done.stderr
    )
    assert "good" in done.stdout and "1 of 2" in done.stdout
    assert read(good).cells[0].outputs[0].data["text/plain"] == "2"
    assert bad.read_bytes() == before


def test_stopped_with_ctrl_c_a_chapter_stays_as_it_was(tmp_path):
    mark = tmp_path / "started"
    source = f"open({str(mark)!r}, 'w').close()\nimport time\ntime.sleep(4)"
    path = write(tmp_path / "slow.ipynb", source, "1 + 1")
    before = path.read_bytes()
    process = subprocess.Popen([*RERUN, str(path)], stderr=subprocess.PIPE, text=True)
    for _ in range(300):
        if mark.exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "Stopped" in process.stderr.read()
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["slow.ipynb", "started"]


def test_a_chapter_that_is_not_there_is_named(tmp_path):
    done = finished(*RERUN, str(tmp_path / "nowhere.ipynb"))
    assert done.returncode == 2 and "nowhere.ipynb" in done.stderr
