"""The clipboard: nearest rank against two oracles, the two kinds of gap, and the wall."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plain_server import plain_serve
from strategies import HUGE, NOT_FINITE, NOT_NUMBERS, servers, short

import tinyserve as ts
from tinyserve.metrics import p50_and_p99, which_wall

# Percentile.

numbers = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6))
# Two decimals at most, so that the exact share is the one that is written.
shares = st.one_of(
    st.integers(1, 100), st.sampled_from([99.9, 99.99, 0.1, 0.01, 33.3, 12.5, 2.5, 62.5])
)


def by_counting(values, q):
    """The smallest value that at least q in 100 of the values do not exceed, in whole numbers."""
    share = Fraction(str(q))
    for candidate in sorted(values):
        not_above = sum(value <= candidate for value in values)
        if 100 * share.denominator * not_above >= share.numerator * len(values):
            return candidate
    raise AssertionError("no value")


@given(st.lists(numbers, min_size=1, max_size=60), shares)
def test_nearest_rank_is_the_definition(values, q):
    assert ts.percentile(values, q) == by_counting(values, q)


@given(st.lists(numbers, min_size=1, max_size=60), st.floats(0.001, 100))
def test_nearest_rank_is_numpys_inverted_cdf(values, q):
    # Where q / 100 * n is a hair from a whole number, NumPy's floats may take the next rank.
    rank = q * len(values) / 100
    assume(abs(rank - round(rank)) > 1e-9)
    assert ts.percentile(values, q) == np.percentile(values, q, method="inverted_cdf")


@pytest.mark.parametrize("q", [50, 90, 99, 99.9, 25])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 99, 100, 101, 400, 999, 1000, 1001])
def test_round_shares_of_round_numbers(q, n):
    values = np.random.default_rng(n).permutation(n) + 1
    rank = math.ceil(Fraction(str(q)) * n / 100)
    assert ts.percentile(values, q) == rank
    assert ts.percentile(values.tolist(), q) == rank


def test_where_floats_betray():
    betrayed = [
        (q, n)
        for q, n in itertools.product(range(1, 101), range(1, 401))
        if math.ceil(q / 100 * n) != -(-q * n // 100)
    ]
    assert (7, 100) in betrayed and len(betrayed) > 50
    for q, n in betrayed:
        assert ts.percentile(range(1, n + 1), q) == -(-q * n // 100)


def test_the_p99_of_400_is_the_396th():
    assert ts.percentile(range(1, 401), 99) == 396
    assert ts.percentile(range(400, 0, -1), 99) == 396
    assert ts.percentile(range(1, 401), 100) == 400
    assert ts.percentile(range(1, 1001), 99.9) == 999
    assert ts.percentile(range(1, 1001), np.float32(99.9)) == 999
    assert ts.percentile([4, 9], 1e-9) == 4


@given(st.lists(st.tuples(numbers, st.integers(0, 9)), min_size=1, max_size=30), shares)
def test_counts_stand_for_repeats(pairs, q):
    values, counts = zip(*pairs)
    expanded = [value for value, count in pairs for _ in range(count)]
    if expanded:
        assert ts.percentile(values, q, counts) == ts.percentile(expanded, q)
        assert p50_and_p99(values, counts) == p50_and_p99(expanded)
    else:
        with pytest.raises(ValueError, match="no values"):
            ts.percentile(values, q, counts)
        assert p50_and_p99(values, counts) == [None, None]


def test_any_sequence_will_do():
    series = pd.Series([3, 1, 2], index=[9, 8, 7])
    for values in ([3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), series):
        assert ts.percentile(values, 50) == 2
        assert ts.percentile(values, np.int64(50), counts=np.array([5, 1, 1])) == 3
    assert ts.percentile(iter([3, 1, 2]), 50) == 2
    assert ts.percentile({3, 1, 2}, 50) == 2
    values = [3, 1, 2]
    ts.percentile(values, 50)
    assert values == [3, 1, 2]  # not sorted in place


@pytest.mark.parametrize("bad", [0, -1, 100.5, 101, *NOT_FINITE, *NOT_NUMBERS, HUGE], ids=short)
def test_shares_are_refused(bad):
    with pytest.raises(ValueError) as error:
        ts.percentile([1, 2], bad)
    assert "q " in str(error.value) and repr(bad) in str(error.value)


@pytest.mark.parametrize("bad", [*NOT_FINITE, *NOT_NUMBERS, HUGE], ids=short)
def test_values_are_refused(bad):
    with pytest.raises(ValueError) as error:
        ts.percentile([1, bad, 2], 50)
    assert repr(bad) in str(error.value)


@pytest.mark.parametrize("bad", [-1, 0.5, *NOT_FINITE, *NOT_NUMBERS, HUGE], ids=short)
def test_counts_are_refused(bad):
    with pytest.raises(ValueError) as error:
        ts.percentile([1, 2, 3], 50, counts=[1, bad, 3])
    assert repr(bad) in str(error.value)


def test_nothing_has_no_percentile():
    for nothing in ([], (), np.array([]), {}, ""):
        with pytest.raises(ValueError, match="percentile 99 of no values"):
            ts.percentile(nothing, 99)
    with pytest.raises(ValueError):
        ts.percentile([1, 2], 50, counts=[1])
    with pytest.raises(ValueError):
        ts.percentile([1], 50, counts=[1, 2])


# The report, against tokens kept one by one.


@given(servers())
def test_the_report_is_what_the_plain_server_saw(arguments):
    workload, *sizes = arguments.values()
    chats = list(zip(workload.send, workload.prompts, workload.replies))
    plain = plain_serve(chats, *sizes)
    report = ts.report(ts.serve(**arguments))

    def two(values):
        if not values:
            return (None, None)
        return tuple(by_counting(values, q) for q in (50, 99))

    ttft = [first - sent for first, sent in zip(plain["first"], workload.send)]
    assert (report.ttft_p50, report.ttft_p99) == two(ttft)
    pooled = [gap for gaps in plain["gaps"] for gap in gaps]
    assert len(pooled) == sum(workload.replies) - len(workload)
    assert (report.tbt_p50, report.tbt_p99) == two(pooled)
    means = [sum(gaps) / len(gaps) for gaps in plain["gaps"] if gaps]
    for got, expected in zip((report.mean_tbt_p50, report.mean_tbt_p99), two(means)):
        # first and done are sums of the same steps, taken from 0: equal but for the rounding
        assert got == expected or math.isclose(got, expected, rel_tol=1e-9)
    starts, _, _, _, queues, held, _, blocked = zip(*plain["rows"])
    assert (report.queue_max, report.pages_max) == (max(queues), max(held))
    full = [start for start, why in zip(starts, blocked) if why in ("cache", "cache and batch")]
    batch = [why for why in blocked if why in ("batch", "cache and batch")]
    assert (report.cache_steps, report.batch_steps) == (len(full), len(batch))
    assert report.cache_full_at == (full[0] if full else None)
    took = max(plain["done"]) - workload.send[0]
    assert math.isclose(report.chats_per_second, len(chats) / took)
    assert math.isclose(report.tokens_per_second, sum(workload.replies) / took)


def handmade(send, first, done, replies, steps):
    """A Run as a server would have left it. steps: (seconds, chats, joined)."""
    workload = ts.Workload(send, [1] * len(send), replies)
    rows = [ts.Step(0.0, *step, queue=0, held=0, owed=0, blocked="") for step in steps]
    settings = (workload, 1, 1, 16, ts.LLAMA_8B, ts.A100)
    return ts.Run(*settings, first, first, done, rows)


def test_a_reply_of_one_token_has_no_gap():
    run = ts.serve(ts.Workload([0, 1], [10, 10], [1, 1]), pages=4, limit=4)
    report = ts.report(run)
    assert report.tbt_p50 is report.tbt_p99 is report.mean_tbt_p50 is report.mean_tbt_p99 is None
    assert report.cache_full_at is None and report.wall == "none"
    assert report.ttft_p50 > 0
    # Beside a longer one it is left out, and makes no gap of 0.
    both = ts.report(ts.serve(ts.Workload([0, 0], [10, 10], [1, 3]), pages=4, limit=4))
    assert both.tbt_p50 > 0.007 and both.mean_tbt_p50 > 0.007


def test_the_two_averages_weigh_differently():
    # A: 2 tokens, one gap of 100 ms. B: 101 tokens, 100 gaps of 10 ms.
    steps = [(0.5, 1, 1), (0.1, 1, 0), (0.5, 1, 1), *[(0.01, 1, 0)] * 100]
    run = handmade([0, 0], [0.5, 1.1], [0.6, 2.1], [2, 101], steps)
    report = ts.report(run)
    assert math.isclose(report.mean_tbt_p99, 0.1)  # a chat each: 2 averages, the mean is 55 ms
    assert math.isclose(report.mean_tbt_p50, 0.01)
    assert math.isclose((report.mean_tbt_p50 + report.mean_tbt_p99) / 2, 0.055)
    assert (report.tbt_p50, report.tbt_p99) == (0.01, 0.01)  # a gap each: 1 of 101 is past the p99
    gaps = [s.seconds for s in run.steps for _ in range(s.chats - s.joined)]
    assert f"{1000 * sum(gaps) / len(gaps):.1f}" == "10.9" and len(gaps) == 101


def test_the_first_token_is_in_no_gap():
    # First token at 2 s, last at 3 s, 11 tokens: 10 gaps, 0.10 s each, not 3 / 11 = 0.27.
    report = ts.report(handmade([0], [2.0], [3.0], [11], [(2.0, 1, 1), *[(0.1, 1, 0)] * 10]))
    assert report.ttft_p50 == 2
    assert math.isclose(report.mean_tbt_p50, 0.1) and report.tbt_p99 == 0.1
    # And the tokens that were made: 20 of them from 0.2 to 2.1 s are 19 gaps.
    report = ts.report(handmade([0], [0.2], [2.1], [20], [(0.2, 1, 1), *[(0.1, 1, 0)] * 19]))
    assert math.isclose(report.mean_tbt_p50, 0.1)


def test_waiting_starts_when_a_chat_is_sent():
    # One at a time: the tenth's wait has nine replies in it, though it joins an empty server.
    chats = ts.Workload([0.001 * i for i in range(10)], [10] * 10, [5] * 10)
    run = ts.serve(chats, pages=9, limit=1)
    report = ts.report(run)
    alone = run.first[0] - run.admitted[0]
    assert math.isclose(run.first[9] - run.admitted[9], alone)
    assert report.ttft_p99 == run.first[9] - 0.009 > 9 * 5 * alone - 0.01


def test_the_pace_starts_when_the_first_chat_is_sent():
    def pace(start):
        chats = ts.Workload([start, start + 1], [10] * 2, [5] * 2)
        report = ts.report(ts.serve(chats, pages=4, limit=4))
        return report.chats_per_second, report.tokens_per_second

    assert pace(1000) == pytest.approx(pace(0), rel=1e-9)


def test_the_wait_grows_84_times_and_the_gap_by_half():
    chats = ts.invented_chats()
    light, heavy = (ts.report(ts.serve(chats.at_rate(rate), 240, 16)) for rate in (10, 40))
    assert f"{heavy.ttft_p99 / light.ttft_p99:.1f}" == "83.9"
    assert 1.45 < heavy.tbt_p99 / light.tbt_p99 < 1.55
    assert heavy.mean_tbt_p99 / light.mean_tbt_p99 < 1.2  # the average hides the stalls


# The wall.


@pytest.mark.parametrize(
    "queue_max, cache_steps, batch_steps, wall",
    [
        (0, 0, 0, "none"),
        (3, 0, 10, "none"),  # under 1 in 100
        (3, 500, 500, "none"),
        (4, 0, 10, "batch"),
        (4, 10, 0, "cache"),
        (94, 1291, 121, "cache"),
        (40, 0, 920, "batch"),
        (9, 44, 37, "both"),
        (9, 37, 44, "both"),
        (9, 100, 50, "both"),  # twice the smaller is the larger
        (9, 101, 50, "cache"),
        (9, 50, 100, "both"),
        (9, 50, 101, "batch"),
        (9, 7, 7, "both"),
        (9, 1, 0, "cache"),
        (9, 0, 1, "batch"),
    ],
)
def test_the_wall_of_400_chats(queue_max, cache_steps, batch_steps, wall):
    assert which_wall(queue_max, cache_steps, batch_steps, 400) == wall


def test_the_floor_moves_with_the_number_of_chats():
    assert [which_wall(queue, 9, 0, 3) for queue in (0, 1)] == ["none", "cache"]
    assert [which_wall(queue, 9, 0, 100) for queue in (0, 1)] == ["none", "cache"]
    assert [which_wall(queue, 9, 0, 101) for queue in (1, 2)] == ["none", "cache"]
    assert [which_wall(queue, 9, 0, 401) for queue in (4, 5)] == ["none", "cache"]


def test_a_queue_that_neither_wall_made_is_not_both():
    # A variant of the server may hold chats out for another reason.
    assert which_wall(50, 0, 0, 400) == "neither"
    assert which_wall(3, 0, 0, 400) == "none"


class OneJoins(ts.Server):
    """A step reads one prompt and no more: a rule that is neither wall."""

    def held_out(self, chat):
        return super().held_out(chat) or "one prompt a step" * bool(self.joined)


def test_a_queue_with_free_pages_and_free_places():
    crowd = ts.Workload([0] * 30, [50] * 30, [2] * 30)
    report = ts.report(OneJoins(crowd, pages=1000, limit=64).serve())
    assert (report.queue_max, report.cache_steps, report.batch_steps) == (29, 0, 0)
    assert report.wall == "neither"
