"""Polls of a server's metrics: reading a table of them, and the wall over a whole run."""

import csv
import random
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import tinyserve as ts
from tinyserve.logs import SAMPLES, polls_of, read_metrics, read_polls, wall_in_polls, write_metrics

DATA = Path(__file__).parent / "data"
SERVERS = {"cache": (16, 63), "batch": (4, 1023)}  # places and usable pages, as LICENCES.md says
RUNS = [(server, speed) for server in SERVERS for speed in ("x1", "x3")]
HEAD = "unix_time,vllm:num_requests_running,vllm:num_requests_waiting,vllm:kv_cache_usage_perc"


def polls(server, speed):
    return read_polls(SAMPLES / f"replay_{server}_{speed}_poll.csv", quiet=True)


def raw(server, speed):
    """The same file by the standard library: a list of rows of floats."""
    with (SAMPLES / f"replay_{server}_{speed}_poll.csv").open() as file:
        return [list(map(float, row)) for row in list(csv.reader(file))[1:]]


def frame(*rows):
    """Polls from (running, waiting, kv_use)."""
    return pd.DataFrame(rows, columns=["running", "waiting", "kv_use"])


@pytest.fixture
def table(tmp_path):
    """A function that writes a file and reads it as polls."""

    def table(text, name="polls.csv", **options):
        (tmp_path / name).write_text(text)
        return read_polls(tmp_path / name, quiet=True, **options)

    return table


# Reading.


@pytest.mark.parametrize("server, speed", RUNS)
def test_a_replays_polls(server, speed):
    read, rows = polls(server, speed), raw(server, speed)
    columns = list(zip(*rows))
    assert list(read["seconds"]) == pytest.approx([t - columns[0][0] for t in columns[0]], abs=1e-6)
    for name, column in zip(("running", "waiting", "kv_use"), columns[1:4]):
        assert tuple(read[name]) == column
    for name, column in zip(("preemptions", "prompt_tokens", "reply_tokens"), columns[4:]):
        assert list(read[name]) == [value - column[0] for value in column]
        rate = (column[9] - column[8]) / (columns[0][9] - columns[0][8])
        assert read[f"{name}_rate"].iloc[9] == pytest.approx(rate)
        assert pd.isna(read[f"{name}_rate"].iloc[0])
    assert len(read) == len(rows) and read.index[0] == 1
    # The requests of the client's file, all of them, went through this server.
    with (SAMPLES / f"replay_{server}_{speed}_client.csv").open() as file:
        prompts = sum(int(row["prompt_tokens"]) for row in csv.DictReader(file))
    assert read["prompt_tokens"].iloc[-1] == prompts


def test_other_names_and_times(table):
    old = "time,vllm:num_requests_running,vllm:num_requests_waiting,vllm:gpu_cache_usage_perc"
    assert list(table(f"{old}\n0,1,2,.5\n", time="time")["kv_use"]) == [0.5]
    sglang = "t,sglang:num_running_reqs,sglang:num_queue_reqs,sglang:token_usage"
    read = table(f"{sglang}\n1000,1,2,.5\n1500,3,0,.25\n", time="t", unit="ms")
    assert list(read["seconds"]) == [0, 0.5] and list(read["waiting"]) == [2, 0]
    ours = "unix_time,running,waiting,preemptions\n0,1,2,7\n2,1,2,8\n"
    assert table(ours)["preemptions_rate"].iloc[1] == 0.5
    lines = (
        '{"unix_time": 1, "running": 2, "waiting": 3}\n{"unix_time": 4, "running": 1, "waiting": 0}'
    )
    assert list(table(lines, "polls.jsonl")["seconds"]) == [0, 3]
    dates = "at,running,waiting\n2026-11-30 01:00:00.5,1,0\n2026-11-30 01:00:01,1,0\n"
    assert list(table(dates, time="at", unit=None)["seconds"]) == [0, 0.5]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        (f"{HEAD}\n", "has no polls"),
        ("unix_time,running\n0,1\n", "no column for waiting, but 'unix_time', 'running'"),
        ("time,running,waiting\n0,1,2\n", "no column 'unix_time' of times"),
        (f"{HEAD}\n0,1,2,.5\n1,,2,.5\n", r"line 3: vllm:num_requests_running is .*, not a number"),
        (f"{HEAD}\n0,1,two,.5\n", "line 2: vllm:num_requests_waiting is 'two', not a number"),
        (f"{HEAD}\n0,1,2,inf\n", "line 2: vllm:kv_cache_usage_perc is 'inf'"),
        (f"{HEAD}\n0,1,2,.5\n1,1,2,54\n", r"line 3: kv_use is 54\.0, a part of 1 is needed"),
        (f"{HEAD}\n0,1,-2,.5\n", r"line 2: waiting is -2\.0, below 0"),
        (f"{HEAD}\n5,1,2,.5\n4,1,2,.5\n", "line 3: seconds is -1.0, a time must be later"),
        (f"{HEAD}\n5,1,2,.5\n5,1,2,.5\n", "line 3: seconds is 0.0, a time must be later"),
        (f"{HEAD}\n,1,2,.5\n", "line 2: the time is missing"),
        ("unix_time,running,waiting,preemptions\n0,1,2,7\n2,1,2,3\n",
         r"line 3: preemptions is 3\.0, it went back: the server was started anew"),
    ],
)  # fmt: skip
def test_refused(table, text, message):
    with pytest.raises(ValueError, match=message):
        table(text)


