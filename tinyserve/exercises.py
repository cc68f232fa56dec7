"""The exercises' checks: each right answer is computed, none is written down.

`check("pages 1", answer)` is what a chapter calls. Standard library and the package's core
only, so that it also runs where nothing else is installed.
"""

from collections import namedtuple
from math import isclose

from tinyserve.cache import pages_for


class Exercise(namedtuple("Exercise", "right hint digits", defaults=[None])):
    """right: a function that computes the answer, or one that takes the reader's and returns
    True or what is wrong with it (if `hint` is None); hint: what to think of again; digits:
    significant digits that a number must have right (all, if None)."""

    __slots__ = ()


EXERCISES = {}


def exercise(name, hint=None, digits=None):
    """Register the decorated function as the right answer to exercise `name`."""

    def register(right):
        EXERCISES[name] = Exercise(right, hint, digits)
        return right

    return register


def _agree(answer, right, digits):
    """Whether two answers are the same, numbers to `digits` significant digits."""
    if digits is None or isinstance(right, str):
        return answer == right
    try:
        return isclose(float(answer), float(right), rel_tol=0.5 * 10.0 ** (1 - digits))
    except (TypeError, ValueError):
        return False


def check(name, answer):
    """Print whether `answer` to the exercise `name` is right, and a hint if it is not.

    Raises KeyError for a name that no exercise has.
    """
    right, hint, digits = EXERCISES[name]
    if answer is ...:
        print("No answer yet: put yours in place of the three dots.")
    elif hint is None:
        verdict = right(answer)
        print("Right." if verdict is True else f"Not yet: {verdict}")
    elif _agree(answer, right(), digits):
        print(f"Right: {answer}.")
    else:
        print(f"Not yet: {answer!r}. {hint}")


@exercise("pages 1", hint="Prompt and reply share the pages, and a page is taken whole.")
def _():
    return pages_for(100 + 50)
