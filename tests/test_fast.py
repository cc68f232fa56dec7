"""The counted server gives the plain server's Run, to the last bit, and the same report."""

import importlib.util
import pickle
import runpy
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import workloads

import tinyserve as ts
from tinyserve import fast

CHIPS = [
    ts.A100,
    ts.Chip("slow", peak=3e12, bandwidth=1e11, memory=8e9),
    ts.Chip("odd", peak=1e12 / 3, bandwidth=1e12 / 7, memory=8e9),  # nothing comes out even
    ts.Chip("real", 312e12, 2039e9, 80e9, peak_share=0.8, bandwidth_share=0.75, overhead=0.00148),
    ts.Chip("late", 312e12, 2039e9, 80e9, overhead=1 / 3),
]
MODELS = [
    ts.LLAMA_8B,
    ts.Model("small", weights=10**8, layers=3, kv_heads=1, head_size=7),
    ts.Model("wide", weights=10**14 + 1, layers=10**5, kv_heads=9, head_size=11),  # past 2**53
    replace(ts.LLAMA_8B, attention=True),
    ts.Model("deep", 10**8, 10**4, kv_heads=9, head_size=11, heads=99, attention=True),
]
HEAVY = (ts.invented_chats(400).at_rate(40), 240, 16)
NO_NUMBA = importlib.util.find_spec("numba") is None
COMPILED = pytest.mark.skipif(NO_NUMBA, reason="numba is not installed: pip install numba")
LOOPS = [False, pytest.param(True, marks=COMPILED)]


@st.composite
def settings(draw):
    """Arguments of `serve`: from one chat to forty, page sizes from 1 to 64 and one above all."""
    sizes = draw(st.sampled_from([(6, 40, 5), (10, 150, 25), (40, 20, 70)]))
    chats = draw(workloads(*sizes))
    page_size = draw(st.one_of(st.integers(1, 64), st.just(10**6)))
    need = max(ts.pages_for(chats.total(chat), page_size) for chat in range(len(chats)))
    pages = need + draw(st.integers(0, 3 * need))
    limit = draw(st.one_of(st.integers(1, 12), st.just(10**6)))
    return (chats, pages, limit, page_size, *map(draw, map(st.sampled_from, (MODELS, CHIPS))))


def of_the_plain_steps(steps):
    """The rows of record="seconds", the plain way."""
    for second, inside in groupby(steps, lambda step: int(step.start)):
        inside = list(inside)
        yield (
            second,
            len(inside),
            sum(step.chats for step in inside),
            sum(step.joined for step in inside),
            max(step.queue for step in inside),
            max(step.held for step in inside),
            max(step.held + step.owed for step in inside),
            sum("cache" in step.blocked for step in inside),
            sum("batch" in step.blocked for step in inside),
        )


def check_all(arguments, compiled):
    """Every record of a loop against the plain server's Run, field by field."""
    plain = ts.serve(*arguments)
    report = ts.report(plain)
    assert fast.report(plain) == report
    for record in fast.RECORDS:
        run = fast.serve(*arguments, record=record, compiled=compiled)
        assert isinstance(run, ts.Run)
        for name in set(ts.Run._fields) - {"steps", "admitted", "first", "done"}:
            assert getattr(run, name) == getattr(plain, name), name
        for name in ("admitted", "first", "done"):
            assert list(getattr(run, name)) == getattr(plain, name), name
        assert len(run.steps) == len(plain.steps)
        assert fast.report(run) == report
        if record == "steps":
            assert run == plain and plain == run
            assert ts.report(run) == report
        else:
            assert run.steps.tokens == sum(arguments[0].replies)
            rows = list(of_the_plain_steps(plain.steps)) if record == "seconds" else None
            assert run.steps.seconds == rows


@given(settings())
@example((ts.Workload([0], [10**15], [1]), 1, 1, 2 * 10**15, *MODELS[:1], *CHIPS[:1]))
def test_the_counted_run_is_the_plain_run(arguments):
    check_all(arguments, compiled=False)


