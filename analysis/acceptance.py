"""Acceptance without decoding: a plan's drafts over a text that the target wrote.

As long as drafts are accepted they are the text's own tokens, so what the draft proposes
after one, two, … accepted drafts is known from rows that read the text itself: each attends
to the target's keys and values up to where its round began, and to the draft's own from there
on. One forward gives the first draft of every possible round, a second one the second draft
of the rounds that got there, and so on. `Table.walk` then goes through the text round by
round, as decoding would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from selfspec_core.acceptance import COUPLED, REJECTION, acceptance_ratio, expected_acceptance
from selfspec_core.engine import Engine
from selfspec_core.noise import Purpose, gumbel
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request
from selfspec_core.sampling import Laws, laws_of

from .chains import Chains
from .reference import Reference

_CHUNK = 128  # rows whose logits exist at a time
_NEVER = 1e-3  # rounds less likely than this to get so far are not followed further


@dataclass(frozen=True)
class Walked:
    """What decoding the texts would count.

    Args:
        drafted, accepted: draft tokens.
        rounds: verification forwards.
        tokens: written.
    """

    drafted: float
    accepted: float
    rounds: float
    tokens: int

    @property
    def alpha(self) -> float:
        """Accepted ÷ drafted; 0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tau(self) -> float:
        """Tokens a verification forward."""
        return self.tokens / self.rounds


