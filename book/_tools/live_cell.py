"""Runs one cell of a page, after what it needs from the cells above it.

In a page of the built book this runs inside Pyodide, where the standard library and the
package's core are all there is. None of the page's cells has been run there: the statements
that a cell relies on are looked up in the cells above it and run first, and no others.
"""

import ast
import builtins
import dis
import io
import json
import linecache
import pickle
import traceback
from collections import namedtuple
from contextlib import redirect_stderr, redirect_stdout
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType

HERE = "this cell"  # its name in a traceback
LONGEST = 20_000  # characters of an output
MOST_LINES = 16  # of a traceback
KEPT = 30  # how many cells' needs are kept for the next run
# What the chapters import and a page does not have.
ELSEWHERE = {"IPython", "matplotlib", "numpy", "pandas", "prometheus_client", "pyarrow", "tqdm"}
ELSEWHERE |= {
    f"tinyserve.{name}"
    for name in "__main__ calibrate compiled explorers figures kvstore logs style sweep".split()
}


# What a statement does

# binds: the names it gives a value; replaces: those of them that it gives a new one whatever
# happens; changes: the names whose thing it changes; now, later: the names it reads when it
# runs, and when a function in it is called.
Part = namedtuple("Part", "node code text binds replaces changes now later")

BIND = {"STORE_NAME", "DELETE_NAME"}
READ = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
AT_ONCE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}  # inner code that runs in place


def _names(code):
    """The names that compiled code binds, reads at once, and reads later."""
    binds, now, later = set(), set(), set()

    def walk(code, reads, top=False):
        for step in dis.get_instructions(code):
            if top and step.opname in BIND:
                binds.add(step.argval)
            elif step.opname in READ:
                reads.add(step.argval)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                walk(inner, reads if inner.co_name in AT_ONCE else later)

    walk(code, now, top=True)
    return binds, now, later


def _replaces(node):
    """The names that a statement gives a new value whatever happens."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = {alias.asname or alias.name for alias in node.names}
        return {name for name in names if "." not in name}  # `import os.path` adds to `os`
    targets = [n for t in getattr(node, "targets", []) for n in ast.walk(t)]
    return {n.id for n in targets if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _owner(node):
    """The name that `runs[0].steps` belongs to, or None if it belongs to a call's result."""
    while not isinstance(node, ast.Name):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        else:
            return None
    return node.id


def _changes(statement):
    """The names whose thing a statement changes: `rows.append(1)`, `rows[0] = 1`, `del x.y`.

    What a call does to its arguments, as in `shuffle(rows)`, is not seen.
    """
    places = []
    for node in ast.walk(statement):
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            places.append(node)
        elif isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Call):
            places.append(node.value.func)
    return {_owner(place) for place in places if not isinstance(place, ast.Name)} - {None}


@lru_cache(maxsize=1000)
def parts(source, name):
    """The statements of a cell as Parts, imports one name at a time.

    name: what a traceback calls the cell. Raises SyntaxError.
    """
    compile(source, name, "exec")  # sees what single statements do not show
    nodes = []
    for node in ast.parse(source, name).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            nodes += [type(node)(**{**vars(node), "names": [alias]}) for alias in node.names]
        else:
            nodes.append(node)
    found = []
    for node in nodes:
        code = compile(ast.Module([node], []), name, "exec")
        binds, now, later = _names(code)
        text = ast.unparse(node)
        found.append(Part(node, code, text, binds, _replaces(node), _changes(node), now, later))
    return tuple(found)


def needed(above, cell):
    """The Parts among `above`, in order, that the Parts of `cell` rely on.

    A part is needed if it binds a name that is wanted after it or changes the thing of one;
    then what it reads is wanted before it. A name read in a function is wanted everywhere,
    as nobody knows when the function is called.
    """
    imports = [p for p in above if isinstance(p.node, (ast.Import, ast.ImportFrom))]
    imported = {name for part in imports for name in part.binds}
    everywhere = set()
    while True:
        wanted, later, found = set(everywhere), set(), []
        for part in reversed(cell):
            wanted = (wanted - part.replaces) | part.now | everywhere
            later |= part.later
        for part in reversed(above):
            every_name = "*" in part.replaces
            if every_name or wanted & (part.binds | part.changes - imported):
                found.append(part)
                wanted = (wanted - part.replaces) | part.now | everywhere
                later |= part.later
        if later <= everywhere:
            return found[::-1]
        everywhere |= later


# What earlier cells made, kept for the next run


class _Pickler(pickle.Pickler):
    """Pickles values; functions, classes and modules stay what they are."""

    def __init__(self, file, same):
        super().__init__(file, protocol=5)
        self.same = same

    def persistent_id(self, thing):
        if isinstance(thing, (type, FunctionType, ModuleType)):
            self.same[id(thing)] = thing
            return id(thing)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, same):
        super().__init__(file)
        self.persistent_load = same.__getitem__


