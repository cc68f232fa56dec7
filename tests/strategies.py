"""What the property tests share: random workloads, and values that a door must refuse.

The examples are the same on every run, so that a green check stays green. To search wider,
with new examples each time and twenty times as many:

    HYPOTHESIS_PROFILE=wide python -m pytest tests
"""

import math
import os
from itertools import accumulate

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import tinyserve as ts

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("wide", derandomize=False, deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

HUGE = 10**400  # a whole number that no float can hold
NOT_NUMBERS = [True, False, np.True_, np.False_, "3", None, 1j, [3], np.array(3)]
NOT_NUMBERS.append(np.timedelta64(3, "s"))  # NumPy calls it an integer
NOT_FINITE = [math.nan, math.inf, -math.inf, np.float64("nan")]
# For a count that must be at least 1, and for a measure that must be above 0.
BAD_COUNTS = [0, -1, 1.5, np.int64(0), np.float64(2.5), *NOT_FINITE, *NOT_NUMBERS, HUGE]
BAD_MEASURES = [0, 0.0, -1.5, np.float64(-1), *NOT_FINITE, *NOT_NUMBERS, HUGE]
BAD_TIMES = [-1, -0.5, np.float64(-2.0), *NOT_FINITE, *NOT_NUMBERS, HUGE]


def short(value):
    """A name for a test's value; 10**400 would make a long one."""
    return "huge" if value is HUGE else repr(value)


# Gaps of nothing, of about a step, and of many steps: chats together, apart, and an idle server.
gaps = st.one_of(st.just(0.0), st.floats(0, 0.03), st.floats(0, 0.5))


@st.composite
def workloads(draw, most=10, prompt=150, reply=25):
    """A Workload of 1 to `most` chats; the first need not be sent at 0."""
    n = draw(st.integers(1, most))
    counts = [st.lists(st.integers(1, top), min_size=n, max_size=n) for top in (prompt, reply)]
    send = accumulate(draw(st.lists(gaps, min_size=n, max_size=n)))
    return ts.Workload(send, *map(draw, counts))


@st.composite
def servers(draw, **sizes):
    """Arguments of `serve`: a workload and a pool that its largest chat just fits, or more."""
    workload = draw(workloads(**sizes))
    page_size = draw(st.integers(1, 40))
    need = max(math.ceil(workload.total(i) / page_size) for i in range(len(workload)))
    pages = need + draw(st.integers(0, 2 * need))
    return {
        "workload": workload,
        "pages": pages,
        "limit": draw(st.integers(1, 6)),
        "page_size": page_size,
    }
