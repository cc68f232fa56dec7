"""Waits split into causes: worked by hand, against a second and slow splitting, and as a law."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from test_fast import settings as any_server
from test_metrics import OneJoins

import tinyserve as ts
from tinyserve import fast
from tinyserve.causes import Band, Wait, bands, causes_table, change_table, split_waits

CHATS = ts.invented_chats(400)
HEAVY = ts.serve(CHATS.at_rate(40), pages=240, limit=16)
LIGHT = ts.serve(CHATS.at_rate(10), pages=240, limit=16)
NONE = Wait(0, 0, 0, 0, 0, 0, 0)

# A server on which reading or writing a token takes one second, and a page holds one token:
# a step is as many seconds as it has running chats and prompt tokens.
ONE = ts.Model("one operation", weights=1, layers=1, kv_heads=1, head_size=1)
A_SECOND = ts.Chip("two operations a second", peak=2, bandwidth=1e9, memory=1e9)
SECONDS = {"page_size": 1, "model": ONE, "chip": A_SECOND}


def adds_up(run):
    """Whether each chat's parts add up to its TTFT, and none is negative."""
    waits = split_waits(run)
    for wait, first, sent in zip(waits, run.first, run.workload.send, strict=True):
        assert math.fsum(wait) == sum(wait) == first - sent
        assert min(wait) >= 0
    return waits


# By hand.


def test_three_chats_and_a_small_pool():
    # A (prompt 3, reply 3) needs 6 of 8 pages; B (2, 2) is sent at 1 and C (1, 1) at 1.5.
    # Step 1, 0 to 3: A reads. Step 2, 3 to 4, and 3, 4 to 5: A writes, B's 4 pages do not fit.
    # Step 4, 5 to 8: A is gone; B and C read, 2 and 1 seconds.
    chats = ts.Workload([0, 1, 1.5], [3, 2, 1], [3, 2, 1])
    run = ts.serve(chats, pages=8, limit=2, **SECONDS)
    assert [step.blocked for step in run.steps] == ["", "cache", "cache", "", ""]
    assert split_waits(run) == [
        NONE._replace(own_prompt=3),
        NONE._replace(under_way=2, cache=2, own_prompt=2, other_prompts=1),
        NONE._replace(under_way=1.5, cache=2, own_prompt=1, other_prompts=2),
    ]


def test_one_place_and_a_small_pool():
    # The same chats with one place. At 3 and 4, A holds B out with its pages and its place. At
    # 5, B reads until 7 and writes until 8; C's 2 pages would fit, but there is no place.
    chats = ts.Workload([0, 1, 1.5], [3, 2, 1], [3, 2, 1])
    run = ts.serve(chats, pages=8, limit=1, **SECONDS)
    assert split_waits(run) == [
        NONE._replace(own_prompt=3),
        NONE._replace(under_way=2, both=2, own_prompt=2),
        NONE._replace(under_way=1.5, both=2, place=3, own_prompt=1),
    ]


def test_who_stands_behind_waits_for_what_holds_the_head_out():
    # B (6 pages) waits for A's pages from 1 on. C needs 2, which are there, but is behind B.
    chats = ts.Workload([0, 0, 0], [1, 2, 1], [4, 4, 1])
    run = ts.serve(chats, pages=7, limit=9, **SECONDS)
    assert [step.blocked for step in run.steps[:4]] == ["cache"] * 4
    first, second, third = split_waits(run)
    assert first == NONE._replace(own_prompt=1)
    # A reads 1 s and writes 3 s: B reads from 4 to 6, and writes until 9. Then C.
    assert second == NONE._replace(cache=4, own_prompt=2)
    assert third == NONE._replace(cache=9, own_prompt=1)


def test_a_prompt_hides_behind_the_weights():
    # The weights take 4 s, a token 1 s, and both prompts come to an idle server: 5 s for 3 + 2.
    # Alone each would have had 4 s, as the weights have. Sent 10 s late, or not, is the same.
    model = replace(ONE, weights=10**6)
    chip = ts.Chip("slow memory", peak=2e6, bandwidth=5e5, memory=1e9)
    for late in (0, 10):
        chats = ts.Workload([late, late], [3, 2], [1, 1])
        run = ts.serve(chats, 99, 9, 1, model, chip)
        assert run.first == [late + 5] * 2
        assert split_waits(run) == [NONE._replace(own_prompt=4, other_prompts=1)] * 2


def test_sent_as_a_step_ends():
    # B is sent at 3, when A's first step ends: no step is under way, and it joins the next one.
    # At 4 both are done; C is sent at 7, to an idle server, whose clock jumps.
    chats = ts.Workload([0, 3, 7], [3, 2, 1], [2, 1, 1])
    waits = split_waits(ts.serve(chats, pages=99, limit=9, **SECONDS))
    # B's step: one token for A, two for its prompt. That A writes is no other prompt.
    assert waits[1:] == [NONE._replace(own_prompt=3), NONE._replace(own_prompt=1)]


