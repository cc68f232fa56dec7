"""The same server, counted instead of walked: constant work a step, constant work a chat.

Introduced in the chapter "The same server, counted". The plain loop touches every running
chat in every step. Three things make that unnecessary. The contexts' sum is a whole number
that grows by the chats running. A chat's last step is known when it joins. And the chats
that take a page in a step are those that joined in steps with one remainder.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isfinite
from operator import add, eq, sub
from struct import pack

from tinyserve.batcher import Run, Step
from tinyserve.cache import PAGE_SIZE, PagePool
from tinyserve.checks import a_workload, every_chat_fits, number, whole
from tinyserve.metrics import Report, which_wall
from tinyserve.roofline import A100, LLAMA_8B, pairs_in

BLOCKED = ("", "cache", "batch", "cache and batch")
RECORDS = ("steps", "seconds", "summary")
MOST = 1e7  # pages; as in PagePool
CHUNK = 4096  # steps between two visits to the record and the progress bar


class Steps(Sequence):
    """Steps kept in arrays: 37 bytes each, where a list of Step takes some 250.

    Reads like the list: an index gives a Step, a slice a list of them, and it equals a list
    of the same steps.
    """

    # start, seconds, chats, joined, queue, held, promised, and an index into BLOCKED
    kinds = "ddiiiiib"

    def __init__(self):
        self.chunks = []  # each has an array a column, CHUNK long; the last may be shorter

    def add(self, chunk):
        """Keep some more steps, given as arrays, one a column."""
        self.chunks.append(chunk)

    def __len__(self):
        return CHUNK * (len(self.chunks) - 1) + len(self.chunks[-1][0]) if self.chunks else 0

    def __getitem__(self, at):
        where = range(len(self))[at]
        if isinstance(at, slice):
            return [self[i] for i in where]
        *counts, held, promised, blocked = (c[where % CHUNK] for c in self.chunks[where // CHUNK])
        return Step(*counts, held, promised - held, BLOCKED[blocked])

    def __iter__(self):
        for *counts, held, promised, blocked in self.chunks:
            owed = map(sub, promised, held)
            yield from map(Step, *counts, held, owed, map(BLOCKED.__getitem__, blocked))

    def __eq__(self, other):
        if isinstance(other, Steps):
            return self.chunks == other.chunks
        if not isinstance(other, list):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # like a list

    def __repr__(self):
        return f"<{len(self):,} steps>"


SECOND = "second steps tokens joined queue held promised cache batch"


class Second(namedtuple("Second", SECOND)):
    """What is kept of the steps that start within one second of the clock.

    second: seconds, whole; steps: how many; tokens: of replies, written in them; joined:
    chats; queue, held, promised: the largest of each; cache, batch: steps in which that wall
    held the head of the queue out.
    """

    __slots__ = ()


@dataclass
class Summary:
    """What a report needs of all steps, in memory that does not grow with their number.

    steps, tokens: how many; gaps: how often each length of a step, in seconds, was a gap
    between two tokens of one chat; the others are fields of Report. `seconds` is a list of
    Second, or None. The number of different lengths is bounded: a step's length follows from
    its tokens or from its context, and both are whole numbers with a limit.
    """

    steps: int = 0
    tokens: int = 0
    gaps: dict = field(default_factory=dict)
    queue_max: int = 0
    pages_max: int = 0
    cache_steps: int = 0
    batch_steps: int = 0
    cache_full_at: float | None = None
    seconds: list | None = None

    def add(self, columns):
        """Count some more steps, given as sequences, one a column of `Steps`."""
        start, length, chats, joined, queue, held, _, blocked = columns
        gaps = self.gaps
        for seconds, count in zip(length, map(sub, chats, joined)):
            if count:
                gaps[seconds] = gaps.get(seconds, 0) + count
        self.steps += len(start)
        self.tokens += sum(chats)
        self.queue_max = max(self.queue_max, max(queue))
        self.pages_max = max(self.pages_max, max(held))
        cache, both = blocked.count(1), blocked.count(3)
        if self.cache_full_at is None and cache + both:
            self.cache_full_at = next(at for at, why in zip(start, blocked) if why & 1)
        self.cache_steps += cache + both
        self.batch_steps += blocked.count(2) + both
        if self.seconds is not None:
            self._add_seconds(columns)

    def _add_seconds(self, columns):
        start, rows, low = columns[0], self.seconds, 0
        while low < len(start):
            second = int(start[low])
            high = bisect_left(start, second + 1, low)
            _, _, chats, joined, queue, held, promised, blocked = (c[low:high] for c in columns)
            both = blocked.count(3)
            walls = blocked.count(1) + both, blocked.count(2) + both
            sums, tops = (high - low, sum(chats), sum(joined)), map(max, (queue, held, promised))
            if rows and rows[-1].second == second:  # the step before was in the same second
                last = rows.pop()
                sums, tops = map(add, sums, last[1:4]), map(max, tops, last[4:7])
                walls = map(add, walls, last[7:])
            rows.append(Second(second, *sums, *tops, *walls))
            low = high

    def __len__(self):
        return self.steps

    def __iter__(self):
        raise TypeError(
            "this run kept a summary and not its steps: read it with tinyserve.fast.report, "
            'or serve with record="steps"'
        )


def counted(workload, pages, limit, size, cost, times, chunk):
    """The loop. Yields every `chunk` steps, as (an array a column of `Steps`, chats done).

    The arguments are checked already. cost: the model's and the chip's numbers of
    `step_cost`; times: arrays for admitted, first and done, which it fills.
    """
    send, prompts, replies = workload.send, workload.prompts, workload.replies
    admitted, first, done = times
    per_token, per_pair, weights, per_context, peak, bandwidth, overhead = cost
    chats = len(send)
    ends = {}  # step -> the chats whose last token is written in it
    # Running chats by the remainder of the steps in which they take a page.
    takers = [0] * size if size < 2**20 else defaultdict(int)
    head = sent = running = context = promised = held = made = 0
    now, due = 0.0, send[0]  # due: when the next chat is sent
    while running or head < chats:
        columns = starts, lengths, in_step, new, queues, helds, promises, blocks = [
            [] for _ in Steps.kinds
        ]
        for step in range(made, made + chunk):
            # 1. Who has been sent by now? When idle, the clock jumps to the next chat.
            if not running and head == sent:
                if head == chats:
                    break
                if due > now:
                    now = due
            while due <= now and sent < chats:
                sent += 1
                due = send[sent] if sent < chats else inf
            # Who runs takes the pages of this step; who joins is not among them yet.
            held += takers[step % size]
            # 2. Who joins? With the step that will be its last, and its turn to take pages.
            blocked = joined = prompt_tokens = pairs = 0
            while head < sent:
                prompt, reply = prompts[head], replies[head]
                need = -(-(prompt + reply) // size)
                blocked = (promised + need > pages) + 2 * (running + joined >= limit)
                if blocked:
                    break
                promised += need
                prompt_tokens += prompt
                if per_pair:  # attention is counted
                    pairs += pairs_in(prompt)
                held += -(-(prompt + 1) // size)
                takers[(step - prompt) % size] += 1
                end = step + reply - 1
                if end in ends:
                    ends[end].append(head)
                else:
                    ends[end] = [head]
                joined += 1
                head += 1
            # 3. How long does it take?
            flops = per_token * (running + prompt_tokens) + per_pair * (context + pairs)
            arithmetic, memory = flops / peak, (weights + per_context * context) / bandwidth
            seconds = (arithmetic if arithmetic > memory else memory) + overhead
            starts.append(now)
            lengths.append(seconds)
            # 4. Everyone in it has a token more, and who joined a prompt as well.
            if joined:
                for chat in range(head - joined, head):
                    admitted[chat] = now
                    first[chat] = now + seconds
                running += joined
                context += prompt_tokens
            context += running
            now += seconds
            in_step.append(running)
            new.append(joined)
            queues.append(sent - head)
            # 5. Who is done?
            if step in ends:
                for chat in ends.pop(step):
                    prompt, reply = prompts[chat], replies[chat]
                    need = -(-(prompt + reply) // size)
                    done[chat] = now
                    running -= 1
                    context -= prompt + reply
                    held -= need
                    promised -= need
                    takers[(step - reply + 1 - prompt) % size] -= 1
            # 6. The rest of the record.
            helds.append(held)
            promises.append(promised)
            blocks.append(blocked)
        made += len(starts)
        yield list(map(_packed, Steps.kinds, columns)), head - running


def _packed(kind, values):
    return array(kind, pack(f"{len(values)}{kind}", *values))  # 3 times as quick as array alone


def serve(workload, pages, limit, page_size=PAGE_SIZE, model=LLAMA_8B, chip=A100,
          record="steps", progress=False, compiled=False):  # fmt: skip
    """Serve a workload and return its Run: that of `tinyserve.serve`, to the last bit.

    The first six arguments are those of `tinyserve.serve`, and so is what raises a
    ValueError. record: "steps" keeps every step, 37 bytes each; "summary" keeps none,
    and `run.steps` is a `Summary`; "seconds" is a summary with one row a second of the
    clock in `run.steps.seconds`. `report` below gives exact percentiles for all three.
    progress: shows a bar of chats done (needs tqdm). compiled: runs the loop as machine
    code; raises ImportError without numba. Raises ValueError for another record too.
    """
    if record not in RECORDS:
        raise ValueError(f"record must be one of {', '.join(map(repr, RECORDS))}, not {record!r}")
    pages, size = whole("pages", pages, most=MOST), whole("page_size", page_size)
    limit, chats = whole("limit", limit), len(a_workload(workload))
    longest = max(workload.prompts) + max(workload.replies)  # no chat is longer
    if longest > pages * size:
        every_chat_fits(workload, PagePool(pages, size))  # says which chat does not, if one
    work = model.flops_per_token, model.flops_per_pair, model.weight_bytes, model.kv_bytes_per_token
    places, unit = min(limit, chats), min(size, longest)  # more would change nothing
    loop = counted
    if compiled:
        loop = _compiled()
        largest = max(*work, model.flops_per_pair * longest) * places * longest
        if largest >= 2**62 or max(unit, max(workload.replies)) > 2**24:
            loop = counted  # numbers for more than 64 bits, or arrays for more than memory
    keep = Steps() if record == "steps" else Summary(seconds=[] if record == "seconds" else None)
    times = [array("d", bytes(8 * chats)) for _ in range(3)]  # admitted, first, done
    bar = None
    if progress:
        from tqdm import tqdm

        bar = tqdm(total=chats, unit="chat")
    try:
        cost = (*work, chip.peak * chip.peak_share, chip.bandwidth * chip.bandwidth_share)
        cost += (chip.overhead,)
        for chunk, done in loop(workload, pages, places, unit, cost, times, CHUNK):
            keep.add(chunk)
            if bar is not None:
                bar.update(done - bar.n)
    finally:
        if bar is not None:
            bar.close()
    if record == "steps":
        times = [each.tolist() for each in times]
    return Run(workload, pages, limit, size, model, chip, *times, keep)


def _compiled():
    try:
        from tinyserve.compiled import counted
    except ImportError as error:
        raise ImportError(
            "compiled=True needs numba, an extra of the package: pip install 'tinyserve[compiled]'"
        ) from error
    return counted


def _p50_and_p99(values, counts=None):
    """As in `tinyserve.metrics`, from one sorting; values and counts are a list and a dict."""
    if not values:
        return [None, None]
    for value in values:
        if not isfinite(value):
            number("a value", value)  # raises
    values = sorted(values)
    if counts is None:
        return [values[-(-q * len(values) // 100) - 1] for q in (50, 99)]
    below = list(accumulate(map(counts.__getitem__, values)))
    return [values[bisect_left(below, -(-q * below[-1] // 100))] for q in (50, 99)]


def report(run):
    """Read a Run and return its Report: that of `tinyserve.report`, to the last bit.

    Takes any Run, also one that kept a summary, and is made for millions of steps. Raises
    ValueError for a time that is not finite, as `tinyserve.report` does.
    """
    if isinstance(run.steps, Summary):
        read = run.steps
    else:
        read = Summary()
        for chunk in run.steps.chunks if isinstance(run.steps, Steps) else _chunks(run.steps):
            read.add(chunk)
    send, replies = run.workload.send, run.workload.replies
    ttft = list(map(sub, run.first, send))
    chats = zip(run.first, run.done, replies)
    means = [(done - first) / (reply - 1) for first, done, reply in chats if reply > 1]
    took = max(run.done) - send[0]
    waits = _p50_and_p99(ttft) + _p50_and_p99(list(read.gaps), read.gaps) + _p50_and_p99(means)
    counts = [read.queue_max, read.pages_max, read.cache_steps, read.batch_steps]
    pace = [read.cache_full_at, len(send) / took, sum(replies) / took]
    wall = which_wall(read.queue_max, read.cache_steps, read.batch_steps, len(send))
    return Report(*waits, *counts, *pace, wall)


def _chunks(steps):
    """A list of Step as one chunk of columns."""
    *counts, held, owed, blocked = zip(*steps)
    yield [*counts, held, list(map(add, held, owed)), list(map(BLOCKED.index, blocked))]
