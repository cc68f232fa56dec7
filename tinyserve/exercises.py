"""The exercises' checks: each right answer is computed, none is written down.

Used by all chapters: `check("pages 1", answer)` is what a cell calls. Standard library and the
package's core only, so that it also runs where nothing else is installed.
"""

from collections import namedtuple
from itertools import pairwise, permutations
from math import ceil, floor, isclose, log10
from numbers import Real
from pathlib import Path

from tinyserve import fast
from tinyserve.batcher import Run, Server, serve
from tinyserve.cache import PagePool, pages_for
from tinyserve.metrics import percentile, report
from tinyserve.ondemand import OnDemandServer
from tinyserve.roofline import A100, LLAMA_8B, step_parts, step_seconds, users_that_fit
from tinyserve.slots import SlotRun, simulate
from tinyserve.workload import Workload, batching_requests, invented_chats


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
    if isinstance(right, str):
        return isinstance(answer, str) and answer.strip().lower() == right
    if digits is None:
        return answer == right
    try:
        answer, right = float(answer), float(right)
    except (TypeError, ValueError):
        return False
    place = floor(log10(abs(right))) + 1 if right else 0  # of the first significant digit
    return isclose(answer, right, rel_tol=1e-9, abs_tol=0.5 * 10.0 ** (place - digits))


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


def compare(function, cases, right):
    """True if `function` gives `right`'s answer to every case, else what it got wrong."""
    if not callable(function):
        return f"{function!r} is not a function."
    for case in cases:
        got, wanted = function(*case), right(*case)
        if got != wanted:
            names = {Run: "a run", SlotRun: "a run", PagePool: "a pool", Workload: "a workload"}
            arguments = ", ".join(names.get(type(a)) or repr(a) for a in case)
            return f"with {arguments} it gives {got!r}, not {wanted!r}."
    return True


# One step, many users


@exercise("one step 1", hint="Which of the two jobs decides, and what happens to it?", digits=3)
def _():
    read = LLAMA_8B.weight_bytes + 1000 * LLAMA_8B.kv_bytes_per_token
    return 1000 * read / (2 * A100.bandwidth)


@exercise("one step 2", hint="Which of the two jobs decides? Does the peak change it?", digits=3)
def _():
    return 1000 * step_seconds([1000])


@exercise("one step 3")
def _(function):
    def most(tokens_per_second):
        read = A100.bandwidth / tokens_per_second - LLAMA_8B.weight_bytes
        return floor(read / (1000 * LLAMA_8B.kv_bytes_per_token))

    return compare(function, [(120,), (100,), (60,), (30,)], most)


# Where it stops


@exercise("where it stops 1", hint="The weights take the same room on the smaller chip.")
def _():
    left = int(40e9) - LLAMA_8B.weight_bytes
    return left // (1000 * LLAMA_8B.kv_bytes_per_token)


@exercise("where it stops 2", hint="Raise the users until step_parts gives arithmetic >= memory.")
def _():
    gain = LLAMA_8B.flops_per_token / A100.peak
    gain -= 300 * LLAMA_8B.kv_bytes_per_token / A100.bandwidth
    return ceil(LLAMA_8B.weight_bytes / A100.bandwidth / gain)


@exercise("where it stops 3")
def _(function):
    def wall(tokens):
        users = range(1, users_that_fit(tokens) + 1)
        parts = (step_parts(n, n * tokens, 0) for n in users)
        return "arithmetic" if any(a >= m for a, m in parts) else "memory full"

    return compare(function, [(50,), (500,), (639,), (640,), (700,), (1000,)], wall)


# Fixed or continuous


def toy(replies=(2, 6, 3, 1, 4, 2)):
    """The six requests of "Fixed or continuous"."""
    return Workload([0] * len(replies), [1] * len(replies), replies)


@exercise("batching 1", hint="Two slots, 18 tokens; draw the two lines.")
def _():
    return len(simulate(toy(), 2, "continuous", cost=1).steps)


