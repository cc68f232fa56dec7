"""The three constants: found again where they were planted, the best there are, and refused."""

import csv
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyserve as ts
from tinyserve.calibrate import (
    A100_STEPS,
    MeasuredStep,
    a100_grid,
    batch,
    cross_check,
    errors,
    fit,
    kind,
    predicted,
    ratios,
    read_steps,
)
from tinyserve.roofline import A100, A100_MEASURED, LLAMA_8B

HEAD = "decode_batch,ctx_per_seq,prefill_tokens,measured_ms\n"


def planted(chip, model=LLAMA_8B, noise=0.0):
    """Steps that take exactly what `chip` says, but for some regular noise."""
    shapes = [(n, c, 0) for n in (1, 8, 64) for c in (200, 1000, 5000)]
    shapes += [(0, 0, prompt) for prompt in (100, 700, 3000)] + [(5, 300, 900)]
    steps = []
    for i, (n, context, prompt) in enumerate(shapes):
        prompts = (prompt,) if prompt else ()
        seconds = ts.step_cost(n, n * context, prompts, model, chip)
        steps.append(MeasuredStep(n, n * context, prompts, seconds * (1 + noise * (-1) ** i)))
    return steps


def constants(chip):
    return chip.peak_share, chip.bandwidth_share, chip.overhead


def squares(steps, chip, model=LLAMA_8B):
    return float((errors(steps, chip, model) ** 2).sum())


# The fit


@settings(max_examples=60, deadline=None)
@given(st.floats(0.3, 1.0), st.floats(0.3, 1.0), st.floats(0, 0.005), st.booleans(), st.booleans())
def test_planted_constants_are_found_again(peak, bandwidth, overhead, attention, other):
    chip = ts.Chip("other", 165.2e12, 1008e9, 24e9) if other else A100
    model = replace(LLAMA_8B, attention=attention)
    true = replace(chip, peak_share=peak, bandwidth_share=bandwidth, overhead=overhead)
    found = fit(planted(true, model), chip, model)
    assert constants(found.chip) == pytest.approx(constants(true), rel=1e-6, abs=1e-9)
    assert found.worst_error < 1e-6 and found.steps == 13


def test_it_starts_from_the_data_sheet_whatever_the_chip_had():
    steps = planted(replace(A100, peak_share=0.7, bandwidth_share=0.8, overhead=0.002), noise=0.02)
    assert fit(steps, A100_MEASURED) == fit(steps)
    assert fit(steps).chip.name == "A100 80GB SXM, measured"
    assert (fit(steps).chip.peak, fit(steps).chip.memory) == (A100.peak, A100.memory)


def test_a_case_by_hand():
    # Weights 2 bytes at 1 a second, cache 4 bytes a token, 2 operations a token at 2 a second.
    # Half the bandwidth and a quarter of the peak, and 1 second: 2 x (2 + 4 c) + 1, or 4 n + 1.
    model = ts.Model("easy", weights=1, layers=1, kv_heads=1, head_size=1)
    chip = ts.Chip("easy", peak=2, bandwidth=1, memory=100)
    steps = [
        MeasuredStep(1, 1, (), 13),
        MeasuredStep(1, 2, (), 21),
        MeasuredStep(0, 0, (10,), 41),
        MeasuredStep(0, 0, (4, 16), 81),
    ]
    found = fit(steps, chip, model)
    assert constants(found.chip) == pytest.approx((0.25, 0.5, 1))
    assert ratios(steps, chip, model) == pytest.approx([13 / 6, 21 / 10, 4.1, 4.05])
    assert errors(steps, chip, model) == pytest.approx(
        [1 - 6 / 13, 1 - 10 / 21, 1 - 10 / 41, 1 - 20 / 81]
    )


