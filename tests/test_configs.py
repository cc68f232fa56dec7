"""A model's sizes from its config.json: published totals, small cases by hand, every refusal."""

import json

import pytest

from tinyserve.configs import read_config

KEYS = (
    "model_type hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads head_dim vocab_size tie_word_embeddings"
).split()
# The keys of each model's published config.json, and what the hub counts in its weight files
# (https://huggingface.co/api/models/NAME, safetensors.total). Neither was fetched for these
# tests: they are as public repositories quote them.
# - configurations of Llama 3.1, Qwen3 8B and 32B: the copies in NVIDIA's aiconfigurator-core
#   0.12.0 (PyPI, model_configs); of Llama 3.2, Qwen2.5 3B, 7B and 32B: citsjtu2020/LLM-Prof,
#   sglang/Model_Config.md; of Qwen2.5 0.5B: rwth-i6/i6_experiments, qwen2_configs.py (Qwen2's, the
#   same); of Mistral Nemo: kevinstephano/thunder_model_blocks, mistral_config.py
# - totals: Llama 3.1 with the hub's revisions d04e592, 349b2dd, b906e4d; the others from a second
#   project's list of the same field, and Mistral Small's from keras-hub and llama.cpp's n_params
PUBLISHED = {
    "Llama-3.1-8B": ("llama", 4096, 14336, 32, 32, 8, None, 128256, False, 8_030_261_248),
    "Llama-3.1-70B": ("llama", 8192, 28672, 80, 64, 8, None, 128256, False, 70_553_706_496),
    "Llama-3.1-405B": ("llama", 16384, 53248, 126, 128, 8, None, 128256, False, 405_853_388_800),
    "Llama-3.2-3B": ("llama", 3072, 8192, 28, 24, 8, 128, 128256, True, 3_212_749_824),
    "Qwen2.5-0.5B": ("qwen2", 896, 4864, 24, 14, 2, None, 151936, True, 494_032_768),
    "Qwen2.5-3B": ("qwen2", 2048, 11008, 36, 16, 2, None, 151936, True, 3_085_938_688),
    "Qwen2.5-7B": ("qwen2", 3584, 18944, 28, 28, 4, None, 152064, False, 7_615_616_512),
    "Qwen2.5-32B": ("qwen2", 5120, 27648, 64, 40, 8, None, 152064, False, 32_763_876_352),
    "Qwen2.5-72B": ("qwen2", 8192, 29568, 80, 64, 8, None, 152064, False, 72_706_203_648),
    "Qwen3-8B": ("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False, 8_190_735_360),
    "Qwen3-32B": ("qwen3", 5120, 25600, 64, 64, 8, 128, 151936, False, 32_762_123_264),
    "Mistral-7B-v0.1": ("mistral", 4096, 14336, 32, 32, 8, None, 32000, False, 7_241_732_096),
    "Mistral-7B-v0.3": ("mistral", 4096, 14336, 32, 32, 8, None, 32768, False, 7_248_023_552),
    "Mistral-Nemo": ("mistral", 5120, 14336, 40, 32, 8, 128, 131072, False, 12_247_782_400),
    "Mistral-Small-24B": ("mistral", 5120, 32768, 40, 32, 8, 128, 131072, False, 23_572_403_200),
}
# One layer, by hand below.
TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4,
    "intermediate_size": 5,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "torch_dtype": "bfloat16",
}


def published(name, **more):
    return {**dict(zip(KEYS, PUBLISHED[name])), "torch_dtype": "bfloat16", **more}


def tiny(without=(), **more):
    return {key: value for key, value in {**TINY, **more}.items() if key not in without}


