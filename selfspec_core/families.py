"""Which modules make a residual branch, per model family (design §1).

A family is declared in a few lines of names; the code that runs branches (`decoder.py`)
reads these and knows no family. To add one, declare it in `FAMILIES` and give its
tiny model to `tests/model/tiny.py`, where every peculiarity has to move the logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"


class UnsupportedModelError(ValueError):
    """A model that can't be drafted with; names the family, the reason and what is supported."""


@dataclass(frozen=True)
class BranchNames:
    """Names, inside one decoder layer, of what makes a branch.

    Args:
        module: the attention or MLP module.
        writes: the last module of the branch, whose output (times the family's residual
            multiplier) is added to the stream; hooks for attribution go here.
        norm: norm applied to the stream before `module`, if any.
        norm_after: norm applied to what `module` returns, if any.
    """

    module: str
    writes: str
    norm: str | None = None
    norm_after: str | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model family. Names are attribute paths; config names are read at load.

    Args:
        name: how the family is called in messages.
        model_types: the `model_type`s of transformers configs that it covers.
        attention, mlp: what makes each branch.
        parallel: both branches read the layer's input; a config attribute's name where the
            config decides, True or False where the family does.
        layers, embed, final_norm, head, rotary: where these are in the model.
        positions: the learned position embedding, where there is one (then no rotary).
        cache_argument: how the attention module calls its cache.
        attn_implementation: "sdpa", or "eager" where a family's attention has no other form.
        rotary_by_layer_type: the rotary module wants the layer's type (each has its base).
        embedding_multiplier, residual_multiplier, logit_divisor, logit_multiplier,
        logit_softcap: names of config attributes, where the family has them.
    """

    name: str
    model_types: tuple[str, ...]
    attention: BranchNames
    mlp: BranchNames
    parallel: bool | str = False
    layers: str = "model.layers"
    embed: str = "model.embed_tokens"
    positions: str | None = None
    final_norm: str = "model.norm"
    head: str = "lm_head"
    rotary: str | None = "model.rotary_emb"
    cache_argument: str = "cache"
    attn_implementation: str = "sdpa"
    rotary_by_layer_type: bool = False
    embedding_multiplier: str | None = None
    residual_multiplier: str | None = None
    logit_divisor: str | None = None
    logit_multiplier: str | None = None
    logit_softcap: str | None = None

    def is_parallel(self, config: Any) -> bool:
        """Whether both branches of a layer read the layer's input."""
        if isinstance(self.parallel, str):
            return bool(getattr(config, self.parallel))
        return self.parallel


# The serial pre-norm layer that most families share.
_ATTENTION = BranchNames("self_attn", "self_attn.o_proj", norm="input_layernorm")
_MLP = BranchNames("mlp", "mlp", norm="post_attention_layernorm")
# Where both branches read what one norm made of the layer's input.
_SHARED_NORM_MLP = BranchNames("mlp", "mlp", norm="input_layernorm")
# Gemma's layer: a norm before and one after each branch.
_SANDWICH_ATTENTION = BranchNames(
    "self_attn",
    "post_attention_layernorm",
    norm="input_layernorm",
    norm_after="post_attention_layernorm",
)
_SANDWICH_MLP = BranchNames(
    "mlp",
    "post_feedforward_layernorm",
    norm="pre_feedforward_layernorm",
    norm_after="post_feedforward_layernorm",
)


def _pre_norm(name: str, *model_types: str, **differences: Any) -> Family:
    """A family of pre-norm layers with Llama's names, serial, but for the `differences`."""
    return Family(
        name=name,
        model_types=model_types,
        **{"attention": _ATTENTION, "mlp": _MLP, **differences},
    )


