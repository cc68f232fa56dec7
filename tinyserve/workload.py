"""Who asks, when, and how much: the chats that a server is given.

Introduced in the chapter "Load". A chat is a send time, a prompt length and a reply
length. The seeded draws of the two source lessons are here, so that everybody's chats
are the same chats.
"""

import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from numbers import Integral

from tinyserve.checks import number, sequence, whole

LATEST = 1e10  # seconds; a later clock has no room for a step (nanoseconds taken for seconds?)


@dataclass(frozen=True)
class Workload:
    """Chats in the order sent: `send` in seconds, `prompts` and `replies` in tokens.

    Three sequences of one length, kept as tuples. `rate` is the chats a second that
    the send times stand for; left out, it is measured: n chats have n - 1 gaps, so
    (n - 1) / (last send time - first). It is None when all are sent at once. `notes` is what
    `read_log` found in a recorded log, and what was done to the chats since; else None.

    Raises ValueError, naming the chat and the value, for no chats, lists of unequal
    length, a time that is negative, not finite or earlier than the one before, and a
    token count that is under 1 or not whole.
    """

    send: tuple
    prompts: tuple
    replies: tuple
    rate: float | None = None
    notes: object = field(default=None, compare=False, repr=False)

    def __post_init__(self):
        columns = ("send", "prompts", "replies")
        send, prompts, replies = (sequence(name, getattr(self, name)) for name in columns)
        if not len(send) == len(prompts) == len(replies):
            raise ValueError(
                "send, prompts and replies must have one length, not "
                f"{len(send)}, {len(prompts)} and {len(replies)}"
            )
        if not send:
            raise ValueError("a workload needs at least one chat, not 0")
        before = 0.0
        for chat, time in enumerate(send):
            number(f"send time of chat {chat}", time, least=0, most=LATEST)
            if time < before:
                raise ValueError(
                    f"send times must not go back: chat {chat} is sent at {time!r}, "
                    f"chat {chat - 1} at {before!r}"
                )
            before = time
        if self.rate is not None:
            rate = float(number("rate", self.rate, above=0))
        elif send[-1] - send[0] > 1e-300:  # shorter, and the rate is past what a float holds
            rate = (len(send) - 1) / (send[-1] - send[0])
        else:
            rate = None
        put = object.__setattr__  # the dataclass is frozen from here on
        put(self, "send", tuple(map(float, send)))
        put(self, "prompts", tuple(whole(f"prompt of chat {i}", p) for i, p in enumerate(prompts)))
        put(self, "replies", tuple(whole(f"reply of chat {i}", r) for i, r in enumerate(replies)))
        put(self, "rate", rate)

    def __len__(self):
        """How many chats there are."""
        return len(self.send)

    def total(self, chat):
        """Tokens of a chat when it is done: its prompt and its whole reply."""
        return self.prompts[chat] + self.replies[chat]

    def at_rate(self, rate):
        """The same chats in the same order, sent at `rate` chats a second.

        All send times shrink or grow by one factor, and with them every gap. Raises
        ValueError for a rate that is not above zero, for chats that are all sent at once, as
        one chat is, and for a rate so low that a send time is past 1e10 s.
        """
        rate = float(number("rate", rate, above=0))
        if self.rate is None:
            raise ValueError(f"cannot send at rate {rate!r}: all the chats are sent at once")
        send = [time * self.rate / rate for time in self.send]
        said = f"then sent at {rate:.4g} chats a second, not {self.rate:.4g}"
        return Workload(send, self.prompts, self.replies, rate, self._noting(said))

    def speed(self, factor):
        """The same chats with every send time divided by `factor`: 2 is twice the rate.

        Introduced in the chapter "Replay a real log". Raises ValueError for a factor that is not
        above zero, and for one that takes a send time past 1e10 s or the rate past what a float
        holds.
        """
        factor = float(number("factor", factor, above=0))
        send, rate = [time / factor for time in self.send], self.rate and self.rate * factor
        said = f"then sent at {factor:.4g} times the speed"
        return Workload(send, self.prompts, self.replies, rate, self._noting(said))

    def slice(self, start=None, stop=None, by="seconds"):
        """Some of the chats: those sent at start <= t < stop seconds, or, by "chats", those of
        Python's [start:stop]. None is an open end.

        The first chat kept is sent at 0, as in a log that is read: a server has nothing to do
        before it. The rate is measured anew. Introduced in the chapter "Replay a real log". Raises
        ValueError for another `by`, for a bound that is no number (of chats: no whole one), and if
        no chat is left.
        """
        if by not in ("seconds", "chats"):
            raise ValueError(f"by must be 'seconds' or 'chats', not {by!r}")
        door = number if by == "seconds" else lambda *bound: whole(*bound, least=-(2**53))
        bounds = [b if b is None else door(n, b) for n, b in (("start", start), ("stop", stop))]
        if by == "seconds":  # as numbers of chats
            bounds = [b if b is None else bisect_left(self.send, b) for b in bounds]
        kept = range(len(self))[bounds[0] : bounds[1]]
        span = f"{len(self):,} chats, sent from {self.send[0]:,.3f} to {self.send[-1]:,.3f} s"
        if not kept:
            raise ValueError(f"no chat is in slice({start!r}, {stop!r}, {by!r}): there are {span}")
        said = f"then cut to chats {kept[0]:,} to {kept[-1]:,} of {span}"
        send = [self.send[chat] - self.send[kept[0]] for chat in kept]
        columns = send, [self.prompts[i] for i in kept], [self.replies[i] for i in kept]
        return Workload(*columns, notes=self._noting(said))

    def scale_tokens(self, *, prompts=1, replies=1):
        """The same send times with the lengths times a factor: one for prompts, one for replies.

        Lengths are rounded to whole tokens (a half to the even one), and are at least 1.
        Beside `speed` and `slice` of the chapter "Replay a real log". Raises ValueError for a
        factor that is not above zero.
        """
        columns = []
        for name, factor in {"prompts": prompts, "replies": replies}.items():
            factor = float(number(f"the factor of {name}", factor, above=0))
            tokens = [number(f"{name} scaled", count * factor) for count in getattr(self, name)]
            columns.append([max(1, round(count)) for count in tokens])
        said = f"then prompts times {prompts}, replies times {replies}, in whole tokens"
        return Workload(self.send, *columns, self.rate, self._noting(said))

    def shuffled(self, seed):
        """The same send times with the chats in another, seeded order.

        Prompt and reply of a chat stay together. One seed, a whole number, is one order.
        Raises ValueError for another seed, and for None: the order would change each time.
        """
        if not isinstance(seed, Integral) or isinstance(seed, bool):
            raise ValueError(f"seed must be a whole number, not {seed!r}: one seed is one order")
        chats = list(zip(self.prompts, self.replies))
        random.Random(int(seed)).shuffle(chats)
        said = self._noting(f"then prompts and replies in another order, seed {seed!r}")
        return Workload(self.send, *zip(*chats), self.rate, said)

    def _noting(self, said):
        """The notes with a line more, or None if there are none."""
        return self.notes and self.notes._replace(lines=(*self.notes.lines, said))


