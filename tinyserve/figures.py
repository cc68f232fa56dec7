"""Every figure of the book, drawn from the package's own objects.

Used by all chapters. Each function returns a matplotlib Figure in the palette of
`tinyserve.style`: a colour has one meaning, and where two things share a picture, hatching, a
line style or a letter tells them apart as well. Nothing here computes a result of its own: it
replays, sorts and draws.
"""

from functools import wraps
from itertools import accumulate, groupby, pairwise
from math import fsum, inf, log10, nan

from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Ellipse, FancyArrowPatch, FancyBboxPatch, Patch, Wedge
from matplotlib.patches import Rectangle as Box
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from tinyserve.batcher import Run, Server
from tinyserve.causes import bands
from tinyserve.checks import whole
from tinyserve.metrics import percentile, report
from tinyserve.roofline import A100, LLAMA_8B, step_cost, step_parts, users_that_fit
from tinyserve.style import COLOR, WIDTH, drawing, new_figure

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Lines only: a hatch of dots is written out dot by dot, ten times the file.
HATCH = {
    "queue": "////",
    "promised": "\\\\\\\\",
    "cache": "||||",
    "decode": "////",
    "muted": "////",
}
DASHES = ["solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))]
CHARACTER = 6.6  # points, about the width of one at the book's size of text


def figure_function(draw):
    """Let a function draw under the book's settings, whatever the reader's own are."""

    @wraps(draw)
    def drawn(*args, **kwargs):
        with drawing():
            return draw(*args, **kwargs)

    return drawn


# --- small helpers ---------------------------------------------------------------------


def _names(count, names):
    """A name for each of `count` chats: those given, else letters, else numbers."""
    if names is None:
        names = LETTERS if count <= len(LETTERS) else range(count)
    names = [str(name) for name in names]
    if len(names) < count:
        raise ValueError(f"{count} chats need {count} names, not {len(names)}")
    return names


def _unit(longest):
    """How to print times up to `longest` seconds: the factor and the unit."""
    return (1000, "ms") if longest <= 1 else (1, "s")


def _seconds(value):
    """A wait to read: two decimals, three below a tenth of a second."""
    return f"{value:.2f} s" if value >= 0.1 else f"{value:.3f} s"


def _solid(name, label=None):
    return Patch(facecolor=COLOR[name], edgecolor=COLOR[name], label=label)


def _hatched(name, label=None):
    return Patch(facecolor=COLOR["paper"], edgecolor=COLOR[name], hatch=HATCH[name], label=label)


def _line(name, label, **options):
    return Line2D([], [], color=COLOR[name], label=label, **options)


def _key(figure, handles, columns=2):
    """A key above the plot, for what has no room for a direct label."""
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=columns,
        borderpad=0,
        columnspacing=1.4,
        handlelength=1.8,
        handletextpad=0.6,
    )


def _fill(name, hatched):
    """Colours of a bar: solid, or an outline with the hatch of its name."""
    face = COLOR["paper" if hatched else name]
    return {"color": face, "edgecolor": COLOR[name], "hatch": HATCH[name] if hatched else None}


def _hbar(axes, y, start, end, name, height=0.62, hatched=False):
    """A bar from start to end on row y."""
    axes.barh(y, end - start, height, start, **_fill(name, hatched))


def _at_most(series, looks):
    """Raise ValueError for more curves than there are looks, or for none."""
    if not 0 < len(series) <= len(looks):
        raise ValueError(f"there must be 1 to {len(looks)} curves, not {len(series)}")


def _beside_the_real(figure, series, draw, dots):
    """A curve for each of some servers, and the key; the first is the real one, and dotted.

    series: label -> values; draw: a function of the values and of how their line looks; dots:
    the width of the dots in points.
    """
    looks = [("ink", ":", dots), ("muted", DASHES[1], 1.8), ("queue", DASHES[0], 1.8)]
    _at_most(series, looks)
    handles = []
    for (label, values), (color, dashes, width) in zip(series.items(), looks):
        draw(values, color=COLOR[color], ls=dashes, lw=width)
        handles.append(_line(color, label, ls=dashes, lw=width))
    _key(figure, handles, 1)


def _stems(axes, x, y, name):
    """A thin line from 0 to each y, all of them one path (a short file)."""
    points = [point for a, b in zip(x, y) for point in [(a, 0), (a, b), (a, nan)]]
    axes.plot(*zip(*points), color=COLOR[name], lw=1)


def _note(axes, text, xy, offset=(6, 0), color="ink", **options):
    """A label beside a point of the data, `offset` in points."""
    options = {"ha": "left" if offset[0] >= 0 else "right", "va": "center"} | options
    return axes.annotate(
        text, xy, offset, textcoords="offset points", color=COLOR[color], **options
    )


def _plain_log(axis, ticks):
    """A log axis with these ticks, printed as plain numbers."""
    axis.set_ticks(ticks)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _log_ticks(low, high, steps=(1, 2, 5)):
    """Round numbers between low and high: 1, 2 and 5 times each power of ten."""
    return [s * 10.0**p for p in range(-6, 18) for s in steps if low <= s * 10.0**p <= high]


