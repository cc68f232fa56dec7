"""Recorded request logs: who asked, when, and how much, as a Workload.

Introduced in the chapter "Replay a real log"; "Your own log" is its template. A format is known
by the names of its columns, never by their places. One table says for each what to look for, what
its clock counts, and where a request's three numbers stand.
"""

import re
from collections import namedtuple
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from tinyserve.checks import whole
from tinyserve.logs.files import REPEAT, Log
from tinyserve.workload import Workload

SAMPLES = Path(__file__).resolve().parents[1] / "data"  # logs that come with the package

Format = namedtuple(
    "Format",
    "title needs unit send prompt reply id failed phase by_end",
    defaults=(None, (), None, False),
)
Format.__doc__ = """How to read one kind of log.

needs: the columns that give it away; unit: what its clock counts ("s", "ms", "us" or "ns"),
None for dates; send, prompt, reply, id: its columns (of several, the first that is there);
failed: columns that say a request failed; phase: the column that tells warm-up apart;
by_end: whether rows stand in the order in which requests ended, which says nothing.
"""

_TRACE = ("timestamp", "input_length", "output_length")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURST = ("Timestamp", "Request tokens", "Response tokens")
_VIDUR = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
_SPLIT = ("arrival_timestamp", "prompt_size", "token_size")
_VLLM = ("start_times", "input_lens", "output_lens")
_GUIDE = ("request_start_time", "prompt_tokens", "output_tokens")
_PERF = (
    "metadata.request_start_ns",
    ("metrics.usage_prompt_tokens.value", "metrics.input_sequence_length.value"),
    ("metrics.usage_completion_tokens.value", "metrics.output_sequence_length.value"),
)
FORMATS = {
    "azure": Format("Azure LLM inference trace", _AZURE, None, *_AZURE),
    "burstgpt": Format("BurstGPT trace", _BURST, "s", *_BURST),
    "mooncake": Format("Mooncake trace", (*_TRACE, "hash_ids"), "ms", *_TRACE),
    "qwen": Format(
        "Qwen-Bailian trace", (*_TRACE, "chat_id", "parent_chat_id"), "s", *_TRACE, "chat_id"
    ),
    "vidur": Format("vidur trace", _VIDUR, "s", *_VIDUR),
    "splitwise": Format("splitwise-sim trace", _SPLIT, "s", *_SPLIT, "request_id"),
    "vllm": Format(
        "vllm bench serve result", _VLLM, "s", *_VLLM, failed=("errors",), by_end=True
    ),
    "guidellm": Format(
        "guidellm result", (*_GUIDE, "ended"), "s", *_GUIDE, "request_id", ("ended",), by_end=True
    ),
    "aiperf": Format(
        "AIPerf records", ("metadata.request_start_ns", "metadata.benchmark_phase"), "ns",
        *_PERF, "metadata.x_request_id", ("error", "metadata.was_cancelled"),
        "metadata.benchmark_phase", by_end=True,
    ),
}  # fmt: skip
UNITS = {"s": 0, "ms": -3, "us": -6, "ns": -9}  # powers of ten
FINE = {"", "ok", "success", "successful", "completed", "200", "false", "none", "null"}
# Results that tell no arrivals: a column that gives them away.
NO_TIMES = {
    "ttfts": "a benchmark result without start times",
    "end_to_end_latency_s": "an llmperf result",
}
# What can be wrong with a row. A row has the first of these that is true of it.
KINDS = {
    "warm-up": "sent to warm the server up",
    "failed": "failed",
    "missing": "without a token count",
    "unreadable": "whose token count is not a whole number from 0 to a billion",
    "no tokens": "with no tokens to read or to write",
    "duplicate": "repeating an earlier row",
    "out of order": "sent before a row above",
}
# A date and a time in digits; its group is the zone.
DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)? ?(Z|[+-]\d\d:?\d\d)?")
FAR = 10**9  # seconds, 31 years: no log is so long, so two clocks are in it
HUGE = 10**30  # more than any clock counts
MOST = 10**9  # tokens; no request has more


class Notes(namedtuple("Notes", "format unit rows kept counts lines")):
    """What was read: the name of the format and the unit of its clock (None for dates), how
    many rows there were and how many are kept, a dict from a kind of KINDS to how many rows
    are of it, and all of it in words, a line each.
    """

    __slots__ = ()

    def __str__(self):
        return "\n".join(self.lines)

    __repr__ = __str__


