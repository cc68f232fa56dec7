"""Live cells in a real browser, with the network closed: over http and double-clicked."""

import re

import pytest
from book_reader import BOOK, read, reading_order
from conftest import HTML, SETTLED, Watch
from test_live_cell import live, live_cell
from test_site import check_legible

SCHEMES = ["http", "file"]
A_MINUTE = 60_000  # milliseconds; fetching and starting Python takes 4 s on a quiet machine
A_SETTING = "SECOND_IS_SENT_AT ="  # a quick cell, of the chapter "queue"


def live_cells(name):
    """The live cells of a page."""
    path = BOOK / f"{name}.ipynb"
    cells = read(path).cells if path.exists() else []
    return [cell for cell in cells if "live" in cell.metadata.get("tags", [])]


PAGES = [name for name in reading_order() if live_cells(name)]


def cell(page, text):
    """The live cell that the book gives this text."""
    return page.locator("div.cell.tag_live", has_text=text)


def press(cell, name):
    cell.get_by_role("button", name=name, exact=True).click()


def status(cell):
    return cell.get_by_role("status")


def code(cell):
    """Where a reader edits."""
    return cell.get_by_role("textbox")


def finished(cell):
    """What a run shows, when it has ended."""
    status(cell).filter(has_text="Your run").wait_for(timeout=A_MINUTE)
    output = cell.locator(".live-output")
    return output.inner_text() if output.count() else ""


def write(cell, text):
    """Put `text` in place of a cell's text."""
    if not code(cell).is_visible():
        press(cell, "Edit")
    code(cell).fill(text)


def run(cell, text=None):
    """Write `text`, if any, press Run, and return what is shown."""
    if text is not None:
        write(cell, text)
    press(cell, "Run")
    return finished(cell)


@pytest.fixture(scope="module")
def quiet_page(browser, site):
    """A page whose Python the tests of this module may share."""
    context = browser.new_context()
    page = context.new_page()
    watch = Watch(page)
    page.goto(f"{site['file']}/book/queue.html")
    page.wait_for_function(SETTLED)
    yield page
    context.close()
    assert watch.troubles == []


# Every live cell


def around(cells, n):
    """The text before and after a cell, which must say so if it is for JupyterLab only."""
    return "".join(c.source for c in cells[n - 1 : n + 2] if c.cell_type == "markdown")


def test_settings_and_checks_are_live():
    for name in reading_order():
        path = BOOK / f"{name}.ipynb"
        cells = read(path).cells if path.exists() else []
        for n, each in enumerate(cells):
            tags = each.metadata.get("tags", [])
            if each.source.startswith("answer = ...") or re.match("[A-Z_]{3,} = [^{]", each.source):
                assert "live" in tags or "JupyterLab" in around(cells, n), f"{name}: {each.source}"
            if "live" in tags:
                assert "hide-cell" not in tags
    assert len(PAGES) > 10 and "your-turn" in PAGES


@pytest.mark.parametrize("name", PAGES)
def test_every_live_cell_runs_as_it_is_and_gives_what_is_stored(visit, name):
    page = visit(name, "file")
    found = page.locator("div.cell.tag_live").all()
    assert len(found) == len(live_cells(name))
    for each in found:
        stored = each.locator(".cell_output").inner_text()
        assert run(each).split() == stored.split()
        assert not each.locator(".cell_output:not(.live-output)").is_visible()
        press(each, "Reset")
        assert each.locator(".cell_output").inner_text() == stored


# One cell


@pytest.mark.parametrize("scheme", SCHEMES)
def test_from_480_to_960_pages(visit, scheme):
    page = visit("your-turn", scheme)
    each = cell(page, "MORE_PAGES = 480")
    changed = live_cells("your-turn")[0].source.replace("MORE_PAGES = 480", "MORE_PAGES = 960")
    run(each, changed)
    row = each.locator(".live-output tr", has_text="960 pages").locator("th, td").all_inner_texts()
    assert row[0] == "40 a second, 960 pages"
    assert {"0.928", "343", "batch"} <= set(row)


def asked(page):
    """The addresses that a page asks for from now on, as a list that grows."""
    addresses = []
    page.on("request", lambda request: addresses.append(request.url))
    return addresses


