"""Every numeral of the book's text stands in an output of its page, at the precision written."""

import copy
import re
import tomllib
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from book_reader import (
    Numbers,
    judge,
    numerals,
    pages,
    plain,
    read,
    settings,
    texts,
)
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

EXCEPTIONS = tomllib.loads((Path(__file__).parent / "numerals.toml").read_text(encoding="utf-8"))
PAGES = {path.stem: path for path in pages()}


@cache
def judged(name):
    """The numerals of a page, judged with the exceptions that hold for it."""
    phrases = {**EXCEPTIONS["everywhere"], **EXCEPTIONS.get(name, {})}
    return list(judge(read(PAGES[name]), sorted(phrases, key=len, reverse=True)))


@pytest.mark.parametrize("name", PAGES)
def test_every_numeral_is_founded(name):
    wrong = [
        f"cell {n.cell}, {n.kind}: {n.numeral} in {n.line!r}"
        for n in judged(name)
        if not n.founded and not n.excuse
    ]
    assert not wrong, "\n".join([f"{name}: no output holds", *wrong])


def test_every_exception_is_used_and_has_its_reason():
    used = {(name, n.excuse) for name in PAGES for n in judged(name)}
    unused = [
        f"[{table}] {phrase}"
        for table, phrases in EXCEPTIONS.items()
        for phrase in phrases
        if not any(phrase == excuse and table in ("everywhere", name) for name, excuse in used)
    ]
    assert not unused, "\n".join(["no text has these exceptions any more", *unused])
    assert all(why.strip() for phrases in EXCEPTIONS.values() for why in phrases.values())


# What counts as a numeral, and when an output holds it


@pytest.mark.parametrize(
    "text, values",
    [
        ("0.042 s against 3.49 s.", "0.042 3.49"),
        ("1,291 steps, then 121; 8_030_261_248", "1291 121 8030261248"),
        ("$c = 131{,}072$", "131072"),
        ("0.39 to 1.22, 10-15, 10\u201315, 1%-2%", "0.39 1.22 10 15 10 15 1 2"),
        ("-5 % or \u22123, (-2.0), $-1$", "-5 -3 -2.0 -1"),
        ("61 %, 61%, $61\\,\\%$", "61 61 61"),
        ("7.9ms, 80GB, 8B, 16-bit, 99th", "7.9 80 8 16 99"),
        ("312e12, 3.12e+14, 1E-3", "312E12 3.12E14 0.001"),
        ("$312 \\times 10^{12}$, 312 \xd7 10**12, 312 · 10¹²", "312E12 312E12 312E12"),
        ("$2^{30}$, 2**30, 2³⁰, $10^{-3}$", "1073741824 1073741824 1073741824 0.001"),
        ("p99, A100, BF16, x_1, $t_{12}$, HBM2e, v1.2", ""),
        ("Python 3.11.7", "3.11.7"),
        ("(34, 10), [0,1], .5, **3.49**", "34 10 0 1 0.5 3.49"),
        ("1. First\n## 2. Second\n(fig-3)=\n[^4]: note[^4]", ""),
        ("[the 7](chapter-8.ipynb) <https://x.org/9> https://x.org/10", "7"),
        ("{cite:p}`kwon2023` {numref}`fig-3` {term}`5 pages <page 6>`", "5"),
        ("```{figure} a-1.svg\n:name: fig-2\n:alt: 3 bars\n4 pages\n```", "3 4"),
        (":::{tip} Title 1\n2 pages\n:::\n<!-- 3 -->\n<b id='4'>5</b>", "1 2 5"),
        ("`MORE_PAGES = 960`", "960"),
    ],
)
def test_what_is_a_numeral(text, values):
    found = [numeral.value for numeral in numerals(plain(text))]
    expected = [v if v.count(".") > 1 else Decimal(v) for v in values.split()]
    assert found == expected


def chapter(prose, *outs, source="1", **figure):
    """A small chapter: a sentence, a cell with these outputs and a figure's two texts."""
    cell = new_code_cell(source, outputs=list(outs))
    caption, alt = figure.get("caption", ""), figure.get("alt", "")
    cell.metadata["mystnb"] = {"figure": {"caption": caption}, "image": {"alt": alt}}
    return new_notebook(cells=[new_markdown_cell(prose), cell])


def result(text, kind="text/plain"):
    return new_output("execute_result", data={kind: text})


def missing(notebook, *exceptions):
    return [n.numeral for n in judge(notebook, exceptions) if not n.founded and not n.excuse]


@pytest.mark.parametrize(
    "prose, printed, holds",
    [
        ("0.042", "0.0416", True),
        ("0.042", "0.042", True),
        ("0.042", "0.0425", True),  # a half rounds to either side
        ("0.042", "0.0426", False),
        ("0.042", "0.04", False),  # not as precise as the text
        ("0.50", "0.5", False),
        ("27", "27.3", True),
        ("28", "27.3", False),
        ("1,291", "1291", True),
        ("1,291", "1,291.4", True),
        ("0.5", "-0.5", False),
        ("-0.5", "-0.52", True),
        ("312e12", "312000000000000.0", True),
        ("313e12", "312000000000000.0", False),
        ("3.11.7", "Python 3.11.7", True),
        ("3.11.8", "Python 3.11.7", False),
    ],
)
def test_an_output_holds_a_numeral(prose, printed, holds):
    assert (missing(chapter(prose, result(printed))) == []) is holds


