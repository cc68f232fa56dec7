"""Recorded request logs: every format, every case from the field, and broken files."""

import gzip
import json
import random
import re
import sys
import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import strategies  # noqa: F401  (its settings)
from hypothesis import given
from hypothesis import strategies as st

from tinyserve.calibrate import read_steps
from tinyserve.logs import FORMATS, SAMPLES, read_log, read_polls, read_results
from tinyserve.logs.requests import KINDS

DATA = Path(__file__).parent / "data"
NAMED = {"send": "t", "prompt": "in", "reply": "out"}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def read(path, **options):
    return read_log(path, quiet=True, **options)


@pytest.fixture
def log(tmp_path):
    """A function that writes a log and reads it."""

    def log(text, name="log.csv", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path, **options)

    return log


def seconds_of_day(stamp):
    """2023-11-16 18:15:46.6805900 as an exact number of seconds, by plain arithmetic."""
    hours, minutes, seconds = stamp.split(" ")[1].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)


# The formats, on real samples. The right values are worked out from the text of the file.


def test_azure_2023_to_the_last_digit():
    path = SAMPLES / "azure2023_conv_400.csv"
    rows = [line.split(",") for line in path.read_text().split("\n")[1:]]
    chats = read(path)
    start = seconds_of_day(rows[0][0])
    assert chats.send == tuple(float(seconds_of_day(stamp) - start) for stamp, _, _ in rows)
    assert chats.prompts == tuple(int(row[1]) for row in rows)
    assert chats.replies == tuple(int(row[2]) for row in rows)
    assert chats.send[:3] == (0.0, 4.314579, 4.541877) and chats.send[-1] == 106.330212
    assert chats.rate == 399 / 106.330212
    assert chats.notes.rows == chats.notes.kept == 400 and chats.notes.counts == {}


def test_azure_2024_with_a_zone_with_and_without_a_fraction(log):
    rows = "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n"
    rows += "2024-05-10 02:00:01.5+02:00,1,1\n2024-05-10 00:00:02.0000001Z,76,15\n"
    chats = log(AZURE + rows)
    assert chats.send == (0.0, 0.99007, 1.49007, 1.9900701)


@pytest.mark.parametrize("name, rows, empty", [("burstgpt_1", 50, 4), ("burstgpt_3", 15, 1)])
def test_burstgpt_goes_by_name(name, rows, empty):
    path = DATA / f"{name}.csv"
    head, *lines = [line.split(",") for line in path.read_text().splitlines()]
    lines = [dict(zip(head, line)) for line in lines]
    good = [row for row in lines if row["Request tokens"] != "0" and row["Response tokens"] != "0"]
    with pytest.raises(ValueError, match=f"{empty} with no tokens"):
        read(path)
    chats = read(path, on_bad="drop")
    start = Decimal(good[0]["Timestamp"])
    assert chats.send == tuple(float(Decimal(row["Timestamp"]) - start) for row in good)
    assert chats.prompts == tuple(int(row["Request tokens"]) for row in good)
    assert chats.replies == tuple(int(row["Response tokens"]) for row in good)
    assert chats.notes.counts == {"no tokens": empty}
    assert len(chats) == rows - empty
    unused = [n for n in head if n not in ("Timestamp", "Request tokens", "Response tokens")]
    assert f"columns not used: {', '.join(unused)}" in chats.notes.lines


@pytest.mark.parametrize("name, power", [("mooncake", 1000), ("qwen", 1)])
def test_json_lines_have_the_unit_of_their_format(name, power):
    path = DATA / f"{name}.jsonl"
    rows = [json.loads(line, parse_float=Fraction) for line in path.read_text().splitlines()]
    chats = read(path)
    start = rows[0]["timestamp"]
    assert chats.send == tuple(float((row["timestamp"] - start) / Fraction(power)) for row in rows)
    assert chats.prompts == tuple(row["input_length"] for row in rows)
    assert chats.replies == tuple(row["output_length"] for row in rows)
    assert FORMATS[name].title in str(chats.notes)


def test_vidur_and_splitwise(log):
    chats = log("arrived_at,num_prefill_tokens,num_decode_tokens\n3.25,10,2\n3.5,20,3\n")
    assert (chats.send, chats.prompts, chats.replies) == ((0.0, 0.25), (10, 20), (2, 3))
    head = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
    chats = log(head + "token_size\n0,2,0,1,1,4096,32\n1,2,0,3,1,2048,8\n2,2,0,4,1,2048,16\n")
    assert chats.send == (0.0, 2.0, 3.0) and chats.replies == (32, 8, 16)


