"""The command line, `python -m tinyserve`: replay a log, print a trace, the book's numbers, or
what a server's metrics say.

Introduced in the chapter "Replay a real log". What a command finds goes to stdout, errors and
progress to stderr.
"""

import argparse
import csv
import json
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tinyserve import causes, fast, planning, tables
from tinyserve.cache import PAGE_SIZE
from tinyserve.checks import number
from tinyserve.roofline import A100, A100_MEASURED
from tinyserve.workload import invented_chats

CHIPS = {"data-sheet": A100, "measured": A100_MEASURED}
LONG = 20_000  # chats; a run of more shows a bar on a terminal
NEAR = 80  # % of what the server can finish; from there on waits are touchy
ME = "python -m tinyserve"
# What an error calls options of `read_log`, and what they are here.
SHELL = {
    'read_log(path, columns={"send": ..., "prompt": ..., "reply": ...}, unit="s")':
        "--columns send=T,prompt=P,reply=R --unit s",
    'unit="s", "ms", "us" or "ns"': "--unit s, ms, us or ns",
    'on_bad="drop"': "--on-bad drop",
    'keep="duplicate"': "--keep duplicate",
    " run=": " --run ",
    "read_results reads": "tinyserve.read_results, in Python, reads",
}  # fmt: skip

ABOUT = "A model server with a simulated clock: who waits, how long, and for what."
MORE = f"""\
examples:
  {ME} replay requests.csv --pages 25720 --limit 128
  {ME} trace --steps 34:37
  {ME} numbers
  curl -s http://localhost:8000/metrics | {ME} metrics -

`{ME} COMMAND --help` says more of each.

units: times in seconds, lengths in tokens, cache in pages (16 tokens each, unless you say
otherwise), rates in chats a second. A chat is one request: a send time, a prompt, a reply.

exit codes: 0 fine; 1 a file, a row or a setting is at fault, one line on stderr says which;
2 the command was written wrongly; 3 a package is missing, the line says how to get it;
130 interrupted; 141 the reader of the output went away.
"""
REPLAY = """\
Reads a recorded log, serves it, and prints what was read, the waits, and the wall.

The wall is what kept the head of the queue out: the cache (too few of its pages are not yet
promised to the chats under way) or the batch limit (all places in a step are taken). It is
"none" if fewer than 1 in 100 of the chats ever waited at once, and "both" if each held the head
out in at least half as many steps as the other. More of what the wall names shortens the queue;
--what-if says by how much.

What it can finish is the chats a second that it serves when all are there at once. The nearer
they come to that, the more a small difference in the length of a step does to the waits, and
steps here are those of a roofline: try --chip measured as well.

Known by their columns: Azure, BurstGPT, Mooncake, Qwen, vidur, splitwise-sim, vllm bench serve,
guidellm and AIPerf files; CSV, JSON, JSON lines, Parquet, gzipped or not.
"""
REPLAY_EXAMPLES = f"""\
examples:
  {ME} replay requests.csv --pages 25720 --limit 128 --causes --what-if
  {ME} replay requests.csv --pages 25720 --limit 128 --speed 2 --plot twice.svg
  {ME} replay mine.csv --columns send=t,prompt=in,reply=out --unit ms \\
      --pages 240 --limit 16 --skip-too-large --json > result.json

A vLLM server prints the tokens of its KV cache when it starts: divided by its --block-size they
are its pages. The limit is its --max-num-seqs. Waits are those of one server with the chip and
the model of the book.
"""
TRACE = """\
Prints one row a step: when it starts (s), how long it takes (ms), chats in it, how many are
new, how many wait, pages held, pages promised but not held, pages left to promise, and what
holds the head of the queue out. Without LOG: the book's heavy run, 400 chats at 40 a second.
"""
TRACE_EXAMPLES = f"""\
examples:
  {ME} trace --steps 34:37
  {ME} trace requests.csv --pages 700 --limit 16 --csv > trace.csv

--csv prints the times in full, both in seconds.
"""
NUMBERS = (
    "Computes the book's main numbers on the spot: two rates, and four settings at 40 a second."
)
NUMBERS_EXAMPLES = f"""\
examples:
  {ME} numbers
  {ME} numbers --chip measured
"""
METRICS = """\
Reads what a vLLM, SGLang or llama.cpp server prints under /metrics, as it is: who runs, who
waits, the KV use, and the waits, whose percentiles are given as the bounds of their bucket. Then
says what this one reading suggests. Look at many: at one moment a queue can have any cause.
"""
METRICS_EXAMPLES = f"""\
examples:
  curl -s http://localhost:8000/metrics | {ME} metrics - --limit 128
  {ME} metrics saved.txt
"""