@exercise("batching 2", hint="Which requests should share a batch, so that few slots stay empty?")
def _():
    orders = set(permutations((2, 6, 3, 1, 4, 2)))
    return min(len(simulate(toy(order), 4, "fixed", cost=1).steps) for order in orders)


@exercise("batching 3")
def _(function):
    def steps(replies, slots):
        return len(simulate(toy(replies), slots, "fixed", cost=1).steps)

    cases = [([2, 6, 3, 1, 4, 2], 4), ([2, 6, 3, 1, 4, 2], 1), ([5, 1, 1, 9, 2], 2), ([3], 8)]
    return compare(function, cases, steps)


# Light and heavy traffic


@exercise("traffic 1", hint="simulate(..., slots=16, policy='fixed'), then mean_wait.", digits=3)
def _():
    return simulate(batching_requests().at_rate(8), 16, "fixed").mean_wait


@exercise("traffic 2", hint="Try 1, 2, 3 slots and so on for the continuous server.")
def _():
    requests = batching_requests().at_rate(8)
    goal = simulate(requests, 8, "fixed").all_done
    return min(n for n in range(1, 49) if simulate(requests, n, "continuous").all_done <= goal)


@exercise("traffic 3")
def _(function):
    def share(run):
        cells = [seat is None and step.waiting > 0 for step in run.steps for seat in step.slots]
        return sum(cells) / len(cells)

    requests = batching_requests().at_rate(8)
    runs = [(simulate(requests, 8, policy),) for policy in ("fixed", "continuous")]
    return compare(function, [*runs, (simulate(toy(), 4, "fixed", cost=1),)], share)


# From slots to pages


def late(pages, limit=8, rate=8):
    """How many of the 48 requests have their first token later than on slots."""
    requests = batching_requests().at_rate(rate)
    on_slots = simulate(requests, limit).first
    on_pages = fast.serve(requests, pages, limit).first
    return sum(b - a > 1e-12 for a, b in zip(on_slots, on_pages))


@exercise("two parts 1", hint="How many pages were promised at most with a cache without end?")
def _():
    return next(pages for pages in range(51, 999) if late(pages) == 0)


@exercise("two parts 2", hint="with_pages(100) counts them.")
def _():
    return late(100)


@exercise("two parts 3")
def _(function):
    def nobody(requests, pages, limit):
        return late(pages, limit, requests.rate) == 0

    requests = batching_requests()
    cases = [(8, 197, 8), (8, 196, 8), (1, 120, 8), (16, 300, 16), (2, 60, 4)]
    cases = [(requests.at_rate(rate), pages, limit) for rate, pages, limit in cases]
    return compare(function, cases, nobody)


# The queue


def three_chats():
    """The three chats of "The queue", served."""
    return serve(Workload([0, 0.002, 0.009], [40, 60, 30], [4, 3, 2]), pages=20, limit=4)


@exercise("queue 1", hint="Which is the first step that starts after 10 ms?", digits=3)
def _():
    return 1000 * min(step.start for step in three_chats().steps if step.start >= 0.010)


@exercise("queue 2", hint="Compare each step's start with the start plus the length of the last.")
def _():
    steps = serve(invented_chats(400).at_rate(10), pages=240, limit=16).steps
    return sum(b.start - a.start > a.seconds * (1 + 1e-9) for a, b in pairwise(steps))


@exercise("queue 3")
def _(function):
    run = three_chats()

    def waiting(run, seconds):
        sent = sum(time <= seconds for time in run.workload.send)
        return sent - sum(time <= seconds for time in run.admitted)

    return compare(function, [(run, t) for t in (0.001, 0.005, *run.admitted, 0.01)], waiting)


# Admission


@exercise("admission 1", hint='It is "cache", "batch", "cache and batch" or "".')
def _():
    full = Server(Workload([0], [16], [16]), pages=2, limit=1)
    full.arrive()
    full.admit()
    return full.held_out(0)


@exercise("admission 2", hint="The pages of all four must be promised at the same time.")
def _():
    four = Workload([0, 0, 0, 0], [60, 120, 10, 10], [20, 20, 6, 6])
    return next(n for n in range(9, 99) if serve(four, pages=n, limit=4).steps[0].joined == 4)


