"""What load tools measured, request by request, in one shape and by one definition.

Introduced in the chapters "Read a real server" and "Two numbers with one name". Tools use the
same words for different waits, so nothing here goes by a column's name. Here TTFT is from sent to
the first token, e2e from sent to the last, and TPOT is (e2e - TTFT) / (tokens - 1): the time of a
token after the first, one value a request.
"""

from collections import namedtuple

import numpy as np
import pandas as pd

from tinyserve.logs.files import Log, look

COLUMNS = "run send_s late_s prompt tokens ttft_s e2e_s tpot_s gaps status error".split()

Tool = namedtuple("Tool", "title needs read said lacks")
Tool.__doc__ = """How to read one tool's results.

needs: the columns that give it away; read: a function from its rows to columns, some of
COLUMNS; said: what the tool means by its words; lacks: what its files do not tell.
"""


class _Rows:
    """The records of a file by column: rows["metadata.turn"] is a Series, None where absent."""

    def __init__(self, records):
        self.index, self.records = zip(*records) if records else ((), ())

    def __getitem__(self, name):
        return pd.Series([look(row, name) for row in self.records], index=self.index, dtype=object)


def _float(cell):
    try:
        return np.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _number(column, scale=1.0):
    """A column as floats times `scale`, NaN where it holds no number."""
    return pd.Series([_float(cell) for cell in column], index=column.index) * scale


def _sum(gaps):
    return sum(map(_float, gaps)) if isinstance(gaps, list) else np.nan


def _bench(rows):
    """vLLM's and SGLang's benchmarks: arrays in seconds, gaps between chunks."""
    ttft = _number(rows["ttfts"])
    last = ttft + rows["itls"].map(_sum).astype(float)
    return {
        "send_s": _number(rows["start_times"]),
        "prompt": rows["input_lens"],
        "tokens": rows["output_lens"],
        "ttft_s": ttft,
        "e2e_s": _number(rows["latencies"]).fillna(last),
        "gaps": rows["itls"],
        "error": rows["errors"],
    }


def _guidellm(rows):
    start = _number(rows["request_start_time"])
    last = _number(rows["info.timings.last_token_iteration"]) - start
    ended = rows["ended"].where(rows["ended"] != "successful", "")
    return {
        "send_s": start,
        "late_s": start - _number(rows["info.timings.targeted_start"]),
        "prompt": rows["prompt_tokens"],
        "tokens": rows["output_tokens"],
        "ttft_s": _number(rows["time_to_first_token_ms"], 1e-3),
        "e2e_s": last.fillna(_number(rows["request_latency"])),
        "error": rows["info.error"].where(rows["info.error"].notna(), ended),
    }


def _aiperf(rows):
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

    def seconds(name):
        unit = [units.get(unit, np.nan) for unit in rows[f"metrics.{name}.unit"]]
        return _number(rows[f"metrics.{name}.value"]) * unit

    def tokens(*names):
        first, then = (_number(rows[f"metrics.{name}.value"]) for name in names)
        return first.fillna(then)

    starts = [ns for ns in rows["metadata.request_start_ns"] if isinstance(ns, int)]
    zero = min(starts, default=0)

    def from_zero(name):  # a float holds a difference of whole nanoseconds, but not the clock
        times = rows[f"metadata.{name}_ns"]
        return _number(times.map(lambda ns: ns - zero if isinstance(ns, int) else None), 1e-9)

    chunks = rows["metrics.inter_chunk_latency.value"]
    scales = [units.get(unit, np.nan) for unit in rows["metrics.inter_chunk_latency.unit"]]
    gaps = [
        [scale * _float(gap) for gap in of_one] if isinstance(of_one, list) else None
        for of_one, scale in zip(chunks, scales)
    ]
    warm = rows["metadata.benchmark_phase"].eq("warmup")
    cancelled = rows["metadata.was_cancelled"].eq(True)
    error = rows["error"].where(rows["error"].notna(), np.where(cancelled, "cancelled", ""))
    return {
        "send_s": from_zero("request_start"),
        "late_s": from_zero("request_start") - from_zero("credit_issued"),
        "prompt": tokens("usage_prompt_tokens", "input_sequence_length"),
        "tokens": tokens("usage_completion_tokens", "output_sequence_length"),
        "ttft_s": seconds("time_to_first_token"),
        "e2e_s": seconds("request_latency"),
        "gaps": gaps,
        "error": error,
        "status": np.where(warm, "warm-up", ""),
    }