def read_log(path, format=None, unit=None, columns=None, on_bad="refuse", keep=(), run=None,
             quiet=False, progress=None):  # fmt: skip
    """Read a recorded request log and return a Workload whose first chat is sent at 0.

    path: a CSV, JSON, JSON lines or Parquet file, gzipped or not. format: one of FORMATS; left
    out, it is told by the names of the columns. columns: for any other log, which columns to
    read, such as {"send": "t", "prompt": "in", "reply": "out"}; "id" and "status" can be
    named too. unit: what the clock counts ("s", "ms", "us", "ns"); known for the FORMATS,
    needed for another log unless its clock is dates.

    on_bad: "refuse" raises ValueError for a log with rows that failed, lack a token count,
    have no tokens, repeat an earlier row (its id, or where there is none every column of it),
    or are sent before a row above them. "drop" leaves such rows out, but for those of the
    last kind, which it puts in order. keep: the kinds "duplicate" and "out of order", if they
    are no fault in this log. run: of a file with several runs the one to read, from 1.

    What was found is printed, unless quiet, and kept as `notes` of the Workload. progress:
    whether to show a bar; left out, for more than 20 MB. Raises ValueError, naming the line,
    for a time that is missing or cannot be read, for two clocks in one file, and for a file
    that is broken or has nothing left in it.
    """
    keep = {keep} if isinstance(keep, str) else set(keep)
    if on_bad not in ("refuse", "drop") or not keep <= {"duplicate", "out of order"}:
        raise ValueError(
            'on_bad must be "refuse" or "drop", and keep can name "duplicate" and '
            f'"out of order", not on_bad={on_bad!r} and keep={sorted(keep)!r}'
        )
    log = Log(path)
    title, how, unit = _choose(log, format, unit, columns)
    clock = Clock(log, unit)
    wanted = {name for name in (*how.needs, *how.failed, "run") if name in log.names}
    wanted |= {name for part in how[3:7] for name in _found(part, log)}
    wanted |= {how.phase} & set(log.names)
    if run is not None:
        whole("run", run)
    if run not in (None, 1) and "run" not in log.names:
        raise ValueError(f"{log.name} holds one run, and none to choose with run={run!r}")
    pieces = [_read(part, log, how, clock, run) for part in log.frames(sorted(wanted), progress)]
    rows = pd.concat(pieces) if pieces else pd.DataFrame({"kind": []})
    if rows.empty:
        raise ValueError(f"{log.name} has no rows" + (f" of run {run!r}" if run else ""))
    del pieces
    _only_run(log, rows)
    counts, said = _sort_out(log, how, rows, on_bad, keep)
    kept = rows[rows["kind"] == 0].sort_values("send", kind="stable")
    if kept.empty:
        raise ValueError(f"{log.name}: no row is left of {len(rows):,}: {', '.join(said.values())}")
    send = kept["send"].to_numpy() - kept["send"].iloc[0]
    workload = Workload(send.tolist(), kept["prompt"].tolist(), kept["reply"].tolist())
    order, repeats = said.pop("out of order", None), said.pop("kept", None)
    used = {name.split(".")[0] for name in wanted}
    unused = [name for name in log.names if name and "." not in name and name not in used]
    pace = "all at once" if workload.rate is None else f"{workload.rate:.4g} chats a second"
    lines = [
        f"{log.name}: {title}",
        clock.words(),
        "; left out ".join([f"{len(rows):,} rows, {len(kept):,} kept", *said.values()]),
        order and f"put in order: {order}",
        repeats and f"kept as they are: {repeats}",
        log.blanks and f"blank lines passed over: {log.blanks:,}",
        not how.by_end and unused and f"columns not used: {', '.join(unused)}",
        f"sent over {send[-1]:,.3f} s: {pace}",
    ]
    notes = Notes(title, clock.unit, len(rows), len(kept), counts, tuple(filter(None, lines)))
    object.__setattr__(workload, "notes", notes)  # the dataclass is frozen
    if not quiet:
        print(notes)
    return workload


def _sort_out(log, how, rows, on_bad, keep):
    """Mark the rows that repeat; (how many are of each kind, the same in words) of all.

    Raises ValueError if rows are at fault and on_bad is "refuse".
    """
    good = (rows["kind"] == 0).to_numpy()
    repeats = np.zeros(len(rows), bool)
    repeats[good] = rows["repeat"][good].duplicated()
    if "duplicate" not in keep:
        rows["kind"] = rows["kind"].mask(repeats, _CODE["duplicate"]).astype("int8")
    send = rows["send"].where(rows["kind"] == 0)
    which = {kind: rows["kind"] == code for kind, code in _CODE.items() if code}
    which["out of order"] = send < send.cummax()
    counts = {kind: int(rows_of.sum()) for kind, rows_of in which.items() if rows_of.any()}
    said = {kind: _in_words(log, kind, rows.index[which[kind]]) for kind in counts}
    known = {"warm-up", *keep, *["out of order"] * how.by_end}  # no fault
    if on_bad == "refuse" and (bad := [words for kind, words in said.items() if kind not in known]):
        raise ValueError(
            f"{log.name}: of {len(rows):,} rows {', '.join(bad)}. "
            'on_bad="drop" leaves out such rows, puts the rest in order, and says so'
            + ('; keep="duplicate" keeps repeats' if "duplicate" in counts else "")
        )
    if "duplicate" in keep and repeats.any():
        said["kept"] = _in_words(log, "duplicate", rows.index[repeats])
    return counts, said


