"""CLaSp: which layers to skip, by dynamic programming on hidden states (Chen et al. 2025).

For every layer i and count j it keeps the stream that skips j of the first i layers and is
closest, by cosine, to the target's own: the better of "skip layer i" and "run layer i". One
plan a skip count comes out; which of them pays is a matter of acceptance and cost, so each is
then scored like any other plan.
"""

from __future__ import annotations

import torch
from torch import Tensor

from selfspec_core.branch import ATTENTION
from selfspec_core.plan import SkipPlan

from .chains import Chains
from .reference import Reference


@torch.inference_mode()
def clasp_plans(reference: Reference, most: int, *, positions: int = 16) -> list[SkipPlan]:
    """The plans that skip 1 to `most` whole layers.

    Args:
        reference: what the target computed; its first text is looked at.
        most: fewer than all layers.
        positions: rows of the text that cosines are averaged over (CLaSp takes the last one).
    """
    decoder = reference.decoder
    n = min(positions, len(reference.texts[0].written))
    states: dict[int, Tensor] = {}  # j → [N, D]
    skipped: dict[int, frozenset[int]] = {0: frozenset()}
    index = reference.starts[0] + torch.arange(n, device=decoder.device)  # [N] slots
    states[0] = reference.stream(ATTENTION, 0)[0, index]
    for layer in range(decoder.n_layers):
        counts = sorted(states)
        ran = _run(reference, torch.stack([states[j] for j in counts]), index, layer)
        target = _after(reference, layer)[0, index]  # [N, D]
        candidates: dict[int, list[tuple[Tensor, frozenset[int]]]] = {}
        for j, h in zip(counts, ran, strict=True):
            candidates.setdefault(j, []).append((h, skipped[j]))
            if j < most:
                candidates.setdefault(j + 1, []).append((states[j], skipped[j] | {layer}))
        kept = {
            j: max(each, key=lambda state: _cosine(state[0], target))
            for j, each in candidates.items()
        }
        states = {j: state for j, (state, _) in kept.items()}
        skipped = {j: layers for j, (_, layers) in kept.items()}
    return [
        SkipPlan(decoder.n_layers, layers, layers)
        for j, layers in sorted(skipped.items())
        if 0 < j < decoder.n_layers
    ]


def _run(reference: Reference, h: Tensor, index: Tensor, layer: int) -> Tensor:
    """[J, N, D] through one layer, each row over the target's own text before it."""
    chains = Chains(reference.first(1), [SkipPlan(reference.decoder.n_layers)] * len(h))
    starts = (index - reference.starts[0]).expand(len(h), -1)
    _, context = chains.rows(starts, 0)
    return reference.decoder.run_layers(h, context, first=layer, last=layer + 1)


def _after(reference: Reference, layer: int) -> Tensor:
    """[B, T, D] the target's stream after a layer."""
    last = layer + 1 == reference.decoder.n_layers
    return reference.final if last else reference.stream(ATTENTION, layer + 1)


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a.float(), b.float(), dim=-1).mean())
