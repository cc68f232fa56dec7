"""Run chapters from top to bottom, each in a fresh kernel, and store their outputs.

    python book/_tools/rerun.py [chapter.ipynb ...]      (all chapters by default)

The kernel is this very Python, whatever kernelspecs the machine has. A chapter is written
only when all its cells have run, and only what a reader needs is stored: no timings, no
versions. Nothing is compared here; `make test` does that. The exit status is 1 if a cell
failed.
"""

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from tqdm import tqdm

BOOK = Path(__file__).resolve().parents[1]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# What editors and runs leave in a cell's metadata; tags and the book's own keys stay.
NOISE = {"ExecuteTime", "collapsed", "editable", "execution", "scrolled", "slideshow", "trusted"}
AT_ONCE = 2  # chapters
TIMEOUT = 120  # seconds a cell may take


class OwnKernel(AsyncKernelManager):
    """Starts `python3` as this Python: no folder is searched for kernelspecs."""

    def _kernel_spec_manager_default(self):
        return KernelSpecManager(kernel_dirs=[])


class Failed(Exception):
    """A cell that did not run to its end; the text says which one and why."""


class Stopped(Exception):
    """The run was stopped between two cells."""


def run(path, cwd=None, stop=None):
    """Run the notebook at `path` and return it with fresh outputs; the file stays as it is.

    cwd: the folder to run in (the notebook's own, if left out); stop: an Event that ends
    the run before its next cell. Raises Failed for a cell with an error, one that takes
    longer than TIMEOUT, or a kernel that dies, and Stopped.
    """
    path = Path(path)
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = nbformat.from_dict(METADATA)
    code = [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    for _, cell in code:
        cell.outputs, cell.execution_count = [], None
    for cell in notebook.cells:
        kept = {key: value for key, value in cell.metadata.items() if key not in NOISE}
        cell.metadata = nbformat.from_dict(kept)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        kernel_manager_class=OwnKernel,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(cwd or path.resolve().parent)}},
    )
    with tempfile.TemporaryDirectory() as scratch:
        if os.name == "posix":  # talk through files here: over ports, the kernel prints a warning
            client.config.OwnKernel.update(transport="ipc", ip=f"{scratch}/kernel")
        # An empty IPython folder: the reader's own start-up files must not change an output.
        with client.setup_kernel(env={**os.environ, "IPYTHONDIR": scratch}):
            for index, cell in code:
                if stop is not None and stop.is_set():
                    raise Stopped(path)
                try:
                    client.execute_cell(cell, index)
                except (CellControlSignal, DeadKernelError) as error:
                    raise Failed(_where(path, index, cell, error)) from error
    return notebook


def _where(path, index, cell, error):
    """One line on the cell, one on the error."""
    first = next(iter(cell.source.splitlines()), "")
    name, value = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", error)
    return f"{path}, cell {index} ({cell.get('id', 'no id')}): {first}\n    {name}: {value}"


def store(notebook, path):
    """Write the notebook, whole or not at all. Returns whether the file changed."""
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    if Path(path).read_text(encoding="utf-8") == text:
        return False
    new = Path(path).with_suffix(".new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return True


def keep_picture(path=BOOK / "real-run.ipynb", name="fig-first-seconds"):
    """Keep a chapter's stored figure as a file, for the README."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == name:
            picture = "".join(cell.outputs[0].data["image/svg+xml"])
            (BOOK / "_static" / "first-seconds.svg").write_text(picture, encoding="utf-8")


def main(arguments=None):
    """Run the chapters named on the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Run chapters and store their outputs.")
    parser.add_argument("chapters", nargs="*", type=Path, help="all of book/*.ipynb, if left out")
    chapters = parser.parse_args(arguments).chapters or sorted(BOOK.glob("*.ipynb"))
    missing = [str(path) for path in chapters if not path.is_file()]
    if missing or not chapters:
        parser.error(f"no such chapter: {', '.join(missing) or BOOK / '*.ipynb'}")
    changed, failures, stop = [], [], Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {pool.submit(lambda p: store(run(p, stop=stop), p), p): p for p in chapters}
        try:  # no bar where nobody watches
            for job in tqdm(as_completed(jobs), total=len(jobs), unit="chapter", disable=None):
                try:
                    if job.result():
                        changed.append(jobs[job].stem)
                except Failed as failure:
                    failures.append(str(failure))
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(cancel_futures=True)
            print("\nStopped. A chapter that was not done is as it was.", file=sys.stderr)
            return 130
    keep_picture()
    print(f"{len(chapters) - len(failures)} of {len(chapters)} chapters run;", end=" ")
    print(f"outputs changed in {', '.join(sorted(changed)) or 'none'}.")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