def _found(names, log):
    """Of the names (one, several or None) those that the log has."""
    names = (names,) if isinstance(names, str) else names or ()
    return [name for name in names if name in log.names]


def _choose(log, format, unit, columns):
    """(title, Format, unit of the clock) for a log, or ValueError saying how to name them."""
    help = (
        f"Its columns are {log.found}. Name the three to read, and what the clock counts: "
        'read_log(path, columns={"send": ..., "prompt": ..., "reply": ...}, unit="s")'
    )
    if unit not in (None, *UNITS):
        raise ValueError(f"unit must be one of {', '.join(map(repr, UNITS))}, not {unit!r}")
    if columns is not None and format is not None:
        raise ValueError("say the format or name the columns, not both")
    if columns is not None:
        parts = ("send", "prompt", "reply", "id", "status")
        named = dict(columns) if isinstance(columns, dict) else {}
        if not {"send", "prompt", "reply"} <= set(named) <= set(parts):
            raise ValueError(
                "columns must be a dict with send, prompt and reply, perhaps id and status, "
                f"not {columns!r}"
            )
        title = "columns as named"
        how = Format(title, tuple(named.values()), None, *map(named.get, parts[:4]))
        how = how._replace(failed=(named["status"],) if "status" in named else ())
    elif format is None:
        fits = [name for name, how in FORMATS.items() if set(how.needs) <= set(log.names)]
        if not fits:
            for name, what in NO_TIMES.items():
                if name in log.names:
                    raise ValueError(
                        f"{log.name} is {what}: when its requests were sent is not in it, so "
                        "it cannot be replayed; read_results reads its waits"
                    )
            raise ValueError(f"{log.name} is of no format known here. {help}")
        how = FORMATS[max(fits, key=lambda name: len(FORMATS[name].needs))]
        title = f"{how.title}, by its columns {', '.join(how.needs)}"
    elif format in tuple(FORMATS):
        how = FORMATS[format]
        title = f"{how.title}, as said"
    else:
        known = ", ".join(map(repr, FORMATS))
        raise ValueError(f"format must be one of {known}, not {format!r}")
    for part in how[3:6] if columns is None else how.needs:
        if not _found(part, log):
            raise ValueError(f"{log.name} has no column {part!r}. {help}")
    return title, how, unit or how.unit


_CODE = {"": 0, **{kind: code for code, kind in enumerate(KINDS, 1)}}


def text_of(column):
    """A column as text, None where there is nothing."""
    cells = (None if cell is None or cell != cell else str(cell).strip() for cell in column)
    return pd.Series([cell or None for cell in cells], index=column.index, dtype=object)


def _first_of(frame, part, log):
    """The column of a frame for one part of a request: of several, the first with a value."""
    names = _found(part, log)
    column = text_of(frame[names[0]])
    for name in names[1:]:
        column = column.fillna(text_of(frame[name]))
    return column


def _tokens(column):
    """(counts, which are missing, which are no count) of a column of text."""
    number = pd.to_numeric(column, errors="coerce").astype(float)
    missing = column.isna()
    whole = number.between(0, MOST) & (number == np.floor(number))
    return number.where(whole, 0).astype("int64"), missing, ~missing & ~whole


def _read(frame, log, how, clock, run):
    """The rows of one piece of a log: send, prompt, reply, kind, repeat and run."""
    if run is not None and "run" in frame:
        frame = frame[frame["run"] == run]
    prompt, no_prompt, odd_prompt = _tokens(_first_of(frame, how.prompt, log))
    reply, no_reply, odd_reply = _tokens(_first_of(frame, how.reply, log))
    kind = pd.Series(0, index=frame.index, dtype="int8")

    def mark(name, which):
        kind[which & (kind == 0)] = _CODE[name]

    if how.phase in log.names:
        mark("warm-up", text_of(frame[how.phase]).eq("warmup"))
    for name in _found(how.failed, log):
        mark("failed", ~text_of(frame[name]).fillna("").str.lower().isin(FINE))
    mark("missing", no_prompt | no_reply)
    mark("unreadable", odd_prompt | odd_reply)
    mark("no tokens", (prompt == 0) | (reply == 0))
    good = kind == 0
    send = pd.Series(np.nan, index=frame.index)
    send[good] = clock.seconds(_first_of(frame, how.send, log)[good])
    repeat = frame[REPEAT]
    if _found(how.id, log):
        ids = _first_of(frame, how.id, log)
        hashed = pd.util.hash_array(ids.fillna("").to_numpy(object))
        repeat = np.where(ids.notna(), hashed, repeat.to_numpy("uint64"))
    which = frame["run"] if "run" in frame else 1
    table = {"send": send, "prompt": prompt, "reply": reply, "kind": kind, "repeat": repeat}
    return pd.DataFrame({**table, "run": which})


