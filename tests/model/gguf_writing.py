"""Tiny models written as GGUF files the way llama.cpp's converter lays them out.

The conventions (`conversion/*.py` of llama.cpp, which has one class a family):

- `general.architecture` prefixes the family's keys; sizes, epsilons and the rotary base are
  keys, the vocabulary's size is that of the token list, a tied head is left out.
- Llama, SmolLM3 and Granite: within each head the rows of Q and K that are rotated together,
  i and i + D/2, are put side by side (weights and biases alike). The other families aren't
  reordered.
- SmolLM3: no key says which layers go without rotary embedding; it is every fourth.
- Gemma: norms are stored plus one; the local layers' rotary base and pattern have keys
  (`rope.freq_base_swa`, `attention.sliding_window_pattern`), with 10 000 and 6 (Gemma 2: 2)
  where they are absent; no key has the scale of queries.
- OLMo 2: the norms after attention and MLP are `post_attention_norm` and `post_ffw_norm`,
  those of all Q and all K heads together `attn_q_norm` and `attn_k_norm`.
- GPT-NeoX: the fused projection's rows go from [head, (q, k, v), D] to [(q, k, v), head, D],
  the bias likewise; `rope.dimension_count` has how much of a head is rotated; the converter
  writes no rotary base, though llama.cpp reads one.
- Mistral: written as `llama`, without its window.
- Qwen2, Qwen3, StarCoder2: nothing peculiar; Qwen's window isn't written.
- Phi-3: `ffn_up` is gate and up, one below the other, and `attn_qkv` Q, K and V, as
  transformers has them; `attention.sliding_window` is 0 where there is none.
- Granite: `attention.scale`, `embedding_scale`, `residual_scale`, and `logit_scale`, which
  divides; `rope.scaling.finetuned` false would mean no rotary embedding.
- Phi (`phi2`): Q, K and V apart, with biases; no rotary base; as many key-value heads as heads
  and an MLP four times as wide as the stream, whatever the config says; no norms of Q and K.
- Cohere (`command-r`): the head is always tied; `logit_scale` multiplies; the norms of Q and K
  have a row a head and stay F32.
- With `--fuse-qkv`, Q, K and V become one `attn_qkv`, each reordered as it would be alone.
- GPT-2: transformers keeps its matrices [in, out], GGUF [out, in].
- Quantised: matrices whose rows are whole blocks; others become F16, vectors stay F32.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

F32, F16, Q8_0 = (
    gguf.GGMLQuantizationType.F32,
    gguf.GGMLQuantizationType.F16,
    gguf.GGMLQuantizationType.Q8_0,
)
FILE_TYPES = {
    F32: gguf.LlamaFileType.ALL_F32,
    F16: gguf.LlamaFileType.MOSTLY_F16,
    Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, 259 tokens: fewer than the models' 300."""
    tokens = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ"]
    merges = [("Ġ", "Ġ")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


_REORDERED = ("llama", "smollm3", "granite")


def _names(prefix: str, whole: dict[str, str], layer: dict[str, str]) -> dict[str, str]:
    inside = {f"{prefix}.{{i}}.{a}": f"blk.{{i}}.{b}" for a, b in layer.items()}
    return {**whole, **inside}


_STACK = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_QK_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA = {
    "input_layernorm": "attn_norm",
    **_LAYER,
    **_AFTER,
    "pre_feedforward_layernorm": "ffn_norm",
}
LLAMA = _names(
    "model.layers",
    _STACK,
    {"input_layernorm": "attn_norm", **_LAYER, "post_attention_layernorm": "ffn_norm"},
)
NAMES = {
    "llama": LLAMA,
    "smollm3": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA | _names("model.layers", {}, _QK_NORMS),
    "granite": LLAMA,
    "command-r": LLAMA | _names("model.layers", {}, _QK_NORMS),
    "phi3": LLAMA
    | _names("model.layers", {}, {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}),
    "starcoder2": LLAMA
    | _names("model.layers", {}, {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
    "phi2": LLAMA
    | _names(
        "model.layers",
        {"model.final_layernorm": "output_norm"},
        {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
    ),
    "gemma2": _names("model.layers", _STACK, _GEMMA),
    "gemma3": _names("model.layers", _STACK, {**_GEMMA, **_QK_NORMS}),
    "olmo2": _names("model.layers", _STACK, {**_LAYER, **_AFTER, **_QK_NORMS}),
    "gptneox": _names(
        "gpt_neox.layers",
        {
            "gpt_neox.embed_in": "token_embd",
            "gpt_neox.final_layer_norm": "output_norm",
            "lm_head": "output",
        },
        {
            "input_layernorm": "attn_norm",
            "attention.query_key_value": "attn_qkv",
            "attention.dense": "attn_output",
            "post_attention_layernorm": "ffn_norm",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
    ),
    "gpt2": _names(
        "transformer.h",
        {
            "transformer.wte": "token_embd",
            "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        {
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
    ),
}
"""GGUF's architecture → transformers' module → GGUF's, layers as {i}."""

ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "gpt_neox": "gptneox",
    "mistral": "llama",
    "phi": "phi2",
    "cohere": "command-r",
}
"""transformers' model type → GGUF's architecture where they differ."""


def _stored_as(
    name: str, weight: np.ndarray, kind: gguf.GGMLQuantizationType
) -> gguf.GGMLQuantizationType:
    if weight.ndim < 2 or name.endswith("_norm.weight"):
        return F32
    return F16 if kind == Q8_0 and weight.shape[-1] % 32 else kind


def is_turned(model: Any, name: str, weight: torch.Tensor) -> bool:
    """Whether transformers keeps this matrix [in, out]."""
    return model.config.model_type == "gpt2" and ".h." in name and weight.dim() == 2


@torch.no_grad()
def round_to_file(model: Any, kind: gguf.GGMLQuantizationType = F32) -> None:
    """Change a model's weights to what a GGUF file of that kind can hold."""
    for name, weight in model.named_parameters():
        rows = weight.T if is_turned(model, name, weight) else weight
        values = np.ascontiguousarray(rows.numpy())
        stored = _stored_as(name, values, kind)
        rows.copy_(torch.from_numpy(dequantize(quantize(values, stored), stored)))
        if model.config.model_type.startswith("gemma") and "norm" in name:
            weight.copy_((weight + 1) - 1)


def _as_stored(model: Any, arch: str, name: str, weight: torch.Tensor) -> torch.Tensor:
    """A weight in the order of llama.cpp."""
    config, shape = model.config, weight.shape
    if arch in _REORDERED and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        return weight.reshape(heads, 2, -1, *shape[1:]).swapaxes(1, 2).reshape(shape)
    if "query_key_value" in name:
        by_head = weight.reshape(config.num_attention_heads, 3, -1, *shape[1:])
        return torch.cat([by_head[:, part].flatten(0, 1) for part in range(3)])
    if arch.startswith("gemma") and "norm" in name:
        return weight + 1
    return weight.T if is_turned(model, name, weight) else weight


def _add_keys(writer: gguf.GGUFWriter, config: Any, arch: str) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if arch == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    head_dim = config.hidden_size // config.num_attention_heads
    if arch == "phi2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_head_count_kv(config.num_attention_heads)
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_rope_dimension_count(_rotated(config, head_dim))
        return
    writer.add_feed_forward_length(config.intermediate_size)
    if arch == "gptneox":
        writer.add_rope_dimension_count(_rotated(config, head_dim))
        writer.add_parallel_residual(config.use_parallel_residual)
        writer.add_layer_norm_eps(config.layer_norm_eps)
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    if arch == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    elif arch == "command-r":
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    everywhere = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(everywhere["rope_theta"])
    if arch == "phi3":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        writer.add_rope_dimension_count(_rotated(config, head_dim))
        writer.add_sliding_window(config.sliding_window or 0)
    if arch == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if arch in _REORDERED:
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(getattr(config, "head_dim", None) or head_dim)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if arch.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if arch == "gemma3":
        local = config.rope_parameters["sliding_attention"]["rope_theta"]
        writer.add_rope_freq_base_swa(local)


def _rotated(config: Any, head_dim: int) -> int:
    return int(config.rope_parameters["partial_rotary_factor"] * head_dim)


def _add_tokenizer(writer: gguf.GGUFWriter, vocab_size: int, pre: str) -> None:
    vocab = tiny_tokenizer().get_vocab()
    tokens = sorted(vocab, key=lambda token: vocab[token])
    tokens += [f"[PAD{i}]" for i in range(len(tokens), vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def write_gguf(
    path: Path,
    model: Any,
    kind: gguf.GGMLQuantizationType = F32,
    *,
    name: str | None = None,
    pre: str = "gpt-2",
    fuse_qkv: bool = False,
    keys: Mapping[str, Any] = {},
    tensors: Mapping[str, np.ndarray | None] = {},
) -> None:
    """Write a tiny model as llama.cpp's converter does.

    `name` is the model's; `keys` are further ones without the prefix (a number, a text or a list; None leaves one
    out); `tensors` further ones by GGUF name, None leaves one out.
    """
    config = model.config
    arch = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, arch)
    if name is not None:
        writer.add_name(name)
    writer.add_file_type(FILE_TYPES[kind])
    _add_keys(writer, config, arch)
    _add_tokenizer(writer, config.vocab_size, pre)
    for key, value in keys.items():
        full = f"{arch}.{key}"
        writer.kv_data[0].pop(full, None)
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        elif isinstance(value, list):
            writer.add_array(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif value is not None:
            writer.add_uint32(full, value)
    names = {
        theirs.format(i=i): ours.format(i=i)
        for theirs, ours in NAMES[arch].items()
        for i in range(config.num_hidden_layers)
    }
    weights = {}
    for theirs, weight in model.named_parameters():  # a tied head isn't named
        module, _, part = theirs.rpartition(".")
        weights[f"{names[module]}.{part}"] = _as_stored(model, arch, theirs, weight).numpy()
    if fuse_qkv:
        for ours in [ours for ours in weights if ".attn_q." in ours]:
            apart = [ours.replace("attn_q", f"attn_{letter}") for letter in "qkv"]
            fused = np.concatenate([weights.pop(one) for one in apart])
            weights[ours.replace("attn_q", "attn_qkv")] = fused
    for ours, weight in weights.items():
        if ours not in tensors:
            values = np.ascontiguousarray(weight)
            stored = _stored_as(ours, values, kind)
            writer.add_tensor(ours, quantize(values, stored), raw_dtype=stored)
    for ours, extra in tensors.items():
        if extra is not None:
            writer.add_tensor(ours, extra)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
