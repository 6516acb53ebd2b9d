"""How far the small model that a plan makes is from the whole one, on the whole one's texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from selfspec_core.engine import Engine
from selfspec_core.plan import SkipPlan

_CHUNK = 128  # rows whose laws exist at a time


class Distances:
    """Sums over texts; `figures` divides.

    Args:
        engine: the whole model.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kl = 0.0
        self._agreeing = self._places = 0

    @torch.inference_mode()
    def add(self, plan: SkipPlan, prompt_ids: Sequence[int], written: Sequence[int]) -> None:
        """Read a text of the whole model with both: one forward each.

        The small model reads it with its own keys and values, as it would by itself.
        """
        if not written:
            return
        decoder, vocab = self._engine.decoder, self._engine.vocab_size
        tokens = torch.tensor([*prompt_ids, *written], device=decoder.device)[:-1]
        first = len(prompt_ids) - 1  # the row that foretells the first written token
        whole = decoder.forward(tokens)[:, first:]  # [1, n, D]
        small = decoder.forward(tokens, plan=plan)[:, first:]
        for p_rows, q_rows in zip(
            whole.split(_CHUNK, dim=1), small.split(_CHUNK, dim=1), strict=True
        ):
            p = decoder.readout(p_rows)[0, :, :vocab].float().log_softmax(-1)  # [n, V]
            q = decoder.readout(q_rows)[0, :, :vocab].float().log_softmax(-1)
            # An impossible token adds nothing: 0 · log 0 is 0.
            terms = torch.where(p > -torch.inf, p.exp() * (p - q), 0.0)
            self._kl += float(terms.sum())
            self._agreeing += int((p.argmax(-1) == q.argmax(-1)).sum())
            self._places += len(p)

    def figures(self) -> dict[str, float | None]:
        """`kl`: mean KL(whole ‖ small) in nats a token, at temperature 1. `agreement`: share of
        the places where both find the same token likeliest. None where nothing was read."""
        if not self._places:
            return {"kl": None, "agreement": None}
        return {"kl": self._kl / self._places, "agreement": self._agreeing / self._places}
