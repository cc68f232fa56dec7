"""The chats: the lessons' draws to the last figure, and the doors of a Workload."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    BAD_COUNTS,
    BAD_MEASURES,
    BAD_TIMES,
    HUGE,
    NOT_FINITE,
    NOT_NUMBERS,
    short,
    workloads,
)

import tinyserve as ts
from tinyserve.logs import SAMPLES, read_log


def test_the_400_chats_are_the_lessons():
    chats = ts.invented_chats()
    assert len(chats) == 400 and chats.rate == 1 and chats.send[0] == 0
    first = list(zip(chats.prompts, chats.replies))[:4]
    assert first == [(34, 10), (157, 27), (457, 23), (248, 41)]
    assert (min(chats.prompts), max(chats.prompts), sum(chats.prompts)) == (30, 599, 71_880)
    assert (min(chats.replies), max(chats.replies), sum(chats.replies)) == (8, 360, 17_055)
    total = sum(map(chats.total, range(400)))
    assert (total, round(total / 400)) == (88_935, 222)
    assert sum(reply - 1 for reply in chats.replies) == 16_655
    sent = [f"{time:.3f}" for time in chats.at_rate(40).send[:4]]
    assert sent == ["0.000", "0.003", "0.018", "0.019"]


def test_the_48_requests_are_the_lessons():
    mixed, very = ts.batching_requests("mixed"), ts.batching_requests("very mixed")
    equal = ts.batching_requests("equal")
    assert len(mixed) == len(very) == len(equal) == 48
    assert mixed.send == very.send == equal.send and mixed.prompts == very.prompts == equal.prompts
    assert (min(mixed.prompts), max(mixed.prompts)) == (32, 577)
    assert f"{sum(mixed.prompts) / 48:.1f}" == "191.4"
    assert (min(mixed.replies), max(mixed.replies), mixed.replies[-1]) == (10, 268, 241)
    assert (sum(mixed.replies), f"{sum(mixed.replies) / 48:.1f}") == (4914, "102.4")
    assert (min(very.replies), max(very.replies)) == (5, 513)
    assert set(equal.replies) == {60}
    assert mixed.send[0] == 0 and f"{mixed.at_rate(0.5).send[-1]:.1f}" == "102.0"
    assert ts.batching_requests() == mixed


@pytest.mark.parametrize("n", [1, 2, 399, 2000])
def test_fewer_chats_are_the_first_of_more(n):
    few, many = ts.invented_chats(n), ts.invented_chats(2000)
    assert len(few) == n
    assert few.send == many.send[:n]
    assert few.prompts == many.prompts[:n] and few.replies == many.replies[:n]


def test_one_seed_one_draw():
    assert ts.invented_chats(50) == ts.invented_chats(50) != ts.invented_chats(50, seed=1)
    assert len(ts.invented_chats(2500)) == 2500


def test_any_sequence_will_do():
    plain = ts.Workload([0, 1.5], [34, 157], [10, 27])
    for send in ((0, 1.5), np.array([0, 1.5]), pd.Series([0, 1.5], index=[7, 3]), iter([0, 1.5])):
        assert ts.Workload(send, np.array([34, 157], dtype=np.uint8), (10, 27.0)) == plain
    kept = ts.Workload(np.array([0, 1.5]), np.array([34, 157]), pd.Series([10, 27]))
    assert all(type(time) is float for time in kept.send)
    assert all(type(count) is int for count in kept.prompts + kept.replies)


def test_what_it_is_made_from_may_change_later():
    send, prompts, replies = [0.0, 1.0], np.array([1, 2]), [3, 4]
    chats = ts.Workload(send, prompts, replies)
    send[0], prompts[0], replies[0] = 99, 99, 99
    assert (chats.send, chats.prompts, chats.replies) == ((0.0, 1.0), (1, 2), (3, 4))
    with pytest.raises(AttributeError):
        chats.send = (5.0, 6.0)


def test_the_rate_is_measured_or_said():
    assert ts.Workload([0, 1, 4], [1] * 3, [1] * 3).rate == 0.5  # two gaps in 4 s
    assert ts.Workload([10, 14], [1] * 2, [1] * 2).rate == 0.25  # a late start is no gap
    assert ts.Workload([3, 3], [1] * 2, [1] * 2).rate is None
    assert ts.Workload([3], [1], [1]).rate is None
    assert ts.Workload([0, 1, 4], [1] * 3, [1] * 3, rate=9).rate == 9


@given(workloads(), st.floats(1e-3, 1e3))
def test_at_rate_scales_every_gap(chats, rate):
    assume(chats.rate is not None)
    assume(chats.send[-1] * chats.rate / min(rate, 3) < 1e9)  # 30 years
    faster = chats.at_rate(rate)
    assert (faster.prompts, faster.replies, faster.rate) == (chats.prompts, chats.replies, rate)
    # To the last digits; a float next to 0 has few of them.
    for time, scaled in zip(chats.send, faster.send):
        assert math.isclose(scaled, time * chats.rate / rate, rel_tol=1e-12, abs_tol=1e-300)
    again = faster.at_rate(3.0)
    for direct, chained in zip(chats.at_rate(3.0).send, again.send):
        assert math.isclose(direct, chained, rel_tol=1e-12, abs_tol=1e-300)


def test_at_rate_is_exact_where_it_can_be():
    chats = ts.invented_chats(20)
    assert chats.at_rate(1) == chats
    assert chats.at_rate(40).send == tuple(time / 40 for time in chats.send)


@given(workloads(), st.integers())
def test_shuffled_keeps_times_and_pairs(chats, seed):
    other = chats.shuffled(seed)
    assert other.send == chats.send and other.rate == chats.rate
    pairs = sorted(zip(chats.prompts, chats.replies))
    assert sorted(zip(other.prompts, other.replies)) == pairs
    assert other == chats.shuffled(seed)


# Speed, slices, lengths.


@given(workloads(), st.floats(1e-3, 1e3))
def test_twice_the_speed_is_twice_the_rate(chats, factor):
    quick = chats.speed(factor)
    assert quick.send == tuple(time / factor for time in chats.send)
    assert (quick.prompts, quick.replies) == (chats.prompts, chats.replies)
    assert quick.rate == (chats.rate and chats.rate * factor)
    if chats.rate and math.isfinite(1 / (chats.send[-1] - chats.send[0])):
        again = chats.at_rate(chats.rate * factor)
        for one, other in zip(quick.send, again.send):
            assert math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-300)


def test_speed_by_hand():
    chats = ts.Workload([0, 1, 4], [5, 6, 7], [1, 2, 3])
    assert chats.speed(2) == ts.Workload([0, 0.5, 2], [5, 6, 7], [1, 2, 3], rate=1)
    assert ts.invented_chats(9).speed(40) == ts.invented_chats(9).at_rate(40)
    assert ts.Workload([3, 3], [1, 1], [1, 1]).speed(3).send == (1, 1)  # no rate, but a speed


def test_slices_by_hand():
    chats = ts.Workload([2, 3, 5, 5, 9], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
    assert chats.slice(3, 9) == ts.Workload([0, 2, 2], [2, 3, 4], [7, 8, 9])  # 3 <= t < 9
    assert chats.slice(2.5, 9) == chats.slice(3, 9)  # the first chat kept is sent at 0
    assert chats.slice(stop=5) == ts.Workload([0, 1], [1, 2], [6, 7])
    assert chats.slice(5) == ts.Workload([0, 0, 4], [3, 4, 5], [8, 9, 10])
    assert chats.slice(-7, 99).prompts == chats.slice().prompts == chats.prompts
    assert chats.slice().send == (0, 1, 3, 3, 7)
    assert chats.slice(1, 3, by="chats") == ts.Workload([0, 2], [2, 3], [7, 8])
    assert chats.slice(-2, by="chats") == ts.Workload([0, 4], [4, 5], [9, 10])
    assert chats.slice(None, -4, "chats") == ts.Workload([0], [1], [6])
    assert ts.invented_chats(400).slice(0, 100, "chats").send == ts.invented_chats(100).send
    # Its own rate, whatever was said of the whole.
    assert ts.Workload([0, 1, 4], [1] * 3, [1] * 3, rate=9).slice(1).rate == 1 / 3


@given(workloads(), st.data())
def test_a_cut_in_two_loses_nobody(chats, data):
    cut = data.draw(st.sampled_from(chats.send))
    parts = [(None, cut, "seconds"), (cut, None, "seconds")]
    number = data.draw(st.integers(0, len(chats)))
    for pair in (parts, [(0, number, "chats"), (number, None, "chats")]):
        kept = []
        for start, stop, by in pair:
            try:
                part = chats.slice(start, stop, by)
            except ValueError as error:
                assert "no chat is in slice(" in str(error)
                continue
            assert part.send[0] == 0
            kept += zip(part.prompts, part.replies)
        assert kept == list(zip(chats.prompts, chats.replies))


@pytest.mark.parametrize(
    "bounds",
    [(9.5, 12), (5, 5), (6, 5), (6, 8), (5, 9, "chats"), (2, 2, "chats"), (-1, 0, "chats")],
)
def test_an_empty_slice_is_named(bounds):
    chats = ts.Workload([2, 3, 5, 5, 9], [1] * 5, [1] * 5)
    with pytest.raises(ValueError) as error:
        chats.slice(*bounds)
    assert named(error, f"slice({bounds[0]}, {bounds[1]}, ", "5 chats, sent from 2.000 to 9.000 s")


@pytest.mark.parametrize("bad", [*NOT_FINITE, *NOT_NUMBERS, HUGE], ids=short)
def test_bounds_are_refused(bad):
    chats = ts.invented_chats(9)
    if bad is None:  # an open end
        return
    for by in ("seconds", "chats"):
        for name in ("start", "stop"):
            with pytest.raises(ValueError) as error:
                chats.slice(by=by, **{name: bad})
            assert named(error, name, repr(bad))
    with pytest.raises(ValueError, match=r"start must be a whole number .* not 1\.5"):
        chats.slice(1.5, by="chats")


@pytest.mark.parametrize("by", ["second", "", None, 3, ["chats"], {}])
def test_an_unknown_by_is_refused(by):
    with pytest.raises(ValueError) as error:
        ts.invented_chats(9).slice(1, by=by)
    assert named(error, "'seconds' or 'chats'", repr(by))


def test_lengths_are_scaled_and_rounded():
    chats = ts.Workload([0, 1, 2, 3], [1, 3, 5, 100], [10, 1, 2, 7], rate=4)
    # 0.5, 1.5 and 2.5: a half to the even one, and never under one token.
    assert chats.scale_tokens(prompts=0.5).prompts == (1, 2, 2, 50)
    assert chats.scale_tokens(replies=1.5).replies == (15, 2, 3, 10)
    both = chats.scale_tokens(prompts=2, replies=3)
    assert (both.prompts, both.replies) == ((2, 6, 10, 200), (30, 3, 6, 21))
    assert (both.send, both.rate) == (chats.send, 4)
    assert chats.scale_tokens() == chats
    with pytest.raises(TypeError):
        chats.scale_tokens(2)  # of which?


@pytest.mark.parametrize("bad", BAD_MEASURES, ids=short)
def test_factors_are_refused(bad):
    chats = ts.invented_chats(9)
    for name, change in {
        "factor": chats.speed,
        "factor of prompts": lambda factor: chats.scale_tokens(prompts=factor),
        "factor of replies": lambda factor: chats.scale_tokens(replies=factor),
    }.items():
        with pytest.raises(ValueError) as error:
            change(bad)
        assert named(error, name, repr(bad))


def test_factors_past_what_a_float_holds():
    chats = ts.invented_chats(9)
    for change in (
        lambda: chats.speed(5e-324),
        lambda: chats.speed(1e308).speed(1e308),
        lambda: chats.scale_tokens(replies=1e308),
    ):
        with pytest.raises(ValueError, match=r"finite .* not inf"):
            change()


def test_no_seed_is_refused():
    with pytest.raises(ValueError, match="seed must be a whole number, not None"):
        ts.invented_chats(9).shuffled(None)


def test_notes_go_on_and_say_what_was_done():
    chats = read_log(SAMPLES / "azure2023_conv_400.csv", quiet=True)
    found, cut = chats.notes.lines, chats.slice(10, 40)
    said = {
        "then sent at 8 chats a second, not 3.752": chats.at_rate(8),
        "then sent at 2 times the speed": chats.speed(2),
        "then cut to chats 13 to 88 of 400 chats, sent from 0.000 to 106.330 s": cut,
        "then prompts times 1, replies times 0.5, in whole tokens": chats.scale_tokens(replies=0.5),
        "then prompts and replies in another order, seed 3": chats.shuffled(3),
    }
    for line, changed in said.items():
        assert changed.notes.lines == (*found, line)
        assert changed.notes[:5] == chats.notes[:5]
    assert chats.notes.lines == found  # the log's own are as they were
    assert cut.prompts == chats.prompts[13:89]
    assert chats.send[12] < 10 <= chats.send[13] and chats.send[88] < 40 <= chats.send[89]
    # All of it, in the order in which it was done.
    long = chats.slice(0, 300, by="chats").speed(2).shuffled(1).at_rate(9).scale_tokens(prompts=2)
    assert long.notes.lines[: len(found)] == found and len(long.notes.lines) == len(found) + 5
    assert str(long.notes).endswith("prompts times 2, replies times 1, in whole tokens")
    assert ts.invented_chats(9).at_rate(3).shuffled(2).notes is None


def test_another_seed_is_another_order():
    chats = ts.invented_chats()
    orders = {chats.shuffled(seed).prompts for seed in range(10)}
    assert len(orders | {chats.prompts}) == 11


def named(error, *parts):
    """Whether the error's text has all the parts."""
    return all(part in str(error.value) for part in parts)