def test_vllm_bench_is_a_log_on_a_monotonic_clock():
    path = DATA / "vllm_bench.json.gz"
    run = json.loads(gzip.decompress(path.read_bytes()), parse_float=Fraction)
    chats = read(path)
    start = run["start_times"][0]
    assert chats.send == tuple(float(time - start) for time in run["start_times"])
    assert list(chats.prompts) == run["input_lens"] and list(chats.replies) == run["output_lens"]
    assert sum(chats.prompts) == run["total_input_tokens"]


def test_guidellm_and_aiperf_are_put_in_order():
    text = gzip.decompress((DATA / "guidellm.json.gz").read_bytes())
    rows = json.loads(text, parse_float=Fraction)["benchmarks"][0]["requests"]["successful"]
    rows = sorted(rows, key=lambda row: row["request_start_time"])
    chats = read(DATA / "guidellm.json.gz")
    start = rows[0]["request_start_time"]
    assert chats.send == pytest.approx(
        [float(r["request_start_time"] - start) for r in rows], abs=1e-12
    )
    assert chats.replies == tuple(row["output_tokens"] for row in rows)

    rows = gzip.decompress((DATA / "aiperf.jsonl.gz").read_bytes()).splitlines()
    rows = sorted(map(json.loads, rows), key=lambda row: row["metadata"]["request_start_ns"])
    chats = read(DATA / "aiperf.jsonl.gz")
    start = rows[0]["metadata"]["request_start_ns"]
    sent = [(row["metadata"]["request_start_ns"] - start) / 1e9 for row in rows]
    assert chats.send == pytest.approx(sent, abs=1e-12)
    assert chats.replies == tuple(r["metrics"]["usage_completion_tokens"]["value"] for r in rows)
    assert chats.notes.counts == {"out of order": 2}


