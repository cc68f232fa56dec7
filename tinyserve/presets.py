"""Chips and models to choose from, as their makers print them, and which model fits on which chip.

Introduced in the chapter "How far is the toy from a real card?". Each has its source beside it.
NVIDIA often prints its peak for weights of which two in four are zero ("with sparsity"); here
it is always the one for dense weights.
"""

from collections import namedtuple

from tinyserve.cache import PAGE_SIZE, pages_for
from tinyserve.checks import whole
from tinyserve.roofline import A100, LLAMA_8B, Chip, Model, pages_that_fit
from tinyserve.tables import table

# title and link of what prints the numbers, and a note on how it prints them.
Source = namedtuple("Source", "title link note", defaults=[""])

NVIDIA = "https://www.nvidia.com/en-us/data-center/"
A100_SHEET = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
AMD_SHEET = (
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/"
    "amd-instinct-mi300x-data-sheet.pdf"
)
ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
HALF = "prints {} with sparsity; dense is half"

_CHIPS = [
    (
        Chip("A100 40GB SXM", peak=312e12, bandwidth=1555e9, memory=40e9),
        Source("NVIDIA A100 data sheet", A100_SHEET, "prints 312 dense, 624 with sparsity"),
    ),
    (A100, Source("NVIDIA A100 data sheet", A100_SHEET, "prints 312 dense, 624 with sparsity")),
    (
        Chip("H100 SXM", peak=1979e12 / 2, bandwidth=3350e9, memory=80e9),
        Source("NVIDIA H100, specifications", NVIDIA + "h100/", HALF.format("1,979")),
    ),
    (
        Chip("H200 SXM", peak=1979e12 / 2, bandwidth=4800e9, memory=141e9),
        Source("NVIDIA H200, specifications", NVIDIA + "h200/", HALF.format("1,979")),
    ),
    (
        Chip("L4", peak=242e12 / 2, bandwidth=300e9, memory=24e9),
        Source("NVIDIA L4, specifications", NVIDIA + "l4/", HALF.format("242")),
    ),
    (
        Chip("L40S", peak=362.05e12, bandwidth=864e9, memory=48e9),
        Source(
            "NVIDIA L40S, specifications",
            NVIDIA + "l40s/",
            "prints 362.05 dense, 733 with sparsity, which is not quite twice that",
        ),
    ),
    (
        Chip("RTX 4090", peak=165.2e12, bandwidth=1008e9, memory=24e9),
        Source(
            "NVIDIA Ada GPU architecture, appendix A",
            ADA,
            "prints 165.2 dense with sums kept in 32 bits, as servers do; 330.3 with sums in 16",
        ),
    ),
    (
        Chip("MI300X", peak=1307.4e12, bandwidth=5300e9, memory=192e9),
        Source("AMD Instinct MI300X data sheet", AMD_SHEET, "prints 1,307.4 dense"),
    ),
]


# Each of 16-bit numbers, and its repository on Hugging Face's hub, where its config.json is.
_MODELS = [
    (LLAMA_8B, "meta-llama/Llama-3.1-8B"),
    (Model("Llama 3.1 70B", 70_553_706_496, 80, 8, 128, heads=64), "meta-llama/Llama-3.1-70B"),
    (Model("Qwen2.5 7B", 7_615_616_512, 28, 4, 128, heads=28), "Qwen/Qwen2.5-7B"),
    (Model("Qwen2.5 72B", 72_706_203_648, 80, 8, 128, heads=64), "Qwen/Qwen2.5-72B"),
    (Model("Qwen3 8B", 8_190_735_360, 36, 8, 128, heads=32), "Qwen/Qwen3-8B"),
    (Model("Qwen3 32B", 32_762_123_264, 64, 8, 128, heads=64), "Qwen/Qwen3-32B"),
    (Model("Mistral 7B v0.3", 7_248_023_552, 32, 8, 128, heads=32), "mistralai/Mistral-7B-v0.3"),
    (
        Model("Mistral Small 24B", 23_572_403_200, 40, 8, 128, heads=32),
        "mistralai/Mistral-Small-24B-Base-2501",
    ),
]

CHIPS = {chip.name: chip for chip, _ in _CHIPS}
MODELS = {model.name: model for model, _ in _MODELS}
SOURCES = {chip.name: source for chip, source in _CHIPS} | {
    model.name: Source(place, f"https://huggingface.co/{place}/blob/main/config.json")
    for model, place in _MODELS
}


def _source(name):
    return SOURCES[name].title if name in SOURCES else None


def chip_table(chips=None):
    """A table of chips: peak, bandwidth, memory, and what prints them.

    chips: a list of Chip (all of `CHIPS` if left out).
    """
    chips = list(CHIPS.values()) if chips is None else chips
    rows = [
        [chip.peak / 1e12, chip.bandwidth / 1e9, round(chip.memory / 1e9), _source(chip.name)]
        for chip in chips
    ]
    heads = ["dense 16-bit TFLOP/s", "bandwidth GB/s", "memory GB", "source"]
    return table(rows, heads, [chip.name for chip in chips], "chip")


def model_table(models=None):
    """A table of models: weights, the cache that a token takes, and what prints their sizes.

    models: a list of Model (all of `MODELS` if left out).
    """
    models = list(MODELS.values()) if models is None else models
    rows = [
        [m.weights / 1e9, m.weight_bytes / 1e9, m.kv_bytes_per_token / 1024, _source(m.name)]
        for m in models
    ]
    heads = ["weights 1e9", "weights GB", "cache of a token KiB", "source"]
    return table(rows, heads, [model.name for model in models], "model")


def chats_that_fit(tokens, page_size=PAGE_SIZE, share=0.9, working=2e9, model=LLAMA_8B, chip=A100):
    """How many chats of `tokens` tokens a card holds in whole pages, beside the weights.

    None if the weights do not fit; the other arguments are those of `pages_that_fit`. Raises
    ValueError for tokens under 1, and for what `pages_that_fit` refuses.
    """
    pages = pages_that_fit(page_size, share, working, model, chip)
    chats = pages // pages_for(whole("tokens", tokens), page_size)
    return chats if chip.memory * share - working > model.weight_bytes else None


def fit_table(tokens=1000, page_size=PAGE_SIZE, share=0.9, working=2e9, models=None, chips=None):
    """A table of how many chats of `tokens` tokens each card holds, a line for each model.

    A hyphen stands where the weights do not fit. For pages instead of chats, say as many
    tokens as a page has. The arguments are those of `chats_that_fit`; models and chips are
    lists. Raises ValueError for what `chats_that_fit` refuses.
    """
    models = list(MODELS.values()) if models is None else models
    chips = list(CHIPS.values()) if chips is None else chips
    rows = [
        [chats_that_fit(tokens, page_size, share, working, model, chip) for chip in chips]
        for model in models
    ]
    return table(rows, [chip.name for chip in chips], [model.name for model in models], "model")
