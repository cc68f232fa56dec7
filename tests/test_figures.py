"""The figures: what they show is what they are given, and everybody can read it.

The palette is measured with WCAG's formula for contrast and with a published simulation of
colour blindness, both written out here. Every figure is drawn once and looked at in three
ways: as matplotlib's objects (values, labels, overlaps), as SVG text, and twice over for
the same bytes.
"""

import inspect
import os
import re
import subprocess
import sys
from itertools import combinations
from math import inf
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text
from test_metrics import OneJoins

import tinyserve as ts
from tinyserve import calibrate, fast, figures, planning, style
from tinyserve.cache import pages_for
from tinyserve.causes import bands
from tinyserve.style import COLOR, PALETTE, WIDTH

ROOT = Path(__file__).resolve().parents[1]
MEANINGS = [name for name in PALETTE if name not in ("paper", "ink", "muted", "grid")]
MODES = {"light": 0, "dark": 1}

# --- what is drawn ---------------------------------------------------------------------

CHATS = ts.invented_chats(400)
LIGHT = ts.serve(CHATS.at_rate(10), pages=240, limit=16)
HEAVY = ts.serve(CHATS.at_rate(40), pages=240, limit=16)
TINY = ts.serve(ts.Workload([0, 0, 0], [34, 20, 5], [10, 20, 5]), pages=6, limit=4)
# Not a run of the book: four chats, two that wait at once, one sent after a silence.
OTHER = ts.serve(
    ts.Workload([0, 0.01, 0.02, 0.5], [40, 70, 33, 9], [12, 3, 20, 1]), pages=8, limit=2
)
SETTINGS = {
    (pages, limit): ts.report(ts.serve(CHATS.at_rate(40), pages, limit))
    for pages, limit in [(240, 16), (480, 16), (960, 16), (480, 24)]
}
ORDERS = {
    f"{pages} pages, 16 chats": [
        ts.report(ts.serve(order, pages, 16)).ttft_p99
        for order in [CHATS.at_rate(40), *(CHATS.at_rate(40).shuffled(seed) for seed in (1, 2, 3))]
    ]
    for pages in (240, 480)
}
TOY = ts.Workload([0] * 6, [1] * 6, [2, 6, 3, 1, 4, 2])
FIXED, CONTINUOUS = (ts.simulate(TOY, 4, policy, cost=1) for policy in ("fixed", "continuous"))
REQUESTS = ts.batching_requests("mixed")
TRAFFIC = {
    rate: tuple(ts.simulate(REQUESTS.at_rate(rate), 8, p) for p in ("fixed", "continuous"))
    for rate in (0.5, 8, 16)
}
SLOTS = dict(zip(("fixed", "continuous"), TRAFFIC[8]))


def point(running, context, prompt):
    """Operations, bytes and seconds of one step, for the roofline."""
    model = ts.LLAMA_8B
    flops = model.flops_per_token * (running + prompt)
    size = model.weight_bytes + model.kv_bytes_per_token * running * context
    return flops, size, ts.step_seconds([context] * running, prompt)


