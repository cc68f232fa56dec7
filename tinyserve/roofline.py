"""What one step of a model server costs: the slower of arithmetic and memory.

Introduced in the chapter "One step, many users". The model of cost is the
roofline of Williams, Waterman and Patterson (2009): a step takes as long as its
arithmetic at the chip's peak, or as long as its bytes at the chip's bandwidth,
whichever is longer.
"""

from dataclasses import dataclass, replace
from math import floor

from tinyserve.checks import number, whole

MOST_SHARE = 1.2  # of a data sheet; a chip can run a little above its sheet's clock


@dataclass(frozen=True)
class Chip:
    """A chip as its data sheet prints it, and how much of that a step gets.

    peak is in floating-point operations a second, bandwidth in bytes a second, memory in
    bytes (1 GB = 1e9 bytes, as on the sheet). A real step reaches only peak_share of the
    peak and bandwidth_share of the bandwidth, and takes overhead seconds besides; left
    out, it gets all of the sheet and nothing is added. These three are introduced in the
    chapter "How far is the toy from a real card?". Raises ValueError for an overhead
    below zero, a share above 1.2, and another value that is not above zero.
    """

    name: str
    peak: float
    bandwidth: float
    memory: float
    peak_share: float = 1.0
    bandwidth_share: float = 1.0
    overhead: float = 0.0

    def __post_init__(self):
        for field in ("peak", "bandwidth", "memory", "peak_share", "bandwidth_share"):
            most = MOST_SHARE if "share" in field else None  # 79 % is 0.79
            value = number(f"a chip's {field}", getattr(self, field), above=0, most=most)
            object.__setattr__(self, field, float(value))  # NumPy's narrow kinds lose digits
        overhead = number("a chip's overhead", self.overhead, least=0)
        object.__setattr__(self, "overhead", float(overhead))