@exercise("admission 3")
def _(function):
    def joins(needs, pages, limit):
        tokens = [16 * need for need in needs]
        chats = Workload([0] * len(needs), [n - 1 for n in tokens], [1] * len(needs))
        server = Server(chats, max(pages, *needs), limit)
        server.pool.promised = server.pool.pages - pages
        server.arrive()
        server.admit()
        return len(server.joined)

    cases = [([5, 9, 1, 1], 10, 4), ([1, 1, 1], 10, 2), ([3, 3, 4], 10, 9), ([7, 2], 6, 4)]
    return compare(function, cases, joins)


# The step


@exercise("step 1", hint="No prompt is read; the cache of sixteen chats is fetched.", digits=2)
def _():
    return 1000 * step_seconds([220] * 16)


@exercise("step 2", hint="Add up the seconds of the steps with joined above 0, and of all.")
def _():
    run = serve(invented_chats(400).at_rate(40), pages=240, limit=16)
    writing = sum(step.seconds for step in run.steps if step.joined == 0)
    return round(100 * (1 - writing / max(run.done)))


@exercise("step 3")
def _(function):
    def longest(contexts, milliseconds):
        tokens = milliseconds / 1000 * A100.peak / LLAMA_8B.flops_per_token
        return floor(tokens) - len(contexts)

    return compare(function, [([300] * 7, 20), ([37, 159], 10), ([], 30.5)], longest)


# Pages


@exercise("pages 1", hint="Prompt and reply share the pages, and a page is taken whole.")
def _():
    return pages_for(100 + 50)


@exercise("pages 2", hint="With large pages A needs 2, B needs 2 and C needs 1, of 3.", digits=3)
def _():
    three = Workload([0, 0, 0], [34, 20, 5], [10, 20, 5])
    return 1000 * serve(three, pages=3, limit=4, page_size=32).first[2]


@exercise("pages 3")
def _(function):
    pool = PagePool(6)
    pool.promise("A", 90)
    pool.grow("A", 50)

    def fits(pool, prompt):
        return prompt < 16 * len(pool.free)

    return compare(function, [(pool, 31), (pool, 32), (pool, 5), (PagePool(1), 16)], fits)


# The waits


@exercise("waits 1", hint="Sort the eleven; 0.9 x 11 is rounded up.")
def _():
    return percentile([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], 90)


@exercise("waits 2", hint="Eleven tokens have ten gaps between them.", digits=4)
def _():
    return (2.0 - 1.0) / (11 - 1) * 1000


@exercise("waits 3")
def _(function):
    run = serve(invented_chats(400).at_rate(10), pages=240, limit=16)

    def share(run, seconds):
        late = [f for f, sent in zip(run.first, run.workload.send) if f - sent > seconds]
        return (len(run.first) - len(late)) / len(run.first)

    return compare(function, [(run, t) for t in (0.001, 0.01, 0.02, 0.05, 1)], share)


# Load


@exercise("load 1", hint="How long is the line at the end, and how fast is it served?", digits=1)
def _():
    return 60 * (45 / 30 - 1)


@exercise("load 2", hint="Shuffle first, then set the rate, then serve and report.", digits=3)
def _():
    chats = invented_chats(400).at_rate(40).shuffled(1)
    return report(serve(chats, pages=240, limit=16)).ttft_p99


@exercise("load 3")
def _(function):
    chats = invented_chats(400)

    def highest(seconds):
        waits = (report(serve(chats.at_rate(r), 240, 16)).ttft_p99 for r in range(1, 99))
        return next(rate for rate, wait in enumerate(waits) if wait > seconds)

    return compare(function, [(0.1,), (1.0,)], highest)


# A real run


@exercise("real run 1", hint="How many pages can still be promised, and how many places are free?")
def _():
    server = Server(Workload([0] * 13, [288] * 12 + [16], [1] * 12 + [300]), pages=240, limit=16)
    for chat in range(12):
        server.pool.promise(chat, 320)
    server.joined, server.running = [], dict.fromkeys(range(12), 1)
    return server.held_out(12)


