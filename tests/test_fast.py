"""The counted server gives the plain server's Run, to the last bit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import workloads

import tinyserve as ts
from tinyserve import fast

CHIPS = [ts.A100, ts.Chip("slow", peak=3e12, bandwidth=1e11, memory=8e9)]
MODELS = [ts.LLAMA_8B, ts.Model("small", weights=10**8, layers=3, kv_heads=1, head_size=7)]


@given(
    workloads(),
    st.sampled_from([1, 2, 3, 16, 17, 64]),
    st.integers(0, 40),
    st.integers(1, 12),
    st.sampled_from(CHIPS),
    st.sampled_from(MODELS),
)
def test_the_counted_run_is_the_plain_run(chats, page_size, spare, limit, chip, model):
    need = max(ts.pages_for(chats.total(chat), page_size) for chat in range(len(chats)))
    settings = (chats, need + spare, limit, page_size, model, chip)
    plain, counted = ts.serve(*settings), fast.serve(*settings)
    for name in ts.Run._fields:
        assert getattr(counted, name) == getattr(plain, name), name


@pytest.mark.parametrize("rate, pages, limit", [(10, 240, 16), (40, 240, 16), (40, 480, 24)])
def test_the_books_runs(rate, pages, limit):
    chats = ts.invented_chats(400).at_rate(rate)
    assert fast.serve(chats, pages, limit) == ts.serve(chats, pages, limit)


@pytest.mark.parametrize(
    "change, value",
    [({"pages": 1}, "0"), ({"pages": 0}, "0"), ({"limit": 0}, "0"), ({"page_size": True}, "True")],
)
def test_the_same_is_refused(change, value):
    settings = {"pages": 60, "limit": 4, "page_size": 16} | change
    messages = []
    for serve in (ts.serve, fast.serve):
        with pytest.raises(ValueError) as error:
            serve(ts.invented_chats(3), **settings)
        messages.append(str(error.value))
    assert messages[0] == messages[1] and value in messages[0]
