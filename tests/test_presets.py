"""Chips and models: the numbers as their makers print them, and what follows against published."""

import json
from dataclasses import replace

import pytest
from test_configs import PUBLISHED, published

import tinyserve as ts
from tinyserve.presets import (
    CHIPS,
    MODELS,
    SOURCES,
    chats_that_fit,
    chip_table,
    fit_table,
    model_table,
)

# TFLOP/s dense in 16 bits, GB/s and GB, as a second hand copied them from the sheets: the A100s,
# H100, H200 and L4 in NVIDIA's aiconfigurator-core 0.12.0 (systems/*.yaml, 989 where half of 1,979
# is 989.5) and PC2 Paderborn's page on the A100 40GB; the L40S in a dealer's copy of NVIDIA's table
# (mullet.se, product 355414); the RTX 4090 in a list of its whitepaper's figures (165.2/330.4 with
# sums in 32 bits); the MI300X in FBGEMM's and alpharomercoma/MI300X-vs-H200's tables.
PRINTED = {
    "A100 40GB SXM": (312, 1555, 40),
    "A100 80GB SXM": (312, 2039, 80),
    "H100 SXM": (989.5, 3350, 80),
    "H200 SXM": (989.5, 4800, 141),
    "L4": (121, 300, 24),
    "L40S": (362.05, 864, 48),
    "RTX 4090": (165.2, 1008, 24),
    "MI300X": (1307.4, 5300, 192),
}
CONFIGS = {
    **{"Llama 3.1 8B": "Llama-3.1-8B", "Llama 3.1 70B": "Llama-3.1-70B"},
    **{"Qwen2.5 7B": "Qwen2.5-7B", "Qwen2.5 72B": "Qwen2.5-72B"},
    **{"Qwen3 8B": "Qwen3-8B", "Qwen3 32B": "Qwen3-32B"},
    **{"Mistral 7B v0.3": "Mistral-7B-v0.3", "Mistral Small 24B": "Mistral-Small-24B"},
}


def cells(table):
    return table.to_numpy().tolist()


def test_the_chips_are_as_printed():
    read = {
        name: (chip.peak / 1e12, chip.bandwidth / 1e9, chip.memory / 1e9)
        for name, chip in CHIPS.items()
    }
    assert read == PRINTED
    assert all((c.peak_share, c.bandwidth_share, c.overhead) == (1, 1, 0) for c in CHIPS.values())
    assert CHIPS["A100 80GB SXM"] is ts.A100


def test_a_sparse_peak_is_halved_and_that_is_said():
    for name, sparse in (("H100 SXM", 1979), ("H200 SXM", 1979), ("L4", 242)):
        assert 2 * CHIPS[name].peak == sparse * 1e12
        assert f"{sparse:,} with sparsity; dense is half" in SOURCES[name].note


@pytest.mark.parametrize("name", CONFIGS)
def test_the_models_are_what_their_configurations_say(name):
    read = ts.Model.from_config(published(CONFIGS[name]), name=name)
    assert MODELS[name] == read
    assert MODELS[name].weights == PUBLISHED[CONFIGS[name]][-1]  # the hub's count


def test_nothing_else_is_listed():
    assert set(CHIPS) == set(PRINTED) and set(MODELS) == set(CONFIGS)
    assert MODELS["Llama 3.1 8B"] is ts.LLAMA_8B
    assert list(SOURCES) == [*CHIPS, *MODELS]
    assert all(source.title and source.link.startswith("https://") for source in SOURCES.values())


def test_a_model_from_a_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(published("Qwen3-8B")))
    model = ts.Model.from_config(path, name="mine", attention=True)
    assert (model.name, model.attention) == ("mine", True)
    assert replace(model, attention=False) == replace(MODELS["Qwen3 8B"], name="mine")
    assert ts.Model.from_config(path).name == tmp_path.name
    with pytest.raises(ValueError, match="kv_heads"):
        ts.Model.from_config(path, kv_heads=0)


# Published figures


def test_cache_of_a_token():
    kib = {name: model.kv_bytes_per_token / 1024 for name, model in MODELS.items()}
    # llama.cpp's own figures for 2,048 tokens: 256 MiB for Llama 3 8B, 640 MiB for 70B
    # (huggingface.co/dranger003/c4ai-command-r-v01-iMat.GGUF/discussions/6).
    assert kib["Llama 3.1 8B"] * 2048 == 256 * 1024
    assert kib["Llama 3.1 70B"] * 2048 == 640 * 1024
    # 327,680 bytes of Llama 3.1 70B, worked out at frankdenneman.nl (12 January 2026), and of
    # Qwen2.5 72B; 57,344 of Qwen2.5 7B, whose shape vLLM's log of UI-TARS 7B also has: 4.36 GiB
    # held 5,102 blocks of 16 tokens.
    assert kib["Llama 3.1 70B"] * 1024 == 327_680 == kib["Qwen2.5 72B"] * 1024
    assert kib["Qwen2.5 7B"] * 1024 == 57_344
    assert abs(5_102 * 16 * kib["Qwen2.5 7B"] / 1024**2 - 4.36) < 0.005
    # 147,456 of Qwen3 8B, in a comparison of designs of equal size.
    assert kib["Qwen3 8B"] * 1024 == 147_456
    # Without shared heads: OPT 13B takes 800 KB a token (Kwon et al., SOSP 2023, section 3).
    opt = ts.Model("OPT 13B", weights=13_000_000_000, layers=40, kv_heads=40, head_size=128)
    assert opt.kv_bytes_per_token == 800 * 1024