def test_columns_that_the_caller_names(log):
    path = SAMPLES / "replay_cache_x3_client.csv"
    named = {"send": "sent_s", "prompt": "prompt_tokens", "reply": "reply_tokens"}
    chats = read(path, columns={**named, "status": "status"}, unit="s", keep="out of order")
    azure = read(SAMPLES / "azure2023_conv_400.csv")
    assert sum(chats.prompts) == sum(max(1, p // 4) for p in azure.prompts[:200])
    text = '{"t": 5, "in": 3, "out": 1}\n{"t": 7, "in": 4, "out": 2, "more": [1]}\n'
    assert log(text, columns=NAMED, unit="ms").send == (0.0, 0.002)


NANOSECONDS = 1796008546612213997  # no float holds it
STAMPS = [NANOSECONDS, NANOSECONDS + 100, NANOSECONDS + 1_500_000_000]
EXACTLY = (0.0, 1e-7, 1.5)


@pytest.fixture
def parquet(tmp_path):
    """A function that writes columns with pyarrow and reads them as a log."""

    def parquet(table, **options):
        path = tmp_path / "log.parquet"
        pq.write_table(pa.table({"in": [3, 4, 5], "out": [1, 2, 3], **table}), path)
        return read(path, **{"columns": NAMED} | options)

    return parquet


@pytest.mark.parametrize(
    "kind, first, options",
    [
        (pa.int64(), str(NANOSECONDS), {"unit": "ns"}),
        (pa.uint64(), str(NANOSECONDS), {"unit": "ns"}),
        (pa.timestamp("ns"), "2026-11-30 03:15:46.612213997", {}),
        (pa.timestamp("ns", tz="UTC"), "2026-11-30 03:15:46.612213997+00:00", {}),
        (pa.timestamp("ns", tz="America/New_York"), "2026-11-29 22:15:46.612213997-05:00", {}),
    ],
    ids=str,
)
def test_parquet_to_the_last_nanosecond(parquet, kind, first, options):
    chats = parquet({"t": pa.array(STAMPS, kind), "why": [None, [1], []]}, **options)
    assert chats.send == EXACTLY and chats.prompts == (3, 4, 5) and chats.replies == (1, 2, 3)
    assert first in chats.notes.lines[1] and "columns not used: why" in chats.notes.lines


def test_parquet_of_other_types(parquet):
    for times in (
        [1.5, 1.75, 3.5],
        ["1.5", "1.75", "3.5"],
        [*map(Decimal, ("1.5", "1.75", "3.5"))],
    ):
        assert parquet({"t": times}, unit="s").send == (0.0, 0.25, 2.0)
    # Over the end of summer time, when an hour of the clock comes twice.
    times = pa.array([1792889999, 1792890000, 1792890001], pa.timestamp("s", tz="Europe/Berlin"))
    assert parquet({"t": times}).send == (0.0, 1.0, 2.0)
    azure = {"TIMESTAMP": pa.array(STAMPS, pa.timestamp("ns"))}
    azure |= {"ContextTokens": [3, 4, 5], "GeneratedTokens": [1, 2, 3]}
    assert parquet(azure, columns=None).send == EXACTLY


def test_parquet_with_holes(parquet):
    for hole in (None, float("nan")):
        with pytest.raises(ValueError, match=r"log\.parquet, row 2: the time is missing"):
            parquet({"t": [1.0, hole, 2.0]}, unit="s")
        with pytest.raises(ValueError, match=r"of 3 rows 1 without a token count \(row 3\)"):
            parquet({"t": [1, 2, 3], "in": [3.0, 4.0, hole]}, unit="s")
    with pytest.raises(ValueError, match="row 3: the time is missing"):
        parquet({"t": pa.array([*STAMPS[:2], None], pa.timestamp("ns"))})
    chats = parquet({"t": STAMPS, "in": [3, None, 5]}, unit="ns", on_bad="drop")
    assert chats.send == (0.0, 1.5) and chats.notes.counts == {"missing": 1}
    # Numbers beside a hole keep their digits: these two are not the same.
    ids = {"t": [1, 2, 3], "id": [2**60, 2**60 + 1, None]}
    assert len(parquet(ids, unit="s", columns={**NAMED, "id": "id"})) == 3
    with pytest.raises(ValueError, match=r"row 2: the time '1796008546612214097' is 31 years"):
        parquet({"t": [0, *STAMPS[1:]]}, unit="ns")


def test_parquet_as_pandas_writes_it(tmp_path):
    path = tmp_path / "log.parquet"
    frame = pd.DataFrame({"t": pd.to_datetime(STAMPS), "in": [3, 4, 5], "out": [1, 2, 3]})
    for one in (frame, frame.set_index("t"), frame.set_index(pd.Index([7, 8, 9]))):
        one.to_parquet(path)
        assert read(path, columns=NAMED).send == EXACTLY


def test_parquet_that_cannot_be_read(parquet, tmp_path):
    with pytest.raises(ValueError, match=r"log\.parquet has no rows"):
        parquet({name: pa.array([], pa.int64()) for name in ("t", "in", "out")}, unit="s")
    with pytest.raises(ValueError, match=r"no column 't'\. Its columns are 'in', 'out'"):
        parquet({}, unit="s")
    parquet({"t": STAMPS}, unit="ns")
    whole = (tmp_path / "log.parquet").read_bytes()
    for size in (4, 8, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.parquet").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.parquet is a broken Parquet file: "):
            read(tmp_path / "cut.parquet", columns=NAMED, unit="ns")


def test_parquet_without_pyarrow(parquet, tmp_path, monkeypatch):
    parquet({"t": STAMPS}, unit="ns")
    for engine in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(ValueError, match=r"log\.parquet is Parquet, which needs pyarrow: pip"):
        read(tmp_path / "log.parquet", columns=NAMED, unit="ns")


# The cases from the field.


def test_case_11_a_fraction_is_not_cut_short(log):
    ends = (".0010000", ".0020000", ".0090000", ".0110000")
    chats = log(AZURE + "".join(f"2023-11-16 18:15:46{end},1,1\r\n" for end in ends))
    assert chats.send == (0.0, 0.001, 0.008, 0.010)


def test_case_12_rows_without_a_fraction(log):
    chats = log(AZURE + "2024-05-10 00:00:03.500000+00:00,1,1\n2024-05-10 00:00:04+00:00,1,1\n")
    assert chats.send == (0.0, 0.5)


def test_case_13_milliseconds_or_seconds(log):
    rows = "".join(
        f'{{"timestamp": {t}, "input_length": 8, "output_length": 2{{}}}}\n'
        for t in (0, 3000, 6000)
    )
    mooncake = rows.replace("{}", ', "hash_ids": [1]')
    qwen = rows.replace("{}", ', "chat_id": 1, "parent_chat_id": -1')
    plain = rows.replace("{}", "")
    chats = log(mooncake, keep="duplicate")
    assert chats.send == (0.0, 3.0, 6.0)
    assert "sent over 6.000 s: 0.3333 chats a second" in chats.notes.lines
    with pytest.raises(ValueError, match="repeating an earlier row"):
        log(qwen)  # one id three times
    for text in (plain, "t,in,out\n0,8,2\n3000,8,2\n6000,8,2\n"):
        names = (
            {**NAMED}
            if text[0] == "t"
            else dict(zip(NAMED, ("timestamp", "input_length", "output_length")))
        )
        with pytest.raises(
            ValueError, match=r"line [12]: the time '0' is a number: of what\? Say unit"
        ):
            log(text, columns=names)
        assert log(text, columns=names, unit="s").send == (0.0, 3000.0, 6000.0)
        assert log(text, columns=names, unit="ms").rate == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="no format known here"):
        log(plain)  # with Mooncake's names, but nothing says that it is one
    assert log(plain, format="mooncake").send == (0.0, 3.0, 6.0)


def test_case_14_rows_without_tokens_are_counted_and_said(log, capsys):
    rows = [f"{i * 30},ChatGPT,9,9,18,API log" for i in range(100)]
    rows += [f"{3000 + i / 3:.6f},ChatGPT,9,9,18,API log" for i in range(100)]
    rows[7] = rows[11] = "240,ChatGPT,0,0,0,API log"
    text = BURST + "\n".join(rows)
    with pytest.raises(ValueError, match=r"2 with no tokens to read or to write \(lines 9, 13\)"):
        log(text)
    chats = log(text, on_bad="drop")
    assert (len(chats), chats.notes.rows, chats.notes.counts) == (198, 200, {"no tokens": 2})
    assert chats.notes.lines[-1] == "sent over 3,033.000 s: 0.06495 chats a second"  # 197 gaps
    read_log(SAMPLES / "azure2023_conv_400.csv")
    assert capsys.readouterr().out.startswith("azure2023_conv_400.csv: Azure LLM inference trace")


def test_case_15_columns_by_name_in_any_place(log):
    rows = [("1", "GPT-4", "10", "2"), ("4", "GPT-4", "20", "3")]
    names = ["Timestamp", "Model", "Request tokens", "Response tokens"]
    for seed in range(20):
        order = random.Random(seed).sample(range(4), 4)
        extra = random.Random(seed).randrange(5)
        table = [[row[i] for i in order] for row in (names, *rows)]
        for line, cell in zip(table, ("New column", "7", "8")):
            line.insert(extra, cell)
        chats = log("\n".join(",".join(line) for line in table))
        assert (chats.send, chats.prompts, chats.replies) == ((0.0, 3.0), (10, 20), (2, 3))
        assert any("New column" in line for line in chats.notes.lines)


# What is refused, with the line.

REFUSED = {
    "an empty file": ("", "is empty"),
    "a blank file": ("\n \n", "is empty"),
    "only names": (AZURE, "has no rows"),
    "unknown columns": ("a,b,c\n1,2,3\n", r"Its columns are 'a', 'b', 'c'. Name the three"),
    "a missing time": (AZURE + "2023-11-16 18:15:46,1,1\n,2,2\n", "line 3: the time is missing"),
    "a zone on some rows": (
        AZURE + "2024-05-10 00:00:03+00:00,1,1\n2024-05-10 00:00:04,1,1\n",
        r"line 3: the time '2024-05-10 00:00:04' is a date, .* line 2, .* two clocks",
    ),
    "a number among dates": (
        AZURE + "2024-05-10 00:00:03,1,1\n1715299204.5,1,1\n",
        "line 3: the time '1715299204.5' is a number, but the one on line 2.*two clocks",
    ),
    "numbers where dates should be": (AZURE + "0.5,1,1\n", "line 2.*of what"),
    "milliseconds among seconds": (
        BURST + "1715299204,GPT-4,1,1,2,x\n1715299205000,GPT-4,1,1,2,x\n",
        "line 3: the time '1715299205000' is 31 years or more from the first.*two clocks",
    ),
    "half a date": (AZURE + "2023-11-16 18:1,1,1\n", "line 2.*nor a date such as"),
    "a day that is not": (AZURE + "2023-02-30 18:15:46,1,1\n", "line 2.*no date of the calendar"),
    "a far day": (
        AZURE + "2023-02-20 18:15:46,1,1\n9999-02-20 18:15:46,1,1\n", "line 3.*not of our time"
    ),
    "the word now": (AZURE + "2023-02-20 18:15:46,1,1\nnow,1,1\n", "line 3: the time 'now'"),
    "an endless time": (BURST + "5,x,1,1,2,y\ninf,x,1,1,2,y\n", "line 3: the time 'inf' is not"),
    "a time no float holds": (BURST + "5,x,1,1,2,y\n1e999,x,1,1,2,y\n", "line 3: the time '1e999'"),
    "an endless exponent": (BURST + f"1e-{'9' * 30},x,1,1,2,y\n", "line 2: the time '1e-9"),
    "the same in JSON": ('{"t": 1.5e-%s, "in": 2, "out": 3}' % ("9" * 30), "line 1: not JSON"),
    "a row too long": (AZURE + "2023-11-16 18:15:46,1,1,9\n", "line 2: more cells than the 3"),
    "a row too long by two": (AZURE + "2023-11-16 18:15:46,1,1,,9\n", "line 2: more cells than"),
    "a later row too long": (AZURE + "0,1,1\n0,1,1\n1,2,3,4,5\n", "line 4: more cells"),
    "a quote that never ends": (AZURE + '2023-11-16 18:15:46,"1,1\n', "broken.*row"),
    "the same name twice": (AZURE.replace("Context", "GeneratedTokens,Context"), "2 columns named"),
    "a name that is not there": ("TIMESTAMP,a\n", "no format known"),
    "broken JSON": ('{"t": 1, "in": 2, "out": 3}\n{"t": 2, "in"', "line 2: not JSON"),
    "a broken first line": ('{"t": 1, "in\n{"t": 2}\n', "line [12]: not JSON"),
    "a line that is no record": ('{"t": 1, "in": 2, "out": 3}\n7\n', "line 2: not a record"),
    "a list of no records": ("[1, 2]", "request 1: not a record"),
    "no record at all": ("[]", "no format known"),
    "deep brackets": ("[" * 100_000, "not JSON"),
    "latin-1": (AZURE.encode() + b"2023-11-16 18:15:46,1,1\n1,1,\xe9\n", "line 3: not UTF-8"),
    "UTF-16": ((AZURE + "2023-11-16 18:15:46,1,1\n").encode("utf-16"), "line 1: not UTF-8"),
    "half a gzip": (gzip.compress(AZURE.encode() * 99)[:-9], "not a whole gzip"),
    "no gzip": (b"\x1f\x8b" + b"x" * 30, "not a whole gzip"),
    "no lists in guidellm": ('{"benchmarks": [{"requests": 3}]}', "benchmark 1 has no lists"),
    "arrays of two lengths": (
        '{"start_times": [1.0, 2.0], "input_lens": [3], "output_lens": [1]}', "start_times has 2"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(log, what):
    text, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        log(text, on_bad="drop", columns=NAMED if '"in"' in str(text) else None)


def test_results_without_arrivals_say_so():
    for name in ("sglang_bench.jsonl.gz", "llmperf_lepton.json"):
        with pytest.raises(ValueError, match="when its requests were sent is not in it"):
            read(DATA / name)


def test_bad_arguments(log):
    text = "t,in,out\n1,2,3\n"
    for options, message in [
        ({"format": "azur"}, "format must be one of 'azure', 'burstgpt'"),
        ({"format": "azure"}, r"no column 'TIMESTAMP'. Its columns are 't', 'in', 'out'"),
        ({"columns": NAMED, "unit": "h"}, "unit must be one of 's', 'ms', 'us', 'ns', not 'h'"),
        ({"columns": {"send": "t"}}, "columns must be a dict with send, prompt and reply"),
        ({"columns": {**NAMED, "reply": "x"}}, "no column 'x'"),
        ({"columns": NAMED, "format": "azure"}, "not both"),
        ({"columns": NAMED, "unit": "s", "on_bad": "keep"}, "on_bad must be"),
        ({"columns": NAMED, "unit": "s", "keep": "failed"}, "keep can name"),
    ]:
        with pytest.raises(ValueError, match=message):
            log(text, **options)
    with pytest.raises(ValueError, match=r"cannot read nowhere\.csv"):
        read("nowhere.csv")


@pytest.mark.parametrize("reader", [read_log, read_results, read_polls, read_steps])
@pytest.mark.parametrize("path", [None, 3, b"log.csv", ["log.csv"]], ids=repr)
def test_what_is_no_path_is_named(reader, path):
    with pytest.raises(ValueError, match="path must be a path, not ") as refused:
        reader(path)
    assert str(refused.value).endswith(repr(path))


def test_a_folder_and_a_missing_file_are_named_as_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for reader in (read_log, read_results, read_polls):
        for path in (".", "", "..", tmp_path, f"{tmp_path}/"):
            with pytest.raises(ValueError) as refused:
                reader(path)
            assert str(refused.value) == f"cannot read {path}: Is a directory"
        with pytest.raises(ValueError, match=r"^cannot read no/where\.csv: No such file"):
            reader("no/where.csv")


def test_each_kind_of_bad_row_is_counted(log):
    rows = [
        "0,a,5,5,ok", "1,b,5,5,500", "2,c,,5,ok", "3,d,5,2.5,ok", "4,e,5,0,ok", "5,a,6,6,ok",
        "4.5,f,5,5,OK", "5.5,g,-1,5,200", "6,h,nothing,1,", "7,i,1,1e10,ok", "8,j,5.0,5,ok",
    ]  # fmt: skip
    options = {"columns": {**NAMED, "id": "id", "status": "status"}, "unit": "s"}
    text = "t,id,in,out,status\n" + "\n".join(rows) + "\n\n"
    with pytest.raises(ValueError) as refused:
        log(text, **options)
    for said in (
        "of 11 rows 1 failed (line 3), 1 without a token count (line 4), 4 whose token count",
        "(lines 5, 9, 10 and 1 more)", "1 with no tokens to read or to write (line 6)",
        "1 repeating an earlier row (line 7)", 'keep="duplicate"',
    ):  # fmt: skip
        assert said in str(refused.value)
    chats = log(text, on_bad="drop", **options)
    assert chats.send == (0.0, 4.5, 8.0)
    assert chats.notes.counts == {
        "failed": 1, "missing": 1, "unreadable": 4, "no tokens": 1, "duplicate": 1,
    }  # fmt: skip
    assert "blank lines passed over: 1" in chats.notes.lines
    kept = log(text, on_bad="drop", keep="duplicate", **options)
    assert kept.send == (0.0, 4.5, 5.0, 8.0) and kept.notes.counts["out of order"] == 1
    with pytest.raises(ValueError, match=r"no row is left of 1: 1 failed \(line 2\)"):
        log("t,id,in,out,status\n0,a,5,5,error", on_bad="drop", **options)


def test_rows_out_of_order_are_all_counted_and_kept(log):
    text = "t,in,out\n" + "".join(f"{t},{t + 1},1\n" for t in (3, 5, 4, 1, 6, 6))
    options = {"columns": NAMED, "unit": "s"}
    # Two are sent before a row above them: the third is not only after its neighbour.
    with pytest.raises(ValueError, match=r"2 sent before a row above \(lines 4, 5\)\. on_bad"):
        log(text, keep="duplicate", **options)
    text = text.replace("1,2,1", "4.5,2,1")  # now after the row above, but not after all
    with pytest.raises(ValueError, match=r"2 sent before a row above \(lines 4, 5\)"):
        log(text, keep="duplicate", **options)
    chats = log(text, keep=["duplicate", "out of order"], **options)
    assert chats.send == (0.0, 1.0, 1.5, 2.0, 3.0, 3.0) and chats.prompts == (4, 5, 2, 6, 7, 7)
    assert chats.notes.lines[2:4] == (
        "6 rows, 6 kept",
        "put in order: 2 sent before a row above (lines 4, 5)",
    )


def test_blank_lines_are_passed_over_and_counted(log):
    text = '\n{"t": 1, "in": 2, "out": 3}\n\n  \n{"t": 2, "in": 2}\n{"t": 2, "in": 2, "out": 3}\n'
    chats = log(text, columns=NAMED, unit="s", on_bad="drop")
    assert chats.send == (0.0, 1.0) and "blank lines passed over: 3" in chats.notes.lines
    assert "left out 1 without a token count (line 5)" in chats.notes.lines[2]


def test_warm_up_failed_and_cancelled_requests_of_aiperf(log):
    record = json.loads(gzip.decompress((DATA / "aiperf.jsonl.gz").read_bytes()).splitlines()[0])

    def row(start, error=None, **metadata):
        names = {"request_start_ns": start, "x_request_id": str(start)}
        return json.dumps(
            {**record, "error": error, "metadata": {**record["metadata"], **names, **metadata}}
        )

    rows = [
        row(10**18), row(10**18 + 1, benchmark_phase="warmup"), row(10**18 + 2, {"code": 500}),
        row(10**18 + 3, was_cancelled=True), row(10**18 + 100),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"of 5 rows 2 failed \(lines 3, 4\)\. "):
        log("\n".join(rows))
    chats = log("\n".join(rows), on_bad="drop")
    assert chats.send == (0.0, 1e-7)
    assert chats.notes.counts == {"warm-up": 1, "failed": 2}


def test_several_runs_are_not_mixed(log):
    run = {
        "start_times": [5.0, 6.5],
        "input_lens": [3, 4],
        "output_lens": [1, 2],
        "errors": ["", ""],
    }
    later = {**run, "start_times": [25.0, 26.0], "output_lens": [7, 0], "errors": ["", "HTTP 500"]}
    text = f"{json.dumps(run)}\n{json.dumps(later)}\n"
    with pytest.raises(ValueError, match="holds 2 runs, 1, 2: say which, run=1"):
        log(text, on_bad="drop")
    assert log(text, run=1).send == (0.0, 1.5)
    assert log(text, run=2, on_bad="drop").replies == (7,)
    with pytest.raises(ValueError, match="no rows of run 3"):
        log(text, run=3)


# Round trips, and files of every sort of brokenness.

requests = st.lists(
    st.tuples(st.integers(0, 10**13), st.integers(1, 10**6), st.integers(1, 10**6)),
    min_size=1,
    max_size=20,
)


@given(
    rows=requests,
    unit=st.sampled_from(["ns", "us", "ms", "s"]),
    base=st.integers(0, 2 * 10**9),
    table=st.booleans(),
    zipped=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
def test_what_was_written_is_read(tmp_path_factory, rows, unit, base, table, zipped, end, mark):
    """CSV and JSON lines, gzipped or not, on any clock from any start: not a digit is lost."""
    power = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    rows = sorted(rows, key=lambda row: row[0])  # whole nanoseconds
    lines = ["t,in,out"] if table else []
    for ns, prompt, reply in rows:
        time = Decimal(base * 10**9 + ns).scaleb(-9) * power
        cells = f"{time},{prompt},{reply}", f'{{"t": {time}, "in": {prompt}, "out": {reply}}}'
        lines.append(cells[not table])
    text = (mark + "".join(line + end for line in lines)).encode()
    path = tmp_path_factory.getbasetemp() / "written"
    path.write_bytes(gzip.compress(text) if zipped else text)
    chats = read(path, columns=NAMED, unit=unit, keep="duplicate")
    assert chats.send == tuple((ns - rows[0][0]) / 10**9 for ns, _, _ in rows)
    assert list(zip(chats.prompts, chats.replies)) == [(p, r) for _, p, r in rows]


cells = st.sampled_from(
    ["", "0", "7", "8.0", "2.5", "-3", "x", "1e3", "1e400", "NaN", "true", "9" * 25]
)


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 9), cells, cells, st.sampled_from(["ok", "", "500"])), min_size=1
    ),
    keep=st.sampled_from([(), ("duplicate",)]),
)
def test_no_row_is_lost_unreported(tmp_path_factory, rows, keep):
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    path.write_text("t,in,out,how\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    options = {"columns": {**NAMED, "status": "how"}, "unit": "s", "keep": keep}
    good = [
        (t, float(p), float(r)) for t, p, r, how in rows
        if how != "500" and {p, r} <= {"7", "8.0", "1e3"}
    ]  # fmt: skip
    try:
        chats = read(path, on_bad="drop", **options)
    except ValueError as error:
        assert "no row is left" in str(error) and not good
        return
    counts = chats.notes.counts
    assert set(counts) <= set(KINDS)
    left_out = sum(n for kind, n in counts.items() if kind != "out of order")
    assert len(chats) + left_out == chats.notes.rows == len(rows)
    once = good if keep else list(dict.fromkeys(good))
    same = [(t, p, r) for t, p, r in zip(chats.send, chats.prompts, chats.replies)]
    first = min(row[0] for row in good)
    if keep:
        assert sorted(same) == sorted((t - first, p, r) for t, p, r in good)
    else:  # rows that differ in a column not read are no repeats
        assert {(t + first, p, r) for t, p, r in same} == set(once)
    fine = len(good) == len(rows) and not counts
    if fine:
        assert read(path, **options) == chats
    else:
        with pytest.raises(ValueError, match=f"of {len(rows)} rows "):
            read(path, **options)


SAMPLE_FILES = [
    *(DATA / name for name in ("burstgpt_3.csv", "mooncake.jsonl", "qwen.jsonl")),
    *(DATA / f"{name}.gz" for name in ("aiperf.jsonl", "guidellm.json", "vllm_bench.json")),
    SAMPLES / "azure2023_conv_400.csv",
]


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda path: path.name)
def test_broken_files_give_a_clear_error_or_a_right_result(tmp_path, path):
    whole = path.read_bytes()
    text = gzip.decompress(whole) if path.suffix == ".gz" else whole
    rng = random.Random(path.name)
    right = read(path, on_bad="drop")
    known = set(zip(right.prompts, right.replies))
    for trial in range(40):
        broken = bytearray(text if trial % 4 else whole)
        for _ in range(rng.choice([0, 1, 3])):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        del broken[rng.randrange(len(broken) + 1) :]
        if trial % 5 == 0:
            at = rng.randrange(len(broken) + 1)
            broken[at:at] = rng.choice(
                [b"\0", b"\n\n", b'"', b"\xef\xbb\xbf", b"9" * 400, b",", b"\r"]
            )
        (tmp_path / "broken").write_bytes(broken)
        try:
            chats = read(tmp_path / "broken", on_bad="drop")
        except ValueError as error:
            assert str(error).startswith("broken") and type(error) is ValueError, error
            assert len(str(error)) < 2000
        else:
            assert len(chats) <= len(right) + 1
            fit = sum(pair in known for pair in zip(chats.prompts, chats.replies))
            assert fit >= len(chats) - 5, "most rows were not touched"