def _sums(gaps):
    """Send time of each chat: the sum of the gaps before it, so the first is 0."""
    return [0.0, *accumulate(gaps[:-1])]


def _log_uniform(rng, low, high):
    """A whole number drawn so that each doubling between low and high is as likely."""
    return round(low * (high / low) ** rng.random())


def invented_chats(n=400, seed=2027):
    """The tiny server's chats: `n` of them, at one chat a second.

    Short prompts are common and long ones are not: 30 to 600 tokens, every doubling
    equally likely. About 12 in 100 replies are long (100 to 400 tokens), the others
    short (8 to 60). The draws come in whole lists of 2,000 (or of n, if more), so the
    first 400 chats are the same for every n up to 2,000. The recipe gives every figure
    printed in the lesson. Raises ValueError for n under 1.
    """
    n = whole("n", n)
    drawn = max(2000, n)
    rng = random.Random(seed)
    gaps = [rng.expovariate(1.0) for _ in range(drawn)]
    prompts = [_log_uniform(rng, 30, 600) for _ in range(drawn)]
    long = [rng.random() < 0.12 for _ in range(drawn)]
    replies = [_log_uniform(rng, *((100, 400) if is_long else (8, 60))) for is_long in long]
    return Workload(_sums(gaps)[:n], prompts[:n], replies[:n], rate=1.0)


REPLY_MIXES = {"equal": (60, 60), "mixed": (10, 300), "very mixed": (5, 600)}


def batching_requests(mix="mixed", n=48, seed=2026):
    """The `n` requests of "Fixed or continuous", at one request a second.

    Prompts are 30 to 600 tokens; `mix` is "equal" (every reply 60 tokens), "mixed"
    (10 to 300) or "very mixed" (5 to 600), every doubling equally likely. Raises
    ValueError for another mix and for n under 1.
    """
    if mix not in tuple(REPLY_MIXES):  # a tuple can be asked for a list too
        known = ", ".join(map(repr, REPLY_MIXES))
        raise ValueError(f"mix must be one of {known}, not {mix!r}")
    n = whole("n", n)
    rng = random.Random(seed)
    gaps = [rng.expovariate(1.0) for _ in range(n)]
    prompts = [_log_uniform(rng, 30, 600) for _ in range(n)]
    replies = [_log_uniform(rng, *REPLY_MIXES[mix]) for _ in range(n)]
    return Workload(_sums(gaps), prompts, replies, rate=1.0)
