"""The rules of the tiny server and of the slots, written a second time, the long way.

Nothing here is quick or clever, and nothing is taken from `tinyserve`: chats are plain tuples,
every token is put into its page on its own, every promise is counted again each time it is
needed, and a step's cost is an exact fraction until the end. If this and the package agree on
random workloads, an error would have to have been made twice, in two shapes.

A chat is (send time, prompt, reply). Its number is its place in the list; the list is in the
order sent, so the lowest number that waits is the head of the queue.
"""

from fractions import Fraction

WEIGHTS = 8_030_261_248
FLOPS_A_TOKEN = 2 * WEIGHTS
WEIGHT_BYTES = 2 * WEIGHTS
KV_BYTES_A_TOKEN = 2 * 32 * 8 * 128 * 2  # key and value, layers, KV heads, head size, bytes
FLOPS_A_SECOND = 312 * 10**12
BYTES_A_SECOND = 2039 * 10**9


def plain_cost(contexts, prompt_tokens):
    """Seconds of a step, rounded once, at the end."""
    tokens = prompt_tokens
    read = WEIGHT_BYTES
    for context in contexts:
        tokens += 1
        read += KV_BYTES_A_TOKEN * context
    arithmetic = Fraction(FLOPS_A_TOKEN * tokens, FLOPS_A_SECOND)
    memory = Fraction(read, BYTES_A_SECOND)
    return float(arithmetic if arithmetic >= memory else memory)


def plain_serve(chats, pages, limit, page_size=16):
    """Serve the chats. Returns what happened, in a dict of plain lists:

    rows, one a step (start, seconds, chats, joined, queue, held, owed, blocked); admitted, first
    and done, one time a chat; gaps, a list a chat; tables and free, a copy of each after
    every step.
    """
    numbers = range(len(chats))
    state = ["away"] * len(chats)  # away, waiting, joining, running, gone
    written = [0] * len(chats)
    stored = [0] * len(chats)
    pages_of = [[] for _ in chats]
    free = list(range(pages))
    admitted, first, done = [None] * len(chats), [None] * len(chats), [None] * len(chats)
    gaps = [[] for _ in chats]
    rows, tables_after, free_after = [], [], []
    clock = 0.0

    def everyone(*states):
        return [n for n in numbers if state[n] in states]

    def will_need(n):
        _, prompt, reply = chats[n]
        full, rest = divmod(prompt + reply, page_size)
        return full + 1 if rest else full

    def store_one_token(n):
        if stored[n] == len(pages_of[n]) * page_size:
            pages_of[n].append(free.pop(0))
        stored[n] += 1

    while everyone("away", "waiting", "running"):
        # 1. who has been sent by now; with nothing to do, skip to the next send time
        if not everyone("waiting", "running"):
            clock = max(clock, min(chats[n][0] for n in everyone("away")))
        for n in everyone("away"):
            if chats[n][0] <= clock:
                state[n] = "waiting"

        # 2. who may join; the first who may not stops all behind
        blocked = ""
        for n in everyone("waiting"):
            inside = everyone("joining", "running")
            cache = sum(will_need(m) for m in inside) + will_need(n) > pages
            batch = len(inside) == limit
            if cache and batch:
                blocked = "cache and batch"
            elif cache:
                blocked = "cache"
            elif batch:
                blocked = "batch"
            if blocked:
                break
            state[n] = "joining"
            admitted[n] = clock

        # 3. how long the step takes
        joining, running = everyone("joining"), everyone("running")
        contexts = [chats[n][1] + written[n] for n in running]
        start, seconds = clock, plain_cost(contexts, sum(chats[n][1] for n in joining))
        clock = start + seconds

        # 4. one more token for each chat in it; a new chat stores its prompt as well
        for n in everyone("joining", "running"):
            if state[n] == "joining":
                for _ in range(chats[n][1]):
                    store_one_token(n)
                first[n] = clock
            else:
                gaps[n].append(seconds)
            store_one_token(n)
            written[n] += 1

        # 5. who has all tokens leaves
        for n in joining + running:
            state[n] = "running"
        for n in everyone("running"):
            if written[n] == chats[n][2]:
                state[n] = "gone"
                done[n] = clock
                free.extend(pages_of[n])
                pages_of[n] = []

        # 6. write it down
        held = sum(len(table) for table in pages_of)
        promised = sum(will_need(n) for n in everyone("running"))
        counts = [len(joining) + len(running), len(joining), len(everyone("waiting"))]
        rows.append((start, seconds, *counts, held, promised - held, blocked))
        tables_after.append({n: list(pages_of[n]) for n in everyone("running")})
        free_after.append(list(free))

    return {
        "rows": rows,
        "admitted": admitted,
        "first": first,
        "done": done,
        "gaps": gaps,
        "tables": tables_after,
        "free": free_after,
    }


def plain_slots(chats, slots, policy, cost=plain_cost):
    """Serve the chats on slots. Returns (rows, first, done); a row is (start, end, seats).

    Each seat is None or [number of the chat, tokens it has]; a row keeps the numbers.
    """
    waiting = list(enumerate(chats))
    seats = [None] * slots
    first, done, rows = {}, {}, []
    clock = 0.0
    while waiting or seats != [None] * slots:
        was_empty = seats == [None] * slots
        if was_empty and clock < waiting[0][1][0]:
            clock = waiting[0][1][0]
        contexts = [chats[seat[0]][1] + seat[1] for seat in seats if seat]
        prompt_tokens = 0
        for place, seat in enumerate(seats):
            may_sit = seat is None and (policy == "continuous" or was_empty)
            if may_sit and waiting and waiting[0][1][0] <= clock:
                number, (_, prompt, _) = waiting.pop(0)
                seats[place] = [number, 0]
                prompt_tokens += prompt
        start, clock = clock, clock + cost(contexts, prompt_tokens)
        rows.append((start, clock, tuple(seat[0] if seat else None for seat in seats)))
        for place, seat in enumerate(seats):
            if seat:
                seat[1] += 1
                first.setdefault(seat[0], clock)
                if seat[1] == chats[seat[0]][2]:
                    done[seat[0]] = clock
                    seats[place] = None
    in_order = range(len(chats))
    return rows, [first[n] for n in in_order], [done[n] for n in in_order]