# Options.


def _columns(text):
    """send=t,prompt=in,reply=out as a dict."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and value for name, _, value in pairs):
        raise argparse.ArgumentTypeError(f"not like send=t,prompt=in,reply=out: {text!r}")
    named = {name.strip(): value.strip() for name, _, value in pairs}
    if not {"send", "prompt", "reply"} <= set(named) <= {"send", "prompt", "reply", "id", "status"}:
        raise argparse.ArgumentTypeError(
            f"must name send, prompt and reply, perhaps id and status: {text!r}"
        )
    return named


def _steps(text):
    """A:B as a pair, both counted from 1 and both in; None where there is no number."""
    first, colon, last = text.partition(":")
    try:
        first, last = (int(part) if part else None for part in (first, last if colon else first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not like 34:37: {text!r}") from None
    return first, last


def _svg(text):
    if not text.lower().endswith(".svg"):
        raise argparse.ArgumentTypeError(f"the plot is an SVG: name a file .svg, not {text!r}")
    return Path(text)


def _parser():
    """The parser of the whole command line."""
    log = argparse.ArgumentParser(add_help=False)
    reading = log.add_argument_group("how to read the log")
    reading.add_argument("--format", help="its format, if the columns do not tell")
    reading.add_argument("--columns", type=_columns, metavar="send=T,prompt=P,reply=R",
                         help="which columns to read, of a log of no known format")  # fmt: skip
    reading.add_argument("--unit", choices=("s", "ms", "us", "ns"), help="what its clock counts")
    reading.add_argument("--on-bad", choices=("refuse", "drop"), default="refuse",
                         help="rows that failed, lack a number or repeat: refuse the log (the "
                         "default), or drop them and say so")  # fmt: skip
    reading.add_argument("--keep", action="append", choices=("duplicate", "out of order"),
                         default=[], help="a kind of row that is no fault in this log")  # fmt: skip
    reading.add_argument("--run", type=int, metavar="N", help="which run of several, from 1")
    load = log.add_argument_group("how to send it").add_mutually_exclusive_group()
    load.add_argument("--speed", type=float, metavar="X", help="X times as fast as it was")
    load.add_argument("--rate", type=float, metavar="R", help="at R chats a second")
    log.add_argument("--skip-too-large", action="store_true",
                     help="leave out chats that need more pages than there are, and say which; "
                     "without it, such a log is refused")  # fmt: skip
    chip = argparse.ArgumentParser(add_help=False)
    chip.add_argument("--chip", choices=tuple(CHIPS), default="data-sheet",
                      help="the A100 as its data sheet prints it (the default), or slowed to what "
                      "steps of such a card were measured to take")  # fmt: skip

    def server(command, pages, limit):
        setting = command.add_argument_group("the server")
        for name, value, what in (("pages", pages, "pages of cache"),
                                  ("limit", limit, "most chats in a step"),
                                  ("page-size", PAGE_SIZE, "tokens in a page")):  # fmt: skip
            default = "" if value is None else f" (default {value})"
            setting.add_argument(f"--{name}", type=int, metavar="N", default=value,
                                 required=value is None, help=what + default)  # fmt: skip

    parser = argparse.ArgumentParser(ME, description=ABOUT, epilog=MORE, formatter_class=_Raw)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    def add(run, name, about, more, parents, help):
        command = commands.add_parser(
            name, parents=parents, description=about, epilog=more, formatter_class=_Raw, help=help
        )
        command.set_defaults(run_command=run)
        return command

    command = add(_replay, "replay", REPLAY, REPLAY_EXAMPLES, [log, chip],
                  "serve a recorded log: its waits and its wall")  # fmt: skip
    command.add_argument("log", metavar="LOG", help="the file")
    server(command, None, None)
    out = command.add_argument_group("what to print")
    out.add_argument("--causes", action="store_true",
                     help="what the waits were for: why is the p99 so long?")  # fmt: skip
    out.add_argument("--what-if", action="store_true", help="the settings next to this one too")
    out.add_argument("--plot", type=_svg, metavar="OUT.svg", help="queue and pages over time")
    out.add_argument("--json", action="store_true",
                     help="one JSON object on stdout, everything else on stderr")  # fmt: skip
    command = add(_trace, "trace", TRACE, TRACE_EXAMPLES, [log, chip], "print a run step by step")
    command.add_argument("log", metavar="LOG", nargs="?", help="a file, as for replay")
    server(command, 240, 16)
    command.add_argument("--steps", type=_steps, metavar="A:B", default=(None, None),
                         help="from step A to step B, counted from 1")  # fmt: skip
    command.add_argument("--csv", action="store_true", help="as CSV")
    add(_numbers, "numbers", NUMBERS, NUMBERS_EXAMPLES, [chip], "print the book's main numbers")
    command = add(_metrics, "metrics", METRICS, METRICS_EXAMPLES, [],
                  "read a server's /metrics")  # fmt: skip
    command.add_argument("file", metavar="FILE", help="the text; - for standard input")
    command.add_argument("--limit", type=int, metavar="N",
                         help="an engine's places (vLLM's --max-num-seqs)")  # fmt: skip
    return parser


_Raw = argparse.RawDescriptionHelpFormatter


# Commands.


def _chats(args, say):
    """The log's chats as they are to be sent, and the chats left out as too large."""
    from tinyserve.logs import read_log

    show = None if sys.stderr.isatty() else False  # None: if it is long
    chats = read_log(args.log, args.format, args.unit, args.columns, args.on_bad, args.keep,
                     args.run, quiet=True, progress=show)  # fmt: skip
    notes = chats.notes
    say(notes)
    if args.speed is not None:
        chats = chats.speed(number("--speed", args.speed, above=0))
        if chats.rate is None:
            raise ValueError("--speed changes nothing: all the chats are sent at once")
    if args.rate is not None:
        chats = chats.at_rate(args.rate)
    chats, left = planning.leave_out_too_large(chats, args.pages, args.page_size)
    few = [f"chat {c} (prompt {p:,}, reply {r:,}: {n:,} pages)" for c, p, r, n in left[:3]]
    few += [f"{len(left) - 3:,} more"] * (len(left) > 3)
    said = f"{len(left):,} too large for all {args.pages:,} pages of {args.page_size} tokens"
    said += f": {', '.join(few)}" if left else ""
    if left and not args.skip_too_large:
        raise ValueError(f"{said}; --skip-too-large leaves such chats out")
    if args.skip_too_large:
        say(f"left out: {said}")
    return chats, left, notes


