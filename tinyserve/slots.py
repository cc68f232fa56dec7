"""Fixed and continuous batching on slots: who sits where, step by step.

Introduced in the chapter "Fixed or continuous". A slot is a place for one request in the
step. There is no cache here and no limit but the slots; the tiny server adds both.
"""

from collections import deque, namedtuple

from tinyserve.checks import number, whole
from tinyserve.roofline import step_seconds

POLICIES = ("fixed", "continuous")


class SlotStep(namedtuple("SlotStep", "start end slots joined finished waiting")):
    """One step: start and end in seconds; slots, a tuple with the request in each slot or
    None; the requests that joined and that finished in it; how many waited after joining."""

    __slots__ = ()


class SlotRun(namedtuple("SlotRun", "requests slots policy first done steps")):
    """A simulation: first and done are seconds, one a request, in the order sent: the time
    of its first token, of its last. `slots` is their number, `steps` a list of SlotStep."""

    @property
    def all_done(self):
        """Seconds on the clock when the last reply is complete."""
        return max(self.done)

    @property
    def tokens_per_second(self):
        """Reply tokens, all requests together, over `all_done`."""
        return sum(self.requests.replies) / self.all_done

    @property
    def waits(self):
        """Seconds each request waited for its first token, from when it was sent."""
        return [first - sent for first, sent in zip(self.first, self.requests.send)]

    @property
    def mean_wait(self):
        """Mean of the waits, in seconds."""
        return sum(self.waits) / len(self.waits)

    @property
    def slowest_wait(self):
        """The longest of the waits, in seconds."""
        return max(self.waits)

    @property
    def slots_in_use(self):
        """Share of the slots in use, 0 to 1, averaged over the time spent in steps."""
        used = sum((s.end - s.start) * (self.slots - s.slots.count(None)) for s in self.steps)
        return used / (self.slots * sum(s.end - s.start for s in self.steps))

    def grid(self, names="ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        """One text line a slot, one character a step: the request's name, or a dot."""
        rows = zip(*(step.slots for step in self.steps))
        return ["".join("." if i is None else names[i % len(names)] for i in row) for row in rows]

    def at(self, seconds):
        """What the server looks like at `seconds` on its clock: the slots, a tuple with the
        request in each or None, and how many requests wait. Between two steps all is empty.
        Raises ValueError for seconds under 0 or not finite."""
        number("seconds", seconds, least=0)
        for step in self.steps:
            if step.start <= seconds < step.end:
                sent = sum(time <= seconds for time in self.requests.send)
                begun = sum(len(s.joined) for s in self.steps if s.start <= seconds)
                return step.slots, sent - begun
        return (None,) * self.slots, 0


def simulate(requests, slots, policy="continuous", cost=step_seconds):
    """Serve a Workload on `slots` slots and return a SlotRun.

    policy: "continuous" fills free slots at every step, "fixed" only when all are empty.
    cost: seconds of a step, a number, or a function of the running requests' contexts (a
    list of tokens) and the prompt tokens that join. Raises ValueError for slots under 1,
    another policy, and a cost that is not above zero.
    """
    slots = whole("slots", slots, most=10**5)
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, not {policy!r}")
    seconds = cost if callable(cost) else lambda contexts, prompt_tokens: cost
    seats, made = [None] * slots, [0] * len(requests)
    first, done, steps = made[:], made[:], []
    coming, queue, now = deque(range(len(requests))), deque(), 0.0
    while coming or queue or any(seat is not None for seat in seats):
        empty = seats.count(None) == slots
        if empty and not queue:
            now = max(now, requests.send[coming[0]])  # idle: the clock jumps
        while coming and requests.send[coming[0]] <= now:
            queue.append(coming.popleft())
        contexts = [requests.prompts[i] + made[i] for i in seats if i is not None]
        joined = []
        if policy == "continuous" or empty:  # the one condition between the two policies
            for slot in range(slots):
                if seats[slot] is None and queue:
                    seats[slot] = queue.popleft()
                    joined.append(seats[slot])
        start, taken = now, tuple(seats)
        took = seconds(contexts, sum(requests.prompts[i] for i in joined))
        now += number("the cost of a step", took, above=0)
        for slot, i in enumerate(taken):
            if i is not None:
                made[i] += 1
                if made[i] == 1:
                    first[i] = now
                if made[i] == requests.replies[i]:
                    seats[slot], done[i] = None, now
        finished = [i for i in taken if i is not None and made[i] == requests.replies[i]]
        steps.append(SlotStep(start, now, taken, joined, finished, len(queue)))
    return SlotRun(requests, slots, policy, first, done, steps)