@exercise("real run 2", hint="All chats that joined before step 35 stand before it in the line.")
def _():
    run = serve(invented_chats(400).at_rate(40), pages=240, limit=16)
    full = next(step.start for step in run.steps if "cache" in step.blocked)
    return min(chat for chat, joined in enumerate(run.admitted) if joined > full)


@exercise("real run 3")
def _(function):
    chats = invented_chats(400).at_rate(40)

    def fewest(limit):
        runs = ((pages, serve(chats, pages, limit)) for pages in range(100, 9999, 100))
        return next(p for p, run in runs if not any("cache" in s.blocked for s in run.steps))

    return compare(function, [(8,), (16,), (24,)], fewest)


# What the toy leaves out


@exercise(
    "left out 1", hint='Are there free places? Are there free pages? "cache", "batch", "neither"?'
)
def _():
    return reading(running=16, places=16, used=0.40, preempted=0)


@exercise(
    "left out 2", hint='Are there free places? Are there free pages? "cache", "batch", "neither"?'
)
def _():
    return reading(running=21, places=64, used=0.98, preempted=12)


def reading(running, places, used, preempted):
    """The wall that four readings of a server with a queue point at, as the chapter says."""
    if running >= places:
        return "batch"
    return "cache" if used > 0.95 or preempted else "neither"


@exercise("left out 3")
def _(function):
    chats = invented_chats(400)

    def stretched(factor):
        # Slower steps by a factor are faster chats by the same factor, on a slower clock.
        run = serve(chats.at_rate(40 * factor), pages=240, limit=16)
        return report(run).ttft_p99 * factor

    if not callable(function):
        return f"{function!r} is not a function."
    for factor in (1, 1.25, 2):
        got, wanted = function(factor), stretched(factor)
        if not isinstance(got, Real) or not isclose(got, wanted, rel_tol=1e-6):
            return f"with {factor} it gives {got!r}, not {wanted!r}."
    return True


# The same server, counted


@exercise("counted 1", hint="It gets a token in the very step in which it joins.")
def _():
    prefix = Workload([0] * 41, [1] * 41, [1] * 40 + [27])
    run = serve(prefix, pages=9, limit=1)
    return len(run.steps) - 1


@exercise("counted 2", hint="Two pages hold 32 tokens; when does it have one more?")
def _():
    pool = PagePool(9)
    return next(step for step in range(99) if pool.grow("A", 21 + step) or pool.held == 3)


@exercise("counted 3")
def _(function):
    class Watched(Server):
        """Notes down the sum of the running contexts before each step."""

        def cost(self):
            prompts = self.workload.prompts
            sums.append(sum(prompts[chat] + made for chat, made in self.running.items()))
            super().cost()

    if not callable(function):
        return f"{function!r} is not a function."
    for rate, pages, limit in ((40, 240, 16), (5, 120, 8)):
        sums = []
        run = Watched(invented_chats(60).at_rate(rate), pages, limit).serve()
        got = function(run)
        if list(got or ()) != sums:
            return f"at {rate} chats a second it gives other sums than the server had."
    return True


# The map of walls


def heavy_p99(pages, places, order=0):
    """p99 wait at 40 chats a second, in seconds, in one order of the 400 chats."""
    chats = invented_chats(400).shuffled(order) if order else invented_chats(400)
    return report(fast.serve(chats.at_rate(40), pages, places)).ttft_p99


@exercise("map 1", hint="Pages that a chat in a step needs on average, times the places.")
def _():
    chats = invented_chats(400)
    busy = sum(pages_for(chats.total(i)) * chats.replies[i] for i in range(400))
    return round(14 * busy / sum(chats.replies))


@exercise("map 2", hint="Go up in steps of 32 from 160, and look at wait(pages, 16)[1].")
def _():
    def middle(pages):
        return percentile([heavy_p99(pages, 16, order) for order in range(8)], 50)

    return next(pages for pages in range(160, 680, 32) if middle(pages) < 1.5)


