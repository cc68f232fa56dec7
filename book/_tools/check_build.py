"""Check the built book: every page is there, every link leads somewhere, all of it local.

    python book/_tools/check_build.py [folder]      (_build/html by default)

Run after a build, which can end well with pages missing. Prints what is wrong, one line a
fault; the exit status is 1 if there is any.
"""

import re
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
LEAST = 100  # characters of text in a page that is not empty
LOADS = ("src", "srcset", "poster", "data", "xlink:href")  # attributes that fetch
CSS_URL = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
ADDRESS = re.compile(r"""["'(=\s](?:https?:|wss?:)?//(?!www\.w3\.org/)[\w-]+\.[\w.-]+""")


def pages(toc=ROOT / "_toc.yml"):
    """The pages that the table of contents names, in its order, without a suffix."""
    contents = yaml.safe_load(toc.read_text(encoding="utf-8"))
    chapters = [chapter for part in contents["parts"] for chapter in part["chapters"]]
    return [contents["root"], *(chapter["file"] for chapter in chapters)]


@cache
def soup(path):
    """A parsed page."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path):
    """What a link to a place in this page may name."""
    return {tag.get(key) for tag in soup(path).find_all() for key in ("id", "name")}


def split_srcset(value):
    """The addresses in a srcset."""
    return [candidate.split()[0] for candidate in value.split(",") if candidate.strip()]


def loaded(page):
    """Every address that a browser fetches for this page by itself."""
    for tag in soup(page).find_all():
        for key in LOADS:
            if key in tag.attrs:
                yield from split_srcset(tag[key]) if key == "srcset" else [tag[key]]
        if tag.name in ("link", "use", "image") and "href" in tag.attrs:
            yield tag["href"]
        style = (tag.string or "") if tag.name == "style" else tag.get("style", "")
        for match in CSS_URL.finditer(style):
            yield match[1] or match[2]


def fault(page, address):
    """What is wrong with a local address seen from `page`, or None."""
    parts = urlsplit(address)
    if parts.scheme in ("data", "mailto", "javascript"):
        return None
    if parts.scheme or parts.netloc:
        return f"calls another host: {address}"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return f"leads nowhere: {address}"
    if parts.fragment and target.suffix == ".html":
        if unquote(parts.fragment) not in anchors(target):
            return f"no such place in {target.name}: {address}"
    return None


def check(html):
    """Every fault of the built book in the folder `html`, one line each."""
    faults = []
    for name in pages():
        page = html / f"{name}.html"
        if not page.is_file():
            faults.append(f"{name}.html is missing")
            continue
        article = soup(page).find("article")
        if article is None or not article.find("h1") or len(article.get_text()) < LEAST:
            faults.append(f"{name}.html is empty")
    built = sorted(p for p in html.rglob("*.html") if "_static" not in p.relative_to(html).parts)
    for page in built:
        where = page.relative_to(html)
        links = [a["href"] for a in soup(page).find_all("a", href=True)]
        local = [href for href in links if urlsplit(href).scheme not in ("http", "https")]
        for address in dict.fromkeys([*local, *loaded(page)]):
            if wrong := fault(page, address):
                faults.append(f"{where} {wrong}")
        for script in soup(page).find_all("script", src=False):
            faults += [f"{where} a script names {m[0]}" for m in ADDRESS.finditer(script.text)]
    for style in sorted(html.rglob("*.css")):
        for match in CSS_URL.finditer(style.read_text(encoding="utf-8")):
            if wrong := fault(style, match[1] or match[2]):
                faults.append(f"{style.relative_to(html)} {wrong}")
    for picture in sorted(html.rglob("*.svg")):
        for tag in ElementTree.parse(picture).iter():
            for key, address in tag.items():
                if key.endswith("href") and not address.startswith("#"):
                    faults.append(f"{picture.relative_to(html)} loads {address}")
    return faults


def main(html=ROOT / "_build" / "html"):
    """Print the faults of the built book. Returns the exit status."""
    faults = check(Path(html).resolve())
    for line in faults:
        print(line, file=sys.stderr)
    print(f"{len(pages())} pages checked, {len(faults)} faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
