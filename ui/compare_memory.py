"""Bytes of weights that a system holds; imports torch, so for the engine's thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from selfspec_core.decoder import ResidualDecoder

if TYPE_CHECKING:
    from selfspec_core.engine import Engine
    from selfspec_core.plan import SkipPlan


def megabytes(model: Any) -> float:
    """Weights of a model, MB of 10⁶ bytes, shared ones counted once."""
    return sum(weight.numel() * weight.element_size() for weight in model.parameters()) / 1e6


def kept_megabytes(engine: Engine, plan: SkipPlan) -> float:
    """Weights that are left of the engine's model where a plan's branches are cut out for good.

    Counted on the model's outline: the engine's own weights are packed, and have no shape here.
    """
    loaded = engine.loaded
    with torch.device("meta"):
        outline = ResidualDecoder(type(loaded.model)(loaded.model.config), loaded.family)
    item = torch.empty((), dtype=engine.decoder.dtype).element_size()
    cut = 0
    for layer, branches in enumerate(outline.branches):
        for branch, skipped in zip(branches, (plan.attention, plan.mlp), strict=True):
            if layer in skipped:
                cut += sum(weight.numel() for weight in branch.module.parameters())
    return float(loaded.info.weights_mb - cut * item / 1e6)