@exercise("map 3")
def _(function):
    def helps(pages, places):
        by_pages = heavy_p99(pages + 32, places)
        return "pages" if by_pages < heavy_p99(pages, places + 2) else "places"

    return compare(function, [(240, 16), (480, 16), (300, 30), (600, 12)], helps)


# How far is the toy from a real card?


@exercise("real card 1", hint="The weights are read all the same. Which share, and what else?")
def _():
    return round(1000 * (LLAMA_8B.weight_bytes / (0.77 * A100.bandwidth) + 0.0018), 2)


@exercise("real card 2", hint="Raise the chats until step_parts gives arithmetic >= memory.")
def _():
    peak, bandwidth = 0.79 * A100.peak, 0.77 * A100.bandwidth
    gain = LLAMA_8B.flops_per_token / peak - 100 * LLAMA_8B.kv_bytes_per_token / bandwidth
    return ceil(LLAMA_8B.weight_bytes / bandwidth / gain)


@exercise("real card 3")
def _(function):
    def fine(seconds):
        return round(seconds, 9) if isinstance(seconds, Real) else seconds

    def summed(running, context, prompt):
        flops = LLAMA_8B.flops_per_token * (running + prompt)
        read = LLAMA_8B.weight_bytes + LLAMA_8B.kv_bytes_per_token * context
        return fine(flops / (0.79 * A100.peak) + read / (0.77 * A100.bandwidth) + 0.0018)

    if not callable(function):
        return f"{function!r} is not a function."
    cases = [(1, 1000, 0), (8, 8192, 128), (0, 0, 577), (16, 16_000, 64)]
    return compare(lambda *sizes: fine(function(*sizes)), cases, summed)


# A match that is luck


@exercise("real requests 1", hint="Each is promised all its pages: how many has it in the end?")
def _():
    return sum(1 for _ in range(95, 2589, 95))  # 1,510 tokens need 95 pages


@exercise("real requests 2", hint="The pages of 858 tokens.")
def _():
    return sum(1 for _ in range(54, 2589, 54))


@exercise("real requests 3")
def _(function):
    def thrown_out(pages):
        ten = Workload([0] * 10, [100] * 10, [100] * 10)
        server = OnDemandServer(ten, pages, 10)
        # Every joining but the first of each chat is one after being thrown out.
        return sum(step.joined for step in server.serve().steps) - 10

    return compare(function, [(130,), (100,), (70,), (44,), (21,), (13,)], thrown_out)


# Read a real server


def pool_with(used):
    """A pool of 63 pages of 32 tokens, so many of them in use."""
    pool = PagePool(63, 32)
    pool.grow("others", 32 * used)
    return pool


@exercise("real server 1", hint="How many pages are free, and how many does its prompt need?")
def _():
    server = Server(Workload([0], [1300], [1]), pages=63, limit=16, page_size=32)
    server.pool.promise("others", 25 * 32)
    server.joined, server.running = [], dict.fromkeys(range(1, 5), 1)
    return server.held_out(0) or "neither"


@exercise("real server 2", hint="How many pages does it need, and how many must be free?")
def _():
    return max(used for used in range(64) if len(pool_with(used).free) * 32 >= 700)


