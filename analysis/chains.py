"""Rows that draft over a text the target wrote, a forward for each draft of a round.

A row attends to the target's keys and values up to where its round began, and from there on
to the draft's own of its chain. Native attention takes such rows as they are (`_Apart`); the
modules take them as a padded batch with masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
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
        self._rows_own: dict[int, tuple[Tensor, Tensor]] = {}
        self._places = torch.empty(0, dtype=torch.long)  # [G, R] of chains among those rows
        self._native = all(
            pair[0].native is not None
            for pair in self._decoder.branches[self._layer :]
            if pair[0].layer not in attention
        )

    def step(self, starts: Tensor, depth: int, counted: Tensor | None = None) -> Tensor:
        """[G, R, D] final stream of the row `depth` past where each round [G, R] begins.

        Args:
            counted: [G, R] the rows that will be read; None for all.
        """
        if self._native:
            return self._step_apart(starts, depth, counted)
        h, context = self.rows(starts, depth)
        context = replace(context, counted=counted)
        return self._decoder.run_layers(
            h, context, first=self._layer, plan=self._shared, gates=self._gates
        )

    def _step_apart(self, starts: Tensor, depth: int, counted: Tensor | None) -> Tensor:
        """The same through native attention, which takes the rows that count one by one."""
        counted = torch.ones_like(starts, dtype=torch.bool) if counted is None else counted
        groups = counted.nonzero()[:, 0]  # [N]
        texts, begins = groups % len(self._reference.texts), self._begins(starts)[counted]
        positions = begins + depth
        apart = _Apart(
            self._reference,
            texts,
            begins,
            depth,
            self._rows_own,
            self._places[counted] if depth else None,
        )
        h = self._stream[texts, positions][None]
        positions = positions[None]
        context = Context(self._decoder.rotary(h, positions), {}, None, positions, apart=apart)
        gates = None if self._gates is None else self._gates[groups, 0][None]
        h = self._decoder.run_layers(h, context, first=self._layer, plan=self._shared, gates=gates)
        self._rows_own = apart.own
        self._places = torch.zeros_like(starts)
        self._places[counted] = torch.arange(len(groups))
        final = h.new_zeros(*starts.shape, h.shape[-1])
        final[counted] = h[0]
        return final

    def _begins(self, starts: Tensor) -> Tensor:
        """[G, R] the slot of each round's own first row."""
        return self._starts[:, None] + starts

    def rows(self, starts: Tensor, depth: int) -> tuple[Tensor, Context]:
        """The rows' streams [G, R, D] where the drafts part from the target, and their context."""
        groups, count = starts.shape
        begins = self._begins(starts)  # [G, R]
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

    def kept(self, order: Tensor) -> Chains:
        """The same with only the chains [G, R'] of each group, in this order."""
        rest = copy(self)
        rest._own = {
            layer: [(_rows(keys, order), _rows(values, order)) for keys, values in own]
            for layer, own in self._own.items()
        }
        if self._native:
            rest._places = self._places.gather(-1, order)
        return rest


@dataclass
class _Apart:
    """Rows that continue the reference's texts; `selfspec_core.branch.Apart` says the rest.

    Args:
        before: layer → keys and values [N', G, depth, head_dim] of chains so far.
        places: [N] which of these a row continues; None where it is the first of its chain.
    """

    reference: Reference
    texts: Tensor
    begins: Tensor
    depth: int
    before: dict[int, tuple[Tensor, Tensor]]
    places: Tensor | None
    own: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def buffers(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keys and values of the texts, and of the rows' chains with room for one more."""
        keys, values = self.reference.keys[layer], self.reference.values[layer]
        _, heads, _, size = keys.shape
        shape = (len(self.texts), heads, self.depth + 1, size)
        own_keys, own_values = keys.new_empty(shape), values.new_empty(shape)
        if self.places is not None:
            for side, before in zip((own_keys, own_values), self.before[layer], strict=True):
                side[:, :, :-1] = before[self.places]
        self.own[layer] = own_keys, own_values
        return keys, values, own_keys, own_values


def _rows(side: Tensor, order: Tensor) -> Tensor:
    """[G, H, R', D] the rows [G, R'] of [G, H, R, D]."""
    index = order[:, None, :, None].expand(-1, side.shape[1], -1, side.shape[3])
    return side.gather(2, index)
