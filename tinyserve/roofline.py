"""What one step of a model server costs: the slower of arithmetic and memory.

Introduced in the chapter "One step, many users". The model of cost is the
roofline of Williams, Waterman and Patterson (2009): a step takes as long as its
arithmetic at the chip's peak, or as long as its bytes at the chip's bandwidth,
whichever is longer.
"""

from dataclasses import dataclass
from math import floor

from tinyserve.checks import number, whole


@dataclass(frozen=True)
class Chip:
    """A chip as its data sheet prints it.

    peak is in floating-point operations a second, bandwidth in bytes a second,
    memory in bytes (1 GB = 1e9 bytes, as on the sheet). Raises ValueError for a
    value that is not above zero.
    """

    name: str
    peak: float
    bandwidth: float
    memory: float

    def __post_init__(self):
        for field in ("peak", "bandwidth", "memory"):
            value = number(f"a chip's {field}", getattr(self, field), above=0)
            object.__setattr__(self, field, float(value))  # NumPy's narrow kinds lose digits


@dataclass(frozen=True)
class Model:
    """A decoder's sizes: weights (a count), layers, KV heads, values a head.

    bytes_per_value is 2 for 16-bit numbers. Raises ValueError for a size that is
    not a whole number of at least 1.
    """

    name: str
    weights: int
    layers: int
    kv_heads: int
    head_size: int
    bytes_per_value: int = 2

    def __post_init__(self):
        for field in ("weights", "layers", "kv_heads", "head_size", "bytes_per_value"):
            value = whole(f"a model's {field}", getattr(self, field))
            object.__setattr__(self, field, value)  # NumPy's narrow kinds overflow

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


# NVIDIA A100 80GB SXM data sheet: dense BF16, HBM2e.
A100 = Chip("A100 80GB SXM", peak=312e12, bandwidth=2039e9, memory=80e9)
# Llama 3.1 8B, from its published configuration.
LLAMA_8B = Model("Llama 3.1 8B", weights=8_030_261_248, layers=32, kv_heads=8, head_size=128)


def step_parts(running, context_tokens, prompt_tokens, model=LLAMA_8B, chip=A100):
    """Seconds of arithmetic and seconds of memory in one step, as a pair.

    running: chats that write one token each; context_tokens: the sum of their
    contexts (prompt plus tokens written so far); prompt_tokens: the sum of the
    prompts that join in this step. Counts only, unchecked: `step_seconds` is the door.
    Left out: attention's arithmetic, writing the cache, software between steps.
    """
    flops = model.flops_per_token * (running + prompt_tokens)
    read = model.weight_bytes + model.kv_bytes_per_token * context_tokens
    return flops / chip.peak, read / chip.bandwidth


def step_seconds(contexts, prompt_tokens=0, model=LLAMA_8B, chip=A100):
    """Seconds of one step: the larger of its arithmetic and its memory time.

    contexts: tokens of each running chat, prompt included (a list, may be empty);
    prompt_tokens: tokens of all the prompts that join in this step. Raises ValueError
    for a context under 1, a negative prompt_tokens, or counts that are not whole.
    """
    contexts = [whole(f"context of running chat {i}", c) for i, c in enumerate(contexts)]
    prompt_tokens = whole("prompt_tokens", prompt_tokens, least=0)
    return max(step_parts(len(contexts), sum(contexts), prompt_tokens, model, chip))


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
