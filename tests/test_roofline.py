"""What one step costs: the formula against the plain one, the ties, the doors."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_server import plain_cost
from strategies import BAD_COUNTS, BAD_MEASURES, HUGE, short

import tinyserve as ts

# One token costs a second of arithmetic; a token of context a second of memory, the weights 2.
EASY_MODEL = ts.Model("easy", weights=1, layers=1, kv_heads=1, head_size=1, bytes_per_value=2)
EASY_CHIP = ts.Chip("easy", peak=2, bandwidth=1, memory=100)


def test_the_sizes_of_the_model():
    assert ts.LLAMA_8B.flops_per_token == 16_060_522_496 == ts.LLAMA_8B.weight_bytes
    assert ts.LLAMA_8B.kv_bytes_per_token == 131_072
    page = 16 * ts.LLAMA_8B.kv_bytes_per_token
    assert (page, 240 * page) == (2 * 2**20, 480 * 2**20)  # 2 MiB, 480 MiB


def test_smaller_numbers_are_read_sooner_and_not_reckoned_sooner():
    eight = ts.Model("8-bit", 8_030_261_248, 32, 8, 128, bytes_per_value=1)
    assert eight.flops_per_token == ts.LLAMA_8B.flops_per_token
    assert 2 * eight.weight_bytes == ts.LLAMA_8B.weight_bytes
    assert 2 * eight.kv_bytes_per_token == ts.LLAMA_8B.kv_bytes_per_token


def test_a_step_by_hand():
    # Memory: weights 2 bytes, cache 4 bytes a token (key and value, 2 bytes each), 1 byte a second.
    # Arithmetic: 2 operations a token, 2 operations a second.
    def easy(contexts, prompt_tokens=0):
        return ts.step_seconds(contexts, prompt_tokens, EASY_MODEL, EASY_CHIP)

    assert easy([]) == 2  # the weights are read even for nobody
    assert easy([1]) == 2 + 4
    assert easy([1, 2]) == 2 + 12
    assert easy([1, 2], prompt_tokens=11) == 2 + 12  # 13 tokens, 14 bytes
    assert easy([1, 2], prompt_tokens=12) == 14  # a tie
    assert easy([1, 2], prompt_tokens=13) == 15  # arithmetic
    assert ts.step_parts(2, 3, 12, EASY_MODEL, EASY_CHIP) == (14, 14)


def test_the_shares_and_the_overhead_by_hand():
    # As above, but a quarter of the peak, half of the bandwidth, and 3 seconds a step.
    chip = replace(EASY_CHIP, peak_share=0.25, bandwidth_share=0.5, overhead=3)

    def real(contexts, prompt_tokens=0):
        return ts.step_seconds(contexts, prompt_tokens, EASY_MODEL, chip)

    assert real([]) == 2 * 2 + 3
    assert real([1, 2]) == 2 * 14 + 3
    assert real([1, 2], prompt_tokens=5) == 2 * 14 + 3  # arithmetic: 4 times 7 seconds, a tie
    assert real([1, 2], prompt_tokens=6) == 4 * 8 + 3
    assert ts.step_parts(2, 3, 5, EASY_MODEL, chip) == (28, 28)  # without the overhead


def test_attention_by_hand():
    # Llama 3.1 8B: 32 layers of 4,096 numbers, a product with the key and one with the value.
    model = replace(ts.LLAMA_8B, attention=True)
    assert model.flops_per_pair == 2 * 2 * 32 * 4096
    assert ts.LLAMA_8B.flops_per_pair == 0
    # A prompt of 4 tokens: 1 + 2 + 3 + 4 pairs. A chat of 1,000: its new token looks at each.
    assert ts.roofline.pairs_in(4) == 10
    arithmetic, memory = ts.step_parts(1, 1000, 4, model, pairs=10)
    flops = 2 * 8_030_261_248 * 5 + 524_288 * 1010
    assert math.isclose(arithmetic, flops / 312e12)
    assert memory == ts.step_parts(1, 1000, 4)[1]
    # About 3 % of the weights' arithmetic at 1,000 tokens, as the lesson says.
    assert round(100 * 1000 * model.flops_per_pair / model.flops_per_token, 1) == 3.3


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_prompts_that_join_together_do_not_look_at_each_other(prompts):
    model = replace(ts.LLAMA_8B, attention=True)
    pairs = sum(len(range(at)) for prompt in prompts for at in range(1, prompt + 1))
    flops = 2 * 8_030_261_248 * sum(prompts) + 2 * 2 * 32 * 4096 * pairs
    weights = 2 * 8_030_261_248 / 2039e9
    assert math.isclose(ts.step_seconds([], prompts, model), max(flops / 312e12, weights))


@given(st.lists(st.integers(1, 10_000), max_size=70), st.integers(0, 5_000))
def test_a_step_is_the_plain_one(contexts, prompt_tokens):
    assert ts.step_seconds(contexts, prompt_tokens) == plain_cost(contexts, prompt_tokens)


def test_what_the_lesson_says_beside_its_table():
    def ms(users, context, running=0, prompt=0):
        return 1000 * ts.step_seconds([context] * (users + running), prompt)

    assert f"{ms(64, 1000) / ms(1, 1000):.2f}" == "1.51"
    assert f"{1e6 * (ts.step_seconds([1000]) - ts.step_seconds([])):.1f}" == "64.3"  # us of cache
    assert f"{1e6 * ts.step_parts(1, 1000, 0)[0]:.1f}" == "51.5"  # us of arithmetic
    assert f"{1e6 * (ts.step_seconds([100]) - ts.step_seconds([])):.1f}" == "6.4"
    assert ts.step_parts(1, 1000, 0)[0] < 0.01 * ts.step_seconds([1000])  # under 1 % busy
    for users, context, read in ((487, 1000, "79.89"), (243, 2000, "79.76")):
        arithmetic, memory = ts.step_parts(users, users * context, 0)
        assert arithmetic < memory
        assert f"{memory * ts.A100.bandwidth / 1e9:.2f}" == read
    cache_of_one = [ts.LLAMA_8B.kv_bytes_per_token * tokens for tokens in (100, 1000, 2000, 4000)]
    assert [f"{size / 1e6:.0f} MB" for size in cache_of_one] == [
        "13 MB",
        "131 MB",
        "262 MB",
        "524 MB",
    ]
    assert f"{ts.LLAMA_8B.kv_bytes_per_token * 8192 / 1e9:.3f}" == "1.074"
    assert f"{(ts.A100.memory - ts.LLAMA_8B.weight_bytes) / 1e9:.2f}" == "63.94"


@given(st.integers(1, 10**6), st.integers(10**10, 10**12))
def test_users_that_fit_are_as_many_as_fit(tokens, memory):
    users = ts.users_that_fit(tokens, chip=ts.Chip("x", 1, 1, memory))
    taken = ts.LLAMA_8B.weight_bytes + users * tokens * ts.LLAMA_8B.kv_bytes_per_token
    if memory < ts.LLAMA_8B.weight_bytes:
        assert users == 0
    else:
        assert taken <= memory < taken + tokens * ts.LLAMA_8B.kv_bytes_per_token


def test_pages_that_fit():
    assert ts.pages_that_fit() == 25_720
    assert ts.pages_that_fit(share=1, working=0) == ts.users_that_fit(16)
    assert ts.pages_that_fit(share=0.1) == 0
    assert ts.pages_that_fit(page_size=32) == 25_720 // 2


def test_kinds_of_numbers_make_no_difference():
    plain = ts.step_seconds([1000, 34], 577)
    assert ts.step_seconds(np.array([1000, 34], dtype=np.uint16), np.int16(577)) == plain
    assert ts.step_seconds((c for c in (1000, 34)), 577.0) == plain
    assert ts.step_seconds([Fraction(1000), np.float32(34)], np.uint16(577)) == plain
    sizes = {"weights": 1_000_000, "layers": 32, "kv_heads": 8, "head_size": 64}
    model = ts.Model("plain", **sizes)
    narrow = ts.Model("narrow", np.int32(1_000_000), np.int8(32), np.int8(8), np.int8(64))
    assert narrow.kv_bytes_per_token == model.kv_bytes_per_token == 65_536
    big = ts.Model("big", np.int32(2_000_000_000), 1, 1, 1)
    assert big.flops_per_token == big.weight_bytes == 4_000_000_000
    single = ts.Chip("single", np.float32(2**40), np.float32(2**30), 2**31)
    double = ts.Chip("double", 2**40, 2**30, 2**31)
    assert ts.step_seconds([1001], 3, chip=single) == ts.step_seconds([1001], 3, chip=double)


@pytest.mark.parametrize("bad", BAD_COUNTS, ids=short)
def test_counts_are_refused(bad):
    for refused in (
        lambda: ts.step_seconds([5, bad]),
        lambda: ts.users_that_fit(bad),
        lambda: ts.pages_that_fit(page_size=bad),
        lambda: ts.Model("x", bad, 1, 1, 1),
        lambda: ts.Model("x", 1, bad, 1, 1),
        lambda: ts.Model("x", 1, 1, bad, 1),
        lambda: ts.Model("x", 1, 1, 1, bad),
        lambda: ts.Model("x", 1, 1, 1, 1, bad),
        lambda: ts.Model("x", 1, 1, 1, 1, heads=bad, attention=True),
    ):
        with pytest.raises(ValueError) as error:
            refused()
        assert repr(bad) in str(error.value)


@pytest.mark.parametrize("bad", BAD_MEASURES, ids=short)
def test_measures_are_refused(bad):
    for refused in (
        lambda: ts.Chip("x", bad, 1, 1),
        lambda: ts.Chip("x", 1, bad, 1),
        lambda: ts.Chip("x", 1, 1, bad),
        lambda: replace(ts.A100, peak_share=bad),
        lambda: replace(ts.A100, bandwidth_share=bad),
        lambda: ts.pages_that_fit(share=bad),
    ):
        with pytest.raises(ValueError) as error:
            refused()
        assert repr(bad) in str(error.value)


def test_the_error_says_which():
    with pytest.raises(ValueError, match=r"running chat 1 must be .* at least 1, not 0"):
        ts.step_seconds([5, 0, -1])
    with pytest.raises(ValueError, match=r"prompt_tokens must be .* at least 0, not -1"):
        ts.step_seconds([5], -1)
    with pytest.raises(ValueError, match="-2"):
        ts.step_seconds([5], [3, -2])
    with pytest.raises(ValueError, match=r"share must be at most 1, not 1\.1"):
        ts.pages_that_fit(share=1.1)
    with pytest.raises(ValueError, match="working must be at least 0, not -1"):
        ts.pages_that_fit(working=-1)
    with pytest.raises(ValueError, match="chip's bandwidth must be above 0, not 0"):
        ts.Chip("x", 1, 0, 1)
    with pytest.raises(ValueError, match="model's layers"):
        ts.Model("x", 1, HUGE, 1, 1)


def test_a_chip_and_a_model_do_not_change():
    with pytest.raises(AttributeError):
        ts.A100.peak = 1
    with pytest.raises(AttributeError):
        ts.LLAMA_8B.layers = 1


@pytest.mark.parametrize("bad", [-0.001, float("nan"), float("inf"), "1", None, True])
def test_an_overhead_is_refused(bad):
    with pytest.raises(ValueError, match="overhead"):
        replace(ts.A100, overhead=bad)


def test_attention_needs_the_heads():
    with pytest.raises(ValueError, match=r"heads .* not None"):
        ts.Model("x", 1, 1, 1, 1, attention=True)