def _rows(axes, labels):
    """One horizontal row a label, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")


def _room(axes, values, texts):
    """Begin the x axis at 0 and end it where a text after each of the values has room."""
    ticks = [line for tick in axes.get_yticklabels() for line in tick.get_text().split("\n")]
    width = 72 * WIDTH - 45 - CHARACTER * max(map(len, ticks), default=0)
    ends = [v / (1 - (CHARACTER * len(text) + 8) / width) for v, text in zip(values, texts)]
    axes.set_xlim(0, max(ends))


# --- one step, many users --------------------------------------------------------------


@figure_function
def step_bars(users=(1, 64, 256), context=1000, model=LLAMA_8B, chip=A100):
    """Time of one step (ms) for each number of users of `context` tokens: the weights and the
    cache that are read."""
    figure, axes = new_figure(1.0 + 0.5 * len(users))
    weights = 1000 * model.weight_bytes / chip.bandwidth
    longest, beyond = [], []
    for row, count in enumerate(users):
        parts = step_parts(count, count * context, 0, model, chip)
        arithmetic, memory = (1000 * part for part in parts)
        _hbar(axes, row, 0, weights, "weights")
        _hbar(axes, row, weights, memory, "cache", hatched=True)
        if arithmetic > memory:  # an outline: the step lasts until the arithmetic is done
            look = {"fill": False, "edgecolor": COLOR["muted"], "ls": "--"}
            axes.barh(row, arithmetic, 0.62, **look)
            beyond = [Patch(label="arithmetic, where it is longer", **look)]
        longest.append(max(arithmetic, memory))
    texts = [f"{time:.2f} ms" for time in longest]
    for row, (time, text) in enumerate(zip(longest, texts)):
        _note(axes, text, (time, row))
    _rows(axes, [f"{count:,}" for count in users])
    _room(axes, longest, texts)
    axes.set_ylabel("users")
    axes.set_xlabel("time of one step (ms)")
    handles = [_solid("weights", f"weights, {weights:.2f} ms"), _hatched("cache", "cache")]
    _key(figure, handles + beyond)
    return figure


def _counts(most, points=60):
    """Whole numbers from 1 to `most`, evenly spread on a log scale."""
    return sorted({round(most ** (i / points)) for i in range(points + 1)} | {1, most})


@figure_function
def tokens_and_pace(context=1000, model=LLAMA_8B, chip=A100):
    """Tokens a second in all, and each user's, against users of `context` tokens, up to as
    many as fit in memory."""
    figure, (total, each) = new_figure(4.4, 2, sharex=True)
    users = _counts(users_that_fit(context, model, chip))
    paces = [1 / max(step_parts(n, n * context, 0, model, chip)) for n in users]
    for axes, values, label, linestyle in [
        (total, [n * pace for n, pace in zip(users, paces)], "all users (tokens/s)", "-"),
        (each, paces, "each user (tokens/s)", (0, (5, 2))),
    ]:
        axes.plot(users, values, color=COLOR["decode"], ls=linestyle)
        axes.plot([users[0], users[-1]], [values[0], values[-1]], "o", color=COLOR["decode"])
        axes.set_ylim(0, 1.18 * max(values))
        axes.set_ylabel(label)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        last = 11 if values[-1] > values[0] else -11  # beside the curve, not on it
        for end, offset, ha in [(0, 11, "left"), (-1, last, "right")]:
            _note(axes, f"{values[end]:,.0f}", (users[end], values[end]), (0, offset), ha=ha)
    each.set_xscale("log")
    _plain_log(each.xaxis, [*_log_ticks(1, users[-1], (1,)), users[-1]])
    each.set_xlabel("users in one step")
    return figure


@figure_function
def step_lines(contexts=(100, 1000, 2000), model=LLAMA_8B, chip=A100):
    """Time of one step (ms) against users, one line a context (tokens); each ends where memory
    is full. A dot marks where arithmetic becomes the slower job."""
    figure, axes = new_figure(4.1)
    ends = []
    for context, linestyle in zip(sorted(contexts, reverse=True), DASHES[::-1][-len(contexts) :]):
        most = users_that_fit(context, model, chip)
        parts = {n: step_parts(n, n * context, 0, model, chip) for n in range(1, most + 1)}
        turn = next((n for n, (arithmetic, memory) in parts.items() if arithmetic >= memory), most)
        for color, first, last in [("cache", 1, turn), ("decode", turn, most)]:
            users = [n for n in sorted({*_counts(most), turn}) if first <= n <= last]
            times = [1000 * max(parts[n]) for n in users]
            axes.plot(users, times, color=COLOR[color], ls=linestyle)
        axes.plot(most, times[-1], "s", color=COLOR["wall"])
        text = f"{context:,} tokens:\n{most:,} users, {times[-1]:.1f} ms"
        ends.append(times[-1])
        # Two lines that end at the same height: the second label goes above the first.
        level = ends[1:] and abs(ends[-1] / ends[-2] - 1) < 0.2
        _note(axes, text, (most, times[-1]), (-9, 36 if level else 4))
        if turn < most:
            time = 1000 * max(parts[turn])
            axes.plot(turn, time, "o", color=COLOR["decode"])
            _note(axes, f"from {turn} users on,\narithmetic is slower", (turn, time), (8, -16))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(5, 1.5 * max(ends))
    _plain_log(axes.xaxis, _log_ticks(1, 1e6, (1,)))
    _plain_log(axes.yaxis, _log_ticks(5, 1.5 * max(ends)))
    axes.set_xlim(1, 1e4)
    axes.set_xlabel("users in one step")
    axes.set_ylabel("time of one step (ms)")
    return figure


@figure_function
def roofline(points, chip=A100):
    """Operations a second against operations a byte, under the chip's two walls.

    points: label -> (operations, bytes, seconds) of one step."""
    figure, axes = new_figure(4.2)
    ridge = chip.peak / chip.bandwidth
    spots = {k: (flops / size, flops / time) for k, (flops, size, time) in points.items()}
    low = min([0.5, *(x / 2 for x, _ in spots.values())])
    high = max([30 * ridge, *(4 * x for x, _ in spots.values())])
    bottom = low * chip.bandwidth
    axes.plot([low, ridge, high], [bottom, chip.peak, chip.peak], color=COLOR["wall"])
    axes.plot([ridge, ridge], [bottom, chip.peak], color=COLOR["wall"], ls=DASHES[2])
    _note(axes, f"ridge: {ridge:.0f}\noperations/byte", (ridge, bottom), (6, 20))
    _note(axes, "limited by arithmetic", (high, chip.peak), (0, 9), "wall", ha="right")
    _note(
        axes,
        "limited by bandwidth",
        ((low * ridge) ** 0.5, chip.bandwidth * (low * ridge) ** 0.5),
        (-5, 5),
        "wall",
        ha="center",
        va="bottom",
        rotation=45,
        rotation_mode="anchor",
        transform_rotates_text=True,
    )
    for label, (x, y) in spots.items():
        read = label.startswith("prefill")
        axes.plot(x, y, "^" if read else "o", color=COLOR["prefill" if read else "decode"], ms=8)
        if x > ridge:
            _note(axes, label.replace(", ", ",\n"), (x, y), (0, -8), ha="center", va="top")
        else:  # above the slope if there is room to the left, else below it
            _note(axes, label, (x, y), (-9, 6) if x > 20 * low else (9, -7))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, 2.5 * chip.peak)
    _plain_log(axes.xaxis, _log_ticks(low, high, (1,)))
    _plain_log(axes.yaxis, _log_ticks(bottom, 2.5 * chip.peak, (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e12:,g}"))
    axes.set_xlabel("arithmetic intensity (operations/byte)")
    axes.set_ylabel("speed (trillion operations/s)")
    return figure


# --- fixed or continuous ---------------------------------------------------------------


@figure_function
def toy_grids(fixed, continuous, names="ABCDEF"):
    """Slots by steps of two SlotRuns; a dashed cell is empty, a cross in it says that somebody
    waits."""
    longest = max(len(fixed.steps), len(continuous.steps))
    figure, panels = new_figure(4.2, 2, sharex=True)
    for axes, run, label in zip(panels, (fixed, continuous), ("fixed", "continuous")):
        for column, step in enumerate(run.steps, start=1):
            for slot, request in enumerate(step.slots):
                _toy_cell(axes, column, slot, request, step.waiting, names)
        axes.set_xlim(0.4, longest + 0.6)
        _rows(axes, [str(slot + 1) for slot in range(run.slots)])
        axes.grid(False)
        axes.set_ylabel(f"{label}\nslot (number)")
        axes.spines[:].set_visible(False)
        axes.tick_params(axis="x", length=0)
    panels[-1].set_xticks(range(1, longest + 1))
    panels[-1].set_xlabel("step (number)")
    waits = Line2D([], [], color=COLOR["queue"], marker="x", ls="", label="empty, somebody waits")
    _key(figure, [Patch(fill=False, ec=COLOR["muted"], ls="--", label="empty"), waits])
    return figure


def _toy_cell(axes, column, slot, request, waiting, names):
    corner = (column - 0.44, slot - 0.42)
    if request is None:
        axes.add_patch(Box(corner, 0.88, 0.84, fill=False, ec=COLOR["muted"], ls="--"))
        if waiting:
            axes.plot(column, slot, "x", color=COLOR["queue"])
        return
    axes.add_patch(Box(corner, 0.88, 0.84, fc=COLOR["decode"], alpha=(0.2, 0.45)[request % 2]))
    axes.text(column, slot, names[request], ha="center", va="center")


@figure_function
def traffic_bars(results):
    """Tokens a second in all, and the mean wait for the first token (s), at each rate.

    results: rate in requests a second -> (fixed SlotRun, continuous SlotRun)."""
    figure, panels = new_figure(4.8, 2)
    for axes, name, label, value, decimals in [
        (panels[0], "decode", "all requests (tokens/s)", lambda run: run.tokens_per_second, 0),
        (panels[1], "queue", "mean wait for\nthe first token (s)", lambda run: run.mean_wait, 2),
    ]:
        for place, pair in enumerate(results.values()):
            for shift, run in zip((-0.2, 0.2), pair):
                axes.bar(place + shift, value(run), 0.36, **_fill(name, hatched=shift < 0))
                text = f"{value(run):,.{decimals}f}"
                _note(axes, text, (place + shift, value(run)), (0, 7), ha="center")
        axes.set_xticks(range(len(results)), [f"{rate:g}" for rate in results])
        axes.margins(y=0.2)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label)
    panels[1].set_xlabel("rate (requests/s)")
    _key(figure, [_hatched("muted", "fixed"), _solid("muted", "continuous")])
    return figure


def _steps_of(points):
    """The points (time, value) where the value changes, and the last, as two lists."""
    kept = [points[0]]
    for point in points[1:]:
        if point[1] != kept[-1][1]:
            kept.append(point)
    return tuple(zip(*kept, points[-1]))


def _changes(run):
    """Slots in use, and requests waiting, against seconds: each as two lists."""
    used, waiting, end = [], [], run.steps[0].start
    for step in run.steps:
        if step.start > end:  # idle since the step before ended
            used.append((end, 0))
            waiting.append((end, 0))
        used.append((step.start, run.slots - step.slots.count(None)))
        waiting.append((step.start, step.waiting))
        end = step.end
    return _steps_of([*used, (end, 0)]), _steps_of([*waiting, (end, 0)])


@figure_function
def slots_over_time(runs):
    """Slots in use and requests waiting against the clock (s), one panel a SlotRun.

    runs: label -> SlotRun."""
    figure, panels = new_figure(0.8 + 1.7 * len(runs), len(runs), sharex=True, sharey=True)
    for axes, (label, run) in zip(panels if len(runs) > 1 else [panels], runs.items()):
        used, waiting = _changes(run)
        axes.fill_between(*used, step="post", color=COLOR["decode"], alpha=0.35, lw=0)
        axes.step(*used, where="post", color=COLOR["decode"])
        axes.step(*waiting, where="post", color=COLOR["queue"], ls=DASHES[1])
        axes.set_ylabel(f"{label}\nrequests")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
    axes.set_xlabel("time on the clock (s)")
    _key(figure, [_line("decode", "in a slot"), _line("queue", "waiting", ls=DASHES[1])])
    return figure


# --- the tiny server -------------------------------------------------------------------


# What the kitchen is drawn with: paper inside, ink around.
OUTLINE = {"fc": COLOR["paper"], "ec": COLOR["ink"], "lw": 1.4}
# number, where its words begin, name, what it is in the kitchen
PARTS = [
    (1, (2, 90), "load generator", "the dining room\nsends orders"),
    (2, (41, 90), "queue", "the order rail"),
    (3, (72, 90), "admit", "next order only if\nshelf and stove\nhave room"),
    (4, (43, 17), "batcher", "one cook, several\nplates a pass"),
    (5, (80, 17), "cache", "shelf space,\ncut in pages"),
    (6, (14.8, 17), "metrics", "the manager's\nclipboard"),
]


@figure_function
def kitchen():
    """The server as a restaurant kitchen: its six parts, numbered in the order of the book."""
    figure, axes = new_figure(4.7)
    axes.set_axis_off()
    axes.set_xlim(0, 108)
    axes.set_ylim(0, 94)
    axes.set_aspect("equal")
    for corner, width, height in [((0, 30), 36.5, 64), ((38.5, 0), 69.5, 94)]:
        axes.add_patch(Box(corner, width, height, fc=COLOR["grid"], alpha=0.35, ec="none"))
    for low, high in [(30, 38), (46, 64), (72, 94)]:  # a wall with two hatches
        axes.plot([37.5, 37.5], [low, high], color=COLOR["muted"], lw=3, solid_capstyle="butt")
    for x, y in [(9, 60), (27, 56), (13, 40)]:
        _table(axes, x, y)
    _ticket(axes, 28.5, 71, 6)
    _rail(axes, 42, 80)
    _cook(axes, 93, 56)
    _ticket(axes, 84.5, 66, 7)
    _cook(axes, 55, 41)
    _stove(axes, 42, 24)
    _shelves(axes, 81, 24)
    _clipboard(axes, 1, 3)
    _arrow(axes, (34, 68), (43, 68), "prefill")  # orders go in
    _arrow(axes, (71, 74), (83, 66), "prefill")
    _arrow(axes, (83, 58), (71.5, 44), "prefill")
    _arrow(axes, (41, 42), (21.5, 42), "decode")  # plates come out
    _arrow(axes, (94, 54.5), (94, 47), "muted", "<|-|>", "--")  # is there room?
    _arrow(axes, (71, 34), (80, 34), "held", "<|-|>")
    _arrow(axes, (41, 27), (16, 24), "muted", "-|>", "--")  # every step is written down
    for number, (x, y), name, words in PARTS:
        axes.add_patch(Circle((x + 2.6, y), 2.6, fc=COLOR["ink"], ec="none"))
        middle = {"va": "center_baseline", "weight": "bold"}
        axes.text(x + 2.6, y, number, color=COLOR["paper"], ha="center", **middle)
        axes.text(x + 6.6, y, name, **middle)
        axes.text(x, y - 3.4, words, va="top", linespacing=1.25)
    return figure


def _arrow(axes, start, end, name, style="-|>", linestyle="-"):
    shape = {"arrowstyle": style, "mutation_scale": 12, "shrinkA": 0, "shrinkB": 0}
    arrow = FancyArrowPatch(start, end, color=COLOR[name], lw=1.8, ls=linestyle, **shape)
    axes.add_patch(arrow)


def _rounded(axes, corner, width, height, radius):
    style = f"round,pad=0,rounding_size={radius}"
    axes.add_patch(FancyBboxPatch(corner, width, height, style, **OUTLINE))


def _cook(axes, x, y):
    """Head, shoulders and a tall hat; (x, y) is the middle of the chest."""
    axes.add_patch(Wedge((x, y), 5.6, 0, 180, **OUTLINE))
    axes.add_patch(Circle((x, y + 7.6), 3.2, **OUTLINE))
    _rounded(axes, (x - 4.1, y + 12), 8.2, 5, 2.4)
    axes.add_patch(Box((x - 2.9, y + 9.4), 5.8, 3.2, **OUTLINE))


def _table(axes, x, y):
    """A round table with two guests and a plate."""
    for seat in (x - 4.2, x + 4.2):
        axes.add_patch(Wedge((seat, y + 1), 3.2, 0, 180, **OUTLINE))
        axes.add_patch(Circle((seat, y + 5.9), 2, **OUTLINE))
    axes.add_patch(Ellipse((x, y - 0.3), 15, 5.4, **OUTLINE))
    axes.add_patch(Ellipse((x, y), 5.4, 2, fc=COLOR["decode"], ec="none"))


def _ticket(axes, x, y, height):
    """An order whose upper left corner is (x, y): the longer, the longer its prompt."""
    axes.add_patch(Box((x, y - height), 4.4, height, **OUTLINE | {"ec": COLOR["prefill"]}))
    for line in range(1, int(height / 1.6)):
        level = y - 1.6 * line
        axes.plot([x + 1, x + 3.4], [level, level], color=COLOR["prefill"], lw=0.9)


def _rail(axes, x, y):
    """Tickets of several lengths on the order rail, the oldest on the right."""
    for place, height in enumerate([6, 12, 5, 8]):
        _ticket(axes, x + 1.6 + 6.6 * place, y + 0.5, height)
    line = {"color": COLOR["queue"], "lw": 4, "solid_capstyle": "round", "zorder": 3}
    axes.plot([x, x + 27], [y, y], **line)


def _stove(axes, x, y):
    """Four places, three of them taken."""
    for place in range(4):
        corner = (x + 1.6 + 6.7 * place, y + 15)
        if place < 3:
            axes.add_patch(Box(corner, 5, 3.4, **OUTLINE))
            plate = Ellipse((corner[0] + 2.5, y + 18.4), 5, 2, fc=COLOR["decode"], ec=COLOR["ink"])
            axes.add_patch(plate)
        else:
            axes.add_patch(Box(corner, 5, 3.4, fill=False, ec=COLOR["muted"], ls="--"))
    axes.add_patch(Box((x, y), 28, 15, **OUTLINE))
    _rounded(axes, (x + 5, y + 2), 18, 7.4, 1.5)
    for place in range(4):
        knob = (x + 4.1 + 6.7 * place, y + 12.3)
        axes.add_patch(Circle(knob, 1, fc=COLOR["muted"], ec="none"))


def _shelves(axes, x, y):
    """Pages held, pages promised (hatched) and free ones."""
    for shelf, states in enumerate(["hhhhh", "hhhpp", "hp"]):
        level = y + 7.2 * shelf
        for place, state in enumerate(states):
            name = {"h": "held", "p": "promised"}[state]
            box = Box((x + 0.9 + 4.6 * place, level + 0.5), 3.7, 5, fc=COLOR[name], ec=COLOR[name])
            if state == "p":
                box.set(facecolor=COLOR["paper"], hatch=HATCH[name])
            axes.add_patch(box)
        axes.plot([x, x + 23.8], [level, level], color=COLOR["ink"], lw=1.8)
    for side in (x, x + 23.8):
        axes.plot([side, side], [y - 2, y + 21.5], color=COLOR["ink"], lw=1.8)


def _clipboard(axes, x, y):
    """Some lines of writing and a curve that climbs."""
    _rounded(axes, (x, y), 12.5, 18.5, 1.2)
    _rounded(axes, (x + 3.6, y + 17.2), 5.3, 2.8, 1)
    for line in range(3):
        level = y + 14 - 2.4 * line
        axes.plot([x + 2, x + 10.5], [level, level], color=COLOR["muted"], lw=1.2)
    axes.plot(
        [x + 2, x + 5, x + 7.5, x + 10.5], [y + 2, y + 2.6, y + 4.4, y + 7], color=COLOR["queue"]
    )


@figure_function
def chat_bars(run, names=None, until=None):
    """One bar a chat against the clock: waiting in the queue, reading its prompt, writing; a
    dot at its first token. `until` (s) cuts the picture off there."""
    end = max(run.done) if until is None else until
    chats = [chat for chat in range(len(run.workload)) if run.workload.send[chat] < end]
    names = _names(len(run.workload), names)
    factor, unit = _unit(end)
    figure, axes = new_figure(1.15 + 0.34 * len(chats))
    for row, chat in enumerate(chats):
        times = run.workload.send[chat], run.admitted[chat], run.first[chat], run.done[chat]
        sent, admitted, first, done = (factor * min(time, end) for time in times)
        if admitted > sent:
            _hbar(axes, row, sent, admitted, "queue", hatched=True)
        if first > admitted:
            _hbar(axes, row, admitted, first, "prefill")
        if done > first:
            _hbar(axes, row, first, done, "decode", height=0.34)
        if run.first[chat] <= end:
            axes.plot(first, row, "o", color=COLOR["ink"], ms=6, zorder=3)
    _rows(axes, [names[chat] for chat in chats])
    axes.set_xlim(0, factor * end * (1.02 if until is None else 1))
    axes.set_ylabel("chat")
    axes.set_xlabel(f"time on the clock ({unit})")
    handles = [
        _hatched("queue", "waits in the queue"),
        _solid("prefill", "reads its prompt"),
        _solid("decode", "writes"),
        _line("ink", "first token", marker="o", ls=""),
    ]
    _key(figure, handles)
    return figure


class _Watched(Server):
    """The same server, noting what a Run does not keep: the sizes of each step and its pages."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sizes, self.pages = [], []

    def cost(self):
        """3. Note running chats, their contexts and the joining prompts (tokens)."""
        prompts = self.workload.prompts
        context = sum(prompts[chat] + made for chat, made in self.running.items())
        self.sizes.append((len(self.running), context, sum(prompts[c] for c in self.joined)))
        super().cost()

    def write(self):
        """4. Note who holds which page, who is owed one, and who waits."""
        super().write()
        pages = {page: (chat, True) for chat, table in self.pool.tables.items() for page in table}
        # A promise is a number of pages, not these pages: show it on the next free ones.
        free = iter(self.pool.free)
        for chat, table in self.pool.tables.items():
            for _ in range(self.pool.promises[chat] - len(table)):
                pages[next(free)] = (chat, False)
        self.pages.append((pages, list(self.queue)))


