"""Two pictures to play with: sliders over runs that the package has made beforehand.

Introduced in the chapters "Sit in the slots" and "Move the walls". An explorer is one piece
of HTML that holds its data and its script, so that it moves in the built page and in
JupyterLab, with no network and nothing else installed.
"""

import base64
import html
import json
from array import array
from importlib.resources import files
from itertools import chain, product

from tinyserve.slots import POLICIES, simulate
from tinyserve.style import PALETTE
from tinyserve.sweep import sweep
from tinyserve.workload import REPLY_MIXES, batching_requests, invented_chats

DARK = "html[data-theme=dark] .tsx,body[data-jp-theme-light=false] .tsx"


class Explorer:
    """An HTML fragment: a sentence, sliders, a picture, a table, and the data behind them.

    settings: one dict a slider, with its label, its values and the words for them; start:
    where each slider stands at first; sentence: what that state says; data: what the script
    draws from.
    """

    def __init__(self, name, settings, start, sentence, data):
        self.name, self.settings, self.start = name, settings, start
        self.sentence, self.data = sentence, data

    def __repr__(self):
        return self.sentence

    def _repr_html_(self):
        here = files("tinyserve")
        light, dark = (
            "".join(f"--{name}:{pair[i]};" for name, pair in PALETTE.items()) for i in (0, 1)
        )
        style = f".tsx{{{light}}}{DARK}{{{dark}}}{here.joinpath('explorer.css').read_text('utf-8')}"
        sliders = "".join(map(self._slider, self.settings, self.start))
        config = json.dumps({"settings": self.settings} | self.data, separators=(",", ":"))
        return (
            f'<div class="tsx" data-view="{self.name}" data-lm-suppress-shortcuts="true">'
            f"<style>{style}</style>"
            f'<p class="tsx-say" role="status">{html.escape(self.sentence)}</p>'
            '<p class="tsx-off"><em>Run this cell to make the sliders move.</em></p>'
            f"<fieldset disabled><legend>Settings</legend>{sliders}</fieldset>"
            '<div class="tsx-picture"></div><div class="tsx-table"></div>'
            f'<script type="application/json">{config.replace("</", "<&#92;/")}</script>'
            f"<script>{here.joinpath('explorer.js').read_text('utf-8')}</script></div>"
        )

    @staticmethod
    def _slider(setting, at):
        words = html.escape(setting["words"][at])
        return (
            f'<label><span>{html.escape(setting["label"])}</span><b aria-hidden="true">{words}</b>'
            f'<input type="range" min="0" max="{len(setting["words"]) - 1}" value="{at}" '
            f'aria-valuetext="{words}" data-lm-suppress-shortcuts="true"></label>'
        )


def _setting(label, values, words=None):
    return {"label": label, "words": words or [f"{value:g}" for value in values]}


def _packed(kind, values):
    """Numbers as base64 text: "B" bytes, "H" 16-bit whole numbers, "d" 64-bit floats."""
    return base64.b64encode(array(kind, values).tobytes()).decode()


# The tiny server

POINTS = 120  # moments at which a run's queue and pages are kept
SERVER = {
    "rate": range(5, 45, 5),
    "pages": (120, 240, 480, 960),
    "limit": (8, 16, 24),
    "order": range(6),
}
WALLS = {
    "none": "Nothing binds",
    "cache": "The cache is the wall",
    "batch": "The batch limit is the wall",
    "both": "Cache and batch limit are both the wall",
}


def sampled(run):
    """A run's queue, pages held and pages promised at POINTS moments, evenly spread from its
    start to its end, each as it stood in the step under way."""
    end, steps, at = max(run.done), run.steps, 0
    rows = {"queue": [], "held": [], "promised": [], "end": end}
    for point in range(POINTS):
        while at + 1 < len(steps) and steps[at + 1].start <= end * point / POINTS:
            at += 1
        rows["queue"].append(steps[at].queue)
        rows["held"].append(steps[at].held)
        rows["promised"].append(steps[at].held + steps[at].owed)
    return rows


def server_runs(jobs=-1):
    """The runs behind `server`: the 400 chats under each of 576 settings, as a DataFrame of
    `tinyserve.sweep.sweep` with the columns of `sampled`."""
    return sweep(invented_chats(400), **SERVER, also=sampled, jobs=jobs, progress=False)


