"""One palette, one width, one way to draw: what every figure shares.

Used by all chapters. A colour has one meaning throughout the book. Each has a shade for a light
page and one for a dark page. Figures are drawn in the light shades; the SVG carries a style sheet
that swaps in the dark ones where the page is dark, so one stored picture serves both.
"""

import io
import re

import matplotlib.style
from matplotlib.figure import Figure

# name: (on a light page, on a dark page). Text and lines on paper: at least 4.5 to 1.
PALETTE = {
    "paper": ("#ffffff", "#14181e"),
    "ink": ("#1f2328", "#e6e8eb"),  # text, axes
    "muted": ("#57606a", "#a0a9b4"),  # secondary text, dashed outlines
    "grid": ("#d8dee4", "#343b45"),  # decoration only
    "weights": ("#7a4fa3", "#c4a3f0"),  # fetching the model's weights
    "cache": ("#0b62c4", "#6db3ff"),  # reading the KV cache
    "prefill": ("#b5521b", "#ffab73"),  # reading prompts
    "decode": ("#2d7d46", "#6cc58b"),  # writing tokens
    "queue": ("#a3307f", "#f291cf"),  # chats that wait
    "held": ("#086a87", "#5cc4dd"),  # pages in use
    "promised": ("#8a5d00", "#e3b341"),  # pages promised, in use or not
    "wall": ("#c9242b", "#ff8279"),  # the limit that binds
}
COLOR = {name: light for name, (light, _) in PALETTE.items()}
WIDTH = 5.4  # inches, of every figure: small enough for a phone to keep its text readable

RC = {
    "svg.hashsalt": "tinyserve",  # the same picture gives the same bytes
    "svg.fonttype": "path",  # letters as shapes: the same on every machine
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 11,
    "axes.edgecolor": COLOR["muted"],
    "axes.labelcolor": COLOR["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelsize": 11,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11,
    "grid.color": COLOR["grid"],
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "text.color": COLOR["ink"],
    "xtick.color": COLOR["muted"],
    "ytick.color": COLOR["muted"],
    "xtick.labelcolor": COLOR["ink"],
    "ytick.labelcolor": COLOR["ink"],
    "figure.facecolor": COLOR["paper"],
    "axes.facecolor": COLOR["paper"],
    "savefig.facecolor": COLOR["paper"],
}


def drawing():
    """The settings a figure is drawn under: matplotlib's own and the book's, not the reader's."""
    return matplotlib.style.context(["default", RC])


def new_figure(height, rows=1, columns=1, **options):
    """A Figure of the book's width, `height` inches high, and its axes (as plt.subplots)."""
    with drawing():
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **options)


def _dark_rules():
    """The style sheet that repaints each light shade on a dark page."""
    rules = (
        f'[style*="{paint}: {light}"],[{paint}="{light}"]{{{paint}:{dark} !important}}'
        for light, dark in PALETTE.values()
        for paint in ("fill", "stroke")
    )
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"


def svg(figure):
    """A matplotlib Figure as SVG text, the same bytes each time, at home in light and dark."""
    text = io.StringIO()
    with drawing():
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    # From the svg element on, so that it can stand inside a page as it is.
    picture = text.getvalue()[text.getvalue().index("<svg") :]
    picture = re.sub(r"\s*<metadata>.*?</metadata>", "", picture, flags=re.S)
    return picture.replace("</svg>", f"{_dark_rules()}\n</svg>")
