"""What a chapter's cells call: the package's own source, tables, figures, checked answers.

Used by all chapters. Importing this module makes a notebook draw matplotlib's figures as SVG in
the book's palette.
"""

import ast
import inspect
from pathlib import Path

from tinyserve.exercises import check
from tinyserve.tables import bars, clipboard, table, trace

__all__ = ["Listing", "bars", "check", "clipboard", "pins", "show", "table", "trace", "whole"]

PACKAGE, ROOT = Path(__file__).resolve().parents[:2]


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


def _file_of(thing):
    """Where a thing of the package stands. Raises TypeError if it is not the package's."""
    path = Path(inspect.getsourcefile(thing) or "").resolve()
    if PACKAGE not in path.parents:
        raise TypeError(f"{thing!r} is not source of the package")
    return path.relative_to(ROOT).as_posix()


def show(thing, before=None):
    """A function, method or class of the package as it stands, with its file and lines.

    A module shows its head: the lines before its first class or function. `before` names a
    method: a class is then shown only up to it. Raises TypeError for a thing that has no
    source in the package, and ValueError for a method that the class does not have.
    """
    thing = thing.fget if isinstance(thing, property) else thing
    file = _file_of(thing)
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
    """A module of the package from its first line to its last. Raises TypeError for another."""
    return Listing(_file_of(module), 1, inspect.getsource(module).rstrip())


def pins(*names):
    """The lines of requirements.txt that fix these packages, without their comments.

    Raises ValueError for a package that is not pinned there.
    """
    lines = [line.split("#")[0].strip() for line in (ROOT / "requirements.txt").open()]
    found = {name: [x for x in lines if x.startswith(f"{name}==")] for name in names}
    if missing := [name for name, pinned in found.items() if not pinned]:
        raise ValueError(f"requirements.txt does not pin {', '.join(missing)}")
    return [line for pinned in found.values() for line in pinned]


def _in_this_notebook(shell):
    """Show a Figure as the book's SVG and nothing else; keep a wide table's text in one piece."""
    import pandas as pd
    from matplotlib.figure import Figure

    from tinyserve.style import svg

    pd.options.display.width = 100  # characters
    shell.display_formatter.mimebundle_formatter.for_type(
        Figure, lambda figure, **_: {"image/svg+xml": svg(figure), "text/plain": "figure"}
    )


try:
    _in_this_notebook(get_ipython())
except NameError:  # plain Python, or a page of the built book: there is nobody to tell
    pass