def weights(**more):
    return read_config(tiny(**more))["weights"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_count_is_the_hubs(name):
    read = read_config(published(name))
    assert read["weights"] == PUBLISHED[name][-1]


def test_what_the_hub_counts_beside_the_weights_of_llama_2():
    # Its files also store 64 rotary frequencies a layer, which are no weights: the hub says
    # 6,738,417,664 and 68,976,653,312.
    sizes = {"vocab_size": 32000, "head_dim": None, "tie_word_embeddings": False}
    small = published("Llama-3.1-8B", intermediate_size=11008, num_key_value_heads=32, **sizes)
    assert read_config(small)["weights"] + 32 * 64 == 6_738_417_664
    large = published("Llama-3.1-70B", **sizes)
    assert read_config(large)["weights"] + 80 * 64 == 68_976_653_312


def test_all_that_is_read():
    assert read_config(published("Qwen3-32B", _name_or_path="Qwen/Qwen3-32B")) == {
        "name": "Qwen/Qwen3-32B",
        "weights": 32_762_123_264,
        "layers": 64,
        "heads": 64,
        "kv_heads": 8,
        "head_size": 128,  # and not 5120 / 64
        "bytes_per_value": 2,
    }
    assert read_config(published("Qwen2.5-7B"))["head_size"] == 3584 // 28
    assert read_config(tiny())["name"] == "llama"


def test_one_layer_by_hand():
    # Head size 2: queries 4 x 4, keys and values 4 x 2 each, output 4 x 4: 48. Gate, up and
    # down 3 x 4 x 5 = 60. Norms 4 + 4, and the last one 4. Words in and out 2 x 10 x 4 = 80.
    assert weights() == 48 + 60 + 8 + 4 + 80
    assert weights(num_hidden_layers=3) == 3 * (48 + 60 + 8) + 4 + 80
    assert weights(tie_word_embeddings=True) == weights() - 40  # one table for both
    assert weights(num_key_value_heads=2) == weights() + 2 * 4 * 2  # no longer shared
    assert weights(head_dim=3) == 2 * 4 * (6 + 3) + 60 + 8 + 4 + 80
    assert weights(attention_bias=True) == weights() + 4 + 2 + 2 + 4
    assert weights(mlp_bias=True) == weights() + 5 + 5 + 4
    family = {"without": ("architectures",), "head_dim": 2}
    assert weights(model_type="qwen2", **family) == weights() + 4 + 2 + 2  # none on the output
    assert weights(model_type="qwen3", **family) == weights() + 2 + 2  # two norms of head size
    both = weights(model_type="qwen3", attention_bias=True, **family)
    assert both == weights() + 2 + 2 + 4 + 2 + 2 + 4
    assert weights(model_type="mistral", **family) == weights()


def test_before_grouped_heads_every_head_had_its_own_keys():
    old = read_config(tiny(without=["num_key_value_heads"]))
    assert old["kv_heads"] == old["heads"] == 2
    assert old == read_config(tiny(num_key_value_heads=2))


def test_a_missing_key_and_a_null_are_the_same():
    plain = read_config(tiny())
    nothing = ("head_dim", "quantization_config", "attention_bias", "tie_word_embeddings")
    assert read_config(tiny(**dict.fromkeys(nothing))) == plain
    assert read_config(tiny(without=["architectures"])) == plain


@pytest.mark.parametrize(
    "key, kind, size",
    [
        ("torch_dtype", "float32", 4),
        ("torch_dtype", "float16", 2),
        ("torch_dtype", "torch.bfloat16", 2),
        ("dtype", "bfloat16", 2),  # the newer name of the key
        ("dtype", "float8_e4m3fn", 1),
    ],
)
def test_bytes_a_value(key, kind, size):
    assert read_config(tiny(without=["torch_dtype"]) | {key: kind})["bytes_per_value"] == size


# Files


def test_a_file_is_called_by_its_place(tmp_path):
    def read(*parts):
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(TINY))
        return read_config(path)["name"]

    assert read("tiny-8B", "config.json") == "tiny-8B"
    assert read("some.json") == "some"
    assert read("models--me--tiny", "snapshots", "d04e592", "config.json") == "me/tiny"
    assert read_config(tmp_path / "tiny-8B")["name"] == "tiny-8B"  # the folder will do
    assert read_config(str(tmp_path / "some.json")) == read_config(TINY) | {"name": "some"}


def test_a_file_of_the_folder_one_is_in(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "config.json").write_text("\ufeff" + json.dumps(TINY), encoding="utf-8")  # a mark
    monkeypatch.chdir(folder)
    assert read_config("config.json")["name"] == "here"
    assert read_config(".")["name"] == "here"


