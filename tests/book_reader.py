"""Reads the book's pages for the tests: texts, numbers, outputs, listings, order."""

import ast
import html
import io
import re
import tokenize
from bisect import bisect_left
from collections import namedtuple
from decimal import Decimal
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"


# Pages


def notebooks():
    """Paths of the chapters that are notebooks."""
    return sorted(BOOK.glob("*.ipynb"))


def pages():
    """Paths of all pages: the notebooks and the Markdown files."""
    return notebooks() + sorted(BOOK.glob("*.md"))


def read(path):
    """A page as a notebook; a Markdown file becomes a notebook of one Markdown cell."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    return nbformat.reads(text, as_version=4)


def reading_order():
    """Names of the pages ("queue", "admission"), in the order of the table of contents."""

    def files(node):
        """The names in a part of the table, itself and below."""
        if isinstance(node, list):
            return [name for item in node for name in files(item)]
        own = [Path(node[key]).stem for key in ("root", "file") if key in node]
        below = [node[key] for key in ("parts", "chapters", "sections") if key in node]
        return own + files(below)

    return files(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8")))


# Texts

Text = namedtuple("Text", "cell kind text")


def texts(notebook):
    """What a reader reads as sentences: Markdown, captions, alternative texts, comments in code."""
    for n, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            yield Text(n, "prose", cell.source)
        elif cell.cell_type == "code":
            for kind, text in figure_texts(cell).items():
                yield Text(n, kind, text)
            tokens = tokenize.generate_tokens(io.StringIO(cell.source).readline)
            for token in tokens:
                if token.type == tokenize.COMMENT:
                    yield Text(n, "comment", token.string)


def figure_texts(cell):
    """The caption and the alternative text in a cell's metadata, those that are there."""
    settings = cell.metadata.get("mystnb", {})
    found = {
        "caption": settings.get("figure", {}).get("caption"),
        "alt": settings.get("image", {}).get("alt"),
    }
    return {kind: text for kind, text in found.items() if text}


def _blank(match):
    return re.sub(r"\S", " ", match[0])


