"""Tiny random models, one a family and layout, whose peculiarities all bite.

Default initialisation is so narrow that leaving out a soft cap moves logits by 1e-7; these
are initialised wide, with uneven norms, and `PECULIARITIES` says what each model has to feel.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from selfspec_core.families import family_of

VOCAB = 97
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.5,
}
WINDOW = 6
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 4, "sliding_window": WINDOW}
LOCAL_GLOBAL = ["sliding_attention", "full_attention"] * 2
PARTIAL_ROTARY = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
WHOLE_ROTARY = {**PARTIAL_ROTARY, "partial_rotary_factor": 1.0}

TINY: dict[str, dict[str, Any]] = {
    "llama": {},
    "smollm3": {"no_rope_layers": [1, 0, 1, 0]},
    "smollm3-sliding": {
        "model_type": "smollm3",
        "no_rope_layers": [1, 1, 0, 0],
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "layer_types": LOCAL_GLOBAL,
    },
    "gemma2": {
        **GEMMA,
        "layer_types": LOCAL_GLOBAL,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
    },
    "gemma3": {
        **GEMMA,
        "model_type": "gemma3_text",
        "layer_types": LOCAL_GLOBAL,
        "final_logit_softcapping": 5.0,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "olmo2": {},
    "gpt_neox": {"rope_parameters": PARTIAL_ROTARY},
    "mistral": {"sliding_window": WINDOW, "initializer_range": 0.3},
    "qwen2": {},
    "qwen2-sliding": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "max_window_layers": 1,
        "initializer_range": 0.3,
    },
    "qwen3": {"head_dim": 16},
    "qwen3-sliding": {
        "model_type": "qwen3",
        "head_dim": 8,
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "layer_types": LOCAL_GLOBAL,
    },
    "phi3": {"sliding_window": WINDOW, "rope_parameters": PARTIAL_ROTARY},
    "starcoder2": {"sliding_window": WINDOW},
    "granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.1,
        "logits_scaling": 2.0,
    },
    "phi": {"rope_parameters": PARTIAL_ROTARY, "qk_layernorm": True},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "gpt_neox-serial": {"model_type": "gpt_neox", "use_parallel_residual": False},
    "gpt2": {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True},
}

PECULIARITIES: list[tuple[str, dict[str, Any]]] = [
    ("smollm3", {"no_rope_layers": [1, 1, 1, 1]}),
    ("smollm3-sliding", {"layer_types": ["full_attention"] * 4}),
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"final_logit_softcapping": None}),
    ("gemma2", {"sliding_window": 512}),
    ("gemma2", {"query_pre_attn_scalar": 16}),
    ("gemma3", {"final_logit_softcapping": None}),
    ("gemma3", {"sliding_window": 512}),
    (
        "gemma3",
        {
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": 10000.0}
                for kind in ("sliding_attention", "full_attention")
            }
        },
    ),
    ("gemma3", {"query_pre_attn_scalar": 16}),
    ("gpt_neox", {"rope_parameters": WHOLE_ROTARY}),
    ("gpt_neox", {"use_parallel_residual": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": False}),
    ("mistral", {"sliding_window": None}),
    ("qwen2-sliding", {"max_window_layers": 4}),
    ("qwen2-sliding", {"sliding_window": 512}),
    ("qwen3-sliding", {"layer_types": ["full_attention"] * 4}),
    ("phi3", {"rope_parameters": WHOLE_ROTARY}),
    ("phi3", {"sliding_window": None}),
    ("starcoder2", {"sliding_window": None}),
    ("starcoder2", {"use_bias": False}),
    ("granite", {"embedding_multiplier": 1.0}),
    ("granite", {"residual_multiplier": 1.0}),
    ("granite", {"attention_multiplier": 8**-0.5}),
    ("granite", {"logits_scaling": 1.0}),
    ("phi", {"rope_parameters": WHOLE_ROTARY}),
    ("phi", {"qk_layernorm": False}),
    ("cohere", {"logit_scale": 1.0}),
    ("cohere", {"use_qk_norm": False}),
]
"""(tiny model, change of its config that its logits have to feel)."""

WEIGHTS_THAT_COUNT: list[tuple[str, str]] = [
    ("qwen2", r"[qkv]_proj\.bias"),
    ("qwen3", r"q_norm\.weight"),
    ("qwen3", r"k_norm\.weight"),
    ("starcoder2", r"(layernorm|norm)\.bias"),
    ("starcoder2", r"c_proj\.bias"),
    ("phi", r"lm_head\.bias"),
    ("phi", r"input_layernorm\.bias"),
    ("cohere", r"[qk]_norm\.weight"),
]
"""(tiny model, weights peculiar to its family that no setting of its config turns off)."""


def tiny(name: str, *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """The tiny model of that name, in float32, with `overrides` of its config.

    Two calls differing only in config share all weights that they both have.
    """
    values = {**SHAPE, **TINY[name], **overrides}
    kind = values.pop("model_type", name)
    config = CONFIG_MAPPING[kind](**values)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation=family_of(config).attn_implementation
    ).float()
    with torch.no_grad():  # norms begin as all ones, and biases as zeros: make them matter
        for parameter_name, parameter in sorted(model.named_parameters()):
            if parameter.dim() == 1 or "norm" in parameter_name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            if "norm" in parameter_name and "embed" not in parameter_name:
                parameter.mul_(0.5)
    return model.eval().requires_grad_(False)


def ids(n: int, *, seed: int = 1) -> torch.Tensor:
    """[n] token ids."""
    return torch.randint(2, VOCAB, (n,), generator=torch.Generator().manual_seed(seed))
