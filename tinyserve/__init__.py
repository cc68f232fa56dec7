"""A model server you can read end to end, with a simulated clock in place of a model."""

import importlib

from tinyserve.batcher import Run, Server, Step, serve
from tinyserve.cache import PagePool, pages_for
from tinyserve.metrics import Report, percentile, report
from tinyserve.roofline import (
    A100,
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


def __getattr__(name):
    """What few need, or what needs pandas, comes in when one is asked for."""
    if name in ("goodput", "max_rate", "what_if"):
        return getattr(importlib.import_module("tinyserve.planning"), name)
    if name in ("logs", "read_log", "read_metrics", "read_results", "write_metrics"):
        logs = importlib.import_module("tinyserve.logs")
        return logs if name == "logs" else getattr(logs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
