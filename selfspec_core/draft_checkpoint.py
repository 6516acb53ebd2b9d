"""A plan as a model of its own: the layers that are kept, renumbered, in a transformers folder.

For plans of whole layers. transformers (`assistant_model=`), vLLM (draft model) and, after
conversion, llama.cpp can draft with it. On its own a draft lacks the target's keys and values
of the text so far, so fewer of its tokens are accepted than of the same plan in our engine.
"""

from __future__ import annotations

import copy
import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from .bounded_json import PlanFileError
from .families import FULL, SLIDING
from .loading import LoadedModel
from .plan import LengthSchedule, SkipPlan

PER_LAYER = ("layer_types", "no_rope_layers")
"""Config attributes with one entry a layer."""

ORIGIN = "selfspec_draft.json"
"""File in the folder that says what it was made from."""


@dataclass(frozen=True)
class DraftCheckpoint:
    """What was written.

    Args:
        folder: where.
        kept: the whole model's layers in it, in order.
        parameters: its weights, shared ones counted once.
        notes: where its use is limited, for a person.
    """

    folder: Path
    kept: tuple[int, ...]
    parameters: int
    notes: tuple[str, ...]


def write_draft(
    folder: str | Path,
    loaded: LoadedModel,
    plan: SkipPlan | LengthSchedule,
    *,
    k: int | None = None,
    confidence: float | None = None,
) -> DraftCheckpoint:
    """Write the draft of a plan as a checkpoint of its own; the model isn't copied or changed.

    Args:
        folder: a new or empty one.
        loaded: the whole model.
        plan: skips whole layers, at least one.
        k: drafts a round, as transformers takes them from the draft's generation config; None
            leaves that to transformers.
        confidence: with `k`, where transformers stops drafting; None never does.

    Raises:
        PlanFileError: the plan can't be a checkpoint, or the folder has something in it.
    """
    folder = Path(folder)
    kept = kept_layers(plan, loaded.info.n_layers)
    draft = draft_model(loaded, kept)
    draft.generation_config = _generation_config(loaded.model, draft.config, k, confidence)
    notes = _notes(loaded.model.config, kept)
    origin = {
        "plan": str(plan),
        "n_layers": loaded.info.n_layers,
        "kept": kept,
        "model": loaded.info.id,
        "weights_hash": loaded.info.weights_hash,
        "notes": notes,
    }
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise PlanFileError(f"{folder} isn't empty: choose a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        half = folder.parent / f".{folder.name}-{uuid.uuid4().hex}"
        half.mkdir()
        try:
            draft.save_pretrained(half)
            if loaded.tokenizer is not None:
                loaded.tokenizer.save_pretrained(half)
            (half / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
            if folder.exists():
                folder.rmdir()
            half.rename(folder)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    except OSError as error:
        raise PlanFileError(f"the draft can't be written: {error}") from None
    parameters = sum(weight.numel() for weight in draft.parameters())
    return DraftCheckpoint(folder, tuple(kept), parameters, tuple(notes))


def kept_layers(plan: SkipPlan | LengthSchedule, n_layers: int) -> list[int]:
    """The layers that a plan of whole layers keeps, at least one fewer than all.

    Raises:
        PlanFileError: it isn't such a plan, or another model's.
    """
    if isinstance(plan, LengthSchedule):
        raise PlanFileError("a draft checkpoint can't hold a length schedule: take one plan of it")
    if plan.n_layers != n_layers:
        raise PlanFileError(f"the plan is for {plan.n_layers} layers, this model has {n_layers}")
    if half := plan.attention ^ plan.mlp:
        kept = "MLP" if min(half) in plan.attention else "attention"
        raise PlanFileError(
            f"a draft checkpoint has whole layers only, and this plan keeps the {kept} of layer "
            f"{min(half)}"
        )
    if not plan.attention:
        raise PlanFileError("this plan skips nothing: its draft would be the model itself")
    return [layer for layer in range(n_layers) if layer not in plan.attention]


def draft_model(loaded: LoadedModel, kept: Sequence[int]) -> Any:
    """A model of these layers, renumbered, on the whole model's own weights."""
    model = loaded.model
    config = _config(model.config, kept)
    with torch.device("meta"):
        draft = type(model)(config)
    state = _state(model, loaded.family.layers, kept)
    draft.load_state_dict(state, assign=True)
    draft.tie_weights()
    return draft.eval().requires_grad_(False)


def _config(whole: Any, kept: Sequence[int]) -> Any:
    config = copy.deepcopy(whole)
    for name in PER_LAYER:
        if (entries := getattr(config, name, None)) is not None:
            setattr(config, name, [entries[layer] for layer in kept])
    config.num_hidden_layers = len(kept)
    types = getattr(config, "layer_types", None)
    if types is not None and hasattr(config, "max_window_layers"):
        full = types.count(FULL)  # for readers that know full layers first, then sliding ones
        if types == [FULL] * full + [SLIDING] * (len(types) - full):
            config.max_window_layers = full
    return config


def _state(model: Any, layers: str, kept: Sequence[int]) -> dict[str, Tensor]:
    """The whole model's weights under the draft's names; no copies but where values change."""
    prefix = f"{layers}."
    places = {str(old): new for new, old in enumerate(kept)}
    state: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        if not name.startswith(prefix):
            state[name] = weight
            continue
        layer, _, rest = name.removeprefix(prefix).partition(".")
        if layer in places:
            new = places[layer]
            if _scaled_by_place(model.config) and rest.startswith("attn.c_attn."):
                weight = _rescaled(weight, (new + 1) / (int(layer) + 1))
            state[f"{prefix}{new}.{rest}"] = weight
    return state


def _scaled_by_place(config: Any) -> bool:
    """GPT-2 may divide a layer's attention scores by its number, which renumbering changes."""
    return bool(getattr(config, "scale_attn_by_inverse_layer_idx", False))


def _rescaled(fused: Tensor, factor: float) -> Tensor:
    """GPT-2's projection, [D, 3D] or bias [3D], with its queries multiplied."""
    queries = fused.shape[-1] // 3
    changed = fused.clone()
    changed[..., :queries] *= factor
    return changed


def _generation_config(model: Any, config: Any, k: int | None, confidence: float | None) -> Any:
    """The whole model's, without its assistance, and with the draft's length."""
    whole = getattr(model, "generation_config", None)
    own = GenerationConfig.from_model_config(config)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if (value := getattr(whole, name, None)) is not None:
            setattr(own, name, value)
    if k is not None:
        own.num_assistant_tokens = k
        own.num_assistant_tokens_schedule = "constant"
        own.assistant_confidence_threshold = confidence or 0.0
    return own


def _notes(config: Any, kept: Sequence[int]) -> list[str]:
    notes = []
    for name in PER_LAYER:
        entries = getattr(config, name, None)
        if entries is not None and [entries[i] for i in kept] != list(entries[: len(kept)]):
            notes.append(
                f"the kept layers' {name} no longer follow the model's own pattern: the config "
                "says so, and readers that go by a layer's place (llama.cpp) compute another draft"
            )
    return notes