def _replay(run, model=LLAMA_8B, chip=A100):
    """Serve a run's workload again and watch. Raises ValueError if the steps differ."""
    server = _Watched(run.workload, run.pages, run.limit, run.page_size, model, chip)
    if server.serve().steps != run.steps:
        raise ValueError("the run was made by another server, model or chip: it cannot be replayed")
    return server


@figure_function
def page_strip(run, names=None):
    """Pages by steps: who holds each page, and (hatched) which free pages are promised. Above,
    who waits."""
    names = _names(len(run.workload), names)
    watched = _replay(run).pages
    late = sorted({chat for _, queue in watched for chat in queue})
    figure, axes = new_figure(1.3 + 0.3 * (run.pages + len(late)))
    for page in range(run.pages):
        column = 1
        for state, stretch in groupby(pages.get(page) for pages, _ in watched):
            length = len(list(stretch))
            _stretch(axes, column, length, page, state, names)
            column += length
    for row, chat in enumerate(reversed(late)):
        steps = [number for number, (_, queue) in enumerate(watched, 1) if chat in queue]
        y = -1.1 - row
        axes.plot([steps[0] - 0.4, steps[-1] + 0.4], [y, y], color=COLOR["queue"], lw=3)
        _note(axes, f"{names[chat]} waits", (steps[0] - 0.4, y), (0, 8), "queue", ha="left")
    _rows(axes, [str(page) for page in range(run.pages)])
    axes.set_ylim(run.pages - 0.4, -0.6 - 1.1 * len(late))
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0.4, len(watched) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_ylabel("page (number)")
    axes.set_xlabel("step (number)")
    _key(figure, [_solid("held", "held"), _hatched("promised", "promised, not held")])
    return figure


