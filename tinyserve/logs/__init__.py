"""Recorded request logs and benchmark results in, a server's metrics in and out.

Introduced in the chapters "Replay a real log" and "Read a real server". `read_log` gives a
Workload, `read_results` the waits that a load tool measured, `read_metrics` what a server
says of itself, and `write_metrics` the same of a run here; `read_polls` a table of many such
readings, of which `wall_in_polls` makes one word. Needs pandas and tqdm,
`read_metrics` also prometheus_client, and Parquet files pyarrow.
"""

from tinyserve.logs.metrics_text import Histogram, Metrics, read_metrics, write_metrics
from tinyserve.logs.polls import PollWall, polls_of, read_polls, wall_in_polls
from tinyserve.logs.requests import FORMATS, SAMPLES, Notes, read_log
from tinyserve.logs.results import TOOLS, read_results

__all__ = [
    "FORMATS",
    "SAMPLES",
    "TOOLS",
    "Histogram",
    "Metrics",
    "Notes",
    "PollWall",
    "polls_of",
    "read_log",
    "read_metrics",
    "read_polls",
    "read_results",
    "wall_in_polls",
    "write_metrics",
]
