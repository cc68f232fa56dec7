"""What load tools measured: each tool's sample, and the cases of one word with two meanings."""

import gzip
import json
import random
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from tinyserve.logs import SAMPLES, TOOLS, read_results

DATA = Path(__file__).parent / "data"


def read(path, **options):
    return read_results(path, quiet=True, **options)


@pytest.fixture
def result(tmp_path):
    """A function that writes a result file and reads it."""

    def result(value, **options):
        path = tmp_path / "result.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return read(path, **options)

    return result


def unpacked(name):
    return gzip.decompress((DATA / name).read_bytes()).decode()


def vllm(ttfts, itls, output_lens, **more):
    n = len(ttfts)
    columns = {
        "input_lens": [8] * n,
        "errors": [""] * n,
        "start_times": [5.0 + i for i in range(n)],
    }
    return {"endpoint_type": "openai", "ttfts": ttfts, "itls": itls, "output_lens": output_lens,
            **columns, **more}  # fmt: skip


def guidellm(first, last, tokens, start=100.0, planned=100.0, **more):
    timings = {"targeted_start": planned, "last_token_iteration": start + last}
    request = {
        "request_id": str(start), "request_start_time": start, "request_latency": last + 0.5,
        "prompt_tokens": 8, "output_tokens": tokens, "time_to_first_token_ms": 1000 * first,
        "time_per_output_token_ms": 1000 * last / tokens, "info": {"timings": timings}, **more,
    }  # fmt: skip
    return {
        "benchmarks": [{"requests": {"successful": [request], "errored": [], "incomplete": None}}]
    }


def llmperf(ttft, e2e, tokens, code=None, message=""):
    return {"error_code": code, "error_msg": message, "ttft_s": ttft, "end_to_end_latency_s": e2e,
            "inter_token_latency_s": e2e / tokens, "number_output_tokens": tokens,
            "number_input_tokens": 8}  # fmt: skip


# The samples, against what the tools themselves say of the same run.


def test_vllm_bench():
    run = json.loads(unpacked("vllm_bench.json.gz"))
    table = read(DATA / "vllm_bench.json.gz")
    assert len(table) == run["completed"] == 80 and set(table["status"]) == {"ok"}
    assert 1000 * table["ttft_s"].mean() == pytest.approx(run["mean_ttft_ms"])
    assert 1000 * table["tpot_s"].mean() == pytest.approx(run["mean_tpot_ms"])
    assert 1000 * table["e2e_s"].mean() == pytest.approx(run["mean_e2el_ms"])
    assert 1000 * fmean(np.concatenate(list(table["gaps"]))) == pytest.approx(run["mean_itl_ms"])
    assert table["tokens"].sum() == run["total_output_tokens"]
    assert table["send_s"].iloc[-1] == pytest.approx(run["start_times"][-1] - run["start_times"][0])
    assert any("when a request should have been sent" in note for note in table.attrs["notes"])


def test_sglang_bench():
    run = json.loads(unpacked("sglang_bench.jsonl.gz"))
    table = read(DATA / "sglang_bench.jsonl.gz")
    assert len(table) == 60 and table["send_s"].isna().all()
    assert 1000 * table["ttft_s"].mean() == pytest.approx(run["mean_ttft_ms"])
    last = [first + sum(gaps) for first, gaps in zip(run["ttfts"], run["itls"])]
    assert list(table["e2e_s"]) == last
    # Its own end is that of the answer: 309.0 ms on average, the last chunk comes at 300.7.
    assert 1000 * table["e2e_s"].mean() < run["mean_e2e_latency_ms"] - 8
    assert (
        "not in the file: when requests were sent, and the end of each answer"
        in table.attrs["notes"]
    )


def test_guidellm():
    rows = json.loads(unpacked("guidellm.json.gz"))["benchmarks"][0]["requests"]["successful"]
    table = read(DATA / "guidellm.json.gz")
    assert list(table["ttft_s"]) == pytest.approx(
        [r["time_to_first_token_ms"] / 1000 for r in rows]
    )
    itl = [row["inter_token_latency_ms"] for row in rows]
    assert list(1000 * table["tpot_s"]) == pytest.approx(itl, abs=0.001)
    tpot = [row["time_per_output_token_ms"] for row in rows]
    assert list(1000 * table["e2e_s"] / table["tokens"]) == pytest.approx(tpot, abs=0.001)
    assert min(tpot) > 3 and min(itl) < 0.03  # one name apart, a hundred times
    assert list(table["late_s"]) == pytest.approx(
        [r["request_dispatch_delay"] for r in rows], abs=1e-6
    )


