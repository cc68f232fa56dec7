"""The server with one rule changed: pages as they are needed, in place of a promise.

Introduced in the chapter "A match that is luck". A real server does not know how long a reply
will be, so it can't promise its pages. It lets a chat in when its prompt fits, and when a running
chat finds no free page, the chat that was let in last is thrown out (preemption): its pages go
back, it waits at the head of the queue, and what it had is read again, prompt and reply so far,
in the step that it joins anew.

This is vLLM's rule in the main. vLLM asks at the door for the prompt without the next token, so
it takes a page one step later now and then. And it keeps the pages of who was thrown out as long
as nobody else needs them, so that not all has to be read again.
"""

from tinyserve.batcher import Server
from tinyserve.cache import pages_for


class _Now:
    """The workload as it stands: what a chat has to read, and what it still has to write."""

    def __init__(self, workload):
        self.send = workload.send
        self.prompts, self.replies = list(workload.prompts), list(workload.replies)

    def __len__(self):
        return len(self.send)

    def total(self, chat):
        """What a chat asks for at the door: room for its prompt and its next token."""
        return self.prompts[chat] + 1


class OnDemandServer(Server):
    """A `Server` that takes pages on demand and preempts. Arguments and errors are the same.

    preempted: a list of (seconds, chat), one each time that a chat was thrown out. In the Run,
    admitted and first are those of the first time, and nothing is ever owed. A report's tbt
    counts steps, so it does not see the long gap of a chat that was thrown out; its mean_tbt
    does.
    """

    def __init__(self, workload, *settings, **options):
        super().__init__(workload, *settings, **options)
        self.sent_as, self.workload = workload, _Now(workload)
        self.preempted, self.times = [], {}  # times: admitted and first of who was thrown out

    def admit(self):
        """2. Who runs gets the page of its next token first, at the cost of the youngest."""
        for chat in list(self.running):
            while chat in self.running and not self.can_go_on(chat):
                self.preempt()
        super().admit()

    def can_go_on(self, chat):
        """Whether there is a page for the next token of `chat`; it is set aside if so."""
        pool, tokens = self.pool, self.workload.prompts[chat] + self.running[chat] + 1
        more = pages_for(tokens, pool.page_size) - pool.promises[chat]
        if pool.promised + more > pool.pages:
            return False
        pool.promises[chat] += more
        pool.promised += more
        return True

    def preempt(self):
        """Throw out the chat that was let in last: it is first in the queue, with more to read."""
        chat, made = self.running.popitem()
        self.pool.release(chat)
        self.workload.prompts[chat] += made
        self.workload.replies[chat] -= made
        self.queue.appendleft(chat)
        self.preempted.append((self.now, chat))
        self.times[chat] = self.admitted[chat], self.first[chat]

    def write(self):
        """4. As ever, but a chat has only one first token."""
        super().write()
        for chat in self.joined:
            if chat in self.times:
                self.admitted[chat], self.first[chat] = self.times[chat]

    def serve(self):
        """Go round until every chat has its reply. Returns a Run of the workload as sent."""
        return super().serve()._replace(workload=self.sent_as)
