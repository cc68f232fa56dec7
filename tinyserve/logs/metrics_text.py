"""What a model server says of itself: Prometheus text in, and a run's state out.

Introduced in the chapter "Read a real server". The names of a metric change from server to server
and from version to version; here each reading has one name, and a table says under which names
the servers print it.
"""

from collections import namedtuple
from fractions import Fraction
from math import ceil, fsum, inf, isfinite, nan

from tinyserve.checks import number

# Our name for a reading -> the names it goes by, the newest first. Counters and histograms
# only ever grow, so over several engines they add up; so do the gauges, but for kv_use.
GAUGES = {
    "running": "vllm:num_requests_running sglang:num_running_reqs llamacpp:requests_processing",
    "waiting": "vllm:num_requests_waiting sglang:num_queue_reqs llamacpp:requests_deferred",
    "kv_use": "vllm:kv_cache_usage_perc vllm:gpu_cache_usage_perc sglang:token_usage",
    "swapped": "vllm:num_requests_swapped",
    "kv_tokens": "sglang:max_total_num_tokens",
}
COUNTERS = {
    "preemptions": "vllm:num_preemptions_total sglang:num_retracted_requests_total",
    "prompt_tokens": "vllm:prompt_tokens_total sglang:prompt_tokens_total "
    "llamacpp:prompt_tokens_total",
    "reply_tokens": "vllm:generation_tokens_total sglang:generation_tokens_total "
    "llamacpp:tokens_predicted_total",
    "done": "vllm:request_success_total sglang:num_requests_total",
    "rejected": "vllm:admission_rejections_total",
    "prefix_asked": "vllm:prefix_cache_queries_total vllm:gpu_prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total vllm:gpu_prefix_cache_hits_total",
    "prompt_seconds": "llamacpp:prompt_seconds_total",
    "reply_seconds": "llamacpp:tokens_predicted_seconds_total",
}
HISTOGRAMS = {
    "ttft": "vllm:time_to_first_token_seconds sglang:time_to_first_token_seconds",
    "gap": "vllm:inter_token_latency_seconds vllm:time_per_output_token_seconds "
    "sglang:inter_token_latency_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds sglang:e2e_request_latency_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
}
CONFIG = "vllm:cache_config_info"
SERVERS = {"vllm:": "vLLM", "sglang:": "SGLang", "llamacpp:": "llama.cpp"}
ROOM = 0.5  # the head of a queue can need half of the cache, so half full may be too full
# Labels that tell engines apart.
ENGINE = ("instance", "pod", "namespace", "model_name", "engine", "dp_rank")
# Ranks that share one engine's work each print all of it: the first stands for all.
RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


class Histogram(namedtuple("Histogram", "buckets count total")):
    """Values counted in buckets: `buckets` is a dict from a bucket's upper end to how many
    values are at most that, `count` how many there are, `total` their sum."""

    __slots__ = ()

    @property
    def mean(self):
        """The mean, exact but for rounding, or None if there are no values."""
        return self.total / self.count if self.count else None

    def bounds(self, q):
        """Where percentile q (nearest rank) lies: (above this, at most that).

        The upper bound is infinity if the value is past the last bucket. (None, None) if there
        are no values. Raises ValueError for a q outside 0 < q <= 100.
        """
        if number("q", q, above=0) > 100:
            raise ValueError(f"q must be at most 100, not {q!r}")
        rank, below = ceil(Fraction(str(q)) * int(self.count) / 100), 0.0
        for end, values in sorted(self.buckets.items()):
            if values >= rank > 0:
                return below, end
            below = end
        return None, None

    def at_most(self, q):
        """The same in words: "at most 0.3 s", "over 0.25 and at most 0.5 s", "over 80 s"."""
        low, high = self.bounds(q)
        if high is None:
            return "no values"
        words = ([f"over {low:g}"] if low else []) + ([f"at most {high:g}"] if high < inf else [])
        return " and ".join(words) + " s"

    def __add__(self, other):
        """Both together, in the buckets that both have."""
        ends = [end for end in self.buckets if end in other.buckets]
        buckets = {end: self.buckets[end] + other.buckets[end] for end in ends}
        return Histogram(buckets, self.count + other.count, self.total + other.total)

    def __sub__(self, other):
        """What came after `other`, an earlier reading of the same."""
        ends = [end for end in self.buckets if end in other.buckets]
        buckets = {end: self.buckets[end] - other.buckets[end] for end in ends}
        return Histogram(buckets, self.count - other.count, self.total - other.total)