def _bar(chats):
    """Whether a run of these chats shows how far it is."""
    return len(chats) > LONG and sys.stderr.isatty()


def _serve(chats, args, record):
    return fast.serve(chats, args.pages, args.limit, args.page_size, chip=CHIPS[args.chip],
                      record=record, progress=_bar(chats))  # fmt: skip


def _setting(run):
    """A run's setting in words."""
    pace = "all at once" if run.workload.rate is None else f"{run.workload.rate:.4g} a second"
    return (
        f"{len(run.workload):,} chats, {pace}; {run.pages:,} pages of {run.page_size} tokens, at "
        f"most {run.limit:,} chats in a step; {run.model.name} on {run.chip.name}"
    )


def _wall(read, chats):
    """The wall in a sentence."""
    if read.wall == "none":
        return f"No wall: at most {read.queue_max:,} of {chats:,} chats waited at once."
    named = {"cache": "The wall is the cache", "batch": "The wall is the batch limit",
             "both": "Both walls bind", "neither": "Neither wall binds"}  # fmt: skip
    return (
        f"{named[read.wall]}: up to {read.queue_max:,} of {chats:,} chats waited at once; the "
        f"cache held the head of the queue out in {read.cache_steps:,} steps, the batch limit in "
        f"{read.batch_steps:,}."
    )


