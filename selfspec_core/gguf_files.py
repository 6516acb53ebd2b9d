"""GGUF files: config, weights and tokenizer as transformers has them (design §5).

transformers reads the files of most families, with gaps that are filled here; those that it
doesn't read are read by `gguf_layouts`. What a file says that can't be taken up is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    PreTrainedTokenizerFast,
)
from transformers.integrations.gguf import read_gguf_metadata
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from . import gguf_layouts
from .builtin import LoadError
from .families import FULL, SLIDING, attention_window, family_of
from .gguf_layouts import LAYOUTS, ROTARY_FACTORS
from .weights import model_class, read_model, readable

_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
"""Pre-tokenizers, by GGUF name, that split every digit off before GPT-2's rule: transformers
forgets that, and then splits spaces before a number as these models have never seen them."""

_FORGOTTEN = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "context_length": "max_position_embeddings",
    "feed_forward_length": "n_inner",
}
"""GGUF key → config attribute that transformers leaves at its default for some families."""

_LONG_FACTORS = "rope_factors_long.weight"

_BY_WIDTH = (46, 62)
"""Layers of the largest Gemma 2 and 3, which scale queries by the width over the heads; the
others scale by the head's size. No key says so, and llama.cpp goes by the layers too."""


def quantisation(path: Path) -> str | None:
    """How a file stores its weights if in fewer bits than 16, else None.

    Raises:
        LoadError: this is no GGUF file.
    """
    try:
        kind = gguf.LlamaFileType(read_gguf_metadata(str(path))[0].get("general.file_type", 0))
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise LoadError(f"{path} is no GGUF file that can be read: {error}") from None
    bits = kind.name.removeprefix("MOSTLY_").removeprefix("ALL_")
    return None if bits in ("F32", "F16", "BF16") else f"{bits} GGUF, dequantised on loading"


def read_config(path: Path) -> Any:
    """The config that a file describes; reads no weights.

    Raises:
        LoadError: a key is missing or can't be taken up.
        UnsupportedModelError: the family isn't supported.
    """
    with readable(path.name):
        metadata, tensors = read_gguf_metadata(str(path))
        arch = metadata["general.architecture"]
        told = {key.removeprefix(f"{arch}."): value for key, value in metadata.items()}
        if (parts := metadata.get("split.count", 1)) > 1:
            raise LoadError(
                f"{path.name} is one of {parts} parts of a model: merge them into one file "
                "(llama-gguf-split --merge)"
            )
        if arch in LAYOUTS:
            rows = _tensor(path, "token_embd.weight").shape[-1]  # gguf turns shapes around
            config = gguf_layouts.read_config(
                arch, metadata, tensors, vocab_size=int(rows), name=path.name
            )
        else:
            config = _config_by_transformers(path, arch, told)
        if _LONG_FACTORS in tensors:
            config.rope_parameters["rope_type"] = "longrope"
        family_of(config)
        config.pad_token_id = metadata.get("tokenizer.ggml.padding_token_id")
        for key, attribute in _FORGOTTEN.items():
            if told.get(key) and hasattr(config, attribute):
                setattr(config, attribute, told[key])
        if arch in ("gemma2", "gemma3"):
            _complete_gemma(config, told)
        _complete_rotary(config, told, path)
        if ROTARY_FACTORS in tensors:
            _scale_like_llama3(config, path)
        _refuse_window_left_out(config, told, path)
    return config