def test_aiperf():
    rows = [json.loads(line) for line in unpacked("aiperf.jsonl.gz").splitlines()]
    metrics = [{k: v["value"] for k, v in row["metrics"].items()} for row in rows]
    table = read(DATA / "aiperf.jsonl.gz")
    assert list(1000 * table["ttft_s"]) == pytest.approx(
        [m["time_to_first_token"] for m in metrics]
    )
    assert list(1000 * table["e2e_s"]) == pytest.approx([m["request_latency"] for m in metrics])
    # It counts the tokens again: 54 where the server says 48.
    own = (table["e2e_s"] - table["ttft_s"]) / [m["output_sequence_length"] - 1 for m in metrics]
    assert list(1000 * own) == pytest.approx([m["inter_token_latency"] for m in metrics])
    assert list(table["tokens"]) == [m["usage_completion_tokens"] for m in metrics]
    first_to_last = [m["decode_duration"] for m in metrics]
    assert [1000 * sum(gaps) for gaps in table["gaps"]] == pytest.approx(first_to_last)
    assert table["tokens"].iloc[0] == 48 and metrics[0]["output_sequence_length"] == 54
    starts = [row["metadata"]["request_start_ns"] for row in rows]
    assert list(table["send_s"]) == pytest.approx(
        [(s - min(starts)) / 1e9 for s in starts], abs=1e-15
    )


def test_llmperf():
    for name, failed in (("llmperf_lepton", 30), ("llmperf_bedrock", 18)):
        rows = json.loads((DATA / f"{name}.json").read_text())
        table = read(DATA / f"{name}.json")
        bad = [row["error_code"] is not None for row in rows]
        assert list(table["status"].eq("failed")) == bad and sum(bad) == failed
        assert table.loc[bad, ["ttft_s", "e2e_s", "tpot_s"]].isna().all(axis=None)
        assert not table.loc[[not b for b in bad], ["ttft_s", "tpot_s"]].isna().any(axis=None)
        # Its "inter-token latency" is the whole time by all the tokens.
        for row, tpot in zip(rows, table["tpot_s"]):
            if row["error_code"] is None:
                all_in = row["end_to_end_latency_s"] / row["number_output_tokens"]
                assert (
                    all_in == pytest.approx(row["inter_token_latency_s"], rel=0.01)
                    and tpot < all_in
                )
    assert table["error"].iloc[0] == "-100: Output too few tokens 39"


