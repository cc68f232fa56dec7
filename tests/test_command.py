"""The command line: what it prints, where, and with which exit code.

A few runs are processes of their own; the rest call `main` in this one.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import tinyserve as ts
from tinyserve import __main__ as command
from tinyserve import fast
from tinyserve.logs import SAMPLES, files

ROOT = Path(__file__).resolve().parents[1]
AZURE = SAMPLES / "azure2023_conv_400.csv"
SERVER = ["--pages", "700", "--limit", "16"]
NAMED = ["--columns", "send=t,prompt=in,reply=out"]
HEAVY = ts.serve(ts.invented_chats().at_rate(40), 240, 16)
# Case: 50 pages of 16 tokens, a chat that needs 58 of them, and one behind it.
LARGE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,900,20\n1,60,8\n"


def call(capsys, *words):
    """(exit code, stdout, stderr) of the command line in this process."""
    code = command.main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def process(*words, options=(), code=None, **more):
    """The command line, or `code`, in a process of its own."""
    start = ["-c", code] if code else ["-m", "tinyserve"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, *options, *start, *map(str, words)]
    return subprocess.run(line, capture_output=True, env=environment, timeout=60, **more)


def cells(text):
    """The rows of a printed table, split at two or more blanks."""
    return [[cell for cell in line.strip().split("  ") if cell] for line in text.splitlines()]


# --- replay --------------------------------------------------------------------------------


def test_replay_in_words(capsys):
    code, out, err = call(capsys, "replay", AZURE, *SERVER, "--speed", 2, "--what-if")
    assert (code, err) == (0, "")
    log = ts.read_log(AZURE, quiet=True)
    chats = log.at_rate(2 * log.rate)
    read = ts.report(ts.serve(chats, 700, 16))
    assert out.startswith(f"{log.notes}\n400 chats, 7.505 a second; 700 pages of 16 tokens, at ")
    found = {row[0].strip(): row[-1].strip() for row in cells(out) if len(row) == 2}
    assert found["TTFT p99 s"] == f"{read.ttft_p99:.3f}"
    assert found["TBT p99 ms"] == f"{1000 * read.tbt_p99:.1f}"
    assert found["longest queue"] == str(read.queue_max) and found["wall"] == read.wall
    assert (
        f"\nThe wall is the cache: up to {read.queue_max} of 400 chats waited at once; the cache "
        f"held the head of the queue out in {read.cache_steps:,} steps, the batch limit in "
        f"{read.batch_steps:,}.\n"
    ) in out
    assert out.endswith(f"{ts.what_if(chats, 700, 16)!r}\n")


def test_replay_says_what_the_waits_were_for(capsys):
    run = ts.serve(ts.read_log(AZURE, quiet=True).speed(2), 700, 16)
    code, out, _ = call(capsys, "replay", AZURE, *SERVER, "--speed", 2, "--causes", "--json")
    bands = json.loads(out)["causes"]
    assert code == 0 and [band["chats"] for band in bands] == [200, 160, 36, 4]
    for band, mean in zip(bands, sorted_means(run)):
        assert sum(band["wait"].values()) == pytest.approx(mean)
    assert bands[2]["longest"] == ts.report(run).ttft_p99
    code, out, _ = call(capsys, "replay", AZURE, *SERVER, "--speed", 2, "--causes")
    assert code == 0 and "p90 to p99     36" in out


def sorted_means(run):
    """The mean TTFT of the fastest half, the next 40 %, the next 9 %, and the rest."""
    waits = sorted(first - sent for first, sent in zip(run.first, run.workload.send))
    return [
        sum(part) / len(part) for part in (waits[:200], waits[200:360], waits[360:396], waits[396:])
    ]


def test_replay_at_a_rate_and_on_another_chip(capsys):
    chats = ts.read_log(AZURE, quiet=True).at_rate(1)
    for chip in command.CHIPS:
        words = ["--rate", 1, "--chip", chip, "--page-size", 32, "--json"]
        code, out, _ = call(capsys, "replay", AZURE, *SERVER, *words)
        run = ts.serve(chats, 700, 16, 32, chip=command.CHIPS[chip])
        assert code == 0 and json.loads(out)["report"] == ts.report(run)._asdict()


def test_replay_as_json(capsys):
    words = [*SERVER, "--json", "--what-if", "--skip-too-large"]
    code, out, err = call(capsys, "replay", AZURE, *words)
    found = json.loads(out)
    chats = ts.read_log(AZURE, quiet=True)
    run = ts.serve(chats, 700, 16)
    assert code == 0 and out.count("\n{") == 0
    assert found["report"] == ts.report(run)._asdict()
    assert found["log"]["kept"] == 400 and found["left_out"] == []
    assert found["setting"]["rate"] == chats.rate and found["setting"]["chip"]["peak"] == 312e12
    answer = ts.what_if(chats, 700, 16)
    assert found["what_if"]["rows"] == [row._asdict() for row in answer.rows]
    assert found["what_if"]["best"] == answer.best._asdict()
    # What is read aloud is on stderr, all of it.
    assert found["said"] in err and answer.said in err
    assert err.startswith(str(chats.notes)) and "left out: 0 too large" in err


def test_case_19_what_it_can_finish_and_how_near_that_is(capsys):
    log = ts.read_log(AZURE, quiet=True)
    can = ts.can_finish(log, 700, 16)
    touchy = "Near that limit, and past it, a small difference in the length of a step is a large"
    for share, near in ((0.5, False), (0.79, False), (0.8, True), (0.9, True), (3, True)):
        code, out, _ = call(capsys, "replay", AZURE, *SERVER, "--rate", share * can)
        [line] = [line for line in out.splitlines() if line.startswith("It can finish ")]
        start = f"It can finish {can:.4g} chats a second of these; they come at {share * can:.4g}, "
        assert code == 0 and line.startswith(f"{start}{100 * share:.0f} % of that.")
        assert (touchy in line) == near
    # With the chip that was measured it is another number.
    code, out, err = call(capsys, "replay", AZURE, *SERVER, "--chip", "measured", "--json")
    slower = ts.can_finish(log, 700, 16, chip=ts.A100_MEASURED)
    assert json.loads(out)["can_finish"] == slower < 0.8 * can
    assert f"It can finish {slower:.4g} chats a second" in err


def test_what_it_can_finish_of_the_books_chats():
    """27.34 a second, of which the light run's 10 are 37 % and the heavy run's 40 are 146 %."""
    can = ts.can_finish(ts.invented_chats(), 240, 16)
    said = "It can finish 27.34 chats a second of these; they come "
    assert command._pace(can, 10) == f"{said}at 10, 37 % of that."
    assert command._pace(can, 40).startswith(f"{said}at 40, 146 % of that. Near that limit, and")
    assert command._pace(can, None) == f"{said}all at once."


@pytest.mark.parametrize("wall, chats", [("none", 800), ("cache", 400), ("both", 400)])
def test_the_wall_in_a_sentence(wall, chats):
    read = ts.report(HEAVY)._replace(wall=wall, queue_max=7, cache_steps=1200, batch_steps=1)
    said = command._wall(read, chats)
    assert f"7 of {chats} chats waited at once" in said and "\n" not in said
    assert said.startswith(
        {"none": "No wall:", "cache": "The wall is the cache:"}.get(wall, "Both")
    )
    assert ("1,200 steps" in said) == (wall != "none")


def test_the_plot_is_an_svg_that_stands_alone(capsys, tmp_path):
    plot = tmp_path / "out.svg"
    code, out, _ = call(capsys, "replay", AZURE, *SERVER, "--plot", plot)
    assert code == 0 and str(plot) in out
    picture = ET.fromstring(plot.read_text(encoding="utf-8"))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(picture.findall(".//{*}path")) > 20
    code, _, err = call(capsys, "replay", AZURE, *SERVER, "--plot", tmp_path / "no" / "out.svg")
    assert code == 1 and "out.svg: no file can be written there" in err
    # A log that is refused leaves no empty plot behind.
    code, *_ = call(capsys, "replay", tmp_path / "no.csv", *SERVER, "--plot", tmp_path / "p.svg")
    assert code == 1 and not (tmp_path / "p.svg").exists()


def test_chats_that_are_too_large(capsys, tmp_path):
    log = tmp_path / "large.csv"
    log.write_text(LARGE)
    words = ["replay", log, "--pages", 50, "--limit", 4]
    code, out, err = call(capsys, *words)
    assert code == 1 and err == (
        "tinyserve: 1 too large for all 50 pages of 16 tokens: chat 0 (prompt 900, reply 20: "
        "58 pages); --skip-too-large leaves such chats out\n"
    )
    code, out, err = call(capsys, *words, "--skip-too-large")
    assert code == 0 and err == ""
    assert "left out: 1 too large for all 50 pages of 16 tokens: chat 0 (prompt 900," in out
    assert "\n1 chats, all at once; 50 pages" in out and "\nNo wall: at most 0 of 1 " in out
    code, out, _ = call(capsys, *words, "--skip-too-large", "--json")
    assert json.loads(out)["left_out"] == [{"chat": 0, "prompt": 900, "reply": 20, "pages": 58}]
    log.write_text(LARGE.replace("60,8", "801,8"))
    code, _, err = call(capsys, *words, "--skip-too-large")
    assert code == 1 and "none of 2 chats fits in 50 pages of 16 tokens" in err


def test_any_log_with_its_columns_named(capsys, tmp_path):
    log = tmp_path / "mine.csv"
    log.write_text("t,in,out,ok\n0,34,10,1\n0,34,10,1\n1500,60,8,1\n")
    words = ["replay", log, "--pages", 50, "--limit", 4, "--columns", "send=t,prompt=in,reply=out"]
    code, _, err = call(capsys, *words)
    assert code == 1 and "--unit s, ms, us or ns\n" in err  # the clock counts what?
    code, _, err = call(capsys, *words, "--unit", "ms")
    assert code == 1 and "repeating an earlier row (line 3)" in err
    code, out, _ = call(capsys, *words, "--unit", "ms", "--keep", "duplicate")
    assert code == 0 and "3 rows, 3 kept" in out and "sent over 1.500 s" in out
    code, out, _ = call(capsys, *words, "--unit", "ms", "--on-bad", "drop", "--json")
    assert code == 0 and json.loads(out)["log"]["counts"] == {"duplicate": 1}


# A log that is refused, and the options that its message names.
REFUSED = {
    "of no known format": ("a,b,c\n1,2,3\n", [], "--columns send=T,prompt=P,reply=R --unit s\n"),
    "no unit": ("t,in,out\n1,2,3\n", NAMED, "Say --unit s, ms, us or ns\n"),
    "bad rows": (
        "t,in,out\n1,2,3\n1,2,3\n", [*NAMED, "--unit", "s"],
        r"\. --on-bad drop leaves out such rows, .*; --keep duplicate keeps repeats\n",
    ),
    "two runs": (
        2 * '{"start_times": [5], "input_lens": [3], "output_lens": [1]}\n', [],
        "holds 2 runs, 1, 2: say which, --run 1\n",
    ),
    "one run": (
        "t,in,out\n1,2,3\n", [*NAMED, "--unit", "s", "--run", "2"], "to choose with --run 2\n"
    ),
    "no times": ('{"ttfts": [1], "x": 2}\n', [], "; tinyserve.read_results, in Python, reads its"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_message_names_the_options_of_the_command_line(capsys, tmp_path, what):
    text, words, said = REFUSED[what]
    log = tmp_path / "mine.log"
    log.write_text(text)
    code, _, err = call(capsys, "replay", log, *SERVER, *words)
    assert code == 1 and re.search(said, err), err
    assert not re.search(r"""\w=["\d{]|read_log|path,""", err), err  # no word of Python's


