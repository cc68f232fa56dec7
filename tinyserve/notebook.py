"""What a chapter's cells call: the package's own source, tables, figures, checked answers.

Importing this module makes a notebook draw matplotlib's figures as SVG in the book's
palette.
"""

import ast
import inspect
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from tinyserve.exercises import check
from tinyserve.metrics import Report, report
from tinyserve.style import svg, table

__all__ = ["Listing", "check", "clipboard", "pins", "show", "table", "trace", "whole"]

pd.options.display.width = 100  # characters, so that a table's text form is not cut in two
ROOT = Path(__file__).resolve().parents[1]


class Listing:
    """Some source with the file and the lines where it stands."""

    def __init__(self, file, first, source):
        last = first + source.count("\n")
        self.place = f"{file}, lines {first} to {last}" if last > first else f"{file}, line {first}"
        self.source = source

    def __repr__(self):
        return f"{self.place}\n\n{self.source}"

    def _repr_markdown_(self):
        return f"`{self.place}`\n\n```python\n{self.source}\n```"


def _head(module):
    """A module's lines before its first class or function: what it imports and sets."""
    source = inspect.getsource(module)
    body = ast.parse(source).body
    starts = [
        min([n.lineno, *(d.lineno for d in n.decorator_list)])
        for n in body
        if isinstance(n, (ast.ClassDef, ast.FunctionDef))
    ]
    lines = source.splitlines()[: starts[0] - 1 if starts else None]
    return "\n".join(lines).rstrip()


def show(thing, before=None):
    """A function, method or class of the package as it stands, with its file and lines.

    A module shows its head: the lines before its first class or function. `before` names a
    method: a class is then shown only up to it. Raises TypeError for a thing that has no
    source, and ValueError for a method that the class does not have.
    """
    file = Path(inspect.getsourcefile(thing)).resolve().relative_to(ROOT).as_posix()
    if inspect.ismodule(thing):
        return Listing(file, 1, _head(thing))
    lines, first = inspect.getsourcelines(thing)
    if before is not None:
        if before not in vars(thing):
            raise ValueError(f"{thing.__name__} has no method {before!r} to stop before")
        method = vars(thing)[before]
        method = method.fget if isinstance(method, property) else method
        lines = lines[: inspect.getsourcelines(method)[1] - first]
    return Listing(file, first, inspect.cleandoc("\n" + "".join(lines)).rstrip())


def whole(module):
    """A module of the package from its first line to its last."""
    file = Path(inspect.getsourcefile(module)).resolve().relative_to(ROOT).as_posix()
    return Listing(file, 1, inspect.getsource(module).rstrip())


def pins(*names):
    """The lines of requirements.txt that fix these packages, without their comments.

    Raises ValueError for a package that is not pinned there.
    """
    lines = [line.split("#")[0].strip() for line in (ROOT / "requirements.txt").open()]
    found = {name: [x for x in lines if x.startswith(f"{name}==")] for name in names}
    if missing := [name for name, pinned in found.items() if not pinned]:
        raise ValueError(f"requirements.txt does not pin {', '.join(missing)}")
    return [line for pinned in found.values() for line in pinned]


def trace(run, steps=None, columns=None):
    """Rows of a run's trace to read: times in their units, numbers to their decimals.

    steps: which step numbers, counted from 1 (all, if left out); columns: which of "start s",
    "took ms", "chats", "new", "queue", "held", "owed", "left" and "waits for".
    """
    frame = run.trace()
    frame["seconds"] *= 1000
    names = {"start": "start s", "seconds": "took ms", "joined": "new", "blocked": "waits for"}
    frame = frame.rename(columns=names)
    order = [name for name in frame if name != "waits for"] + ["waits for"]
    return table(frame.loc[steps or slice(None), columns or order])


# A report's fields as a table names them, and by what to multiply for the unit in the name.
FIELDS = {
    "ttft_p50": ("TTFT p50 s", 1),
    "ttft_p99": ("TTFT p99 s", 1),
    "tbt_p50": ("TBT p50 ms", 1000),
    "tbt_p99": ("TBT p99 ms", 1000),
    "mean_tbt_p50": ("mean TBT p50 ms", 1000),
    "mean_tbt_p99": ("mean TBT p99 ms", 1000),
    "queue_max": ("longest queue", 1),
    "pages_max": ("most pages held", 1),
    "cache_steps": ("steps held out by cache", 1),
    "batch_steps": ("steps held out by batch", 1),
    "cache_full_at": ("cache full at s", 1),
    "chats_per_second": ("done chats/s", 1),
    "tokens_per_second": ("done tokens/s", 1),
    "wall": ("wall", 1),
}


def clipboard(reports, *fields):
    """Some fields of several reports, one line a report; all fields, one line a field, if
    none is named.

    reports: a dict from label to Report (or to Run, which is then reported); fields: names
    of Report's fields. Raises KeyError for a field that a Report does not have.
    """
    read = {k: v if isinstance(v, Report) else report(v) for k, v in reports.items()}
    rows = []
    for rep in read.values():
        values = [(getattr(rep, name), FIELDS[name][1]) for name in fields or FIELDS]
        rows.append([v if v is None or scale == 1 else v * scale for v, scale in values])
    frame = table(rows, [FIELDS[name][0] for name in fields or FIELDS], list(read))
    return frame if fields else frame.T


def _figures_as_svg(shell):
    """Show a Figure as the book's SVG and nothing else."""
    shell.display_formatter.mimebundle_formatter.for_type(
        Figure, lambda figure, **_: {"image/svg+xml": svg(figure), "text/plain": "figure"}
    )


try:
    _figures_as_svg(get_ipython())
except NameError:  # plain Python: nothing to register with
    pass
