"""Doors: bad input is refused here, with an error that names the value.

Used by all chapters.
"""

import math
import os
from numbers import Real


def whole(name, value, least=1, most=None):
    """Return `value` as an int, or raise ValueError naming it.

    Accepts Python and NumPy integers, and floats without a fraction. Refuses
    booleans, fractions, NaN, infinities, text, and anything under `least` or over `most`.
    """
    if type(value) is int and least <= value <= (most or 2**53):
        return value  # the usual case, quickly: a step of the server asks often
    real = number(name, value, most=most)
    result = int(value)
    if result != real or result < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return result


def number(name, value, above=None, least=None, most=None):
    """Return `value` as it is if it is a finite real number, or raise ValueError.

    `above` is a bound that the value must exceed, `least` and `most` are bounds that it
    may equal.
    """
    # NumPy's booleans are not Real; Python's are, and True chats a second is a slip.
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number, not {value!r}")
    try:
        finite = math.isfinite(value)
    except (OverflowError, TypeError):  # more than a float holds; a NumPy length of time
        finite = False
    if not finite:
        raise ValueError(f"{name} must be finite and fit in a float, not {value!r}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be above {above}, not {value!r}")
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
    if most is not None and not value <= most:
        raise ValueError(f"{name} must be at most {most}, not {value!r}")
    return value


def sequence(name, values):
    """Return the values as a tuple, or raise ValueError if they cannot be gone through."""
    try:
        return tuple(values)
    except TypeError:
        raise ValueError(f"{name} must be a sequence, not {values!r}") from None


def a_path(name, value):
    """Return the value as it is if it can name a file, or raise ValueError."""
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{name} must be a path, not {value!r}")
    return value


def a_workload(value):
    """Return the workload as it is, or raise ValueError for what is none, such as a list."""
    if not hasattr(value, "total"):
        raise ValueError(f"workload must be a Workload, not {value!r}")
    return value


def pages_each(workload, page_size):
    """How many pages each chat needs in the end, as `cache.pages_for` counts them: a list.

    Raises ValueError for what is no workload.
    """
    chats = range(len(a_workload(workload)))
    return [-(-workload.total(chat) // page_size) for chat in chats]


def every_chat_fits(workload, pool):
    """Raise ValueError for a chat that needs more pages than `pool` has in all.

    Such a chat could never be admitted, and nobody behind it either.
    """
    for chat, need in enumerate(pages_each(workload, pool.page_size)):
        if need > pool.pages:
            raise ValueError(
                f"chat {chat} needs {need} pages of {pool.page_size} tokens (prompt "
                f"{workload.prompts[chat]}, reply {workload.replies[chat]}), "
                f"more than the {pool.pages} of the whole pool"
            )
