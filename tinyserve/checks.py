"""Doors: bad input is refused here, with an error that names the value."""

import math
from numbers import Real


def whole(name, value, least=1):
    """Return `value` as an int, or raise ValueError naming it.

    Accepts Python and NumPy integers, and floats without a fraction. Refuses
    booleans, fractions, NaN, infinities, text, and anything under `least`.
    """
    real = number(name, value)
    result = int(value)
    if result != real or result < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return result


def number(name, value, above=None, least=None):
    """Return `value` as it is if it is a finite real number, or raise ValueError.

    `above` is a bound that the value must exceed, `least` one that it may equal.
    """
    # NumPy's booleans are not Real; Python's are, and True chats a second is a slip.
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number, not {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value!r}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be above {above}, not {value!r}")
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
    return value


def every_chat_fits(workload, pool):
    """Raise ValueError for a chat that needs more pages than `pool` has in all.

    Such a chat could never be admitted, and nobody behind it either.
    """
    for chat in range(len(workload)):
        need = -(-workload.total(chat) // pool.page_size)
        if need > pool.pages:
            raise ValueError(
                f"chat {chat} needs {need} pages of {pool.page_size} tokens (prompt "
                f"{workload.prompts[chat]}, reply {workload.replies[chat]}), "
                f"more than the {pool.pages} of the whole pool"
            )