def _stretch(axes, column, length, page, state, names):
    corner, width, height = (column - 0.46, page - 0.42), length - 0.08, 0.84
    if state is None:
        axes.add_patch(Box(corner, width, height, fill=False, ec=COLOR["grid"]))
        return
    chat, held = state
    if held:
        shade = (0.2, 0.45)[chat % 2]
        axes.add_patch(Box(corner, width, height, fc=COLOR["held"], alpha=shade, ec="none"))
        axes.add_patch(Box(corner, width, height, fill=False, ec=COLOR["held"]))
    else:
        box = Box(corner, width, height, fc=COLOR["paper"], ec=COLOR["promised"])
        box.set_hatch(HATCH["promised"])
        axes.add_patch(box)
    axes.text(
        column + (length - 1) / 2,
        page,
        names[chat],
        ha="center",
        va="center",
        bbox=None if held else {"fc": COLOR["paper"], "ec": "none", "pad": 1.5},
    )


@figure_function
def step_times(run, until=3.0):
    """Length of each step (ms) against the clock up to `until` (s): steps that read prompts,
    and steps that only write."""
    figure, axes = new_figure(3.4)
    steps = [step for step in run.steps if step.start <= until]
    read = [(s.start, 1000 * s.seconds) for s in steps if s.joined]
    write = [(s.start, 1000 * s.seconds) for s in steps if not s.joined]
    if write:
        axes.plot(*zip(*write), "o", color=COLOR["decode"], ms=3.5)
    if read:
        _stems(axes, *zip(*read), "prefill")
        axes.plot(*zip(*read), "^", color=COLOR["prefill"], ms=5)
    axes.set_xlim(-0.012 * until, until)  # room for half a marker
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time on the clock (s)")
    axes.set_ylabel("length of the step (ms)")
    handles = [
        _line("prefill", "reads prompts", marker="^", lw=1, ms=5),
        _line("decode", "only writes", marker="o", ls="", ms=3.5),
    ]
    _key(figure, handles)
    return figure


@figure_function
def step_makeup(run, steps, model=LLAMA_8B, chip=A100):
    """Arithmetic and memory (ms) of some steps, numbered from 1; the longer one decides."""
    sizes = _replay(run, model, chip).sizes
    figure, axes = new_figure(1.2 + 0.75 * len(steps))
    labels, longest = [], 0
    for row, number in enumerate(steps):
        running, context, prompt = sizes[number - 1]
        arithmetic, memory = (1000 * t for t in step_parts(running, context, prompt, model, chip))
        write = 1000 * step_parts(running, 0, 0, model, chip)[0]
        weights = 1000 * step_parts(0, 0, 0, model, chip)[1]
        _hbar(axes, row - 0.19, 0, write, "decode", 0.34, hatched=True)
        _hbar(axes, row - 0.19, write, arithmetic, "prefill", 0.34)
        _hbar(axes, row + 0.19, 0, weights, "weights", 0.34)
        _hbar(axes, row + 0.19, weights, memory, "cache", 0.34, hatched=True)
        for y, value, other in [(-0.19, arithmetic, memory), (0.19, memory, arithmetic)]:
            weight = "bold" if value >= other else "normal"
            _note(axes, f"{value:.1f} ms", (value, row + y), weight=weight)
        step = run.steps[number - 1]
        chats = f"{step.chats} chat{'s' * (step.chats > 1)}"
        labels.append(f"step {number}\n{chats}, {step.joined} new")
        longest = max(longest, arithmetic, memory)
    _rows(axes, labels)
    _room(axes, [longest], [f"{longest:.1f} ms  "])
    axes.set_xlabel("time (ms)")
    handles = [
        _hatched("decode", "arithmetic: writing"),
        _solid("prefill", "arithmetic: prompts"),
        _solid("weights", "memory: weights"),
        _hatched("cache", "memory: cache"),
    ]
    _key(figure, handles)
    return figure