def test_columns_that_the_caller_names():
    named = {"send_s": "sent_s", "prompt": "prompt_tokens", "tokens": "reply_tokens",
             "ttft_s": "ttft_s", "e2e_s": "e2e_s", "error": "status"}  # fmt: skip
    table = read(SAMPLES / "replay_cache_x3_client.csv", columns=named)
    lines = (SAMPLES / "replay_cache_x3_client.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    assert list(table["ttft_s"]) == [float(row[4]) for row in rows]
    right = [(float(r[5]) - float(r[4])) / (int(r[3]) - 1) if r[3] != "1" else np.nan for r in rows]
    assert list(table["tpot_s"]) == pytest.approx(right, nan_ok=True)
    assert set(table["status"]) == {"ok"} and table["late_s"].isna().all()


# The cases from the field.


def test_case_1_two_means_of_the_same_gaps(result):
    table = result(vllm([1.0, 1.0], [[0.1], [0.01] * 100], [2, 101]))
    assert table["tpot_s"].mean() == pytest.approx(0.055)
    assert fmean(np.concatenate(list(table["gaps"]))) == pytest.approx(1.1 / 101)


def test_case_2_the_first_wait_is_no_gap(result):
    table = result([llmperf(2.0, 3.0, 11)])
    assert table["tpot_s"].iloc[0] == pytest.approx(0.10)  # not 3.0 / 11 = 0.27


def test_case_3_one_definition_for_two_tools(result):
    by_vllm = result(vllm([1.0], [[0.1] * 10], [11]))
    by_guidellm = result(guidellm(first=1.0, last=2.0, tokens=11))
    assert by_vllm["tpot_s"].iloc[0] == pytest.approx(0.1)
    assert by_guidellm["tpot_s"].iloc[0] == pytest.approx(0.1)
    assert guidellm(1.0, 2.0, 11)["benchmarks"][0]["requests"]["successful"][0][
        "time_per_output_token_ms"
    ] == pytest.approx(182, abs=0.2)
    assert any("its TPOT counts the first token" in note for note in by_guidellm.attrs["notes"])


def test_case_4_replies_of_one_token(result):
    table = result(vllm([0.5, 0.5], [[], [0.2]], [1, 2]))
    assert table["tpot_s"].isna().tolist() == [True, False] and table["status"].eq("ok").all()
    assert "1 replies of one token have no gap, and no tpot_s" in table.attrs["notes"]
    with pytest.raises(
        ValueError, match="request 2: it ends after 1 s, before its first token at 2 s"
    ):
        result([llmperf(1.0, 2.0, 5), llmperf(2.0, 1.0, 5)])
    with pytest.raises(ValueError, match=r"request 1: ttft_s is -0\.5"):
        result([llmperf(-0.5, 2.0, 5)])


def test_case_5_tokens_made_not_asked_for(result):
    run = {"ttfts": [0.2], "itls": [[0.1] * 19], "output_lens": [20], "input_lens": [8]}
    run |= {"random_output_len": 100, "total_output_tokens_retokenized": 20, "errors": [""]}
    assert result(run)["tpot_s"].iloc[0] == pytest.approx(0.1)


def test_case_6_the_wait_before_sending(result):
    # Planned at 0.7 s, sent at 3.5 when a place was free, done half a second later.
    table = result(guidellm(0.2, 0.5, 4, start=103.5, planned=100.7))
    assert (table["late_s"] + table["e2e_s"]).iloc[0] == pytest.approx(3.3)
    capped = result(vllm([0.2], [[0.3]], [2], max_concurrency=1))
    assert any("at most 1 requests were under way at once" in n for n in capped.attrs["notes"])
    free = result(vllm([0.2], [[0.3]], [2], max_concurrency=None))
    assert not any("under way at once" in n for n in free.attrs["notes"])


def test_case_7_an_answer_without_a_token(result):
    tokens = [5] * 27 + [0] * 3
    table = result(vllm([0.5] * 27 + [0.0] * 3, [[0.1] * 4] * 27 + [[]] * 3, tokens))
    assert table["status"].value_counts().to_dict() == {"ok": 27, "empty": 3}
    assert table["ttft_s"].count() == 27 and table["ttft_s"].mean() == 0.5
    assert "30 requests: 27 ok, 3 empty" in table.attrs["notes"][0]


# What else can be in a file.


def test_failed_requests_and_several_runs(result):
    bad = vllm([0.5, 0.0], [[0.1], []], [2, 0], errors=["", "HTTP 503"])
    table = result(json.dumps(bad) + "\n" + json.dumps(vllm([0.3], [[0.1]], [2])) + "\n")
    assert list(table["status"]) == ["ok", "failed", "ok"] and list(table["run"]) == [1, 1, 2]
    assert list(table["send_s"]) == [0.0, 1.0, 0.0] and table["error"].iloc[1] == "HTTP 503"
    both = guidellm(1.0, 2.0, 11)
    lists = both["benchmarks"][0]["requests"]
    lists["errored"] = [{**lists["successful"][0], "info": {"error": "refused"}}]
    lists["incomplete"] = [{**lists["successful"][0], "time_to_first_token_ms": None}]
    table = result(both)
    assert sorted(zip(table["status"], table["error"])) == [
        ("failed", "incomplete"), ("failed", "refused"), ("ok", ""),
    ]  # fmt: skip


def test_warm_up_failed_and_cancelled_requests_of_aiperf(result):
    record = json.loads(unpacked("aiperf.jsonl.gz").splitlines()[0])

    def row(error=None, **metadata):
        return json.dumps(
            {**record, "error": error, "metadata": {**record["metadata"], **metadata}}
        )

    rows = [row(), row(benchmark_phase="warmup"), row({"code": 500}), row(was_cancelled=True)]
    rows += [row(benchmark_phase="warmup", was_cancelled=True)]
    table = result("\n".join(rows))
    assert list(table["status"]) == ["ok", "warm-up", "failed", "failed", "warm-up"]
    assert list(table["error"]) == ["", "", "{'code': 500}", "cancelled", "cancelled"]
    assert table["ttft_s"].notna().tolist() == [True, False, False, False, False]
    assert "5 requests: " in table.attrs["notes"][0] and "2 warm-up" in table.attrs["notes"][0]


def test_where_the_last_token_is_not_told(result):
    """guidellm's answer then ends with itself; vLLM's own latency goes before a sum of gaps."""
    told = guidellm(1.0, 2.0, 11)
    assert result(told)["e2e_s"].iloc[0] == 2.0
    del told["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"][
        "last_token_iteration"
    ]
    assert result(told)["e2e_s"].iloc[0] == 2.5  # its request_latency
    table = result(vllm([1.0, 1.0], [[0.25], [0.25]], [2, 2], latencies=[1.5, None]))
    assert list(table["e2e_s"]) == [1.5, 1.25]


def test_each_tool_says_from_when_its_waits_run(result):
    for tool in TOOLS.values():
        assert "waits start when a request is sent" in tool.said, tool.title
    # guidellm and AIPerf tell both times, and their own numbers run from the later.
    for name in ("guidellm.json.gz", "aiperf.jsonl.gz"):
        table = read(DATA / name)
        assert "not when it was due (late_s)" in table.attrs["notes"][1]
        assert table["late_s"].min() > 0
    rows = json.loads(unpacked("guidellm.json.gz"))["benchmarks"][0]["requests"]["successful"]
    for row in rows:
        first = row["info"]["timings"]["first_token_iteration"]
        assert row["time_to_first_token_ms"] == pytest.approx(
            1000 * (first - row["request_start_time"]), abs=0.01
        )
    rows = [json.loads(line) for line in unpacked("aiperf.jsonl.gz").splitlines()]
    for row in rows:
        told = row["metadata"]
        most = (told["request_end_ns"] - told["request_start_ns"]) / 1e6
        assert row["metrics"]["request_latency"]["value"] <= most + 1e-6


def test_what_a_request_does_not_tell_is_missing(result):
    table = result(guidellm(1.0, 2.0, 11, time_to_first_token_ms=None))
    assert np.isnan(table["ttft_s"].iloc[0]) and np.isnan(table["tpot_s"].iloc[0])
    assert "1 requests do not tell the time of the first token" in table.attrs["notes"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "no load tool known here. Its columns are 'a', 'b'. Name them"),
        ('{"ttfts": [', "line 1: not JSON"),
        ("[]", "no load tool known"),
        (json.dumps(vllm([0.5, 0.5], [[]], [1, 1])), "itls has 1 values, output_lens 2"),
    ],
)
def test_refused(result, text, message):
    with pytest.raises(ValueError, match=message):
        result(text)