class Metrics:
    """One reading of a server: attributes named in GAUGES, COUNTERS and HISTOGRAMS, None for
    what it does not print, and pages and page_size, kv_tokens and waiting_for.

    server: who printed it; engines: a dict from an engine's labels to its own Metrics (empty in
    those); notes: what to know about it. kv_use is a part of 1; pages are those that requests
    can use, kv_tokens the tokens they hold; waiting_for is a dict from a reason to how many
    wait for it; the histograms are in seconds. seconds: between the two readings, if this is
    a difference.
    """

    def __init__(self, server, values, engines=(), notes=(), seconds=None):
        self.server, self.values, self.engines = server, values, dict(engines)
        self.notes, self.seconds = list(notes), seconds

    def __getattr__(self, name):
        known = (*GAUGES, *COUNTERS, *HISTOGRAMS, "pages", "page_size", "waiting_for")
        if name in known:
            return self.__dict__["values"].get(name)
        raise AttributeError(f"Metrics has no {name!r}, but {', '.join(known)}")

    def since(self, earlier, seconds):
        """What happened between an earlier reading of the same server and this one.

        seconds: from one to the other. Counters and histograms are differences, gauges those of
        this reading. Raises ValueError if a counter went back (the server was started anew)
        or the engines are not the same.
        """
        number("seconds", seconds, above=0)
        if (self.server, set(self.engines)) != (earlier.server, set(earlier.engines)):
            raise ValueError(
                f"not the same engines: {_said(earlier.engines)} of {earlier.server}, then "
                f"{_said(self.engines)} of {self.server}"
            )
        if (self.pages, self.page_size) != (earlier.pages, earlier.page_size):
            raise ValueError(
                f"not the same server: it had {earlier.pages} pages of {earlier.page_size} "
                f"tokens, then {self.pages} of {self.page_size}"
            )
        if not self.engines:
            return Metrics(self.server, _since(self.values, earlier.values), (), (), seconds)
        engines = {
            labels: engine.since(earlier.engines[labels], seconds)
            for labels, engine in self.engines.items()
        }
        parts = [engine.values for engine in engines.values()]
        # What belongs to no one engine is in the whole only.
        values = _since(self.values, earlier.values) | _together(parts)
        return Metrics(self.server, values, engines, self.notes, seconds)

    def rate(self, name):
        """How much a counter grew a second, in a difference; None if it is not printed.

        Raises ValueError for a single reading, and for what is no counter.
        """
        if self.seconds is None or name not in COUNTERS:
            raise ValueError(
                f"a rate needs two readings (later.since(earlier, seconds)) and one of "
                f"{', '.join(COUNTERS)}, not {name!r}"
            )
        value = getattr(self, name)
        return None if value is None else value / self.seconds

    def wall(self, limit):
        """What seems to hold the queue back, by one reading: "none", "batch", "cache" or why
        it is neither. limit: an engine's places (vLLM's max_num_seqs). One reading misleads:
        look at a whole run. "cache" may also be the prefill budget, which no gauge tells.
        Raises ValueError for a limit that is not above 0.
        """
        if self.waiting is None:
            return "not told: the server does not print how many wait"
        if not self.waiting:
            return "none"
        if self.running is None:
            return "not told: the server does not print how many run"
        if self.running >= number("limit", limit, above=0) * max(len(self.engines), 1):
            return "batch"
        if self.kv_use is None:
            return "cache, or something else: the server does not print its KV use"
        if self.kv_use >= ROOM:
            return "cache"
        return "neither: something else holds them (prefill budget, deferred)"

    def __repr__(self):
        lines = [f"{self.server}, {len(self.engines) or 1} engine{'s' * (len(self.engines) > 1)}"]
        if self.seconds:
            lines[0] += f", over {self.seconds:g} s"
        for name in (*GAUGES, "pages", "page_size", *COUNTERS):
            value = getattr(self, name)
            if value is not None:
                shown = f"{100 * value:.1f} %" if name == "kv_use" else f"{value:,.10g}"
                if name in COUNTERS and self.seconds:
                    shown += f"  ({self.rate(name):,.4g} a second)"
                lines.append(f"{name:>15}  {shown}")
        for name in HISTOGRAMS:
            if (read := getattr(self, name)) and read.count:
                lines.append(
                    f"{name:>15}  {read.count:,g} values, mean {read.mean:.4g} s, "
                    f"p50 {read.at_most(50)}, p99 {read.at_most(99)}"
                )
        return "\n".join([*lines, *self.notes])


