"""A server's metrics read again and again over a run, and the wall that they point at.

Introduced in the chapter "Read a real server". One reading misleads: a queue can stand for a
moment though places and pages are free, and a cache can be full with nobody waiting. So the
wall is named over a whole run.
"""

from collections import namedtuple
from math import ceil

import numpy as np
import pandas as pd

from tinyserve.checks import number, whole
from tinyserve.logs.files import Log
from tinyserve.logs.metrics_text import COUNTERS, GAUGES, ROOM
from tinyserve.logs.requests import Clock, text_of
from tinyserve.metrics import which_wall


class PollWall(namedtuple("PollWall", "wall polls queued batch cache neither")):
    """The wall of a run by its polls, and what it rests on.

    wall: "none", "batch", "cache", "both" or "neither"; polls: how many there are; queued: in
    how many somebody waits; batch, cache, neither: how many of these point at each.
    """

    __slots__ = ()

    def __str__(self):
        shown = ", ".join(f"{name} in {getattr(self, name)}" for name in ("batch", "cache"))
        shown = f"a queue in {self.queued} of {self.polls} polls: {shown}, neither in "
        why = {"neither": "\nsomething else holds them (prefill budget, deferred)"}
        return f"wall: {self.wall}; {shown}{self.neither}{why.get(self.wall, '')}"


def read_polls(path, time="unix_time", unit="s", quiet=False):
    """Read a table of polls of /metrics, one row a poll, as a DataFrame.

    path: a CSV, JSON lines or Parquet file with a column of times, named `time`, and columns
    named as the server prints its metrics (vLLM, SGLang or llama.cpp; or as here: "running",
    "waiting"). unit: what the times count, "s", "ms", "us" or "ns" (None for dates).

    The columns: seconds, from the first poll; the gauges running, waiting and kv_use (a part
    of 1), as far as the file has them; and each counter that it has, such as preemptions,
    prompt_tokens and reply_tokens, as grown since the first poll, with its rate a second since
    the poll before (preemptions_rate, ...). `attrs` has the notes, printed unless quiet.

    Raises ValueError, naming the line, for a file without times, running or waiting, for a
    cell that holds no number of use, a time that does not go on, a kv_use over 1 and a counter
    that goes back (the server was started anew).
    """
    log = Log(path)
    ours = {}  # our name -> theirs
    for name, theirs in (GAUGES | COUNTERS).items():
        known = [*theirs.split(), name]
        known += [their.removesuffix("_total") for their in known]
        if printed := [their for their in known if their in log.names]:
            ours[name] = printed[0]
    if missing := [name for name in ("running", "waiting") if name not in ours]:
        raise ValueError(f"{log.name} has no column for {' and '.join(missing)}, but {log.found}")
    if time not in log.names:
        raise ValueError(f"{log.name} has no column {time!r} of times, but {log.found}")
    text = pd.concat(list(log.frames([time, *ours.values()])) or [pd.DataFrame()])
    if text.empty:
        raise ValueError(f"{log.name} has no polls")
    rows = pd.DataFrame(
        {"seconds": Clock(log, unit).seconds(text_of(text[time]))}, index=text.index
    )
    for name, their in ours.items():
        rows[name] = pd.to_numeric(text_of(text[their]), errors="coerce")
        for line in rows.index[~np.isfinite(rows[name])][:1]:
            cell = text[their][line]
            raise ValueError(f"{log.name}, {log.word} {line}: {their} is {cell!r}, not a number")
    return _polls(rows, f"{log.name}, {log.word}", log.name, quiet)


def polls_of(readings, quiet=False):
    """Readings of a server, each a pair (seconds, Metrics), as the table that read_polls gives.

    Raises ValueError, naming the reading (from 1), as read_polls does for a line.
    """
    rows = []
    for seconds, read in readings:
        values = {name: getattr(read, name) for name in GAUGES | COUNTERS}
        rows.append({"seconds": number("seconds of a reading", seconds), **values})
    rows = pd.DataFrame(rows, index=range(1, len(rows) + 1)).dropna(axis=1, how="all")
    for name in ("running", "waiting"):
        if name not in rows or rows[name].isna().any():
            raise ValueError(f"{name} is not in every one of the {len(rows)} readings")
    return _polls(rows, "reading", "readings", quiet)


