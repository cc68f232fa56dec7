"""The built book in a real browser, with the network closed: over http and double-clicked."""

import importlib.util
import io
import re
import shutil

import nbformat
import pypdf
import pytest
import yaml
from book_reader import BOOK, ROOT, outputs, read, reading_order
from conftest import HTML, SETTLED
from PIL import Image, ImageStat

from tinyserve.style import PALETTE

PAGES = reading_order()
NOTEBOOKS = [name for name in PAGES if (BOOK / f"{name}.ipynb").exists()]
LEAST_CONTRAST = 4.5
WIDE, PHONE = 1280, 390


# Every page


@pytest.mark.parametrize("name", PAGES)
def test_a_double_clicked_page_needs_nothing_from_outside(visit, name):
    page = visit(name, "file", mode=None)
    assert page.locator("article h1").inner_text().strip()
    formulas = page.locator("article .math")
    for formula in formulas.all():
        formula.locator("mjx-container svg").first.wait_for()


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_the_front_door_leads_to_the_first_page(site, window, scheme):
    with window() as page:
        page.goto(f"{site[scheme]}/index.html")
        page.wait_for_url(f"**/book/{PAGES[0]}.html")


# Which text is hard to read, and how hard. Text that nobody sees is left out.
CONTRAST = """() => {
  const rgba = (text) => {
    const parts = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    return [...parts.slice(0, 3).map((x) => x * scale), parts[3] ?? 1];
  };
  const over = (top, below) =>
    [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = (c) => {
    const [r, g, b] = c.map((x) => x / 255)
      .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const known = new Map();
  const ground = (e) => {  // the colour behind an element, and how opaque the element is
    if (!e) return [[255, 255, 255, 1], 1];
    if (!known.has(e)) {
      const style = getComputedStyle(e), [below, opacity] = ground(e.parentElement);
      known.set(e, [over(rgba(style.backgroundColor), below), opacity * style.opacity]);
    }
    return known.get(e);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = {}; let count = 0;
  while (texts.nextNode()) {
    const node = texts.currentNode, element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ opacityProperty: true,
        visibilityProperty: true, contentVisibilityAuto: true })) continue;
    if (element.closest("mjx-assistive-mml, script, style, noscript, option, dialog")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) continue;
    const [below, opacity] = ground(element), ink = rgba(getComputedStyle(element).color);
    ink[3] *= opacity;
    const [a, b] = [light(over(ink, below)), light(below)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    count += 1;
    if (ratio < LEAST) {
      const classes = [element, element.parentElement].map((e) => e.tagName + "." + e.className);
      found[classes.join(" in ")] = `${ratio.toFixed(2)} "${node.data.trim().slice(0, 30)}"`;
    }
  }
  return [count, found];
}""".replace("LEAST", str(LEAST_CONTRAST))

# What sticks out of the window without a box of its own to scroll in.
STICKS_OUT = """() => [...document.querySelectorAll("article *, footer *")].filter((e) => {
  const box = e.getBoundingClientRect();
  if (box.right <= innerWidth + 1 || box.width === 0 || !e.checkVisibility()) return false;
  for (let p = e; p; p = p.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX)) return false;
  return !e.closest("mjx-assistive-mml");
}).map((e) => e.outerHTML.slice(0, 120))"""

# Boxes that scroll sideways and that the keyboard does not reach, or whose start is cut off.
OUT_OF_REACH = """() => [...document.querySelectorAll("article *")].filter((e) =>
  e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 &&
  ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && (e.tabIndex < 0 ||
  [...e.children].some((c) => c.getBoundingClientRect().x < e.getBoundingClientRect().x - 1))
).map((e) => e.outerHTML.slice(0, 120))"""

UNFOLD = """() => {
  document.querySelectorAll("details").forEach((fold) => (fold.open = true));
  document.querySelectorAll("button.toggle-button-hidden").forEach((button) => button.click());
}"""


def settle(page):
    """Wait for what the theme does after a change of size: it looks for boxes that scroll."""
    page.wait_for_timeout(400)