@pytest.mark.parametrize("button", ["Edit", "Run"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_python_is_fetched_when_it_is_wanted(window, site, scheme, button):
    with window() as page:
        addresses = asked(page)
        page.goto(f"{site[scheme]}/book/queue.html")
        page.wait_for_function(SETTLED)
        page.wait_for_load_state("networkidle")
        assert any("/live.js" in address for address in addresses)
        assert not any("/python.js" in address for address in addresses)
        with page.expect_request(lambda request: "/python.js" in request.url):
            press(cell(page, A_SETTING), button)


def test_pages_without_live_cells_load_nothing_of_it(window, site):
    with window() as page:
        addresses = asked(page)
        page.goto(f"{site['http']}/book/glossary.html")
        page.wait_for_load_state("networkidle")
        assert not any("/live." in address for address in addresses)


FOLLOW = """bar => { window.said = []; new MutationObserver(() => {
  const text = bar.querySelector("[role=status]").textContent;
  if (text && text !== said.at(-1)) said.push(text);
}).observe(bar, {childList: true, subtree: true, characterData: true}) }"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_first_run_says_how_far_it_is(visit, scheme):
    page = visit("queue", scheme)
    each = cell(page, A_SETTING)
    each.locator(".live-bar").evaluate(FOLLOW)
    run(each)
    *steps, last = page.evaluate("said")
    assert steps == ["Fetching Python, 8 MB…", "Starting Python…", "Running…"]
    assert re.fullmatch(r"Your run, [\d.]+ m?s", last)


def test_a_later_run_does_not_start_python_again(quiet_page):
    each = cell(quiet_page, A_SETTING)
    run(each)
    each.locator(".live-bar").evaluate(FOLLOW)
    run(each)
    *steps, last = quiet_page.evaluate("said")
    assert set(steps) <= {"Running…"} and re.fullmatch(r"Your run, [\d.]+ m?s", last)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_endless_loop_can_be_stopped(visit, scheme):
    page = visit("queue", scheme)
    each, other = cell(page, A_SETTING), cell(page, 'check("queue 1"')
    write(each, "while True: pass")
    press(each, "Run")
    status(each).filter(has_text="Running").wait_for(timeout=A_MINUTE)
    press(other, "Run")
    assert "Waiting" in status(other).inner_text()
    press(each, "Stop")
    assert status(each).inner_text() == "Stopped."
    assert "No answer yet" in finished(other)
    assert not each.get_by_role("button", name="Stop").is_visible()
    assert run(each, "print(6 * 7)").strip() == "42"


def test_a_run_that_waits_can_be_stopped(visit):
    page = visit("queue")
    each, other = cell(page, A_SETTING), cell(page, 'check("queue 1"')
    press(each, "Run")
    press(other, "Run")
    press(other, "Stop")
    assert status(other).inner_text() == "Stopped."
    assert "ms" in finished(each)
    assert other.locator(".live-output").count() == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_error_shows_its_last_lines(visit, scheme):
    page = visit("queue", scheme)
    each = cell(page, A_SETTING)
    lines = run(each, "print('before')\na = 0\nb = 1 / a").splitlines()
    assert lines[0] == "before"
    assert '  File "this cell", line 3, in <module>' in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert not re.search("pyodide|live_cell|exec|blob", "\n".join(lines))
    assert "an error" in status(each).inner_text()
    assert "SyntaxError" in run(each, "a = = 1")
    assert "EOFError" in run(each, "input()")
    assert run(each, "1 + 1").strip() == "2"


@pytest.mark.parametrize("missing", sorted(live_cell.ELSEWHERE))
def test_what_only_jupyterlab_has_is_said_plainly(quiet_page, missing):
    each = cell(quiet_page, A_SETTING)
    wanted = f"This cell needs {missing}, which is not in the page. In JupyterLab it works."
    assert run(each, f"import {missing}").strip() == wanted
    package, _, name = missing.rpartition(".")
    if package:
        assert run(each, f"from {package} import {name}").strip() == wanted


def test_what_the_chapters_import_is_there(quiet_page):
    names = "check, clipboard, show, table, trace, whole"
    each = cell(quiet_page, A_SETTING)
    shown = run(each, f"from tinyserve.notebook import {names}\nshow(ts.PagePool.grow)")
    assert shown.startswith("tinyserve/cache.py, lines ") and "def grow(self" in shown
    modules = ", ".join(name for name in live.MODULES if name != "__init__")
    assert run(each, f"from tinyserve import {modules}\nprint('yes')").strip() == "yes"


def test_pictures_and_tables_are_shown_as_such(quiet_page):
    each = cell(quiet_page, A_SETTING)
    picture = """class Picture:
    def _repr_svg_(self):
        return '<svg viewBox="0 0 900 10" width="900"><circle r="4"/></svg>'
Picture()"""
    run(each, picture)
    shown = each.locator(".live-output")
    assert shown.locator("svg circle").count() == 1
    assert shown.locator("svg").bounding_box()["width"] <= shown.bounding_box()["width"]
    run(each, "from tinyserve.notebook import table\ntable([[1, 2.5]], ['a', 'b ms'])")
    assert each.locator(".live-output table.dataframe td").all_inner_texts() == ["1", "2.5"]
    assert run(each, "'<b>text</b>'").strip() == "'<b>text</b>'"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_check_answers(visit, scheme):
    each = cell(visit("pages", scheme), 'check("pages 1"')
    for answer, verdict in [("10", "Right: 10."), ("9", "Not yet: 9. "), ("...", "No answer yet")]:
        assert run(each, f'answer = {answer}\ncheck("pages 1", answer)').startswith(verdict)


def test_a_solution_in_the_page_uses_what_the_chapter_made(quiet_page):
    each = cell(quiet_page, 'check("queue 1"')
    solution = 'answer = round(1000 * run.steps[2].start, 1)\ncheck("queue 1", answer)'
    assert run(each, solution).startswith("Right")


def test_an_edited_cell_above_counts_and_a_folded_solution_does_not(quiet_page):
    page = quiet_page
    first, second, third = (cell(page, f'check("queue {n}"') for n in (1, 2, 3))
    write(first, "mine = 123")
    assert run(second, "mine").strip() == "123"
    assert "NameError" in run(third, "waiting_at")
    write(first, "mine = = 123")
    shown = run(second, "mine")
    assert shown.startswith("A cell above is not Python:") and "mine = = 123" in shown
    press(first, "Reset")
    assert "NameError" in run(second, "mine")


# What a reader wrote is kept


@pytest.mark.parametrize("scheme", SCHEMES)
def test_edited_text_survives_and_reset_brings_the_book_back(visit, scheme):
    page = visit("queue", scheme)
    each = cell(page, A_SETTING)
    original = each.locator(".cell_input pre").inner_text()
    press(each, "Edit")
    assert code(each).input_value() == original.strip()
    code(each).fill("SECOND_IS_SENT_AT = 0.005\n# mine")
    for _ in range(2):
        page.reload()
        page.wait_for_function(SETTLED)
        assert code(each).input_value() == "SECOND_IS_SENT_AT = 0.005\n# mine"
        assert "earlier visit" in status(each).inner_text()
        assert not each.locator(".cell_input").is_visible()
    if scheme == "http":  # from a file, Chromium's localStorage is at times empty at first
        another = page.context.new_page()
        another.goto(page.url)
        another.wait_for_function(SETTLED)
        assert code(cell(another, A_SETTING)).input_value() == "SECOND_IS_SENT_AT = 0.005\n# mine"
        another.close()
    press(each, "Reset")
    assert each.locator(".cell_input pre").inner_text() == original
    assert not code(each).is_visible()
    page.reload()
    page.wait_for_function(SETTLED)
    assert each.locator(".cell_input pre").inner_text() == original
    assert status(each).inner_text() == ""
    press(each, "Edit")
    code(each).fill("something else")
    code(each).fill(original.strip())  # by hand, as it was: nothing to keep
    page.reload()
    page.wait_for_function(SETTLED)
    assert not code(each).is_visible()


def test_a_browser_that_keeps_nothing_still_runs(window, site):
    with window() as page:
        page.add_init_script("""
          for (const name of ["getItem", "setItem", "removeItem"]) {
            const real = Storage.prototype[name];
            Storage.prototype[name] = function (key, ...rest) {
              if (key.startsWith("tinyserve")) throw new DOMException("no", "SecurityError");
              return real.call(this, key, ...rest);
            };
          }""")
        page.goto(f"{site['http']}/book/queue.html")
        each = cell(page, A_SETTING)
        assert run(each, "print(1)").strip() == "1"
        press(each, "Reset")
        assert each.locator(".cell_input").is_visible()


# By keyboard, on a phone, on paper


def test_a_cell_works_by_keyboard_alone(visit):
    page = visit("queue")
    each = cell(page, A_SETTING)
    keyboard = page.keyboard

    def focused():
        return page.evaluate("document.activeElement.textContent || document.activeElement.tagName")

    each.locator(".cell_input button.copybtn").focus()
    keyboard.press("Tab")
    assert focused() == "Edit"
    keyboard.press("Enter")
    assert code(each).evaluate("editor => editor === document.activeElement")
    keyboard.press("ControlOrMeta+a")
    keyboard.type("for i in range(2):")
    keyboard.press("Enter")
    keyboard.type("print(i)")
    assert code(each).input_value() == "for i in range(2):\n    print(i)"
    keyboard.press("Control+Enter")
    assert finished(each).split() == ["0", "1"]
    for keys in ("Shift+Enter", "Meta+Enter"):
        keyboard.press("End")
        keyboard.type(" ")
        keyboard.press(keys)
        assert finished(each).split() == ["0", "1"]
    keyboard.press("ControlOrMeta+a")
    keyboard.type("while True: pass")
    keyboard.press("Tab")
    assert focused() == "Run"
    keyboard.press("Enter")
    status(each).filter(has_text="Running").wait_for()
    assert focused() == "Run"
    keyboard.press("Tab")
    assert focused() == "Stop"
    keyboard.press("Enter")
    assert status(each).inner_text() == "Stopped."
    assert focused() == "Run"
    keyboard.press("Tab")
    assert focused() == "Reset"
    keyboard.press("Enter")
    assert focused() == "Edit"
    assert each.locator(".cell_input").is_visible()


def test_the_focus_is_seen(visit):
    page = visit("queue")
    each = cell(page, A_SETTING)
    press(each, "Edit")
    for key in ("Shift+Tab", "Tab", "Tab"):
        page.keyboard.press(key)
        outline = page.locator(":focus").evaluate("e => getComputedStyle(e).outlineWidth")
        assert outline == "3px", page.locator(":focus").evaluate("e => e.outerHTML")


def test_a_double_click_on_run_stops_nothing(visit):
    each = cell(visit("queue"), A_SETTING)
    each.get_by_role("button", name="Run").dblclick()
    assert "ms" in finished(each)


LONG = "value = " + " + ".join(f"'{n} is a number'" for n in range(20)) + "\nprint(value)\n1 / 0"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_live_cells_can_be_read(visit, mode):
    page = visit("your-turn", mode=mode)
    run(cell(page, "MORE_PAGES"))
    press(cell(page, "MORE_PAGES"), "Edit")
    check_legible(page)
    assert "ZeroDivisionError" in run(cell(page, "MORE_PAGES"), LONG)
    check_legible(page)
    for width in (360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in cell(page, "MORE_PAGES").get_by_role("button").all():
        assert not button.is_visible() or button.bounding_box()["height"] >= 24


# The border of a button, or of the editor, against what is around it.
BORDERS = """() => [...document.querySelectorAll(".live-bar button, .live-editor")]
  .filter((e) => e.checkVisibility() && e.getAttribute("aria-disabled") !== "true")
  .map((e) => [getComputedStyle(e).borderTopColor, getComputedStyle(document.body).backgroundColor]
    .map((colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number)))"""


def luminance(colour):
    parts = [x / 255 for x in colour]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_buttons_and_editor_stand_out(visit, mode):
    page = visit("queue", mode=mode)
    press(cell(page, A_SETTING), "Edit")
    borders = page.evaluate(BORDERS)
    assert len(borders) > 8
    for pair in borders:
        dark, light = sorted(map(luminance, pair))
        assert (light + 0.05) / (dark + 0.05) >= 3


def test_paper_has_the_text_and_no_buttons(visit):
    page = visit("queue")
    each = cell(page, A_SETTING)
    shown = run(each, "# " + 40 * "a long line " + "\n" + "print(1)\n" * 60)
    assert len(shown.split()) == 60
    page.set_viewport_size({"width": 700, "height": 900})
    page.emulate_media(media="print")
    assert not each.locator(".live-bar").is_visible()
    for whole in (code(each), each.locator(".live-output pre")):
        inner, outer = whole.evaluate(
            "e => [[e.scrollWidth, e.scrollHeight], [e.clientWidth, e.clientHeight]]"
        )
        assert inner[0] <= outer[0] + 1 and inner[1] <= outer[1] + 1


# What is served


def test_the_book_stays_small():
    sizes = {path: path.stat().st_size for path in HTML.rglob("*") if path.is_file()}
    python = sizes.pop(HTML / "_static" / "python.js")
    assert python < 10e6
    assert sum(sizes.values()) < 18e6