def test_a_run_of_the_book():
    waits = adds_up(HEAVY)
    report = ts.report(HEAVY)
    assert ts.percentile(list(map(sum, waits)), 99) == report.ttft_p99
    # The chats sent before the cache was full were never held out by it: they have no such part.
    early = [w for w, joined in zip(waits, HEAVY.admitted) if joined <= report.cache_full_at]
    assert early and not any(w.cache or w.both for w in early)
    assert not any(wait.cache or wait.place or wait.both or wait.other for wait in adds_up(LIGHT))
    more = adds_up(ts.serve(CHATS.at_rate(40), pages=960, limit=16))
    assert any(wait.place for wait in more) and not any(w.cache or w.both for w in more)


# A second splitting, in fractions: every step is looked at for every chat.


def seconds_of(running, context, prompts, model, chip):
    """A step's cost by the roofline's words, exactly."""
    peak = Fraction(chip.peak) * Fraction(chip.peak_share)
    bandwidth = Fraction(chip.bandwidth) * Fraction(chip.bandwidth_share)
    flops = 2 * model.weights * (running + sum(prompts))
    if model.attention:
        pairs = context + sum(1 + token for prompt in prompts for token in range(prompt))
        flops += 4 * model.layers * model.heads * model.head_size * pairs
    cached = 2 * model.layers * model.kv_heads * model.head_size * model.bytes_per_value
    read = model.bytes_per_value * model.weights + cached * context
    return max(flops / peak, read / bandwidth) + Fraction(chip.overhead)


def slow_split(run):
    """The parts of each chat's wait, as dicts of Fractions."""
    work, starts = run.workload, [Fraction(step.start) for step in run.steps]
    in_words = {"cache": "cache", "batch": "place", "cache and batch": "both"}
    joins = [starts.index(Fraction(time)) for time in run.admitted]
    result = []
    for chat, sent in enumerate(map(Fraction, work.send)):
        parts = dict.fromkeys(Wait._fields, Fraction(0))
        for start, after, step in zip(starts, [*starts[1:], None], run.steps):
            if after is not None and start < sent < after:
                parts["under_way"] = after - sent
            if sent <= start < starts[joins[chat]]:
                parts[in_words.get(step.blocked, "other")] += after - start
        mine = joins[chat]
        context = running = 0
        for other in range(len(work)):
            age = mine - joins[other]
            if 0 < age < work.replies[other]:  # it joined before, and has more to write
                running += 1
                context += work.prompts[other] + age
        alone = seconds_of(running, context, [work.prompts[chat]], run.model, run.chip)
        prompts = [p for p, joined in zip(work.prompts, joins) if joined == mine]
        together = seconds_of(running, context, prompts, run.model, run.chip)
        parts["own_prompt"], parts["other_prompts"] = alone, together - alone
        result.append(parts)
    return result


@given(any_server())
def test_the_slow_splitting_finds_the_same(arguments):
    run = ts.serve(*arguments)
    for wait, parts in zip(adds_up(run), slow_split(run), strict=True):
        for part, exact in parts.items():
            # The clock is a float, so that a step's length is known to a few of its digits.
            near = 8 * math.ulp(run.done[-1] + max(run.done)) + 1e-12 * sum(wait)
            assert abs(getattr(wait, part) - exact) <= near, part


def test_the_slow_splitting_of_the_book():
    for settings in ((240, 16), (480, 24)):
        run = ts.serve(CHATS.slice(0, 150, by="chats").at_rate(40), *settings)
        for wait, parts in zip(adds_up(run), slow_split(run), strict=True):
            assert all(abs(getattr(wait, part) - parts[part]) < 1e-13 for part in parts)


@given(any_server())
def test_what_no_step_recorded_is_in_no_part(arguments):
    run = ts.serve(*arguments)
    waits = split_waits(run)
    reasons = {step.blocked for step in run.steps}
    for part, reason in {"cache": "cache", "place": "batch", "both": "cache and batch"}.items():
        held = any(getattr(wait, part) > 0 for wait in waits)
        assert held == (reason in reasons), part
    assert not any(wait.other for wait in waits)
    for wait, sent, joined in zip(waits, run.workload.send, run.admitted):
        if joined == sent:  # it came to an idle server, or just as a step ended
            assert wait[:5] == (0, 0, 0, 0, 0)
    shared = {step.start for step in run.steps if step.joined > 1}
    for wait, joined in zip(waits, run.admitted):
        assert wait.other_prompts == 0 or joined in shared


@given(any_server())
def test_every_record_of_the_steps_will_do(arguments):
    assert split_waits(fast.serve(*arguments)) == split_waits(ts.serve(*arguments))