def test_no_constants_nearby_are_better():
    # Not only downhill from a start: all of a grid of constants, and a fine one around the best.
    for steps in (a100_grid(), planted(A100_MEASURED, noise=0.1), read_steps()):
        best = fit(steps)
        least = squares(steps, best.chip)
        wide = itertools.product(np.linspace(0.4, 1.2, 17), np.linspace(0.4, 1.2, 17), range(6))
        near = itertools.product((0.999, 1, 1.001), repeat=3)
        tried = [(p, b, ms / 1000) for p, b, ms in wide]
        tried += [tuple(np.multiply(constants(best.chip), by)) for by in near]
        for peak, bandwidth, overhead in tried:
            other = replace(
                A100, peak_share=peak, bandwidth_share=bandwidth, overhead=float(overhead)
            )
            assert squares(steps, other) >= least * (1 - 1e-12)


def test_the_best_can_lie_where_the_two_parts_of_a_step_are_equal():
    """By brute force. A step that was quicker than both of its parts pulls both down at once."""
    model = ts.Model("easy", weights=1, layers=1, kv_heads=1, head_size=1)
    chip = ts.Chip("easy", peak=2, bandwidth=1, memory=100)
    # 4 n or 2 (2 + 4 c), and 1 second: for 3 tokens and a context of 1 both are 12.
    steps = [MeasuredStep(1, c, (), 5 + 8 * c) for c in (1, 2, 5)]
    steps += [MeasuredStep(0, 0, (n,), 4 * n + 1) for n in (10, 20, 30)]
    steps += [MeasuredStep(1, 1, (2,), 0.7 * 13)]
    found = fit(steps, chip, model)
    a, b, c = 1 / found.chip.peak_share, 1 / found.chip.bandwidth_share, found.chip.overhead
    assert 3 * a == pytest.approx(6 * b)

    def squared(a, b, c):
        took = [
            max(a * (s.running + sum(s.prompts)), b * (2 + 4 * s.context_tokens)) for s in steps
        ]
        return sum(((t + c) / s.seconds - 1) ** 2 for t, s in zip(took, steps))

    grid = itertools.product(np.linspace(3.5, 4.5, 101), np.linspace(1.6, 2.3, 71), (0, 0.2, 1))
    assert squared(a, b, c) <= min(itertools.starmap(squared, grid))


def test_the_overhead_is_never_below_zero():
    fast = planted(A100)
    # Each step 2 ms sooner than the sheet allows: no chip is that, and no overhead is -2 ms.
    steps = [step._replace(seconds=step.seconds - 0.0002) for step in fast]
    assert fit(steps).chip.overhead == 0
    assert 1 < fit(steps).chip.bandwidth_share < 1.05


def test_a_step_with_several_prompts_counts_each_by_itself():
    model = replace(LLAMA_8B, attention=True)
    one = MeasuredStep(0, 0, (4000,), 1)
    two = MeasuredStep(0, 0, [2000, 2000], 1)
    assert predicted([one], A100, model) > predicted([two], A100, model)
    assert predicted([one], A100) == predicted([two], A100)


# The measured steps of the A100


def test_the_shipped_file_is_the_roofline_and_what_was_measured():
    # The file holds its own roofline and ratio, reckoned elsewhere.
    with A100_STEPS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    steps = read_steps()
    assert len(steps) == len(rows) == 100
    for row, ms, ratio in zip(rows, 1000 * predicted(steps, A100), ratios(steps, A100)):
        assert abs(ms - float(row["roofline_ms"])) < 0.00051
        assert abs(ratio - float(row["ratio"])) < 0.0006  # theirs is of more digits
    assert [kind(step) for step in steps] == [row["kind"] for row in rows]
    assert [step.source for step in steps] == [row["source"] for row in rows]


def test_the_grid_and_the_rest():
    grid = a100_grid()
    assert [sum(kind(s) == k for s in grid) for k in ("decode", "prefill", "mixed")] == [56, 10, 0]
    rest = [step for step in read_steps() if step not in grid]
    assert sum(kind(step) == "mixed" for step in rest) == 10
    assert sum("Meta-Llama-3-8B" in step.source for step in rest) == 14
    assert sum("estimate" in step.source for step in rest) == 10