def test_columns_are_checked(result):
    with pytest.raises(ValueError, match="columns must be a dict with tokens, ttft_s and e2e_s"):
        result("a,b\n1,2\n", columns={"tokens": "a"})
    with pytest.raises(ValueError, match="no column 'c', but 'a', 'b'"):
        result("a,b\n1,2\n", columns={"tokens": "a", "ttft_s": "b", "e2e_s": "c"})


def test_what_was_read_is_printed(capsys):
    table = read_results(DATA / "aiperf.jsonl.gz")
    assert capsys.readouterr().out == "\n".join(table.attrs["notes"]) + "\n"
    assert table.attrs["tool"] == "AIPerf"


@pytest.mark.parametrize(
    "name",
    "vllm_bench.json.gz guidellm.json.gz aiperf.jsonl.gz sglang_bench.jsonl.gz "
    "llmperf_lepton.json".split(),
)
def test_broken_files_give_a_clear_error_or_a_right_result(tmp_path, name):
    whole = (DATA / name).read_bytes()
    text = gzip.decompress(whole) if name.endswith("gz") else whole
    rng, right = random.Random(name), read(DATA / name)
    for trial in range(30):
        broken = bytearray(text if trial % 4 else whole)
        for _ in range(rng.choice([0, 1, 5])):
            broken[rng.randrange(len(broken))] = rng.choice(b'09"{}[],:x\xff\0')
        if trial % 3:
            del broken[rng.randrange(len(broken) + 1) :]
        (tmp_path / "broken").write_bytes(broken)
        try:
            table = read(tmp_path / "broken")
        except ValueError as error:
            assert str(error).startswith("broken") and type(error) is ValueError, error
        else:
            assert len(table) <= len(right) and set(table.columns) == set(right.columns)
            waits = table.loc[table["status"].eq("ok"), ["ttft_s", "e2e_s"]]
            assert not (waits < 0).any(axis=None)
            assert table.loc[~table["status"].eq("ok"), ["ttft_s", "tpot_s"]].isna().all(axis=None)


def test_numbers_that_no_float_holds(result):
    huge = 10**400
    table = result(vllm([0.5, huge], [[0.1], [0.1]], [2, 2]))
    assert list(table["ttft_s"].isna()) == [False, True]
    assert result(vllm([0.5], [[0.1]], [huge]))["status"].iloc[0] == "empty"
