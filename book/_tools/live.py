"""A Sphinx extension: cells with the tag `live` can be edited and run in the page.

Python itself (Pyodide's core, from npm) and the part of the package that needs only the
standard library are packed into one script, `_static/python.js`. A page asks for it when a
reader first presses Edit or Run. A script, because a page opened by double-click may load
scripts but no other files.
"""

import base64
import gzip
import io
import json
import re
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path

from sphinx.errors import ExtensionError

TOOLS = Path(__file__).resolve().parent
PACKAGE = TOOLS.parents[1] / "tinyserve"
MODULES = [
    *["__init__", "checks", "configs", "roofline", "workload", "cache", "batcher", "metrics"],
    *["slots", "ondemand", "fast", "tables", "presets", "causes", "planning"],
    *["exercises", "notebook"],
]
# Pyodide's files by what live.js calls them.
PYODIDE = {
    "loader": "pyodide.mjs",
    "engine": "pyodide.asm.mjs",
    "wasm": "pyodide.asm.wasm",
    "library": "python_stdlib.zip",
}
LIVE = re.compile(r'<div class="cell [^"]*\btag_live\b')
NOTICE = "/* Pyodide {version} (MPL-2.0; its source: npm's pyodide) with Python (PSF licence). */\n"


@cache
def modules():
    """A zip of what a page's Python can import beside the standard library; same in, same out."""
    files = {f"tinyserve/{name}.py": PACKAGE / f"{name}.py" for name in MODULES}
    files["live_cell.py"] = TOOLS / "live_cell.py"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, path in files.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return packed.getvalue()


def script(pyodide):
    """The text of python.js, from the folder of npm's pyodide."""
    files = {key: (pyodide / name).read_bytes() for key, name in PYODIDE.items()}
    files["modules"] = modules()
    value = {
        key: base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
        for key, data in files.items()
    }
    lock = json.loads((pyodide / "pyodide-lock.json").read_bytes())
    value["lock"] = json.dumps({**lock, "packages": {}})  # none of its packages is here
    version = json.loads((pyodide / "package.json").read_bytes())["version"]
    return NOTICE.format(version=version) + f"window.tinyservePython = {json.dumps(value)};\n"


def include(app, pagename, templatename, context, doctree):
    """Have pages with live cells, and only those, load the small script and its style."""
    if LIVE.search(context.get("body") or ""):
        # What is in python.js, so that no browser takes an old one out of its cache.
        inside = sha256(modules() + (TOOLS / "package-lock.json").read_bytes()).hexdigest()[:8]
        source = {"data-python": f"python.js?v={inside}"}
        app.add_css_file("live.css", priority=910)  # after book.css
        app.add_js_file("live.js", loading_method="defer", **source)


def write(app, exception):
    """Write python.js."""
    if exception or app.builder.format != "html":
        return
    pyodide = Path(app.srcdir) / "_build" / "npm" / "node_modules" / "pyodide"
    if not pyodide.is_dir():
        raise ExtensionError(f"{pyodide} is missing: remove _build/npm and build again")
    target = Path(app.outdir) / "_static" / "python.js"
    target.write_text(script(pyodide), encoding="utf-8")


def setup(app):
    """Connect the two to Sphinx."""
    app.connect("html-page-context", include)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
