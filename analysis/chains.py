"""Rows that draft over a text the target wrote, a forward for each draft of a round.

A row attends to the target's keys and values up to where its round began, and from there on
to the draft's own of its chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from selfspec_core.branch import Context
from selfspec_core.plan import SkipPlan

from .reference import Reference, additive


class Chains:
    """The drafts' own keys and values while chains grow, and the cache that attention sees.

    Args:
        reference: what the target computed.
        plans: C of them; groups g = candidate · texts + text, G together.
    """

    def __init__(self, reference: Reference, plans: Sequence[SkipPlan]) -> None:
        self._reference, self._decoder = reference, reference.decoder
        self._candidates = len(plans)
        attention = frozenset.intersection(*(plan.attention for plan in plans))
        mlp = frozenset.intersection(*(plan.mlp for plan in plans))
        layers = reference.decoder.n_layers
        self._shared = SkipPlan(layers, attention, mlp)
        self._gates: Tensor | None = None
        if len(plans) > 1:
            gates = torch.ones(len(plans), 1, 1, 2, layers, dtype=reference.final.dtype)
            for c, plan in enumerate(plans):
                for index, skipped in enumerate((plan.attention, plan.mlp)):
                    gates[c, ..., index, sorted(skipped)] = 0
            gates = gates.expand(-1, len(reference.texts), -1, -1, -1).flatten(0, 1)
            self._gates = gates.to(reference.final.device)  # [G, 1, 2, n_layers]
        self._layer, self._stream = reference.before(plans)
        self._starts = reference.starts.repeat(len(plans))  # [G]
        self._own: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def step(self, starts: Tensor, depth: int, counted: Tensor | None = None) -> Tensor:
        """[G, R, D] final stream of the row `depth` past where each round [G, R] begins.

        Args:
            counted: [G, R] the rows that will be read; None for all.
        """
        h, context = self.rows(starts, depth)
        context = replace(context, counted=counted)
        return self._decoder.run_layers(
            h, context, first=self._layer, plan=self._shared, gates=self._gates
        )

    def rows(self, starts: Tensor, depth: int) -> tuple[Tensor, Context]:
        """The rows' streams [G, R, D] where the drafts part from the target, and their context."""
        groups, count = starts.shape
        begins = self._starts[:, None] + starts  # [G, R] the round's own first slot
        length = self._reference.tokens.shape[1]
        positions = (begins + depth).clamp(max=length - 1)  # padding rows stay inside
        texts = torch.arange(groups, device=starts.device) % len(self._reference.texts)
        h = self._stream[texts[:, None], positions]
        slots = torch.arange(length, device=starts.device)
        own = torch.eye(count, dtype=torch.bool, device=starts.device)
        masks = {}
        for kind, window in self._decoder.windows.items():
            seen = slots < begins[..., None]  # [G, R, T]
            if window is not None:
                seen &= slots > (begins + depth - window)[..., None]
            near = [own if window is None or depth - j < window else ~own & own
                    for j in range(depth + 1)]  # fmt: skip
            chain = torch.cat(near, dim=-1).expand(groups, -1, -1)
            masks[kind] = additive(torch.cat([seen, chain], dim=-1)[:, None], h.dtype)
        return h, Context(self._decoder.rotary(h, positions), masks, self, positions)

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """transformers' `Cache.update`: the target's text, then the chains' rows by depth."""
        own = self._own.setdefault(layer_idx, [])
        own.append((keys, values))
        whole = [
            side[layer_idx].repeat(self._candidates, 1, 1, 1)
            for side in (self._reference.keys, self._reference.values)
        ]
        return (
            torch.cat([whole[0], *(k for k, _ in own)], dim=2),
            torch.cat([whole[1], *(v for _, v in own)], dim=2),
        )

    def keep(self, order: Tensor) -> None:
        """Keep the chains [G, R'] of each group, in this order."""
        for own in self._own.values():
            for j, pair in enumerate(own):
                own[j] = _rows(pair[0], order), _rows(pair[1], order)


def _rows(side: Tensor, order: Tensor) -> Tensor:
    """[G, H, R', D] the rows [G, R'] of [G, H, R, D]."""
    index = order[:, None, :, None].expand(-1, side.shape[1], -1, side.shape[3])
    return side.gather(2, index)