def _said(engines):
    return "; ".join(" ".join(f"{k}={v}" for k, v in labels) for labels in engines) or "one engine"


def _since(now, then):
    """The values of one engine between two readings."""
    values = {}
    for name, value in now.items():
        before = then.get(name)
        if name in COUNTERS or name in HISTOGRAMS:
            if before is None:
                raise ValueError(f"{name} is in the later reading only")
            values[name] = value - before
            grown = values[name].buckets.values() if name in HISTOGRAMS else [values[name]]
            if any(change < 0 for change in grown):
                raise ValueError(f"{name} went back: the server was started anew in between")
        else:
            values[name] = value
    return values


def _together(engines):
    """The values of several engines as those of one server."""
    if len(engines) == 1:
        return dict(engines[0])
    values = {}
    for name in dict.fromkeys(name for engine in engines for name in engine):
        have = [engine[name] for engine in engines if name in engine]
        if name == "page_size":
            values[name] = have[0] if len(set(have)) == 1 else None
        elif name == "kv_use":
            sizes = [engine.get("kv_tokens") for engine in engines if name in engine]
            sizes = sizes if None not in sizes and sum(sizes) else [1] * len(have)
            values[name] = fsum(use * size for use, size in zip(have, sizes)) / fsum(sizes)
        elif name == "waiting_for":
            reasons = dict.fromkeys(reason for part in have for reason in part)
            values[name] = {reason: sum(part.get(reason, 0) for part in have) for reason in reasons}
        else:
            values[name] = have[0]
            for value in have[1:]:
                values[name] = values[name] + value
    return values


def read_metrics(text):
    """Read the text of a server's /metrics and return its Metrics. Needs prometheus_client.

    Knows vLLM (the names of now and of before), SGLang and llama.cpp. Several engines are put
    together: counts add up, the KV use is weighed by the size of each cache. Raises ValueError,
    naming the line, for text that is no Prometheus text; for the same series twice (two
    readings in one text); for a histogram whose buckets do not add up; and for a server that
    is not known.
    """
    samples = _samples(text)
    servers = {start for start in SERVERS if any(name.startswith(start) for name, *_ in samples)}
    if len(servers) != 1:
        found = ", ".join(sorted({name for name, *_ in samples})[:8]) or "nothing"
        raise ValueError(
            f"metrics of one server of {', '.join(SERVERS.values())} are needed, not {found}"
        )
    by_engine, seen, rest, skipped = {}, set(), {}, set()
    for name, labels, value in samples:
        series = (name, *sorted(labels.items()))
        if series in seen:
            raise ValueError(f"{name} is there twice with the same labels: two readings?")
        seen.add(series)
        if any(labels.get(rank, "0") != "0" for rank in RANKS):
            skipped.add(tuple((rank, labels[rank]) for rank in RANKS if rank in labels))
            continue
        engine = tuple((key, labels[key]) for key in ENGINE if key in labels)
        by_engine.setdefault(engine, {}).setdefault(name, []).append((labels, value))
    prefix = servers.pop()
    # vLLM's configuration names no model, its rejections no engine: they belong to the engine
    # whose labels hold theirs, a configuration to all of them, the rest to the whole server.
    whole = {e for e in by_engine if not any(set(e) < set(other) for other in by_engine)}
    for engine in set(by_engine) - whole:
        above = [by_engine[other] for other in whole if set(engine) < set(other)]
        for name, values in by_engine[engine].items():
            for place in above if len(above) == 1 or name == CONFIG else [rest]:
                place.setdefault(name, []).extend(values)
    notes = []
    if skipped:
        notes.append(f"left out, as they print the same work: {len(skipped)} ranks other than 0")
    engines = {engine: _engine(by_engine[engine], notes) for engine in sorted(whole)}
    values = _together(list(engines.values()))
    values |= {name: v for name, v in _engine(rest, notes).items() if name not in values}
    if not text.endswith("\n"):
        notes.append("the text does not end with a line end: it may be cut short")
    parts = {engine: Metrics(SERVERS[prefix], values) for engine, values in engines.items()}
    return Metrics(SERVERS[prefix], values, parts, dict.fromkeys(notes))