def _llmperf(rows):
    code = rows["error_code"]
    error = [
        f"{c}: {m or ''}".strip(": ") if c is not None else ""
        for c, m in zip(code, rows["error_msg"])
    ]
    return {
        "prompt": rows["number_input_tokens"],
        "tokens": rows["number_output_tokens"],
        "ttft_s": _number(rows["ttft_s"]),
        "e2e_s": _number(rows["end_to_end_latency_s"]),
        "error": pd.Series(error, index=rows.index),
    }


TOOLS = {
    "vllm": Tool(
        "vllm bench serve",
        ("ttfts", "itls", "output_lens", "summary.endpoint_type"),
        _bench,
        "its TPOT leaves out the first token, as here; its ITL pools the gaps between chunks, "
        "which can hold several tokens; waits start when a request is sent, not when it was due",
        "when a request should have been sent",
    ),
    "sglang": Tool(
        "sglang bench_serving",
        ("ttfts", "itls", "output_lens", "summary.total_output_tokens_retokenized"),
        _bench,
        "its TPOT leaves out the first token, but runs to the end of the answer; here e2e ends "
        "with the last chunk; its ITL pools the gaps between chunks, or, with its own backend, "
        "shares each gap among the tokens of its chunk; waits start when a request is sent, not "
        "when it was due",
        "when requests were sent, and the end of each answer",
    ),
    "guidellm": Tool(
        "guidellm",
        ("time_to_first_token_ms", "output_tokens", "ended"),
        _guidellm,
        "its TPOT counts the first token and its wait in, so it is not the one here; its ITL is "
        "the TPOT here; its latency ends with the answer, here e2e ends with the last token; waits "
        "start when a request is sent, not when it was due (late_s)",
        "",
    ),
    "aiperf": Tool(
        "AIPerf",
        ("metadata.request_start_ns", "metadata.benchmark_phase"),
        _aiperf,
        "its inter-token latency leaves out the first token, as here, but counts the tokens "
        "again by itself; here tokens are those that the server counted, if it did; gaps are "
        "those between chunks; waits start when a request is sent, not when it was due (late_s)",
        "",
    ),
    "llmperf": Tool(
        "llmperf",
        ("ttft_s", "end_to_end_latency_s", "number_output_tokens"),
        _llmperf,
        "its inter-token latency counts the wait for the first token in, so it is not the one "
        "here; a reply shorter than asked is an error to it, and stays out here too; waits start "
        "when a request is sent (it has no schedule)",
        "when requests were sent",
    ),
}


def read_results(path, columns=None, quiet=False):
    """Read the requests that a load tool measured, as a DataFrame with one row a request.

    path: a result file of vllm bench serve (--save-detailed), sglang bench_serving
    (--output-details), guidellm (JSON), AIPerf (profile_export.jsonl) or llmperf
    (individual responses); or any CSV, JSON lines or Parquet file with `columns`, a dict from
    some of prompt, tokens, ttft_s and e2e_s, and perhaps send_s, late_s and error, to its own
    names, with times in seconds from when each request was sent.

    The columns: run (from 1); send_s, seconds from the first request sent; late_s, seconds
    from when it should have been sent to when it was; prompt and tokens, as made, not as
    asked for; ttft_s and e2e_s, seconds from sent to the first token and to the last; tpot_s,
    (e2e_s - ttft_s) / (tokens - 1), missing for a reply of one token; gaps, the seconds
    between the chunks; status, "ok", "failed", "empty" (an answer without a token) or
    "warm-up"; error. What a file does not tell is missing, and so are the waits of a request
    that is not "ok". `attrs` has the tool and the notes, which are printed unless quiet.

    Raises ValueError, naming the request, for a file of no known tool, a file that is broken,
    and a request that ends before its first token, or whose wait is negative.
    """
    log = Log(path, exact=False)
    tool = _tool(log, columns)
    rows = _Rows(list(log.records()))
    if not rows.index:
        raise ValueError(f"{log.name} has no requests")
    read = pd.DataFrame(tool.read(rows), index=rows.index)
    table = read.reindex(columns=COLUMNS)
    table["run"] = _number(rows["run"]).fillna(1).astype(int)
    table["error"] = [
        str(e) if e not in (None, "", False) and e == e else "" for e in read["error"]
    ]
    for name in ("send_s", "late_s", "prompt", "tokens", "ttft_s", "e2e_s"):
        table[name] = _number(table[name])
    table["send_s"] -= table.groupby("run")["send_s"].transform("min")
    status = table["status"].where(table["status"].notna(), "").astype(object)
    status = status.mask((status == "") & (table["error"] != ""), "failed")
    status = status.mask((status == "") & ~(table["tokens"] > 0), "empty")
    table["status"] = status.mask(status == "", "ok")
    fine = table["status"] == "ok"
    _check(log, table[fine])
    table.loc[~fine, ["ttft_s", "e2e_s"]] = np.nan
    table["gaps"] = table["gaps"].where(fine & table["gaps"].notna(), None)
    after = table["tokens"].where(table["tokens"] > 1) - 1
    table["tpot_s"] = (table["e2e_s"] - table["ttft_s"]) / after
    table.index = pd.RangeIndex(1, len(table) + 1, name="request")
    notes = _notes(log, tool, table, rows)
    table.attrs = {"tool": tool.title, "notes": notes}
    if not quiet:
        print("\n".join(notes))
    return table


