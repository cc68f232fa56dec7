"""One way to print a number: what every table shares.

Used by all chapters. Tables are pandas DataFrames. Where pandas is not installed, as in a page of
the built book, the same rows come as a plain table, so that a cell gives the same numbers there.
"""

import html
from math import isnan
from numbers import Integral, Real

from tinyserve.checks import number
from tinyserve.metrics import Report, report

# Decimals by the unit at the end of a column's name.
DECIMALS = {
    **{"s": 3, "ms": 1, "%": 1, "times": 1, "tokens/s": 0, "chats/s": 1, "tokens": 1},
    **{"TFLOP/s": 2, "GB/s": 0, "KiB": 0},
}


def decimals_of(name):
    """How many decimals a column of this name has, by the unit at its end."""
    return DECIMALS.get(str(name).split(" ")[-1], 3)


def text(value, decimals):
    """One cell of a table: thousands with a comma, a hyphen where there is no value."""
    if value is None or (isinstance(value, Real) and isnan(value)):
        return "-"
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    # z: no minus sign in front of what is printed as zero.
    return f"{value:,}" if isinstance(value, Integral) else f"{value:z,.{decimals}f}"


class PlainTable:
    """Printed rows under their heads; what `table` returns where there is no pandas."""

    def __init__(self, rows, columns, index, corner):
        self.rows = [[corner or "", *columns], *([i, *row] for i, row in zip(index, rows))]

    def __repr__(self):
        widths = [max(len(str(row[i])) for row in self.rows) for i in range(len(self.rows[0]))]
        lines = (zip(row, widths) for row in self.rows)
        return "\n".join("  ".join(f"{cell!s:>{w}}" for cell, w in line) for line in lines)

    def _repr_html_(self):
        head, *body = [[html.escape(str(cell)) for cell in row] for row in self.rows]
        heads = "".join(f"<th>{cell}</th>" for cell in head)
        rows = "".join(
            f"<tr><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
            for first, *rest in body
        )
        return (
            f'<table class="dataframe"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        )


def table(rows, columns, index=None, corner=None):
    """A table to read: every number printed to the decimals of its column's unit.

    rows: a list of rows; columns: their heads; index: what stands in front of each row
    (0, 1, 2, ... if left out); corner: the head of that. A column named "TTFT p99 s" is in
    seconds (3 decimals), one in "ms" has 1; other floats have 3. Returns a DataFrame of text.
    Raises ValueError for a row with more or fewer cells than there are columns.
    """
    decimals = [decimals_of(name) for name in columns]
    printed = [[text(*cell) for cell in zip(row, decimals, strict=True)] for row in rows]
    index = list(range(len(printed)) if index is None else index)
    try:
        import pandas as pd
    except ImportError:
        return PlainTable(printed, columns, index, corner)
    # Tuples as labels of their own, and the corner where it does not cost a line.
    labels = pd.Index(index, tupleize_cols=False)
    frame = pd.DataFrame(printed, columns=list(columns), index=labels, dtype=object)
    return frame.rename_axis(columns=corner)


def plain(table):
    """What `table` made as text: the same with pandas and without, and nothing left out."""
    if isinstance(table, PlainTable):
        return repr(table)
    index, columns = list(table.index), list(table.columns)
    return repr(PlainTable(table.to_numpy().tolist(), columns, index, table.columns.name))


class Bars:
    """A bar for each of some values: SVG that needs no library, at home in light and dark."""

    def __init__(self, values, unit):
        self.values, self.unit = values, unit

    def _words(self, value):
        return f"{text(value, decimals_of(self.unit))} {self.unit}"

    def __repr__(self):
        return "\n".join(f"{label}: {self._words(value)}" for label, value in self.values.items())

    def _repr_html_(self):
        most = max(self.values.values()) or 1
        rows = []
        for row, (label, value) in enumerate(self.values.items()):
            y, long = 28 * row, 220 * value / most
            rows.append(
                f'<text x="170" y="{y + 17}" text-anchor="end">{html.escape(str(label))}</text>'
                f'<rect x="180" y="{y + 3}" width="{max(long, 1):.1f}" height="20" opacity=".6"/>'
                f'<text x="{188 + long:.1f}" y="{y + 17}">{self._words(value)}</text>'
            )
        return (
            f'<svg viewBox="0 0 480 {28 * len(rows)}" width="480" style="max-width:100%" role="img"'
            f' aria-label="{html.escape(repr(self).replace(chr(10), "; "))}" fill="currentColor"'
            f' font-family="system-ui, sans-serif" font-size="13">{"".join(rows)}</svg>'
        )


def bars(values, unit):
    """A small bar chart. values: a dict from label to number; unit: theirs, as in a table.

    Raises ValueError for no values, and for one that is negative or not finite.
    """
    if not values:
        raise ValueError("a chart needs at least one value, not 0")
    for label, value in values.items():
        number(f"the bar of {label}", value, least=0)
    return Bars(values, unit)


# A report's fields as a table names them, and by what to multiply for the unit in the name.
FIELDS = {
    "ttft_p50": ("TTFT p50 s", 1),
    "ttft_p99": ("TTFT p99 s", 1),
    "tbt_p50": ("TBT p50 ms", 1000),
    "tbt_p99": ("TBT p99 ms", 1000),
    "mean_tbt_p50": ("mean TBT p50 ms", 1000),
    "mean_tbt_p99": ("mean TBT p99 ms", 1000),
    "queue_max": ("longest queue", 1),
    "pages_max": ("most pages held", 1),
    "cache_steps": ("steps held out by cache", 1),
    "batch_steps": ("steps held out by batch", 1),
    "cache_full_at": ("cache full at s", 1),
    "chats_per_second": ("done chats/s", 1),
    "tokens_per_second": ("done tokens/s", 1),
    "wall": ("wall", 1),
}


def clipboard(reports, *fields, corner=None):
    """Some fields of several reports, one line a report; all fields, one line a field, if
    none is named.

    reports: a dict from label to Report (or to Run, which is then reported); fields: names
    of Report's fields; corner: what the labels are. Raises KeyError for a field that a
    Report does not have.
    """
    lines = {}
    for label, run in reports.items():
        read = run if isinstance(run, Report) else report(run)
        values = [(getattr(read, name), FIELDS[name]) for name in fields or FIELDS]
        lines[label] = [v if v is None or scale == 1 else v * scale for v, (_, scale) in values]
    heads = [FIELDS[name][0] for name in fields or FIELDS]
    if fields:
        return table(list(lines.values()), heads, list(lines), corner)
    units = [decimals_of(head) for head in heads]
    rows = [[text(v, d) for v in row] for row, d in zip(zip(*lines.values()), units)]
    return table(rows, [str(label) for label in lines], heads)


def trace(run, steps=None, columns=None):
    """Rows of a run's trace to read: times in their units, numbers to their decimals.

    steps: which step numbers, counted from 1 (all, if left out); columns: which of "start s",
    "took ms", "chats", "new", "queue", "held", "owed", "left" and "waits for".
    """
    numbers = list(steps or range(1, len(run.steps) + 1))
    rows = [
        {
            "start s": step.start,
            "took ms": 1000 * step.seconds,
            "chats": step.chats,
            "new": step.joined,
            "queue": step.queue,
            "held": step.held,
            "owed": step.owed,
            "left": run.pages - step.held - step.owed,
            "waits for": step.blocked,
        }
        for step in (run.steps[number - 1] for number in numbers)
    ]
    columns = columns or list(rows[0])
    return table([[row[name] for name in columns] for row in rows], columns, numbers, "step")
