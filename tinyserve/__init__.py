"""A model server you can read end to end, with a simulated clock in place of a model."""

import importlib

from tinyserve.batcher import Run, Server, Step, serve
from tinyserve.cache import PagePool, pages_for
from tinyserve.causes import Wait, split_waits
from tinyserve.metrics import Report, percentile, report
from tinyserve.roofline import (
    A100,
    A100_MEASURED,
    LLAMA_8B,
    Chip,
    Model,
    pages_that_fit,
    step_cost,
    step_parts,
    step_seconds,
    users_that_fit,
)
from tinyserve.slots import SlotRun, SlotStep, simulate
from tinyserve.workload import Workload, batching_requests, invented_chats

__version__ = "0.1.0"

# What comes in when it is first asked for: the module, and the names of it that stand here. `logs`
# needs pandas, `calibrate` NumPy, `sweep` joblib, `figures` matplotlib.
ON_DEMAND = {
    "fast": (),
    "ondemand": ("OnDemandServer",),
    "sweep": (),
    "figures": (),
    "logs": (
        *("read_log", "read_metrics", "read_polls", "read_results"),
        *("wall_in_polls", "write_metrics"),
    ),
    "calibrate": ("MeasuredStep", "cross_check", "fit"),
    "presets": ("CHIPS", "MODELS"),
    "planning": ("can_finish", "goodput", "max_rate", "what_if"),
}


def __getattr__(name):
    """The names in `ON_DEMAND`."""
    for module, names in ON_DEMAND.items():
        if name in (module, *names):
            found = importlib.import_module(f"tinyserve.{module}")
            return found if name == module else getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