@exercise("real server 3")
def _(function):
    def wall(polls, limit):
        full = sorted(running == limit for running, waiting in polls if waiting)
        return ("batch" if full[len(full) // 2] else "cache") if full else "none"

    cases = [[], [(4, 0), (2, 0)], [(4, 1), (3, 9)], [(4, 1), (3, 9), (2, 5)], [(4, 7)] * 3]
    return compare(function, [(polls, 4) for polls in cases], wall)


# Two numbers with one name


@exercise("two numbers 1", hint="One shares 4.5 s among 21, the other 4 s among 20.", digits=3)
def _():
    # What the first token does to an average: its own wait in place of a gap, among one more.
    gap = (4.5 - 0.5) / 20
    return 1000 * (0.5 - gap) / 21


@exercise("two numbers 2", hint="The two connections are free again at 0.5 and 0.6 s.", digits=2)
def _():
    ends = []  # in tenths of a second
    for due in range(8):
        ends.append(max(due, ends[due - 2] if due > 1 else 0) + 5)
    return (ends[7] - 7) / 10


@exercise("two numbers 3")
def _(function):
    if not callable(function):
        return f"{function!r} is not a function."
    for before, after in (((0, 0), (21034, 0)), ((21034, 0), (63102, 39552)), ((5, 5), (9, 9))):
        got = function(before, after)
        asked, found = (late - early for early, late in zip(before, after))
        if not isinstance(got, Real) or not isclose(got, 1 - found / asked, abs_tol=1e-9):
            return f"between {before} and {after} it gives {got!r}, not {1 - found / asked}."
    return True


# Replay a real log


def azure_log():
    """The trace that comes with the package: send times in seconds, prompts and replies."""
    path = Path(__file__).parent / "data" / "azure2023_conv_400.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row.strip().split(",") for row in file][1:]
    # Dates of one day, with more digits than `datetime` reads.
    clock = [[float(part) for part in row[0].split(" ")[1].split(":")] for row in rows]
    seconds = [3600 * hour + 60 * minute + second for hour, minute, second in clock]
    return [t - seconds[0] for t in seconds], *([int(row[i]) for row in rows] for i in (1, 2))


@exercise("replay 1", hint="As in the chapter: log.speed(3), then queue_max of the report.")
def _():
    send, *lengths = azure_log()
    run = serve(Workload([time / 3 for time in send], *lengths), 6000, 64)
    return max(step.queue for step in run.steps)


@exercise(
    "replay 2",
    hint="200 chats have 199 gaps. How long is it from the first chat to the last?",
    digits=3,
)
def _():
    return 199 / (99 / 0.03 + 100 / 3)


@exercise("replay 3")
def _(function):
    if not callable(function):
        return f"{function!r} is not a function."
    for rate, pages, limit in ((40, 240, 16), (40, 480, 24), (10, 120, 16)):
        run = serve(invented_chats(100).at_rate(rate), pages, limit)
        alone, whole = 0.0, sum(first - sent for first, sent in zip(run.first, run.workload.send))
        for chat, sent in enumerate(run.workload.send):
            for step in run.steps:
                inside = sent <= step.start < run.admitted[chat]
                alone += step.seconds if inside and step.blocked == "cache" else 0
        got = function(run)
        if not (isinstance(got, Real) and isclose(got, alone / whole, abs_tol=1e-6)):
            return f"at {rate} chats a second it gives {got!r}, not {alone / whole:.6f}."
    return True


# How much load can it take?


@exercise("capacity 1", hint="Waiting on average = coming a second x average wait.")
def _():
    return 3 / 2


@exercise("capacity 2", hint="ts.goodput, with both limits in seconds.", digits=3)
def _():
    run = serve(invented_chats(400).at_rate(40), 240, 16)
    late = {i for i, first in enumerate(run.first) if first - run.workload.send[i] > 2}
    slow = set()
    for i, reply in enumerate(run.workload.replies):
        if run.done[i] - run.first[i] > 0.01 * (reply - 1) and reply > 1:
            slow.add(i)
    return (400 - len(late | slow)) / 400


@exercise("capacity 3")
def _(function):
    if not callable(function):
        return f"{function!r} is not a function."
    for rate, pages, limit in ((40, 240, 16), (10, 240, 16), (20, 120, 8)):
        run = serve(invented_chats(100).at_rate(rate), pages, limit)
        sent, here, area, then = list(run.workload.send), 0, 0.0, 0.0
        events = [(time, 1) for time in sent] + [(time, -1) for time in run.admitted]
        for now, change in sorted(events):
            here, area, then = here + change, area + here * (now - then), now
        right = area / (max(run.done) - sent[0])
        got = function(run)
        if not (isinstance(got, Real) and isclose(got, right, rel_tol=1e-6, abs_tol=1e-9)):
            return f"at {rate} chats a second it gives {got!r}, not {right:.6f}."
    return True