@pytest.mark.parametrize("path", [".", "..", "tests/", ROOT])
def test_a_folder_is_named_as_it_was_given(capsys, monkeypatch, path):
    monkeypatch.chdir(ROOT)
    for words in (["replay", path, *SERVER], ["trace", path]):
        assert call(capsys, *words) == (1, "", f"tinyserve: cannot read {path}: Is a directory\n")


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("long", [True, False])
def test_a_bar_only_for_what_is_long_and_only_on_a_terminal(capsys, monkeypatch, terminal, long):
    monkeypatch.setattr(command, "LONG", 399 if long else 400)  # the log has 400 chats
    monkeypatch.setattr(files, "LONG", AZURE.stat().st_size - long)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    code, out, err = call(capsys, "replay", AZURE, *SERVER, "--what-if")
    assert code == 0 and out.startswith("azure2023")
    for bar in ("azure2023_conv_400.csv: 100%", "400/400", "8/8"):  # bytes, chats, settings
        assert (bar in err) == (long and terminal), err
    assert bool(err) == (long and terminal)


# --- trace, numbers, metrics ---------------------------------------------------------------


def test_trace(capsys):
    code, out, err = call(capsys, "trace", "--steps", "34:37")
    setting, *rows = out.splitlines()
    assert (code, err) == (0, "") and setting.startswith("400 chats, 40 a second; 240 pages")
    assert (
        rows[0].split() == "step start s took ms chats new queue held owed left waits for".split()
    )
    # The lesson's table.
    assert [row.split() for row in rows[1:]] == [
        "34 0.381 8.1 11 0 0 181 57 2".split(),
        "35 0.389 8.1 11 0 2 181 57 2 cache".split(),
        "36 0.397 8.1 11 0 2 181 57 2 cache".split(),
        "37 0.405 8.1 11 0 2 182 56 2 cache".split(),
    ]
    for steps, first, last in [(":2", 1, 2), ("7", 7, 7), ("1490:", 1490, len(HEAVY.steps))]:
        rows = call(capsys, "trace", "--steps", steps)[1].splitlines()[2:]
        assert [int(row.split()[0]) for row in rows] == list(range(first, last + 1))


