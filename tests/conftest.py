"""A browser with the network closed, for the tests that look at pages as a reader does."""

import functools
import http.server
import os
import shutil
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from book_reader import ROOT
from playwright.sync_api import sync_playwright

HTML = ROOT / "_build" / "html"
SETTLED = "() => document.readyState === 'complete' && document.documentElement.dataset.theme"

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
MISSING = "no Chromium: install it (apt install chromium), or name one in TINYSERVE_CHROMIUM"
HERE = {"127.0.0.1", "localhost"}
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",  # where the tests run as root
    # No name but this machine's is ever looked up, for workers and for the browser itself too.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
]


def find_browser():
    """The Chromium to drive: TINYSERVE_CHROMIUM, or the first of NAMES on the path, or None."""
    return os.environ.get("TINYSERVE_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )


@pytest.fixture(scope="session")
def browser():
    """Chromium, or a skip (in CI a failure) that says how to get it."""
    path = find_browser()
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter):
    """Say once why the browser tests were skipped, if they were."""
    skipped = terminalreporter.stats.get("skipped", [])
    number = sum(MISSING in str(report.longrepr) for report in skipped)
    if number:
        terminalreporter.write_line(f"{number} browser tests skipped: {MISSING}", yellow=True)


class Watch:
    """Everything a page does that it should not."""

    def __init__(self, page):
        self.troubles = []
        page.route("**/*", self.gate)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("console", self.console)
        page.on("response", self.response)

    def gate(self, route):
        """Let requests to this machine through, and no others."""
        address = urlsplit(route.request.url)
        if address.scheme in ("blob", "data", "file") or address.hostname in HERE:
            route.continue_()
        else:
            self.troubles.append(f"asks another host: {route.request.url}")
            route.abort()

    def console(self, message):
        """Errors on the console: a file that is missing, a script that fails."""
        if message.type == "error":
            self.troubles.append(f"console: {message.text} {message.location.get('url', '')}")

    def response(self, response):
        """An answer that is an error."""
        if response.status >= 400:
            self.troubles.append(f"{response.status}: {response.url}")


@pytest.fixture
def window(browser):
    """A function that opens a browser window; the test fails if a page in it misbehaves.

    width: pixels; mode: "light" or "dark", as the reader chose with the theme's switch, or
    None for a first visit; ignore: what a trouble may start with without failing the test.
    """
    watches = []

    @contextmanager
    def window(width=1280, mode="light", ignore=(), **options):
        options = {"reduced_motion": "reduce", **options}  # nothing to wait for
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        if mode:
            context.add_init_script(
                f"for (const key of ['mode', 'theme']) localStorage.setItem(key, '{mode}')"
            )
        page = context.new_page()
        watches.append((Watch(page), tuple(ignore)))
        try:
            yield page
        finally:
            context.close()

    yield window
    troubles = [t for watch, ignore in watches for t in watch.troubles if not t.startswith(ignore)]
    assert not troubles, "\n".join(dict.fromkeys(troubles))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def site():
    """Where the built book is: a dictionary from "http" and "file" to an address."""
    assert (HTML / "index.html").exists(), "the book is not built: run make book first"
    serve = functools.partial(Quiet, directory=str(HTML))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"http": f"http://127.0.0.1:{server.server_port}", "file": HTML.as_uri()}
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(site, window):
    """A function that opens a page of the book in a window of its own; see `window`."""

    def visit(name, scheme="http", **options):
        opened = window(**options)
        page = opened.__enter__()
        windows.append(opened)
        page.goto(f"{site[scheme]}/book/{name}.html")
        page.wait_for_function(SETTLED)
        return page

    windows = []
    yield visit
    for opened in windows:
        opened.__exit__(None, None, None)
