"""A server's own metrics: old and new names, several engines, and a round trip."""

import random
from fractions import Fraction
from itertools import pairwise
from math import inf, isnan
from pathlib import Path

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

import tinyserve as ts
from tinyserve.logs import Histogram, read_metrics, write_metrics

DATA = Path(__file__).parent / "data"
HEAVY = ts.serve(ts.invented_chats().at_rate(40), pages=240, limit=16)


def sample(name):
    return (DATA / f"metrics_{name}.txt").read_text(encoding="utf-8")


def engine(name, number, value):
    return f'vllm:{name}{{engine="{number}",model_name="m"}} {value}\n'


def buckets(name, counts, total=1.0, more=""):
    """A histogram in text: counts is a dict from le to the values at most that."""
    lines = [f'{name}_bucket{{le="{end}"{more}}} {count}' for end, count in counts.items()]
    label = f"{{{more[1:]}}}" if more else ""
    last = list(counts.values())[-1]
    return "\n".join([*lines, f"{name}_count{label} {last}", f"{name}_sum{label} {total}"]) + "\n"


def printed(text, start):
    """The value of the first line of some text that starts so: what grep and cut would give."""
    line = next(line for line in text.splitlines() if line.startswith(start))
    return float(line.rsplit(" ", 1)[1])


# The samples.


def test_vllm_in_the_middle_of_a_run():
    text = sample("vllm")
    read = read_metrics(text)
    assert (read.server, read.running, read.waiting) == ("vLLM", 4, 21)
    assert read.waiting_for == {"capacity": 21, "deferred": 0}
    assert (read.pages, read.page_size, read.kv_tokens) == (63, 32, 2016)
    assert read.kv_use == 45 / 63
    assert (read.prompt_tokens, read.reply_tokens) == (39867, 10190)
    assert (read.preemptions, read.done, read.rejected, read.prefix_hits) == (27, 175, 0, 0)
    assert (read.ttft.count, read.gap.count, read.tpot.count) == (179, 10011, 175)
    assert read.ttft.mean == 268.401020526886 / 179
    for name, ours in (("time_to_first_token", read.ttft), ("inter_token_latency", read.gap)):
        for end, count in ours.buckets.items():
            le = "+Inf" if end == inf else repr(end)
            assert count == printed(text, f'vllm:{name}_seconds_bucket{{engine="0",le="{le}"')
    # The 90th of 179 is the first past the 87 that took at most 0.1 s; the 178th is past 159.
    assert read.ttft.bounds(50) == (0.1, 0.25) and read.ttft.bounds(99) == (5, 7.5)
    assert read.notes == ["of 64 blocks the server keeps one back"]


def test_the_old_names_of_vllm():
    read = read_metrics(sample("vllm_old"))
    assert (read.running, read.swapped, read.kv_use, read.prefix_asked) == (0, 0, 0, 117)
    assert read.pages == 7281  # an engine that swaps keeps no block back
    assert read.gap == Histogram({0.025: 0, 0.05: 6, inf: 6}, 6, 0.19016313552856445)
    assert read.ttft.at_most(50) == "over 0.25 and at most 0.5 s"
    assert "vllm:kv_cache_usage_perc is read, vllm:gpu_cache_usage_perc is not" in read.notes
    blocks = "vllm:gpu_prefix_cache_queries_total 9\nvllm:gpu_prefix_cache_hits_total 4\n"
    read = read_metrics(blocks)
    assert (read.prefix_asked, read.prefix_hits) == (9, 4)
    assert read.notes == ["prefix_asked and prefix_hits are in pages (blocks), not in tokens"]
    assert read_metrics("vllm:gpu_cache_usage_perc 0.25\n").kv_use == 0.25


def test_sglang_and_llamacpp():
    read = read_metrics(sample("sglang"))
    assert (read.server, read.running, read.waiting, read.kv_use) == ("SGLang", 0, 0, 0.25)
    assert read.kv_tokens == 430839 and read.gap.bounds(99) == (0, 0.01)
    assert read.pages is None and read.done is None
    read = read_metrics(sample("llamacpp"))
    assert (read.server, read.prompt_tokens, read.reply_tokens) == ("llama.cpp", 143, 673)
    assert (read.prompt_seconds, read.reply_seconds) == (8.168, 29.567)
    assert read.running is None and read.ttft is None
    read = read_metrics("llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\n")
    assert (read.running, read.waiting) == (3, 1)


# The cases from the field.