def _polls(rows, place, title, quiet):
    """The table of polls from times, gauges and counters, each as it was printed."""
    for name in rows:
        wrong = rows[name].diff() <= 0 if name == "seconds" else rows[name] < 0
        why = "a time must be later than the one before" if name == "seconds" else "below 0"
        if name in COUNTERS:
            wrong, why = rows[name].diff() < 0, "it went back: the server was started anew"
        if name == "kv_use":
            wrong, why = ~rows[name].between(0, 1), "a part of 1 is needed"
        for line in rows.index[wrong][:1]:
            raise ValueError(f"{place} {line}: {name} is {float(rows[name][line])!r}, {why}")
    apart = rows["seconds"].diff()
    table = {"seconds": rows["seconds"] - rows["seconds"].iloc[0]}
    table |= {name: rows[name] for name in GAUGES if name in rows}
    for name in COUNTERS:
        if name in rows:
            table[name] = rows[name] - rows[name].iloc[0]
            table[f"{name}_rate"] = rows[name].diff() / apart
    polls = pd.DataFrame(table)
    polls.index = pd.RangeIndex(1, len(polls) + 1, name="poll")
    notes = [f"{title}: {len(polls):,} polls over {polls['seconds'].iloc[-1]:,.1f} s"]
    if len(polls) > 1:
        notes[0] += f", {apart.min():.2f} to {apart.max():.2f} s apart"
    polls.attrs = {"notes": notes}
    if not quiet:
        print("\n".join(notes))
    return polls


def wall_in_polls(polls, limit, pages=None, page_size=None, largest=None):
    """The wall of a whole run by its polls, as a PollWall.

    polls: what read_polls gives; limit: the places of the server (vLLM's max_num_seqs; of
    several engines read as one, of all of them). A poll with a queue points at the batch if
    running is at the limit; else at the cache, if the pages left are too few for the largest
    prompt; else at neither. pages: those that requests can use; page_size, and largest, the
    largest prompt: in tokens. Without these three it is taken to need half of the cache. (A
    request that was thrown out asks for its reply so far as well, and can need more.)

    The name is that of `metrics.which_wall`, with polls for both steps and chats: "none" is a
    queue in fewer than 1 of 100 polls, "both" that the smaller of the two counts is at least half
    of the larger. But it is "neither" if most polls with a queue point at neither. A "cache" may
    also be a prefill budget, which no gauge tells.

    Raises ValueError for no polls, for polls without running, waiting or kv_use, for values of
    these that no server prints, for more running than the limit, and for sizes of which one is
    missing or that no server can have.
    """
    _check(polls, limit)
    queued, full = polls["waiting"] > 0, polls["running"] >= limit
    tight = _tight(polls["kv_use"], pages, page_size, largest)
    batch, cache = int((queued & full).sum()), int((queued & ~full & tight).sum())
    with_queue = int(queued.sum())
    neither = with_queue - batch - cache
    wall = which_wall(with_queue, cache, batch, len(polls))
    if wall != "none" and neither > batch + cache:
        wall = "neither"
    return PollWall(wall, len(polls), with_queue, batch, cache, neither)


def _check(polls, limit):
    """Raise ValueError for polls that lack a gauge, and for a limit that they pass."""
    whole("limit", limit)
    if missing := [name for name in ("running", "waiting", "kv_use") if name not in polls]:
        raise ValueError(f"the polls have no {', '.join(missing)}")
    if not len(polls):
        raise ValueError("there are no polls")
    for name, top in (("running", np.inf), ("waiting", np.inf), ("kv_use", 1)):
        for value in polls[name][~polls[name].between(0, top)][:1]:
            raise ValueError(f"{name} must be from 0 to {top:g}, not {value!r}")
    if (most := polls["running"].max()) > limit:
        raise ValueError(f"{most:g} requests run in one poll, more than the limit {limit!r}")


def _tight(kv_use, pages, page_size, largest):
    """For each poll, whether the largest prompt would not find room."""
    if pages is page_size is largest is None:
        return kv_use >= ROOM
    for name, size in (("pages", pages), ("page_size", page_size), ("largest", largest)):
        whole(name, size)
    if (need := ceil(largest / page_size)) > pages:
        raise ValueError(f"a prompt of {largest} tokens needs {need} of {pages} pages")
    return pages - (pages * kv_use).round() < need
