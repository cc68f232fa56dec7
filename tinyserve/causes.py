"""Each chat's wait for its first token, split into its causes: why did the p99 go up?

Introduced in the chapter "Replay a real log". A chat waits for the step under way to end, then
in the queue for what holds the head out, then for the step that it joins: for its own prompt,
and for the prompts that joined with it. The parts add up to its TTFT, to the last bit.
"""

import math
from collections import namedtuple
from fractions import Fraction
from functools import partial
from itertools import pairwise

from tinyserve.checks import number
from tinyserve.roofline import step_cost
from tinyserve.tables import table

QUEUED = ("cache", "batch", "cache and batch")  # what Step.blocked says; anything else is `other`
PARTS = "cache place both other under_way own_prompt other_prompts"
HEADS = ("cache s", "place s", "both s", "other s", "step under way s", "own prompt s")
HEADS += ("others' prompts s",)
FINE = 2.0**60  # times as whole numbers of 2**-60 s: their sums are exact


class Wait(namedtuple("Wait", PARTS)):
    """Where the seconds of one chat's wait for its first token went. sum(wait) is its TTFT.

    under_way: from when it was sent to the end of the step under way; 0 at an idle server.

    cache, place, both, other: in the queue, while the head was held out by the cache, by the
    batch limit (no place), by both, or by another rule of a variant of the server (or by none
    that it names). Whoever stands behind is held out by what holds the head out, or, in a
    variant that looks past the head, by what the step recorded. A step in that time may have
    been long because it read other chats' prompts; that stays with the cause that held the
    head out, since without it the chat would not have stood there.

    own_prompt: the step that it joined, as long as it would have been had it joined alone:
    with the same running chats and no other prompt. other_prompts: what the prompts that
    joined in the same step added.
    """

    __slots__ = ()


class Band(namedtuple("Band", "name chats longest wait")):
    """Chats that are neighbours when sorted by their TTFT.

    name: such as "p90 to p99"; chats: how many; longest: the longest TTFT of them, in seconds;
    wait: a Wait with the mean of each part over them.
    """

    __slots__ = ()


def split_waits(run):
    """The waits of a Run, split: a list of Wait, one a chat, in seconds.

    Any Run that kept its steps will do, of any model and chip; work goes with steps + chats.
    For a variant of the server with a clock of its own, own_prompt is all of the time from
    joining to the first token but for what the roofline says that the other prompts added.
    Raises TypeError for a run that kept a summary, and ValueError for steps that are not those
    of the run's chats.
    """
    work, admitted, done = run.workload, run.admitted, run.done
    waits, seen, inside = [None] * len(work), [None] * len(work), {}  # inside: chat -> its step
    to_join = sorted(range(len(work)), key=admitted.__getitem__)
    to_end = sorted(range(len(work)), key=done.__getitem__)
    queued, cause = [0] * 4, 3  # for how long each cause has held the head out, and which does
    now = sent = joined = ended = context = 0
    for at, step in enumerate(run.steps):
        before, now = now, _fine(step.start)
        queued[cause] += now - before
        cause = QUEUED.index(step.blocked) if step.blocked in QUEUED else 3
        here = [*queued, now]
        while sent < len(work) and work.send[sent] <= step.start:
            seen[sent] = here
            sent += 1
        while ended < len(work) and done[to_end[ended]] <= step.start and to_end[ended] in inside:
            chat = to_end[ended]
            context -= work.prompts[chat] + at - inside.pop(chat)
            ended += 1
        new = []
        while joined < len(work) and admitted[chat := to_join[joined]] == step.start:
            if chat >= sent:
                break
            new.append(chat)
            joined += 1
        prompts = [work.prompts[chat] for chat in new]
        if new:
            read = partial(step_cost, step.chats - step.joined, context)
            whole = read(prompts, run.model, run.chip)
            if step.joined > len(new):  # a variant let somebody in again, with unknown tokens
                whole = step.seconds
        for chat, prompt in zip(new, prompts):
            *then, arrived = seen[chat]
            parts = [end - start for start, end in zip(then, queued)]
            served = _fine(run.first[chat]) - now
            others = _fine(whole - read([prompt], run.model, run.chip))
            others = max(0, min(others, served))  # a variant may have another clock
            parts += [arrived - _fine(work.send[chat]), served - others, others]
            waits[chat] = _adding_up(parts, run.first[chat] - work.send[chat])
        # The contexts' sum as in `tinyserve.fast`: each of them grows by one a step.
        inside.update(dict.fromkeys(new, at))
        context += sum(prompts) + len(inside)
    if joined < len(work):
        chat = to_join[joined]
        raise ValueError(
            f"the steps are not those of the run's chats: chat {chat}, admitted at "
            f"{admitted[chat]!r}, joins in none of them"
        )
    return waits


