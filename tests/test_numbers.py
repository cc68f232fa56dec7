"""Every published number, row by row of numbers.csv, at the precision it was published with."""

import csv
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import tinyserve as ts

ROWS = list(csv.DictReader(Path(__file__).with_name("numbers.csv").open(encoding="utf-8")))


def setting_of(row):
    """A row's setting as keyword arguments: "users=8 context=1000" is {users: 8, context: 1000}."""

    def value(text):
        try:
            return int(text)
        except ValueError:
            return text.replace("very-mixed", "very mixed")

    parts = [part.split("=") for part in row["setting"].split() if "=" in part]
    setting = {name: value(text) for name, text in parts}
    if "rate" in setting:
        setting["rate"] = float(setting["rate"])
    return setting


def agrees(value, published):
    """Whether a value, printed with as many decimals as the published text, is that text."""
    decimals = len(published.partition(".")[2])
    return f"{value:.{decimals}f}" == published


# Part 1: one step. The milliseconds of arithmetic, of memory, and of the step, and what follows.


def parts(users, context=0, running=0, prompt=0):
    return ts.step_parts(users + running, (users + running) * context, prompt)


def step(users=0, context=0, running=0, prompt=0):
    return ts.step_seconds([context] * (users + running), prompt)


def rate(users, context):
    return users / step(users, context)


def turning_point(context):
    """The first number of users whose arithmetic takes at least as long as their memory."""
    users = 1
    while parts(users, context)[0] < parts(users, context)[1]:
        users += 1
    return users


# Part 2: slots.


@cache
def slot_run(slots, policy, rate=None, mix=None):
    if rate is None:  # the toy: six requests at once, each step costs 1
        toy = ts.Workload([0] * 6, [1] * 6, [2, 6, 3, 1, 4, 2])
        return ts.simulate(toy, slots, policy, cost=1)
    return ts.simulate(ts.batching_requests(mix).at_rate(rate), slots, policy)


# Part 3: the tiny server.


@cache
def server_run(rate, pages, limit):
    run = ts.serve(ts.invented_chats().at_rate(rate), pages, limit)
    return run, ts.report(run)


def reported(field, factor=1):
    return lambda **setting: getattr(server_run(**setting)[1], field) * factor


def first_step_held_by_cache(**setting):
    steps = server_run(**setting)[0].steps
    return 1 + next(i for i, step in enumerate(steps) if "cache" in step.blocked)


def longest_queue_by_3_s(**setting):
    return max(step.queue for step in server_run(**setting)[0].steps if step.start <= 3)


CHECKS = {
    ("roofline", "step time"): lambda **setting: 1000 * step(**setting),
    ("roofline", "arithmetic time"): lambda **setting: 1000 * parts(**setting)[0],
    ("roofline", "tokens a second"): rate,
    ("roofline", "tokens a second each"): lambda users, context: 1 / step(users, context),
    ("roofline", "arithmetic busy"): lambda **setting: 100 * parts(**setting)[0] / step(**setting),
    ("roofline", "tokens a second over one user's"): lambda users, context: (
        rate(users, context) / rate(1, context)
    ),
    ("roofline", "first user count limited by arithmetic"): turning_point,
    ("roofline", "most tokens a second"): lambda context: rate(turning_point(context), context),
    ("roofline", "users that fit"): lambda context: ts.users_that_fit(context),
    ("batching", "steps"): lambda **setting: len(slot_run(**setting).steps),
    ("batching", "all done"): lambda **setting: slot_run(**setting).all_done,
    ("batching", "mean wait for first token"): lambda **setting: slot_run(**setting).mean_wait,
    ("batching", "tokens a second"): lambda **setting: slot_run(**setting).tokens_per_second,
    ("batching", "slots in use (busy time)"): lambda **setting: (
        100 * slot_run(**setting).slots_in_use
    ),
    ("server", "TTFT p50"): reported("ttft_p50"),
    ("server", "TTFT p99"): reported("ttft_p99"),
    ("server", "TBT p50"): reported("tbt_p50", 1000),
    ("server", "TBT p99"): reported("tbt_p99", 1000),
    ("server", "per-chat average TBT p99"): reported("mean_tbt_p99", 1000),
    ("server", "longest queue"): reported("queue_max"),
    ("server", "most pages held"): reported("pages_max"),
    ("server", "cache full at"): reported("cache_full_at"),
    ("server", "first step held out by cache"): first_step_held_by_cache,
    ("server", "steps held out by cache"): reported("cache_steps"),
    ("server", "steps held out by batch"): reported("batch_steps"),
    ("server", "chats finished a second"): reported("chats_per_second"),
    ("server", "longest queue by 3 s"): longest_queue_by_3_s,
}


def value_of(row):
    return CHECKS[row["part"], row["quantity"]](**setting_of(row))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_published_number_is_the_packages(row):
    assert agrees(value_of(row), row["published"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_wrong_last_digit_is_caught(row):
    *kept, last = row["published"]
    for wrong in set("0123456789") - {last}:
        assert not agrees(value_of(row), "".join(kept) + wrong)


def test_every_row_has_a_check_and_every_check_a_row():
    assert {(row["part"], row["quantity"]) for row in ROWS} == set(CHECKS)


def test_no_row_is_lost_or_there_twice():
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert Counter(row["part"] for row in ROWS) == {"roofline": 28, "batching": 32, "server": 35}


def test_precision_is_that_of_the_text():
    assert agrees(0.1604, "0.16") and agrees(8.1449, "8.1") and agrees(21.04, "21.0")
    assert not agrees(0.1604, "0.1600") and not agrees(0.1604, "0.2001")
    assert agrees(10521.4, "10521") and not agrees(10521.4, "10,521")
    assert agrees(16, "16") and not agrees(15.4, "16")
