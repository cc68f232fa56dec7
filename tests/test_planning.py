"""What a change does and what a server can take, against cases worked by hand and brute force."""

from dataclasses import replace
from math import inf

import pytest

import tinyserve as ts
from tinyserve import fast, planning
from tinyserve.planning import Change, TooLarge, leave_out_too_large

CHATS = ts.invented_chats(400)
# Every step takes half a second, whatever is in it.
STEADY = ts.Chip("steady", peak=1e30, bandwidth=1e30, memory=80e9, overhead=0.5)


def regular(n, reply=1):
    """n chats, one a second, each with a prompt of one token."""
    return ts.Workload(range(n), [1] * n, [reply] * n)


# --- chats that are too large --------------------------------------------------------------


def test_a_chat_larger_than_the_pool_is_refused_or_left_out():
    """50 pages of 16 tokens hold 800: the first chat needs 58, the one behind it 5."""
    chats = ts.Workload([0, 1], [900, 60], [20, 8])
    with pytest.raises(ValueError, match=r"chat 0 needs 58 pages of 16 .*900.*20.*\b50\b"):
        ts.serve(chats, pages=50, limit=4)
    rest, out = leave_out_too_large(chats, 50)
    assert rest.notes is None  # these are of no log
    assert out == [TooLarge(chat=0, prompt=900, reply=20, pages=58)]
    assert (rest.send, rest.prompts, rest.replies) == ((1,), (60,), (8,))
    assert len(ts.serve(rest, pages=50, limit=4).done) == 1


def test_the_page_size_decides_what_is_too_large():
    chats = ts.Workload([0, 1, 2], [33, 31, 32], [1, 1, 1])
    assert leave_out_too_large(chats, 2, 16) == (
        ts.Workload([1], [31], [1]),
        [TooLarge(0, 33, 1, 3), TooLarge(2, 32, 1, 3)],
    )
    same, out = leave_out_too_large(chats, 1, 34)
    assert same is chats and out == []