def test_case_8_a_quantile_out_of_wide_buckets_is_a_bound():
    counts = {"0.1": 0, "0.3": 100, "0.5": 100, "+Inf": 100}
    read = read_metrics(buckets("vllm:time_to_first_token_seconds", {"0.3": 100, "+Inf": 100}))
    assert read.ttft.at_most(99) == "at most 0.3 s"
    read = read_metrics(buckets("vllm:time_to_first_token_seconds", counts))
    assert read.ttft.at_most(99) == "over 0.1 and at most 0.3 s"
    assert read.ttft.bounds(99) == (0.1, 0.3)
    past = read_metrics(buckets("vllm:time_to_first_token_seconds", {"80": 1, "+Inf": 2})).ttft
    assert past.bounds(99) == (80, inf) and past.at_most(99) == "over 80 s"
    none = read_metrics(buckets("vllm:time_to_first_token_seconds", {"80": 0, "+Inf": 0})).ttft
    assert none.bounds(99) == (None, None) and none.at_most(1) == "no values" and none.mean is None


def test_case_9_several_engines():
    text = "".join(
        engine("kv_cache_usage_perc", i, 0.4) + engine("prompt_tokens_total", i, count)
        + engine("num_requests_running", i, i + 1)
        for i, count in enumerate((500, 700))
    )  # fmt: skip
    read = read_metrics(text)
    assert (read.kv_use, read.prompt_tokens, read.running) == (0.4, 1200, 3)
    assert [part.prompt_tokens for part in read.engines.values()] == [500, 700]
    assert list(read.engines) == [
        (("model_name", "m"), ("engine", "0")),
        (("model_name", "m"), ("engine", "1")),
    ]


def test_engines_of_unequal_caches_are_weighed():
    text = "".join(
        engine("kv_cache_usage_perc", i, use)
        + f'vllm:cache_config_info{{block_size="16",engine="{i}",num_gpu_blocks="{blocks}"}} 1\n'
        for i, (use, blocks) in enumerate(((1.0, 101), (0.5, 301)))
    )
    read = read_metrics(text)
    assert read.kv_use == (100 + 150) / 400 and (read.pages, read.page_size) == (400, 16)


def test_the_histograms_of_engines_add_up_where_both_have_a_bucket():
    name = "vllm:inter_token_latency_seconds"
    text = buckets(name, {"0.1": 1, "0.2": 3, "+Inf": 4}, 1.0, ',engine="0"')
    text += buckets(name, {"0.2": 5, "0.5": 6, "+Inf": 6}, 0.5, ',engine="1"')
    assert read_metrics(text).gap == Histogram({0.2: 8, inf: 10}, 10, 1.5)


def test_ranks_that_share_the_work_count_once():
    text = "".join(f'sglang:num_running_reqs{{model_name="m",tp_rank="{r}"}} 5\n' for r in range(4))
    read = read_metrics(text)
    assert read.running == 5 and "3 ranks other than 0" in read.notes[0]


def test_what_belongs_to_no_engine_is_in_the_whole():
    text = engine("prompt_tokens_total", 0, 1) + engine("prompt_tokens_total", 1, 2)
    rejected = 'vllm:admission_rejections_total{model_name="m",reason="queue"} 7\n'
    assert read_metrics(text + rejected).rejected == 7
    info = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="64"} 1.0\n'
    assert read_metrics(text + info).pages == 2 * 63  # each engine has such a cache


def test_case_10_a_warm_cache_is_seen_in_the_difference():
    after = read_metrics(sample("vllm_prefix_hits"))
    assert (after.prefix_hits, after.prefix_asked) == (39552, 63102)
    # After the first of three runs of the same prompts nothing had been hit.
    first = sample("vllm_prefix_hits")
    for name, value in (("queries", 21034), ("hits", 0)):
        line = f'vllm:prefix_cache_{name}_total{{engine="0",model_name="tiny-llama"}} '
        assert line in first
        first = "\n".join(
            f"{line}{value}.0" if x.startswith(line) else x for x in first.split("\n")
        )
    change = after.since(read_metrics(first), seconds=40)
    assert (change.prefix_hits, change.prefix_asked) == (39552, 42068)
    assert change.rate("prefix_hits") == 39552 / 40 and change.ttft.count == 0


def test_case_16_a_queue_with_room():
    text = (
        "vllm:num_requests_running 3\nvllm:num_requests_waiting 30\nvllm:kv_cache_usage_perc 0.04\n"
    )
    read = read_metrics(text)
    assert read.wall(64) == "neither: something else holds them (prefill budget, deferred)"
    assert read.wall(3) == "batch"
    assert read_metrics(text.replace("0.04", "0.95")).wall(64) == "cache"
    assert read_metrics(text.replace("waiting 30", "waiting 0")).wall(3) == "none"
    assert "does not print" in read_metrics("llamacpp:requests_deferred 2\n").wall(4)