class Made:
    """What some statements made, as often as asked for and each time as it was."""

    def __init__(self, statements):
        self.names = {"__name__": "__main__", "__builtins__": builtins}
        for part in statements:
            exec(part.code, self.names)
        self.same, packed = {}, io.BytesIO()
        values = {k: v for k, v in self.names.items() if k != "__builtins__"}
        try:
            _Pickler(packed, self.same).dump(values)
            self.packed = packed.getvalue()
        except Exception:  # an iterator, an open file: cannot be had twice
            self.packed = None

    def again(self):
        """The names as they were. The dictionary is the one that functions look into."""
        values = _Unpickler(io.BytesIO(self.packed), self.same).load()
        self.names.clear()
        self.names.update(values, __builtins__=builtins)
        return self.names


_kept = {}  # text of the statements -> what they made


def _namespace(statements):
    """What the statements make, run now or an earlier time."""
    key = "\n".join(part.text for part in statements)
    if key in _kept:
        return _kept[key].again()
    made = Made(statements)
    if made.packed is not None:
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = made
    return made.names


# What a reader is told


def _not_here(error):
    """What an import asked for and only JupyterLab has, or None."""
    if not isinstance(error, ImportError) or not error.name:
        return None
    whole = f"{error.name}.{getattr(error, 'name_from', None)}"
    names = {error.name, error.name.split(".")[0], whole} & ELSEWHERE
    return max(names, key=len, default=None)


def _told(error, names, blame):
    """The error as its last lines tell it, from the first line of a cell on, after `blame`.

    names: of the cells. What called the cell is left out, and where the package is installed.
    """
    if thing := _not_here(error):
        return f"This cell needs {thing}, which is not in the page. In JupyterLab it works."
    story = traceback.TracebackException.from_exception(error)
    frames = list(story.stack)
    first = next((i for i, f in enumerate(frames) if f.filename in names), len(frames))
    for frame in frames:
        _, package, rest = frame.filename.rpartition("tinyserve/")
        frame.filename = package + rest
    story.stack = traceback.StackSummary.from_list(frames[first:])
    lines = "".join(story.format(chain=False)).rstrip().split("\n")
    if not frames[first:] and lines[0].startswith("Traceback"):
        del lines[0]
    if len(lines) > MOST_LINES:
        lines[4 : 5 - MOST_LINES] = ["  ..."]
    return _cut(blame + "\n".join(lines))


def _cut(text):
    """A text, or the start of it where it is very long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n... cut after {LONGEST:,} characters"


class _Printed(io.StringIO):
    """What a cell prints; endless printing does not fill the memory."""

    def write(self, text):
        if self.tell() <= LONGEST:
            super().write(text)
        return len(text)


def _shown(value):
    """A value as its kind ("svg", "html" or "text") and how it looks."""
    for kind in ("svg", "html"):
        method = getattr(value, f"_repr_{kind}_", None)
        if method is not None and not isinstance(value, type):
            if (look := method()) is not None:
                return [kind, look]
    return ["text", _cut(repr(value))]


def _title(source):
    """What a traceback calls a cell above."""
    return f'the cell "{next(iter(source.split(chr(10))), "")}"'


def _parts_of(source, name):
    """The parts of a cell, with its lines where a traceback looks for them."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return parts(source, name)


def _execute(cell, names):
    """Run the parts of a cell. Returns the value of its last expression, else None."""
    for part in cell:
        if part is cell[-1] and isinstance(part.node, ast.Expr):
            return eval(compile(ast.Expression(part.node.value), HERE, "eval"), names)
        exec(part.code, names)
    return None


def run(above, source):
    """Run a cell after what it needs of the cells above it; all are given as texts.

    Returns a dictionary: printed, what the cell printed; shown, None or a pair of the kind
    and the look of its last expression; error, None or what a reader is told.
    """
    printed, shown, error = _Printed(), None, None
    names, blame = [HERE], ""
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            cell, earlier = _parts_of(source, HERE), []
            for text in above:
                names.append(_title(text))
                blame = "A cell above is not Python:\n"
                earlier += _parts_of(text, names[-1])
            blame = "This needs a cell above, which fails:\n"
            space = _namespace(needed(earlier, cell))
            blame = ""
            printed.seek(0)  # what other cells print is no output of this one
            printed.truncate()
            value = _execute(cell, space)
            shown = None if value is None else _shown(value)
        except BaseException as raised:  # sys.exit() too: the page goes on
            error = _told(raised, names, blame)
    return {"printed": _cut(printed.getvalue()), "shown": shown, "error": error}


def answer(request):
    """`run` for a page: a JSON text with above and source in, one with the result out."""
    return json.dumps(run(**json.loads(request)))