def _pace(can, rate):
    """The rate beside what the server can finish, in a sentence or two."""
    said = f"It can finish {can:.4g} chats a second of these; they come "
    if rate is None:
        return f"{said}all at once."
    share = round(100 * rate / can)
    said += f"at {rate:.4g}, {share:,} % of that."
    if share >= NEAR:
        said += (
            " Near that limit, and past it, a small difference in the length of a step is a large "
            "one in waiting."
        )
    return said


def _replay(args):
    say = partial(print, file=sys.stderr if args.json else sys.stdout)
    if args.plot:
        from tinyserve import figures, style  # before the work: without matplotlib it is in vain

        to = args.plot if args.plot.exists() else args.plot.absolute().parent
        if args.plot.is_dir() or not os.access(to, os.W_OK):
            raise ValueError(f"{args.plot}: no file can be written there")
    chats, left, notes = _chats(args, say)
    run = _serve(chats, args, "steps" if args.plot or args.causes else "summary")
    read, answer = fast.report(run), None
    options = {"page_size": args.page_size, "chip": CHIPS[args.chip], "progress": _bar(chats)}
    can = planning.can_finish(chats, args.pages, args.limit, **options)
    said = _wall(read, len(chats))
    say(_setting(run), end="\n\n")
    for field, (head, times) in tables.FIELDS.items():
        value = getattr(read, field)
        value = value * times if times != 1 and value is not None else value
        say(f"{head:>23}  {tables.text(value, tables.decimals_of(head))}")
    say(f"\n{said}\n{_pace(can, chats.rate)}")
    if args.causes:
        say(f"\n{tables.plain(causes.causes_table(run))}")
    if args.what_if:
        answer = planning.what_if(chats, args.pages, args.limit, **options)
        say(f"\n{answer!r}")
    if args.plot:
        args.plot.write_text(style.svg(figures.queue_and_pages(run)), encoding="utf-8")
        say(f"\nqueue and pages over time: {args.plot}")
    if args.json:
        found = {
            "log": notes._asdict(),
            "left_out": [each._asdict() for each in left],
            "setting": {"chats": len(chats), "rate": chats.rate, "pages": run.pages,
                        "limit": run.limit, "page_size": run.page_size,
                        "model": asdict(run.model), "chip": asdict(run.chip)},
            "report": read._asdict(),
            "said": said,
            "can_finish": can,
        }  # fmt: skip
        if args.causes:
            bands = [{**band._asdict(), "wait": band.wait._asdict()} for band in causes.bands(run)]
            found["causes"] = bands
        if answer:
            best = answer.best and answer.best._asdict()
            rows = [row._asdict() for row in answer.rows]
            found["what_if"] = {"rows": rows, "best": best, "said": answer.said}
        print(json.dumps(found, indent=2, allow_nan=False))