def _fine(seconds):
    return int(seconds * FINE)


def _adding_up(parts, total):
    """A Wait whose parts add up to `total`, a float, exactly.

    Each part is rounded to a multiple of the last digit of `total`, so that every sum of them
    is exact; what the rounding left over, a few of these last digits, goes to the largest.
    """
    digit = math.ulp(total)
    counts = [round(part / FINE / digit) for part in parts]
    counts[counts.index(max(counts))] += round(total / digit) - sum(counts)
    return Wait(*(count * digit for count in counts))


def bands(run, edges=(50, 90, 99)):
    """The chats of a Run sorted by TTFT and cut at percentiles: a list of Band.

    By nearest rank: of 400 chats, "p90 to p99" has those of rank 361 to 396, so the longest
    of them is the p99 of the report, and "beyond p99" has the 4 that waited longer. A band
    without chats is left out. edges: rising, between 0 and 100. Raises ValueError for other
    edges, and what `split_waits` raises.
    """
    return _bands(sorted(split_waits(run), key=sum), edges)


def _bands(waits, edges):
    """The same of waits that are sorted."""
    edges = [float(number("an edge", edge, above=0)) for edge in edges]
    if edges != sorted({*edges}) or max(edges, default=0) >= 100:
        raise ValueError(f"edges must rise and be under 100, not {edges!r}")
    names = [f"p{edge:g}" for edge in edges]
    if edges:
        between = [f"{low} to {high}" for low, high in pairwise(names)]
        names = [f"up to {names[0]}", *between, f"beyond {names[-1]}"]
    # Fractions, as in `percentile`: in floats 0.07 * 100 is a little over 7.
    cuts = [math.ceil(Fraction(str(edge)) * len(waits) / 100) for edge in edges]
    cuts = zip(names or ["all"], [0, *cuts], [*cuts, len(waits)])
    return [_band(name, waits[low:high]) for name, low, high in cuts if low < high]


def _band(name, waits):
    means = (math.fsum(part) / len(waits) for part in zip(*waits))
    return Band(name, len(waits), sum(waits[-1]), Wait(*means))


def causes_table(run, edges=(50, 90, 99)):
    """A table of `bands`: how many chats, their longest and mean TTFT, and the mean parts.

    The last row is all chats. `other` has a column only if something is in it. Raises what
    `bands` raises.
    """
    waits = sorted(split_waits(run), key=sum)
    rows = _bands(waits, edges) + (_bands(waits, ()) if edges else [])
    kept = [i for i, name in enumerate(Wait._fields) if name != "other" or rows[-1].wait.other]
    cells = [
        [band.chats, band.longest, math.fsum(band.wait), *(band.wait[i] for i in kept)]
        for band in rows
    ]
    heads = ["chats", "longest s", "mean s", *(HEADS[i] for i in kept)]
    return table(cells, heads, [band.name for band in rows], "TTFT")


def change_table(before, after, edges=(50, 90, 99)):
    """A table of what grew from one Run to another: why did the p99 go up?

    A row a band of `bands` that both runs have: its mean TTFT before and after, and by how much
    the mean of each part is longer, all in seconds; below zero where it is shorter. The parts
    of a row add up to the change of its mean. A cause that is in neither run has no column.
    Raises what `bands` raises.
    """
    were = {band.name: band.wait for band in bands(before, edges)}
    pairs = [(b.name, were[b.name], b.wait) for b in bands(after, edges) if b.name in were]
    grown = [[new - old for old, new in zip(one, other)] for _, one, other in pairs]
    kept = [i for i in range(len(HEADS)) if any(one[i] or two[i] for _, one, two in pairs)]
    cells = [
        [math.fsum(one), math.fsum(two), *(parts[i] for i in kept)]
        for (_, one, two), parts in zip(pairs, grown)
    ]
    heads = ["before s", "after s", *(f"more {HEADS[i]}" for i in kept)]
    return table(cells, heads, [name for name, *_ in pairs], "TTFT")