def test_what_was_left_out_is_in_the_notes(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,900,20\n1,60,8\n2,9,9\n")
    chats = ts.read_log(log, quiet=True)
    rest, out = leave_out_too_large(chats, 50)
    said = "then left out 1 too large for 50 pages of 16 tokens"
    assert rest.notes.lines == (*chats.notes.lines, said) and len(out) == 1
    assert rest.speed(2).notes.lines[-2] == said  # and it stays
    assert leave_out_too_large(chats, 58)[0].notes == chats.notes


def test_a_list_is_no_workload():
    for refused in (
        lambda: leave_out_too_large([1], 50),
        lambda: ts.what_if([1], 50, 4),
        lambda: ts.can_finish([1], 50, 4),
    ):
        with pytest.raises(ValueError, match=r"workload must be a Workload, not \[1\]"):
            refused()


def test_somebody_must_be_left():
    with pytest.raises(ValueError, match=r"none of 2 chats fits in 50 pages of 16 .* needs 57"):
        leave_out_too_large(ts.Workload([0, 1], [900, 950], [10, 10]), 50)


# --- what if -------------------------------------------------------------------------------


def test_what_if_at_the_books_heavy_rate():
    answer = ts.what_if(CHATS.at_rate(40), 240, 16)
    settings = [(240, 16), (120, 16), (360, 16), (480, 16), (240, 8), (240, 24), (240, 32)]
    assert [row[1:3] for row in answer.rows] == [*settings, (480, 32)]
    for row in answer.rows:
        read = ts.report(ts.serve(CHATS.at_rate(40), row.pages, row.limit))
        assert row[3:] == (read.ttft_p99, read.tbt_p99, read.queue_max, read.wall, 0)
    assert answer.best == answer.rows[3]
    assert answer.best.ttft_p99 == min(row.ttft_p99 for row in answer.rows[1:-1])
    assert answer.said.startswith(
        "Of the single changes, twice the pages helps most: the p99 TTFT goes from 3.492 to 0."
    )
    assert [row.what for row in answer.rows] == [
        "as it is", "half the pages", "1.5 times the pages", "twice the pages",
        "half the places", "1.5 times the places", "twice the places", "twice both",
    ]  # fmt: skip


def test_what_if_when_nothing_helps():
    answer = ts.what_if(CHATS.at_rate(10), 240, 16)
    assert answer.best is None and answer.rows[0].wall == "none"
    assert answer.said == "No single change lowers the p99 TTFT by 10 % or more."
    # From 3.492 s to 0.928 s is 73 % less: a margin above that is not reached.
    heavy = CHATS.at_rate(40)
    assert ts.what_if(heavy, 240, 16, margin=0.73).best is not None
    assert ts.what_if(heavy, 240, 16, margin=0.74).best is None


def test_the_best_change_by_hand():
    """Four chats at once, one token each, half a second a step, one page a chat."""
    chats = ts.Workload([0] * 4, [1] * 4, [1] * 4)
    answer = ts.what_if(chats, 2, 2, [(2, 4), (4, 2), (3, 3), (4, 4), (1, 2), (2, 1)], chip=STEADY)
    # Two at a time: the last first token comes at 1 s. Only more of both helps.
    waits = [1.0, 1.0, 1.0, 1.0, 0.5, 2.0, 2.0]
    assert [row.ttft_p99 for row in answer.rows] == pytest.approx(waits)
    assert answer.best is None
    assert answer.rows[0].tbt_p99 is None  # replies of one token have no gap
    # With pages enough, more places help; of two that help as much the smaller is named.
    answer = ts.what_if(chats, 9, 2, [(9, 8), (9, 4), (9, 3)], margin=0.5, chip=STEADY)
    assert (answer.best.pages, answer.best.limit) == (9, 4)
    assert answer.said == (
        "Of the single changes, twice the places helps most: the p99 TTFT goes from 1.000 to "
        "0.500 s."
    )


def test_a_setting_in_which_a_chat_does_not_fit_is_shown():
    chats = CHATS.at_rate(40)
    answer = ts.what_if(chats, 60, 16, [(30, 16), (60, 8)])
    large = sum(-(-chats.total(chat) // 16) > 30 for chat in range(400))
    assert answer.rows[1] == Change("half the pages", 30, 16, None, None, None, None, large)
    assert f"{large} too large" in repr(answer) and large == 44
    assert answer.best is None
    with pytest.raises(ValueError, match="chat 298 needs 52 pages"):
        ts.what_if(chats, 45, 16)


def test_what_if_passes_on_what_the_server_takes():
    chats = CHATS.at_rate(40)
    answer = ts.what_if(chats, 480, 16, [(960, 16)], page_size=8, chip=STEADY)
    for row in answer.rows:
        read = ts.report(ts.serve(chats, row.pages, row.limit, 8, chip=STEADY))
        assert (row.ttft_p99, row.queue_max) == (read.ttft_p99, read.queue_max)


def test_what_if_small_settings_are_named_once():
    rows = ts.what_if(ts.Workload([0, 0], [1, 1], [1, 1]), 1, 1).rows
    assert [row[1:3] for row in rows] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert rows[-1].what == "twice both"


def test_what_if_as_a_table():
    answer = ts.what_if(CHATS.at_rate(40), 240, 16, [(480, 24), (80, 16)])
    lines = repr(answer).splitlines()
    heads = "pages limit TTFT p99 s TBT p99 ms longest queue wall"
    assert lines[0].split() == heads.split()
    assert lines[1].split()[-6:-1] == ["240", "16", "3.492", "31.3", "94"]
    assert lines[2].strip().startswith("twice the pages, 1.5 times the places ")
    assert lines[3].strip().startswith("0.333 times the pages ")
    assert lines[4] == answer.said
    assert "<table" in answer._repr_html_() and answer.said in answer._repr_html_()


@pytest.mark.parametrize(
    "settings, options, said",
    [
        ([(240,)], {}, r"pair \(pages, limit\), not \(240,\)"),
        ([240], {}, "a setting must be a sequence, not 240"),
        ([(0, 16)], {}, "pages must be a whole number of at least 1, not 0"),
        (None, {"margin": 2}, "margin must be at most 1, not 2"),
        (None, {"page_size": 0}, "page_size .* not 0"),
    ],
)
def test_what_if_refuses(settings, options, said):
    with pytest.raises(ValueError, match=said):
        ts.what_if(CHATS, 240, 16, settings, **options)


# --- goodput -------------------------------------------------------------------------------


def run_of(send, replies, first, done):
    """A Run with these times; the rest of it is not looked at."""
    chats = ts.Workload(send, [1] * len(send), replies)
    return ts.Run(chats, 1, 1, 16, None, None, send, first, done, [])


def test_goodput_by_hand():
    run = run_of(
        send=[0, 0, 1, 2, 3],
        replies=[11, 1, 3, 2, 101],
        first=[1.0, 0.5, 1.25, 4.0, 3.25],
        done=[2.0, 0.5, 3.25, 4.125, 4.5],
    )
    # TTFT 1, 0.5, 0.25, 2, 0.25 s; average gap 0.1 (11 tokens in 1 s), none, 1, 0.125, 0.0125 s.
    assert ts.goodput(run, ttft=0.25) == 2 / 5
    assert ts.goodput(run, ttft=0.5) == 3 / 5  # a limit may be reached
    assert ts.goodput(run, ttft=0.49) == 2 / 5
    assert ts.goodput(run, tbt=0.1) == 3 / 5  # the reply of one token is in
    assert ts.goodput(run, tbt=0.09) == 2 / 5
    assert ts.goodput(run, ttft=1, tbt=0.125) == 3 / 5
    assert ts.goodput(run, ttft=2, tbt=1) == 1


def test_one_long_gap_in_a_long_reply_passes():
    """101 tokens, 99 gaps of 10 ms and one of 1 s: 19.9 ms on average."""
    run = run_of([0], [101], [0.1], [0.1 + 99 * 0.01 + 1])
    assert ts.goodput(run, tbt=0.0199001) == 1 and ts.goodput(run, tbt=0.0198) == 0


@pytest.mark.parametrize("rate", [10, 40])
def test_goodput_and_percentiles_agree(rate):
    """The p99 of 400 is the 396th: 99 of 100 keep a limit at it, fewer one just below."""
    run = ts.serve(CHATS.at_rate(rate), 240, 16)
    read = ts.report(run)
    assert ts.goodput(run, ttft=read.ttft_p99) >= 0.99 > ts.goodput(run, read.ttft_p99 * 0.9999)
    # Every reply has at least two tokens, so each has an average.
    assert ts.goodput(run, tbt=read.mean_tbt_p99) >= 0.99
    assert ts.goodput(run, tbt=read.mean_tbt_p99 * 0.9999) < 0.99
    kept = fast.serve(CHATS.at_rate(rate), 240, 16, record="summary")
    assert ts.goodput(kept, 0.5, 0.02) == ts.goodput(run, 0.5, 0.02)


def test_goodput_refuses():
    run = run_of([0], [2], [1], [2])
    with pytest.raises(ValueError, match="needs a limit on ttft or on tbt"):
        ts.goodput(run)
    with pytest.raises(ValueError, match="ttft must be above 0, not 0"):
        ts.goodput(run, ttft=0)
    with pytest.raises(ValueError, match=r"tbt must be finite .*nan"):
        ts.goodput(run, tbt=float("nan"))


# --- what it can finish --------------------------------------------------------------------


def test_can_finish_by_hand():
    """Half a second a step, one page a chat: five chats of one token, two at a time, take 1.5 s."""
    chats = regular(5)
    assert ts.can_finish(chats, 9, 2, chip=STEADY) == pytest.approx(5 / 1.5)
    assert ts.can_finish(chats, 1, 5, chip=STEADY) == pytest.approx(5 / 2.5)  # the pages
    assert ts.can_finish(chats, 9, 5, chip=STEADY) == pytest.approx(5 / 0.5)
    # How they were sent does not matter, nor when the first was.
    late = ts.Workload([7, 8, 8, 9, 99], [1] * 5, [1] * 5)
    assert ts.can_finish(late, 9, 2, chip=STEADY) == pytest.approx(5 / 1.5)
    for kept in ("steps", "summary"):
        assert ts.can_finish(CHATS, 240, 16, record=kept) == pytest.approx(27.3, abs=0.05)


@pytest.mark.parametrize(
    "chats, pages, limit, said",
    [
        (CHATS, 45, 16, "chat 298 needs 52 pages"),
        (CHATS, 240, 0, "limit .* not 0"),
        (CHATS, 2.5, 16, r"pages .* not 2\.5"),
    ],
)
def test_can_finish_refuses(chats, pages, limit, said):
    with pytest.raises(ValueError, match=said):
        ts.can_finish(chats, pages, limit)


def waits_of_one_place(send, seconds):
    """The mean wait to start, by Lindley's recursion: nothing of the server is in it."""
    free, waits = 0.0, []
    for sent in send:
        waits.append(max(0.0, free - sent))
        free = max(sent, free) + seconds
    return sum(waits) / len(waits)


def test_case_19_no_time_between_steps():
    """Steps of 8 ms against 8 + 2 ms, at 0.9 of what the slower server can finish.

    The step is a quarter longer; the waits are 4.4 times as long by the formula of Pollaczek and
    Khinchine, rho s / (2 (1 - rho)): 10.3 ms at 0.72, 45 ms at 0.9.
    """
    chats = ts.Workload(ts.invented_chats(20_000).send, [1] * 20_000, [1] * 20_000)
    # The weights take 8 ms, and nothing else takes any time.
    ideal = ts.Chip("8 ms", peak=1e30, bandwidth=ts.LLAMA_8B.weight_bytes / 0.008, memory=80e9)
    real, waits = replace(ideal, overhead=0.002), {}
    rate = 0.9 * ts.can_finish(chats, 9, 1, chip=real)
    assert rate == pytest.approx(90)
    for seconds, chip in ((0.008, ideal), (0.010, real)):
        run = fast.serve(chats.at_rate(rate), 9, 1, chip=chip)
        waits[seconds] = sum(a - s for a, s in zip(run.admitted, run.workload.send)) / 20_000
        by_hand = waits_of_one_place(run.workload.send, seconds)
        assert waits[seconds] == pytest.approx(by_hand, rel=1e-6)
    assert waits[0.008] == pytest.approx(0.0103, rel=0.1)
    assert waits[0.010] == pytest.approx(0.045, rel=0.2)
    assert waits[0.010] / waits[0.008] - 1 > 10 * 2 / 8
    # At 0.9 of what the quicker one can finish the slower one is past its limit: no such number.
    rate = 0.9 * ts.can_finish(chats, 9, 1, chip=ideal)
    late = fast.serve(chats.at_rate(rate), 9, 1, chip=real)
    assert late.admitted[-1] - late.workload.send[-1] > 20
    assert "90 chats a second" in ts.can_finish.__doc__ and "4.4 times" in ts.can_finish.__doc__


# --- the highest rate ----------------------------------------------------------------------


@pytest.mark.parametrize("share, place", [(1, 100), (0.5, 50), (0.99, 99), (0.98, 98)])
def test_max_rate_of_regular_arrivals_by_hand(share, place):
    """One place, half a second each, one chat every 1/r s: chat i waits i (0.5 - 1/r) longer.

    The waits grow from chat to chat, so ceil(101 share) chats keep a limit of 1.5 s while the
    last of them, chat `place`, does: place (0.5 - 1/r) <= 1.
    """
    known = 1 / (0.5 - 1 / place)
    found = ts.max_rate(regular(101), ttft=1.5, share=share, pages=9, limit=1, chip=STEADY)
    assert known / 1.001 <= found <= known * (1 + 1e-9)
    closer = ts.max_rate(
        regular(101), 1.5, share=share, pages=9, limit=1, chip=STEADY, precision=1e-6
    )
    assert known / 1.000001 <= closer <= known * (1 + 1e-9)


def test_max_rate_at_the_edges():
    options = {"share": 1, "pages": 9, "limit": 1, "chip": STEADY}
    # Ten chats at once: the last has its token after 5 s.
    assert ts.max_rate(regular(10), ttft=5.1, **options) == inf
    known = 1 / (0.5 - 4.4 / 9)  # 90 a second
    assert known / 1.001 <= ts.max_rate(regular(10), ttft=4.9, **options) <= known * (1 + 1e-9)
    # A step takes longer than the limit, so the goal is missed by a server with nothing to do.
    assert ts.max_rate(regular(10), ttft=0.4, **options) == 0
    # Gaps are as long as a step at any rate.
    assert ts.max_rate(regular(10, reply=2), tbt=0.6, **options) == inf
    assert ts.max_rate(regular(10, reply=2), tbt=0.4, **options) == 0


def test_max_rate_stops_at_the_first_rate_that_fails():
    """A of two tokens, then B, d seconds later. Steps end at 0.5 and 1 s, and B joins the next.

    B's wait is 1.5 - d for d in (0.5, 1], 1 - d for d below: a limit of 0.6 s is kept for d from
    0.9, missed from there down to 0.5, kept again from 0.5 to 0.4, missed below.
    """
    chats = ts.Workload([0, 1], [1, 1], [2, 1])
    options = {"pages": 9, "limit": 2, "chip": STEADY}
    kept = {
        d: ts.goodput(ts.serve(chats.at_rate(1 / d), **options), ttft=0.6)
        for d in (1.2, 0.95, 0.85, 0.6, 0.49, 0.45, 0.35)
    }
    assert kept == {1.2: 1, 0.95: 1, 0.85: 0.5, 0.6: 0.5, 0.49: 1, 0.45: 1, 0.35: 0.5}
    found = ts.max_rate(chats, ttft=0.6, share=1, **options)
    assert 1 / 0.9 / 1.001 <= found <= 1 / 0.9 * (1 + 1e-9)
    # A goal of half of the chats: A's own wait is 0.5 s always.
    assert ts.max_rate(chats, ttft=0.6, share=0.5, **options) == inf


def test_a_fine_grid_sees_what_doubling_passes_over():
    """The same two chats with a limit of 0.8 s, kept for d from 0.7, missed from there to 0.5.

    Rates from 1.43 to 2 miss it, those from 2 to 5 do not: doubled rates jump over these.
    """
    chats = ts.Workload([0, 1], [1, 1], [2, 1])
    options = {"ttft": 0.8, "share": 1, "pages": 9, "limit": 2, "chip": STEADY}
    found = ts.max_rate(chats, **options)
    assert 1 / 0.7 / 1.001 <= found <= 1 / 0.7 * (1 + 1e-9)
    coarse = ts.max_rate(chats, grid=2, **options)
    assert 5 / 1.001 <= coarse <= 5 * (1 + 1e-9)


@pytest.mark.parametrize("chip", [ts.A100, STEADY], ids=["a100", "steady"])
def test_max_rate_against_brute_force(chip):
    """Every rate on a fine grid: the first that fails is where max_rate ends."""
    goal = {"ttft": 1, "tbt": 0.05} if chip is ts.A100 else {"ttft": 20, "tbt": 0.6}

    def holds(rate):
        run = fast.serve(CHATS.at_rate(rate), 240, 16, chip=chip, record="summary")
        chats = zip(run.first, run.done, run.workload.send, run.workload.replies)
        kept = [f - s <= goal["ttft"] and d - f <= goal["tbt"] * (n - 1) for f, d, s, n in chats]
        return 100 * sum(kept) >= 99 * 400

    found = ts.max_rate(CHATS, **goal, pages=240, limit=16, chip=chip)
    assert holds(found) and not holds(found * 1.001)
    low, high = (10, 60) if chip is ts.A100 else (0.1, 3)
    grid = [low * 1.004**k for k in range(500) if low * 1.004**k < high]
    failed = next(rate for rate in grid if not holds(rate))
    assert failed / 1.004 / 1.001 <= found <= failed


def test_a_short_log_forgives_an_overload():
    """The numbers of max_rate's docstring."""
    goal = {"ttft": 1, "tbt": 0.05, "pages": 240, "limit": 16}
    packed = ts.Workload([0] * 400, CHATS.prompts, CHATS.replies)
    pace = ts.report(ts.serve(packed, 240, 16)).chats_per_second
    rates = [ts.max_rate(ts.invented_chats(n), **goal) for n in (400, 2000)]
    assert [f"{rate:.1f}" for rate in (*rates, pace)] == ["29.9", "15.2", "27.3"]
    for number in ("29.9", "15.2", "27.3"):
        assert f" {number}" in ts.max_rate.__doc__


def test_max_rate_is_the_same_for_the_chats_at_any_rate():
    options = {"ttft": 1, "tbt": 0.05, "pages": 240, "limit": 16}
    assert ts.max_rate(CHATS.at_rate(40), **options) == pytest.approx(
        ts.max_rate(CHATS, **options), rel=1e-9
    )


@pytest.mark.parametrize(
    "options, said",
    [
        ({}, "needs a limit"),
        ({"ttft": -1}, "ttft must be above 0, not -1"),
        ({"ttft": 1, "share": 1.1}, "share must be at most 1, not 1.1"),
        ({"ttft": 1, "share": 0}, "share must be above 0, not 0"),
        ({"ttft": 1, "grid": 1}, "grid must be at least 1.001, not 1"),
        ({"ttft": 1, "precision": 0}, "precision must be at least 1e-09, not 0"),
        ({"ttft": 1, "pages": 45}, "chat 298 needs 52 pages"),
        ({"ttft": 1, "limit": 0}, "limit .* not 0"),
    ],
)
def test_max_rate_refuses(options, said):
    with pytest.raises(ValueError, match=said):
        ts.max_rate(CHATS, **{"pages": 240, "limit": 16} | options)


def test_chats_sent_at_once_have_no_rate():
    with pytest.raises(ValueError, match="sent at once"):
        ts.max_rate(ts.Workload([0, 0], [1, 1], [1, 1]), 1, pages=9, limit=1)


def test_goodput_curve():
    rates = [20, 30, 40]
    curve = planning.goodput_curve(CHATS, rates, 1, 0.05, pages=240, limit=16)
    runs = [ts.serve(CHATS.at_rate(rate), 240, 16) for rate in rates]
    assert curve.rates == rates and curve.goal == 0.99
    assert curve.shares == [ts.goodput(run, 1, 0.05) for run in runs]
    assert curve.knee == ts.max_rate(CHATS, 1, 0.05, pages=240, limit=16)
    with pytest.raises(ValueError, match="at least one rate, not 0"):
        planning.goodput_curve(CHATS, [], 1, pages=240, limit=16)


def test_progress_bars(capsys):
    ts.what_if(regular(3), 4, 4, progress=True)
    ts.max_rate(regular(3), 1, pages=4, limit=1, progress=True, chip=STEADY)
    assert "setting" in (said := capsys.readouterr()).err and "rate" in said.err
    assert said.out == ""
