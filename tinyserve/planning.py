"""What one change of setting would do, and how many chats a second a server can take.

Introduced in the chapters "Replay a real log" and "How much load can it take?".
Goodput is the word of Zhong et al., "DistServe" (OSDI 2024), for the rate that a server takes
while a given share of the requests keeps a limit on TTFT and one on TPOT.
"""

from collections import namedtuple
from math import inf

from tinyserve import fast, tables
from tinyserve.cache import PAGE_SIZE
from tinyserve.checks import a_workload, number, pages_each, sequence, whole
from tinyserve.workload import Workload

IDLE = 0.001  # of the time: how busy a server is at the lowest rate that is tried
AT_ONCE = 1e-6  # seconds: chats sent within that are sent at once
TOP = 1e9  # seconds; the longest that a workload is stretched to

TooLarge = namedtuple("TooLarge", "chat prompt reply pages")
TooLarge.__doc__ = """A chat that was left out: its number, its tokens, the pages it needs."""


def leave_out_too_large(workload, pages, page_size=PAGE_SIZE):
    """(the workload without the chats that need more than `pages` pages, a list of TooLarge).

    Such a chat could never be admitted, and `serve` refuses the whole workload for it. The
    others keep their send times and their order; their rate is measured anew, and their notes,
    if they have any, say what was left out. Raises ValueError if no chat is left.
    """
    pages, size = whole("pages", pages), whole("page_size", page_size)
    need = pages_each(workload, size)
    fits = [chat for chat, most in enumerate(need) if most <= pages]
    out = [
        TooLarge(chat, workload.prompts[chat], workload.replies[chat], most)
        for chat, most in enumerate(need)
        if most > pages
    ]
    if not out:
        return workload, []
    if not fits:
        raise ValueError(
            f"none of {len(out)} chats fits in {pages} pages of {size} tokens: the smallest "
            f"needs {min(need)}"
        )
    columns = workload.send, workload.prompts, workload.replies
    kept = [[column[chat] for chat in fits] for column in columns]
    said = f"then left out {len(out):,} too large for {pages:,} pages of {size} tokens"
    return Workload(*kept, notes=workload._noting(said)), out


# What one change does.


class Change(namedtuple("Change", "what pages limit ttft_p99 tbt_p99 queue_max wall too_large")):
    """One setting of `what_if`: what it is called, the setting, and fields of its Report.

    ttft_p99 and tbt_p99 in seconds. too_large: how many chats need more pages than there are;
    if there are any, nothing was served and the fields of the report are None.
    """

    __slots__ = ()


class WhatIf(namedtuple("WhatIf", "rows best margin")):
    """The answer of `what_if`. rows: a list of Change, the present setting first; best: the
    Change that helps most, or None; margin: the share of the p99 TTFT it had to gain."""

    __slots__ = ()

    @property
    def said(self):
        """Which single change helps most, in a sentence."""
        now, best = self.rows[0], self.best
        if best is None:
            return f"No single change lowers the p99 TTFT by {100 * self.margin:g} % or more."
        gap = ""
        if best.tbt_p99 is not None:
            gaps = 1000 * now.tbt_p99, 1000 * best.tbt_p99
            gap = "; the p99 TBT goes from {:.1f} to {:.1f} ms".format(*gaps)
        return (
            f"Of the single changes, {best.what} helps most: the p99 TTFT goes from "
            f"{now.ttft_p99:.3f} to {best.ttft_p99:.3f} s{gap}."
        )

    def table(self):
        """The rows as a table to read."""
        heads = ["pages", "limit", "TTFT p99 s", "TBT p99 ms", "longest queue", "wall"]
        rows = []
        for row in self.rows:
            gap = None if row.tbt_p99 is None else 1000 * row.tbt_p99
            wall = f"{row.too_large} too large" if row.too_large else row.wall
            rows.append([row.pages, row.limit, row.ttft_p99, gap, row.queue_max, wall])
        return tables.table(rows, heads, [row.what for row in self.rows])

    def __repr__(self):
        return f"{tables.plain(self.table())}\n{self.said}"

    def _repr_html_(self):
        return f"{self.table()._repr_html_()}<p>{self.said}</p>"


def _times(new, old):
    """How much of the old setting the new one is, in words."""
    words = {0.5: "half", 1: "", 2: "twice"}
    return words.get(new / old, f"{new / old:.3g} times")


def _called(setting, now):
    """What a setting is called beside the present one."""
    (pages, limit), (of_pages, of_limit) = setting, now
    if pages / of_pages == limit / of_limit:
        return f"{_times(pages, of_pages)} both" if setting != now else "as it is"
    parts = f"{_times(pages, of_pages)} the pages", f"{_times(limit, of_limit)} the places"
    return ", ".join(part for part in parts if not part.startswith(" "))


