"""The counted server's loop as machine code: `tinyserve.fast.serve(..., compiled=True)`.

Introduced in the chapter "The same server, counted". The same arithmetic in the same order
on 64-bit numbers, and none of numba's shortcuts with floats, so the results are the same to
the last bit. Needs numba, which needs NumPy.
"""

from array import array

import numpy as np
from numba import njit


@njit(cache=True)
def _go(at, clock, ask, settings, cost, rates, times, ends, takers, floats, counts, blocks):
    """Up to a chunk of steps, into floats, counts and blocks. Returns how many."""
    head, sent, running, context, promised, held, step = at
    now = clock[0]
    send, prompts, replies = ask
    pages, limit, size = settings
    per_token, per_pair, weights, per_context = cost
    peak, bandwidth, overhead = rates
    admitted, first, done = times
    last, before = ends  # the last chat to end in a step, and for each chat the one before it
    ring = len(last)  # a place a step, used again after the longest reply
    starts, lengths = floats
    in_step, new, queues, helds, promises = counts
    chats, made = len(send), 0
    while made < len(starts):
        if running == 0 and head == sent:
            if head == chats:
                break
            now = max(now, send[sent])
        while sent < chats and send[sent] <= now:
            sent += 1
        held += takers[step % size]
        blocked, joined, prompt_tokens, pairs = 0, 0, 0, 0
        while head < sent:
            prompt, reply = prompts[head], replies[head]
            need = (prompt + reply + size - 1) // size
            blocked = (promised + need > pages) + 2 * (running + joined >= limit)
            if blocked:
                break
            promised += need
            prompt_tokens += prompt
            pairs += prompt * (prompt + 1) // 2
            held += prompt // size + 1
            takers[(step - prompt) % size] += 1
            end = (step + reply - 1) % ring
            before[head] = last[end]
            last[end] = head
            joined += 1
            head += 1
        flops = per_token * (running + prompt_tokens) + per_pair * (context + pairs)
        seconds = max(flops / peak, (weights + per_context * context) / bandwidth) + overhead
        starts[made] = now
        lengths[made] = seconds
        for chat in range(head - joined, head):
            admitted[chat] = now
            first[chat] = now + seconds
        now += seconds
        running += joined
        context += prompt_tokens + running
        in_step[made] = running
        new[made] = joined
        queues[made] = sent - head
        chat = last[step % ring]
        last[step % ring] = -1
        while chat >= 0:
            prompt, reply = prompts[chat], replies[chat]
            need = (prompt + reply + size - 1) // size
            done[chat] = now
            running -= 1
            context -= prompt + reply
            held -= need
            promised -= need
            takers[(step - reply + 1 - prompt) % size] -= 1
            chat = before[chat]
        helds[made] = held
        promises[made] = promised
        blocks[made] = blocked
        step += 1
        made += 1
    at[:] = head, sent, running, context, promised, held, step
    clock[0] = now
    return made


def counted(workload, pages, limit, size, cost, times, chunk):
    """`tinyserve.fast.counted` as machine code: takes and yields the same."""
    per, rates = tuple(cost[:4]), tuple(cost[4:])
    chats = len(workload)
    ask = [array(k, v) for k, v in zip("dqq", (workload.send, workload.prompts, workload.replies))]
    ask = tuple(np.frombuffer(each, each.typecode) for each in ask)
    at = np.zeros(7, np.int64)
    clock = np.zeros(1)
    ends = np.full(ask[2].max(), -1), np.empty(chats, np.int64)
    takers = np.zeros(size, np.int64)
    floats = tuple(np.empty((2, chunk)))
    counts = tuple(np.empty((5, chunk), np.int32))
    blocks = np.empty(chunk, np.int8)
    times = tuple(map(np.frombuffer, times))
    while at[0] < chats or at[2]:
        made = _go(at, clock, ask, (pages, limit, size), per, rates, times,
                   ends, takers, floats, counts, blocks)  # fmt: skip
        columns = zip("ddiiiiib", (*floats, *counts, blocks))
        yield [_cut(kind, column[:made]) for kind, column in columns], int(at[0] - at[2])


def _cut(kind, values):
    column = array(kind)
    column.frombytes(values.view(np.uint8))
    return column
