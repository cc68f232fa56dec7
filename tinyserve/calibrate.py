"""Three constants that bring the roofline to a real card's step times.

Introduced in the chapter "How far is the toy from a real card?". A card reaches a share of the
peak and a share of the bandwidth that its data sheet prints, and a step has a fixed cost
besides: `fit` finds the three from measured steps, yours or those of an A100 that come with
the package. Needs NumPy.

A step takes max(arithmetic / peak_share, memory / bandwidth_share) + overhead. Once it is known
which steps arithmetic limits, that is a straight line in 1 / peak_share, 1 / bandwidth_share
and overhead, and least squares is solved in one go. Which steps those are has only as many
answers as there are steps, since they are the ones with the most arithmetic to a byte: so all
are tried, and the best is the best there is, where a general optimiser may stop at a nearby one.
"""

import csv
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np

from tinyserve.checks import a_path, number, sequence, whole
from tinyserve.roofline import A100, LLAMA_8B, MOST_SHARE, pairs_in, step_cost, step_parts

# running: chats that wrote one token each; context_tokens: the sum of their contexts; prompts:
# the length of each prompt that joined, in tokens; seconds: how long it took; source: who says so.
MeasuredStep = namedtuple(
    "MeasuredStep", "running context_tokens prompts seconds source", defaults=[""]
)
# chip: the one given, with the three constants; mean_error and worst_error: of the `errors`;
# worst: the step that the worst is of; steps: how many were fitted.
Fit = namedtuple("Fit", "chip mean_error worst_error worst steps")
# left_out: what the steps had in common; the rest as Fit's, the constants from the others and
# the errors of these.
Fold = namedtuple("Fold", "left_out chip mean_error worst_error steps")
# mean_error and worst_error: over all steps, each predicted by a fit that did not see it.
CrossCheck = namedtuple("CrossCheck", "mean_error worst_error folds")

A100_STEPS = Path(__file__).parent / "data" / "a100_llama31_8b_step_times.csv"
COLUMNS = ("decode_batch", "ctx_per_seq", "prefill_tokens", "measured_ms")
# A share outside these is no card's: the steps, the chip or the unit are not what they are said
# to be. A chip that runs above its sheet's clock can have a little more than its peak, but its
# memory has no more than its bandwidth.
SHARES = {"peak_share": (0.02, MOST_SHARE), "bandwidth_share": (0.02, 1.05)}


def read_steps(path=A100_STEPS):
    """The measured steps in a CSV file: a list of MeasuredStep.

    path: a file with the columns decode_batch (chats that write one token each), ctx_per_seq
    (tokens that each of them has), prefill_tokens (of a prompt that joins, or 0), measured_ms,
    and if you like source; others are ignored. Left out, the steps of Llama 3.1 8B on an A100
    that come with the package. Raises ValueError, with file and line, for a file that is not
    there, a missing column or a value that can't be.
    """
    path = Path(a_path("path", path))
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            heads = reader.fieldnames or []
            lines = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file: {error}") from None
    if missing := [name for name in COLUMNS if name not in heads]:
        raise ValueError(f"{path} has no column {missing[0]}, only {', '.join(heads) or 'none'}")
    return [_row(row, f"{path}, line {line}") for line, row in lines]


def _row(row, where):
    """The MeasuredStep of one row of a file; where: what an error names."""
    values = []
    for name in COLUMNS:
        try:
            values.append(float(row[name]))
        except (TypeError, ValueError):
            raise ValueError(f"{where}: {name} must be a number, not {row[name]!r}") from None
    *counts, milliseconds = values
    chats, context, prompt = (
        whole(f"{name} in {where}", count, least=0) for name, count in zip(COLUMNS, counts)
    )
    step = MeasuredStep(chats, chats * context, (prompt,) if prompt else (), milliseconds / 1000)
    return _checked(step, where)._replace(source=row.get("source") or "")


def _checked(step, where):
    """The step, its prompts as a tuple, or ValueError naming the value and where it stands."""
    if not isinstance(step, MeasuredStep):
        raise ValueError(f"{where} must be a MeasuredStep, not {step!r}")
    running = whole(f"the running chats in {where}", step.running, least=0)
    whole(f"the tokens of their contexts in {where}", step.context_tokens, least=running)
    prompts = sequence(f"prompts in {where}", step.prompts)
    for prompt in prompts:
        whole(f"a prompt in {where}", prompt)
    number(f"the measured time in {where}", step.seconds, above=0)
    if not running and not prompts:
        raise ValueError(f"{where} has neither a running chat nor a prompt")
    return step._replace(prompts=prompts)


def _all_checked(steps):
    return [_checked(step, f"step {i}") for i, step in enumerate(steps)]


def kind(step):
    """What a measured step did: "decode", "prefill", or "mixed" for both."""
    if step.prompts and step.running:
        return "mixed"
    return "prefill" if step.prompts else "decode"


def a100_grid():
    """The measured steps that `A100_MEASURED` is fitted to: 56 of decode, 10 of prefill.

    Of those that `read_steps` gives, the ones that are all added up from one set of measured
    kernels, and do one thing only. The rest, for a check on what the fit has not seen: 10
    mixed ones, 14 from another set of kernels, and 10 estimates of a tool, no measurements.
    """
    return [
        step
        for step in read_steps()
        if step.source.startswith("kernels:aiconfigurator") and kind(step) != "mixed"
    ]


def predicted(steps, chip, model=LLAMA_8B):
    """Seconds that each of some measured steps takes by the roofline: a NumPy array."""
    return np.array([step_cost(s.running, s.context_tokens, s.prompts, model, chip) for s in steps])


