"""A float32 copy of a model for attribution: shown with its size, and freed after use."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from selfspec_core.loading import LoadedModel

from .stack import Stack


@dataclass(frozen=True, eq=False)
class FloatCopy:
    """Modules of one's own to hang hooks on. It is freed with the last reference to it.

    Args:
        model: float32, plain weights, without gradients.
        stack: its branches.
        mb: what it takes beside the model that is loaded, in MB of 10⁶ bytes; 0 where that
            is float32 already, since then the weights are shared and only the modules copied.
    """

    model: Any
    stack: Stack
    mb: float

    @contextmanager
    def eager_attention(self) -> Iterator[None]:
        """Let attention modules return their weights as well, which other kernels can't."""
        config = self.model.config
        before = config._attn_implementation
        self.model.set_attn_implementation("eager")
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)


def float_copy(loaded: LoadedModel) -> FloatCopy:
    """Copy the model's modules in float32. Hooks on them never touch the model in use."""
    live = loaded.model
    shared = {id(p): p for p in live.parameters()} if live.dtype == torch.float32 else {}
    model = copy.deepcopy(live, dict(shared))
    if not shared:
        if getattr(live.config, "tie_word_embeddings", False):
            model.tie_weights()  # packing holds a readout of its own; one is enough here
        model = model.float()
    model = model.eval().requires_grad_(False)
    own = {id(p): p.nbytes for p in model.parameters() if id(p) not in shared}
    return FloatCopy(model, Stack(model, loaded.family), sum(own.values()) / 1e6)
