"""How long each chat waited, and which wall it waited for.

Introduced in the chapter "The waits". TTFT, the time to first token, starts when a chat
is sent. TBT, the time between tokens, is the gap between two tokens of one chat: a reply
of n tokens has n - 1 gaps.
"""

from collections import namedtuple
from fractions import Fraction
from math import ceil

from tinyserve.checks import number, whole

WAITS = "ttft_p50 ttft_p99 tbt_p50 tbt_p99 mean_tbt_p50 mean_tbt_p99"
COUNTS = "queue_max pages_max cache_steps batch_steps"
PACE = "cache_full_at chats_per_second tokens_per_second wall"


def percentile(values, q, counts=None):
    """Nearest rank: the ceil(q / 100 * n)-th smallest of n values, so always one of them.

    counts: how often each value stands for itself (once, if left out). Raises ValueError
    for no values, a value that is not finite, and a q outside 0 < q <= 100.
    """
    if number("q", q, above=0) > 100:
        raise ValueError(f"q must be at most 100, not {q!r}")
    values = [number("a value", value) for value in values]
    counts = [1] * len(values) if counts is None else [whole("a count", c, 0) for c in counts]
    # A fraction is exact; in floats 0.07 * 100 is a little over 7 and would round up to 8.
    rank = ceil(Fraction(str(q)) * sum(counts) / 100)
    for value, count in sorted(zip(values, counts, strict=True)):
        rank -= count
        if rank <= 0 < count:
            return value
    raise ValueError(f"there is no percentile {q!r} of no values")


def p50_and_p99(values, counts=None):
    """The two percentiles of a report, or None and None if there are no values."""
    total = len(values) if counts is None else sum(counts)
    return [percentile(values, q, counts) if total else None for q in (50, 99)]


def which_wall(queue_max, cache_steps, batch_steps, chats):
    """The wall that `chats` chats ran into, by how many steps each one held the head out.

    "none" if fewer than 1 in 100 of the chats ever waited at once; "neither" if more did and
    no wall held them out (a server with another rule does); "both" if the smaller count is at
    least half of the larger.
    """
    if 100 * queue_max < chats:
        return "none"
    if 2 * min(cache_steps, batch_steps) >= max(cache_steps, batch_steps):
        return "both" if cache_steps else "neither"
    return "cache" if cache_steps > batch_steps else "batch"


class Report(namedtuple("Report", f"{WAITS} {COUNTS} {PACE}")):
    """One run on a clipboard; None where a thing does not exist.

    ttft: seconds from sent to first token; tbt: seconds, every gap of every chat in one
    pool; mean_tbt: seconds, one average a chat; queue_max: chats; pages_max: pages held;
    cache_steps, batch_steps: steps in which each wall held the head of the queue out;
    cache_full_at: seconds, the start of the first of the cache_steps; chats_per_second,
    tokens_per_second: from the first send time to the last token, of replies only;
    wall: "none", "cache", "batch", "both" or "neither".
    """


def report(run):
    """Read a Run and return its Report."""
    send, replies, steps = run.workload.send, run.workload.replies, run.steps
    ttft = [first - sent for first, sent in zip(run.first, send)]
    # A chat that was already running sees each step as one gap, as long as the step.
    lengths, gaps = [s.seconds for s in steps], [s.chats - s.joined for s in steps]
    chats = zip(run.first, run.done, replies)
    means = [(done - first) / (reply - 1) for first, done, reply in chats if reply > 1]
    cache = [s.start for s in steps if "cache" in s.blocked]
    batch = [s.start for s in steps if "batch" in s.blocked]
    queue, took = max(s.queue for s in steps), max(run.done) - send[0]
    waits = p50_and_p99(ttft) + p50_and_p99(lengths, gaps) + p50_and_p99(means)
    counts = [queue, max(s.held for s in steps), len(cache), len(batch)]
    pace = [cache[0] if cache else None, len(send) / took, sum(replies) / took]
    return Report(*waits, *counts, *pace, which_wall(queue, len(cache), len(batch), len(send)))
