"""GGUF files of every supported family, written from tiny models as llama.cpp writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from selfspec_core.families import FAMILIES, UnsupportedModelError, attention_window
from selfspec_core.loading import LoadedModel, LoadError, load

from .gguf_writing import F16, F32, Q8_0, round_to_file, write_gguf
from .tiny import WINDOW, ids, tiny

CARRIED: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 16},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0], "rope_parameters": {"rope_theta": 100.0}},
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3": {"query_pre_attn_scalar": 8},
    "olmo2": {"rope_parameters": {"rope_theta": 100.0}},
    "gpt_neox": {},
    "gpt_neox-serial": {},
    "gpt2": {"scale_attn_by_inverse_layer_idx": False, "n_inner": 48},
    "mistral": {},
    "qwen2": {},
    "qwen3": {},
    "phi3": {},
    "starcoder2": {},
    "granite": {},
    "phi": {
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "qk_layernorm": False,
        "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "cohere": {},
}
"""Tiny models, changed where no GGUF file can say what is peculiar about them."""

KEYS: dict[str, dict[str, Any]] = {
    "gemma3": {"attention.sliding_window_pattern": 2},
    "gpt_neox": {"rope.freq_base": 100.0},
    "mistral": {"attention.sliding_window": WINDOW},
    "starcoder2": {"attention.sliding_window": WINDOW},
}
"""What their files need beside the converter's keys."""

NOT_BY_TRANSFORMERS = ["smollm3", "olmo2", "gpt_neox", "granite", "phi", "cohere"]


def model_of(name: str, kind: gguf.GGMLQuantizationType = F32, **overrides: Any) -> Any:
    """The tiny model of that name as a GGUF file can carry it."""
    model = tiny(name, vocab_size=300, **{**CARRIED[name], **overrides})
    round_to_file(model, kind)
    return model


def load32(path: Path) -> LoadedModel:
    return load(str(path), dtype="float32", device="cpu")


def logits(model: Any, n: int = 24) -> torch.Tensor:
    with torch.no_grad():
        return model(ids(n)[None]).logits


@pytest.mark.parametrize("kind", [F32, F16, Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", CARRIED)
def test_a_gguf_file_gives_exactly_the_logits_of_the_model_it_was_made_from(tmp_path, name, kind):
    model = model_of(name, kind)
    write_gguf(tmp_path / "tiny.gguf", model, kind, keys=KEYS.get(name, {}))
    loaded = load32(tmp_path / "tiny.gguf")
    assert torch.equal(logits(loaded.model), logits(model))
    assert type(loaded.model) is type(model)
    assert loaded.info.quantised == ("Q8_0 GGUF, dequantised on loading" if kind == Q8_0 else None)
    assert (loaded.info.id, loaded.info.source) == ("tiny.gguf", "the local file tiny.gguf")
    assert loaded.info.context == 512
    assert (loaded.model.config.bos_token_id, loaded.model.config.eos_token_id) == (0, 1)
    loaded.model.float()  # an ordinary model, not a quantised one that refuses this


def test_every_supported_family_is_tried():
    tried = {tiny(name).config.model_type for name in CARRIED}
    assert tried == {kind for family in FAMILIES for kind in family.model_types}


@pytest.mark.parametrize("name", CARRIED)
def test_a_gguf_files_tokenizer_gives_text_back_and_knows_its_special_tokens(tmp_path, name):
    write_gguf(tmp_path / "tiny.gguf", model_of(name), keys=KEYS.get(name, {}))
    tokenizer = load32(tmp_path / "tiny.gguf").tokenizer
    assert tokenizer.decode(tokenizer("héllo 12").input_ids) == "héllo 12"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1)
    assert tokenizer.model_max_length == 512


@pytest.mark.parametrize(
    "name",
    ["llama", "smollm3", "olmo2", "gpt_neox", "qwen2", "qwen3", "phi3", "starcoder2", "granite"],
)
@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_tied_where_the_file_has_none(tmp_path, name, tied):
    model = model_of(name, tie_word_embeddings=tied)
    write_gguf(tmp_path / "tiny.gguf", model, keys=KEYS.get(name, {}))
    loaded = load32(tmp_path / "tiny.gguf")
    assert loaded.model.config.tie_word_embeddings == tied
    assert torch.equal(logits(loaded.model), logits(model))


@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("smollm3", {"attention_bias": True}),
        ("smollm3", {"attention_bias": True, "mlp_bias": True}),
        ("olmo2", {"attention_bias": True}),
        ("gpt_neox", {"attention_bias": False}),
        ("granite", {"attention_bias": True}),
        ("granite", {"attention_bias": True, "mlp_bias": True}),
        ("cohere", {"attention_bias": True}),
    ],
)
def test_biases_are_there_where_the_file_has_them(tmp_path, name, biases):
    model = model_of(name, **biases)
    write_gguf(tmp_path / "tiny.gguf", model, keys=KEYS.get(name, {}))
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("name", ["smollm3", "olmo2", "granite", "cohere"])
def test_heads_may_be_wider_than_the_stream_divided_and_keys_as_many_as_queries(tmp_path, name):
    model = model_of(name, head_dim=16, num_key_value_heads=4)
    write_gguf(tmp_path / "tiny.gguf", model, keys={"attention.head_count_kv": None})
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("kind", [F32, Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("phi", {}),
        ("cohere", {}),
        ("olmo2", {}),
        ("granite", {}),
        ("granite", {"attention_bias": True}),
        ("smollm3", {"attention_bias": True}),
    ],
)
def test_queries_keys_and_values_may_be_fused_in_the_file(tmp_path, name, biases, kind):
    model = model_of(name, kind, **biases)
    write_gguf(tmp_path / "tiny.gguf", model, kind, fuse_qkv=True)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