def read_state(path: Path, config: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights of a file by transformers' names, dequantised.

    Raises:
        LoadError: weights are missing, or would be left out.
    """
    metadata, tensors = read_gguf_metadata(str(path))
    if (arch := metadata["general.architecture"]) in LAYOUTS:
        return gguf_layouts.read_state(arch, path, config, dtype)
    model = read_model(
        path.parent,
        _as("llama", config) if arch == "llama" else config,
        id=path.name,
        gguf_file=path.name,
        dtype=dtype,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    held = set(tensors) - {ROTARY_FACTORS}
    if config.tie_word_embeddings:
        held -= {"output.weight"}
    if (unread := len(held) - len(list(model.parameters()))) > 0:
        raise LoadError(f"{path.name} has {unread} weights that transformers doesn't read")
    return dict(model.state_dict())


def read_tokenizer(path: Path, config: Any) -> Any:
    """The tokenizer that a file describes."""
    metadata, _ = read_gguf_metadata(str(path))
    # AutoTokenizer wants to know the family, though the tokenizer doesn't depend on it.
    known = metadata["general.architecture"] not in LAYOUTS
    reader: Any = AutoTokenizer if known else PreTrainedTokenizerFast
    tokenizer = reader.from_pretrained(
        path.parent,
        gguf_file=path.name,
        local_files_only=True,
        **({"trust_remote_code": False} if known else {}),
    )
    if metadata.get("tokenizer.ggml.pre") in _SINGLE_DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    tokenizer.model_max_length = config.max_position_embeddings
    return tokenizer


def convert(path: Path, folder: Path) -> None:
    """Write a GGUF file's model into `folder` as transformers does, weights in float32.

    Dequantised values need more bits than bfloat16 has; in float32 nothing is lost.
    """
    config = read_config(path)
    state = read_state(path, config, torch.float32)
    first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    unshared = {name: state[name].contiguous() for name in first.values()}
    save_file(unshared, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [model_class(config).__name__]
    config.dtype = "float32"
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)
    read_tokenizer(path, config).save_pretrained(folder)


def _config_by_transformers(path: Path, arch: str, told: Mapping[str, Any]) -> Any:
    try:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except ValueError as error:
        family_of(SimpleNamespace(model_type=arch))  # says why it isn't supported
        raise LoadError(f"GGUF files of {arch} can't be read: {error} Load safetensors") from None
    if arch != "llama":
        return config
    # Mistral's files say that they are Llama's, and a Mistral without a window is one; transformers
    # goes by `general.name`, and then makes up a window.
    return _as("mistral" if told.get("attention.sliding_window") else "llama", config)


def _as(kind: str, config: Any) -> Any:
    """A config of Llama or Mistral, whose weights have the same names, as the other's."""
    if config.model_type == kind:
        return config
    values = {key: value for key, value in config.to_dict().items() if key != "model_type"}
    return CONFIG_MAPPING[kind].from_dict(values)


def _tensor(path: Path, name: str) -> Any:
    """One tensor of a file as gguf gives it: `shape` turned around, `data` not read yet."""
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == name:
            return tensor
    raise LoadError(f"{path.name} lacks {name}")


def _complete_gemma(config: Any, told: Mapping[str, Any]) -> None:
    """Set what transformers doesn't read: the scale of queries, and which layers are local."""
    by_width = config.num_hidden_layers in _BY_WIDTH
    width = config.hidden_size // config.num_attention_heads
    config.query_pre_attn_scalar = width if by_width else config.head_dim
    layers = range(config.num_hidden_layers)
    if config.model_type == "gemma3_text" and not told.get("attention.sliding_window"):
        config.layer_types = [FULL for _ in layers]
    elif isinstance(pattern := told.get("attention.sliding_window_pattern"), list):
        config.layer_types = [SLIDING if local else FULL for local in pattern]
    elif pattern:  # every so many layers a global one
        config.layer_types = [SLIDING if (i + 1) % pattern else FULL for i in layers]


def _complete_rotary(config: Any, told: Mapping[str, Any], path: Path) -> None:
    """Set base, extent and linear scaling of the rotary embedding as llama.cpp understands them.

    Raises:
        LoadError: it is scaled otherwise, or turns a part of each head where the family can't.
    """
    rotary = getattr(config, "rope_parameters", None)
    if not rotary:
        return
    widest = rotary.get("full_attention", rotary)
    if base := told.get("rope.freq_base"):
        widest["rope_theta"] = base
    if "sliding_attention" in rotary and (base := told.get("rope.freq_base_swa")):
        rotary["sliding_attention"]["rope_theta"] = base
    kind = told.get("rope.scaling.type", "linear")
    factor = told.get("rope.scaling.factor") or told.get("rope.scale_linear") or 1.0
    if kind not in ("none", "linear"):
        raise LoadError(f"{path.name} scales its rotary embedding ({kind}): load safetensors")
    if kind == "linear" and factor != 1.0:
        widest.update(rope_type="linear", factor=factor)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    turned = told.get("rope.dimension_count", head)
    if "partial_rotary_factor" in rotary:
        rotary["partial_rotary_factor"] = turned / head
    elif turned != head:
        raise LoadError(
            f"{path.name} rotates {turned} of the {head} numbers of a head, which transformers' "
            f"{config.model_type} can't: load safetensors"
        )


def _refuse_window_left_out(config: Any, told: Mapping[str, Any], path: Path) -> None:
    """Refuse a window that has no effect in transformers, where a text could outgrow it.

    Qwen's layers, for one, have none unless the config lists them, which no key does.
    """
    window = told.get("attention.sliding_window") or config.max_position_embeddings
    layers = range(config.num_hidden_layers)
    if window < config.max_position_embeddings and not any(
        attention_window(config, layer) for layer in layers
    ):
        raise LoadError(
            f"{path.name} has sliding-window attention and doesn't say in which layers: "
            "load safetensors"
        )


def _scale_like_llama3(config: Any, path: Path) -> None:
    """Set the rotary scaling of Llama 3, of which a GGUF file has only the resulting factors."""
    factors = torch.tensor(_tensor(path, ROTARY_FACTORS).data, dtype=torch.float32)
    plain = {"rope_theta": config.rope_parameters["rope_theta"], "rope_type": "default"}
    config.rope_parameters = {
        **plain,
        "rope_type": "llama3",
        "factor": float(factors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    steps = torch.arange(len(scaled)) / len(scaled)
    if not torch.allclose(plain["rope_theta"] ** -steps / factors, scaled, rtol=1e-4):
        raise LoadError(
            f"{path.name} scales its rotary embedding in an unknown way: load safetensors"
        )
