"""Pages on demand: a case by hand, the plain server where there is room, and what must hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import workloads

import tinyserve as ts
from tinyserve.ondemand import OnDemandServer

# A step takes a second, whatever is in it.
SECOND = ts.Chip("a second", peak=1e30, bandwidth=1e30, memory=80e9, overhead=1)


def test_a_case_by_hand():
    # 3 pages of 4 tokens; both chats are sent at 0, prompt 3, reply 6: 3 pages in the end, each.
    # Step 1 reads both and writes their first tokens: 4 tokens, 1 page each. In step 2 A takes
    # its second page. B finds none and is thrown out with 1 token written. A writes tokens 2 to
    # 6 in steps 2 to 6; B needs 2 pages for 4 + 1 tokens, and 1 is free. A ends at 6 s. In step 7
    # B's 4 tokens are read and its second is written; the sixth, in a third page, at 11 s.
    both = ts.Workload([0, 0], [3, 3], [6, 6])
    server = OnDemandServer(both, pages=3, limit=2, page_size=4, chip=SECOND)
    run = server.serve()
    assert server.preempted == [(1, 1)]
    assert (run.first, run.done) == ([1, 1], [6, 11])
    assert [step.chats for step in run.steps] == [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [step.joined for step in run.steps] == [2] + [0] * 5 + [1] + [0] * 4
    assert [step.blocked for step in run.steps] == [""] + ["cache"] * 5 + [""] * 5
    assert [step.held for step in run.steps] == [2, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0]
    assert run.workload is both and run.admitted == [0, 0]
    # The toy would have let B wait outside: 3 pages are promised to A.
    promised = ts.serve(both, pages=3, limit=2, page_size=4, chip=SECOND)
    assert (promised.first, promised.done) == ([1, 7], [6, 12])


def test_the_chat_that_was_let_in_last_goes_even_if_it_asks_itself():
    # 2 pages of 4: A has 1 + 1 + ..., B needs its second page first (3 + 2 tokens), and is alone
    # to blame: it is the youngest, so it throws out itself.
    run = (server := OnDemandServer(
        ts.Workload([0, 0], [1, 3], [3, 2]), pages=2, limit=2, page_size=4, chip=SECOND
    )).serve()  # fmt: skip
    assert server.preempted == [(1, 1)]
    assert (run.first, run.done) == ([1, 1], [3, 4])


@given(workloads(10, 60, 40), st.integers(1, 8), st.integers(1, 12))
def test_with_room_for_all_it_is_the_plain_server(chats, limit, page_size):
    room = sum(ts.pages_for(chats.total(chat), page_size) for chat in range(len(chats)))
    server = OnDemandServer(chats, room, limit, page_size)
    run, plain = server.serve(), ts.serve(chats, room, limit, page_size)
    assert server.preempted == []
    assert run._replace(steps=None) == plain._replace(steps=None)
    owed = [step._replace(owed=0) for step in plain.steps]
    assert run.steps == owed


@given(workloads(10, 60, 40), st.integers(1, 8), st.integers(1, 12), st.integers(0, 20))
def test_what_must_hold(chats, limit, page_size, spare):
    pages = spare + max(ts.pages_for(chats.total(chat), page_size) for chat in range(len(chats)))
    server = OnDemandServer(chats, pages, limit, page_size)
    run = server.serve()
    assert sorted(server.pool.free) == list(range(pages))  # all pages are back, each once
    assert server.pool.promised == 0 and not server.pool.tables
    # Each token is written in a step: those of the replies, no more and no fewer.
    assert sum(step.chats for step in run.steps) == sum(chats.replies)
    assert sum(step.joined for step in run.steps) == len(chats) + len(server.preempted)
    assert all(step.held <= pages and step.owed == 0 for step in run.steps)
    assert all(step.chats <= limit for step in run.steps)
    for sent, admitted, first, done in zip(chats.send, run.admitted, run.first, run.done):
        assert sent <= admitted < first <= done
    assert all(a.start + a.seconds <= b.start for a, b in zip(run.steps, run.steps[1:]))


def test_a_chat_that_never_fits_is_refused():
    with pytest.raises(ValueError, match="chat 0 needs 3 pages"):
        OnDemandServer(ts.Workload([0], [3], [6]), pages=2, limit=1, page_size=4)
