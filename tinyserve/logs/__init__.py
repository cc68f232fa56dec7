"""Recorded request logs and benchmark results in, a server's metrics in and out.

Introduced in the chapters "Replay a real log" and "Read a real server". `read_log` gives a
Workload, `read_results` the waits that a load tool measured, `read_metrics` what a server
says of itself, and `write_metrics` the same of a run here. Needs pandas and tqdm,
`read_metrics` also prometheus_client, and Parquet files pyarrow.
"""

from tinyserve.logs.metrics_text import Histogram, Metrics, read_metrics, write_metrics
from tinyserve.logs.requests import FORMATS, SAMPLES, Notes, read_log
from tinyserve.logs.results import TOOLS, read_results

__all__ = [
    "FORMATS",
    "SAMPLES",
    "TOOLS",
    "Histogram",
    "Metrics",
    "Notes",
    "read_log",
    "read_metrics",
    "read_results",
    "write_metrics",
]