def test_the_constants_of_the_a100():
    found = fit(a100_grid())
    peak, bandwidth, overhead = constants(found.chip)
    assert (f"{peak:.4f} {bandwidth:.4f} {1e3 * overhead:.3f}") == "0.7867 0.7665 1.807"
    assert (round(peak, 2), round(bandwidth, 2), round(overhead, 4)) == constants(A100_MEASURED)
    assert replace(found.chip, peak_share=1, bandwidth_share=1, overhead=0) == replace(
        A100_MEASURED, peak_share=1, bandwidth_share=1, overhead=0
    )
    assert f"{found.mean_error:.4f} {found.worst_error:.4f}" == "0.0341 0.1519"
    assert (found.worst.running, found.worst.context_tokens) == (128, 128 * 128)


def test_the_errors_that_are_stated():
    grid, rest = a100_grid(), [s for s in read_steps() if "estimate" not in s.source]
    rest = [step for step in rest if step not in grid]

    def said(steps, chip):
        off = errors(steps, chip)
        return f"{100 * off.mean():.1f} {100 * off.max():.1f}"

    assert said(grid, A100) == "32.2 43.8"
    assert said(grid, A100_MEASURED) == "3.2 15.6"
    assert said(rest, A100) == "33.0 52.3"  # 24 that the fit has not seen
    assert said(rest, A100_MEASURED) == "8.4 27.6"


def test_steps_left_out():
    check = cross_check(a100_grid())
    assert f"{100 * check.mean_error:.1f} {100 * check.worst_error:.1f}" == "3.8 15.7"
    assert [fold.left_out for fold in check.folds[:2]] == [(1, ()), (2, ())]
    assert [fold.steps for fold in check.folds] == [7] * 8 + [1] * 10
    # Each fold by hand: a fit of the others, the errors of these.
    grid = a100_grid()
    for fold in check.folds:
        others = fit([step for step in grid if batch(step) != fold.left_out]).chip
        these = errors([step for step in grid if batch(step) == fold.left_out], others)
        assert (fold.chip, fold.mean_error, fold.worst_error) == (
            others,
            pytest.approx(these.mean()),
            pytest.approx(these.max()),
        )
    assert check.worst_error == max(fold.worst_error for fold in check.folds)


