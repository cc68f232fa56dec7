"""What the explorers show is what the package gives. The page itself: test_explorers_page.py."""

import base64
import json
import re
from array import array

import pytest

import tinyserve as ts
from tinyserve import explorers
from tinyserve.batcher import serve
from tinyserve.sweep import in_order

SAMPLE = [(40, 240, 16, 0), (40, 480, 24, 3), (5, 120, 8, 5), (30, 960, 8, 1), (20, 120, 24, 2)]


@pytest.fixture(scope="module")
def runs():
    return explorers.server_runs()


@pytest.fixture(scope="module")
def server(runs):
    return explorers.server(runs)


@pytest.fixture(scope="module")
def batching():
    return explorers.batching()


def data_of(explorer):
    text = re.search(r'<script type="application/json">(.*?)</script>', explorer._repr_html_())
    return json.loads(text[1])


def unpack(kind, text):
    numbers = array(kind)
    numbers.frombytes(base64.b64decode(text))
    return numbers


def test_enough_settings_each_once(runs):
    settings = runs[["rate", "pages", "limit", "order"]]
    assert len(runs) >= 384 and not settings.duplicated().any()
    assert runs["error"].isna().all() and set(runs["order"]) == set(range(6))


@pytest.mark.parametrize("rate, pages, limit, order", SAMPLE)
def test_the_servers_numbers_are_the_reports(runs, server, rate, pages, limit, order):
    chats = in_order(ts.invented_chats(400), order).at_rate(rate)
    run = serve(chats, pages, limit)  # the plain server, not the counted one
    rep = ts.report(run)
    grid = list(explorers.SERVER.values())
    number = 0
    for values, value in zip(grid, (rate, pages, limit, order)):
        number = number * len(values) + list(values).index(value)
    data = data_of(server)
    wait, end, queue_max, pages_max, wall = data["facts"][number]
    assert wait == round(rep.ttft_p99, 3) and end == round(max(run.done), 3)
    assert (queue_max, pages_max, wall) == (rep.queue_max, rep.pages_max, rep.wall)
    assert f"waits {rep.ttft_p99:.2f} s or longer" in data["say"][number]
    if rep.cache_full_at is None:
        assert "never filled" in data["say"][number]
    else:
        assert f"full at {rep.cache_full_at:.2f} s" in data["say"][number]
    for name, read in (
        ("queue", lambda s: s.queue),
        ("held", lambda s: s.held),
        ("promised", lambda s: s.held + s.owed),
    ):
        kept = unpack("H", data[name])[number * data["points"] :][: data["points"]]
        for point in (0, 1, 17, 60, 119):
            moment = max(run.done) * point / data["points"]
            [step] = [s for s in run.steps if s.start <= moment][-1:]
            assert kept[point] == read(step), (name, point)


def test_the_server_opens_on_the_heavy_run(server):
    assert repr(server) == (
        "The cache is the wall. The cache was full at 0.39 s; one chat in a hundred waits "
        "3.49 s or longer for its first token."
    )


@pytest.mark.parametrize(
    "rate, slots, mix", [(8, 8, "mixed"), (16, 2, "very mixed"), (1, 16, "equal")]
)
def test_the_batching_data_place_everybody_where_the_run_does(batching, rate, slots, mix):
    data = data_of(batching)
    grid = list(explorers.BATCHING.values())
    number = 0
    for values, value in zip(grid, (rate, slots, mix)):
        number = number * len(values) + values.index(value)
    requests = ts.batching_requests(mix).at_rate(rate)
    sent = unpack("d", data["sent"])[48 * grid[0].index(rate) :][:48]
    assert list(sent) == list(requests.send)
    for k, policy in enumerate(("fixed", "continuous")):
        run = ts.simulate(requests, slots, policy)
        first = 48 * (2 * number + k)
        seat, joined, done = (
            unpack(kind, data[name])[first : first + 48]
            for kind, name in (("B", "seat"), ("d", "joined"), ("d", "done"))
        )
        assert list(done) == run.done
        for moment in (0.0, 0.7, 2.5, 5.6, 9.9):
            seats = [None] * slots
            for i in range(48):
                if joined[i] <= moment < done[i]:
                    seats[seat[i]] = i
            waiting = sum(s <= moment < j for s, j in zip(sent, joined))
            assert (tuple(seats), waiting) == run.at(moment)


def test_batching_opens_on_two_of_eight_and_22_waiting(batching):
    assert "2 of 8 slots in use and 22 waiting" in repr(batching)
    assert "7 in use and 0 waiting" in repr(batching)


def test_a_fragment_is_small_and_needs_nothing(server, batching):
    for explorer in (server, batching):
        html = explorer._repr_html_()
        assert len(html) < 1_000_000
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|<link|<img|\bimport\b|\beval\b", html
        )
        assert html == explorer._repr_html_()