def test_what_was_read_is_printed(capsys):
    read = read_polls(SAMPLES / "replay_cache_x1_poll.csv")
    assert capsys.readouterr().out == "\n".join(read.attrs["notes"]) + "\n"
    times = [row[0] for row in raw("cache", "x1")]
    gaps = [b - a for a, b in pairwise(times)]
    assert read.attrs["notes"] == [
        f"replay_cache_x1_poll.csv: 235 polls over {times[-1] - times[0]:.1f} s, "
        f"{min(gaps):.2f} to {max(gaps):.2f} s apart"
    ]


def test_broken_files_give_a_clear_error_or_a_right_result(tmp_path):
    text, rng = (SAMPLES / "replay_cache_x3_poll.csv").read_bytes(), random.Random(3)
    for trial in range(40):
        broken = bytearray(text)
        for _ in range(rng.choice([0, 1, 5])):
            broken[rng.randrange(len(broken))] = rng.choice(b'09",.\nx\xff\0-')
        if trial % 2:
            del broken[rng.randrange(len(broken) + 1) :]
        (tmp_path / "broken").write_bytes(broken)
        try:
            read = read_polls(tmp_path / "broken", quiet=True)
        except ValueError as error:
            assert str(error).startswith("broken") and type(error) is ValueError, error
        else:
            assert len(read) <= 104 and not read[["running", "waiting"]].isna().any(axis=None)


def test_readings_one_by_one():
    text = (DATA / "metrics_vllm.txt").read_text()
    read = polls_of([(5.0, read_metrics(text)), (7.0, read_metrics(text))], quiet=True)
    assert list(read["seconds"]) == [0, 2] and list(read["waiting"]) == [21, 21]
    assert list(read["kv_use"]) == [45 / 63] * 2 and list(read["preemptions"]) == [0, 0]
    assert "swapped" not in read
    with pytest.raises(ValueError, match=r"reading 2: seconds is 5\.0, a time must be later"):
        polls_of([(5.0, read_metrics(text)), (5.0, read_metrics(text))])
    some = read_metrics("llamacpp:requests_deferred 2\n")
    with pytest.raises(ValueError, match="running is not in every one of the 1 readings"):
        polls_of([(0, some)])
    with pytest.raises(ValueError, match="running is not in every one of the 0 readings"):
        polls_of([])


# The wall.


@pytest.mark.parametrize("server, speed", RUNS)
def test_the_replays_walls(server, speed):
    limit, pages = SERVERS[server]
    queued = [row for row in raw(server, speed) if row[2] > 0]
    # 1,043 tokens, the largest request, are 33 pages of 32.
    short = sum(row[1] < limit and pages - round(row[3] * pages) < 33 for row in queued)
    full = sum(row[1] == limit for row in queued)
    wall = wall_in_polls(polls(server, speed), limit, pages, page_size=32, largest=1043)
    assert wall == (server, len(raw(server, speed)), len(queued), full, short,
                    len(queued) - full - short)  # fmt: skip


def test_an_alarm_on_the_cache_misses_most_queues():
    """What the chapter says of an alarm at 90 %, from the rows of both files."""
    rows = [row for speed in ("x1", "x3") for row in raw("cache", speed)]
    queued = [row for row in rows if row[2] > 0]
    assert len(queued) == 71 and max(row[1] for row in rows) < 16
    assert sum(row[3] >= 0.9 for row in queued) == 30
    assert sum(row[3] >= 0.9 for row in rows) == 33