def test_which_outputs_count():
    assert missing(chapter("3.49", result("<td class='x'>3.492</td>", "text/html"))) == []
    assert missing(chapter("3.49", new_output("stream", name="stdout", text="3.492\n"))) == []
    assert missing(chapter("3.49", new_output("stream", name="stderr", text="3.492"))) == ["3.49"]
    assert missing(chapter("3.49", result("<path d='M 3.49 1'/>", "image/svg+xml"))) == ["3.49"]
    assert missing(chapter("3.49", result("<td width='3.49'>1</td>", "text/html"))) == ["3.49"]
    assert missing(chapter("3.49", result("<script>[3.49]</script>", "text/html"))) == ["3.49"]


def test_a_listing_gives_its_lines_and_its_settings():
    shown = 'tinyserve/cache.py, lines 12 to 15\n\n# 17 tokens\n"""18 tokens"""\nPAGE_SIZE = 16'
    assert missing(chapter("lines 12 to 15, 16, 17, 18", result(shown))) == ["17", "18"]


def test_settings_count_when_exactly_equal():
    source = 'PAGES = 240  # 7 was too few\nsize = f"{1000 * t:.3f} of 99"\nx = -2 + 2**30 + 312e12'
    assert settings(source) == {240, 1000, -2, 2, 30, 2**30, 312 * 10**12}
    assert missing(chapter("240 and 2^{30}, not 240.4", source=source)) == ["240.4", "7"]


def test_an_exception_excuses_its_phrase_only():
    page = chapter("Make it 7. It takes 7.5 ms,\nLlama 3.1\n8B, with 17 pages, or 7", result("0"))
    assert missing(page, "Make it 7", "Llama 3.1 8B") == ["7.5", "17", "7"]
    assert missing(page, "7") == ["7.5", "3.1", "8", "17"]


# That a wrong digit is caught


def with_digit(notebook, text, place, digit):
    """The notebook with one character of one of its texts replaced."""
    changed = copy.deepcopy(notebook)
    cell, new = changed.cells[text.cell], text.text[:place] + digit + text.text[place + 1 :]
    if text.kind == "prose":
        cell.source = new
    elif text.kind == "caption":
        cell.metadata["mystnb"]["figure"]["caption"] = new
    elif text.kind == "alt":
        cell.metadata["mystnb"]["image"]["alt"] = new
    else:
        cell.source = cell.source.replace(text.text, new)
    return changed


def test_a_wrong_digit_is_caught_in_each_kind_of_text():
    cell = "3.492 and 94, 1,291"
    page = chapter("3.49", result(cell), source="1  # 94", caption="1,291", alt="3.492")
    assert missing(page) == []
    for text in texts(page):
        digits = [place for place, character in enumerate(text.text) if character.isdigit()]
        for place in digits:
            digit = str((int(text.text[place]) + 1) % 10)
            wrong = with_digit(page, text, place, digit)
            assert missing(wrong) == [re.search(r"\d[\d.,]*", next_text(wrong, text))[0]]


def next_text(notebook, text):
    return next(t.text for t in texts(notebook) if (t.cell, t.kind) == (text.cell, text.kind))


def test_a_wrong_last_digit_is_caught_in_a_real_chapter():
    """Each numeral with decimals of one chapter, its last digit moved by one on the page."""
    notebook = read(PAGES["real-run"])
    before = len(missing(notebook))
    tried, caught = 0, 0
    for text in texts(notebook):
        for numeral in numerals(plain(text.text)):
            if re.fullmatch(r"\d[\d,]*\.\d+", numeral.text):
                digit = str((int(numeral.text[-1]) - 1) % 10)
                wrong = with_digit(notebook, text, numeral.end - 1, digit)
                tried, caught = tried + 1, caught + (len(missing(wrong)) > before)
    print(f"{caught} of {tried} wrong last digits caught")
    assert tried > 20 and caught > 0.8 * tried


def test_the_share_of_wrong_digits_that_is_caught():
    """Every way to get one digit wrong, in every numeral of three digits or more of the book."""
    tried = caught = 0
    for path in PAGES.values():
        notebook = read(path)
        numbers = Numbers(notebook)
        for text in texts(notebook):
            for numeral in numerals(plain(text.text)):
                if len(re.sub(r"\D", "", numeral.text).lstrip("0")) < 3 or not numbers.has(
                    numeral.value
                ):
                    continue
                for wrong in wrong_digits(numeral.text):
                    tried += 1
                    caught += not all(numbers.has(n.value) for n in numerals(wrong))
    print(f"{caught} of {tried} wrong digits caught: {caught / tried:.1%}")
    assert tried > 1000 and caught > 0.95 * tried


def wrong_digits(numeral):
    """The numeral with one digit changed, in every way that still reads as one numeral."""
    for place, old in enumerate(numeral):
        if old in "0123456789":
            for new in "0123456789":
                if new != old:
                    yield numeral[:place] + new + numeral[place + 1 :]