FAMILIES: tuple[Family, ...] = (
    _pre_norm("Llama", "llama"),
    _pre_norm("SmolLM3", "smollm3"),
    _pre_norm("Mistral", "mistral"),
    _pre_norm("Qwen2", "qwen2"),
    _pre_norm("Qwen3", "qwen3"),
    _pre_norm("Phi-3", "phi3"),
    _pre_norm("StarCoder2", "starcoder2"),
    _pre_norm(
        "Granite",
        "granite",
        embedding_multiplier="embedding_multiplier",
        residual_multiplier="residual_multiplier",
        logit_divisor="logits_scaling",
    ),
    Family(
        name="Gemma 2",
        model_types=("gemma2",),
        attention=_SANDWICH_ATTENTION,
        mlp=_SANDWICH_MLP,
        attn_implementation="eager",  # the soft cap on attention logits has no SDPA form
        logit_softcap="final_logit_softcapping",
    ),
    Family(
        name="Gemma 3",
        model_types=("gemma3_text",),
        attention=_SANDWICH_ATTENTION,
        mlp=_SANDWICH_MLP,
        rotary_by_layer_type=True,
        logit_softcap="final_logit_softcapping",
    ),
    Family(
        name="OLMo 2",
        model_types=("olmo2",),
        attention=BranchNames(
            "self_attn", "post_attention_layernorm", norm_after="post_attention_layernorm"
        ),
        mlp=BranchNames(
            "mlp", "post_feedforward_layernorm", norm_after="post_feedforward_layernorm"
        ),
    ),
    Family(
        name="GPT-NeoX",
        model_types=("gpt_neox",),
        attention=BranchNames("attention", "attention.dense", norm="input_layernorm"),
        mlp=BranchNames("mlp", "mlp", norm="post_attention_layernorm"),
        parallel="use_parallel_residual",
        layers="gpt_neox.layers",
        embed="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
        rotary="gpt_neox.rotary_emb",
        cache_argument="layer_past",
    ),
    _pre_norm(
        "Phi",
        "phi",
        attention=BranchNames("self_attn", "self_attn.dense", norm="input_layernorm"),
        mlp=_SHARED_NORM_MLP,
        parallel=True,
        final_norm="model.final_layernorm",
    ),
    _pre_norm(
        "Cohere", "cohere", mlp=_SHARED_NORM_MLP, parallel=True, logit_multiplier="logit_scale"
    ),
    Family(
        name="GPT-2",
        model_types=("gpt2",),
        attention=BranchNames("attn", "attn.c_proj", norm="ln_1"),
        mlp=BranchNames("mlp", "mlp", norm="ln_2"),
        layers="transformer.h",
        embed="transformer.wte",
        positions="transformer.wpe",
        final_norm="transformer.ln_f",
        rotary=None,
    ),
)


def family_of(config: Any) -> Family:
    """The family of a transformers config.

    Raises:
        UnsupportedModelError: the family isn't known, or this model of it has layers whose
            state can't be rolled back or that attend in a way the decoder doesn't know.
    """
    kind = getattr(config, "model_type", None) or type(config).__name__
    for family in FAMILIES:
        if kind in family.model_types:
            if reason := next(_obstacles(config), None):
                raise UnsupportedModelError(f"this {family.name} model isn't supported: {reason}")
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise UnsupportedModelError(
        f"the family {kind!r} isn't supported: {_why(config)}. Supported: {known}"
    )


def attention_window(config: Any, layer: int) -> int | None:
    """How many tokens, itself included, a token of `layer` attends to; None for all."""
    window = _declared(config, "sliding_window")
    types = _declared(config, "layer_types")
    if types is not None:
        return window if types[layer] == SLIDING else None
    return window


def layer_type(config: Any, layer: int) -> str:
    """The layer's type in transformers' words: full or sliding attention."""
    types = _declared(config, "layer_types")
    if types is not None:
        return str(types[layer])
    return FULL if attention_window(config, layer) is None else SLIDING


def _declared(config: Any, name: str) -> Any:
    """A setting that the config's class knows; what else stands in a config.json has no effect.

    A Llama made from a Mistral often carries a `sliding_window` that transformers doesn't read.
    """
    return getattr(config, name, None) if hasattr(type(config), name) else None


def _why(config: Any) -> str:
    """Why an unknown family can't simply be tried."""
    stateful = ("mamba", "rwkv", "rglru", "linear_attention", "recurrent", "state_size", "ssm")
    told = (config.model_type, getattr(config, "layer_types", ""), list(vars(config)))
    if any(word in str(told).lower() for word in stateful):
        return "it has layers whose state can't be rolled back after a rejected draft"
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder"
    return "nobody has declared which of its modules make a residual branch"


def _obstacles(config: Any) -> Iterator[str]:
    """What in a config of a known family the decoder would get wrong."""
    for kind in set(getattr(config, "layer_types", None) or ()) - {FULL, SLIDING}:
        yield f"its {kind} layers are neither full nor sliding attention"
    if getattr(config, "use_bidirectional_attention", False):
        yield "its attention is bidirectional"
    if getattr(config, "add_cross_attention", False):
        yield "it has cross-attention"
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if (rope_type := parameters.get("rope_type")) in ("dynamic", "longrope"):
            yield (
                f"its rotary embedding ({rope_type}) changes with the length of the text, "
                "so cached keys would no longer fit"
            )