def test_case_16_a_queue_with_room_has_no_wall():
    wall = wall_in_polls(frame(*[(3, 30, 0.04)] * 9), limit=64)
    assert wall == ("neither", 9, 9, 0, 0, 9)
    assert "something else holds them (prefill budget, deferred)" in str(wall)
    assert wall_in_polls(frame(*[(3, 30, 0.04)] * 9), limit=3).wall == "batch"
    assert wall_in_polls(frame(*[(3, 30, 0.95)] * 9), limit=64).wall == "cache"
    assert wall_in_polls(frame(*[(3, 0, 0.95)] * 9), limit=3).wall == "none"


def test_case_18_the_pages_that_can_be_used():
    info = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="64"} 1.0\n'
    server = read_metrics(info + "vllm:num_requests_running 5\nvllm:num_requests_waiting 2\n")
    assert (server.pages, server.page_size) == (63, 32)
    # 30 of 63 pages in use: the 33 that are left hold a request of 1,056 tokens, and no more.
    for largest, wall in ((33 * 32, "neither"), (33 * 32 + 1, "cache")):
        read = frame((5, 2, 30 / 63))
        found = wall_in_polls(read, 16, server.pages, server.page_size, largest)
        assert found.wall == wall
    with pytest.raises(ValueError, match="a prompt of 2017 tokens needs 64 of 63 pages"):
        wall_in_polls(frame((5, 2, 0.5)), 16, server.pages, server.page_size, 63 * 32 + 1)


def test_a_share_that_is_printed_short_is_a_whole_number_of_pages():
    """30 of 63 pages are 0.47619...: a little more or less as text, and still 30."""
    for kv_use in (0.4762, 0.47619, 0.476, 0.4763, 30 / 63):
        for largest, wall in ((33 * 32, "neither"), (33 * 32 + 1, "cache")):
            found = wall_in_polls(frame((5, 2, kv_use)), 16, 63, page_size=32, largest=largest)
            assert found.wall == wall, kv_use


@pytest.mark.parametrize(
    "batch, cache, neither, idle, wall",
    [
        (0, 0, 0, 5, "none"),
        (0, 1, 0, 99, "cache"),  # a queue in 1 of 100
        (0, 1, 0, 100, "none"),  # in 1 of 101
        (0, 0, 1, 100, "none"),  # whatever it points at
        (3, 1, 0, 0, "batch"),
        (2, 1, 0, 0, "both"),
        (1, 2, 0, 0, "both"),
        (1, 3, 0, 0, "cache"),
        (2, 1, 3, 0, "both"),  # as many point at a wall as at none
        (2, 1, 4, 0, "neither"),
        (0, 0, 1, 0, "neither"),
    ],
)
def test_the_name_over_a_whole_run(batch, cache, neither, idle, wall):
    rows = [(4, 1, 0.1)] * batch + [(3, 1, 0.5)] * cache + [(3, 1, 0.49)] * neither
    rows += [(4, 0, 1.0)] * idle
    random.Random(0).shuffle(rows)
    found = wall_in_polls(frame(*rows), limit=4)
    assert found == (wall, len(rows), batch + cache + neither, batch, cache, neither)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((frame((5, 1, 0.5)), 4), "5 requests run in one poll, more than the limit 4"),
        ((frame((5, 1, 0.5)), 0), "limit must be a whole number of at least 1, not 0"),
        ((frame((5, 1, 0.5)), 8, 63), "page_size must be a number, not None"),
        ((frame((5, 1, 0.5)), 8, 63, 32, 0), "largest must be a whole number of at least 1, not 0"),
        ((frame((5, 1, 0.5)).drop(columns="kv_use"), 8), "the polls have no kv_use"),
    ],
)
def test_a_wall_that_cannot_be_told(arguments, message):
    with pytest.raises(ValueError, match=message):
        wall_in_polls(*arguments)


@pytest.mark.parametrize("pages, limit, wall", [(480, 16, "batch"), (240, 40, "cache")])
def test_the_toy_polled_like_a_server_has_the_wall_of_its_report(pages, limit, wall):
    run = ts.serve(ts.invented_chats().at_rate(40), pages=pages, limit=limit)
    times = [0.25 * i for i in range(1, int(4 * max(run.done)))]
    read = polls_of(((t, read_metrics(write_metrics(run, t))) for t in times), quiet=True)
    assert ts.report(run).wall == wall == wall_in_polls(read, limit).wall
    # Every chat that waits at a poll was sent by then and not yet admitted.
    sent, admitted = run.workload.send, run.admitted
    assert list(read["waiting"]) == [sum(s <= t < a for s, a in zip(sent, admitted)) for t in times]


def test_the_names_are_there_without_asking_for_logs():
    assert ts.read_polls is read_polls and ts.wall_in_polls is wall_in_polls
