"""What a chapter's cells call: the package's own source, tables, figures, checked answers.

Importing this module makes a notebook draw matplotlib's figures as SVG in the book's
palette.
"""

import ast
import inspect
from pathlib import Path

from matplotlib.figure import Figure

from tinyserve.exercises import check
from tinyserve.style import svg, table

__all__ = ["Listing", "check", "show", "table"]

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


def show(thing):
    """A function, method or class of the package as it stands, with its file and lines.

    A module shows its head: the lines before its first class or function. Raises TypeError
    for a thing that has no source.
    """
    file = Path(inspect.getsourcefile(thing)).resolve().relative_to(ROOT).as_posix()
    if inspect.ismodule(thing):
        return Listing(file, 1, _head(thing))
    lines, first = inspect.getsourcelines(thing)
    return Listing(file, first, inspect.cleandoc("\n" + "".join(lines)).rstrip())


def _figures_as_svg(shell):
    """Show a Figure as the book's SVG and nothing else."""
    shell.display_formatter.mimebundle_formatter.for_type(
        Figure, lambda figure, **_: {"image/svg+xml": svg(figure), "text/plain": "figure"}
    )


try:
    _figures_as_svg(get_ipython())
except NameError:  # plain Python: nothing to register with
    pass