def _sorted_curve(axes, values, color, linestyle, counts=None):
    """Share (%) of the values at or below each one, as a line that rises to 100."""
    counts = [1] * len(values) if counts is None else counts
    total, seen, x, y = sum(counts), 0, [], []
    for value, count in sorted(zip(values, counts)):
        seen += count
        if count:
            x.append(value)
            y.append(100 * seen / total)
    axes.step([x[0], *x], [0, *y], where="post", color=COLOR[color], ls=linestyle)


@figure_function
def waits(runs):
    """Share of chats (%) whose first token came within so many seconds; p50 and p99 marked.

    runs: label -> Run."""
    figure, axes = new_figure(3.6)
    handles, low, high = [], [], []
    for (label, run), linestyle in zip(runs.items(), DASHES):
        ttft = [first - sent for first, sent in zip(run.first, run.workload.send)]
        _sorted_curve(axes, ttft, "queue", linestyle)
        points = {q: percentile(ttft, q) for q in (50, 99)}
        for q, value in points.items():
            axes.plot(value, q, "o", color=COLOR["queue"])
            if len(runs) <= 2:
                name = f"{label}\n" if q == 50 else ""
                _note(axes, f"{name}p{q} {_seconds(value)}", (value, q), (7, -7))
        text = f"{label}: p50 {_seconds(points[50])}, p99 {_seconds(points[99])}"
        handles.append(_line("queue", text, ls=linestyle))
        low.append(min(ttft))
        high.append(max(ttft))
    axes.set_xscale("log")
    axes.set_xlim(0.8 * min(low), (6 if len(runs) <= 2 else 1.3) * max(high))
    _plain_log(axes.xaxis, _log_ticks(0.8 * min(low), 6 * max(high), (1,)))
    axes.set_ylim(0, 104)
    axes.set_xlabel("wait for the first token (s)")
    axes.set_ylabel("share of chats (%)")
    if len(runs) > 2:
        _key(figure, handles, 1)
    return figure


# The parts of a Wait in the order in which they pass: its name, its colour, and its hatch.
CAUSES = {
    "under_way": ("step under way", "muted", None),
    "cache": ("cache", "cache", "||||"),
    "place": ("batch limit", "wall", "----"),
    "both": ("cache and batch limit", "promised", "++++"),
    "other": ("another rule", "queue", "////"),
    "own_prompt": ("own prompt", "prefill", None),
    "other_prompts": ("others' prompts", "prefill", "\\\\\\\\"),
}


@figure_function
def wait_causes(runs, edges=(50, 90, 99)):
    """The mean wait for the first token (s) of the chats in each of `tinyserve.causes.bands`,
    split into its causes; beside each bar its length and the largest part.

    runs: a Run, or a dict from label to Run, one panel each, on one scale. edges: percentiles
    at which the chats, sorted by their wait, are cut. Raises what `bands` raises.
    """
    read = {"": bands(runs, edges)} if isinstance(runs, Run) else {}
    read = read or {label: bands(run, edges) for label, run in runs.items()}
    rows = sum(map(len, read.values()))
    figure, panels = new_figure(1.0 + 0.36 * rows + 0.2 * len(read), len(read), sharex=True)
    panels = panels if len(read) > 1 else [panels]
    means, texts, drawn = [], [], set()
    for axes, (label, found) in zip(panels, read.items()):
        for row, band in enumerate(found):
            start = 0
            for part, (_, color, hatch) in CAUSES.items():
                length = getattr(band.wait, part)
                if length:
                    face = COLOR["paper" if hatch else color]
                    axes.barh(row, length, 0.62, start, fc=face, ec=COLOR[color], hatch=hatch)
                    drawn.add(part)
                start += length
            means.append(fsum(band.wait))
            name, *_ = CAUSES[max(CAUSES, key=band.wait._asdict().get)]
            share = max(band.wait) / means[-1] if means[-1] else 0
            texts.append(f"{_seconds(means[-1])}, {100 * share:.0f} % {name}")
            _note(axes, texts[-1], (means[-1], row))
        _rows(axes, [band.name for band in found])
        if label:
            axes.set_ylabel(f"{label}\n(chats)")
    _room(panels[-1], means, texts)
    panels[-1].set_xlabel("mean wait for the first token (s)")
    handles = [
        Patch(fc=COLOR["paper" if hatch else color], ec=COLOR[color], hatch=hatch, label=name)
        for part, (name, color, hatch) in CAUSES.items()
        if part in drawn
    ]
    _key(figure, handles)
    return figure


@figure_function
def gaps(run):
    """Two kinds of TBT (ms), sorted: every gap of every chat, and one average a chat."""
    figure, axes = new_figure(3.6)
    lengths = [1000 * s.seconds for s in run.steps]
    counts = [s.chats - s.joined for s in run.steps]
    chats = zip(run.first, run.done, run.workload.replies)
    means = [1000 * (done - first) / (reply - 1) for first, done, reply in chats if reply > 1]
    _sorted_curve(axes, means, "ink", DASHES[1])
    _sorted_curve(axes, lengths, "decode", "solid", counts)
    for values, weights, color, name, height in [
        (means, None, "ink", "one average\na chat", 30),
        (lengths, counts, "decode", "every gap", 62),
    ]:
        p99 = percentile(values, 99, weights)
        axes.plot([p99, p99], [0, 99], color=COLOR[color], lw=1, ls=DASHES[2])
        axes.plot(p99, 99, "o", color=COLOR[color])
        _note(axes, f"{name}\np99 {p99:.1f} ms", (p99, height), (5, 0), color)
    axes.set_xscale("log")
    low, high = 0.9 * min(means + lengths), 1.1 * max(means + lengths)
    axes.set_xlim(low, high)
    _plain_log(axes.xaxis, _log_ticks(low, high, (1, 2, 3, 5, 8)))
    axes.set_ylim(0, 104)
    axes.set_xlabel("time between tokens (ms)")
    axes.set_ylabel("share of gaps or chats (%)")
    return figure


@figure_function
def arrivals(workload, until=None):
    """The chats as they are sent: prompt tokens up, reply tokens down, against the clock (s)."""
    figure, axes = new_figure(3.2)
    end = workload.send[-1] if until is None else until
    chats = [chat for chat, time in enumerate(workload.send) if time <= end]
    sent = [workload.send[chat] for chat in chats]
    prompts = [workload.prompts[chat] for chat in chats]
    replies = [-workload.replies[chat] for chat in chats]
    _stems(axes, sent, prompts, "prefill")
    _stems(axes, sent, replies, "decode")
    axes.axhline(0, color=COLOR["muted"], lw=0.8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):,.0f}"))
    axes.set_xlabel("time sent (s)")
    axes.set_ylabel("length (tokens)")
    handles = [_line("prefill", "prompt, upwards"), _line("decode", "reply, downwards")]
    _key(figure, handles)
    return figure


def _stretches(send, least):
    """The numbers of the chats at which a stretch of `rate_over_time` begins, and the last."""
    shortest, last = (send[-1] - send[0]) / 200, len(send) - 1
    cuts = [0]
    for chat, time in enumerate(send):
        if chat - cuts[-1] >= least and time - send[cuts[-1]] >= shortest:
            cuts.append(chat)
    # What is left at the end may be a short rush; only if it is next to nothing, it goes with
    # the stretch before.
    if last - cuts[-1] < least or send[last] - send[cuts[-1]] < shortest / 10:
        cuts = cuts[:-1] or cuts
    return [*cuts, last]


@figure_function
def rate_over_time(workload, least=10):
    """Chats sent a second against the time (s), and their mean rate, dashed.

    Each level is a stretch with `least` chats, or more if they come within a two hundredth of
    the whole time: wide where it is quiet, and narrow in a rush, which bins of one width would
    average away. Its height is the gaps between chats in it over its seconds. Raises
    ValueError for chats that are all sent at once.
    """
    send, least = workload.send, whole("least", least)
    if not send[-1] > send[0]:
        raise ValueError(f"{len(send)} chats sent at once, at {send[0]!r} s, have no rate")
    cuts = _stretches(send, least)
    rates = [(end - start) / (send[end] - send[start]) for start, end in pairwise(cuts)]
    mean = (len(send) - 1) / (send[-1] - send[0])
    figure, axes = new_figure(3.0)
    axes.step([send[cut] for cut in cuts], [*rates, rates[-1]], where="post", color=COLOR["ink"])
    axes.axhline(mean, color=COLOR["muted"], ls=DASHES[1])
    axes.set_xlim(send[0], send[-1] + 0.01 * (send[-1] - send[0]))
    axes.set_ylim(0, 1.08 * max(rates))
    axes.set_xlabel("time sent (s)")
    axes.set_ylabel("rate (chats/s)")
    average = f"mean, {mean:.3g} chats/s"
    _key(figure, [_line("ink", "sent"), _line("muted", average, ls=DASHES[1])])
    return figure