POINTS = {
    "decode, 1 user": point(1, 1000, 0),
    "decode, 64 users": point(64, 1000, 0),
    "decode, 256 users": point(256, 1000, 0),
    "prefill, 577 tokens": point(0, 0, 577),
}
WALLS = pd.DataFrame(
    [
        (pages, limit, order, wait * (1 + order), wall)
        for pages, limit, wait, wall in [
            (100, 4, 4.0, "both"),
            (200, 4, 2.0, "batch"),
            (300, 4, 2.0, "batch"),
            (100, 8, 4.0, "cache"),
            (200, 8, 0.5, "both"),
            (300, 8, 0.2, "batch"),
            (100, 12, 4.0, "cache"),
            (200, 12, 0.5, "cache"),
            (300, 12, 0.05, "none"),
        ]
        for order in range(3)
    ],
    columns=["pages", "limit", "order", "ttft_p99", "wall"],
)
DECODE = [calibrate.MeasuredStep(n, 1000 * n, (), 0.012 + n / 10_000) for n in (1, 8, 64)]
PREFILL = [calibrate.MeasuredStep(0, 0, (tokens,), tokens / 20_000) for tokens in (300, 9000)]
CLOCKS = {"data sheet": ts.A100, "measured": ts.A100_MEASURED}
TWO_CLOCKS = {
    setting: {"data sheet": ts.report(LIGHT), "measured": ts.report(HEAVY)}
    for setting in [(240, 16), (960, 24)]
}
BEGUN = {"real": ([1, 2, 3], [5, 4, 9]), "toy": ([2, 2, 2], [3, 4, 5])}
# Polls of no server: two at the limit of 4, one without a queue.
POLLS = pd.DataFrame(
    {
        "seconds": [0.0, 0.5, 1.0, 1.5, 2.0],
        "running": [1, 4, 4, 2, 3],
        "waiting": [0, 3, 12, 0, 7],
        "kv_use": [0.1, 0.95, 0.9, 0.97, 0.4],
    }
)
CALM = POLLS.assign(seconds=POLLS["seconds"] + 0.5, running=1, waiting=0)
PACKETS = [(1.0, 1), (1.5, 5), (2.0, 5)]
IDEAL = planning.Curve([10, 20, 30, 40], [1, 1, 0.97, 0.3], 0.99, 28.5)
GOODPUT = {
    "ideal": IDEAL,
    "measured": IDEAL._replace(shares=[1, 0.985, 0.4, 0.1], knee=19.25),
    "wide": IDEAL._replace(shares=[1] * 4, knee=inf),
    "slow": IDEAL._replace(shares=[0.5, 0.3, 0.1, 0], knee=0.0),
}
SLOWER = {1: [3.5, 0.2], 1.5: [10.0, 2.0], 2: [17.0, 4.0]}
CROWD = ts.Workload([0] * 30, [50] * 30, [2] * 30)
QUIET = [i / 0.03 for i in range(100)]  # then 100 at 3 a second, as case 14 of the field has it
QUIET += [QUIET[-1] + (i + 1) / 3 for i in range(100)]
QUIET = ts.Workload(QUIET, [100] * 200, [20] * 200)
DRAW = {
    "kitchen": [lambda: figures.kitchen()],
    "chat_bars": [
        lambda: figures.chat_bars(TINY),
        lambda: figures.chat_bars(OTHER, names="WXYZ"),
        lambda: figures.chat_bars(HEAVY, until=0.12),
    ],
    "page_strip": [lambda: figures.page_strip(TINY), lambda: figures.page_strip(OTHER)],
    "step_times": [lambda: figures.step_times(HEAVY), lambda: figures.step_times(TINY, 0.2)],
    "step_makeup": [
        lambda: figures.step_makeup(HEAVY, [1, 4, 5, 34]),
        lambda: figures.step_makeup(OTHER, [1, 2]),
    ],
    "waits": [
        lambda: figures.waits({"10 a second": LIGHT, "40 a second": HEAVY}),
        lambda: figures.waits({"light": LIGHT, "heavy": HEAVY, "other": OTHER}),
    ],
    "gaps": [lambda: figures.gaps(HEAVY), lambda: figures.gaps(LIGHT)],
    "arrivals": [
        lambda: figures.arrivals(CHATS.at_rate(40)),
        lambda: figures.arrivals(CHATS, until=20),
    ],
    "rate_over_time": [
        lambda: figures.rate_over_time(CHATS.at_rate(40)),
        lambda: figures.rate_over_time(QUIET),
        lambda: figures.rate_over_time(ts.Workload([3, 3, 5], [1] * 3, [1] * 3)),
    ],
    "wait_causes": [
        lambda: figures.wait_causes(HEAVY),
        lambda: figures.wait_causes({"light": LIGHT}),
        lambda: figures.wait_causes(
            {
                f"{pages} pages, {limit}": ts.serve(CHATS.at_rate(40), pages, limit)
                for pages, limit in SETTINGS
            }
        ),
        lambda: figures.wait_causes({"one a step": OneJoins(CROWD, 999, 64).serve()}, (90,)),
    ],
    "first_seconds": [
        lambda: figures.first_seconds(HEAVY),
        lambda: figures.first_seconds(LIGHT, 5.0),
    ],
    "light_and_heavy": [
        lambda: figures.light_and_heavy({10: ts.report(LIGHT), 40: ts.report(HEAVY)}),
        lambda: figures.light_and_heavy({1: ts.report(HEAVY), 2: ts.report(LIGHT)}),
        lambda: figures.light_and_heavy(
            {10: ts.report(LIGHT), 40: ts.report(HEAVY)},
            {10: (0.036, 0.157, 0.020, 0.023), 40: (3.35, 4.85, 0.030, 0.033)},
        ),
    ],
    "settings_bars": [lambda: figures.settings_bars(SETTINGS)],
    "order_ranges": [lambda: figures.order_ranges(ORDERS)],
    "walls_map": [lambda: figures.walls_map(WALLS)],
    "work_a_step": [
        lambda: figures.work_a_step({limit: ts.serve(CHATS, 500, limit) for limit in (2, 8)}),
    ],
    "slower_steps": [lambda: figures.slower_steps(SLOWER, ("few pages", "many pages"))],
    "server_polls": [
        lambda: figures.server_polls(POLLS, CALM, 4),
        lambda: figures.server_polls(POLLS, CALM, 16),
    ],
    "queue_by_kv": [lambda: figures.queue_by_kv(POLLS), lambda: figures.queue_by_kv(POLLS, 0.5)],
    "one_reply": [
        lambda: figures.one_reply(PACKETS),
        lambda: figures.one_reply([(0.2, 3), (0.9, 1), (1.4, 60), (3.0, 2)]),
    ],
    "goodput": [
        lambda: figures.goodput({name: GOODPUT[name] for name in ("ideal", "measured")}),
        lambda: figures.goodput(GOODPUT),
    ],
    "queue_and_pages": [
        lambda: figures.queue_and_pages(HEAVY),
        lambda: figures.queue_and_pages(fast.serve(CHATS.at_rate(10), 240, 16)),
        lambda: figures.queue_and_pages(OTHER, bins=50),
    ],
    "step_bars": [lambda: figures.step_bars(), lambda: figures.step_bars((8, 2000), 100)],
    "tokens_and_pace": [
        lambda: figures.tokens_and_pace(),
        lambda: figures.tokens_and_pace(context=8192),
    ],
    "step_lines": [
        lambda: figures.step_lines(),
        lambda: figures.step_lines(contexts=(100, 4000)),
    ],
    "roofline": [lambda: figures.roofline(POINTS)],
    "toy_grids": [lambda: figures.toy_grids(FIXED, CONTINUOUS)],
    "traffic_bars": [lambda: figures.traffic_bars(TRAFFIC)],
    "slots_over_time": [lambda: figures.slots_over_time(SLOTS)],
    "measured_steps": [
        lambda: figures.measured_steps(DECODE, CLOCKS, "chats"),
        lambda: figures.measured_steps(DECODE[:1], {"sheet": ts.A100}, "context"),
        lambda: figures.measured_steps(PREFILL, CLOCKS, "prompt"),
    ],
    "two_clocks": [lambda: figures.two_clocks(TWO_CLOCKS)],
    "sorted_waits": [lambda: figures.sorted_waits({n: SLOWER[n] for n in (1, 2)})],
    "running_over_time": [lambda: figures.running_over_time(BEGUN)],
}
DRAWINGS = [f"{name} {number}" for name, ways in DRAW.items() for number in range(len(ways))]
DRAWN = {}


def draw(drawing):
    """A drawing, "name number", as a new Figure."""
    name, number = drawing.split()
    return DRAW[name][int(number)]()


@pytest.fixture(params=DRAWINGS)
def drawing(request):
    """Each figure, in each of its ways above: the Figure, drawn once, and its SVG."""
    if request.param not in DRAWN:
        figure = draw(request.param)
        DRAWN[request.param] = figure, style.svg(figure)
    return request.param, *DRAWN[request.param]


def test_every_figure_function_is_drawn_here():
    public = {
        name
        for name, thing in vars(figures).items()
        if inspect.isfunction(thing) and hasattr(thing, "__wrapped__")
    }
    assert public == set(DRAW)


# --- the palette -----------------------------------------------------------------------


def linear(shade):
    """Red, green and blue of "#rrggbb" as amounts of light, 0 to 1 (sRGB)."""
    parts = [int(shade[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(one, other):
    """WCAG 2's contrast ratio of two shades, 1 to 21."""
    bright, dim = sorted(
        (0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))),
        reverse=True,
    )
    return (bright + 0.05) / (dim + 0.05)


# Machado, Oliveira and Fernandes 2009, severity 1: what is left of red, green and blue.
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def seen(shade, blindness):
    """CIELAB of a shade as it is seen: equal distances look about equally different."""
    light = linear(shade)
    r, g, b = (
        min(1, max(0, sum(m * c for m, c in zip(row, light)))) for row in BLINDNESS[blindness]
    )
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883
    x, y, z = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


FLOOR = 20  # in CIELAB; 2 is just visible side by side, 20 is plain across a picture


def confusable():
    """Pairs of meanings that a colour-blind reader sees less than FLOOR apart, in any mode."""
    return {
        frozenset(pair)
        for pair in combinations(MEANINGS, 2)
        for mode in MODES.values()
        for blindness in BLINDNESS
        if sum(
            (a - b) ** 2 for a, b in zip(*(seen(PALETTE[name][mode], blindness) for name in pair))
        )
        < FLOOR**2
    }


def test_the_formulas_themselves():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.005
    )  # WCAG's known near miss
    assert seen("#ffffff", "protanopia") == pytest.approx((100, 0, 0), abs=0.1)
    # A red and a green that a deuteranope is known to confuse, and a blue that nobody does.
    red, green, blue = (seen(shade, "deuteranopia") for shade in ("#a06000", "#708000", "#0060e0"))
    assert sum((a - b) ** 2 for a, b in zip(red, green)) < FLOOR**2
    assert sum((a - b) ** 2 for a, b in zip(red, blue)) > FLOOR**2