@pytest.mark.parametrize("bad", BAD_TIMES, ids=short)
def test_times_are_refused(bad):
    with pytest.raises(ValueError) as error:
        ts.Workload([0, bad, 2], [1] * 3, [1] * 3)
    assert named(error, "send time of chat 1", repr(bad))


@pytest.mark.parametrize("bad", BAD_COUNTS, ids=short)
def test_token_counts_are_refused(bad):
    with pytest.raises(ValueError) as error:
        ts.Workload([0, 1, 2], [1, 1, bad], [1] * 3)
    assert named(error, "prompt of chat 2", repr(bad))
    with pytest.raises(ValueError) as error:
        ts.Workload([0, 1, 2], [1] * 3, [bad, 1, 1])
    assert named(error, "reply of chat 0", repr(bad))
    for draw in (ts.invented_chats, lambda n: ts.batching_requests("mixed", n)):
        with pytest.raises(ValueError) as error:
            draw(bad)
        assert named(error, "n must be", repr(bad))


@pytest.mark.parametrize("bad", BAD_MEASURES, ids=short)
def test_rates_are_refused(bad):
    with pytest.raises(ValueError) as error:
        ts.invented_chats(3).at_rate(bad)
    assert named(error, "rate", repr(bad))
    if bad is not None:  # left out
        with pytest.raises(ValueError) as error:
            ts.Workload([0, 1], [1, 1], [1, 1], rate=bad)
        assert named(error, "rate", repr(bad))