@figure_function
def first_seconds(run, seconds=3.0):
    """The first seconds of a run: pages held and promised under the ceiling, and the queue;
    the moment the cache first held a chat out is marked."""
    figure, (pages, queue) = new_figure(4.4, 2, sharex=True, height_ratios=[3, 2])
    steps = [step for step in run.steps if step.start <= seconds]
    clock = [step.start for step in steps]
    promised = [step.held + step.owed for step in steps]
    held = [step.held for step in steps]
    pages.fill_between(clock, held, step="post", color=COLOR["held"], alpha=0.3, lw=0)
    pages.step(clock, held, where="post", color=COLOR["held"], lw=1.4)
    pages.step(clock, promised, where="post", color=COLOR["promised"], lw=1.4)
    pages.axhline(run.pages, color=COLOR["wall"], ls=DASHES[1])
    queue.step(clock, [step.queue for step in steps], where="post", color=COLOR["queue"])
    full = report(run).cache_full_at
    if full is not None and full <= seconds:
        for axes in (pages, queue):
            axes.axvline(full, color=COLOR["wall"], ls=DASHES[2])
        text = f"{full:.2f} s: the cache\nholds a chat out"
        _note(queue, text, (full, 0.8), (6, 0), xycoords=("data", "axes fraction"))
    pages.set_ylim(0, 1.15 * run.pages)
    pages.set_ylabel("cache (pages)")
    queue.set_ylim(0, max(4, 1.1 * max(step.queue for step in steps)))
    queue.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    queue.set_ylabel("queue (chats)")
    queue.set_xlim(0, seconds)
    queue.set_xlabel("time on the clock (s)")
    handles = [
        _line("held", "held", lw=1.4),
        _line("promised", "promised", lw=1.4),
        _line("wall", f"all {run.pages} pages", ls=DASHES[1]),
    ]
    _key(figure, handles, 3)
    return figure


@figure_function
def light_and_heavy(reports, ranges=None):
    """The p99 wait for the first token (s) beside the p99 gap (ms) at each rate.

    reports: rate in chats a second -> Report. ranges: rate -> the lowest and the highest p99
    wait and the lowest and the highest p99 gap over several orders, four numbers in seconds;
    drawn as error bars.
    """
    figure, panels = new_figure(3.4, 1, 2)
    values = list(reports.values())
    spans = [(ranges or {}).get(rate, [None] * 4) for rate in reports]
    for panel, (axes, name, label, read, show) in enumerate(
        [
            (
                panels[0],
                "queue",
                "p99 wait for the first token (s)",
                lambda r: r.ttft_p99,
                _seconds,
            ),
            (
                panels[1],
                "decode",
                "p99 gap (ms)",
                lambda r: 1000 * r.tbt_p99,
                lambda v: f"{v:.1f} ms",
            ),
        ]
    ):
        heights = [read(each) for each in values]
        axes.bar(range(len(values)), heights, 0.6, color=COLOR[name])
        for place, (height, span) in enumerate(zip(heights, spans)):
            low, high = span[2 * panel : 2 * panel + 2]
            if high is not None:
                ends = [end * (1, 1000)[panel] for end in (low, high)]
                axes.plot([place] * 2, ends, color=COLOR["ink"], marker="_", markersize=9, lw=1.4)
            top = height if high is None else ends[1]
            _note(axes, show(height), (place, top), (0, 8), ha="center")
        if heights[0] < 0.75 * heights[-1]:  # over the first bar, level with the last
            growth = f"{heights[-1] / heights[0]:.1f} times\nas long"
            axes.text(0, heights[-1], growth, ha="center", va="center", weight="bold")
        axes.set_xticks(range(len(values)), [f"{rate:g}" for rate in reports])
        axes.set_xlim(-0.5, len(values) - 0.5)
        tops = [line.get_ydata()[1] for line in axes.lines]
        axes.set_ylim(0, 1.15 * max(heights + tops))
        axes.set_ylabel(label)
        axes.set_xlabel("rate (chats/s)")
    return figure


@figure_function
def settings_bars(reports):
    """The p99 wait for the first token (s) in each setting, and the wall it ran into.

    reports: (pages, limit) -> Report."""
    figure, axes = new_figure(0.7 + 0.5 * len(reports))
    values = [rep.ttft_p99 for rep in reports.values()]
    texts = [f"{_seconds(rep.ttft_p99)}, wall: {rep.wall}" for rep in reports.values()]
    for row, (value, text) in enumerate(zip(values, texts)):
        _hbar(axes, row, 0, value, "queue")
        _note(axes, text, (value, row))
    _rows(axes, [f"{pages:,} pages,\n{limit} chats" for pages, limit in reports])
    _room(axes, values, texts)
    axes.set_xlabel("p99 wait for the first token (s)")
    return figure


@figure_function
def order_ranges(results):
    """The p99 wait (s) over orders of the same chats: a dot an order, the first one marked.

    results: label -> list of seconds, the original order first."""
    figure, axes = new_figure(1.2 + 0.5 * len(results))
    for row, values in enumerate(results.values()):
        axes.plot([min(values), max(values)], [row, row], color=COLOR["queue"], lw=1)
        axes.plot(values[1:], [row] * (len(values) - 1), "o", color=COLOR["queue"], ms=4)
        axes.plot(values[0], row, "D", color=COLOR["ink"], ms=7, mfc="none")
        _note(axes, _seconds(min(values)), (min(values), row), (-9, 0))
        _note(axes, _seconds(max(values)), (max(values), row), (9, 0))
    _rows(axes, list(results))
    axes.set_xscale("log")
    flat = [value for values in results.values() for value in values]
    # Room for the printed ends on both sides: 55 points each, on a log scale.
    longest = max(len(line) for label in results for line in label.split("\n"))
    width = 72 * WIDTH - 25 - CHARACTER * longest - 2 * 55
    aside = 10 ** (55 * log10(max(flat) / min(flat)) / width)
    low, high = min(flat) / aside, max(flat) * aside
    axes.set_xlim(low, high)
    _plain_log(axes.xaxis, _log_ticks(low, high, (1, 3)))
    axes.set_xlabel("p99 wait for the first token (s)")
    handles = [
        _line("ink", "the original order", marker="D", ls="", mfc="none", ms=7),
        _line("queue", "another order", marker="o", ls="", ms=4),
    ]
    _key(figure, handles)
    return figure


@figure_function
def slower_steps(waits, labels):
    """p99 waits against the length of a step, one curve a setting.

    waits: a dict from the factor by which steps are longer to a list of p99 waits in seconds,
    one a setting; labels: the settings' names.
    """
    figure, axes = new_figure(2.9)
    factors = list(waits)
    for i, (label, dashes, marker) in enumerate(zip(labels, ("-", "--", ":"), "os^")):
        seconds = [waits[factor][i] for factor in factors]
        axes.plot(factors, seconds, dashes, color=COLOR["queue"], marker=marker, markersize=4)
        axes.annotate(
            label,
            (factors[-1], seconds[-1]),
            (0, 9 if i == 0 else -44),
            textcoords="offset points",
            ha="right",
            color=COLOR["queue"],
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0.1, top=50)
    axes.set_xlabel("length of a step against the data sheet (times)")
    axes.set_ylabel("p99 wait for the first token (s)")
    return figure


