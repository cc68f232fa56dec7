"""The server: a loop of six numbered steps, one method each.

Introduced in the chapters "The queue", "Admission", "The step" and "A real run". The
clock is simulated: a step lasts as long as the roofline says. To change one rule, make
a subclass of `Server` and override one method.
"""

from collections import deque, namedtuple

from tinyserve.cache import PAGE_SIZE, PagePool
from tinyserve.checks import every_chat_fits, whole
from tinyserve.roofline import A100, LLAMA_8B, step_cost


class Step(namedtuple("Step", "start seconds chats joined queue held owed blocked")):
    """What the server writes down about one step.

    start: seconds on the clock; seconds: how long it took; chats: chats in the step, the
    new ones included; joined: how many were new; queue: chats still waiting after
    admission; held: pages in use, after the finished chats gave theirs back; owed: pages
    promised but not in use; blocked: what held the head of the queue out, "" if nothing,
    else "cache", "batch" or "cache and batch".
    """

    __slots__ = ()


class Run(namedtuple("Run", "workload pages limit page_size model chip admitted first done steps")):
    """A served workload: the settings, three times for each chat, and the list of Steps.

    admitted, first and done are seconds, one a chat, in the order sent: the start of the
    step it joined in, the time of its first token, the time of its last.
    """

    def trace(self):
        """The steps as a pandas DataFrame: the fields of Step, and `left`, the pages free
        to promise. One row a step, numbered from 1. Needs pandas."""
        import pandas as pd

        table = pd.DataFrame(self.steps, index=pd.RangeIndex(1, len(self.steps) + 1, name="step"))
        return table.assign(left=self.pages - table["held"] - table["owed"])


class Server:
    """One chip, one model, `pages` pages of cache and places for `limit` chats in a step.

    Raises ValueError if pages, limit or page_size is not a whole number of at least 1,
    and for a chat that needs more pages than there are: it could never be admitted.
    """

    def __init__(self, workload, pages, limit, page_size=PAGE_SIZE, model=LLAMA_8B, chip=A100):
        self.workload, self.model, self.chip = workload, model, chip
        self.pool, self.limit = PagePool(pages, page_size), whole("limit", limit)
        every_chat_fits(workload, self.pool)
        self.now = 0.0  # seconds
        self.sent = 0  # chats sent by now; also the number of the next one
        self.queue = deque()  # chats waiting, first come first
        self.running = {}  # chat -> tokens it has written
        self.admitted, self.first, self.done = ([None] * len(workload) for _ in range(3))
        self.steps = []

    def arrive(self):
        """1. Every chat sent by now joins the back of the queue."""
        send = self.workload.send
        if not self.running and not self.queue:
            self.now = max(self.now, send[self.sent])  # idle: the clock jumps to the next chat
        while self.sent < len(send) and send[self.sent] <= self.now:
            self.queue.append(self.sent)
            self.sent += 1

    def held_out(self, chat):
        """What keeps `chat` out of this step: "", "cache", "batch" or "cache and batch"."""
        cache = not self.pool.can_promise(self.workload.total(chat))
        batch = len(self.running) + len(self.joined) >= self.limit
        return " and ".join(["cache"] * cache + ["batch"] * batch)

    def admit(self):
        """2. Take chats from the head of the queue until one is held out."""
        self.joined, self.blocked = [], ""
        while self.queue and not self.blocked:
            self.blocked = self.held_out(self.queue[0])
            if not self.blocked:
                chat = self.queue.popleft()
                self.pool.promise(chat, self.workload.total(chat))
                self.joined.append(chat)
                self.admitted[chat] = self.now

    def cost(self):
        """3. The step lasts as long as the roofline says, and the clock moves on."""
        context = sum(self.workload.prompts[chat] + made for chat, made in self.running.items())
        prompts = [self.workload.prompts[chat] for chat in self.joined]
        self.start = self.now
        self.seconds = step_cost(len(self.running), context, prompts, self.model, self.chip)
        self.now += self.seconds

    def write(self):
        """4. Every chat in the step has one more token, and pages to keep it in."""
        for chat in self.joined:
            self.running[chat] = 0
            self.first[chat] = self.now
        for chat in self.running:
            self.running[chat] += 1
            self.pool.grow(chat, self.workload.prompts[chat] + self.running[chat])
        self.chats = len(self.running)

    def finish(self):
        """5. A chat with its whole reply is done: its pages and its promise go back."""
        for chat in [c for c, made in self.running.items() if made == self.workload.replies[c]]:
            del self.running[chat]
            self.pool.release(chat)
            self.done[chat] = self.now

    def record(self):
        """6. Write the step down."""
        held, owed = self.pool.held, self.pool.promised - self.pool.held
        step = (self.chats, len(self.joined), len(self.queue), held, owed, self.blocked)
        self.steps.append(Step(self.start, self.seconds, *step))

    def serve(self):
        """Go round until every chat has its reply. Returns a Run."""
        while self.sent < len(self.workload) or self.queue or self.running:
            self.arrive()
            self.admit()
            self.cost()
            self.write()
            self.finish()
            self.record()
        settings = self.workload, self.pool.pages, self.limit, self.pool.page_size, self.model
        return Run(*settings, self.chip, self.admitted, self.first, self.done, self.steps)


def serve(workload, pages, limit, page_size=PAGE_SIZE, model=LLAMA_8B, chip=A100):
    """Serve a workload with a `Server` and return its Run; arguments and errors are the same."""
    return Server(workload, pages, limit, page_size, model, chip).serve()
