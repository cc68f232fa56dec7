"""The same server, counted instead of walked: constant work a step, constant work a chat.

Introduced in the chapter "The same server, counted". The plain loop touches every running
chat in every step. Three things make that unnecessary. The contexts' sum is a whole number
that grows by the chats running. A chat's last step is known when it joins. And the chats
that take a page in a step are those that joined in steps with one remainder.
"""

from tinyserve.batcher import Run, Step
from tinyserve.cache import PAGE_SIZE, PagePool
from tinyserve.checks import every_chat_fits, whole
from tinyserve.roofline import A100, LLAMA_8B, step_parts

BLOCKED = ("", "cache", "batch", "cache and batch")


def serve(workload, pages, limit, page_size=PAGE_SIZE, model=LLAMA_8B, chip=A100):
    """Serve a workload and return its Run: that of `tinyserve.serve`, to the last bit.

    Arguments are those of `tinyserve.serve`, and so is what raises a ValueError.
    """
    pool, limit = PagePool(pages, page_size), whole("limit", limit)
    every_chat_fits(workload, pool)
    pages, size = pool.pages, pool.page_size
    send, prompts, replies = workload.send, workload.prompts, workload.replies
    chats = len(send)
    admitted, first, done = ([None] * chats for _ in range(3))
    steps = []
    ends = {}  # step -> the chats whose last token is written in it, in the order they joined
    takers = [0] * size  # running chats by the remainder of the steps in which they take a page
    head = sent = running = context = promised = held = step = 0
    now = 0.0
    while running or head < chats:
        if not running and head == sent:
            now = max(now, send[sent])
        while sent < chats and send[sent] <= now:
            sent += 1
        start, joined_from, prompt_tokens, blocked = now, head, 0, 0
        while head < sent:
            need = -(-(prompts[head] + replies[head]) // size)
            blocked = (promised + need > pages) + 2 * (running + head - joined_from >= limit)
            if blocked:
                break
            promised += need
            prompt_tokens += prompts[head]
            admitted[head] = now
            head += 1
        arithmetic, memory = step_parts(running, context, prompt_tokens, model, chip)
        seconds = arithmetic if arithmetic > memory else memory
        now += seconds
        held += takers[step % size]
        context += running
        joined = head - joined_from
        for chat in range(joined_from, head):
            prompt = prompts[chat]
            first[chat] = now
            context += prompt + 1
            held += -(-(prompt + 1) // size)
            takers[(step - prompt) % size] += 1
            ends.setdefault(step + replies[chat] - 1, []).append(chat)
        in_step = running = running + joined
        for chat in ends.pop(step, ()):
            prompt, reply = prompts[chat], replies[chat]
            need = -(-(prompt + reply) // size)
            done[chat] = now
            running -= 1
            context -= prompt + reply
            held -= need
            promised -= need
            takers[(step - reply + 1 - prompt) % size] -= 1
        row = (start, seconds, in_step, joined, sent - head, held, promised - held)
        steps.append(Step(*row, BLOCKED[blocked]))
        step += 1
    return Run(workload, pages, limit, size, admitted, first, done, steps)