@COMPILED
@given(settings())
@example((ts.Workload([0], [10**15], [1]), 1, 1, 2 * 10**15, *MODELS[:1], *CHIPS[:1]))
def test_the_compiled_run_is_the_plain_run(arguments):
    check_all(arguments, compiled=True)


@pytest.mark.parametrize("compiled", LOOPS)
@pytest.mark.parametrize(
    "rate, pages, limit", [(10, 240, 16), (40, 240, 16), (40, 352, 16), (40, 25720, 256)]
)
def test_the_books_runs(rate, pages, limit, compiled):
    check_all((ts.invented_chats(400).at_rate(rate), pages, limit), compiled)


@pytest.mark.parametrize("compiled", LOOPS)
def test_runs_of_many_chunks(compiled):
    # Also where the steps end on the edge of a chunk, or one before or behind it.
    for steps in (fast.CHUNK - 1, fast.CHUNK, fast.CHUNK + 1, 2 * fast.CHUNK):
        arguments = (ts.Workload([0, 0.5], [9, 30], [steps, 7]), 2000, 4)
        assert len(ts.serve(*arguments).steps) == steps
        check_all(arguments, compiled)
    arguments = (ts.invented_chats(2000).at_rate(20), 240, 16)
    assert len(ts.serve(*arguments).steps) > 2 * fast.CHUNK
    check_all(arguments, compiled)


@pytest.mark.parametrize("compiled", LOOPS)
@pytest.mark.parametrize(
    "change, value",
    [
        ({"pages": 1}, "0"),
        ({"pages": 0}, "0"),
        ({"pages": 10**12}, str(10**12)),
        ({"limit": 0}, "0"),
        ({"page_size": True}, "True"),
        ({"pages": 0, "page_size": 0, "limit": 0}, "pages"),
        ({"page_size": 0, "limit": 0}, "page_size"),
    ],
)
def test_the_same_is_refused(change, value, compiled):
    settings = {"pages": 60, "limit": 4, "page_size": 16} | change
    messages = []
    for serve, more in ((ts.serve, {}), (fast.serve, {"compiled": compiled})):
        with pytest.raises(ValueError) as error:
            serve(ts.invented_chats(3), **settings, **more)
        messages.append(str(error.value))
    assert messages[0] == messages[1] and value in messages[0]


def test_the_longest_prompt_and_the_longest_reply_may_be_of_two_chats():
    chats = ts.Workload([0, 0], [30, 2], [2, 30])
    assert fast.serve(chats, 32, 2, 1) == ts.serve(chats, 32, 2, 1)
    with pytest.raises(ValueError, match="chat 0 needs 32 pages"):
        fast.serve(chats, 31, 2, 1)


def test_an_unknown_record_is_refused():
    with pytest.raises(ValueError, match="'steps', 'seconds', 'summary', not 'minutes'"):
        fast.serve(*HEAVY, record="minutes")


# Steps that read like the list.


@pytest.mark.parametrize("compiled", LOOPS)
def test_steps_read_like_the_list(compiled):
    steps, plain = fast.serve(*HEAVY, compiled=compiled).steps, ts.serve(*HEAVY).steps
    assert len(steps) == len(plain) and list(steps) == plain
    for at in (0, 1, 700, -1, -len(plain)):
        assert steps[at] == plain[at] and type(steps[at]) is ts.Step
        assert [*map(type, steps[at])] == [*map(type, plain[at])]
    for cut in (slice(3), slice(-3, None), slice(None, None, 97), slice(None, None, -1)):
        assert steps[cut] == plain[cut]
    for at in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            steps[at]
    assert list(reversed(steps)) == plain[::-1]
    assert plain[5] in steps and steps.index(plain[5]) == 5
    assert steps and not fast.Steps()
    assert pickle.loads(pickle.dumps(steps)) == steps
    assert repr(steps) == f"<{len(plain):,} steps>"


def test_steps_equal_what_a_list_of_them_equals():
    steps, plain = fast.serve(*HEAVY).steps, ts.serve(*HEAVY).steps
    other = [*plain[:-1], plain[-1]._replace(queue=7)]
    assert steps == plain and plain == steps and steps == fast.serve(*HEAVY).steps
    assert steps != other and other != steps
    assert steps != plain[:-1] and steps != [] and steps != tuple(plain) and steps != 3
    assert steps != fast.serve(HEAVY[0], 240, 15).steps
    assert fast.Steps() == [] and fast.Steps() == fast.Steps()