def what_if(workload, pages, limit, settings=None, margin=0.1, progress=False, **options):
    """Serve a workload in the settings next to the present one. Returns a WhatIf.

    pages, limit: the present setting. settings: pairs (pages, limit) to compare it with; left
    out, half, 1.5 times and twice the pages, the same of the limit, and twice both (halves are
    rounded down, but not below 1). Other options (page_size, model, chip, ...) go to
    `tinyserve.fast.serve`; progress shows a bar, a setting a tick (needs tqdm).

    What helps most: of the settings that change the pages or the limit but not both, the one
    with the lowest p99 TTFT, and of equals the smallest; None if it is not lower than the
    present one by at least `margin`, a share of that. What it does to the p99 TBT is not
    weighed but shown. A setting too small for some chat is a row without values. Raises
    ValueError if the present setting is one, for a margin outside 0 to 1, and as `serve` does.
    """
    number("margin", margin, least=0, most=1)
    settings = [(pages, limit), *(_next_to(pages, limit) if settings is None else settings)]
    for pair in settings:
        if len(sequence("a setting", pair)) != 2:
            raise ValueError(f"a setting must be a pair (pages, limit), not {pair!r}")
    settings = [(whole("pages", p, most=fast.MOST), whole("limit", n)) for p, n in settings]
    now, size = settings[0], whole("page_size", options.get("page_size", PAGE_SIZE))
    need, rows = pages_each(workload, size), []
    for setting in _bar(list(dict.fromkeys(settings)), progress, "setting"):
        what, large = _called(setting, now), sum(most > setting[0] for most in need)
        if large and rows:
            rows.append(Change(what, *setting, None, None, None, None, large))
            continue
        run = fast.serve(workload, *setting, **{"record": "summary"} | options)
        read = fast.report(run)
        waits = read.ttft_p99, read.tbt_p99
        rows.append(Change(what, *setting, *waits, read.queue_max, read.wall, 0))
    single = [row for row in rows[1:] if now[0] == row.pages or now[1] == row.limit]
    single = [row for row in single if not row.too_large]
    best = min(single, key=lambda row: (row.ttft_p99, row.pages, row.limit), default=rows[0])
    gain = rows[0].ttft_p99 - best.ttft_p99
    return WhatIf(rows, best if gain > 0 and gain >= margin * rows[0].ttft_p99 else None, margin)


