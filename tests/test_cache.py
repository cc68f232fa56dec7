"""The pool of pages: what is free, who holds which, what is promised, and no page in two places."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BAD_COUNTS, short

import tinyserve as ts
from tinyserve.cache import PAGE_SIZE


def state(pool):
    """Everything a pool knows, as a copy."""
    return copy.deepcopy((list(pool.free), pool.tables, pool.promises, pool.promised, pool.held))


def test_pages_from_the_left_and_back_on_the_right():
    pool = ts.PagePool(6)
    pool.grow("A", 35)
    pool.grow("B", 21)
    assert pool.tables == {"A": [0, 1, 2], "B": [3, 4]} and list(pool.free) == [5]
    pool.release("A")
    assert list(pool.free) == [5, 0, 1, 2] and pool.held == 2
    pool.grow("B", 49)  # 4 pages in all, no neighbours
    assert pool.tables == {"B": [3, 4, 5, 0]} and list(pool.free) == [1, 2]


def test_a_page_is_taken_when_the_last_one_is_full():
    pool = ts.PagePool(3)
    held = []
    for tokens in range(1, 49):
        pool.grow("A", tokens)
        held.append(pool.held)
    assert held == [1] * 16 + [2] * 16 + [3] * 16
    pool.grow("A", 5)  # fewer than it has: nothing is given back
    assert pool.held == 3


def test_a_promise_is_not_a_page():
    pool = ts.PagePool(6)
    pool.promise("A", 44)
    pool.promise("B", 40)
    assert pool.promises == {"A": 3, "B": 3} and pool.promised == 6 and pool.held == 0
    assert not pool.can_promise(1)
    pool.grow("A", 35)
    pool.release("A")
    assert pool.promises == {"B": 3} and pool.promised == 3 and pool.can_promise(48)
    assert not pool.can_promise(49)


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_pages_for_hold_the_tokens_and_no_page_is_idle(tokens, page_size):
    pages = ts.pages_for(tokens, page_size)
    assert (pages - 1) * page_size < tokens <= pages * page_size or tokens == pages == 0


def test_the_page_of_the_lesson():
    assert PAGE_SIZE == 16 and ts.pages_for(150) == 10
    first_four = (34 + 10, 157 + 27, 457 + 23, 248 + 41)
    assert [ts.pages_for(total) for total in first_four] == [3, 12, 30, 19]
    assert [ts.pages_for(tokens) for tokens in (0, 1, 16, 17, 32, 33)] == [0, 1, 1, 2, 2, 3]


chats = st.sampled_from("ABCDE")
moves = st.one_of(
    st.tuples(st.just("promise"), chats, st.integers(1, 60)),
    st.tuples(st.just("grow"), chats, st.integers(1, 60)),
    st.tuples(st.just("release"), chats, st.none()),
)


@given(st.integers(1, 12), st.integers(1, 20), st.lists(moves, max_size=40))
def test_any_script_keeps_every_page_in_one_place(pages, page_size, script):
    pool = ts.PagePool(pages, page_size)
    for move, chat, tokens in script:
        before = state(pool)
        need = math.ceil(tokens / page_size) if tokens else 0
        table = before[1].get(chat, [])
        if move == "promise":
            allowed = chat not in before[2] and sum(before[2].values()) + need <= pages
        elif move == "grow":
            allowed = need - len(table) <= len(before[0])
        else:
            allowed = chat in before[1]
        if allowed:
            getattr(pool, move)(*[chat, tokens][: 1 if move == "release" else 2])
        else:  # refused, and nothing has changed
            with pytest.raises(KeyError if move == "release" else ValueError, match=chat):
                getattr(pool, move)(*[chat, tokens][: 1 if move == "release" else 2])
            assert state(pool) == before
        if allowed and move == "grow":
            taken = max(0, need - len(table))
            assert pool.tables[chat] == table + before[0][:taken]
            assert list(pool.free) == before[0][taken:]
        if allowed and move == "release":
            assert list(pool.free) == before[0] + table
            assert chat not in pool.tables and chat not in pool.promises
        everywhere = list(pool.free) + [page for table in pool.tables.values() for page in table]
        assert sorted(everywhere) == list(range(pages))
        assert pool.held + len(pool.free) == pages
        assert pool.promised == sum(pool.promises.values()) <= pages


def test_what_is_refused_changes_nothing():
    pool = ts.PagePool(2)
    pool.promise("A", 20)
    pool.grow("A", 16)
    before = state(pool)
    with pytest.raises(ValueError, match="20 tokens to chat 'B'"):
        pool.promise("B", 20)
    with pytest.raises(ValueError, match="'A'"):
        pool.promise("A", 1)  # twice
    with pytest.raises(ValueError, match="'B' needs 2 more pages, 1 are free"):
        pool.grow("B", 17)
    with pytest.raises(KeyError, match="B"):
        pool.release("B")
    assert state(pool) == before


@pytest.mark.parametrize("bad", BAD_COUNTS, ids=short)
def test_sizes_are_refused(bad):
    for name, refused in (
        ("pages", lambda: ts.PagePool(bad)),
        ("page_size", lambda: ts.PagePool(4, bad)),
        ("page_size", lambda: ts.pages_for(4, bad)),
    ):
        with pytest.raises(ValueError) as error:
            refused()
        assert name in str(error.value) and repr(bad) in str(error.value)


NOT_A_LENGTH = [bad for bad in BAD_COUNTS if short(bad) not in ("0", "np.int64(0)")]


@pytest.mark.parametrize("bad", NOT_A_LENGTH, ids=short)
def test_lengths_are_refused(bad):
    pool = ts.PagePool(4)
    for refused in (
        lambda: ts.pages_for(bad),
        lambda: pool.can_promise(bad),
        lambda: pool.promise("A", bad),
        lambda: pool.grow("A", bad),
    ):
        with pytest.raises(ValueError) as error:
            refused()
        assert repr(bad) in str(error.value)
    assert state(pool) == state(ts.PagePool(4))


def test_numpy_integers_are_accepted():
    pool = ts.PagePool(np.int64(4), np.uint8(16))
    pool.promise("A", np.int16(33))
    pool.grow("A", np.uint8(33))
    assert pool.tables == {"A": [0, 1, 2]} and pool.promised == 3
    assert type(pool.pages) is int and type(pool.page_size) is int