def test_trace_as_csv(capsys):
    code, out, err = call(capsys, "trace", AZURE, *SERVER, "--csv")
    run = ts.serve(ts.read_log(AZURE, quiet=True), 700, 16)
    head, *rows = csv.reader(io.StringIO(out))
    assert code == 0 and "400 rows, 400 kept" in err
    assert head == "step start_s took_s chats new queue held owed left waits_for".split()
    assert [int(row[0]) for row in rows] == list(range(1, len(run.steps) + 1))
    for row, step in zip(rows, run.steps, strict=True):
        assert (float(row[1]), float(row[2])) == (step.start, step.seconds)
        assert tuple(map(int, row[3:8])) == step[2:7] and row[9] == step.blocked
        assert int(row[8]) == 700 - step.held - step.owed


def test_numbers(capsys):
    code, out, _ = call(capsys, "numbers")
    heads = "TTFT p50 s  TTFT p99 s  TBT p99 ms  mean TBT p99 ms  longest queue  wall".split("  ")
    rows = [[cell.strip() for cell in row] for row in cells(out)]
    assert code == 0 and rows[1] == ["chats/s", *heads]
    # Published: p99 waits of 0.042 and 3.49 s, and of 0.93 s and 0.16 s with more of either.
    assert rows[2] == ["10", "0.014", "0.042", "21.0", "10.4", "0", "none"]
    assert rows[3] == ["40", "2.206", "3.492", "31.3", "11.8", "94", "cache"]
    for row, setting in zip(rows[-4:], [(240, 16), (480, 16), (960, 16), (480, 24)], strict=True):
        read = ts.report(ts.serve(ts.invented_chats().at_rate(40), *setting))
        assert row[0] == "{} pages, {} places".format(*setting)
        assert row[2] == f"{read.ttft_p99:.3f}" and row[-1] == read.wall
    assert "3.492" not in call(capsys, "numbers", "--chip", "measured")[1]