def test_a_large_file_is_read_in_pieces(tmp_path, monkeypatch):
    from tinyserve.logs import files

    path = SAMPLES / "azure2023_conv_400.csv"
    right = read(path)
    monkeypatch.setattr(files, "CHUNK", 7)
    assert read(path) == right
    for name in ("mooncake.jsonl", "qwen.jsonl"):
        monkeypatch.setattr(files, "CHUNK", 4)
        pieces = read(DATA / name)
        monkeypatch.setattr(files, "CHUNK", 1000)
        assert read(DATA / name) == pieces
    monkeypatch.setattr(files, "CHUNK", 7)
    (tmp_path / "two.csv").write_bytes(
        path.read_bytes() + b"\r\n" + path.read_bytes().split(b"\r\n")[1]
    )
    with pytest.raises(ValueError, match=r"repeating an earlier row \(line 402\)"):
        read(tmp_path / "two.csv")


def test_a_long_read_shows_how_far_it_is(capsys):
    read(SAMPLES / "azure2023_conv_400.csv", progress=True)
    assert "azure2023_conv_400.csv: 100%" in capsys.readouterr().err
    read(SAMPLES / "azure2023_conv_400.csv")
    assert capsys.readouterr() == ("", "")


def test_every_sample_has_its_source_and_licence():
    for folder, most in ((DATA, 500_000), (SAMPLES, 200_000)):
        said = (folder / "LICENCES.md").read_text(encoding="utf-8")
        files = [path for path in folder.iterdir() if path.name != "LICENCES.md"]
        assert sum(path.stat().st_size for path in files) < most
        for path in files:
            name = re.sub("(cache|batch)_x[13]", "SERVER_SPEED", path.name)
            assert f"`{name}`" in said, path.name


