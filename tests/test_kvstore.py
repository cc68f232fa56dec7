"""Real keys and values in pages: the pool's tables, and the attention of unpaged arrays."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BAD_COUNTS, short

import tinyserve as ts
from tinyserve.kvstore import PagedKV, attention


def state(store):
    """Everything a store knows, as a copy."""
    return copy.deepcopy((list(store.free), store.tables, store.lengths)), store.data.copy()


def same(before, after):
    return before[0] == after[0] and np.array_equal(before[1], after[1])


def plain_attention(query, keys, values):
    """Softmax of q.k / sqrt(size), times the values: for one head, in lists, a number at a time."""
    size = len(query)
    scores = [sum(q * k for q, k in zip(query, key)) / math.sqrt(size) for key in keys]
    exponentials = [math.exp(score - max(scores)) for score in scores]
    total = sum(exponentials)
    return [
        sum(e * value[i] for e, value in zip(exponentials, values)) / total for i in range(size)
    ]


moves = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ABCD"), st.integers(1, 12)),
    st.tuples(st.just("release"), st.sampled_from("ABCD"), st.none()),
)


@st.composite
def stores(draw):
    sizes = {"pages": draw(st.integers(1, 8)), "page_size": draw(st.integers(1, 5))}
    sizes |= {name: draw(st.integers(1, 3)) for name in ("layers", "heads", "head_size")}
    return sizes


@given(stores(), st.lists(moves, max_size=25), st.integers(0, 2**32 - 1))
def test_any_script_gives_the_pools_tables_and_the_unpaged_attention(sizes, script, seed):
    rng = np.random.default_rng(seed)
    store, pool = PagedKV(**sizes), ts.PagePool(sizes["pages"], sizes["page_size"])
    unpaged = {}  # chat -> (keys, values), in one piece
    for move, chat, tokens in script:
        if move == "append":
            shape = (tokens, sizes["layers"], sizes["heads"], sizes["head_size"])
            new = rng.normal(size=(2, *shape))
            old = unpaged.get(chat, np.zeros((2, 0, *shape[1:])))
            whole = np.concatenate([old, new], axis=1)
            try:
                pool.grow(chat, whole.shape[1])
            except ValueError:
                before = state(store)
                with pytest.raises(ValueError, match=f"'{chat}' needs .* more pages"):
                    store.append(chat, *new)
                assert same(before, state(store))
            else:
                store.append(chat, *new)
                unpaged[chat] = whole
        elif chat in unpaged:
            pool.release(chat)
            store.release(chat)
            del unpaged[chat]
        assert store.tables == pool.tables
        assert list(store.free) == list(pool.free)
        assert store.lengths == {chat: kept.shape[1] for chat, kept in unpaged.items()}
        for chat, (keys, values) in unpaged.items():
            got = store.gather(chat)
            assert np.array_equal(got[0], keys) and np.array_equal(got[1], values)
    for chat, (keys, values) in unpaged.items():
        query = rng.normal(size=(sizes["heads"], sizes["head_size"]))
        for layer in range(sizes["layers"]):
            paged = store.attend(chat, layer, query)
            assert paged.shape == query.shape
            for head in range(sizes["heads"]):
                parts = (query[head], keys[:, layer, head], values[:, layer, head])
                plain = plain_attention(*(part.tolist() for part in parts))
                assert np.allclose(paged[head], plain, rtol=1e-12, atol=1e-13)


def test_attention_by_hand():
    # Scores 0 and 2 ln 2 / sqrt(4) = ln 2: weights 1/3 and 2/3.
    keys = np.array([[[0.0, 0, 0, 0]], [[2 * math.log(2), 0, 0, 0]]])
    values = np.array([[[3.0, 0, 0, 0]], [[0, 3.0, 0, 0]]])
    got = attention(np.array([[1.0, 0, 0, 0]]), keys, values)
    assert np.allclose(got, [[1, 2, 0, 0]], rtol=0, atol=1e-15)
    # Scores of 1,000 would overflow without the largest taken off.
    assert np.allclose(attention(np.array([[2000.0, 0, 0, 0]]), keys, values), [[0, 3, 0, 0]])


def test_pages_need_not_be_neighbours():
    store = PagedKV(pages=4, layers=1, heads=1, head_size=1, page_size=2)
    tokens = np.arange(1.0, 9.0).reshape(8, 1, 1, 1)
    store.append("A", tokens[:2], -tokens[:2])
    store.append("B", tokens[4:6], -tokens[4:6])
    store.append("A", tokens[2:4], -tokens[2:4])
    assert store.tables == {"A": [0, 2], "B": [1]} and list(store.free) == [3]
    assert store.gather("A")[0].ravel().tolist() == [1, 2, 3, 4]
    assert store.gather("A")[1].ravel().tolist() == [-1, -2, -3, -4]
    store.release("A")
    assert list(store.free) == [3, 0, 2]
    store.append("B", tokens[6:8], -tokens[6:8])
    assert store.tables == {"B": [1, 3]}
    assert store.gather("B")[0].ravel().tolist() == [5, 6, 7, 8]


def test_what_gather_gives_is_a_copy():
    store = PagedKV(2, 1, 1, 1)
    store.append("A", np.ones((3, 1, 1, 1)), np.ones((3, 1, 1, 1)))
    for array in store.gather("A"):
        array[:] = 7
    assert (store.gather("A")[0] == 1).all() and (store.gather("A")[1] == 1).all()


def test_what_is_refused_stores_nothing():
    store = PagedKV(pages=2, layers=1, heads=2, head_size=3, page_size=4)
    good = np.ones((3, 1, 2, 3))
    store.append("A", good, good)
    before = state(store)
    text = np.full((3, 1, 2, 3), "x")
    for keys, values, said in (
        (np.ones((9, 1, 2, 3)), np.ones((9, 1, 2, 3)), "'A' needs 2 more pages, 1 of 2 are free"),
        (np.ones((3, 2, 2, 3)), good, r"keys must have the shape .*\(3, 2, 2, 3\)"),
        (good, np.ones((3, 1, 3, 2)), r"values must have the shape .*\(3, 1, 3, 2\)"),
        (good, np.ones((2, 1, 2, 3)), r"values must have the shape .*\(2, 1, 2, 3\)"),
        (np.ones(3), np.ones(3), "keys must have the shape"),
        (3.0, 3.0, "keys must have the shape"),
        (text, text, "x"),
        (good, text, "x"),
    ):
        with pytest.raises(ValueError, match=said):
            store.append("A", keys, values)
        assert same(before, state(store))
    for unknown in (store.release, store.gather):
        with pytest.raises(KeyError, match="B"):
            unknown("B")
    assert same(before, state(store))
    # The last page still takes what fits.
    store.append("A", np.ones((5, 1, 2, 3)), np.ones((5, 1, 2, 3)))
    assert store.tables == {"A": [0, 1]} and store.lengths == {"A": 8}


def test_a_query_has_one_row_a_head():
    store = PagedKV(pages=1, layers=1, heads=2, head_size=3)
    store.append("A", np.ones((3, 1, 2, 3)), np.ones((3, 1, 2, 3)))
    assert store.attend("A", 0, [[0, 0, 0], [1, 1, 1]]).shape == (2, 3)
    for wrong in (np.ones((1, 3)), np.ones((2, 1)), np.ones(3), np.ones((2, 3, 1))):
        with pytest.raises(ValueError):
            store.attend("A", 0, wrong)


@pytest.mark.parametrize("bad", BAD_COUNTS, ids=short)
def test_sizes_are_refused(bad):
    sizes = {"pages": 2, "layers": 1, "heads": 1, "head_size": 1, "page_size": 4}
    for name in sizes:
        with pytest.raises(ValueError) as error:
            PagedKV(**(sizes | {name: bad}))
        assert name in str(error.value) and repr(bad) in str(error.value)


def test_whole_numbers_of_any_kind_are_sizes():
    store = PagedKV(4.0, np.int64(1), np.uint8(1), 2, page_size=2.0)
    assert list(store.free) == [0, 1, 2, 3] and store.data.shape == (2, 1, 4, 2, 1, 2)
