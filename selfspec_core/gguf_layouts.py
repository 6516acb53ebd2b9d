"""How llama.cpp writes the families into GGUF files whose files transformers can't read.

Each is a `Layout`, a few tables; the functions that read by them know no family. The tables
follow llama.cpp's `conversion/*.py` and what its `src/models/*.cpp` assume where a file is
silent: a rotary base of 10 000, as many key-value heads as heads, for SmolLM3 no rotary
embedding in every fourth layer (there is no key for another pattern), for Granite attention
scaled as usual. Any file may have Q, K and V fused in one tensor, one below the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING

from .builtin import LoadError
from .weights import model_class

ROTARY_FACTORS = "rope_freqs.weight"
"""The one tensor that is no weight: Llama 3's rotary scaling, which the config takes up."""

_IDS = ("bos", "eos", "padding")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One family's GGUF layout. Keys are without the family's prefix.

    Args:
        model_type: of the transformers config.
        required: config attribute → metadata key; a file without it is refused.
        optional: the same, for keys that may be absent (or 0, which llama.cpp takes for that).
        absent: config attribute → what llama.cpp assumes then, if not the config's default.
        present: config attribute → tensor whose being there sets it.
        fixed: config attribute → what llama.cpp assumes.
        only: key → the one value, where it is there, that this family's config has a place for.
        rows: tensor, as it is called in its block → how to undo the order of its rows
            (`rows`, config) that llama.cpp's converter made, of the weight and of the bias.
    """

    model_type: str
    required: Mapping[str, str]
    optional: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Callable[[Tensor, Any], Tensor]] = field(default_factory=dict)


def _unpair(rows: Tensor, heads: int) -> Tensor:
    """Undo that the two rows of a head that are rotated together were put side by side."""
    by_pair = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [H, D/2, 2, ...]
    return by_pair.transpose(1, 2).reshape(rows.shape)


def _unpair_queries(rows: Tensor, config: Any) -> Tensor:
    return _unpair(rows, config.num_attention_heads)


def _unpair_keys(rows: Tensor, config: Any) -> Tensor:
    return _unpair(rows, config.num_key_value_heads)


def _by_head(rows: Tensor, config: Any) -> Tensor:
    """All queries, all keys, all values → head by head its query, key and value."""
    blocks = rows.reshape(3, config.num_attention_heads, -1, *rows.shape[1:])  # [3, H, D, ...]
    return blocks.transpose(0, 1).reshape(rows.shape)


def _as_many_as_queries(values: Mapping[str, Any]) -> Any:
    return values["num_attention_heads"]


def _usual_scale(values: Mapping[str, Any]) -> float:
    width = values["hidden_size"] // values["num_attention_heads"]
    return float(values.get("head_dim", width) ** -0.5)


_COMMON = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
}
_RMS = {**_COMMON, "rms_norm_eps": "attention.layer_norm_rms_epsilon"}
_NORM = {**_COMMON, "layer_norm_eps": "attention.layer_norm_epsilon"}
_KEYS = {"num_key_value_heads": "attention.head_count_kv"}
_HEADS = {**_KEYS, "head_dim": "attention.key_length"}
_ABSENT = {"num_key_value_heads": _as_many_as_queries}
_LLAMA_BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
_LLAMA_ROWS = {"attn_q": _unpair_queries, "attn_k": _unpair_keys}

LAYOUTS: Mapping[str, Layout] = {
    "smollm3": Layout(
        model_type="smollm3",
        required=_RMS,
        optional=_HEADS,
        absent=_ABSENT,
        present=_LLAMA_BIASES,
        fixed={"no_rope_layers": None, "no_rope_layer_interval": 4, "use_sliding_window": False},
        rows=_LLAMA_ROWS,
    ),
    "olmo2": Layout(
        model_type="olmo2",
        required=_RMS,
        optional=_HEADS,
        absent=_ABSENT,
        present={"attention_bias": "blk.0.attn_q.bias"},
    ),
    "gptneox": Layout(
        model_type="gpt_neox",
        required={**_NORM, "use_parallel_residual": "use_parallel_residual"},
        present={"attention_bias": "blk.0.attn_qkv.bias"},
        rows={"attn_qkv": _by_head},
    ),
    "granite": Layout(
        model_type="granite",
        required={**_RMS, "logits_scaling": "logit_scale"},
        optional={
            **_HEADS,
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
        },
        absent={**_ABSENT, "attention_multiplier": _usual_scale},
        present=_LLAMA_BIASES,
        only={"rope.scaling.finetuned": True},  # how Granite's files say that they rotate at all
        rows=_LLAMA_ROWS,
    ),
    "phi2": Layout(model_type="phi", required=_NORM, optional=_KEYS, absent=_ABSENT),
    "command-r": Layout(
        model_type="cohere",
        required={**_NORM, "logit_scale": "logit_scale"},
        optional=_HEADS,
        absent=_ABSENT,
        present={
            "attention_bias": "blk.0.attn_q.bias",
            "use_qk_norm": "blk.0.attn_q_norm.weight",
        },
    ),
}
"""By `general.architecture`."""


def read_config(
    arch: str, metadata: Mapping[str, Any], tensors: Collection[str], *, vocab_size: int, name: str
) -> Any:
    """The config of a file of one of the `LAYOUTS`.

    How much of a head is rotated, and how that is scaled, is left to the caller.

    Raises:
        LoadError: a key is missing, or says what this family's config has no place for.
    """
    layout = LAYOUTS[arch]
    told = {key.removeprefix(f"{arch}."): value for key, value in metadata.items()}
    for key in layout.required.values():
        if key not in told:
            raise LoadError(f"{name} has no {arch}.{key}: load safetensors")
    for key, value in layout.only.items():
        if told.get(key, value) != value:
            raise LoadError(
                f"{name} says {arch}.{key} = {told[key]}, which transformers' "
                f"{layout.model_type} can't: load safetensors"
            )
    keys = {**layout.required, **layout.optional}
    values = {attribute: told[key] for attribute, key in layout.required.items()}
    values |= {attribute: told[key] for attribute, key in layout.optional.items() if told.get(key)}
    for attribute, value in values.items():
        if isinstance(value, list):
            raise LoadError(
                f"in {name} {arch}.{keys[attribute]} differs from layer to layer, which "
                f"transformers' {layout.model_type} can't: load safetensors"
            )
    if told.get("attention.sliding_window"):
        raise LoadError(
            f"{name} has sliding-window attention, which no file of {arch} should have (those of "
            "OLMo 3 say that they are olmo2): load safetensors of a supported family"
        )
    for attribute, assumed in layout.absent.items():
        values.setdefault(attribute, assumed(values))
    rotary = {"rope_type": "default", "rope_theta": told.get("rope.freq_base", 10000.0)}
    for token in _IDS:
        values[f"{token.replace('padding', 'pad')}_token_id"] = metadata.get(
            f"tokenizer.ggml.{token}_token_id"
        )
    values |= layout.fixed
    held = {*tensors, *(name.replace("attn_qkv", "attn_q") for name in tensors)}
    values |= {attribute: tensor in held for attribute, tensor in layout.present.items()}
    make: Any = CONFIG_MAPPING[layout.model_type]
    return make(
        **values,
        vocab_size=vocab_size,
        rope_parameters=rotary,
        tie_word_embeddings="output.weight" not in tensors,
    )


def read_state(arch: str, path: Path, config: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights of a file of one of the `LAYOUTS` by transformers' names, dequantised.

    What the file lacks is lacking.

    Raises:
        LoadError: the file has a weight that has no place in the model, or of another shape.
    """
    order = LAYOUTS[arch].rows
    with torch.device("meta"):
        shapes = {name: t.shape for name, t in model_class(config)(config).state_dict().items()}
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    named = ((names.get_name(name, (".weight", ".bias")), name) for name in shapes)
    places = {place: name for place, name in named if place is not None}
    if config.tie_word_embeddings:
        places.pop("output.weight", None)  # Cohere's files have no name for it
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == ROTARY_FACTORS:
            continue
        whole = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        for name, weight in _unfused(tensor.name, whole, places, shapes):
            if (place := places.get(name)) is None:
                raise LoadError(f"{path.name} has a weight {name} that {arch} has no place for")
            if weight.shape != shapes[place]:
                raise LoadError(
                    f"in {path.name} {name} has the shape {tuple(weight.shape)}, "
                    f"{tuple(shapes[place])} is expected"
                )
            if undo := order.get(name.split(".")[-2]):
                weight = undo(weight, config)
            state[place] = weight.to(dtype)
    return state


def _unfused(
    name: str, weight: Tensor, places: Mapping[str, str], shapes: Mapping[str, torch.Size]
) -> Iterable[tuple[str, Tensor]]:
    """A file's tensor, or the three parts of a fused one where the model has them apart."""
    parts = [name.replace("attn_qkv", f"attn_{letter}") for letter in "qkv"]
    if name in places or not all(part in places for part in parts):
        return [(name, weight)]
    queries, keys, _ = (shapes[places[part]][0] for part in parts)
    return zip(parts, weight.tensor_split([queries, queries + keys]), strict=True)