@dataclass(frozen=True)
class Table:
    """Acceptance by position and depth, one entry a text.

    Args:
        given: [n, depth] for the round that begins when i tokens are written: the chance that
            draft d is accepted, given the text and that the drafts before it were. 0 or 1
            under `coupled` and greedily; `min(1, q(x)/p(x))` under `rejection`.
        expected: [n, depth] the same, averaged over what the target might write there;
            Σ min(p, q) under `rejection`, else `given`.
        budgets: tokens that each text was allowed.
    """

    given: tuple[Tensor, ...]
    expected: tuple[Tensor, ...]
    budgets: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Longest draft that can be walked."""
        return self.given[0].shape[1]

    def by_depth(self) -> list[float]:
        """Mean acceptance of the first, second, … draft of a round, where it is reached."""
        means = []
        for d in range(self.depth):
            weights, sums = 0.0, 0.0
            for given, expected in zip(self.given, self.expected, strict=True):
                reach = given[: len(given) - d, :d].prod(-1) if d else torch.ones(len(given))
                weights += float(reach.sum())
                sums += float((reach * expected[: len(given) - d, d]).sum())
            means.append(sums / weights if weights else 0.0)
        return means

    def walk(self, k: int) -> Walked:
        """Go through every text round by round with k drafts each.

        A round restarts behind a rejection, so not every position is equally likely to begin
        one. Under `rejection` each position carries the probability that a round begins there.

        Raises:
            ValueError: k is more than the table is deep.
        """
        if not 0 <= k <= self.depth:
            raise ValueError(f"this table holds drafts of up to {self.depth} tokens, not {k}")
        totals = [
            _walk(*each, k) for each in zip(self.given, self.expected, self.budgets, strict=True)
        ]
        drafted, accepted, rounds = (sum(column) for column in zip(*totals, strict=True))
        return Walked(drafted, accepted, rounds, sum(len(given) for given in self.given))


def _walk(given: Tensor, expected: Tensor, budget: int, k: int) -> tuple[float, float, float]:
    """(drafted, accepted, rounds) of one text."""
    passes, gains, n = given.tolist(), expected.tolist(), len(given)
    begins = [1.0] + [0.0] * n  # the chance that a round begins with so many tokens written
    drafted = accepted = rounds = 0.0
    for i in range(n):
        reach = begins[i]
        if reach == 0:
            continue
        limit = min(k, budget - i - 1)
        rounds += reach
        drafted += reach * limit  # drafts past an end token are drafted too
        for d in range(min(limit, n - i)):
            accepted += reach * gains[i][d]
            begins[i + d + 1] += reach * (1 - passes[i][d])
            reach *= passes[i][d]
            if reach == 0:
                break
        else:
            if i + limit < n:
                begins[i + limit + 1] += reach
    return drafted, accepted, rounds


class Predictor:
    """Scores plans over one reference.

    Args:
        engine: the model.
        reference: the target's texts.
        request: the rule, the laws and the seed that the texts were written with.

    Raises:
        ValueError: a lossy rule, whose text isn't the target's own.
    """

    def __init__(self, engine: Engine, reference: Reference, request: Request) -> None:
        if request.rule not in (COUPLED, REJECTION):
            raise ValueError(
                f"acceptance under {request.rule!r} can't be predicted over the target's text, "
                f"since it writes another one: choose {COUPLED} or {REJECTION}"
            )
        self.engine, self.reference, self.request = engine, reference, request
        device = reference.decoder.device
        texts = reference.texts
        self._starts = reference.starts
        self._counts = torch.tensor([len(t.written) for t in texts], device=device)  # [B]
        self._expected = request.rule == REJECTION and not request.sampling.greedy

    def table(
        self, plan: SkipPlan, *, depth: int = 8, draft_temperature: float | None = None
    ) -> Table:
        """The table of one plan; see `tables`."""
        return self.tables([plan], depth=depth, draft_temperature=draft_temperature)[0]

    @torch.inference_mode()
    def tables(
        self,
        plans: Sequence[SkipPlan],
        *,
        depth: int = 8,
        draft_temperature: float | None = None,
    ) -> list[Table]:
        """Score plans in shared forwards: what all of them skip isn't run, the rest is gated.

        Args:
            plans: C of them. On a CPU one at a time is as fast.
            depth: longest draft to look at.
            draft_temperature: the draft's own; None is the target's.
        """
        candidates, texts = len(plans), len(self.reference.texts)
        n = int(self._counts.max())
        shape = (candidates * texts, n, depth)  # groups g = candidate · texts + text
        given, expected = torch.zeros(shape), torch.zeros(shape)
        chains = Chains(self.reference, plans)
        counts = self._counts.repeat(candidates)  # [G]
        starts = torch.arange(n, device=counts.device).expand(len(counts), n)  # [G, R]
        valid = starts < counts[:, None]
        reach = valid.float()
        for d in range(depth):
            h = chains.step(starts, d)  # [G, R, D]
            passes, gains = self._judge(h[valid], starts, valid, d, draft_temperature)
            groups, rows = (valid.nonzero()[:, 0].cpu(), starts[valid].cpu())
            given[groups, rows, d], expected[groups, rows, d] = passes.cpu(), gains.cpu()
            reach = reach.masked_scatter(valid, reach[valid] * passes)
            going = valid & (reach > _NEVER) & (starts + d + 1 < counts[:, None])
            width = int(going.sum(-1).max())
            if width == 0:
                break
            order = going.int().argsort(dim=-1, descending=True, stable=True)[:, :width]
            valid = going.gather(-1, order)
            starts, reach = starts.gather(-1, order), reach.gather(-1, order)
            chains.keep(order)
        sizes = self._counts.tolist()
        budgets = tuple(text.budget for text in self.reference.texts)

        def texts_of(part: Tensor, candidate: int) -> tuple[Tensor, ...]:
            rows = part[candidate * texts : (candidate + 1) * texts]
            return tuple(row[:size] for row, size in zip(rows, sizes, strict=True))

        return [
            Table(texts_of(given, c), texts_of(expected, c), budgets) for c in range(candidates)
        ]

    # -- verdicts -------------------------------------------------------------------------------

    def _judge(
        self, h: Tensor, starts: Tensor, valid: Tensor, d: int, draft_temperature: float | None
    ) -> tuple[Tensor, Tensor]:
        """([N] chance given the text, [N] expected) of draft d of the valid rows [N, D]."""
        sampling = self.request.sampling
        if draft_temperature is not None and not sampling.greedy:
            sampling = sampling.at(draft_temperature)
        plain = sampling.greedy and not (
            sampling.looks_back or sampling.logit_bias or sampling.min_new_tokens
        )
        texts = valid.nonzero()[:, 0] % len(self.reference.texts)  # [N]
        written = starts[valid] + d  # [N] tokens written before the draft
        slots = self._starts[texts] + written  # [N] of the row that it is drafted at
        tokens = self.reference.tokens[texts, slots + 1]  # [N] what the text says
        passes, gains = [], []
        for part in torch.arange(len(h), device=h.device).split(_CHUNK):
            logits = self.reference.decoder.readout(h[part][None])[0, :, : self.engine.vocab_size]
            if plain:  # the law's likeliest, without making the law
                agrees = (logits.max(-1).indices == tokens[part]).float()
                passes.append(agrees)
                gains.append(agrees)
                continue
            draft = self._laws(logits, sampling, texts[part], written[part])
            if self._expected:
                target = self._target(texts[part], written[part])
                log_p, log_q = target.log_probs, draft.log_law()
                passes.append(acceptance_ratio(log_p, log_q, tokens[part]).reciprocal())
                gains.append(expected_acceptance(log_p.exp(), log_q.exp(), REJECTION))
                continue
            noise = None if draft.greedy else self._noise[slots[part] + 1 - self._first]
            agrees = (draft.choose(noise) == tokens[part]).float()
            passes.append(agrees)
            gains.append(agrees)
        return torch.cat(passes).clamp(max=1), torch.cat(gains)

    def _laws(self, logits: Tensor, sampling: Any, texts: Tensor, written: Tensor) -> Laws:
        rows = list(zip(texts.tolist(), written.tolist(), strict=True))
        all_texts = self.reference.texts
        # Every text counts its own new tokens; only penalties of written tokens need to know
        # where the prompt ends, and then rows come one text at a time.
        parts = []
        for index, (text, n_new) in enumerate(rows):
            prompt = all_texts[text].prompt_ids
            if not sampling.looks_back:
                break
            parts.append(
                laws_of(
                    logits[index : index + 1],
                    sampling,
                    histories=[prompt + all_texts[text].written[:n_new]],
                    n_new=[n_new],
                    prompt_length=len(prompt),
                    end_ids=self.engine.end_ids,
                )
            )
        if parts:
            return Laws(
                torch.cat([part.scores for part in parts]),
                torch.cat([part.log_probs for part in parts]),
                parts[0].temperature,
            )
        return laws_of(
            logits,
            sampling,
            n_new=written.tolist(),
            prompt_length=0,
            end_ids=self.engine.end_ids,
        )

    def _target(self, texts: Tensor, written: Tensor) -> Laws:
        h = self.reference.final[texts, self._starts[texts] + written]  # [N, D]
        logits = self.reference.decoder.readout(h[None])[0, :, : self.engine.vocab_size]
        return self._laws(logits, self.request.sampling, texts, written)

    @property
    def _first(self) -> int:
        """The first position that a text writes to."""
        return int(self._starts.min()) + 1

    @cached_property
    def _noise(self) -> Tensor:
        """[positions, V] the shared noise, from the first written position on."""
        end = self.reference.tokens.shape[1]
        positions = torch.arange(self._first, end, device=self._starts.device)
        parts = [
            gumbel(self.request.seed, part, self.engine.vocab_size, Purpose.COUPLED)
            for part in positions.split(16)
        ]
        return torch.cat(parts)