@figure_function
def work_a_step(runs):
    """How many chats are touched in a step: by the plain loop, and by the counted one.

    runs: a dict from the places in a step to a Run. The plain loop touches every chat in the
    step, the counted one a chat when it joins and when it leaves.
    """
    figure, axes = new_figure(2.9)
    places = list(runs)
    plain = [sum(step.chats for step in run.steps) / len(run.steps) for run in runs.values()]
    counted = [2 * len(run.done) / len(run.steps) for run in runs.values()]
    for touched, label, color, dashes, marker, at, by in (
        (plain, "every chat in the step", "decode", "-", "o", -2, (-6, 8)),
        (counted, "who joins, who leaves", "queue", "--", "s", -1, (0, 9)),
    ):
        axes.plot(places, touched, dashes, color=COLOR[color], marker=marker, markersize=4)
        axes.annotate(
            label,
            (places[at], touched[at]),
            by,
            textcoords="offset points",
            ha="right",
            color=COLOR[color],
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(place) for place in places])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("places in a step (chats)")
    axes.set_ylabel("touched in a step (chats)")
    return figure


WALL_MARKS = {"none": ("paper", ""), "cache": ("cache", "C"), "batch": ("wall", "B")}
WALL_MARKS["both"] = ("promised", "CB")


@figure_function
def walls_map(runs, levels=(0.1, 0.3, 1, 3)):
    """Which wall binds where: settings on a grid, with lines of equal p99 wait.

    runs: the DataFrame of a sweep over pages, limits and orders. A cell has the name that most
    of its orders gave (C: cache, B: batch limit, CB: both, empty: none); the lines are the
    median over the orders of the p99 wait for the first token, in seconds.
    """
    pages, limits = sorted(set(runs["pages"])), sorted(set(runs["limit"]))
    cells = runs.groupby(["limit", "pages"])
    waits = [
        [percentile(list(cells.get_group((limit, page))["ttft_p99"]), 50) for page in pages]
        for limit in limits
    ]
    figure, axes = new_figure(3.7)
    axes.grid(False)
    for row, limit in enumerate(limits):
        for column, page in enumerate(pages):
            color, mark = WALL_MARKS[cells.get_group((limit, page))["wall"].mode().iloc[0]]
            axes.add_patch(
                Box((column - 0.5, row - 0.5), 1, 1, facecolor=COLOR[color], alpha=0.25, lw=0)
            )
            axes.text(column, row, mark, ha="center", va="center", size=10.5, color=COLOR["ink"])
    lines = axes.contour(range(len(pages)), range(len(limits)), waits, levels=levels,
                         colors=COLOR["queue"], linewidths=1.6)  # fmt: skip
    for label in axes.clabel(lines, fmt=lambda seconds: f"{seconds:g} s", fontsize=10.5):
        label.set_bbox({"facecolor": COLOR["paper"], "edgecolor": "none", "pad": 1})
    axes.set_xlim(-0.5, len(pages) - 0.5)
    axes.set_ylim(-0.5, len(limits) - 0.5)
    axes.set_xticks(range(0, len(pages), 4), [str(pages[i]) for i in range(0, len(pages), 4)])
    axes.set_yticks(range(0, len(limits), 4), [str(limits[i]) for i in range(0, len(limits), 4)])
    axes.set_xlabel("cache (pages)")
    axes.set_ylabel("places in a step (chats)")
    return figure


# --- real cards ------------------------------------------------------------------------

# A line a chip: how it is drawn.
CLOCKS = [("muted", DASHES[1]), ("decode", DASHES[0]), ("weights", DASHES[3])]


@figure_function
def measured_steps(steps, chips, along, model=LLAMA_8B):
    """Measured seconds of steps as dots (ms), and what each chip's clock says as lines.

    steps: a list of `tinyserve.calibrate.MeasuredStep`, alike but for what they are drawn
    along; chips: label -> Chip; along: "chats" in the step, "context" tokens of each, or
    "prompt" tokens of the one that joins.
    """
    label, read = {
        "chats": ("size of the batch (chats)", lambda step: step.running),
        "context": ("context of each chat (tokens)", lambda s: s.context_tokens / s.running),
        "prompt": ("prompt that joins (tokens)", lambda step: sum(step.prompts)),
    }[along]
    _at_most(chips, CLOCKS)
    steps = sorted(steps, key=read)
    x = [read(step) for step in steps]
    figure, axes = new_figure(2.9)
    axes.plot(x, [1000 * step.seconds for step in steps], "o", color=COLOR["ink"], ms=5)
    for chip, (color, dashes) in zip(chips.values(), CLOCKS):
        says = [
            1000 * step_cost(s.running, s.context_tokens, s.prompts, model, chip) for s in steps
        ]
        axes.plot(x, says, color=COLOR[color], ls=dashes)
    axes.set_xscale("log")
    ticks = sorted(set(x))
    _plain_log(axes.xaxis, ticks[:: 1 if len(ticks) < 9 else 2])
    if along == "prompt":  # from 12 to 560 ms
        axes.set_yscale("log")
        _plain_log(axes.yaxis, _log_ticks(5, 1000, (1, 2, 5)))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("step (ms)")
    lines = [_line(color, name, ls=dashes) for name, (color, dashes) in zip(chips, CLOCKS)]
    _key(figure, [_line("ink", "measured", marker="o", ls="", ms=5), *lines], 3)
    return figure


@figure_function
def two_clocks(reports):
    """The p99 wait (s) of each setting under two clocks, joined by a line, and the walls.

    reports: (pages, limit) -> a dict from the clock's name to a Report, the same names in each.
    """
    figure, axes = new_figure(1.2 + 0.5 * len(reports))
    clocks = list(next(iter(reports.values())))
    marks = dict(zip(clocks, ("o", "s")))
    for row, read in enumerate(reports.values()):
        waits = [read[clock].ttft_p99 for clock in clocks]
        axes.plot(waits, [row] * 2, color=COLOR["queue"], lw=1)
        for clock, wait, side in zip(clocks, waits, (-9, 9)):
            face = "none" if clock == clocks[0] else COLOR["queue"]
            axes.plot(wait, row, marks[clock], color=COLOR["queue"], ms=7, mfc=face)
            text = _seconds(wait) if side < 0 else f"{_seconds(wait)}, {read[clock].wall}"
            _note(axes, text, (wait, row), (side, 0))
    _rows(axes, [f"{pages:,} pages,\n{limit} chats" for pages, limit in reports])
    axes.set_xscale("log")
    flat = [read[clock].ttft_p99 for read in reports.values() for clock in clocks]
    low, high = min(flat) / 5, max(flat) * 7
    axes.set_xlim(low, high)
    _plain_log(axes.xaxis, _log_ticks(low, high, (1,)))
    axes.set_xlabel("p99 wait for the first token (s)")
    handles = [
        _line("queue", clock, marker=marks[clock], ls="", ms=7, mfc="none" if not i else None)
        for i, clock in enumerate(clocks)
    ]
    _key(figure, handles)
    return figure


@figure_function
def sorted_waits(series):
    """Waits (s) in order, on a linear axis: one curve for each of some servers.

    series: label -> list of seconds, one a chat; the first is the real one, and dotted.
    """
    figure, axes = new_figure(3.2)

    def draw(values, **look):
        share = [100 * (i + 1) / len(values) for i in range(len(values))]
        axes.plot(share, sorted(values), **look)

    _beside_the_real(figure, series, draw, 3)
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("share of the chats (%)")
    axes.set_ylabel("wait for the first token (s)")
    return figure


@figure_function
def running_over_time(series):
    """How many chats have their first token and not yet their last, over time (s).

    series: label -> a pair of lists, the times of first and of last tokens in seconds, one
    a chat; the first is the real one, and dotted.
    """
    figure, axes = new_figure(3.2)

    def draw(times, **look):
        firsts, lasts = times
        events = sorted([(time, 1) for time in firsts] + [(time, -1) for time in lasts])
        counts = list(accumulate(change for _, change in events))
        axes.step([time for time, _ in events], counts, where="post", **look)

    _beside_the_real(figure, series, draw, 2.4)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("being served (chats)")
    return figure


# --- a real server -----------------------------------------------------------------------