def test_a_long_run_adds_up_too():
    run = fast.serve(ts.invented_chats(20_000).at_rate(24), 240, 16)
    waits = adds_up(run)
    held = {step.blocked for step in run.steps}
    assert held == {"", "cache", "batch", "cache and batch"}
    # Late in a run as at its start, a part is right to the last digits of the clock.
    for chat in (19_000, 19_500, 19_999):
        wait, sent = waits[chat], run.workload.send[chat]
        queued = run.admitted[chat] - min(s.start for s in run.steps if s.start >= sent)
        assert math.isclose(sum(wait[:4]), queued, rel_tol=0, abs_tol=1e-12)


# Servers with another rule.


class Overtaking(ts.Server):
    """Takes every chat that fits, whoever stands before it."""

    def admit(self):
        self.joined, self.blocked = [], ""
        for chat in list(self.queue):
            if reason := self.held_out(chat):
                self.blocked = self.blocked or reason
            else:
                self.queue.remove(chat)
                self.pool.promise(chat, self.workload.total(chat))
                self.joined.append(chat)
                self.admitted[chat] = self.now


class Silent(OneJoins):
    """Reads one prompt a step, and does not say why."""

    def record(self):
        self.blocked = ""
        super().record()


class Metronome(ts.Server):
    """A clock of its own: every step takes a second."""

    def cost(self):
        self.start, self.seconds = self.now, 1.0
        self.now += 1.0


class Again(ts.Server):
    """Counts a chat as new in its first two steps, as one that is thrown out and let in again."""

    def write(self):
        self.again = [c for c, made in self.running.items() if made == 1]
        super().write()

    def record(self):
        self.joined = [*self.joined, *self.again]
        super().record()


def test_another_rule_has_its_part():
    crowd = ts.Workload([0] * 3, [50] * 3, [2] * 3)
    for server in (OneJoins, Silent):
        run = server(crowd, pages=1000, limit=64).serve()
        waits = adds_up(run)
        # Chat 2 waits for two steps, of one prompt each, and then has its own.
        start = [step.start for step in run.steps]
        assert [wait.other for wait in waits] == start[:3]
        assert all(wait[:3] == (0, 0, 0) and wait.other_prompts == 0 for wait in waits)


def test_a_queue_that_is_no_queue():
    # B (9 pages) waits for A to be done; C (2 pages), sent last, goes before it.
    chats = ts.Workload([0, 1, 1.5], [3, 7, 1], [4, 2, 1])
    run = Overtaking(chats, 10, 9, **SECONDS).serve()
    # A reads until 3; A writes and C reads until 5; A writes until 6 and 7; B reads until 14.
    assert run.admitted == [0, 7, 3]
    assert adds_up(run) == [
        NONE._replace(own_prompt=3),
        NONE._replace(under_way=2, cache=4, own_prompt=7),
        NONE._replace(under_way=1.5, own_prompt=2),
    ]


def test_clocks_and_records_of_other_servers_still_add_up():
    for server in (Overtaking, Silent, Metronome, Again, OneJoins):
        run = server(CHATS.slice(0, 100, by="chats").at_rate(40), 60, 6).serve()
        adds_up(run)
    chats = ts.Workload([0, 0], [30, 20], [2, 1])
    waits = adds_up(Metronome(chats, 60, 6).serve())
    # Fifty tokens take less than the weights: no prompt made the step longer.
    assert waits == [NONE._replace(own_prompt=1)] * 2
    # A reads its 3 tokens, then counts as new again beside B: of the 3 s, B's own are 2.
    run = Again(ts.Workload([0, 3], [3, 2], [3, 1]), 99, 9, **SECONDS).serve()
    assert run.steps[1].joined == 2
    assert adds_up(run)[1] == NONE._replace(own_prompt=2, other_prompts=1)


def test_a_clock_that_stands_still():
    # A step of 1e-12 s at 1e9 s: the clock can't show it, and every wait is 0.
    chip = ts.Chip("too quick", peak=1e13, bandwidth=1e13, memory=1)
    run = ts.serve(ts.Workload([1e9] * 3, [3, 2, 1], [3, 2, 1]), 99, 2, 1, ONE, chip)
    assert adds_up(run) == [NONE] * 3


# What is refused.


@pytest.mark.parametrize("record", ["summary", "seconds"])
def test_a_summary_is_refused(record):
    run = fast.serve(CHATS.at_rate(40), 240, 16, record=record)
    for read in (split_waits, bands, causes_table):
        with pytest.raises(TypeError, match="kept a summary and not its steps"):
            read(run)