def ratios(steps, chip, model=LLAMA_8B):
    """How many times as long as predicted each measured step took: a NumPy array."""
    return np.array([step.seconds for step in steps]) / predicted(steps, chip, model)


def errors(steps, chip, model=LLAMA_8B):
    """How far off each prediction is, |predicted / measured - 1|: a NumPy array."""
    return np.abs(1 / ratios(steps, chip, model) - 1)


def fit(steps, chip=A100, model=LLAMA_8B):
    """The chip's shares of peak and bandwidth and its overhead, from measured steps.

    Least squares of predicted / measured - 1, so that a step of 10 ms counts as much as one
    of 500. steps: a list of MeasuredStep; chip: its data sheet (shares and overhead that it
    has already are not used); model: the one that ran. Returns a Fit. Raises ValueError for
    a step that can't be, and for steps that leave one of the three constants open: it
    names the constant, and the steps that would tell.
    """
    steps = _all_checked(steps)
    if len(steps) < 4:
        raise ValueError(f"three constants need at least 4 steps, not {len(steps)}")
    sheet = replace(chip, peak_share=1.0, bandwidth_share=1.0, overhead=0.0)
    arithmetic, memory = np.array(
        [
            step_parts(
                s.running,
                s.context_tokens,
                sum(s.prompts),
                model,
                sheet,
                sum(map(pairs_in, s.prompts)),
            )
            for s in steps
        ]
    ).T
    _tells_enough(arithmetic, memory, sheet, model)
    seconds = np.array([step.seconds for step in steps])
    tried = _candidates(arithmetic / seconds, memory / seconds, 1 / seconds)
    _, (a, b, c) = min(tried, default=(None, (np.inf, np.inf, 0)))
    shares = {"peak_share": 1 / a, "bandwidth_share": 1 / b}
    for name, share in shares.items():
        if not SHARES[name][0] <= share <= SHARES[name][1]:
            raise ValueError(
                f"{name} would be {share:.3g}, which no card has: look at the seconds, the chip "
                f"({chip.name}) and the model ({model.name})"
            )
    name = f"{chip.name.removesuffix(', measured')}, measured"
    found = replace(sheet, name=name, overhead=c, **shares)
    off = errors(steps, found, model)
    return Fit(found, float(off.mean()), float(off.max()), steps[off.argmax()], len(steps))


def _tells_enough(arithmetic, memory, chip, model):
    """Raise ValueError if the steps leave one of the constants open.

    arithmetic, memory: seconds of each step on the data sheet.
    """
    limited = arithmetic >= memory
    if not limited.any():
        tie = model.weight_bytes / chip.bandwidth * chip.peak / model.flops_per_token
        raise ValueError(
            "peak_share can't be told: memory limits every step; add some that read a prompt of "
            f"at least {3 * tie:,.0f} tokens"
        )
    if limited.all():
        raise ValueError(
            "bandwidth_share can't be told: arithmetic limits every step; add some of a few "
            "chats that write one token each"
        )
    if max(np.ptp(np.log(part)) for part in (arithmetic[limited], memory[~limited])) < 0.1:
        raise ValueError(
            "overhead can't be told from the shares: of the steps with one limit, none is a "
            "tenth longer than another; add some with much longer contexts or prompts"
        )


def _candidates(arithmetic, memory, one):
    """For each way to part the steps: the squared error, and 1 / share, 1 / share, overhead.

    arithmetic, memory and one are those of each step, divided by its measured seconds: the
    aim is 1 for each.
    """

    def solved(*columns):
        """The factors of these columns and the overhead, which is never below zero."""
        factors = np.linalg.lstsq(np.column_stack([*columns, one]), aim, rcond=None)[0]
        if factors[-1] < 0:
            factors = np.linalg.lstsq(np.column_stack(columns), aim, rcond=None)[0]
            factors = np.append(factors, 0.0)
        return factors

    aim = np.ones(len(one))
    tried = []
    to_memory = arithmetic / memory
    for ratio in np.unique(to_memory):
        limited = to_memory >= ratio
        tried.append(solved(np.where(limited, arithmetic, 0), np.where(limited, 0, memory)))
        # Or this step is at the very edge, with both its parts the same.
        both, overhead = solved(np.maximum(arithmetic, ratio * memory))
        tried.append((both, ratio * both, overhead))
    for a, b, c in tried:
        if a > 0 and b > 0:
            off = np.maximum(a * arithmetic, b * memory) + c * one - 1
            yield float(off @ off), (float(a), float(b), float(c))


def batch(step):
    """What `cross_check` leaves out together unless told otherwise: chats, and prompts."""
    return step.running, step.prompts


def cross_check(steps, chip=A100, model=LLAMA_8B, by=batch):
    """How well the constants predict steps that they were not fitted to.

    by: a function of a step; those that it gives the same value are left out together, and
    predicted from a fit of all others. Left alone it is `batch`, since a card's time
    jumps from one size of batch to the next, where other kernels run, and moves smoothly with the
    context: other contexts of the same batch would give the answer away. Returns a CrossCheck,
    its folds in the order in which the values first come. Raises ValueError where `fit` does,
    with the steps left out.
    """
    steps = _all_checked(steps)
    if not steps:
        raise ValueError("there are no steps to check")
    groups = {}
    for step in steps:
        groups.setdefault(by(step), []).append(step)
    folds, every = [], []
    for left_out, group in groups.items():
        try:
            found = fit([step for step in steps if by(step) != left_out], chip, model).chip
        except ValueError as error:
            raise ValueError(f"without the steps of {left_out!r}: {error}") from None
        off = errors(group, found, model)
        folds.append(Fold(left_out, found, float(off.mean()), float(off.max()), len(group)))
        every.extend(off)
    return CrossCheck(float(np.mean(every)), float(np.max(every)), folds)