@pytest.mark.parametrize(
    "at, limit, said",
    [
        (1.0, 16, "suggests: cache."),
        (1.0, 8, "suggests: batch."),
        (1.0, None, "suggests: a wall, since chats wait; with --limit,"),
        (99.0, None, "suggests: no wall, since nobody waits."),
    ],
)
def test_metrics(capsys, tmp_path, at, limit, said):
    text = ts.write_metrics(HEAVY, at)
    file = tmp_path / "metrics.txt"
    file.write_text(text)
    code, out, err = call(capsys, "metrics", file, *(["--limit", limit] if limit else []))
    assert (code, err) == (0, "")
    assert out.startswith(f"{ts.read_metrics(text)!r}\n\nThis one reading ") and said in out


def test_metrics_from_standard_input_and_of_a_server_that_tells_little():
    done = process("metrics", "-", input=b"llamacpp:prompt_tokens_total 143\n")
    assert done.returncode == 0 and b"does not print how many wait" in done.stdout


# --- exit codes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (["replay", "no.csv", *SERVER], "cannot read no.csv: No such file"),
        (["replay", AZURE, "--pages", "0", "--limit", "16"], "pages must be .* not 0"),
        (["replay", AZURE, *SERVER, "--format", "x"], "format must be one of .* not 'x'"),
        (["replay", AZURE, *SERVER, "--format", "vidur"], "no column 'arrived_at'"),
        (["replay", AZURE, *SERVER, "--speed", "0"], "--speed must be above 0, not 0.0"),
        (["replay", AZURE, *SERVER, "--rate", "nan"], "rate must be finite .* not nan"),
        (["trace", "--steps", "5:9999"], r"steps 1 to \d+, not 5 to 9999"),
        (["trace", "--steps", "9:5"], "not 9 to 5"),
        (["trace", "--speed", "2"], "--speed is for a log"),
        (["trace", "--skip-too-large"], "--skip-too-large is for a log"),
        (["replay", AZURE, *SERVER, "--run", "0"], "run must be a whole number of at least 1"),
        (["metrics", "no.txt"], "no.txt: No such file"),
        (["metrics", AZURE], "line 1 is no Prometheus text: .TIMESTAMP"),
        (["metrics", AZURE, "--limit", "0"], "limit must be above 0, not 0"),
    ],
)
def test_bad_input_is_one_line_and_1(capsys, words, said):
    code, _, err = call(capsys, *words)
    assert code == 1 and err.startswith("tinyserve: ") and err.count("\n") == 1
    assert re.search(said, err)