def test_weights_are_dequantised_into_the_dtype_asked_for(tmp_path):
    model = model_of("olmo2", Q8_0)
    write_gguf(tmp_path / "tiny.gguf", model, Q8_0)
    loaded = load(str(tmp_path / "tiny.gguf"), dtype="bfloat16", device="cpu")
    ours = dict(loaded.model.named_parameters())
    for name, weight in model.named_parameters():
        assert torch.equal(ours[name], weight.to(torch.bfloat16)), name


# -- what a file says in its silence, and beyond ----------------------------------------------


def test_smollm3s_layers_without_rotary_embedding_are_every_fourth_as_llama_cpp_has_it(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", model_of("smollm3"))
    assert load32(tmp_path / "tiny.gguf").model.config.no_rope_layers == [1, 1, 1, 0]


def test_a_rotary_base_left_out_is_10000_as_llama_cpp_has_it(tmp_path):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    model = model_of("gpt_neox", rope_parameters=rope)
    write_gguf(tmp_path / "tiny.gguf", model)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("name", ["phi", "phi3", "gpt_neox"])
@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_as_much_of_each_head_is_rotated_as_the_file_says(tmp_path, name, share):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    model = model_of(name, rope_parameters=rope)
    write_gguf(tmp_path / "tiny.gguf", model)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("name", ["phi", "phi3", "gpt_neox"])
def test_whole_heads_are_rotated_where_the_file_is_silent_as_llama_cpp_has_it(tmp_path, name):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    model = model_of(name, rope_parameters=rope)
    write_gguf(tmp_path / "tiny.gguf", model, keys={"rope.dimension_count": None})
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("absent", [None, 0.0])
def test_what_granite_multiplies_by_is_as_in_llama_where_the_file_is_silent(tmp_path, absent):
    silent = {"embedding_multiplier": 1.0, "residual_multiplier": 1.0}
    model = model_of("granite", attention_multiplier=8**-0.5, **silent)
    keys = dict.fromkeys(["attention.scale", "embedding_scale", "residual_scale"], absent)
    write_gguf(tmp_path / "tiny.gguf", model, keys=keys)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("use_qk_norm", [True, False])
def test_cohere_has_norms_of_queries_and_keys_where_the_file_has_them(tmp_path, use_qk_norm):
    model = model_of("cohere", use_qk_norm=use_qk_norm)
    write_gguf(tmp_path / "tiny.gguf", model)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("called", ["mistral", "Mistral 7B", None])
def test_a_mistral_file_without_a_window_has_none_whatever_the_model_is_called(tmp_path, called):
    """transformers gives one that is called so, and whose file says llama, a window of 4096."""
    model = model_of("mistral", sliding_window=None)
    write_gguf(tmp_path / "tiny.gguf", model, name=called)
    loaded = load32(tmp_path / "tiny.gguf")
    assert [attention_window(loaded.model.config, layer) for layer in range(4)] == [None] * 4
    assert torch.equal(logits(loaded.model), logits(model))


@pytest.mark.parametrize("called", ["mistral", None])
def test_a_mistral_file_that_states_a_window_has_that_one(tmp_path, called):
    model = model_of("mistral")
    write_gguf(tmp_path / "tiny.gguf", model, name=called, keys=KEYS["mistral"])
    loaded = load32(tmp_path / "tiny.gguf")
    assert loaded.info.family == "Mistral"
    assert attention_window(loaded.model.config, 0) == WINDOW
    assert torch.equal(logits(loaded.model), logits(model))


@pytest.mark.parametrize("name", ["phi3", "starcoder2"])
def test_without_a_window_in_the_file_all_attention_is_global(tmp_path, name):
    model = model_of(name, sliding_window=None)
    write_gguf(tmp_path / "tiny.gguf", model)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize(
    ("pattern", "types"),
    [
        (None, "lllll"),
        (3, "llgll"),
        ([True, False, False, True, True], "lggll"),
    ],
)
def test_gemma_3s_local_layers_are_those_that_the_file_says_else_five_of_six(
    tmp_path, pattern, types
):
    layers = [{"l": "sliding_attention", "g": "full_attention"}[letter] for letter in types]
    model = model_of("gemma3", num_hidden_layers=5, layer_types=layers)
    keys = {} if pattern is None else {"attention.sliding_window_pattern": pattern}
    write_gguf(tmp_path / "tiny.gguf", model, keys=keys)
    loaded = load32(tmp_path / "tiny.gguf")
    assert loaded.model.config.layer_types == layers
    assert torch.equal(logits(loaded.model), logits(model))


def test_a_gemma_3_file_without_a_window_has_global_layers_only(tmp_path):
    model = model_of("gemma3", layer_types=["full_attention"] * 4)
    write_gguf(tmp_path / "tiny.gguf", model, keys={"attention.sliding_window": None})
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("name", ["llama", "gemma3", "olmo2"])
def test_linear_rotary_scaling_is_taken_up_for_global_layers(tmp_path, name):
    """Gemma 3 from 4B on scales its global layers by 8."""
    scaled = {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0}
    rope: dict[str, Any] = scaled
    if name == "gemma3":
        local = {"rope_type": "default", "rope_theta": 100.0}
        rope = {"sliding_attention": local, "full_attention": scaled}
    model = model_of(name, rope_parameters=rope)
    keys = {**KEYS.get(name, {}), "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    write_gguf(tmp_path / "tiny.gguf", model, keys=keys)
    assert torch.equal(logits(load32(tmp_path / "tiny.gguf").model), logits(model))


@pytest.mark.parametrize("name", ["llama", "smollm3"])
def test_llama_3s_rotary_scaling_is_recovered_from_a_gguf_file(tmp_path, name):
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = model_of(name, head_dim=16, rope_parameters=scaling)
    scaled = model.model.rotary_emb.inv_freq
    plain = 500000.0 ** (-torch.arange(8) / 8)
    factors = {"rope_freqs.weight": (plain / scaled).numpy()}
    assert max(factors["rope_freqs.weight"]) > 30  # the test would show a scaling left out
    write_gguf(tmp_path / "tiny.gguf", model, tensors=factors)
    loaded = load32(tmp_path / "tiny.gguf")
    torch.testing.assert_close(loaded.model.model.rotary_emb.inv_freq, scaled)
    torch.testing.assert_close(logits(loaded.model), logits(model), rtol=0, atol=1e-5)

    factors = {"rope_freqs.weight": np.linspace(1, 32, 8, dtype=np.float32)}
    write_gguf(tmp_path / "odd.gguf", model, tensors=factors)
    with pytest.raises(LoadError, match="rotary embedding in an unknown way"):
        load(str(tmp_path / "odd.gguf"))


@pytest.mark.parametrize("pre", ["smollm", "starcoder"])
def test_a_gguf_files_digits_are_split_off_before_spaces_where_it_says_so(tmp_path, pre):
    write_gguf(tmp_path / "digits.gguf", model_of("llama"), pre=pre)
    write_gguf(tmp_path / "plain.gguf", model_of("llama"))
    digits, plain = (load32(tmp_path / f"{which}.gguf").tokenizer for which in ("digits", "plain"))
    assert digits.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert plain.tokenize("a  12") == ["a", "Ġ", "Ġ", "1", "2"]


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keys", "told"),
    [
        ("olmo2", {"attention.sliding_window": 4096}, "sliding-window attention.*OLMo 3"),
        ("olmo2", {"rope.scaling.type": "yarn"}, "scales its rotary embedding .yarn."),
        ("gemma3", {"rope.scaling.type": "yarn"}, "scales its rotary embedding .yarn."),
        ("smollm3", {"attention.head_count_kv": [2, 2, 1, 1]}, "differs from layer to layer"),
        ("olmo2", {"feed_forward_length": [48, 48, 32, 32]}, "differs from layer to layer"),
        ("smollm3", {"rope.dimension_count": 4}, "rotates 4 of the 8 numbers of a head"),
        ("llama", {"rope.dimension_count": 4}, "rotates 4 of the 16 numbers of a head"),
        ("gpt_neox", {"use_parallel_residual": None}, "has no gptneox.use_parallel_residual"),
        ("smollm3", {"embedding_length": None}, "has no smollm3.embedding_length"),
        ("granite", {"logit_scale": None}, "has no granite.logit_scale"),
        (
            "granite",
            {"rope.scaling.finetuned": False},
            "says granite.rope.scaling.finetuned = Fals",
        ),
        ("granite", {"rope.dimension_count": 4}, "rotates 4 of the 8 numbers of a head"),
        ("cohere", {"logit_scale": None}, "has no command-r.logit_scale"),
        ("cohere", {"rope.scaling.type": "yarn"}, "scales its rotary embedding .yarn."),
        ("phi", {"attention.layer_norm_epsilon": None}, "has no phi2.attention.layer_norm_eps"),
        ("phi", {"attention.head_count_kv": [4, 4, 2, 2]}, "differs from layer to layer"),
        ("qwen2", {"attention.sliding_window": WINDOW}, "doesn't say in which layers"),
        ("qwen3", {"attention.sliding_window": WINDOW}, "doesn't say in which layers"),
    ],
)
def test_what_the_models_config_has_no_place_for_is_refused_and_not_guessed(
    tmp_path, name, keys, told
):
    write_gguf(tmp_path / "tiny.gguf", model_of(name), keys=keys)
    with pytest.raises(LoadError, match=rf"tiny\.gguf.*{told}"):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


def test_phi_3s_long_factors_are_refused_as_those_of_its_safetensors_are(tmp_path):
    factors = np.ones(2, dtype=np.float32)
    extra = {f"rope_factors_{length}.weight": factors for length in ("long", "short")}
    write_gguf(tmp_path / "tiny.gguf", model_of("phi3"), tensors=extra)
    with pytest.raises(UnsupportedModelError, match=r"Phi-3.*longrope.*changes with the length"):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("phi", "blk.0.attn_q_norm.weight"),  # there is no name for its norms of Q and K
        ("cohere", "output.weight"),
        ("granite", "rope_factors_long.weight"),
    ],
)
def test_weights_that_files_of_a_family_have_no_name_for_are_refused(tmp_path, name, tensor):
    extra = {tensor: np.ones(8, dtype=np.float32)}
    write_gguf(tmp_path / "tiny.gguf", model_of(name), tensors=extra)
    with pytest.raises((LoadError, UnsupportedModelError), match=rf"{tensor}.*no place|longrope"):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


