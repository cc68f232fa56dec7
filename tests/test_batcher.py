"""The server: by hand, against the plain one step by step, and what must hold after every step."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_server import plain_serve
from strategies import BAD_COUNTS, servers, short, workloads

import tinyserve as ts

# A token costs a second and nothing else costs anything worth a digit: the length of a step is
# the number of its tokens, and every time below is a whole number of seconds.
TOKEN_A_SECOND = {
    "model": ts.Model("one operation", weights=1, layers=1, kv_heads=1, head_size=1),
    "chip": ts.Chip("two operations a second", peak=2, bandwidth=1e9, memory=1e9),
}


def test_three_chats_by_hand():
    # Pages of 4 tokens, 4 of them, at most 2 chats in a step.
    #   A sent 0, prompt 3, reply 3: 6 tokens, 2 pages
    #   B sent 1, prompt 2, reply 2: 4 tokens, 1 page
    #   C sent 2, prompt 5, reply 2: 7 tokens, 2 pages
    # 0 to 3   A joins, 2 pages promised. Its prompt is 3 tokens: 3 s. It has 4 tokens: 1 page.
    # 3 to 6   B joins, 3 promised. C needs 2 of the 1 left, and 2 chats are in: both hold it out.
    #          A's one token and B's prompt of 2: 3 s. A has 5 tokens, 2 pages; B 3, 1 page.
    # 6 to 8   C is still held out by both. Two tokens: 2 s. A and B are done, all pages back.
    # 8 to 13  C joins: 5 s. It has 6 tokens: 2 pages.
    # 13 to 14 C's last token: 1 s.
    chats = ts.Workload([0, 1, 2], [3, 2, 5], [3, 2, 2])
    run = ts.serve(chats, pages=4, limit=2, page_size=4, **TOKEN_A_SECOND)
    assert [tuple(step) for step in run.steps] == [
        # start, seconds, chats, joined, queue, held, owed, blocked
        (0, 3, 1, 1, 0, 1, 1, ""),
        (3, 3, 2, 1, 1, 3, 0, "cache and batch"),
        (6, 2, 2, 0, 1, 0, 0, "cache and batch"),
        (8, 5, 1, 1, 0, 2, 0, ""),
        (13, 1, 1, 0, 0, 0, 0, ""),
    ]
    assert run.admitted == [0, 3, 8]
    assert run.first == [3, 6, 13]
    assert run.done == [8, 8, 14]
    # TTFT: 3 - 0, 6 - 1, 13 - 2 = 3, 5, 11; the p50 of three is the 2nd, the p99 the 3rd.
    # Gaps: A 3 and 2, B 2, C 1; in order 1, 2, 2, 3; the p50 of four is the 2nd, the p99 the 4th.
    # A gap a chat, on average: A 2.5, B 2, C 1; p50 2, p99 2.5.
    # 1 chat of 3 waited; both walls held it out for 2 steps each: both. First at 3 s.
    # 3 chats and 7 tokens in 14 s.
    assert ts.report(run) == ts.Report(
        ttft_p50=5,
        ttft_p99=11,
        tbt_p50=2,
        tbt_p99=3,
        mean_tbt_p50=2,
        mean_tbt_p99=2.5,
        queue_max=1,
        pages_max=3,
        cache_steps=2,
        batch_steps=2,
        cache_full_at=3,
        chats_per_second=3 / 14,
        tokens_per_second=7 / 14,
        wall="both",
    )


def test_a_chat_waits_beside_a_free_page():
    # A needs 3 pages in the end, B 3, C 1; there are 6. C waits for A's 10 tokens.
    run = ts.serve(ts.Workload([0, 0, 0], [34, 20, 5], [10, 20, 5]), pages=6, limit=4)
    assert [f"{1000 * time:.1f}" for time in run.first] == ["7.9", "7.9", "86.7"]
    assert [step.blocked for step in run.steps] == ["cache"] * 10 + [""] * 10
    shown = [run.steps[i][2:] for i in (0, 9, 10, 12)]
    assert shown == [
        (2, 2, 1, 5, 1, "cache"),
        (2, 0, 1, 2, 1, "cache"),
        (2, 1, 0, 3, 1, ""),
        (2, 0, 0, 4, 0, ""),
    ]
    # Each gap is the step's: 9 of A, 19 of B, 4 of C. Weights 16,060,522,496 bytes, the cache
    # 131,072 a token, at 2,039e9 bytes a second; step 2 reads 35 + 21 tokens.
    assert run.steps[1].seconds == (16_060_522_496 + 131_072 * 56) / 2039e9
    assert run.steps[10].seconds == (16_060_522_496 + 131_072 * 30) / 2039e9  # C joins: not read
    assert run.steps[11].seconds == (16_060_522_496 + 131_072 * (31 + 6)) / 2039e9
    lengths = [step.seconds for step in run.steps]
    gaps = sorted(lengths[1:10] + lengths[1:20] + lengths[11:15])
    report = ts.report(run)
    assert report.tbt_p50 == gaps[15] and report.tbt_p99 == gaps[31] == max(lengths)  # of 32
    assert (report.ttft_p99, report.wall, report.cache_steps) == (run.first[2], "cache", 10)
    assert report.queue_max == 1 and report.cache_full_at == 0


def test_more_pages_or_fewer_for_the_three():
    chats = ts.Workload([0, 0, 0], [34, 20, 5], [10, 20, 5])
    assert len(set(ts.serve(chats, pages=7, limit=4).first)) == 1
    assert len(set(ts.serve(chats, pages=5, limit=4).first)) == 2  # B waits, and C behind it
    with pytest.raises(ValueError, match=r"chat 0 needs 3 pages .*34.*10.*the 2 of"):
        ts.serve(chats, pages=2, limit=4)


def test_the_heavy_run_is_the_lessons():
    chats = ts.invented_chats().at_rate(40)
    run = ts.serve(chats, pages=240, limit=16)
    sizes = [-(-chats.total(i) // 16) for i in range(4)]
    assert sizes == [3, 12, 30, 19]
    printed = """
         1  0.000    7.9   1  1  0    3   0  237
         2  0.008    8.1   2  1  0   13   2  225
         3  0.016    7.9   2  0  0   13   2  225
         4  0.024   36.4   4  2  0   58   6  176
         5  0.060   29.5   6  2  0   96   8  136
        34  0.381    8.1  11  0  0  181  57    2
        35  0.389    8.1  11  0  2  181  57    2  cache
        36  0.397    8.1  11  0  2  181  57    2  cache
        37  0.405    8.1  11  0  2  182  56    2  cache
    """
    for line in printed.strip().splitlines():
        number = int(line.split()[0])
        step = run.steps[number - 1]
        left = run.pages - step.held - step.owed
        again = [f"{step.start:.3f}", f"{1000 * step.seconds:.1f}", *step[2:7], left, step.blocked]
        assert " ".join(map(str, [number, *again])).split() == line.split()
    waiting = [i for i in range(400) if run.admitted[i] > run.steps[34].start >= chats.send[i]]
    assert len(waiting) == 2 and -(-chats.total(waiting[0]) // 16) == 3  # it needs 3, 2 are left


def test_the_five_runs_walls_are_the_lessons():
    def wall(rate, pages, limit):
        run = ts.serve(ts.invented_chats().at_rate(rate), pages, limit)
        return ts.report(run).wall

    assert [wall(10, 240, 16), wall(10, 240, 8)] == ["none", "none"]
    assert [wall(40, 240, 16), wall(10, 120, 16)] == ["cache", "cache"]
    assert [wall(40, 480, 16), wall(40, 960, 16)] == ["batch", "batch"]
    assert wall(40, 480, 24) == "both"


# The second implementation.


class Photographed(ts.Server):
    """A server that keeps a copy of its page tables and free list after every step."""

    def record(self):
        super().record()
        tables = {chat: list(pages) for chat, pages in self.pool.tables.items()}
        self.photos = [*getattr(self, "photos", []), (tables, list(self.pool.free))]


def assert_same(server, run, plain):
    assert [tuple(step) for step in run.steps] == plain["rows"]
    assert (run.admitted, run.first, run.done) == (
        plain["admitted"],
        plain["first"],
        plain["done"],
    )
    for photo, tables, free in itertools.zip_longest(server.photos, plain["tables"], plain["free"]):
        assert photo == (tables, free)


@settings(max_examples=3 * settings().max_examples)
@given(servers())
def test_the_plain_server_does_the_same_in_every_step(arguments):
    server = Photographed(**arguments)
    run = server.serve()
    workload, *sizes = arguments.values()
    chats = list(zip(workload.send, workload.prompts, workload.replies))
    assert_same(server, run, plain_serve(chats, *sizes))


@pytest.mark.parametrize("pages, limit", [(240, 16), (480, 24), (60, 3)])
def test_the_plain_server_does_the_same_with_the_lessons_chats(pages, limit):
    workload = ts.invented_chats(150).at_rate(40)
    server = Photographed(workload, pages, limit)
    chats = list(zip(workload.send, workload.prompts, workload.replies))
    assert_same(server, server.serve(), plain_serve(chats, pages, limit))


# What must hold after every method of every step.


class Watched(ts.Server):
    """A server that checks itself after each of its six methods."""

    def check(self):
        pool, chats = self.pool, len(self.workload)
        # No page lost, none in two places; nothing promised that is not there.
        tables = list(pool.tables.values())
        assert sorted(itertools.chain(pool.free, *tables)) == list(range(pool.pages))
        assert pool.held == sum(map(len, tables)) == pool.pages - len(pool.free)
        assert pool.promised == sum(pool.promises.values()) <= pool.pages
        assert all(len(table) <= pool.promises[chat] for chat, table in pool.tables.items())
        # Every chat is in one place: not sent, waiting, in the step, or done.
        inside = self.running.keys() | set(getattr(self, "joined", []))
        gone = {chat for chat in range(chats) if self.done[chat] is not None}
        inside -= gone
        away = range(self.sent, chats)
        assert sorted([*away, *self.queue, *inside, *gone]) == list(range(chats))
        assert pool.promises.keys() == inside
        assert len(inside) <= self.limit
        # The queue is in the order sent, and nobody in it was sent after now.
        assert list(self.queue) == sorted(self.queue)
        assert all(self.workload.send[chat] <= self.now for chat in self.queue)
        # The clock never goes back.
        assert self.now >= getattr(self, "before", 0.0)
        self.before = self.now

    def arrive(self):
        super().arrive()
        self.check()
        assert self.queue or self.running
        assert all(time > self.now for time in self.workload.send[self.sent :])

    def admit(self):
        running, promised = len(self.running), self.pool.promised
        super().admit()
        self.check()
        # Never idle with a chat that could start: the head is held out by a wall or not at all.
        for chat in self.joined:
            running, promised = running + 1, promised + self.pages_of(chat)
        walls = []
        if self.queue:
            if promised + self.pages_of(self.queue[0]) > self.pool.pages:
                walls.append("cache")
            if running == self.limit:
                walls.append("batch")
            assert walls
        assert self.blocked == " and ".join(walls)
        assert self.running or self.joined

    def pages_of(self, chat):
        return -(-self.workload.total(chat) // self.pool.page_size)

    def cost(self):
        super().cost()
        self.check()
        assert self.now == self.start + self.seconds > self.start

    def write(self):
        before = dict(self.running)
        super().write()
        self.check()
        assert self.running.keys() == before.keys() | set(self.joined)
        for chat, made in self.running.items():
            assert made == before.get(chat, 0) + 1 <= self.workload.replies[chat]
            stored = self.workload.prompts[chat] + made
            assert len(self.pool.tables[chat]) == -(-stored // self.pool.page_size)

    def finish(self):
        before = dict(self.running)
        super().finish()
        self.check()
        for chat in before.keys() - self.running.keys():
            assert before[chat] == self.workload.replies[chat] and self.done[chat] == self.now
        assert all(made < self.workload.replies[chat] for chat, made in self.running.items())

    def record(self):
        super().record()
        self.check()
        step = self.steps[-1]
        assert step.held + step.owed == self.pool.promised and step.owed >= 0
        assert 1 <= step.chats <= self.limit and 0 <= step.joined <= step.chats
        assert step.queue == len(self.queue)


def watch(**arguments):
    """Serve under watch, check what must hold at the end, and return the Run."""
    server = Watched(**arguments)
    run = server.serve()
    workload = run.workload
    assert not server.queue and not server.running and server.sent == len(workload)
    assert server.pool.held == server.pool.promised == 0
    assert not server.pool.tables and not server.pool.promises
    for chat, sent in enumerate(workload.send):
        assert sent <= run.admitted[chat] < run.first[chat] <= run.done[chat]
        # A token in each step from the one it joined in to the one it ended in.
        steps = [s for s in run.steps if run.admitted[chat] <= s.start < run.done[chat]]
        assert len(steps) == workload.replies[chat]
        assert steps[0].start + steps[0].seconds == run.first[chat]
    assert run.admitted == sorted(run.admitted)  # first come, first served
    assert sum(step.joined for step in run.steps) == len(workload)
    assert sum(step.chats for step in run.steps) == sum(workload.replies)
    for one, two in itertools.pairwise(run.steps):
        assert one.start + one.seconds <= two.start
        if one.start + one.seconds < two.start:  # idle: nobody was there, and somebody comes
            assert one.queue == 0 and one.held == 0
            assert two.start in workload.send
    return run


@settings(max_examples=2 * settings().max_examples)
@given(servers())
def test_what_must_hold_on_random_chats(arguments):
    run = watch(**arguments)
    assert run == ts.serve(**arguments)  # watched or not, and once more: the same run


@pytest.mark.parametrize(
    "rate, pages, limit", [(10, 240, 16), (40, 240, 16), (40, 480, 24), (1000, 60, 400)]
)
def test_what_must_hold_on_the_lessons_chats(rate, pages, limit):
    watch(workload=ts.invented_chats().at_rate(rate), pages=pages, limit=limit)


def test_the_watch_sees_a_fault():
    class Overtaking(Watched):
        def admit(self):
            self.queue.reverse()
            super().admit()

    class Forgetful(Watched):
        def finish(self):
            self.pool.free.popleft()
            super().finish()

    class Lazy(Watched):
        def held_out(self, chat):
            return "batch" if self.running else super().held_out(chat)

    class Greedy(Watched):
        def held_out(self, chat):
            return ""

    arguments = {"workload": ts.invented_chats(40).at_rate(40), "pages": 60, "limit": 3}
    for broken in (Overtaking, Forgetful, Lazy):
        with pytest.raises(AssertionError):
            broken(**arguments).serve()
    with pytest.raises((AssertionError, ValueError)):
        Greedy(**arguments).serve()


# Ends of the scale.


def test_one_chat_of_one_token():
    run = ts.serve(ts.Workload([7], [1], [1]), pages=1, limit=1)
    assert [step[2:] for step in run.steps] == [(1, 1, 0, 0, 0, "")]
    assert run.admitted == [7] and run.first == run.done == [7 + run.steps[0].seconds]


@given(workloads(), st.integers(150, 10**9), st.integers(10, 10**9))
def test_room_for_all_is_room_for_all(chats, page_size, limit):
    need = sum(-(-chats.total(i) // page_size) for i in range(len(chats)))
    run = watch(workload=chats, pages=need, limit=limit, page_size=page_size)
    assert not any(step.queue or step.blocked for step in run.steps)


@given(servers(prompt=40, reply=12))
def test_a_limit_of_one_serves_one_at_a_time(arguments):
    run = watch(**(arguments | {"limit": 1}))
    assert all(step.chats == 1 for step in run.steps)
    for done, admitted in zip(run.done, run.admitted[1:]):
        assert admitted >= done


def test_all_at_once_and_far_apart():
    at_once = watch(workload=ts.Workload([5] * 50, [16] * 50, [4] * 50), pages=10, limit=9)
    assert [step.joined for step in at_once.steps if step.joined] == [5] * 10  # 2 pages each
    apart = watch(workload=ts.Workload([0, 1e6], [16] * 2, [4] * 2), pages=10, limit=9)
    assert len(apart.steps) == 8 and apart.admitted == [0, 1e6]


def test_the_clock_is_at_least_as_fine_as_a_step():
    # At 1.7e18 (a time in nanoseconds, taken for seconds) a float cannot add a step of 8 ms.
    with pytest.raises(ValueError, match=r"1\.7e\+18"):
        ts.serve(ts.Workload([1.7e18], [10], [5]), pages=4, limit=4)
    run = watch(workload=ts.Workload([1.7e9, 1.7e9 + 1], [10] * 2, [5] * 2), pages=4, limit=4)
    assert f"{1000 * ts.report(run).ttft_p99:.1f}" == "7.9"


def test_a_big_page_holds_a_chat_of_any_length():
    run = ts.serve(ts.Workload([0], [10**9], [2]), pages=1, limit=1, page_size=10**30)
    assert [step.held for step in run.steps] == [1, 0]


def test_a_long_run_keeps_up():
    chats = ts.invented_chats(10_000).at_rate(20)
    run = ts.serve(chats, pages=400, limit=24)
    assert sum(step.chats for step in run.steps) == sum(chats.replies)
    assert None not in run.done and ts.report(run).ttft_p50 > 0


# One rule, one method.


def test_a_variant_changes_one_method():
    class Steady(ts.Server):
        def cost(self):
            self.start, self.seconds = self.now, 1.0
            self.now += 1.0

    class OneAtATime(ts.Server):
        def held_out(self, chat):
            return "cache" if self.running or self.joined else ""

    chats = ts.Workload([0, 0.5, 0.5], [34, 20, 5], [3, 2, 2])
    run = Steady(chats, pages=10, limit=2).serve()
    assert run.first == [1, 2, 4] and run.done == [3, 3, 5]
    run = OneAtATime(chats, pages=10, limit=9).serve()
    assert all(step.chats == 1 for step in run.steps)


# What a Run shows.


def test_the_trace_is_the_steps():
    run = ts.serve(ts.invented_chats(30).at_rate(40), pages=60, limit=4)
    trace = run.trace()
    assert isinstance(trace, pd.DataFrame) and list(trace.index) == list(range(1, len(trace) + 1))
    assert list(trace.columns) == [*ts.Step._fields, "left"]
    for row, step in zip(trace.itertuples(index=False), run.steps, strict=True):
        assert tuple(row) == (*step, 60 - step.held - step.owed)


def test_a_run_knows_its_settings():
    chats = ts.invented_chats(5)
    run = ts.serve(chats, np.int64(99), np.uint8(7), page_size=8.0)
    assert run.workload is chats and (run.pages, run.limit, run.page_size) == (99, 7, 8)
    assert all(type(size) is int for size in run[1:4])
    assert run == ts.serve(chats, 99, 7, 8)


# The doors.


@pytest.mark.parametrize("bad", BAD_COUNTS, ids=short)
def test_sizes_are_refused(bad):
    sizes = {"pages": 40, "limit": 4, "page_size": 16}
    for name in sizes:
        for door in (ts.serve, ts.Server):
            with pytest.raises(ValueError) as error:
                door(ts.invented_chats(3), **(sizes | {name: bad}))
            assert name in str(error.value) and repr(bad) in str(error.value)


def test_a_chat_larger_than_the_pool_is_named():
    chats = ts.Workload([0, 1, 2], [16, 900, 5], [16, 7, 5])
    with pytest.raises(ValueError) as error:
        ts.serve(chats, pages=50, limit=4)
    said = str(error.value)
    for part in ("chat 1", "57 pages of 16", "prompt 900", "reply 7", "the 50 of"):
        assert part in said
    ts.serve(chats, pages=57, limit=4)


@pytest.mark.parametrize("serve", [ts.serve, ts.fast.serve, ts.Server])
def test_a_workload_that_is_none_is_named(serve):
    with pytest.raises(ValueError, match=r"workload must be a Workload, not \[1\]"):
        serve([1], 240, 16)