def test_shapes_are_refused():
    with pytest.raises(ValueError, match="at least one chat, not 0"):
        ts.Workload([], [], [])
    with pytest.raises(ValueError, match="2, 3 and 1"):
        ts.Workload([0, 1], [1, 2, 3], [1])
    with pytest.raises(ValueError, match=r"chat 2 is sent at 0\.5, chat 1 at 1\.0"):
        ts.Workload([0, 1.0, 0.5], [1] * 3, [1] * 3)
    for not_a_sequence in (None, 5, 0.5, True):
        for place in range(3):
            columns = [[1], [1], [1]]
            columns[place] = not_a_sequence
            with pytest.raises(ValueError) as error:
                ts.Workload(*columns)
            assert repr(not_a_sequence) in str(error.value)
    with pytest.raises(ValueError):
        ts.Workload("0", [1], [1])
    with pytest.raises(ValueError):
        ts.Workload(np.zeros((2, 2)), [1, 1], [1, 1])
    with pytest.raises(ValueError, match="nan"):
        ts.Workload(pd.Series([0, None]), [1, 1], [1, 1])


@pytest.mark.parametrize("mix", ["Mixed", "", None, 3, ["mixed"], {}])
def test_an_unknown_mix_is_refused(mix):
    with pytest.raises(ValueError) as error:
        ts.batching_requests(mix)
    assert named(error, "very mixed", repr(mix))


def test_chats_sent_at_once_have_no_rate_to_change():
    with pytest.raises(ValueError, match="cannot send at rate 2"):
        ts.Workload([3, 3], [1, 1], [1, 1]).at_rate(2)
    # One drawn chat has the rate of the draw.
    assert ts.invented_chats(1).at_rate(40).send == (0.0,)


def test_gaps_too_small_or_times_too_large_for_a_float():
    tiny = ts.Workload([0, 5e-324], [1, 1], [1, 1])  # n - 1 gaps over 5e-324 s overflow
    assert tiny.rate is None or math.isfinite(tiny.rate)
    with pytest.raises(ValueError):
        ts.invented_chats(3).at_rate(5e-324)  # 1e323 s between two chats
    assert ts.invented_chats(3).at_rate(1e300).send[0] == 0