@pytest.mark.parametrize("name", ["llama", *NOT_BY_TRANSFORMERS])
def test_a_gguf_file_with_a_weight_that_would_be_left_out_is_refused(tmp_path, name):
    extra = {"blk.1.attn_gate.weight": np.ones((32, 32), dtype=np.float32)}
    write_gguf(tmp_path / "tiny.gguf", model_of(name), tensors=extra)
    told = "1 weights that transformers doesn't read|attn_gate.* no place for"
    with pytest.raises(LoadError, match=told):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


@pytest.mark.parametrize("name", ["llama", *NOT_BY_TRANSFORMERS])
def test_a_gguf_file_that_lacks_weights_is_refused(tmp_path, name):
    missing = {f"blk.{i}.ffn_up.weight": None for i in (0, 2)}
    write_gguf(tmp_path / "tiny.gguf", model_of(name), tensors=missing)
    with pytest.raises(LoadError, match="lacks 2 of its weights"):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


@pytest.mark.parametrize("name", NOT_BY_TRANSFORMERS)
def test_a_weight_of_another_shape_is_refused_by_name(tmp_path, name):
    other = {"blk.2.ffn_down.weight": np.ones((32, 40), dtype=np.float32)}
    model = model_of(name)
    write_gguf(tmp_path / "tiny.gguf", model, tensors=other)
    wide = model.config.intermediate_size
    told = re.escape(f"blk.2.ffn_down.weight has the shape (32, 40), (32, {wide}) is expected")
    with pytest.raises(LoadError, match=told):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


def test_one_part_of_a_split_model_is_refused_with_the_way_out(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_uint16("split.count", 3)
    _write(writer)
    with pytest.raises(LoadError, match=r"x\.gguf is one of 3 parts.*merge"):
        load(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize("kind", ["mamba", "rwkv7"])
def test_a_gguf_file_of_an_unsupported_family_is_refused_by_name(tmp_path, kind):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", kind)
    writer.add_block_count(2)
    _write(writer)
    with pytest.raises(UnsupportedModelError, match=rf"'{kind}'.*Supported: Llama"):
        load(str(tmp_path / "x.gguf"))


def _write(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"not this")
    with pytest.raises(LoadError, match="no GGUF file that can be read"):
        load(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize("name", ["llama", *NOT_BY_TRANSFORMERS])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_a_cut_off_gguf_file_is_refused(tmp_path, name, share):
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model_of(name))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(LoadError, match=r"can't be read|no GGUF file that can be read"):
        load(str(path), device="cpu")