@pytest.mark.parametrize("mode", MODES)
def test_contrast_on_paper(mode):
    paper = PALETTE["paper"][MODES[mode]]
    for name in [*MEANINGS, "ink", "muted"]:
        assert contrast(PALETTE[name][MODES[mode]], paper) >= 4.5, name


def test_no_two_meanings_share_a_shade():
    for mode in MODES.values():
        shades = [shades[mode] for shades in PALETTE.values()]
        assert len(set(shades)) == len(shades)


def forms(axes):
    """meaning -> the forms in which it is drawn in these axes: what is left without colour."""
    found = {}

    def add(color, *form):
        name = {shade: name for name, shade in COLOR.items()}.get(to_hex(color))
        if name in MEANINGS:
            found.setdefault(name, set()).add(form)

    for line in axes.lines:
        ends = [y for y in line.get_ydata() if y == y]
        below = bool(ends) and min(ends) < 0 and line.get_xdata()[0] != line.get_xdata()[-1]
        # A line of its own pattern and marker; stems may also differ by going down.
        add(line.get_color(), "line", line.get_linestyle(), line.get_marker(), below)
    for patch in axes.patches:
        hatch, outline = patch.get_hatch(), not patch.get_fill()
        height = round(patch.get_height(), 2) if isinstance(patch, Rectangle) else None
        add(patch.get_edgecolor(), "patch", hatch, outline, height)
        add(patch.get_facecolor(), "patch", hatch, outline, height)
    for area in axes.collections:
        assert isinstance(area, PolyCollection), type(area)
        add(area.get_facecolor()[0], "area")
    return found


def test_some_meanings_are_confusable():
    """Otherwise the next test would test nothing."""
    assert frozenset(("weights", "cache")) in confusable()


# Two are left out: in the kitchen a ticket, a plate and a shelf differ by shape, each beside
# its name; in the map of walls each cell has its wall's letter on it.
NAMED = [d for d in DRAWINGS if "kitchen" in d or "walls_map" in d]


@pytest.mark.parametrize("drawing", [d for d in DRAWINGS if d not in NAMED], indirect=True)
def test_without_colour_the_forms_still_differ(drawing):
    """Two meanings that look alike to some readers never have one form in one panel."""
    _, figure, _ = drawing
    for axes in figure.axes:
        found = forms(axes)
        for pair in confusable():
            if pair <= set(found):
                one, other = (found[meaning] for meaning in pair)
                assert not one & other, (sorted(pair), one & other)


# --- labels ----------------------------------------------------------------------------

UNITS = {"times"}
UNITS |= {"s", "ms", "%", "tokens", "tokens/s", "chats/s", "requests/s", "number", "pages", "chats"}
UNITS |= {"operations/byte", "trillion operations/s"}
COUNTED = {"chat", "users", "users in one step", "requests"}  # the label is what is counted


def label_is_plain(label):
    """Lower case, and a unit in brackets or the thing that is counted."""
    unit = re.search(r"\(([^)]*)\)$", label)
    counted = label.split("\n")[-1] in COUNTED
    return label == label.lower() and (counted or bool(unit and unit[1] in UNITS))


def test_the_label_rule():
    assert label_is_plain("time (ms)") and label_is_plain("fixed\nrequests")
    assert not label_is_plain("Time (ms)") and not label_is_plain("time")
    assert not label_is_plain("time (furlongs)") and not label_is_plain("")


def test_axis_labels_and_no_title(drawing):
    name, figure, _ = drawing
    assert isinstance(figure, Figure) and figure.get_figwidth() == WIDTH
    assert not figure.get_suptitle()
    for axes in figure.axes:
        assert not any(axes.get_title(loc) for loc in ("left", "center", "right"))
        if not axes.axison:
            assert name.startswith("kitchen")
            continue
        shared = axes.get_shared_x_axes().get_siblings(axes)
        labels = [other.get_xlabel() for other in shared if other.get_xlabel()]
        if name.startswith("traffic_bars"):  # one label for both panels' rates
            labels = [figure.axes[-1].get_xlabel()]
        assert len(set(labels)) == 1, name
        assert label_is_plain(labels[0]), labels
        if axes.get_ylabel():
            assert label_is_plain(axes.get_ylabel()), axes.get_ylabel()
        else:  # rows that say in words what they are
            ticks = [tick.get_text() for tick in axes.get_yticklabels()]
            assert ticks and all(re.search("[a-z]", tick) for tick in ticks), ticks


def words(figure):
    """Every text that is really drawn: (what it says, its box in points, its size)."""
    outside = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-6 * (high - low)
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                drawn = low - slack <= tick.get_loc() <= high + slack and axes.axison
                outside |= set() if drawn else {tick.label1, tick.label2}
    texts = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in outside:
            if text.get_rotation() % 90:
                continue  # the box of a slanted text holds much that is not text
            # Without the arrow or the padding: the letters only.
            box = Text.get_window_extent(text)
            texts.append((text.get_text(), box, text.get_fontsize()))
    return texts


