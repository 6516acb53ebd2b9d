"""What a round computed, told as events: enough to redo every decision by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acceptance import Judgement
from .drafting import Proposal
from .events import Candidate, Draft, Residual, Verdict
from .sampling import Laws

TOP = 5
TextOf = Callable[[int], str]


@dataclass(frozen=True)
class Judged:
    """A verified window, still as tensors.

    Args:
        round: its number.
        positions: [k] position in the text of each draft.
        proposal: the drafts; None where nothing was drafted.
        above: [k] the window row that each draft continues, and so is judged by.
        target: laws of the window's k + 1 rows.
        judgement: what the rule said.
        noise: [k + 1, V] of the target's draws; None at temperature 0.
        u: [k] of `rejection`; None otherwise.
        logits: [k + 1, V] the target's own.
        residual: law [V] and mass [] at the rejected draft, where one was resampled.
    """

    round: int
    positions: Sequence[int]
    proposal: Proposal | None
    above: Tensor
    target: Laws
    judgement: Judgement
    noise: Tensor | None
    u: Tensor | None
    logits: Tensor
    residual: tuple[Tensor, Tensor] | None = None

    @property
    def parents(self) -> tuple[int, ...] | None:
        """The draft that each draft continues; None for a chain."""
        return None if self.proposal is None else self.proposal.parents


def draft_events(
    proposal: Proposal | None,
    tokens: Sequence[int],
    positions: Sequence[int],
    number: int,
    text_of: TextOf,
    *,
    greedy: bool,
) -> list[Draft]:
    """One event a drafted token of round `number`; `greedy` is the target's sampling."""
    if proposal is None:
        return []
    q = _at(_shown(proposal.laws, greedy), proposal.tokens).exp().tolist()
    parents = proposal.parents or range(-1, len(tokens) - 1)
    return [
        Draft(
            round=number,
            index=i,
            parent=parent,
            position=position,
            drafter=proposal.drafter,
            token=token,
            text=text_of(token),
            q=q[i],
        )
        for i, (token, parent, position) in enumerate(zip(tokens, parents, positions, strict=True))
    ]


def verdict_events(
    judged: Judged, tokens: Sequence[int], statuses: Sequence[str], text_of: TextOf
) -> list[Verdict]:
    """One event a drafted token: its status and every number behind it."""
    if judged.proposal is None:
        return []
    draft_log = _shown(judged.proposal.laws, judged.target.greedy)  # [k, V]
    target_log = judged.target.log_probs[judged.above]  # [k, V]
    drafts = judged.proposal.tokens
    log_p, log_q = _at(target_log, drafts), _at(draft_log, drafts)  # [k]
    choices = judged.judgement.choices[judged.above]
    noise = None if judged.noise is None else judged.noise[judged.above]  # [k, V]
    top = target_log.topk(min(TOP, target_log.shape[-1]), dim=-1)
    tops = [
        _candidates(ids, ps, qs, ns, text_of)
        for ids, ps, qs, ns in zip(
            top.indices.tolist(),
            top.values.exp().tolist(),
            draft_log.gather(-1, top.indices).exp().tolist(),
            _listed(None if noise is None else noise.gather(-1, top.indices), len(tokens)),
            strict=True,
        )
    ]
    k = len(tokens)
    columns: dict[str, Sequence[Any]] = {
        "position": judged.positions,
        "token": tokens,
        "text": [text_of(token) for token in tokens],
        "status": statuses,
        "p": log_p.exp().tolist(),
        "q": log_q.exp().tolist(),
        "offset": _finite(log_p.double() - log_q.double()),
        "rank": ((target_log > log_p[:, None]).sum(-1) + 1).tolist(),
        "choice": choices.tolist(),
        "choice_text": [text_of(token) for token in choices.tolist()],
        "choice_p": _at(target_log, choices).exp().tolist(),
        "top": tops,
        "noise": _listed(None if noise is None else _at(noise, drafts), k),
        "choice_noise": _listed(None if noise is None else _at(noise, choices), k),
        "u": _listed(judged.u, k),
        "judged": _listed(judged.judgement.judged, k),
        "bound": _listed(judged.judgement.bounds, k),
        "residual": [
            _residual_event(judged, i, text_of) if statuses[i] == "rejected" else None
            for i in range(k)
        ],
    }
    return [
        Verdict(round=judged.round, index=i, **dict(zip(columns, row, strict=True)))
        for i, row in enumerate(zip(*columns.values(), strict=True))
    ]


def _shown(draft: Laws, greedy: bool) -> Tensor:
    """[k, V] log q as events tell it: the law drawn from, or the softmax in a greedy text."""
    return draft.log_probs if greedy else draft.log_law()


def _finite(column: Tensor) -> list[float | None]:
    """The column's values; None for an infinity."""
    return [value if math.isfinite(value) else None for value in column.tolist()]


def _listed(column: Tensor | None, k: int) -> list[Any]:
    """The column's values, or as many Nones."""
    return [None] * k if column is None else column.tolist()


def _at(rows: Tensor, tokens: Tensor) -> Tensor:
    """[k] the entry of each row [k, V] at its token."""
    return rows.gather(-1, tokens[:, None])[:, 0]


def _candidates(
    ids: Sequence[int],
    ps: Sequence[float],
    qs: Sequence[float],
    noise: Sequence[float] | None,
    text_of: TextOf,
) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            token=t, text=text_of(t), p=ps[i], q=qs[i], noise=None if noise is None else noise[i]
        )
        for i, t in enumerate(ids)
    )


def _residual_event(judged: Judged, draft: int, text_of: TextOf) -> Residual | None:
    if judged.residual is None:
        return None
    law, mass = judged.residual
    assert judged.proposal is not None
    top = law.topk(min(TOP, len(law)))
    row = int(judged.above[draft])
    assert judged.noise is not None
    ids = top.indices.tolist()
    return Residual(
        mass=float(mass),
        top=_candidates(
            ids,
            top.values.tolist(),
            judged.proposal.laws.log_law()[draft, top.indices].exp().tolist(),
            judged.noise[row, top.indices].tolist(),
            text_of,
        ),
        rest=max(0.0, float(torch.ones(()) - top.values.sum())),
    )