def test_steps_of_another_run_are_refused():
    with pytest.raises(ValueError, match=r"not those of the run's chats: chat \d+, admitted at"):
        split_waits(HEAVY._replace(steps=HEAVY.steps[:50]))
    late = [time + 0.001 for time in HEAVY.admitted]
    for other in (
        HEAVY._replace(steps=[]),
        HEAVY._replace(admitted=late),
        HEAVY._replace(workload=CHATS.at_rate(10)),  # admitted before they were sent
    ):
        with pytest.raises(ValueError, match="joins in none of them"):
            split_waits(other)


@pytest.mark.parametrize("edges", [(90, 50), (50, 50), (0, 50), (50, 100), ("50",), (math.nan,)])
def test_edges_are_refused(edges):
    with pytest.raises(ValueError) as error:
        bands(LIGHT, edges)
    assert "edge" in str(error.value)


# Bands and their table.


def test_bands_are_the_chats_by_rank():
    found = bands(HEAVY)
    waits = sorted(split_waits(HEAVY), key=sum)
    report = ts.report(HEAVY)
    assert [band.name for band in found] == ["up to p50", "p50 to p90", "p90 to p99", "beyond p99"]
    assert [band.chats for band in found] == [200, 160, 36, 4]
    ttft = [first - sent for first, sent in zip(HEAVY.first, HEAVY.workload.send)]
    ends = [report.ttft_p50, ts.percentile(ttft, 90), report.ttft_p99, max(ttft)]
    assert [band.longest for band in found] == ends
    for part in Wait._fields:
        slowest = [getattr(wait, part) for wait in waits[-4:]]
        assert getattr(found[-1].wait, part) == pytest.approx(np.mean(slowest), rel=1e-12)
    # All together they are the mean TTFT.
    whole = sum(band.chats * sum(band.wait) for band in found) / 400
    assert whole == pytest.approx(np.mean(ttft), rel=1e-12)


def test_bands_without_chats_are_left_out():
    one = ts.serve(ts.Workload([0], [30], [2]), 60, 6)
    [band] = bands(one)
    assert isinstance(band, Band) and band[:3] == ("up to p50", 1, one.first[0])
    assert [band.chats for band in bands(one, ())] == [1]
    ninety = ts.serve(CHATS.slice(0, 90, by="chats"), 240, 16)
    assert [(band.name, band.chats) for band in bands(ninety)] == [
        ("up to p50", 45),
        ("p50 to p90", 36),
        ("p90 to p99", 9),
    ]
    found = bands(LIGHT, (99.5, np.float64(99.75)))
    assert [(b.name, b.chats) for b in found] == [
        ("up to p99.5", 398),
        ("p99.5 to p99.75", 1),
        ("beyond p99.75", 1),
    ]


def test_the_table():
    table = causes_table(HEAVY)
    assert isinstance(table, pd.DataFrame)
    assert list(table.index) == [band.name for band in bands(HEAVY)] + ["all"]
    assert "other s" not in table.columns
    assert list(table["chats"]) == ["200", "160", "36", "4", "400"]
    assert table.loc["p90 to p99", "longest s"] == "3.492"
    [mean] = bands(HEAVY, ())
    assert table.loc["all", "cache s"] == f"{mean.wait.cache:.3f}"
    assert table.loc["all", "others' prompts s"] == f"{mean.wait.other_prompts:.3f}"
    for _, row in table.astype(float).iterrows():  # up to the rounding of six parts and a sum
        assert sum(row.iloc[3:]) == pytest.approx(row["mean s"], abs=0.0035)
    crowd = ts.Workload([0] * 30, [50] * 30, [2] * 30)
    other = causes_table(OneJoins(crowd, pages=1000, limit=64).serve(), ())
    assert list(other.index) == ["all"] and float(other.loc["all", "other s"]) > 0


def test_the_table_of_what_changed():
    table = change_table(LIGHT, HEAVY).astype(float)
    assert list(table.index) == [band.name for band in bands(HEAVY)]
    for name, light, heavy in zip(table.index, waits_by_band(LIGHT), waits_by_band(HEAVY)):
        row = table.loc[name]
        assert list(row.iloc[:2]) == pytest.approx([light, heavy], abs=0.0006)
        assert sum(row.iloc[2:]) == pytest.approx(heavy - light, abs=0.004)
    # The light run has no queue, so what it waited for the cache afterwards is all new.
    assert table["more cache s"].min() > 0.8 and "more other s" not in table.columns
    assert (change_table(HEAVY, HEAVY).astype(float).iloc[:, 2:] == 0).all().all()


def waits_by_band(run):
    """The mean TTFT of each band, from the times alone."""
    ttft = sorted(first - sent for first, sent in zip(run.first, run.workload.send))
    return [
        sum(part) / len(part) for part in (ttft[:200], ttft[200:360], ttft[360:396], ttft[396:])
    ]


def test_the_names():
    assert ts.split_waits is split_waits and ts.Wait is Wait