def _samples(text):
    """(name, labels, value) of every sample of Prometheus text."""
    from prometheus_client.parser import text_string_to_metric_families as parse

    if not isinstance(text, str):
        raise ValueError(f"text must be a str, not {type(text).__name__}")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        families = list(parse(text))
    except Exception as error:  # the parser lets several kinds through
        for line, one in enumerate(text.split("\n"), 1):
            try:
                list(parse(one))
            except Exception:
                raise ValueError(f"line {line} is no Prometheus text: {one[:80]!r}") from None
        raise ValueError(f"no Prometheus text: {error}") from None
    return [(s.name, s.labels, s.value) for family in families for s in family.samples]


def _engine(found, notes):
    """The values of one engine, by our names, from its samples by theirs."""
    values = {}
    for name, theirs in (GAUGES | COUNTERS).items():
        printed = [their for their in theirs.split() if their in found]
        if printed:
            values[name] = fsum(value for _, value in found[printed[0]])
            if not isfinite(values[name]) or values[name] < 0:
                raise ValueError(f"{printed[0]} is {values[name]!r}")
        if len(printed) > 1:
            notes.append(f"{printed[0]} is read, {', '.join(printed[1:])} is not")
    for name, theirs in HISTOGRAMS.items():
        printed = [their for their in theirs.split() if f"{their}_bucket" in found]
        if printed:
            values[name] = _histogram(printed[0], found)
        if len(printed) > 1:
            notes.append(f"{printed[0]} is read, {', '.join(printed[1:])} is not")
    new, old = COUNTERS["prefix_asked"].split()
    if old in found and new not in found:
        notes.append("prefix_asked and prefix_hits are in pages (blocks), not in tokens")
    by_reason = found.get("vllm:num_requests_waiting_by_reason")
    if by_reason:
        values["waiting_for"] = {labels.get("reason", ""): value for labels, value in by_reason}
    if CONFIG in found:
        _pages(found[CONFIG][0][0], values, notes)
    return values


def _pages(labels, values, notes):
    """Pages and their size, from the labels of vLLM's configuration."""
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    if not (blocks.isdecimal() and size.isdecimal()):
        return
    # Since it no longer swaps, vLLM keeps one block back, which stands for "no page".
    kept = 0 if "swapped" in values else 1
    values["pages"], values["page_size"] = int(blocks) - kept, int(size)
    values["kv_tokens"] = values["pages"] * values["page_size"]
    if kept:
        notes.append(f"of {blocks} blocks the server keeps one back")


def _histogram(name, found):
    """A Histogram from its samples; those with other labels than `le` are added up."""
    series = {}
    for labels, value in found[f"{name}_bucket"]:
        other = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        try:
            series.setdefault(other, {})[float(labels["le"])] = value
        except (KeyError, ValueError):
            raise ValueError(f"{name}_bucket has a bad le: {labels!r}") from None
    ends = [set(buckets) for buckets in series.values()]
    buckets = {end: sum(b[end] for b in series.values()) for end in sorted(set.intersection(*ends))}
    counts = list(buckets.values())
    last = buckets.get(inf, nan)
    count, total = (
        fsum(value for _, value in found[part]) if part in found else missing
        for part, missing in ((f"{name}_count", last), (f"{name}_sum", nan))
    )
    if not (0 <= min(counts, default=-1) and counts == sorted(counts) and count == last != inf):
        raise ValueError(f"{name}: the buckets do not add up to its count, {count!r}")
    return Histogram(buckets, count, total)