def check_legible(page):
    """No text is faint, nothing sticks out, the keyboard reaches every box that scrolls."""
    page.evaluate(UNFOLD)
    for width in (WIDE, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        count, faint = page.evaluate(CONTRAST)
        assert count > 10 and faint == {}, f"at {width}"
        sizes = "[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
        root, body, inner = page.evaluate(sizes)
        assert max(root, body) <= inner == width
        assert page.evaluate(STICKS_OUT) == [], f"at {width}"
        assert page.evaluate(OUT_OF_REACH) == [], f"at {width}"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_search_results_can_be_read(site, window, mode):
    with window(mode=mode) as page:
        page.goto(f"{site['http']}/search.html?q=pages")
        page.locator("#search-results ul.search li p.context").first.wait_for()
        check_legible(page)


def brightness(picture):
    """Mean brightness of a screenshot, 0 to 255."""
    return ImageStat.Stat(Image.open(io.BytesIO(picture)).convert("L")).mean[0]


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_and_its_figures_can_be_read(visit, name, mode):
    page = visit(name, mode=mode)
    check_legible(page)
    page.set_viewport_size({"width": WIDE, "height": 900})
    drawn = sum(
        "image/svg+xml" in output.get("data", {})
        for _, output in outputs(read(next(BOOK.glob(f"{name}.*"))))
    )
    figures = page.locator("article img").all()
    assert len(figures) == drawn
    for figure in figures:
        assert figure.evaluate("image => image.complete && image.naturalWidth > 0")
        assert figure.bounding_box()["width"] > 400
        assert figure.get_attribute("alt")
        light = brightness(figure.screenshot())
        assert light > 170 if mode == "light" else light < 110


def test_the_contrast_check_sees_faint_text(visit):
    page = visit(PAGES[0])
    assert page.evaluate(CONTRAST)[1] == {}
    page.evaluate("document.querySelector('article p').style.color = '#999'")
    page.evaluate("document.querySelector('article h2').style.opacity = '0.4'")
    assert len(page.evaluate(CONTRAST)[1]) >= 2


def test_the_overflow_check_sees_what_sticks_out(visit):
    page = visit(PAGES[0], width=PHONE)
    assert page.evaluate(STICKS_OUT) == []
    page.evaluate("document.querySelector('article p').style.width = '600px'")
    assert page.evaluate(STICKS_OUT) != []


def test_the_switch_changes_page_and_figures_together(visit):
    paper = {
        mode: tuple(bytes.fromhex(shade[1:]))
        for mode, shade in zip(("light", "dark"), PALETTE["paper"])
    }
    page = visit("real-run")
    switch = page.get_by_role("button", name="Color mode")
    met = set()
    for _ in range(3):  # light, dark, whatever the system says
        switch.click()
        page.mouse.move(0, 0)
        mode = page.evaluate("document.documentElement.dataset.theme")
        met.add(mode)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert tuple(map(int, re.findall(r"\d+", colour))) == paper[mode]
        figure = Image.open(io.BytesIO(page.locator("article img").first.screenshot()))
        assert figure.convert("RGB").getpixel((2, 2)) == paper[mode]
    assert met == {"light", "dark"}


# Finding the way


def test_the_sidebar_has_the_short_titles_in_order(visit):
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    page = visit(PAGES[0])
    sidebar = page.locator(".bd-sidebar-primary")
    assert sidebar.locator(".caption-text").all_inner_texts() == [
        part["caption"] for part in toc["parts"]
    ]
    links = sidebar.locator("ul.bd-sidenav:not(.bd-sidenav__home-link) a").all_inner_texts()
    assert links == [chapter["title"] for part in toc["parts"] for chapter in part["chapters"]]


def test_next_and_previous_name_the_pages_they_lead_to(visit):
    page = visit(PAGES[0])
    titles = []
    for name in PAGES:
        assert page.url.endswith(f"/{name}.html")
        titles.append(page.locator("article h1").inner_text().rstrip("#"))
        if len(titles) > 1:
            assert page.locator("a.left-prev .prev-next-title").inner_text() == titles[-2]
        following = page.locator("a.right-next")
        if name == PAGES[-1]:
            assert following.count() == 0
        else:
            promised = following.locator(".prev-next-title").inner_text()
            following.click()
            page.wait_for_function(SETTLED)
            assert page.locator("article h1").inner_text().rstrip("#") == promised
    assert len(set(titles)) == len(PAGES)


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_search_finds_a_word(visit, scheme):
    page = visit(PAGES[0], scheme)
    page.keyboard.press("Control+k")
    page.keyboard.type("preemption")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=preemption")
    results = page.locator("#search-results ul.search li a")
    results.first.wait_for()
    addresses = [link.get_attribute("href") for link in results.all()]
    assert any("glossary" in address for address in addresses)
    page.wait_for_load_state("networkidle")
    results.first.click()
    page.wait_for_url("**/book/*.html*")
    assert "preempt" in page.locator("article").inner_text().lower()


def test_every_button_does_something(visit):
    page = visit("pages")
    buttons = page.locator("button:visible:not(.copybtn):not(.live-bar *)").all()
    name = "b => b.ariaLabel || b.innerText.trim().split(/\\s/)[0] || b.title"
    assert {b.evaluate(name) for b in buttons} == {
        "Toggle primary sidebar",
        "Search",
        "Download this page",
        "Color mode: Light, Dark, System Settings",
    }  # the last three have tests of their own
    sidebar = page.locator(".bd-sidebar-primary")
    assert sidebar.bounding_box()["x"] == 0
    page.get_by_role("button", name="Toggle primary sidebar").click()
    page.wait_for_function("document.querySelector('article').getBoundingClientRect().x < 200")
    page.get_by_role("button", name="Toggle primary sidebar").click()
    page.wait_for_function("document.querySelector('article').getBoundingClientRect().x > 200")


def test_code_can_be_copied(visit):
    page = visit("pages", permissions=["clipboard-read"])
    cell = page.locator(".cell_input").first
    cell.hover()
    cell.get_by_role("button", name="Copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()


def test_the_phone_has_the_sidebar_behind_a_button(visit):
    page = visit("pages", width=PHONE)
    link = page.get_by_role("link", name="Glossary")
    assert not link.is_visible()
    page.get_by_role("button", name="Toggle primary sidebar").click()
    link.click()
    page.wait_for_url("**/glossary.html")


# Keyboard


# Whether a reader sees an element: not folded away, not transparent.
SEEN = """e => e.offsetHeight > 5 &&
  e.checkVisibility({opacityProperty: true, visibilityProperty: true})"""


def folds(page):
    """Every folded solution or answer: what to press, and the text behind it."""
    cells = [
        (f.locator("summary"), f.locator("pre").first)
        for f in page.locator("article details.hide").all()
    ]
    notes = [
        (f.locator("button.toggle-button"), f.locator("p:not(.admonition-title)").first)
        for f in page.locator("article .admonition.dropdown").all()
    ]
    return cells + notes


@pytest.mark.parametrize("name", ["pages", "your-turn"])
def test_solutions_open_by_keyboard(visit, name):
    page = visit(name)
    found = folds(page)
    assert found
    for handle, hidden in found:
        handle.wait_for()
        assert not hidden.evaluate(SEEN)
        handle.focus()
        page.keyboard.press("Enter")
        assert hidden.evaluate(SEEN)


def test_the_keyboard_shows_where_it_is(visit):
    page = visit("pages")
    outlined = 0
    for _ in range(25):
        page.keyboard.press("Tab")
        style = "e => [getComputedStyle(e).outlineStyle, getComputedStyle(e).boxShadow]"
        outline, shadow = page.locator(":focus").evaluate(style)
        outlined += 1
        assert outline != "none" or shadow != "none", page.locator(":focus").evaluate(
            "e => e.outerHTML.slice(0, 200)"
        )
    assert outlined == 25


def test_a_wide_table_scrolls_in_its_own_box(visit):
    page = visit("real-run", width=PHONE)
    boxes = page.locator("article [role=region]")
    names = [box.get_attribute("aria-label") for box in boxes.all()]
    assert names and len(set(names)) == len(names)
    wide = [b for b in boxes.all() if b.evaluate("e => e.scrollWidth > e.clientWidth + 5")]
    assert wide
    wide[0].focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")


# Taking it away


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_downloaded(visit, name, tmp_path):
    page = visit(name)
    page.get_by_role("button", name="Download this page").click()
    with page.expect_download() as saving:
        page.get_by_role("link", name=re.compile(r"\.(ipynb|md)")).click()
    source = next(BOOK.glob(f"{name}.*"))
    saved = tmp_path / saving.value.suggested_filename
    saving.value.save_as(saved)
    assert saved.name == source.name
    assert saved.read_bytes() == source.read_bytes()
    if source.suffix == ".ipynb":
        notebook = nbformat.read(saved, as_version=4)
        nbformat.validate(notebook)
        assert any(cell.cell_type == "code" for cell in notebook.cells)


def words(text):
    """A text's letters and digits only: line breaks and ligatures in a PDF do not count."""
    return re.sub(r"[\W_]+", "", text)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_printed_chapter_is_whole(visit, mode):
    chapters = {name: read(BOOK / f"{name}.ipynb").cells for name in NOTEBOOKS}
    name = max(chapters, key=lambda name: sum(len(cell.source) for cell in chapters[name]))
    page = visit(name, mode=mode)
    hidden = [cell for cell in chapters[name] if "hide-cell" in cell.metadata.get("tags", [])]
    solutions = [cell.source for cell in hidden]
    last = page.locator("article p").last.inner_text()
    folded = page.locator("details:not([open])").count()
    assert solutions and folded
    printed = pypdf.PdfReader(io.BytesIO(page.pdf(format="A4", print_background=True)))
    text = words("".join(sheet.extract_text() for sheet in printed.pages))
    assert words(last) in text
    for line in "\n".join(solutions).splitlines():
        assert words(line) in text, line
    for gone in ("Search", "Light and heavy traffic", "Bibliography"):
        assert words(gone) not in text
    assert page.locator("details:not([open])").count() == folded  # and afterwards as before
    assert page.evaluate("document.documentElement.dataset.theme") == mode


# The check that follows the build


def checker(toc):
    """book/_tools/check_build.py as a module, with the pages of `toc`."""
    path = BOOK / "_tools" / "check_build.py"
    spec = importlib.util.spec_from_file_location("check_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pages = lambda: toc
    return module


SOUND = "<article><h1 id='top'>A page</h1><p>%s</p><a href='#top'>up</a></article>" % ("text " * 30)


def test_the_build_check_passes_a_sound_page(tmp_path):
    (tmp_path / "a.html").write_text(SOUND)
    assert checker(["a"]).check(tmp_path) == []


@pytest.mark.parametrize(
    "fault",
    [
        "<script src='https://cdn.example/x.js'></script>",
        "<script>load('https://cdn.example/x.js')</script>",
        "<link rel='preconnect' href='//fonts.example'>",
        "<img src='missing.png'>",
        "<img srcset='a.html 1x, https://cdn.example/x.png 2x'>",
        "<p style='background: url(https://cdn.example/x.png)'>",
        "<style>@import 'https://cdn.example/x.css'</style>",
        "<a href='nowhere.html'>link</a>",
        "<a href='a.html#nowhere'>link</a>",
        "<iframe src='https://example.org'></iframe>",
    ],
)
def test_the_build_check_sees_a_fault(fault, tmp_path):
    (tmp_path / "a.html").write_text(SOUND + fault)
    assert len(checker(["a"]).check(tmp_path)) == 1


def test_the_build_check_sees_missing_and_empty_pages_and_styles(tmp_path):
    (tmp_path / "a.html").write_text("<article><h1>A page</h1></article>")
    (tmp_path / "style.css").write_text("p { background: url('https://cdn.example/x.png') }")
    (tmp_path / "x.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg"><image href="https://cdn.example/x.png"/></svg>'
    )
    assert len(checker(["a", "b"]).check(tmp_path)) == 4


def test_the_build_check_passes_the_book(tmp_path):
    module = checker([f"book/{name}" for name in PAGES])
    assert module.check(HTML) == []
    shutil.copytree(HTML, tmp_path / "html")
    (tmp_path / "html" / "book" / f"{PAGES[3]}.html").unlink()
    assert any("is missing" in line for line in module.check(tmp_path / "html"))
