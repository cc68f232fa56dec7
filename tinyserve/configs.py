"""A model's sizes from its configuration, the `config.json` that Hugging Face's hub stores.

Introduced in the chapter "How far is the toy from a real card?". The file says how the layers
are built and not how many weights that makes, so the weights are counted here, for four
families of decoders that are built alike. Any other is refused: a wrong count would pass
unseen. The layers are as in the model code of Hugging Face's transformers.
"""

import json
from pathlib import Path

from tinyserve.checks import whole

# The class that each family is saved as, and which of the keys for biases it may have. Qwen2 has
# biases without a key, for queries, keys and values.
FAMILIES = {
    "llama": ("LlamaForCausalLM", ("attention_bias", "mlp_bias")),
    "mistral": ("MistralForCausalLM", ()),
    "qwen2": ("Qwen2ForCausalLM", ()),
    "qwen3": ("Qwen3ForCausalLM", ("attention_bias",)),
}
BYTES = {
    **{"float32": 4, "bfloat16": 2, "float16": 2},
    **{"float8_e4m3fn": 1, "float8_e5m2": 1},
}
QUANTIZED = (
    "they are of more than one width then: read the config.json of the model that was quantised, "
    "and set Model's bytes_per_value, for weights and cache"
)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def _parsed(path):
    """What a JSON file holds, and the file, which may be named by its folder."""
    try:
        path = Path(path)
    except TypeError:
        raise ValueError(f"a configuration is a path or a dict, not {path!r}") from None
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if (beside := path.with_name("hf_quant_config.json")).exists():  # NVIDIA's way to say it
        raise ValueError(f"{beside} says that the weights are quantised; {QUANTIZED}")
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:  # also what is not UTF-8, and so no text
        raise ValueError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{path} is not a configuration: it is nested too deep") from None
    return path, config


def _name(path):
    """What to call the model of a file: its repository in the hub's cache, or its folder."""
    for part in path.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return path.absolute().parent.name if path.name == "config.json" else path.stem


class _Config:
    """A configuration whose values are asked for by key; every error names the key and the file."""

    def __init__(self, values, where):
        self.values, self.where = values, where

    def wrong(self, what):
        return ValueError(f"{self.where}: {what}")

    def size(self, key, default=None):
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise self.wrong(f"{key} is missing")
        return whole(f"{key} in {self.where}", value)

    def yes(self, key):
        value = self.values.get(key)
        if value not in (None, True, False):
            raise self.wrong(f"{key} must be true or false, not {value!r}")
        return bool(value)

    def bytes_per_value(self):
        kind = self.values.get("dtype") or self.values.get("torch_dtype")
        if kind is None:
            raise self.wrong("dtype is missing, and so is torch_dtype, its older name")
        known = BYTES.get(str(kind).removeprefix("torch."))
        if known is None:
            raise self.wrong(f"dtype {kind!r} is not known, only {', '.join(BYTES)}")
        return known

    def family(self):
        """The model's type, after everything that would make the count a wrong one is refused."""
        kind = self.values.get("model_type")
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise self.wrong(
                f"weights can be counted for the model_type {', '.join(FAMILIES)}, not {kind!r}; "
                "give Model the sizes yourself"
            )
        built, biases = FAMILIES[kind]
        named = self.values.get("architectures")
        if named not in (None, [built]):
            raise self.wrong(f"architectures must be {[built]}, not {named!r}")
        for key in EXPERTS:
            if self.values.get(key):
                raise self.wrong(f"{key} is {self.values[key]}: experts are not counted")
        for key in ("attention_bias", "mlp_bias"):
            if self.yes(key) and key not in biases:
                raise self.wrong(f"{key} is true, which a {kind} does not have")
        for key in ("quantization_config", "compression_config"):
            if quantized := self.values.get(key):
                method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
                raise self.wrong(f"{key} has the weights stored as {method!r}; {QUANTIZED}")
        return kind


def read_config(source):
    """A model's sizes from its configuration: the arguments of `Model`, in a dict.

    source: the path of a `config.json`, or of the folder that holds it, or a dict of what one
    says. Returns name, weights (a count), layers, heads (of the queries), kv_heads, head_size
    (values) and bytes_per_value, which holds for weights and cache. A weight that is used
    twice (`tie_word_embeddings`) counts once. A window that bounds the cache
    (`sliding_window`) is not read. Raises ValueError, with the key and the file, for a file
    that is not there or not JSON, a missing or impossible size, a family whose weights are not
    counted here, experts, and quantised weights.
    """
    if isinstance(source, dict):
        values, where = source, "the configuration"
        name = str(source.get("_name_or_path") or source.get("model_type"))
    else:
        path, values = _parsed(source)
        where, name = str(path), _name(path)
    if not isinstance(values, dict):
        raise ValueError(f"{where} must hold an object with keys, not {type(values).__name__}")
    config = _Config(values, where)
    family = config.family()
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    layers, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    # Left out, these two have defaults; other families' defaults are not these.
    kv_heads = config.size("num_key_value_heads", heads if family == "llama" else None)
    if heads % kv_heads:
        raise config.wrong(f"{heads} num_attention_heads do not share {kv_heads} KV heads evenly")
    head_size = values.get("head_dim")
    if head_size is None and family != "qwen3":
        if hidden % heads:
            raise config.wrong(f"head_dim is missing, and {heads} heads do not divide {hidden}")
        head_size = hidden // heads
    head_size = config.size("head_dim", head_size)
    queries, keys = heads * head_size, kv_heads * head_size

    layer = 2 * hidden * (queries + keys) + 3 * hidden * inner + 2 * hidden  # maps, two norms
    if family == "qwen2" or config.yes("attention_bias"):
        layer += queries + 2 * keys + (0 if family == "qwen2" else hidden)
    if config.yes("mlp_bias"):
        layer += 2 * inner + hidden
    if family == "qwen3":
        layer += 2 * head_size  # a norm of queries, a norm of keys
    tables = 1 if config.yes("tie_word_embeddings") else 2  # words in, words out
    return {
        "name": name,
        "weights": layers * layer + hidden + tables * hidden * config.size("vocab_size"),
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "bytes_per_value": config.bytes_per_value(),
    }
