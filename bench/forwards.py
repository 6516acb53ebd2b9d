"""Bare forwards of the stack, timed: no law, no events, no Python of the round around them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from selfspec_core.cache import KVCache
from selfspec_core.engine import Engine
from selfspec_core.generation import PREFILL_CHUNK
from selfspec_core.plan import SkipPlan
from selfspec_core.runtime import clock


class BareForwards:
    """Forwards that continue one text, each from the same place.

    Args:
        engine: the model.
        ids: the text; its last token is the first row of every forward.
        most: largest number of rows that will be asked for.
    """

    def __init__(self, engine: Engine, ids: Sequence[int], *, most: int) -> None:
        self._decoder = engine.decoder
        tokens = torch.tensor(list(ids), device=engine.decoder.device)
        self._row = tokens[-1:]
        self._cache = KVCache(engine.n_layers, len(ids) + most)
        self._prefill(tokens[:-1])

    @torch.inference_mode()
    def time(self, rows: int, plan: SkipPlan | None = None) -> float:
        """Milliseconds of one forward of so many rows, logits of every row included."""
        tokens = self._row.expand(rows).contiguous()
        device = self._decoder.device
        begin = clock(device)
        self._decoder.logits(tokens, cache=self._cache, plan=plan)
        return (clock(device) - begin) * 1e3

    def round(self, plan: SkipPlan, drafts: int, window: int) -> tuple[list[float], float]:
        """Milliseconds of the draft steps and of the window of one round, in its order."""
        return [self.time(1, plan) for _ in range(drafts)], self.time(window)

    @torch.inference_mode()
    def _prefill(self, tokens: torch.Tensor) -> None:
        for chunk in tokens.split(PREFILL_CHUNK):
            if len(chunk):
                self._decoder.forward(chunk, cache=self._cache)
                self._cache.advance(len(chunk))