@figure_function
def server_polls(real, toy, limit):
    """Polls of a server beside those of the toy that was given the same requests.

    real, toy: DataFrames of polls with seconds, waiting, running and kv_use; limit: the places
    of both. From above: requests that wait, requests that run, KV use in percent.
    """
    figure, panels = new_figure(4.6, 3, 1, sharex=True)
    for axes, name, color, scale, label in (
        (panels[0], "waiting", "queue", 1, "waiting\nrequests"),
        (panels[1], "running", "decode", 1, "running\nrequests"),
        (panels[2], "kv_use", "held", 100, "cache in\nuse (%)"),
    ):
        for polls, width, dashes in ((real, 1.6, DASHES[0]), (toy, 1.4, ":")):
            line = scale * polls[name]
            axes.plot(polls["seconds"], line, color=COLOR[color], ls=dashes, lw=width)
        axes.set_ylim(0, 1.15 * max(1, scale * max(real[name].max(), toy[name].max())))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylabel(label)
    if limit <= panels[1].get_ylim()[1]:
        panels[1].axhline(limit, color=COLOR["wall"], ls=DASHES[1], lw=1.2)
        _note(panels[1], f"limit {limit}", (0, limit), (4, 8), color="wall")
    panels[1].set_ylim(0, 1.25 * panels[1].get_ylim()[1] / 1.15)
    panels[2].set_xlabel("time since the first poll (s)")
    panels[2].set_xlim(0, max(real["seconds"].max(), toy["seconds"].max()))
    _key(figure, [_line("ink", "server"), _line("ink", "toy", ls=":", lw=1.4)])
    return figure


@figure_function
def queue_by_kv(polls, alarm=0.9):
    """How many wait against the KV use, a dot a poll, with the line of an alarm.

    polls: a DataFrame of polls with waiting and kv_use; alarm: a part of 1. Written on either
    side of the line: in how many of the polls with a queue the KV use is on that side.
    """
    figure, axes = new_figure(2.9)
    queued = polls[polls["waiting"] > 0]
    axes.plot(100 * queued["kv_use"], queued["waiting"], "o", color=COLOR["queue"], ms=4)
    idle = polls[polls["waiting"] == 0]
    axes.plot(100 * idle["kv_use"], idle["waiting"], "x", color=COLOR["muted"], ms=4, mew=1)
    axes.axvline(100 * alarm, color=COLOR["wall"], ls=DASHES[1])
    top = max(1, polls["waiting"].max())
    over = int((queued["kv_use"] >= alarm).sum())
    for count, offset in ((len(queued) - over, (-6, 0)), (over, (6, 0))):
        _note(axes, f"{count} polls", (100 * alarm, 1.12 * top), offset, color="queue")
    axes.set_ylim(-0.04 * top, 1.25 * top)
    axes.set_xlim(-2, 118)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("cache in use (%)")
    axes.set_ylabel("waiting\nrequests")
    handles = [
        _line("queue", "somebody waits", marker="o", ls="", ms=4),
        _line("muted", "nobody waits", marker="x", ls="", ms=4),
        _line("wall", f"alarm at {100 * alarm:g} %", ls=DASHES[1]),
    ]
    _key(figure, handles, 3)
    return figure


@figure_function
def one_reply(packets):
    """One reply as a client sees it, and what different tools divide by what.

    packets: pairs of a time in seconds from when it was sent and how many tokens came then.
    From above: the packets; the wait for the first; and three spans with what each is shared
    among, in ms.
    """
    times, tokens = [time for time, _ in packets], sum(size for _, size in packets)
    first, last, gaps = times[0], times[-1], list(pairwise(times))
    figure, axes = new_figure(3.3)
    for time, size in packets:
        axes.plot(time, 0, "o", color=COLOR["ink"], ms=5)
        _note(axes, f"{size}", (time, 0), (0, 11), "ink", ha="center")
    for row, (name, spans, shared) in enumerate(
        [
            ("queue", [(0, first)], 1),
            ("decode", [(first, last)], tokens - 1),
            ("decode", [(0, last)], tokens),
            ("decode", gaps, len(gaps)),
        ],
        1,
    ):
        if not shared:  # one packet has no gap, and one token nothing to share
            continue
        for span in spans:
            axes.plot(span, [row, row], color=COLOR[name], lw=1.6, marker="|", ms=11)
        share = 1000 * sum(end - start for start, end in spans) / shared
        text = f"{share:.0f} ms" if shared == 1 else f"/ {shared} = {share:.0f} ms"
        _note(axes, text, (spans[-1][1], row), (8, 0), name)
    _rows(axes, ["packets (tokens)", "first token", "first to last", "sent to last", "gaps"])
    axes.set_ylim(4.5, -0.8)
    axes.set_xlim(0, 1.45 * last)
    axes.set_xlabel("time since it was sent (s)")
    return figure


# --- planning ----------------------------------------------------------------------------


@figure_function
def goodput(curves):
    """Share of chats that keep both limits, against the rate; the highest rate at which they
    meet the goal is marked.

    curves: a dict from a label to a Curve of `tinyserve.planning`, of one goal. Raises
    ValueError for two goals, and for more curves than there are dashes.
    """
    _at_most(curves, DASHES)
    if len(goals := {curve.goal for curve in curves.values()}) > 1:
        raise ValueError(f"the curves must have one goal, not {sorted(goals)}")
    figure, axes = new_figure(3.6)
    goal, handles = goals.pop(), []
    axes.axhline(100 * goal, color=COLOR["wall"], lw=1, ls=DASHES[2])
    for (label, curve), dashes in zip(curves.items(), DASHES):
        axes.plot(curve.rates, [100 * s for s in curve.shares], color=COLOR["queue"], ls=dashes)
        text = f"up to {curve.knee:.1f} chats/s" if curve.knee else "at no rate"
        if 0 < curve.knee < inf:
            axes.plot([curve.knee] * 2, [0, 100 * goal], color=COLOR["ink"], lw=1, ls=DASHES[2])
            axes.plot(curve.knee, 100 * goal, "o", color=COLOR["ink"])
        elif curve.knee:
            text = "at any rate"
        handles.append(_line("queue", f"{label}: {text}", ls=dashes))
    handles.append(_line("wall", f"the goal: {100 * goal:g} % of the chats", lw=1, ls=DASHES[2]))
    rates = [rate for curve in curves.values() for rate in curve.rates]
    axes.set_xlim(min(rates), max(rates))
    axes.set_ylim(0, 104)
    axes.set_xlabel("rate (chats/s)")
    axes.set_ylabel("share of chats (%)")
    _key(figure, handles, 1)
    return figure


@figure_function
def queue_and_pages(run, bins=240):
    """A whole run of any length: pages held and promised under the ceiling, and the queue; the
    moment the cache first held a chat out is marked.

    The run is cut into `bins` pieces of equal time, and each shows the most of it. Needs a run
    that kept its steps. Raises ValueError for bins that are no whole number above 0.
    """
    start, end, bins = run.workload.send[0], max(run.done), whole("bins", bins)
    width, full = (end - start) / bins, None
    queue, held, promised = tops = [[0] * bins for _ in range(3)]
    for step in run.steps:
        first, last = (int((t - start) / width) for t in (step.start, step.start + step.seconds))
        values = step.queue, step.held, step.held + step.owed
        for place in range(first, min(last + 1, bins)):
            for top, value in zip(tops, values):
                top[place] = max(top[place], value)
        if full is None and "cache" in step.blocked:
            full = step.start
    figure, (above, below) = new_figure(4.4, 2, sharex=True, height_ratios=[3, 2])
    clock = [start + place * width for place in range(bins)] + [end]
    for axes, values, color in ((above, held, "held"), (above, promised, "promised"),
                                (below, queue, "queue")):  # fmt: skip
        axes.step(clock, [*values, values[-1]], where="post", color=COLOR[color], lw=1.4)
    above.fill_between(clock, [*held, held[-1]], step="post", color=COLOR["held"], alpha=0.3, lw=0)
    above.axhline(run.pages, color=COLOR["wall"], ls=DASHES[1])
    handles = [
        _line("held", "held", lw=1.4),
        _line("promised", "promised", lw=1.4),
        _line("wall", f"all {run.pages:,} pages", ls=DASHES[1]),
    ]
    if full is not None:
        for axes in (above, below):
            axes.axvline(full, color=COLOR["wall"], ls=DASHES[2])
        text = f"{full:,.2f} s: the cache holds a chat out"
        handles.append(_line("wall", text, ls=DASHES[2]))
    above.set_ylim(0, 1.15 * run.pages)
    above.set_ylabel("cache (pages)")
    below.set_ylim(0, max(4, 1.1 * max(queue)))
    below.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    below.set_ylabel("queue (chats)")
    below.set_xlim(start, end)
    below.set_xlabel("time on the clock (s)")
    _key(figure, handles)
    return figure