def server_sentence(row):
    """What a row of `server_runs` says: what binds, when the cache filled, what the wait is."""
    filled = row.cache_full_at is not None and row.cache_full_at == row.cache_full_at
    cache = f"was full at {row.cache_full_at:.2f} s" if filled else "never filled"
    return (
        f"{WALLS[row.wall]}. The cache {cache}; one chat in a hundred waits "
        f"{row.ttft_p99:.2f} s or longer for its first token."
    )


def server(runs=None):
    """The tiny server's explorer: chats a second, cache pages, batch limit, order of the chats.

    runs: what `server_runs` made, if it is there already. Opens on the heavy run: 40 a
    second, 240 pages, limit 16, the original order.
    """
    runs = server_runs() if runs is None else runs
    settings = [
        _setting("chats a second", SERVER["rate"]),
        _setting("cache pages", SERVER["pages"]),
        _setting("batch limit", SERVER["limit"]),
        _setting("order of the chats", (), ["original", *(f"shuffled, {i}" for i in range(1, 6))]),
    ]
    opening = runs.query("rate == 40 and pages == 240 and limit == 16 and order == 0").iloc[0]
    fields = ["ttft_p99", "end", "queue_max", "pages_max", "wall"]
    data = {
        "points": POINTS,
        "pages": list(SERVER["pages"]),
        "say": [server_sentence(row) for row in runs.itertuples()],
        "facts": [
            [round(v, 3) if isinstance(v, float) else v for v in row]
            for row in runs[fields].values.tolist()
        ],
        **{name: _packed("H", chain(*runs[name])) for name in ("queue", "held", "promised")},
    }
    return Explorer("server", settings, [7, 1, 1, 0], server_sentence(opening), data)


# Fixed and continuous batching

BATCHING = {"rate": (0.5, 1, 2, 4, 8, 16), "slots": (2, 4, 8, 16), "mix": tuple(REPLY_MIXES)}
TICKS = 10  # the clock's positions in a second


def batching_runs():
    """The runs behind `batching`: {(rate, slots, mix): (fixed SlotRun, continuous SlotRun)}."""
    return {
        (rate, slots, mix): tuple(
            simulate(batching_requests(mix).at_rate(rate), slots, policy) for policy in POLICIES
        )
        for rate, slots, mix in product(*BATCHING.values())
    }


def batching_sentence(pair, seconds):
    """What the fixed and the continuous server look like at that moment of their clocks."""
    looks = []
    for run in pair:
        seats, waiting = run.at(seconds)
        looks.append((run.slots - seats.count(None), run.slots, waiting))
    (used, slots, waiting), (used2, _, waiting2) = looks
    return (
        f"At {seconds:.1f} s the fixed server has {used} of {slots} slots in use and {waiting} "
        f"waiting, the continuous one has {used2} in use and {waiting2} waiting."
    )


def batching():
    """The batching explorer: the 48 requests through a fixed and a continuous server.

    Traffic, slots and reply mix to choose, and a clock to slide. Opens at 5.6 s of 8 requests
    a second, 8 slots and mixed replies.
    """
    runs = batching_runs()
    seats, joined, done = [], [], []
    for run in (run for pair in runs.values() for run in pair):
        places = {}
        for step in run.steps:
            places |= {i: (step.slots.index(i), step.start) for i in step.joined}
        seats += [places[i][0] for i in range(len(run.done))]
        joined += [places[i][1] for i in range(len(run.done))]
        done += run.done
    sent = [t for rate in BATCHING["rate"] for t in batching_requests().at_rate(rate).send]
    ends = [max(run.all_done for run in pair) for pair in runs.values()]
    settings = [
        _setting("requests a second", BATCHING["rate"]),
        _setting("slots", BATCHING["slots"]),
        _setting("replies", (), list(BATCHING["mix"])),
        _setting("clock", (), [f"{t / TICKS:.1f} s" for t in range(1 + int(TICKS * max(ends)))]),
    ]
    data = {
        "ticks": TICKS,
        "slots": list(BATCHING["slots"]),
        "sent": _packed("d", sent),
        "seat": _packed("B", seats),
        "joined": _packed("d", joined),
        "done": _packed("d", done),
    }
    sentence = batching_sentence(runs[8, 8, "mixed"], 5.6)
    return Explorer("batching", settings, [4, 2, 1, 56], sentence, data)