@dataclass(frozen=True)
class Model:
    """A decoder's sizes: weights (a count), layers, KV heads, values a head.

    bytes_per_value is 2 for 16-bit numbers. With attention=True a step also counts the
    arithmetic of attention, which needs heads, the number of query heads. Raises
    ValueError for a size that is not a whole number of at least 1, and for attention
    without heads.
    """

    name: str
    weights: int
    layers: int
    kv_heads: int
    head_size: int
    bytes_per_value: int = 2
    heads: int | None = None
    attention: bool = False

    def __post_init__(self):
        sizes = ["weights", "layers", "kv_heads", "head_size", "bytes_per_value"]
        for field in sizes + ["heads"] * (self.heads is not None or self.attention):
            value = whole(f"a model's {field}", getattr(self, field))
            object.__setattr__(self, field, value)  # NumPy's narrow kinds overflow

    @classmethod
    def from_config(cls, source, **changes):
        """The model of a Hugging Face `config.json`.

        source: the path of the file or of its folder, or a dict of what it says; changes:
        fields to set otherwise, such as name="mine" or attention=True. Raises ValueError
        for what `tinyserve.configs.read_config` can't read or count, with the file and the key.
        """
        from tinyserve.configs import read_config  # only where a file is read

        return cls(**{**read_config(source), **changes})

    @property
    def flops_per_token(self):
        """Operations to handle one token: a multiplication and an addition a weight."""
        return 2 * self.weights

    @property
    def weight_bytes(self):
        """Bytes of all the weights; every step reads them once."""
        return self.bytes_per_value * self.weights

    @property
    def kv_bytes_per_token(self):
        """Bytes of KV cache a token: a key and a value for each layer and KV head."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.bytes_per_value

    @property
    def flops_per_pair(self):
        """Operations for one token to look back at one token, itself included.

        For each layer and head a product with its key and one with its value, of two
        operations a number. 0 unless attention is counted.
        """
        return 4 * self.layers * self.heads * self.head_size if self.attention else 0


# NVIDIA A100 80GB SXM data sheet: dense BF16, HBM2e.
A100 = Chip("A100 80GB SXM", peak=312e12, bandwidth=2039e9, memory=80e9)
# The same card as measured: `tinyserve.calibrate.fit` of 66 steps of Llama 3.1 8B, sums of kernels
# timed by NVIDIA's aiconfigurator (data/LICENCES.md). 3.2 % off on average and 15.6 % at worst,
# where the data sheet is off by 32.2 % and 43.8 %. No time of the host between steps is in it.
A100_MEASURED = replace(
    A100, name=f"{A100.name}, measured", peak_share=0.79, bandwidth_share=0.77, overhead=1.8e-3
)
# Llama 3.1 8B, from its published configuration.
LLAMA_8B = Model(
    "Llama 3.1 8B", weights=8_030_261_248, layers=32, kv_heads=8, head_size=128, heads=32
)


def step_parts(running, context_tokens, prompt_tokens, model=LLAMA_8B, chip=A100, pairs=0):
    """Seconds of arithmetic and seconds of memory in one step, as a pair.

    running: chats that write one token each; context_tokens: the sum of their
    contexts (prompt plus tokens written so far); prompt_tokens: the sum of the
    prompts that join in this step. pairs: `pairs_in` each of these prompts, summed;
    only a model that counts attention's arithmetic asks for it. Counts only,
    unchecked: `step_seconds` is the door. Left out: writing the cache.
    """
    flops = model.flops_per_token * (running + prompt_tokens)
    flops += model.flops_per_pair * (context_tokens + pairs)
    read = model.weight_bytes + model.kv_bytes_per_token * context_tokens
    return flops / (chip.peak * chip.peak_share), read / (chip.bandwidth * chip.bandwidth_share)


def pairs_in(prompt):
    """Pairs of a token and one it looks back at, in a prompt: each with all up to itself."""
    return prompt * (prompt + 1) // 2


def step_cost(running, context_tokens, prompts, model=LLAMA_8B, chip=A100):
    """Seconds of one step: the longer of its parts, and the chip's overhead.

    The arguments are those of `step_parts`, but prompts is a list: one length, in tokens,
    for each prompt that joins.
    """
    pairs = sum(map(pairs_in, prompts))
    parts = step_parts(running, context_tokens, sum(prompts), model, chip, pairs)
    return max(parts) + chip.overhead


def step_seconds(contexts, prompt_tokens=0, model=LLAMA_8B, chip=A100):
    """Seconds of one step, as `step_cost`, from input that is checked.

    contexts: tokens of each running chat, prompt included (a list, may be empty);
    prompt_tokens: tokens of the prompt that joins in this step, or a list of one number
    for each prompt. Raises ValueError for a context under 1, negative prompt_tokens, or
    counts that are not whole.
    """
    contexts = [whole(f"context of running chat {i}", c) for i, c in enumerate(contexts)]
    prompts = prompt_tokens if isinstance(prompt_tokens, (list, tuple)) else [prompt_tokens]
    prompts = [whole("prompt_tokens", prompt, least=0) for prompt in prompts]
    return step_cost(len(contexts), sum(contexts), prompts, model, chip)


def users_that_fit(tokens, model=LLAMA_8B, chip=A100):
    """How many chats of `tokens` each fit in memory beside the weights.

    0 if the weights alone do not fit. Raises ValueError for tokens under 1.
    """
    left = chip.memory - model.weight_bytes
    return max(0, floor(left / (model.kv_bytes_per_token * whole("tokens", tokens))))


def pages_that_fit(page_size=16, share=0.9, working=2e9, model=LLAMA_8B, chip=A100):
    """How many pages of cache a card holds when a server may use `share` of its memory.

    page_size in tokens; `working` is memory set aside for the step's own arrays, in
    bytes. Introduced in the chapter "Pages". Raises ValueError for a share outside
    0 to 1, a page size under 1 or negative working memory.
    """
    number("share", share, above=0, most=1)
    left = chip.memory * share - model.weight_bytes - number("working", working, least=0)
    return max(0, floor(left / (model.kv_bytes_per_token * whole("page_size", page_size))))
