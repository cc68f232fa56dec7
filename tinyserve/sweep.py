"""Many runs over a grid of settings, on all cores.

Introduced in the chapter "The map of walls". The work goes through joblib, which can hand it
to other schedulers as well (`with joblib.parallel_config("dask"): sweep(...)`).
"""

from itertools import product

import pandas as pd
from joblib import Parallel, delayed
from tqdm import tqdm

from tinyserve import fast
from tinyserve.checks import whole
from tinyserve.metrics import Report

P99 = ("ttft_p99", "tbt_p99", "mean_tbt_p99")


def in_order(workload, order):
    """The workload in one of its orders: 0 is its own, others are seeded shuffles.

    Raises ValueError for an order that is not a whole number of at least 0.
    """
    order = whole("order", order, least=0)
    return workload.shuffled(order) if order else workload


def _one(workload, setting, options, also):
    """One setting's row: the setting, its report, what `also` makes of the run, its error."""
    rate, pages, limit, order = setting
    row = dict(zip(("rate", "pages", "limit", "order"), setting))
    try:
        chats = in_order(workload, order)
        run = fast.serve(chats if rate is None else chats.at_rate(rate), pages, limit, **options)
        row |= fast.report(run)._asdict() | (also(run) if also else {}) | {"error": None}
    except (ValueError, ArithmeticError, MemoryError) as error:  # others are faults of the code
        row |= dict.fromkeys(Report._fields) | {"error": str(error) or type(error).__name__}
    return row


def _with_ranges(row, seeded):
    """The row, and the range of each p99 over its own order and the seeded ones."""
    row, error = dict(row), row["error"]
    own = [] if row["order"] in [each["order"] for each in seeded] else [row]
    draws = [draw for draw in own + seeded if draw["error"] is None]
    del row["error"]
    row["draws"] = len(draws)
    for name in P99:
        values = [draw[name] for draw in draws if draw[name] is not None]
        row |= {f"{name}_low": min(values, default=None), f"{name}_high": max(values, default=None)}
    return row | {"error": error}


def sweep(workload, rate=(None,), pages=(240,), limit=(16,), order=(0,), repeat=0, also=None,
          jobs=-1, progress=True, **options):  # fmt: skip
    """Serve a workload under every combination of settings. Returns a tidy DataFrame.

    rate: chats a second (None: as it is); pages: pages of cache; limit: places in a step;
    order: 0 for the workload's own order, other whole numbers for seeded shuffles. One row
    a combination, in the order of the lists whatever `jobs` is (-1: all cores): the four
    settings, the fields of Report, and `error`, which holds the message of a setting that
    could not be served (its report is empty; the others are not lost).

    repeat: serves each combination in the seeded orders 1 to `repeat` as well, and adds the
    range of each p99 over them and the row's own order (ttft_p99_low, ttft_p99_high, ...),
    and in `draws` how many orders that is. `also` makes a dict of further columns from each
    Run. Other options go to `tinyserve.fast.serve`. Raises ValueError for an empty list and
    for a `repeat` that is not a whole number.
    """
    grid = {"rate": list(rate), "pages": list(pages), "limit": list(limit), "order": list(order)}
    if empty := [name for name, values in grid.items() if not values]:
        raise ValueError(f"a sweep needs at least one value for {', '.join(empty)}")
    repeat = whole("repeat", repeat, least=0)
    options = {"record": "steps" if also else "summary"} | options
    lists = list(grid.values())
    settings = list(product(*lists))
    seeded = list(product(*lists[:3], range(1, repeat + 1)))
    work = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(_one)(workload, setting, options, also) for setting in settings + seeded
    )
    total = len(settings) + len(seeded)
    rows = list(tqdm(work, total=total, unit="run", disable=not progress))
    rows, draws = rows[: len(settings)], rows[len(settings) :]
    if repeat:
        at = (i // len(lists[3]) * repeat for i in range(len(settings)))  # where its draws start
        rows = [_with_ranges(row, draws[i : i + repeat]) for row, i in zip(rows, at)]
    return pd.DataFrame(rows)
