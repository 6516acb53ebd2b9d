"""What a draft checkpoint loses: a draft on its own lacks the target's keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from selfspec_core.plan import SkipPlan

from .acceptance import Table
from .reference import Reference


@torch.inference_mode()
def standalone_table(reference: Reference, plan: SkipPlan, *, depth: int = 8) -> Table:
    """Greedy acceptance of the plan as a model of its own, over the target's texts.

    It reads the whole text with its own keys and values, so where a round began makes no
    difference: the draft after i tokens is the same in every round.

    Args:
        reference: greedily written texts.
        plan: whole layers, as `draft_checkpoint` takes them.
        depth: longest draft.
    """
    decoder, given = reference.decoder, []
    for text in reference.texts:
        tokens = torch.tensor(text.ids, device=decoder.device)
        first = len(text.prompt_ids) - 1
        h = decoder.forward(tokens[:-1], plan=plan)[:, first:]  # [1, n, D]
        agrees = (
            torch.cat([decoder.readout(part)[0].argmax(-1) for part in h.split(128, dim=1)])
            == tokens[first + 1 :]
        )  # [n]
        given.append(_shifted(agrees.float().cpu(), depth))
    budgets = tuple(text.budget for text in reference.texts)
    return Table(tuple(given), tuple(given), budgets)


def _shifted(agrees: Tensor, depth: int) -> Tensor:
    """[n, depth] entry (i, d) is that of token i + d; 0 past the end."""
    padded = torch.cat([agrees, agrees.new_zeros(depth)])
    return torch.stack([padded[d : d + len(agrees)] for d in range(depth)], dim=1)