def test_a_bad_row_is_named(capsys, tmp_path):
    log = tmp_path / "bad.csv"
    log.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\nx,1,1\n")
    code, _, err = call(capsys, "replay", log, *SERVER)
    assert code == 1 and "bad.csv, line 3: the time 'x'" in err and err.count("\n") == 1
    log.write_bytes(b"\xff\xfe\x00")
    code, _, err = call(capsys, "metrics", log)
    assert code == 1 and "bad.csv is not UTF-8 text" in err


@pytest.mark.parametrize(
    "words",
    [
        ["replay"],
        ["replay", "a.csv", "--pages", "1"],
        ["replay", "a.csv", *SERVER, "--speed", "1", "--rate", "2"],
        ["replay", "a.csv", *SERVER, "--plot", "out.png"],
        ["replay", "a.csv", *SERVER, "--columns", "send"],
        ["replay", "a.csv", *SERVER, "--columns", "send=t,prompt=in"],
        ["replay", "a.csv", *SERVER, "--columns", "send=t,prompt=in,reply=out,model=m"],
        ["replay", "a.csv", "--pages", "many", "--limit", "1"],
        ["trace", "--steps", "one"],
        ["serve"],
        ["metrics"],
    ],
)
def test_wrong_usage_is_2(capsys, words):
    with pytest.raises(SystemExit) as left:
        command.main(words)
    said = capsys.readouterr()
    assert left.value.code == 2 and said.out == "" and said.err.startswith("usage: python -m ")


