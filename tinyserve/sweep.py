"""Many runs over a grid of settings, on all cores.

Introduced in the chapter "Move the walls". The work goes through joblib, which can hand it
to other schedulers as well (`with joblib.parallel_config("dask"): sweep(...)`).
"""

from itertools import product

import pandas as pd
from joblib import Parallel, delayed
from tqdm import tqdm

from tinyserve import fast
from tinyserve.checks import whole
from tinyserve.metrics import Report, report


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
        row |= report(run)._asdict() | (also(run) if also else {}) | {"error": None}
    except ValueError as error:
        row |= dict.fromkeys(Report._fields) | {"error": str(error)}
    return row


def sweep(workload, rate=(None,), pages=(240,), limit=(16,), order=(0,), also=None, jobs=-1,
          progress=True, **options):  # fmt: skip
    """Serve a workload under every combination of settings. Returns a tidy DataFrame.

    rate: chats a second (None: as it is); pages: pages of cache; limit: places in a step;
    order: 0 for the workload's own order, other whole numbers for seeded shuffles. One row
    a combination, in the order of the lists whatever `jobs` is (-1: all cores): the four
    settings, the fields of Report, and `error`, which holds the message of a setting that
    could not be served (its report is empty; the others are not lost). `also` makes a dict
    of further columns from each Run. Other options go to `tinyserve.fast.serve`. Raises
    ValueError for an empty list.
    """
    grid = {"rate": list(rate), "pages": list(pages), "limit": list(limit), "order": list(order)}
    if empty := [name for name, values in grid.items() if not values]:
        raise ValueError(f"a sweep needs at least one value for {', '.join(empty)}")
    settings = list(product(*grid.values()))
    work = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(_one)(workload, setting, options, also) for setting in settings
    )
    bar = tqdm(work, total=len(settings), unit="run", disable=not progress)
    return pd.DataFrame(list(bar))