# vLLM's own buckets, in seconds.
WAIT_ENDS = ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
GAP_ENDS = ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80"
PHASE_ENDS = ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"


def write_metrics(run, at=None):
    """The state of a Run at a time, as vLLM would print it: Prometheus text.

    at: seconds on the run's clock; left out, the end. Counted is what has happened by then: a
    token at the end of the step that wrote it, a reply (with its phases) when it is done, a
    preemption when the chat is let in again (until then it counts as running).
    `read_metrics` reads it. Raises ValueError for a time that is negative or not finite.
    """
    at = max(run.done) if at is None else number("at", at, least=0)
    send, prompts, replies = run.workload.send, run.workload.prompts, run.workload.replies
    chats = range(len(send))
    past = [step for step in run.steps if step.start + step.seconds <= at]
    begun = [c for c in chats if run.first[c] <= at]
    done = [c for c in chats if run.done[c] <= at]
    label = 'engine="0",model_name="tinyserve"'
    lines = []

    def put(name, kind, value, more=""):
        lines.append(f"# TYPE vllm:{name} {kind}")
        lines.append(f"vllm:{name}{{{label}{more}}} {float(value)!r}")

    def histogram(name, ends, values, times=None):
        """values: seconds; times: how often each counts (once, if left out)."""
        times = [1] * len(values) if times is None else times
        lines.append(f"# TYPE vllm:{name} histogram")
        for end in [*map(float, ends.split()), inf]:
            count = sum(n for value, n in zip(values, times) if value <= end)
            shown = "+Inf" if end == inf else repr(end)
            lines.append(f'vllm:{name}_bucket{{{label},le="{shown}"}} {float(count)!r}')
        lines.append(f"vllm:{name}_count{{{label}}} {float(sum(times))!r}")
        lines.append(f"vllm:{name}_sum{{{label}}} {fsum(v * n for v, n in zip(values, times))!r}")

    sent = sum(time <= at for time in send)
    admitted = sum(time <= at for time in run.admitted)
    put("num_requests_running", "gauge", admitted - len(done))
    put("num_requests_waiting", "gauge", sent - admitted)
    put("kv_cache_usage_perc", "gauge", (past[-1].held if past else 0) / run.pages)
    # A server that throws chats out lets them in again: more have joined than were admitted.
    again = sum(step.joined for step in run.steps if step.start <= at) - admitted
    put("num_preemptions_total", "counter", again)
    put("prompt_tokens_total", "counter", sum(prompts[c] for c in begun))
    put("generation_tokens_total", "counter", sum(step.chats for step in past))
    put("request_success_total", "counter", len(done), ',finished_reason="length"')
    histogram("time_to_first_token_seconds", WAIT_ENDS, [run.first[c] - send[c] for c in begun])
    gaps = [step.chats - step.joined for step in past]
    histogram("inter_token_latency_seconds", GAP_ENDS, [step.seconds for step in past], gaps)
    means = [(run.done[c] - run.first[c]) / (replies[c] - 1) for c in done if replies[c] > 1]
    histogram("request_time_per_output_token_seconds", GAP_ENDS, means)
    for name, begin, end in (
        ("e2e_request_latency", send, run.done),
        ("request_queue_time", send, run.admitted),
        ("request_prefill_time", run.admitted, run.first),
        ("request_decode_time", run.first, run.done),
    ):
        histogram(f"{name}_seconds", PHASE_ENDS, [end[c] - begin[c] for c in done])
    # One block more than there are pages: vLLM counts the one that it keeps back.
    blocks = f',block_size="{run.page_size}",num_gpu_blocks="{run.pages + 1}"'
    put("cache_config_info", "gauge", 1, blocks)
    return "\n".join(lines) + "\n"