WITHOUT = "import sys; sys.modules[{!r}] = None; from tinyserve.__main__ import main; "
WITHOUT += "sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "package, get, words",
    [
        ("pandas", "pandas tqdm prometheus_client", ["replay", AZURE, *SERVER]),
        ("pandas", "pandas tqdm prometheus_client", ["metrics", "-"]),
        ("prometheus_client", "pandas tqdm prometheus_client", ["metrics", "-"]),
        ("matplotlib", "matplotlib", ["replay", AZURE, *SERVER, "--plot", "out.svg"]),
    ],
)
def test_a_missing_package_is_3(tmp_path, package, get, words):
    done = process(*words, code=WITHOUT.format(package), input=b"", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.decode() == (
        f"tinyserve: {package} is not installed, which this needs: pip install {get}\n"
    )


def test_parquet_without_its_reader_is_3(tmp_path):
    log = tmp_path / "log.parquet"
    log.write_bytes(b"PAR1")
    code = WITHOUT.replace("; from", "; sys.modules['fastparquet'] = None; from", 1)
    done = process("replay", log, *SERVER, code=code.format("pyarrow"))
    assert done.returncode == 3 and b"pip install pyarrow" in done.stderr


def test_a_fault_of_the_code_is_not_hidden(monkeypatch):
    def broken(args):
        raise ImportError("cannot import name", name="tinyserve.fast")

    monkeypatch.setattr(command, "_numbers", broken)
    with pytest.raises(ImportError):
        command.main(["numbers"])


def test_an_interrupt_is_130(monkeypatch, capsys):
    def stop(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_numbers", stop)
    assert call(capsys, "numbers") == (130, "", "")


def test_a_reader_that_goes_away_is_quiet():
    for words in (["trace"], ["trace", "--csv"], ["--help"]):
        line = [sys.executable, "-m", "tinyserve", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        read, write = os.pipe()
        os.close(read)  # nobody will ever read
        done = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, env=environment)
        os.close(write)
        # argparse itself passes over a help that nobody reads.
        assert done.returncode == 141 or (words == ["--help"] and done.returncode == 0)
        assert done.stderr == b"" or (words[-1] == "--csv" and done.stderr.count(b"\n") == 1)


# --- alone, and help -----------------------------------------------------------------------


@pytest.mark.parametrize("words", [["numbers"], ["trace", "--steps", "1:40"], []])
def test_without_any_other_package_it_prints_the_same(capsys, words):
    done = process(*words, options=["-S"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == call(capsys, *words)[1]


def test_help_teaches(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, overview, _ = call(capsys)
    assert code == 0 and "exit codes: 0 fine; 1 " in overview and "units: times in s" in overview
    for name in ("replay", "trace", "numbers", "metrics"):
        assert f"\n    {name} " in overview
        with pytest.raises(SystemExit) as left:
            command.main([name, "--help"])
        said = capsys.readouterr().out
        assert left.value.code == 0
        assert (
            f"examples:\n  {'curl' if name == 'metrics' else f'python -m tinyserve {name}'}" in said
        )
        for text in (said, overview):
            assert str(ROOT) not in text and "/home" not in text and "/root" not in text
            assert max(map(len, text.splitlines())) <= 100
        if name == "replay":
            assert "The wall is what kept the head of the queue out" in said


def test_the_examples_of_help_are_good_commands():
    """Every example parses, and so does every one of the README."""
    texts = [command.MORE, command.REPLAY_EXAMPLES, command.TRACE_EXAMPLES]
    texts += [command.NUMBERS_EXAMPLES, command.METRICS_EXAMPLES]
    texts += [(ROOT / "README.md").read_text(encoding="utf-8")]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    examples = [line.split("python -m tinyserve ")[1] for line in lines if f"{command.ME} " in line]
    examples = [each.split(">")[0].split("|")[0].split("#")[0].split() for each in examples]
    examples = [each for each in examples if each[0] in ("replay", "trace", "numbers", "metrics")]
    assert len(examples) >= 12
    for each in examples:
        assert command._parser().parse_args(each).run_command


def test_the_installed_command_is_this_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"tinyserve": "tinyserve.__main__:main"}


def test_a_long_run_is_counted_and_not_kept():
    """Without a plot a replay keeps no steps."""
    kept = []

    def serve(*arguments, **options):
        kept.append(options["record"])
        return fast.serve(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "fast", type("F", (), {"serve": serve, "report": fast.report}))
        assert command.main(["replay", str(AZURE), *SERVER]) == 0
    assert kept == ["summary"]