def test_weights_in_memory():
    gb = {name: model.weight_bytes for name, model in MODELS.items()}
    assert abs(gb["Llama 3.1 8B"] / 2**30 - 14.96) < 0.005  # vLLM's log in vllm#12330
    assert f"{gb['Llama 3.1 70B'] / 1e9:.0f}" == "141"  # "141 GB weights", MI300X-vs-H200
    # "~55 GB of GPU memory in 16 bits" on Mistral Small's card is with room for a cache.
    assert f"{gb['Mistral Small 24B'] / 1e9:.0f}" == "47"


def test_pages_beside_the_weights_as_vllm_counted_them():
    # vllm#12330, vLLM 0.6 with Llama 3 8B on an A100 40GB: 39.50 GiB x 0.90, 14.96 of weights, 0.10
    # outside and 9.37 of activations leave 11.12 GiB: 5,691 blocks of 16 tokens, 11.12 times 8,192.
    card = replace(CHIPS["A100 40GB SXM"], memory=39.50 * 2**30)
    pages = ts.pages_that_fit(share=0.9, working=(0.10 + 9.37) * 2**30, chip=card)
    assert abs(pages - 5_691) <= 10  # each of the five figures is cut to 0.01 GiB, 5 pages
    assert f"{5_691 * 16 / 8192:.2f}" == "11.12"


# The tables


def test_chats_that_fit():
    assert ts.pages_that_fit() == 25_720  # the lesson's
    assert chats_that_fit(1000) == 25_720 // 63  # 63 pages hold 1,000 tokens
    assert chats_that_fit(16) == 25_720
    assert chats_that_fit(16 * 25_721) == 0  # the weights fit, a chat so long does not
    big = MODELS["Llama 3.1 70B"]
    assert chats_that_fit(1000, model=big) is None
    assert chats_that_fit(1000, model=big, chip=CHIPS["MI300X"]) == 89
    # By hand: 0.9 x 192 - 2 - 141.107 = 29.693 GB, of 16 x 320 KiB = 5.243 MB: 5,663 pages.
    assert 5_663 // 63 == 89
    for wrong in (0, 1.5, "1000"):
        with pytest.raises(ValueError, match="tokens"):
            chats_that_fit(wrong)
    with pytest.raises(ValueError, match="share"):
        chats_that_fit(1000, share=90)


def test_the_table_of_what_fits():
    table = fit_table()
    assert list(table.columns) == list(CHIPS) and list(table.index) == list(MODELS)
    assert table.loc["Llama 3.1 8B", "A100 80GB SXM"] == "408"
    assert table.loc["Llama 3.1 70B"].tolist() == ["-"] * 7 + ["89"]
    pages = fit_table(tokens=16)
    assert pages.loc["Llama 3.1 8B", "A100 80GB SXM"] == "25,720"
    # A hyphen is where 16-bit weights and 2 GB are more than 90 % of the card.
    for model in MODELS.values():
        for chip in CHIPS.values():
            fits = 2 * model.weights + 2e9 < 0.9 * chip.memory
            assert (pages.loc[model.name, chip.name] != "-") == fits
    small = fit_table(models=[ts.LLAMA_8B], chips=[ts.A100])
    assert cells(small) == [["408"]]
    assert fit_table(models=[]).empty


def test_the_tables_of_chips_and_models():
    chips, models = chip_table(), model_table()
    assert list(chips.index) == list(CHIPS) and list(models.index) == list(MODELS)
    assert cells(chips)[2] == ["989.50", "3,350", "80", "NVIDIA H100, specifications"]
    assert cells(models)[0] == ["8.030", "16.061", "128", "meta-llama/Llama-3.1-8B"]
    mine = ts.Model("mine", weights=1_000_000_000, layers=1, kv_heads=1, head_size=128)
    assert cells(model_table([mine])) == [["1.000", "2.000", "0", "-"]]  # no source
    assert cells(chip_table([replace(ts.A100, name="mine")]))[0][-1] == "-"