def test_words_fit_and_never_overlap(drawing):
    _, figure, _ = drawing
    figure.set_dpi(72)
    figure.draw_without_rendering()
    texts = words(figure)
    for text, box, _ in texts:
        inside = box.x0 >= 0 and box.y0 >= 0
        assert inside and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    for (one, a, _), (other, b, _) in combinations(texts, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 0.5 or high <= 1.5, (one, other)  # boxes hold some air above the letters


# In the kitchen, the page strip and the grids the words stand on what they name.
@pytest.mark.parametrize(
    "drawing",
    [d for d in DRAWINGS if d.split()[0] not in ("kitchen", "page_strip", "toy_grids")],
    indirect=True,
)
def test_words_stand_clear_of_lines_and_bars(drawing):
    _, figure, _ = drawing
    figure.set_dpi(72)
    figure.draw_without_rendering()
    for axes in figure.axes:
        for text in axes.texts:
            box = Text.get_window_extent(text).padded(-1)
            if text.get_rotation() % 90:
                continue
            for mark in [*axes.lines, *axes.patches]:
                path = mark.get_path().transformed(mark.get_transform())
                if mark.get_linestyle() == "None":  # markers only
                    covered = any(box.contains(*point) for point in path.vertices)
                else:
                    covered = path.intersects_bbox(box, filled=False)
                assert not covered, (text.get_text(), mark)


def test_words_are_large_enough_on_a_phone(drawing):
    _, figure, _ = drawing
    for text, _, size in words(figure):
        assert size * 340 / (72 * WIDTH) >= 9, text  # CSS pixels where the picture has 340


def test_the_overlap_test_sees_an_overlap():
    figure, axes = style.new_figure(2)
    axes.text(0.5, 0.5, "one")
    axes.text(0.52, 0.5, "other")
    with pytest.raises(AssertionError, match="one"):
        test_words_fit_and_never_overlap(("", figure, ""))


# --- the SVG ---------------------------------------------------------------------------


def test_svg_uses_the_palette_only(drawing):
    _, _, svg = drawing
    picture = svg[: svg.index("<style>@media")]
    shades = set(re.findall(r"#[0-9a-f]{6}\b(?=[;\"])", picture))
    assert shades <= {light for light, _ in PALETTE.values()}
    # Each of them in a form that the rules for a dark page match.
    matched = re.findall(r"(?:(?:fill|stroke): |(?:fill|stroke)=\")(#[0-9a-f]{6})", picture)
    assert len(matched) == len(re.findall(r"#[0-9a-f]{6}\b(?=[;\"])", picture)) > 0
    assert not re.search(r"rgb|hsl|\b(?:black|white|red|gray|grey)\b", picture)


def test_no_text_is_left_black(drawing):
    """Black is SVG's default, written nowhere, so no rule could turn it light."""
    _, figure, _ = drawing
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip():
            assert to_hex(text.get_color()) in COLOR.values(), text.get_text()
        box = text.get_bbox_patch()
        if isinstance(text, Annotation) and text.arrow_patch is not None:
            assert to_hex(text.arrow_patch.get_edgecolor()) in COLOR.values()
        assert box is None or to_hex(box.get_facecolor()) in COLOR.values()


def test_dark_rules_name_every_shade():
    figure, _ = style.new_figure(1)
    svg = style.svg(figure)
    for light, dark in PALETTE.values():
        for paint in ("fill", "stroke"):
            assert f'[style*="{paint}: {light}"]' in svg
            assert f'[{paint}="{light}"]{{{paint}:{dark} !important}}' in svg


def test_svg_stands_alone_and_is_small(drawing):
    name, _, svg = drawing
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>")
    assert len(svg.encode()) < 150_000, name
    assert "<image" not in svg and "data:" not in svg and "@import" not in svg
    assert all(ref.startswith("#") for ref in re.findall(r'href="([^"]*)"', svg))
    assert all(ref.startswith("#") for ref in re.findall(r"url\(([^)]*)\)", svg))
    names = set(re.findall(r'xmlns(?::\w+)?="([^"]*)"', svg))
    rest = svg
    for namespace in names:  # names, not addresses: nothing is fetched
        rest = rest.replace(f'="{namespace}"', "")
    assert "http" not in rest and "//" not in re.sub(r"<!--.*?-->", "", rest)


def test_svg_says_nothing_of_the_machine(drawing):
    _, _, svg = drawing
    assert "<metadata" not in svg and "matplotlib" not in svg.lower().replace("matplotlib.axis", "")
    assert not re.search(r"\b20\d\d-\d\d|\b\d\d:\d\d", svg)
    assert str(ROOT) not in svg and "/home" not in svg and "0x" not in svg


def test_two_drawings_are_the_same_bytes(drawing):
    name, _, svg = drawing
    assert style.svg(draw(name)) == svg


def test_the_readers_settings_change_nothing():
    expected = style.svg(draw("waits 0"))
    with matplotlib.rc_context(
        {"font.size": 20, "lines.markersize": 20, "axes.labelweight": "bold"}
    ):
        before = dict(matplotlib.rcParams)
        assert style.svg(draw("waits 0")) == expected
        assert dict(matplotlib.rcParams) == before


def test_another_process_draws_the_same_bytes_without_pyplot():
    code = (
        "import sys; from tinyserve import figures, style; import tinyserve as ts;"
        "run = ts.serve(ts.Workload([0, 0, 0], [34, 20, 5], [10, 20, 5]), pages=6, limit=4);"
        "sys.stdout.buffer.write(style.svg(figures.page_strip(run)).encode());"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=environment, check=True
        )
        assert done.stdout.decode() == style.svg(draw("page_strip 0"))


# --- what is shown is what was given ---------------------------------------------------


def texts(axes):
    """What the labels inside a plot say."""
    return [text.get_text() for text in axes.texts]


def bars(axes, color=None):
    """(x, y, width, height) of the bars, of one meaning if given, to nine digits."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    if color:
        found = [bar for bar in found if to_hex(bar.get_edgecolor()) == COLOR[color]]
    return [(*bar.get_xy(), bar.get_width(), bar.get_height()) for bar in found]


def of(axes, color, marker=None):
    """The lines of one meaning, of one marker if given."""
    return [
        line
        for line in axes.lines
        if to_hex(line.get_color()) == COLOR[color] and marker in (None, line.get_marker())
    ]


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def near(values):
    return close(list(values))


def test_step_bars_values():
    users, context = (3, 200, 3000), 90
    (axes,) = figures.step_bars(users, context).axes
    cache = [x + width for x, _, width, _ in bars(axes, "cache")]
    read = [ts.step_parts(n, n * context, 0)[1] for n in users]
    assert cache == near(1000 * seconds for seconds in read)
    assert [w for *_, w, _ in bars(axes, "weights")] == near([1000 * ts.step_parts(0, 0, 0)[1]] * 3)
    steps = [1000 * ts.step_seconds([context] * n) for n in users]
    assert texts(axes) == [f"{step:.2f} ms" for step in steps]
    # 3,000 chats of 90 tokens: arithmetic is longer, and outlined.
    assert [w for *_, w, _ in bars(axes, "muted")] == near(
        step for step, seconds in zip(steps, read) if step > 1000.001 * seconds
    )


def test_tokens_and_pace_values():
    total, each = figures.tokens_and_pace(context=2000).axes
    users, all_tokens = total.lines[0].get_data()
    assert users[0] == 1 and users[-1] == ts.users_that_fit(2000)
    steps = [ts.step_seconds([2000] * n) for n in users]
    assert list(all_tokens) == near(n / step for n, step in zip(users, steps))
    assert list(each.lines[0].get_ydata()) == near(1 / step for step in steps)
    assert texts(total) == [f"{all_tokens[0]:,.0f}", f"{all_tokens[-1]:,.0f}"]


def test_step_lines_values():
    (axes,) = figures.step_lines(contexts=(100, 3000)).axes
    ends = {line.get_xdata()[0]: line.get_ydata()[0] for line in of(axes, "wall", "s")}
    for context in (100, 3000):
        most = ts.users_that_fit(context)
        assert ends.pop(most) == close(1000 * ts.step_seconds([context] * most))
    assert not ends
    for line in of(axes, "cache"):
        context = 3000 if max(line.get_xdata()) == ts.users_that_fit(3000) else 100
        wanted = [1000 * ts.step_seconds([context] * n) for n in line.get_xdata()]
        assert list(line.get_ydata()) == near(wanted)
    (turn,) = of(axes, "decode", "o")
    n = turn.get_xdata()[0]
    before, after = ts.step_parts(n - 1, 100 * (n - 1), 0), ts.step_parts(n, 100 * n, 0)
    assert before[0] < before[1] and after[0] >= after[1]


def test_roofline_values():
    points = {"decode, here": (4e12, 2e12, 3.0), "prefill, there": (6e14, 1e12, 2.5)}
    (axes,) = figures.roofline(points).axes
    (decode,), (prefill,) = of(axes, "decode"), of(axes, "prefill")
    assert decode.get_xydata()[0] == near([2.0, 4e12 / 3])
    assert prefill.get_xydata()[0] == near([600.0, 2.4e14])
    roof = of(axes, "wall")[0].get_xydata()
    assert list(roof[1]) == near([ts.A100.peak / ts.A100.bandwidth, ts.A100.peak])
    assert roof[0][1] == close(roof[0][0] * ts.A100.bandwidth)
    assert axes.get_ylim()[0] < decode.get_ydata()[0]


def test_toy_grids_values():
    workload = ts.Workload([0, 0, 0, 1], [1] * 4, [2, 1, 4, 3])
    runs = [ts.simulate(workload, 2, policy, cost=1) for policy in ("fixed", "continuous")]
    for axes, run in zip(figures.toy_grids(*runs, names="PQRS").axes, runs):
        grid = [["."] * len(run.steps) for _ in range(run.slots)]
        for text in axes.texts:
            column, slot = text.get_position()
            grid[slot][column - 1] = text.get_text()
        assert ["".join(row) for row in grid] == run.grid("PQRS")
        crosses = {tuple(line.get_xydata()[0]) for line in of(axes, "queue", "x")}
        assert crosses == {
            (number, slot)
            for number, step in enumerate(run.steps, 1)
            for slot, request in enumerate(step.slots)
            if request is None and step.waiting
        }


def test_traffic_bars_values():
    tokens, wait = figures.traffic_bars(TRAFFIC).axes
    runs = [run for pair in TRAFFIC.values() for run in pair]
    assert [h for *_, h in bars(tokens, "decode")] == near(r.tokens_per_second for r in runs)
    assert [h for *_, h in bars(wait, "queue")] == near(run.mean_wait for run in runs)
    assert texts(wait) == [f"{run.mean_wait:.2f}" for run in runs]
    assert [tick.get_text() for tick in wait.get_xticklabels()] == ["0.5", "8", "16"]


def in_force(line, time):
    """The value at `time` of a line drawn in steps."""
    return [y for x, y in zip(*line.get_data()) if x <= time][-1]


def test_slots_over_time_values():
    runs = {"a": ts.simulate(REQUESTS.at_rate(0.7), 4, "fixed"), "b": SLOTS["continuous"]}
    for axes, run in zip(figures.slots_over_time(runs).axes, runs.values()):
        (used,), (waiting,) = of(axes, "decode"), of(axes, "queue")
        for before, step in zip([None, *run.steps], run.steps):
            assert in_force(used, step.start) == run.slots - step.slots.count(None)
            assert in_force(waiting, step.start) == step.waiting
            if before and step.start > before.end:
                assert in_force(used, before.end) == in_force(waiting, before.end) == 0
        assert in_force(used, run.all_done) == 0


@pytest.mark.parametrize("run", [TINY, OTHER])
def test_chat_bars_values(run):
    (axes,) = figures.chat_bars(run).axes
    for color, starts, ends in [
        ("queue", run.workload.send, run.admitted),
        ("prefill", run.admitted, run.first),
        ("decode", run.first, run.done),
    ]:
        spans = [(1000 * a, 1000 * (b - a)) for a, b in zip(starts, ends) if b > a]
        drawn = [(x, width) for x, _, width, _ in bars(axes, color)]
        assert [x for x, _ in drawn] == near(x for x, _ in spans)
        assert [w for _, w in drawn] == near(w for _, w in spans)
    firsts = [line.get_xdata()[0] for line in of(axes, "ink", "o")]
    assert firsts == near(1000 * first for first in run.first)
    assert "(ms)" in axes.get_xlabel()


def test_chat_bars_stops_at_until():
    (axes,) = figures.chat_bars(HEAVY, until=2.0).axes
    assert axes.get_xlabel().endswith("(s)")
    assert len(axes.get_yticks()) == sum(sent < 2 for sent in HEAVY.workload.send)
    assert max(x + width for x, _, width, _ in bars(axes)) <= 2.0
    assert len(of(axes, "ink", "o")) == sum(first <= 2 for first in HEAVY.first)


def test_chat_bars_wants_a_name_for_each():
    with pytest.raises(ValueError, match="3 chats need 3 names, not 2"):
        figures.chat_bars(TINY, names="AB")


@pytest.mark.parametrize("run", [TINY, OTHER])
def test_page_strip_values(run):
    (axes,) = figures.page_strip(run).axes
    held, owed = {}, {}
    for color, count in [("held", held), ("promised", owed)]:
        for x, _, width, _ in bars(axes, color):
            for step in range(round(x + 0.46), round(x + 0.46 + width + 0.08)):
                count[step] = count.get(step, 0) + 1
    starts = [step.start for step in run.steps]
    joined = [starts.index(time) + 1 for time in run.admitted]
    work = run.workload
    for number in range(1, len(starts) + 1):
        there = [
            (chat, number - joined[chat] + 1)
            for chat in range(len(work))
            if joined[chat] <= number < joined[chat] + work.replies[chat]
        ]
        pages = sum(pages_for(work.prompts[c] + made, run.page_size) for c, made in there)
        promised = sum(pages_for(work.total(c), run.page_size) for c, _ in there)
        assert held.get(number, 0) == pages and owed.get(number, 0) == promised - pages, number
    waits = {}
    for text in axes.texts:
        if text.get_text().endswith("waits"):
            waits[text.get_text()[0]] = text.xy[1]
    late = [c for c in range(len(work)) if any(work.send[c] <= s < run.admitted[c] for s in starts)]
    assert set(waits) == {"ABCDEFG"[chat] for chat in late}
    for chat in late:
        (line,) = (x for x in of(axes, "queue") if x.get_ydata()[0] == waits["ABCDEFG"[chat]])
        first, last = line.get_xdata()
        assert last == joined[chat] - 1 + 0.4
        assert first == min(i for i, s in enumerate(starts, 1) if s >= work.send[chat]) - 0.4


def test_page_strip_of_the_book():
    """C waits ten steps beside page 5, which is promised to B and not used."""
    (axes,) = figures.page_strip(TINY).axes
    hatched = [
        (round(x + 0.46), y + 0.42, round(w + 0.08)) for x, y, w, _ in bars(axes, "promised")
    ]
    assert (1, 5, 10) in [(x, round(y), w) for x, y, w in hatched]


def test_a_run_of_another_chip_is_not_replayed():
    slow = ts.Chip("slow", peak=1e12, bandwidth=1e11, memory=80e9)
    run = ts.serve(TINY.workload, 6, 4, chip=slow)
    with pytest.raises(ValueError, match="cannot be replayed"):
        figures.page_strip(run)
    with pytest.raises(ValueError, match="cannot be replayed"):
        figures.step_makeup(run, [1])
    (axes,) = figures.step_makeup(run, [1], chip=slow).axes
    assert f"{1000 * run.steps[0].seconds:.1f} ms" in texts(axes)


def test_step_times_values():
    (axes,) = figures.step_times(HEAVY, until=1.0).axes
    steps = [step for step in HEAVY.steps if step.start <= 1.0]
    (read,), (write,) = of(axes, "prefill", "^"), of(axes, "decode", "o")
    for line, kind in [(read, True), (write, False)]:
        chosen = [step for step in steps if bool(step.joined) == kind]
        assert list(line.get_xdata()) == near(step.start for step in chosen)
        assert list(line.get_ydata()) == near(1000 * step.seconds for step in chosen)


def test_step_makeup_values():
    numbers = [2, 4, 34, 100]
    (axes,) = figures.step_makeup(HEAVY, numbers).axes
    ends = [
        [x + w for x, _, w, _ in bars(axes, color)] for color in ("prefill", "cache", "weights")
    ]
    for number, arithmetic, memory, weights in zip(numbers, *ends):
        assert max(arithmetic, memory) == close(1000 * HEAVY.steps[number - 1].seconds)
        assert weights == close(1000 * ts.step_parts(0, 0, 0)[1])
    bold = [t.get_text() for t in axes.texts if t.get_weight() == "bold"]
    assert bold == [f"{1000 * HEAVY.steps[number - 1].seconds:.1f} ms" for number in numbers]


def share_at(line, value):
    """Percent of the values at or below `value`, read off a rising curve."""
    return max(y for x, y in zip(*line.get_data()) if x <= value)


def test_waits_values():
    (axes,) = figures.waits({"light": LIGHT, "heavy": HEAVY}).axes
    for run, label in ((LIGHT, "light"), (HEAVY, "heavy")):
        rep, ttft = ts.report(run), [f - s for f, s in zip(run.first, run.workload.send)]
        spots = {tuple(line.get_xydata()[0]) for line in of(axes, "queue", "o")}
        assert {(rep.ttft_p50, 50), (rep.ttft_p99, 99)} <= spots
        (curve,) = (line for line in axes.lines if max(line.get_xdata()) == max(ttft))
        for value in sorted(ttft)[:: len(ttft) // 7]:
            assert share_at(curve, value) == close(sum(t <= value for t in ttft) / 4)
        assert any(text.startswith(f"{label}\np50 ") for text in texts(axes))


def test_gaps_values():
    (axes,) = figures.gaps(HEAVY).axes
    rep = ts.report(HEAVY)
    (pooled,), (means,) = of(axes, "decode", "o"), of(axes, "ink", "o")
    assert list(pooled.get_xydata()[0]) == near([1000 * rep.tbt_p99, 99])
    assert list(means.get_xydata()[0]) == near([1000 * rep.mean_tbt_p99, 99])
    curve = max(of(axes, "decode"), key=lambda line: len(line.get_xdata()))
    gaps = [(1000 * s.seconds, s.chats - s.joined) for s in HEAVY.steps]
    for value in (8.0, 8.1, 20.0, 40.0):
        below = sum(count for length, count in gaps if length <= value)
        assert share_at(curve, value) == close(100 * below / sum(n for _, n in gaps))
    assert sorted(texts(axes)) == [
        f"every gap\np99 {1000 * rep.tbt_p99:.1f} ms",
        f"one average\na chat\np99 {1000 * rep.mean_tbt_p99:.1f} ms",
    ]


def test_arrivals_values():
    work = ts.Workload([0, 1, 2.5, 9], [5, 60, 7, 8], [3, 2, 90, 4])
    (axes,) = figures.arrivals(work, until=3).axes
    (up,), (down,) = of(axes, "prefill"), of(axes, "decode")
    assert list(up.get_xdata()[1::3]) == list(down.get_xdata()[1::3]) == [0, 1, 2.5]
    assert list(up.get_ydata()[1::3]) == [5, 60, 7]
    assert list(down.get_ydata()[1::3]) == [-3, -2, -90]


def levels(workload, **options):
    """(start, end, height) of each stretch of the rate over time, and the mean's line."""
    (axes,) = figures.rate_over_time(workload, **options).axes
    (rate,), (mean,) = of(axes, "ink"), of(axes, "muted")
    x, y = rate.get_data()
    return list(zip(x, x[1:], y)), mean.get_ydata()[0]


@pytest.mark.parametrize("workload", [CHATS.at_rate(40), QUIET, REQUESTS, CHATS.slice(5, 9)])
def test_rate_over_time_values(workload):
    stretches, mean = levels(workload)
    sent = workload.send
    assert (stretches[0][0], stretches[-1][1]) == (sent[0], sent[-1])
    for start, end, height in stretches:
        gaps = sum(start <= time < end for time in sent)
        assert height == close(gaps / (end - start))
        assert gaps >= 10 or len(stretches) == 1
        assert end - start >= (sent[-1] - sent[0]) / 2000
    assert mean == close((len(sent) - 1) / (sent[-1] - sent[0]))
    # The mean is that of the levels, each as long as it lasts.
    total = sum((end - start) * height for start, end, height in stretches)
    assert mean == close(total / (sent[-1] - sent[0]))
    assert len(levels(workload, least=3)[0]) > len(stretches)


def test_case_14_a_quiet_head():
    """100 rows at 0.03 a second, then 100 at 3: the mean of 0.06 is the rate at no time."""
    assert f"{QUIET.rate:.2f}" == "0.06"
    stretches, mean = levels(QUIET)
    assert mean == close(QUIET.rate)
    quiet = [height for start, _, height in stretches if start < QUIET.send[90]]
    busy = [height for start, _, height in stretches if start >= QUIET.send[99]]
    assert quiet == near([0.03] * len(quiet)) and busy == near([3] * len(busy))
    assert len(quiet) > 1 < len(busy)
    # A server that can't take 3 a second for long looks idle over the whole log.
    assert ts.report(ts.serve(QUIET.slice(0, 3000), 240, 16)).wall == "none"
    slow = ts.Chip("a hundredth", peak=312e10, bandwidth=2039e7, memory=80e9)
    busy = QUIET.slice(100, by="chats")
    assert busy.rate == close(3)
    assert ts.report(ts.serve(QUIET.slice(0, 3000), 240, 2, chip=slow)).wall == "none"
    assert ts.report(ts.serve(busy, 240, 2, chip=slow)).wall == "batch"


@pytest.mark.parametrize("ending", [[500 + i / 10 for i in range(30)], [500] * 9, [500] * 30])
def test_rate_over_time_at_the_end(ending):
    """A rush at the end has its level; a heap of chats at one time has none of its own."""
    workload = ts.Workload([10 * i for i in range(50)] + ending, *[[9] * (50 + len(ending))] * 2)
    last = levels(workload)[0][-1]
    if ending[-1] > 500:
        assert last[2] > 5
    else:
        assert last[1] - last[0] >= 2.5


@pytest.mark.parametrize("sent", [[3], [3, 3]])
def test_rate_over_time_of_no_time(sent):
    with pytest.raises(ValueError, match=r"at 3\.0 s, have no rate"):
        figures.rate_over_time(ts.Workload(sent, *[[1] * len(sent)] * 2))
    with pytest.raises(ValueError, match="least must be a whole number of at least 1, not 0"):
        figures.rate_over_time(CHATS, least=0)


def test_wait_causes_values():
    runs = {"heavy": HEAVY, "480 pages, 24": ts.serve(CHATS.at_rate(40), 480, 24)}
    figure = figures.wait_causes(runs)
    for axes, run in zip(figure.axes, runs.values()):
        found = bands(run)
        assert [tick.get_text() for tick in axes.get_yticklabels()] == [b.name for b in found]
        for row, band in enumerate(found):
            # The bars of a row, left to right, are the parts that are not 0, in their order.
            drawn = [(x, w) for x, y, w, _ in bars(axes) if round(y + 0.31) == row]
            parts = [part for part in figures.CAUSES if getattr(band.wait, part)]
            lengths = [getattr(band.wait, part) for part in parts]
            assert [width for _, width in drawn] == near(lengths)
            assert [x for x, _ in drawn] == near(sum(lengths[:i]) for i in range(len(parts)))
        for part, (_, color, hatch) in figures.CAUSES.items():
            marks = [p for p in axes.patches if to_hex(p.get_edgecolor()) == COLOR[color]]
            marks = [p for p in marks if p.get_hatch() == hatch]
            assert len(marks) == sum(getattr(band.wait, part) > 0 for band in found), part
    assert texts(figure.axes[1])[-1] == "0.17 s, 79 % cache"
    key = [text.get_text() for text in figure.legends[0].texts]
    assert "another rule" not in key and "batch limit" in key
    assert sorted(figures.CAUSES) == sorted(ts.Wait._fields)
    (one,) = figures.wait_causes(HEAVY).axes
    assert bars(one) == bars(figures.wait_causes({"": HEAVY}).axes[0])


def test_first_seconds_values():
    pages, queue = figures.first_seconds(HEAVY, 2.0).axes
    steps = [step for step in HEAVY.steps if step.start <= 2.0]
    (held,), (promised,), (waiting,) = of(pages, "held"), of(pages, "promised"), of(queue, "queue")
    assert list(held.get_xdata()) == [step.start for step in steps]
    assert list(held.get_ydata()) == [step.held for step in steps]
    assert list(promised.get_ydata()) == [step.held + step.owed for step in steps]
    assert list(waiting.get_ydata()) == [step.queue for step in steps]
    ceiling, full = of(pages, "wall")
    assert set(ceiling.get_ydata()) == {HEAVY.pages}
    assert set(full.get_xdata()) == {ts.report(HEAVY).cache_full_at}
    assert texts(queue)[0].startswith(f"{ts.report(HEAVY).cache_full_at:.2f} s")
    never, _ = figures.first_seconds(LIGHT).axes
    assert len(of(never, "wall")) == 1


def test_light_and_heavy_values():
    reports = {10: ts.report(LIGHT), 40: ts.report(HEAVY)}
    wait, gap = figures.light_and_heavy(reports).axes
    assert [h for *_, h in bars(wait)] == near(rep.ttft_p99 for rep in reports.values())
    assert [h for *_, h in bars(gap)] == near(1000 * rep.tbt_p99 for rep in reports.values())
    growth = reports[40].ttft_p99 / reports[10].ttft_p99
    assert f"{growth:.1f} times\nas long" in texts(wait)
    assert [tick.get_text() for tick in gap.get_xticklabels()] == ["10", "40"]


def test_settings_bars_values():
    (axes,) = figures.settings_bars(SETTINGS).axes
    assert [w for _, _, w, _ in bars(axes)] == near(rep.ttft_p99 for rep in SETTINGS.values())
    for text, rep in zip(texts(axes), SETTINGS.values(), strict=True):
        seconds, wall = re.fullmatch(r"([\d.]+) s, wall: (\w+)", text).groups()
        assert wall == rep.wall and float(seconds) == pytest.approx(rep.ttft_p99, abs=0.005)
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == [f"{pages} pages,\n{limit} chats" for pages, limit in SETTINGS]


def test_order_ranges_values():
    results = {"one": [2.0, 1.0, 4.0], "two": [0.05, 0.06]}
    (axes,) = figures.order_ranges(results).axes
    originals = [line.get_xdata()[0] for line in of(axes, "ink", "D")]
    assert originals == [2.0, 0.05]
    assert [list(line.get_xdata()) for line in of(axes, "queue", "o")] == [[1.0, 4.0], [0.06]]
    ranges = [line.get_xdata() for line in of(axes, "queue") if line.get_marker() == "None"]
    assert [list(ends) for ends in ranges] == [[1.0, 4.0], [0.05, 0.06]]
    assert texts(axes) == ["1.00 s", "4.00 s", "0.050 s", "0.060 s"]


def test_error_bars_are_the_ranges_given():
    reports = {10: ts.report(LIGHT), 40: ts.report(HEAVY)}
    ranges = {10: (0.036, 0.157, 0.020, 0.023), 40: (3.35, 4.85, 0.030, 0.033)}
    waits, gaps = figures.light_and_heavy(reports, ranges).axes
    assert [list(line.get_ydata()) for line in waits.lines] == [[0.036, 0.157], [3.35, 4.85]]
    assert [list(line.get_ydata()) for line in gaps.lines] == [[20.0, 23.0], [30.0, 33.0]]
    assert figures.light_and_heavy(reports).axes[0].lines[:] == []


def test_walls_map_values():
    (axes,) = figures.walls_map(WALLS, levels=(1.0,)).axes
    marks = {tuple(map(round, text.get_position())): text.get_text() for text in axes.texts[:9]}
    names = {"none": "", "cache": "C", "batch": "B", "both": "CB"}
    for row in WALLS.itertuples():
        assert (
            marks[(100, 200, 300).index(row.pages), (4, 8, 12).index(row.limit)] == names[row.wall]
        )
    # The line of one second runs between the settings whose median is above and below it.
    [line] = [
        path.vertices for c in axes.collections for path in c.get_paths() if len(path.vertices)
    ]
    assert all(0 <= x <= 2 and 0 <= y <= 2 for x, y in line)
    crossing = [x for x, y in line if abs(y - 2) < 1e-9]
    assert crossing == [pytest.approx(1, abs=1e-6)]


def test_work_a_step_values():
    runs = {limit: ts.serve(CHATS, 500, limit) for limit in (2, 8)}
    (axes,) = figures.work_a_step(runs).axes
    plain, counted = (list(line.get_ydata()) for line in axes.lines)
    for i, run in enumerate(runs.values()):
        assert plain[i] * len(run.steps) == pytest.approx(sum(CHATS.replies))
        assert counted[i] * len(run.steps) == pytest.approx(2 * len(CHATS))


def test_slower_steps_values():
    (axes,) = figures.slower_steps(SLOWER, ("few pages", "many pages")).axes
    curves = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    assert curves == [([1, 1.5, 2], [3.5, 10.0, 17.0]), ([1, 1.5, 2], [0.2, 2.0, 4.0])]
    assert texts(axes) == ["few pages", "many pages"]


def test_measured_steps_values():
    (axes,) = figures.measured_steps(DECODE, CLOCKS, "chats").axes
    dots, sheet, real = axes.lines
    assert list(dots.get_xdata()) == [1, 8, 64]
    assert list(dots.get_ydata()) == near([12.1, 12.8, 18.4])
    # Weights and the cache of 1,000 tokens for each, at the data sheet's bandwidth.
    read = [16_060_522_496 + n * 1000 * 131_072 for n in (1, 8, 64)]
    assert list(sheet.get_ydata()) == near([1000 * r / 2039e9 for r in read])
    assert list(real.get_ydata()) == near([1000 * r / (0.77 * 2039e9) + 1.8 for r in read])


def test_two_clocks_values():
    (axes,) = figures.two_clocks(TWO_CLOCKS).axes
    light, heavy = ts.report(LIGHT).ttft_p99, ts.report(HEAVY).ttft_p99
    for marker, wait in (("o", light), ("s", heavy)):
        assert [line.get_xdata()[0] for line in of(axes, "queue", marker)] == near([wait] * 2)
    assert texts(axes) == ["0.042 s", "3.49 s, cache"] * 2


def test_sorted_waits_values():
    (axes,) = figures.sorted_waits({"one": [3, 1, 2, 4], "two": [5, 0]}).axes
    curves = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    assert curves == [([25, 50, 75, 100], [1, 2, 3, 4]), ([50, 100], [0, 5])]


def test_running_over_time_values():
    (axes,) = figures.running_over_time(BEGUN).axes
    curves = [list(zip(*line.get_data())) for line in axes.lines]
    assert curves[0] == [(1, 1), (2, 2), (3, 3), (4, 2), (5, 1), (9, 0)]
    assert curves[1][2:] == [(2, 3), (3, 2), (4, 1), (5, 0)]


@pytest.mark.parametrize("limit, shown", [(4, True), (16, False)])
def test_server_polls_values(limit, shown):
    panels = figures.server_polls(POLLS, CALM, limit).axes
    drawn = zip(panels, ("waiting", "running", "kv_use"), ("queue", "decode", "held"), (1, 1, 100))
    for axes, name, color, scale in drawn:
        real, toy = of(axes, color)
        assert real.get_linestyle() != toy.get_linestyle()
        for line, polls in ((real, POLLS), (toy, CALM)):
            assert list(line.get_xdata()) == list(polls["seconds"])
            assert list(line.get_ydata()) == near(scale * value for value in polls[name])
    assert [set(line.get_ydata()) for line in of(panels[1], "wall")] == [{limit}] * shown
    assert panels[2].get_xlim() == (0, 2.5)


@pytest.mark.parametrize("alarm, sides", [(0.9, (1, 2)), (0.91, (2, 1)), (0.3, (0, 3))])
def test_queue_by_kv_values(alarm, sides):
    (axes,) = figures.queue_by_kv(POLLS, alarm).axes
    (some,), (none,) = of(axes, "queue"), of(axes, "muted")
    assert [tuple(dot) for dot in some.get_xydata()] == [(95, 3), (90, 12), (40, 7)]
    assert [tuple(cross) for cross in none.get_xydata()] == [(10, 0), (97, 0)]
    assert list(of(axes, "wall")[0].get_xdata()) == near([100 * alarm] * 2)
    assert texts(axes) == [f"{count} polls" for count in sides]


def test_one_reply_values():
    (axes,) = figures.one_reply(PACKETS).axes
    assert [line.get_xdata()[0] for line in of(axes, "ink")] == [1.0, 1.5, 2.0]
    assert [list(line.get_xdata()) for line in of(axes, "queue")] == [[0, 1.0]]
    spans = [[1.0, 2.0], [0, 2.0], [1.0, 1.5], [1.5, 2.0]]
    assert [list(line.get_xdata()) for line in of(axes, "decode")] == spans
    # By hand: 1 s among 10 gaps, 2 s among 11 tokens, two gaps of half a second.
    assert texts(axes) == [
        "1", "5", "5", "1000 ms", "/ 10 = 100 ms", "/ 11 = 182 ms", "/ 2 = 500 ms",
    ]  # fmt: skip


def test_goodput_values():
    (axes,) = figures.goodput(GOODPUT).axes
    curves = [line for line in of(axes, "queue") if len(line.get_xdata()) == 4]
    for line, curve in zip(curves, GOODPUT.values(), strict=True):
        assert list(line.get_xdata()) == curve.rates
        assert list(line.get_ydata()) == near(100 * share for share in curve.shares)
    assert [tuple(line.get_xydata()[0]) for line in of(axes, "ink", "o")] == [
        (28.5, 99), (19.25, 99),
    ]  # fmt: skip
    (key,) = axes.figure.legends
    assert [text.get_text() for text in key.get_texts()] == [
        "ideal: up to 28.5 chats/s",
        "measured: up to 19.2 chats/s",
        "wide: at any rate",
        "slow: at no rate",
        "the goal: 99 % of the chats",
    ]


@pytest.mark.parametrize("run, bins", [(HEAVY, 240), (HEAVY, 7), (OTHER, 50)])
def test_queue_and_pages_values(run, bins):
    """Each bin shows the most of the steps that were under way in it; idle bins are empty."""
    pages, queue = figures.queue_and_pages(run, bins).axes
    start, width = run.workload.send[0], (max(run.done) - run.workload.send[0]) / bins
    for axes, color, read in (
        (queue, "queue", lambda step: step.queue),
        (pages, "held", lambda step: step.held),
        (pages, "promised", lambda step: step.held + step.owed),
    ):
        (line,) = of(axes, color)
        assert list(line.get_xdata()) == near(start + width * n for n in range(bins + 1))
        for place, value in enumerate(line.get_ydata()[:-1]):
            low, high = start + width * place, start + width * (place + 1)
            # A step that ends on the edge of a bin, to within rounding, may count or not.
            most, least = (
                max(
                    (
                        read(s)
                        for s in run.steps
                        if s.start < high + e and s.start + s.seconds > low - e
                    ),
                    default=0,
                )
                for e in (1e-9, -1e-9)
            )
            assert least <= value <= most
    full = ts.report(run).cache_full_at
    assert [line.get_xdata()[0] for line in of(queue, "wall")] == [full] * (full is not None)


def test_queue_and_pages_needs_steps():
    with pytest.raises(TypeError, match='record="steps"'):
        figures.queue_and_pages(fast.serve(CHATS, 240, 16, record="summary"))


def test_kitchen_has_its_six_parts():
    (axes,) = figures.kitchen().axes
    said = texts(axes)
    assert [text for text in said if text.isdigit()] == list("123456")
    for name in ("load generator", "queue", "admit", "batcher", "cache", "metrics"):
        assert name in said