def _next_to(pages, limit):
    """The settings that `what_if` looks at: one of the two changed, then both doubled."""
    pages, limit = whole("pages", pages), whole("limit", limit)
    few, more = (max(1, pages // 2), max(1, limit // 2)), (pages * 3 // 2, limit * 3 // 2)
    one = [(n, limit) for n in (few[0], more[0], 2 * pages)]
    all_of_them = [*one, *((pages, n) for n in (few[1], more[1], 2 * limit))]
    return [s for s in [*all_of_them, (2 * pages, 2 * limit)] if s[0] <= fast.MOST]


def _bar(values, progress, unit):
    """The values, one by one, under a progress bar if asked for."""
    if not progress:
        return values
    from tqdm import tqdm

    return tqdm(values, unit=unit)


# How much it can take.


def can_finish(workload, pages, limit, **options):
    """The chats a second that a server finishes when all of them are there at once.

    It never idles then, so at a higher rate the queue grows for as long as chats come. These
    chats, in this order: a server with few of them has steps at its end that are not full, and
    could finish a little more of an endless stream. Of the book's 400 chats it finishes 27.3 a
    second with 240 pages and 16 places. Near that rate waits are long, and a small difference in
    the length of a step is a large one in waiting: if steps take 10 ms and not 8, one place that
    is asked for 90 chats a second of one step each has them wait 4.4 times as long (in the
    formula of Pollaczek and Khinchine for chats that come at random). Introduced in the chapter
    "How much load can it take?". Other options (page_size, model, chip, ...) go to
    `tinyserve.fast.serve`. Raises ValueError as `serve` does.
    """
    send = [0] * len(a_workload(workload))
    packed = Workload(send, workload.prompts, workload.replies)
    run = fast.serve(packed, pages, limit, **{"record": "summary"} | options)
    return len(packed) / max(run.done)


def _limits(ttft, tbt):
    """Both limits, checked: None is no limit."""
    if ttft is None and tbt is None:
        raise ValueError("a goal needs a limit on ttft or on tbt, not None for both")
    ttft = inf if ttft is None else number("ttft", ttft, above=0)
    return ttft, inf if tbt is None else number("tbt", tbt, above=0)


def goodput(run, ttft=None, tbt=None):
    """The share of a run's chats, 0 to 1, that keep both limits.

    ttft: the most seconds from sent to the first token; tbt: the most seconds that a chat's
    gaps take on average, (last token - first) / (reply - 1). That is the TPOT of DistServe (Zhong
    et al., OSDI 2024) and of `vllm bench serve --goodput`: one long gap in a long reply passes.
    DistServe calls this share the SLO attainment, and the rate at which it meets a goal the
    goodput; that rate is `max_rate`.
    A reply of one token has no gap, so only its TTFT counts. None is no limit. vLLM and AIPerf
    print the requests a second that keep the limits, which is this share of those served a
    second. Takes any Run, also one that kept a summary. Raises ValueError for a limit that is
    not above 0, and if there is none.
    """
    ttft, tbt = _limits(ttft, tbt)
    times = zip(run.workload.send, run.first, run.done, run.workload.replies)
    kept = sum(
        first - send <= ttft and (reply == 1 or (done - first) / (reply - 1) <= tbt)
        for send, first, done, reply in times
    )
    return kept / len(run.first)


def max_rate(workload, ttft=None, tbt=None, share=0.99, *, pages, limit, grid=1.05,
             precision=0.001, progress=False, **options):  # fmt: skip
    """The highest rate, in chats a second, at which `share` of the chats keep both limits.

    ttft, tbt: seconds, as in `goodput`. The chats are sent by `at_rate`, so a rate is tried on
    these chats and not on an endless stream: a short log forgives an overload that a longer
    one would not. With 240 pages, 16 places and limits of 1 s and 50 ms the book's 400 chats may
    come at 29.9 a second, though sent all at once they are served at only 27.3;
    the first 2,000 of the same draw may come at 15.2.

    A faster rate can meet a goal that a slower one misses, since chats then fall into other
    steps; the tighter the limits, the more often. So this is what is returned. From a rate
    at which the server would be busy a thousandth of the time (or the log a billion seconds
    long), rates double until it would be busy a tenth of the time; from there they go up by
    the factor `grid`. When one misses the goal, it and the one before close in on each other, by
    their geometric mean, until they are no more than `precision` (a share) apart. The lower
    one is returned: it meets the goal, as does every lower rate that was tried, and the upper
    one misses it. What lies between two rates of the grid is not seen. 0.0 if already the
    lowest rate misses the goal; infinity if none does, up to all chats at once. progress: a bar
    with a tick for each rate, some hundred of them (needs tqdm).
    Other options (page_size, model, chip, ...) go to `tinyserve.fast.serve`. Raises
    ValueError for limits, a share, a grid or a precision that make no sense, for chats that
    have no rate, all sent at once, and as `serve` does.
    """
    _limits(ttft, tbt)
    number("share", share, above=0, most=1)
    number("grid", grid, least=1.001, most=10)
    number("precision", precision, least=1e-9, most=1)
    start = workload.send[0]
    if start:  # or the lowest rate would be that of a log with a long silence before it
        send = [time - start for time in workload.send]
        workload = Workload(send, workload.prompts, workload.replies, workload.rate)
    send = workload.at_rate(1).send
    options = {"record": "summary"} | options
    bar = _bar(None, progress, "rate")

    def holds(rate):
        if bar is not None:
            bar.update()
        run = fast.serve(workload.at_rate(rate), pages, limit, **options)
        return goodput(run, ttft, tbt) >= share

    busy = can_finish(workload, pages, 1, **options)  # one chat after the other
    try:
        low = max(IDLE * busy, send[-1] / TOP)
        top = (send[-1] - send[0]) / AT_ONCE
        if not holds(low):
            return 0.0
        while holds(high := low * (2 if low < 0.1 * busy else grid)):
            low = high
            if high >= top:
                return inf
        while high > low * (1 + precision):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if holds(middle) else (low, middle)
    finally:
        if bar is not None:
            bar.close()
    return low


class Curve(namedtuple("Curve", "rates shares goal knee")):
    """Which share of the chats (0 to 1) kept the limits at each rate (chats a second), the
    share that is the goal, and the highest rate that meets it, as in `max_rate`."""

    __slots__ = ()


def goodput_curve(workload, rates, ttft=None, tbt=None, share=0.99, *, pages, limit, grid=1.05,
                  precision=0.001, progress=False, **options):  # fmt: skip
    """The goodput of a workload at several rates, and its knee. Returns a Curve.

    rates: chats a second; the other arguments and errors are those of `max_rate`, which finds
    the knee. Raises ValueError for no rates.
    """
    rates = [number("rate", rate, above=0) for rate in sequence("rates", rates)]
    if not rates:
        raise ValueError("a curve needs at least one rate, not 0")
    search = {"grid": grid, "precision": precision, "progress": progress}
    knee = max_rate(workload, ttft, tbt, share, pages=pages, limit=limit, **search, **options)
    options = {"record": "summary"} | options
    runs = (fast.serve(workload.at_rate(rate), pages, limit, **options) for rate in rates)
    return Curve(rates, [goodput(run, ttft, tbt) for run in runs], share, knee)