# What a licence's text says, and nobody would write otherwise.
LICENCES = {
    "Apache-2.0": "Apache License Version 2.0, January 2004",
    "BSD-3-Clause": "Redistributions in binary form must reproduce the above copyright notice",
    "MIT": "The above copyright notice and this permission notice shall be included in all copies",
}
HOLDERS = {  # of what comes under the MIT License of others
    "LLMServingSim": "Copyright (c) 2024, CASYS Lab at KAIST",
    "vidur": "Copyright (c) Microsoft Corporation.",
}


def test_every_licence_that_is_named_has_its_text_in_the_repository():
    files = {}
    for folder in (DATA, SAMPLES):
        said = (folder / "LICENCES.md").read_text(encoding="utf-8")
        for name in set(re.findall(r"`([./\w-]+\.txt)`", said)):
            if "LICENCE" in name:
                files[name] = " ".join((folder / name).read_text(encoding="utf-8").split())
        ours = "MIT, as this package|our own runs?, MIT|MIT License of the|package's MIT License"
        of_others = re.sub(ours, "", said)
        named = {licence for licence in LICENCES if licence in of_others}
        assert {"Apache-2.0"} < named
        for licence in named:
            assert any(licence in f and LICENCES[licence] in t for f, t in files.items()), licence
        # Of another licence, CC BY 4.0 alone, there is only the address.
        known = "|".join([*LICENCES, "CC BY 4.0", "numbers and names of metrics, quoted"])
        for row in re.findall(r"(?m)^\| `.*", said):
            assert re.search(known, row), row
    for what, copyright in HOLDERS.items():
        assert what in (SAMPLES / "LICENCES.md").read_text(encoding="utf-8")
        assert copyright in files["LICENCE-MIT.txt"]


def test_the_licences_go_into_the_wheel():
    root = SAMPLES.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    in_wheel = {path for part in project["project"]["license-files"] for path in root.glob(part)}
    assert in_wheel == {root / "LICENSE", *SAMPLES.glob("LICENCE*")}
    assert (
        len(in_wheel) == 4
        and "data/*" in project["tool"]["setuptools"]["package-data"]["tinyserve"]
    )


def test_a_run_of_a_file_that_holds_one_cannot_be_chosen(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("t,in,out\n0,5,5\n1,6,6\n")
    names = {"columns": {"send": "t", "prompt": "in", "reply": "out"}, "unit": "s", "quiet": True}
    assert len(read_log(path, run=1, **names)) == 2
    with pytest.raises(ValueError, match=r"one.csv holds one run, and none to choose with run=2"):
        read_log(path, run=2, **names)