# What Markdown holds beside sentences.
MARKUP = re.compile(
    r"""
      <!--.*?-->                                                   # comments
    | ^\([^)\s]+\)=[ ]*$                                           # link targets
    | ^[ ]*(?:`{3,}|:{3,}|~{3,})[ ]*\{(?:figure|image|include|bibliography)\}[^\n]*
    | ^[ ]*(?:`{3,}|:{3,}|~{3,})[ ]*(?:\{[^}\n]+\})?               # directives; a title stays
    | ^[ ]*:(?!alt:|caption:)[\w-]+:[^\n]*                         # their options
    | ^[ ]*(?:\#+[ ]+|\*\*)?\d{1,2}(?:\.\d+)*[.)][\s*]             # 1. in a list, a heading
    | \[\^[^\]\s]+\]:?                                             # footnote labels
    | \{(?:cite[^}]*|ref|numref|eq|doc|download)\}`[^`]*`          # references
    | \{[\w:-]+\}(?=`)                                             # other roles: the text stays
    | (?<=\])\([^)\n]*\)                                           # where a link goes
    | <?https?://[^\s>)]*>?
    | </?(?:a|b|br|code|details|div|em|i|img|p|small|span|strong|su[bp]|summary)\b[^>]*>
    """,
    re.M | re.S | re.X,
)
TERM_TARGET = re.compile(r"(?<=`)([^`<]*)(<[^`>]*>)(?=`)")
LATEX = re.compile(r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+|_\{\w+\}")


def plain(text):
    """Markdown with its syntax blanked out, every character that stays in its place."""
    text = MARKUP.sub(_blank, text)
    text = TERM_TARGET.sub(lambda m: m[1] + " " * len(m[2]), text)
    text = text.replace(r"\times", "\xd7     ").replace(r"\cdot", "·    ")
    return LATEX.sub(_blank, text)


# Numbers

Numeral = namedtuple("Numeral", "text value start end")

NUMBER = re.compile(
    r"""
    (?<!\w)(?<!\d\.)                                # not in a name (p99, A100), not in a version
    (?: (?P<version>\d+(?:\.\d+){2,})
      | (?P<sign>(?<![)\]}%])[-\u2212])?
        (?P<whole>\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)|\d+(?:_\d+)*|(?=\.\d))
        (?P<fraction>\.\d+)?
        (?: [eE](?P<e>[+-]?\d+)(?!\w)
          | \s*[\xd7·*]\s*10(?:(?:\^|\*\*)\{?(?P<ten>[-\u2212]?\d+)\}?|(?P<small_ten>[⁻⁰-⁹¹²³]+))
          | (?:\^|\*\*)\{?(?P<power>[-\u2212]?\d+)(?!\.?\d)\}?|(?P<small>[⁻⁰-⁹¹²³]+)
        )?
    )
    """,
    re.X,
)
LOWERED = str.maketrans("⁻\u2212⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")


def _integer(text):
    return int(text.translate(LOWERED))


def numerals(text):
    """Every numeral of a text. Its value is a Decimal that keeps the precision written;
    that of a version such as 1.0.4 is its text."""
    for match in NUMBER.finditer(text):
        value = match["version"]
        if value is None:
            whole = re.sub(r"[,{}_]", "", match["whole"]) + (match["fraction"] or "")
            value = Decimal(("-" if match["sign"] else "") + whole)
            if tens := match["e"] or match["ten"] or match["small_ten"]:
                value = value.scaleb(_integer(tens))
            elif power := match["power"] or match["small"]:
                value **= _integer(power)
        yield Numeral(match[0], value, *match.span())


def _written(node):
    """The number that an expression writes out: 40, -1, 2**30. None for all others."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _written(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _written(node.left), _written(node.right)
        return None if base is None or power is None else base**power
    return None


def settings(source):
    """The values of the numbers written in Python source."""
    values = map(_written, ast.walk(ast.parse(source)))
    return {Decimal(str(value)) for value in values if value is not None}


# Outputs

Listing = namedtuple("Listing", "file first last source")


def listing(output):
    """What `show` printed, or None for any other output."""
    text = output.get("data", {}).get("text/plain", "")
    match = re.match(r"(tinyserve/\w+\.py), lines? (\d+)(?: to (\d+))?\n\n", text)
    if match is None:
        return None
    first = int(match[2])
    return Listing(match[1], first, int(match[3] or first), text[match.end() :])


def outputs(notebook):
    """Every stored output of a notebook with the number of its cell."""
    for n, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            yield n, output


def listings(notebook):
    """The pieces of the package's source that a notebook shows."""
    return [shown for _, output in outputs(notebook) if (shown := listing(output))]


def output_text(output):
    """An output as a reader sees it, without pictures; of a listing only its first line."""
    data = output.get("data", {})
    if listing(output):
        return data["text/plain"].partition("\n")[0]
    page = re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", " ", data.get("text/html", ""))
    printed = output.get("text", "") if output.get("name") == "stdout" else ""
    return "\n".join([printed, data.get("text/plain", ""), html.unescape(page)])


class Numbers:
    """The numbers that a page may quote: its outputs' and the settings its reader sees."""

    def __init__(self, notebook):
        found = {x.value for _, o in outputs(notebook) for x in numerals(output_text(o))}
        self.versions = {value for value in found if isinstance(value, str)}
        self.printed = sorted(found - self.versions)
        sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        sources += [shown.source for shown in listings(notebook)]
        self.settings = set().union(*map(settings, sources))

    def has(self, value):
        """Whether an output rounds to `value` at the precision written, or a setting equals it."""
        if isinstance(value, str):
            return value in self.versions
        if value in self.settings:
            return True
        digit = value.as_tuple().exponent
        half = Decimal(5).scaleb(digit - 1)
        for printed in self.printed[bisect_left(self.printed, value - half) :]:
            if printed > value + half:
                return False
            if printed.as_tuple().exponent <= digit:
                return True
        return False


Judged = namedtuple("Judged", "cell kind numeral line founded excuse")


def judge(notebook, exceptions=()):
    """Every numeral of a page's texts: whether the page holds it, and which exception (a
    phrase) covers it, or None."""
    numbers = Numbers(notebook)
    for cell, kind, text in texts(notebook):
        for numeral in numerals(plain(text)):
            line = text[text.rfind("\n", 0, numeral.start) + 1 :].partition("\n")[0]
            excuse = next((e for e in exceptions if _covers(e, text, numeral)), None)
            yield Judged(cell, kind, numeral.text, line, numbers.has(numeral.value), excuse)


def _covers(phrase, text, numeral):
    """Whether the numeral stands in the phrase, which is no part of a longer word or number."""
    words = r"\s+".join(map(re.escape, phrase.split()))
    places = re.finditer(rf"(?<![\w.,]){words}(?!\w|[.,]\d)", text)
    return any(p.start() <= numeral.start and numeral.end <= p.end() for p in places)


# Source


def code_lines(source):
    """Numbers of the lines that hold code: no docstring, no comment, not blank."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docs |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return {n for n, line in lines if line and not line.startswith("#")} - docs