def test_the_trace_is_the_same_table():
    pd.testing.assert_frame_equal(fast.serve(*HEAVY).trace(), ts.serve(*HEAVY).trace())


# Summaries.


@pytest.mark.parametrize("record", ["seconds", "summary"])
def test_what_a_summary_does_not_have_is_said(record):
    run = fast.serve(*HEAVY, record=record)
    for read in (ts.report, ts.Run.trace, lambda run: list(run.steps)):
        with pytest.raises(TypeError, match=r"tinyserve\.fast\.report"):
            read(run)


def test_a_summary_does_not_grow_with_the_steps():
    few = fast.serve(ts.invented_chats(2000).at_rate(40), 240, 16, record="summary").steps
    many = fast.serve(ts.invented_chats(40_000).at_rate(40), 240, 16, record="summary").steps
    assert many.steps > 19 * few.steps
    # A step's length follows from its context or its tokens: at most 240 pages of 16, or 16
    # prompts of 600.
    assert len(few.gaps) < len(many.gaps) < 240 * 16 + 16 * 601


def test_times_that_no_report_can_hold():
    slow = ts.Chip("stopped", peak=1e-300, bandwidth=1e-300, memory=1)
    plain, counted = (serve(*HEAVY, chip=slow) for serve in (ts.serve, fast.serve))
    assert plain.done == counted.done and max(plain.done) == float("inf")
    for read in (ts.report, fast.report):
        with pytest.raises(ValueError, match="must be finite"):
            read(plain)


# The long run: its bar, its end, and what it needs.


@pytest.mark.parametrize("compiled", LOOPS)
def test_progress_is_shown_on_request(compiled, capfd):
    fast.serve(*HEAVY, compiled=compiled)
    assert capfd.readouterr().err == ""
    fast.serve(*HEAVY, progress=True, compiled=compiled)
    assert "400/400" in capfd.readouterr().err


def test_an_interrupted_run_passes_it_on_and_closes_its_bar(monkeypatch):
    import tqdm

    bars = []

    class Bar(tqdm.tqdm):
        def update(self, n=1):
            bars.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    with pytest.raises(KeyboardInterrupt):
        fast.serve(*HEAVY, progress=True)
    assert bars[0].disable  # closed


def test_without_numba_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "tinyserve.compiled", raising=False)
    monkeypatch.delattr(ts, "compiled", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'tinyserve\[compiled\]'"):
        fast.serve(*HEAVY, compiled=True)
    assert fast.serve(*HEAVY) == ts.serve(*HEAVY)


@COMPILED
def test_numbers_past_64_bits_are_left_to_python(monkeypatch):
    from tinyserve import compiled

    def never(*arguments):
        raise AssertionError("compiled code cannot hold these numbers")

    huge = ts.Model("huge", weights=2**52, layers=2**10, kv_heads=2**10, head_size=2**10)
    arguments = (ts.invented_chats(20), 240, 4, 16, huge)
    monkeypatch.setattr(compiled, "counted", never)
    assert fast.serve(*arguments, compiled=True) == ts.serve(*arguments)
    with pytest.raises(AssertionError, match="cannot hold"):
        fast.serve(*HEAVY, compiled=True)


# The benchmark's peer.


@pytest.mark.parametrize("rate, pages, limit", [(10, 240, 16), (40, 240, 16), (35, 25720, 256)])
def test_the_server_on_simpy_is_the_same_server(rate, pages, limit):
    pytest.importorskip("simpy", reason="SimPy is not installed: pip install simpy")
    path = Path(__file__).resolve().parents[1] / "book" / "_tools" / "bench.py"
    simpy_serve = runpy.run_path(str(path))["simpy_serve"]
    chats = ts.invented_chats(400).at_rate(rate)
    # SimPy adds up the gaps between the chats anew, so not to the last bit.
    assert simpy_serve(chats, pages, limit) == pytest.approx(
        ts.serve(chats, pages, limit).first, rel=0, abs=1e-9
    )