def _tool(log, columns):
    """The Tool for a file, or ValueError with the columns found."""
    if columns is not None:
        known = {"send_s", "late_s", "prompt", "tokens", "ttft_s", "e2e_s", "error"}
        named = dict(columns) if isinstance(columns, dict) else {}
        if not {"tokens", "ttft_s", "e2e_s"} <= set(named) <= known:
            raise ValueError(
                "columns must be a dict with tokens, ttft_s and e2e_s, perhaps prompt, send_s, "
                f"late_s and error, not {columns!r}"
            )
        for name in named.values():
            if name not in log.names:
                raise ValueError(f"{log.name} has no column {name!r}, but {log.found}")

        def read(rows):
            table = {key: rows[name] for key, name in named.items()}
            error = table.get("error", pd.Series("", index=rows.index)).astype(object)
            fine = [str(e).lower() in ("none", "", "ok", "200", "success") for e in error]
            return {**table, "error": error.mask(fine, "")}

        return Tool("columns as named", (), read, "waits are in seconds from sent, as said", "")
    fits = [tool for tool in TOOLS.values() if set(tool.needs) <= set(log.names)]
    if not fits:
        raise ValueError(
            f"{log.name} is of no load tool known here. Its columns are {log.found}. Name them: "
            'read_results(path, columns={"tokens": ..., "ttft_s": ..., "e2e_s": ...})'
        )
    return fits[0]


def _check(log, table):
    """Raise ValueError for waits that cannot be."""
    for name in ("ttft_s", "e2e_s"):
        for number in table.index[(table[name] < 0) | np.isinf(table[name])][:1]:
            raise ValueError(
                f"{log.name}, {log.word} {number}: {name} is {float(table.loc[number, name])!r}"
            )
    for number in table.index[table["e2e_s"] < table["ttft_s"] - 1e-9][:1]:
        raise ValueError(
            f"{log.name}, {log.word} {number}: it ends after {table.e2e_s[number]:g} s, before "
            f"its first token at {table.ttft_s[number]:g} s"
        )


def _notes(log, tool, table, rows):
    """What was read, in words."""
    counts = table["status"].value_counts()
    said = ", ".join(f"{counts[kind]} {kind}" for kind in counts.index)
    notes = [f"{log.name}: {tool.title}, {len(table)} requests: {said}"]
    if runs := table["run"].nunique() - 1:
        notes.append(f"{runs + 1} runs in one file: see the column run")
    notes.append(f"waits: {tool.said}")
    one = int(((table["status"] == "ok") & (table["tokens"] == 1)).sum())
    if one:
        notes.append(f"{one} replies of one token have no gap, and no tpot_s")
    for name, what in {"ttft_s": "the first token", "e2e_s": "the last token"}.items():
        if lost := int((table["status"].eq("ok") & table[name].isna()).sum()):
            notes.append(f"{lost} requests do not tell the time of {what}")
    caps = {cap for cap in rows["summary.max_concurrency"] if cap is not None}
    for cap in sorted(caps, key=str):
        notes.append(
            f"at most {cap} requests were under way at once: a request held back by that waited "
            "before it was sent, and that wait is in no number here"
        )
    if table["late_s"].notna().any():
        notes.append(
            f"sent up to {table['late_s'].max():.3f} s late (late_s): add it for the wait from "
            "when a request should have been sent"
        )
    if tool.lacks:
        notes.append(f"not in the file: {tool.lacks}")
    return notes