def test_steps_left_out_another_way():
    context = cross_check(a100_grid(), by=lambda s: s.prompts or s.context_tokens // s.running)
    assert len(context.folds) == 7 + 10
    exact = cross_check(planted(A100_MEASURED), by=kind)
    assert exact.worst_error < 1e-9


def test_attention_brings_the_long_prompts_nearer():
    long = [s for s in a100_grid() if sum(s.prompts) in (2048, 8192)]
    counted = replace(LLAMA_8B, attention=True)
    assert [f"{r:.2f}" for r in ratios(long, A100)] == ["1.22", "1.37"]
    assert [f"{r:.2f}" for r in ratios(long, A100, counted)] == ["1.18", "1.21"]


def test_where_max_is_too_kind():
    mixed = [s for s in read_steps() if kind(s) == "mixed" and sum(s.prompts) <= 128]
    assert [f"{r:.2f}" for r in ratios(mixed, A100)] == ["1.70", "1.99", "1.78", "2.10"]
    # Nothing of the prompt shows in the roofline: memory limits the step with it and without.
    for step in mixed:
        alone = step._replace(prompts=())
        assert predicted([step], A100) == predicted([alone], A100)


# What is refused

DECODE = [step for step in planted(A100_MEASURED) if kind(step) == "decode"]
PREFILL = [step for step in planted(A100_MEASURED) if sum(step.prompts) > 500]


@pytest.mark.parametrize(
    "steps, wrong",
    [
        ([], "at least 4 steps, not 0"),
        (planted(A100)[:3], "at least 4 steps, not 3"),
        (DECODE, "peak_share can't be told.*prompt of at least 459 tokens"),
        ([*PREFILL, *PREFILL], "bandwidth_share can't be told.*a few chats"),
        ([*DECODE[:1] * 3, *PREFILL[:1] * 3], "overhead can't be told.*contexts or prompts"),
    ],
)
def test_steps_that_leave_a_constant_open(steps, wrong):
    with pytest.raises(ValueError, match=wrong):
        fit(steps)


def test_as_many_tokens_as_it_asks_for_are_enough():
    asked = [*planted(A100_MEASURED)[:9], MeasuredStep(0, 0, (459,), 0.025)]
    assert 0 < fit(asked).chip.peak_share < 1.2


def test_constants_that_no_card_has():
    milliseconds = [step._replace(seconds=1000 * step.seconds) for step in planted(A100)]
    with pytest.raises(ValueError, match=r"peak_share would be 0.001.*A100 80GB SXM.*Llama 3.1 8B"):
        fit(milliseconds)
    with pytest.raises(ValueError, match=r"share would be"):
        fit(planted(replace(A100, peak=2 * A100.peak)))
    with pytest.raises(ValueError, match=r"share would be"):
        fit(planted(A100), model=replace(LLAMA_8B, weights=80_000_000_000))


@pytest.mark.parametrize(
    "step, wrong",
    [
        (MeasuredStep(-1, 0, (), 1), "running chats in step 13 .* not -1"),
        (MeasuredStep(2, 1, (), 1), "contexts in step 13 .* at least 2, not 1"),
        (MeasuredStep(1, 10, (0,), 1), "a prompt in step 13 .* not 0"),
        (MeasuredStep(1, 10, 100, 1), "prompts in step 13 must be a sequence, not 100"),
        (MeasuredStep(1, 10, (), 0), "measured time in step 13 .* not 0"),
        (MeasuredStep(1, 10, (), float("nan")), "measured time in step 13 .* not nan"),
        (MeasuredStep(0, 0, (), 1), "step 13 has neither a running chat nor a prompt"),
    ],
)
def test_steps_that_cannot_be(step, wrong):
    for check in (fit, cross_check):
        with pytest.raises(ValueError, match=wrong):
            check([*planted(A100_MEASURED), step])


def test_a_fold_that_leaves_a_constant_open_is_named():
    steps = [s for s in planted(A100_MEASURED) if s.prompts in ((), (700,))]
    with pytest.raises(ValueError, match=r"without the steps of \(0, \(700,\)\): peak_share"):
        cross_check(steps)


def test_a_file_of_your_own(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("\ufeffgpu," + HEAD + "L4,2,100,0,30.5\nL4,0,0,512,99\n", encoding="utf-8")
    assert read_steps(path) == [
        MeasuredStep(2, 200, (), 0.0305),
        MeasuredStep(0, 0, (512,), 0.099),
    ]


@pytest.mark.parametrize(
    "content, wrong",
    [
        ("decode_batch,ctx_per_seq,measured_ms\n1,2,3\n", "no column prefill_tokens, only decode"),
        ("", "no column decode_batch, only none"),
        (HEAD + "1,100,0,9\n1,100,0,fast\n", "line 3: measured_ms must be a number, not 'fast'"),
        (HEAD + "1,100\n", "line 2: prefill_tokens must be a number, not None"),
        (HEAD + "1.5,100,0,9\n", "decode_batch in .*line 2 must be a whole number.* not 1.5"),
        (HEAD + "-1,100,0,9\n", "decode_batch in .*line 2 .* not -1"),
        (HEAD + "1,0,0,9\n", "contexts in .*line 2 .* at least 1, not 0"),
        (HEAD + "0,0,0,9\n", "line 2 has neither"),
        (HEAD + "1,100,0,0\n", "measured time in .*line 2 must be above 0"),
        (HEAD + "1,100,0,inf\n", "measured time in .*line 2 must be finite"),
        (HEAD + '1,100,0,"9\n', "is not a CSV file"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, content, wrong):
    path = tmp_path / "mine.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=wrong) as error:
        read_steps(path)
    assert str(path) in str(error.value)


def test_no_text_and_no_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not a CSV file"):
        read_steps(path)
    with pytest.raises(ValueError, match="no file"):
        read_steps(tmp_path)
