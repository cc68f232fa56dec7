"""How fast the server's loops are on this machine: `make bench`, or with fewer chats
`make bench MOST=40000`.

Each line is measured in a process of its own: the best of up to three runs of the serving
alone, in seconds of the processor (another program that runs beside it counts less), and the
most memory the process ever used, Python and the chats included.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
from collections import deque
from time import process_time

import tinyserve as ts
from tinyserve import fast

CHATS = [400, 4_000, 40_000, 200_000, 1_000_000]
SETTINGS = {  # chats a second, pages, limit
    "40 a second, 240 pages, limit 16: the queue grows": (40, 240, 16),
    "35 a second, 25,720 pages, limit 256: the pages of a whole card": (35, 25_720, 256),
}
# Each loop, and the most chats it is asked to serve: a minute is enough.
LOOPS = {"plain": 40_000, "SimPy": 40_000, "counted": 10**9, "summary": 10**9, "compiled": 10**9}
ENOUGH = 1.0  # seconds of runs after which no further one is made

PEERS = """
Other simulators, as measured once for this book and not on your machine: one sitting, two
shared cores, best of 2 or 3, chats like the first setting's, simulation only.

  simulator                                  seconds for 400 / 4,000 / 40,000  tokens/s  peak MB
  AISimulate 0.13 (Rust), measured tables        0.064 / 0.234  /  2.44         800,000      287
  BLIS, inference-sim (Go), roofline or physics  0.03  / 0.26   /  3.11         630,000      360
  sched-sim 0.2.1 (Python), 4,000 pages          0.04  / 0.43   /  4.84         400,000      172
  vidur (Python), sarathi, profiled kernels      0.28  / 2.85   / 32.7           60,000      722
  splitwise-sim (Python), tables, 70B            0.90  / 20.9   /  -              9,000        -

They are not equal to ours or to each other, and all of them do more: they take pages on
demand and preempt. vidur ran with an attention table rebuilt from NVIDIA's A100 data, BLIS
with its prefix cache on, splitwise-sim with Llama 2 70B on 8 cards and tokens/s at 4,000
chats. Compare speed with that in mind.
"""


def simpy_serve(workload, pages, limit):
    """The same server on SimPy, with 16 tokens a page. Returns the times of the first tokens.

    The clock and the arrivals are SimPy's; inside a step each running chat is walked, as in
    the plain loop. It keeps promises of pages but no tables, and no record of the steps.
    """
    import simpy

    env, queue, running, first = simpy.Environment(), deque(), {}, [None] * len(workload)
    need = [ts.pages_for(workload.total(chat)) for chat in range(len(workload))]
    idle = None  # an event while the server waits for a chat

    def arrivals():
        for chat, sent in enumerate(workload.send):
            if sent > env.now:
                yield env.timeout(sent - env.now)
            queue.append(chat)
            if idle is not None and not idle.triggered:
                idle.succeed()

    def server():
        nonlocal idle
        promised = left = 0
        while left < len(workload):
            if not running and not queue:
                idle = env.event()
                yield idle
            joined = []
            while queue and promised + need[queue[0]] <= pages:
                if len(running) + len(joined) == limit:
                    break
                joined.append(queue.popleft())
                promised += need[joined[-1]]
            context = sum(workload.prompts[chat] + made for chat, made in running.items())
            prompts = [workload.prompts[chat] for chat in joined]
            yield env.timeout(ts.step_cost(len(running), context, prompts))
            for chat in joined:
                running[chat] = 0
                first[chat] = env.now
            for chat in running:
                running[chat] += 1
            for chat in [c for c, made in running.items() if made == workload.replies[c]]:
                del running[chat]
                promised -= need[chat]
                left += 1

    env.process(arrivals())
    env.process(server())
    env.run()
    return first


def loop(name):
    """The function that serves: of a workload, pages and limit."""
    return {
        "plain": ts.serve,
        "SimPy": simpy_serve,
        "counted": fast.serve,
        "summary": lambda *settings: fast.serve(*settings, record="summary"),
        "compiled": lambda *settings: fast.serve(*settings, compiled=True),
    }[name]


def measure(name, chats, rate, pages, limit):
    """Serve in this process; prints the measures as JSON."""
    invented = ts.invented_chats(chats)
    workload = ts.Workload([t / rate for t in invented.send], invented.prompts, invented.replies)
    del invented
    serve = loop(name)
    if name == "compiled":
        serve(ts.invented_chats(20), pages, limit)  # compiles, or fetches what was compiled
    taken = []
    while len(taken) < 3 and sum(taken) < ENOUGH:
        run = None  # its memory is free for the next
        start = process_time()
        run = serve(workload, pages, limit)
        taken.append(process_time() - start)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    steps = len(run.steps) if name != "SimPy" else None
    tokens = sum(workload.replies)
    print(json.dumps({"seconds": min(taken), "peak": peak, "steps": steps, "tokens": tokens}))


def in_a_process(*what):
    """What a process that is given `what` says, or None and why not."""
    command = [sys.executable, __file__, "--one", json.dumps(what)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["it ended"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), None


def check():
    """All loops must serve alike before they are timed. Prints what was found."""
    said = []
    for rate, pages, limit in SETTINGS.values():
        settings = (ts.invented_chats(400).at_rate(rate), pages, limit)
        plain = ts.serve(*settings)
        assert fast.serve(*settings) == plain
        try:
            assert fast.serve(*settings, compiled=True) == plain
            gap = max(abs(a - b) for a, b in zip(simpy_serve(*settings), plain.first))
            assert gap < 1e-9, gap  # SimPy adds up the gaps between the chats anew
        except ImportError as error:
            said.append(str(error))
    good = (
        "400 chats: counted and compiled equal the plain run to the last bit, and SimPy's first "
        "tokens come within a billionth of a second."
    )
    print(json.dumps("; ".join(dict.fromkeys(said)) or good))


def main(most):
    """Print the table."""
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}")
    # Checked in another process, because a child's peak of memory starts at its parent's.
    found, why = in_a_process()
    if found is None:
        sys.exit(f"the loops do not serve alike: {why}")
    print(found, flush=True)
    for title, setting in SETTINGS.items():
        print(f"\n{title}\n")
        print("     chats  loop       seconds     tokens/s     steps/s  peak MB  times plain")
        plain = None  # tokens a second of the plain loop, of the longest run it has made
        for chats in [n for n in CHATS if n <= most]:
            for name in [name for name, limit in LOOPS.items() if chats <= limit]:
                got, why = in_a_process(name, chats, *setting)
                if got is None:
                    print(f"{chats:10,}  {name:9}  {why}", flush=True)
                    continue
                seconds, pace = got["seconds"], got["tokens"] / got["seconds"]
                plain = pace if name == "plain" else plain
                steps = "-" if got["steps"] is None else f"{got['steps'] / seconds:,.0f}"
                times = f"{pace / plain:.1f}" if plain else "-"
                print(
                    f"{chats:10,}  {name:9}{seconds:9.4f}  {pace:11,.0f}  {steps:>10}"
                    f"  {got['peak'] / 1e6:7,.0f}  {times:>11}",
                    flush=True,
                )
    print(
        "\nAbove 40,000 chats, times plain compares with the plain loop's tokens a second at"
        "\n40,000. counted keeps every step, summary none, compiled every step."
    )
    print(PEERS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=max(CHATS), help="chats in the longest run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        what = json.loads(arguments.one)
        measure(*what) if what else check()
    else:
        main(arguments.most)