def test_case_18_usable_pages():
    info = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="64"} 1.0\n'
    read = read_metrics(info)
    assert (read.pages, read.page_size, read.kv_tokens) == (63, 32, 2016)
    read = read_metrics('vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1.0\n')
    assert read.pages is None


# Two readings.


def test_differences_and_rates():
    name = "vllm:time_to_first_token_seconds"
    early = engine("prompt_tokens_total", 0, 100) + engine("num_requests_running", 0, 9)
    late = engine("prompt_tokens_total", 0, 400) + engine("num_requests_running", 0, 2)
    early += buckets(name, {"0.1": 4, "+Inf": 5}, 2.0, ',engine="0",model_name="m"')
    late += buckets(name, {"0.1": 4, "+Inf": 8}, 5.0, ',engine="0",model_name="m"')
    first, then = read_metrics(early), read_metrics(late)
    other, fewer = (read_metrics(engine(*e)) for e in (("prompt_tokens_total", 1, 1), ("x", 0, 1)))
    change = then.since(first, seconds=60)
    assert (change.prompt_tokens, change.rate("prompt_tokens"), change.running) == (300, 5.0, 2)
    assert change.ttft == Histogram({0.1: 0, inf: 3}, 3, 3.0)
    assert "over 60 s" in repr(change) and "(5 a second)" in repr(change)
    assert change.rate("done") is None
    for wrong, message in [
        (lambda: first.since(then, 60), "prompt_tokens went back: the server was started anew"),
        (lambda: then.since(first, 0), "seconds must be above 0"),
        (lambda: then.since(other, 1), "not the same engines"),
        (lambda: then.since(fewer, 1), "later reading only"),
        (lambda: then.rate("prompt_tokens"), "a rate needs two readings"),
        (lambda: change.rate("running"), "a rate needs"),
        (lambda: read_metrics(sample("vllm")).since(read_metrics(sample("vllm_prefix_hits")), 1),
         "not the same server: it had 2048 pages"),
        (lambda: then.ttft.bounds(101), "q must be at most 100"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(AttributeError, match="no 'tftt'"):
        getattr(then, "tftt")  # noqa: B009


# What is refused.


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "one server of vLLM, SGLang, llama.cpp are needed, not nothing"),
        ("python_gc_total 3\n", "not python_gc_total"),
        ("vllm:prompt_tokens_total 1\nsglang:num_queue_reqs 2\n", "metrics of one server"),
        ("vllm:prompt_tokens_total 1\n" * 2, "twice with the same labels: two readings"),
        (
            "vllm:prompt_tokens_total 1\nvllm:prompt_tokens_total{engine=\n",
            "line 2 is no Prometheus",
        ),
        ("vllm:prompt_tokens_total x\n", "line 1 is no Prometheus text"),
        ("<html>\n", "line 1 is no Prometheus text"),
        ("vllm:prompt_tokens_total NaN\n", "vllm:prompt_tokens_total is nan"),
        ("vllm:num_requests_running -1\n", "vllm:num_requests_running is -1.0"),
        (buckets("vllm:e2e_request_latency_seconds", {"1": 3, "2": 2, "+Inf": 3}), "do not add up"),
        (buckets("vllm:e2e_request_latency_seconds", {"1": 3, "2": 4}), "do not add up"),
        ('vllm:e2e_request_latency_seconds_bucket{le="1"} 3\n', "do not add up to its count"),
        (buckets("vllm:e2e_request_latency_seconds", {"x": 3, "+Inf": 4}), "bad le"),
        (3, "text must be a str, not int"),
    ],
)
def test_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_metrics(text)


def test_crlf_a_mark_at_the_start_and_an_end_that_is_missing():
    text = sample("vllm")
    right = read_metrics(text).values
    assert read_metrics("\ufeff" + text.replace("\n", "\r\n")).values == right
    cut = read_metrics(text.rstrip("\n"))
    assert cut.values == right and "it may be cut short" in cut.notes[-1]


def test_broken_text_gives_a_clear_error_or_a_right_result():
    text, rng = sample("vllm"), random.Random(18)
    right = read_metrics(text).values
    for trial in range(60):
        broken = list(text)
        for _ in range(rng.choice([0, 1, 4])):
            broken[rng.randrange(len(broken))] = rng.choice('09"{}=,\n x\0é')
        if trial % 2:
            del broken[rng.randrange(len(broken)) :]
        try:
            read = read_metrics("".join(broken))
        except ValueError as error:
            assert type(error) is ValueError and len(str(error)) < 400
        else:
            same = [name for name, value in read.values.items() if value == right.get(name)]
            assert len(same) >= len(read.values) - 5
            assert trial % 2 == 0 or set(read.values) <= set(right)