def _only_run(log, rows):
    """Raise ValueError if a file holds several runs and none was chosen."""
    runs = rows["run"].unique()
    if log.word == "request" and len(runs) > 1:
        raise ValueError(
            f"{log.name} holds {len(runs)} runs, {', '.join(map(str, runs))}: say which, run=1"
        )


def _in_words(log, kind, numbers):
    """Some rows of a kind: "7 with no tokens to read or to write (lines 3, 7, 9 and 4 more)"."""
    few = ", ".join(str(number) for number in numbers[:3])
    more = f" and {len(numbers) - 3:,} more" if len(numbers) > 3 else ""
    where = f"{log.word}{'s' if len(numbers) > 1 else ''} {few}{more}"
    return f"{len(numbers):,} {KINDS[kind]} ({where})"


class Clock:
    """Turns the text of a log's times into seconds from the first of them, losing nothing.

    Raises ValueError for a unit that is none.
    """

    def __init__(self, log, unit):
        if unit not in (None, *UNITS):
            raise ValueError(f"unit must be one of {', '.join(map(repr, UNITS))}, not {unit!r}")
        self.log, self.unit, self.kind, self.start = log, unit, None, None

    def words(self):
        """What the clock was read as."""
        if self.unit is None:
            return f"clock: dates, the first {self.first}"
        return f"clock: numbers, counted in {self.unit}; the first is {self.first}"

    def fail(self, line, text, why):
        """Raise ValueError for the time on one line."""
        raise ValueError(f"{self.log.name}, {self.log.word} {line}: the time {text[:60]!r} {why}")

    def seconds(self, text):
        """A column of text as seconds from the log's first time. Raises ValueError."""
        if text.empty:
            return np.array([])
        if text.isna().any():
            line = text.index[text.isna()][0]
            raise ValueError(f"{self.log.name}, {self.log.word} {line}: the time is missing")
        dates = [DATE.fullmatch(cell) for cell in text]
        zoned = {True: "date with a zone", False: "date"}
        kinds = ["number" if date is None else zoned[date[1] is not None] for date in dates]
        if "number" in kinds:
            number = pd.to_numeric(text, errors="coerce").notna()
            for i in np.flatnonzero(~number & (np.array(kinds) == "number"))[:1]:
                why = "is not a number, nor a date such as 2023-11-16 18:15:46.68"
                self.fail(text.index[i], text.iloc[i], why)
        if self.kind is None:
            self.kind, self.first, self.line = kinds[0], text.iloc[0][:60], text.index[0]
        if set(kinds) != {self.kind}:
            i = next(i for i, kind in enumerate(kinds) if kind != self.kind)
            self.fail(
                text.index[i], text.iloc[i],
                f"is a {kinds[i]}, but the one on {self.log.word} {self.line}, {self.first!r}, "
                f"is a {self.kind}: two clocks in one file",
            )  # fmt: skip
        far = self.numbers(text) if self.kind == "number" else self.dates(text)
        for i in np.flatnonzero(np.abs(far) >= FAR)[:1]:
            self.fail(
                text.index[i], text.iloc[i],
                f"is 31 years or more from the first, {self.first!r}: two clocks in one file, "
                f"or a clock that does not count in {self.unit or 'dates'}",
            )  # fmt: skip
        return far

    def numbers(self, text):
        """Seconds of times that are numbers."""
        if self.unit is None:
            self.fail(
                text.index[0], text.iloc[0],
                'is a number: of what? Say unit="s", "ms", "us" or "ns"',
            )  # fmt: skip
        power, seconds = UNITS[self.unit], []
        for line, cell in text.items():
            try:
                time = Decimal(cell)
                if not abs(time) < HUGE:
                    self.fail(line, cell, "is not a number of use")
                self.start = time if self.start is None else self.start
                seconds.append(float((time - self.start).scaleb(power)))
            except ArithmeticError:  # a power of ten with no room for it
                self.fail(line, cell, "is not a number of use")
        return np.array(seconds)

    def dates(self, text):
        """Seconds of times that are dates, in any zone."""
        dates = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        for i in np.flatnonzero(dates.isna())[:1]:
            self.fail(text.index[i], text.iloc[i], "is no date of the calendar")
        try:
            ticks = dates.dt.as_unit("ns").astype("int64").to_numpy()
        except ValueError:
            line = dates.index[(dates.dt.year < 1700) | (dates.dt.year > 2200)][0]
            self.fail(line, text[line], "is not of our time")
        self.unit = None
        if self.start is None:
            self.start = int(ticks[0])
        return (ticks - self.start) / 1e9