def _trace(args):
    say = partial(print, file=sys.stderr if args.csv else sys.stdout)
    if args.log is None:
        for name in ("speed", "format", "columns", "unit", "run", "keep", "skip_too_large"):
            if getattr(args, name):
                raise ValueError(f"--{name.replace('_', '-')} is for a log, and there is none")
        chats = invented_chats().at_rate(40 if args.rate is None else args.rate)
    else:
        chats = _chats(args, say)[0]
    run = _serve(chats, args, "steps")
    first, last = args.steps
    first, last = 1 if first is None else first, len(run.steps) if last is None else last
    if not 1 <= first <= last <= len(run.steps):
        raise ValueError(f"the run has steps 1 to {len(run.steps)}, not {first} to {last}")
    say(_setting(run))
    if not args.csv:
        print(tables.plain(tables.trace(run, range(first, last + 1))))
        return
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow("step start_s took_s chats new queue held owed left waits_for".split())
    for place, step in enumerate(run.steps[first - 1 : last], first):
        *counts, blocked = step
        rows.writerow([place, *counts, run.pages - step.held - step.owed, blocked])


def _numbers(args):
    chats, chip = invented_chats(), CHIPS[args.chip]

    def show(runs, corner):
        reports = {
            label: fast.report(fast.serve(chats.at_rate(rate), pages, limit, chip=chip))
            for label, (rate, pages, limit) in runs.items()
        }
        fields = "ttft_p50 ttft_p99 tbt_p99 mean_tbt_p99 queue_max wall".split()
        print(tables.plain(tables.clipboard(reports, *fields, corner=corner)))

    print(f"400 chats on {chip.name}; 240 pages of 16 tokens, at most 16 chats in a step")
    show({rate: (rate, 240, 16) for rate in (10, 40)}, "chats/s")
    print("\nat 40 chats a second")
    settings = (240, 16), (480, 16), (960, 16), (480, 24)
    show({f"{pages} pages, {limit} places": (40, pages, limit) for pages, limit in settings}, "")


def _metrics(args):
    from tinyserve.logs import read_metrics

    if args.limit is not None:
        number("limit", args.limit, above=0)
    raw = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    try:
        read = read_metrics(raw.decode())
    except UnicodeDecodeError:
        raise ValueError(f"{args.file} is not UTF-8 text") from None
    print(read)
    if read.waiting is None:
        said = "nothing, since the server does not print how many wait"
    elif not read.waiting:
        said = "no wall, since nobody waits"
    elif args.limit is None:
        said = "a wall, since chats wait; with --limit, an engine's places, it says which"
    else:
        said = f"{read.wall(args.limit)}"
    print(f"\nThis one reading suggests: {said}.")


def _main(argv):
    parser = _parser()
    args = parser.parse_args(argv)
    if not hasattr(args, "run_command"):
        parser.print_help()
        return 0
    try:
        args.run_command(args)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "tinyserve"):
            raise  # a fault of the code, not of the machine
        get = "matplotlib" if missing == "matplotlib" else "pandas tqdm prometheus_client"
        return _fail(3, f"{missing} is not installed, which this needs: pip install {get}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(1, f"{where}{error.strerror or error}")
    except ValueError as error:
        said = str(error)
        for python, shell in SHELL.items():
            said = said.replace(python, shell)
        # A reader that lacks a package (pyarrow, for Parquet) says so in a ValueError.
        return _fail(3 if isinstance(error.__context__, ImportError) else 1, said)
    return 0


def _fail(code, error):
    print(f"tinyserve: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def main(argv=None):
    """Run the command line and return its exit code; argv: its words (sys.argv's, if left out).

    0 fine, 1 bad input, 3 a package is missing, 130 interrupted, 141 nobody reads any more.
    Raises SystemExit for --help (0) and for a command that is written wrongly (2).
    """
    # A stream that is closed is None, and print would take another one for it.
    sys.stdout, sys.stderr = (s or open(os.devnull, "w") for s in (sys.stdout, sys.stderr))
    try:
        try:
            return _main(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still to be written goes nowhere, or Python would complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
