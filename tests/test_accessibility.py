"""No serious fault by axe-core's rules on any page, in light and in dark.

axe-core comes from npm with the build (book/_tools/package.json); no page loads it.
"""

import pytest
from book_reader import ROOT, reading_order

AXE = ROOT / "_build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
RUN = "() => axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)"
SERIOUS = {"serious", "critical"}


def faults(page):
    """The serious faults of a page, each as its rule and the first places it was found in."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return {
        fault["id"]: [node["html"][:160] for node in fault["nodes"][:3]]
        for fault in page.evaluate(RUN)
        if fault["impact"] in SERIOUS
    }


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", reading_order())
def test_no_serious_fault(visit, name, mode):
    page = visit(name, mode=mode)
    page.wait_for_timeout(500)  # the theme makes boxes that scroll reachable a moment later
    assert faults(page) == {}


def test_a_fault_is_found(visit):
    page = visit("glossary")
    page.evaluate("document.querySelector('article').insertAdjacentHTML('afterbegin', '<img>')")
    assert "image-alt" in faults(page)