# A run written and read.


@pytest.mark.parametrize("at", [0.0, 0.3, 3.0, 7.77, 14.0, None])
def test_the_heavy_run_under_vllms_names(at):
    read = read_metrics(write_metrics(HEAVY, at))
    check(HEAVY, max(HEAVY.done) if at is None else at, read)


@given(arguments=strategies.servers(), part=st.floats(0, 1.1))
def test_what_was_written_is_read(arguments, part):
    run = ts.serve(**arguments)
    at = part * max(run.done)
    check(run, at, read_metrics(write_metrics(run, at)))


def check(run, at, read):
    """A reading against the run, counted chat by chat and token by token."""
    chats = range(len(run.workload))
    running = [c for c in chats if run.admitted[c] <= at < run.done[c]]
    waiting = [c for c in chats if run.workload.send[c] <= at < run.admitted[c]]
    done = [c for c in chats if run.done[c] <= at]
    ends = [step.start + step.seconds for step in run.steps]
    past = [i for i, end in enumerate(ends) if end <= at]
    # Every chat has a token at the end of each step from its first token to its last.
    tokens = {c: [ends[i] for i in past if run.first[c] <= ends[i] <= run.done[c]] for c in chats}
    held = sum(-(-(run.workload.prompts[c] + len(t)) // run.page_size)
               for c, t in tokens.items() if t and c not in done)  # fmt: skip
    assert (read.running, read.waiting, read.done) == (len(running), len(waiting), len(done))
    assert (read.pages, read.page_size, read.preemptions) == (run.pages, run.page_size, 0)
    assert read.kv_use == held / run.pages
    assert read.reply_tokens == sum(map(len, tokens.values()))
    begun = [c for c in chats if run.first[c] <= at]
    assert read.prompt_tokens == sum(run.workload.prompts[c] for c in begun)
    gaps = [b - a for t in tokens.values() for a, b in pairwise(t)]
    values = {
        "ttft": [run.first[c] - run.workload.send[c] for c in begun],
        "gap": gaps,
        "e2e": [run.done[c] - run.workload.send[c] for c in done],
        "queue": [run.admitted[c] - run.workload.send[c] for c in done],
        "prefill": [run.first[c] - run.admitted[c] for c in done],
        "decode": [run.done[c] - run.first[c] for c in done],
        "tpot": [(run.done[c] - run.first[c]) / (run.workload.replies[c] - 1)
                 for c in done if run.workload.replies[c] > 1],
    }  # fmt: skip
    for name, seconds in values.items():
        ours = getattr(read, name)
        assert ours.count == len(seconds)
        assert ours.total == pytest.approx(float(sum(map(Fraction, seconds))), abs=1e-12)
        if name != "gap":  # a gap is a step there, and a difference of two clocks here
            assert ours.buckets == {end: sum(s <= end for s in seconds) for end in ours.buckets}
        if seconds:
            low, high = ours.bounds(99)
            assert low - 1e-9 <= ts.percentile(seconds, 99) <= high + 1e-9


def test_the_end_of_a_run_agrees_with_its_report():
    report, read = ts.report(HEAVY), read_metrics(write_metrics(HEAVY))
    assert (read.done, read.reply_tokens, read.prompt_tokens) == (400, 17055, 71880)
    assert (read.running, read.waiting, read.kv_use, read.gap.count) == (0, 0, 0, 16655)
    for ours, value in (
        (read.ttft, report.ttft_p99),
        (read.gap, report.tbt_p99),
        (read.tpot, report.mean_tbt_p99),
    ):
        low, high = ours.bounds(99)
        assert low < value <= high
    assert read_metrics(write_metrics(HEAVY, 3.0)).waiting == 45  # as the chapter says
    for at in (-1, float("nan"), "3"):
        with pytest.raises(ValueError, match="at must be"):
            write_metrics(HEAVY, at)


def test_a_reading_prints():
    words = repr(read_metrics(sample("vllm")))
    assert words.startswith("vLLM, 1 engine\n") and "         kv_use  71.4 %\n" in words
    assert (
        "179 values, mean 1.499 s, p50 over 0.1 and at most 0.25 s, p99 over 5 and at most 7.5 s"
        in words
    )
    assert not isnan(read_metrics(sample("vllm")).ttft.total)


def test_a_wall_needs_to_know_who_waits():
    read = read_metrics("vllm:num_requests_running 3\n")
    assert read.wall(4) == "not told: the server does not print how many wait"
