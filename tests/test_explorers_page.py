"""The explorers as a reader meets them: in the built page, by keyboard, wide and narrow."""

import pytest

from tinyserve import explorers

SCHEMES = ["http", "file"]


def opened(visit, name, scheme, **options):
    """The explorer on a page, once it moves."""
    page = visit(name, scheme, **options)
    page.locator(".tsx[data-live]").wait_for()
    return page, page.locator(".tsx")


def press(page, explorer, label, key, times=1):
    """Move a slider by keyboard."""
    explorer.get_by_role("slider", name=label).focus()
    for _ in range(times):
        page.keyboard.press(key)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_server_opens_on_the_heavy_run_and_moves_by_keyboard(visit, scheme):
    page, explorer = opened(visit, "play-server", scheme)
    say, table = explorer.locator(".tsx-say"), explorer.locator("table")
    assert say.inner_text() == (
        "The cache is the wall. The cache was full at 0.39 s; one chat in a hundred waits "
        "3.49 s or longer for its first token."
    )
    press(page, explorer, "cache pages", "ArrowRight")
    assert "The batch limit is the wall." in say.inner_text() and "0.93 s" in say.inner_text()
    now, before = table.locator("tbody tr").all()
    assert now.locator("td").all_inner_texts()[4:8] == ["0.928 s", "batch", "40", "343"]
    assert before.locator("td").all_inner_texts()[4:8] == ["3.492 s", "cache", "94", "225"]
    press(page, explorer, "cache pages", "ArrowRight")
    assert "0.928 s" in table.locator("tbody tr").first.inner_text()
    press(page, explorer, "batch limit", "End")
    assert "Nothing binds" not in say.inner_text()
    press(page, explorer, "chats a second", "Home")
    assert "Nothing binds." in say.inner_text()
    slider = explorer.get_by_role("slider", name="order of the chats")
    press(page, explorer, "order of the chats", "End")
    assert slider.get_attribute("aria-valuetext") == "shuffled, 5"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_batching_opens_on_two_of_eight_and_its_clock_moves(visit, scheme):
    page, explorer = opened(visit, "play-slots", scheme)
    say = explorer.locator(".tsx-say")
    pair = explorers.batching_runs()[8, 8, "mixed"]
    assert say.inner_text() == explorers.batching_sentence(pair, 5.6)
    assert "2 of 8 slots in use and 22 waiting" in say.inner_text()
    press(page, explorer, "clock", "ArrowRight", 3)
    assert say.inner_text() == explorers.batching_sentence(pair, 5.9)
    explorer.get_by_role("button", name="back 1 s").click()
    assert say.inner_text() == explorers.batching_sentence(pair, 4.9)
    press(page, explorer, "replies", "ArrowLeft")
    equal = explorers.batching_runs()[8, 8, "equal"]
    assert say.inner_text() == explorers.batching_sentence(equal, 4.9)
    press(page, explorer, "clock", "End")
    end = explorer.get_by_role("slider", name="clock").get_attribute("aria-valuetext")
    assert 0 <= equal[0].all_done - float(end.split()[0]) < 0.1


@pytest.mark.parametrize("name", ["play-server", "play-slots"])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_an_explorer_fits_a_phone_and_its_picture_has_words(visit, name, mode):
    page, explorer = opened(visit, name, "file", width=360, mode=mode)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert explorer.bounding_box()["width"] <= 360
    for picture in explorer.locator("svg").all():
        assert picture.get_attribute("role") == "img" and picture.get_attribute("aria-label")
        assert picture.locator("text").count() >= 6
    sizes = explorer.locator("svg text").evaluate_all(
        "words => words.map(w => w.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 10
    for slider in explorer.get_by_role("slider").all():
        assert slider.get_attribute("aria-valuetext")