@pytest.mark.parametrize(
    "content, wrong",
    [
        (b"", "is not JSON"),
        (b'{"model_type": "llama"', "is not JSON"),
        (b"model_type: llama", "is not JSON"),
        (b"\xff\xfe\x00 weights", "is not JSON"),
        (b"[1, 2]", "must hold an object with keys, not list"),
        (b"null", "must hold an object with keys, not NoneType"),
        (b"[" * 100_000, "nested too deep"),
        (b"{}", "model_type llama, mistral, qwen2, qwen3, not None"),
    ],
)
def test_what_no_configuration_is(tmp_path, content, wrong):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=wrong) as error:
        read_config(path)
    assert str(path) in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match=f"no file {tmp_path / 'nothing.json'}"):
        read_config(tmp_path / "nothing.json")
    with pytest.raises(ValueError, match=f"no file {tmp_path / 'config.json'}"):
        read_config(tmp_path)  # a folder without one


# What is refused


def test_a_file_beside_it_that_says_the_weights_are_quantised(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert read_config(tmp_path)["bytes_per_value"] == 2
    (tmp_path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"hf_quant_config.json says .* bytes_per_value"):
        read_config(tmp_path)


@pytest.mark.parametrize("key", [key for key in TINY if key not in ("architectures",)])
def test_what_is_missing_is_named(tmp_path, key):
    if key == "num_key_value_heads":  # only a llama can do without
        more = {"model_type": "mistral", "architectures": None}
    else:
        more = {}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny(without=[key], **more)))
    named = "model_type llama" if key == "model_type" else f"{key.removeprefix('torch_')}.*missing"
    with pytest.raises(ValueError, match=named) as error:
        read_config(path)
    assert str(path) in str(error.value)


def test_qwen3_must_say_its_head_size():
    # Its heads are wider than the hidden size shared among them, so a default would be wrong.
    with pytest.raises(ValueError, match="head_dim is missing"):
        read_config(published("Qwen3-8B", head_dim=None))


@pytest.mark.parametrize(
    "more, wrong",
    [
        ({"model_type": "mixtral"}, r"llama, mistral, qwen2, qwen3, not 'mixtral'; give Model"),
        ({"model_type": "gemma2"}, "not 'gemma2'"),
        ({"model_type": "phi3"}, "not 'phi3'"),
        ({"model_type": "qwen3_moe"}, "not 'qwen3_moe'"),
        ({"model_type": "mistral3"}, "not 'mistral3'"),
        ({"model_type": ["llama"]}, r"not \['llama'\]"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures must be"),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "architectures must be"),
        ({"num_experts": 8}, "num_experts is 8: experts are not counted"),
        ({"num_local_experts": 4}, "num_local_experts is 4"),
        ({"quantization_config": {"quant_method": "fp8"}}, "stored as 'fp8'.* bytes_per_value"),
        ({"quantization_config": "awq"}, "stored as 'awq'"),
        ({"hidden_size": 0}, "hidden_size in the configuration must be a whole number"),
        ({"hidden_size": "4"}, "hidden_size in the configuration must be a number, not '4'"),
        ({"hidden_size": True}, "hidden_size .* not True"),
        ({"vocab_size": 10.5}, "vocab_size .* not 10.5"),
        ({"vocab_size": float("nan")}, "vocab_size .* not nan"),
        ({"num_hidden_layers": -1}, "num_hidden_layers .* not -1"),
        ({"head_dim": 0}, "head_dim .* not 0"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "do not share 2 KV heads evenly"),
        ({"num_key_value_heads": 4}, "do not share 4 KV heads evenly"),
        ({"num_attention_heads": 3}, "3 heads do not divide 4"),
        ({"attention_bias": "yes"}, "attention_bias must be true or false, not 'yes'"),
        ({"tie_word_embeddings": 2}, "tie_word_embeddings must be true or false, not 2"),
        ({"torch_dtype": "int4"}, "dtype 'int4' is not known, only float32"),
        ({"torch_dtype": 16}, "dtype 16 is not known"),
    ],
)
def test_what_cannot_be_counted_is_refused(more, wrong):
    with pytest.raises(ValueError, match=wrong):
        read_config(tiny(**more))


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "qwen3"])
def test_a_bias_that_the_family_does_not_have_is_refused(kind):
    config = tiny(without=["architectures"], model_type=kind, head_dim=2)
    with pytest.raises(ValueError, match=f"mlp_bias is true, which a {kind} does not have"):
        read_config(config | {"mlp_bias": True})
    if kind != "qwen3":
        with pytest.raises(ValueError, match=f"attention_bias is true, which a {kind}"):
            read_config(config | {"attention_bias": True})


def test_what_is_no_source():
    for source in (None, 3, ["config.json"]):
        with pytest.raises(ValueError, match="a path or a dict, not"):
            read_config(source)
