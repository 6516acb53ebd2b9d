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
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from selfspec_core.acceptance import COUPLED, REJECTION, acceptance_ratio, expected_acceptance
from selfspec_core.drafting import ConfidenceStop, FixedLength
from selfspec_core.engine import Engine
from selfspec_core.noise import Purpose, gumbel
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request
from selfspec_core.sampling import Laws, laws_of

from .acceptance_entries import Entries, first_of
from .acceptance_table import Table, Walked
from .chains import Chains
from .reference import Reference

__all__ = ["Predictor", "Table", "Walked"]

_CHUNK = 128  # rows whose logits exist at a time
_NEVER = 1e-3  # rounds less likely than this to get so far are not followed further


class Predictor:
    """Scores plans over one reference.

    Args:
        engine: the model.
        reference: the target's texts.
        request: the rule, the laws and the seed that the texts were written with, and the draft
            policy: fixed, or stopping by confidence. Its plan and k don't matter.

    Raises:
        ValueError: a lossy rule, whose text isn't the target's own, or a draft policy that
            follows what happens while it decodes.
    """

    def __init__(self, engine: Engine, reference: Reference, request: Request) -> None:
        if request.rule not in (COUPLED, REJECTION):
            raise ValueError(
                f"acceptance under {request.rule!r} can't be predicted over the target's text, "
                f"since it writes another one: choose {COUPLED} or {REJECTION}"
            )
        policy = request.policy
        if not isinstance(policy, FixedLength):
            raise ValueError(
                f"acceptance with the draft policy {str(policy)!r} can't be predicted, since it "
                "follows what decoding meets: choose fixed or confidence"
            )
        self._stop = policy.threshold if isinstance(policy, ConfidenceStop) else None
        self.engine, self.reference, self.request = engine, reference, request
        device = reference.decoder.device
        texts = reference.texts
        self._starts = reference.starts
        self._counts = torch.tensor([len(t.written) for t in texts], device=device)  # [B]
        self._expected = request.rule == REJECTION and not request.sampling.greedy

    def table(
        self,
        plan: SkipPlan,
        *,
        depth: int = 8,
        draft_temperature: float | None = None,
        k: int | None = None,
    ) -> Table:
        """The table of one plan; see `tables`."""
        return self.tables([plan], depth=depth, draft_temperature=draft_temperature, k=k)[0]

    @torch.inference_mode()
    def tables(
        self,
        plans: Sequence[SkipPlan],
        *,
        depth: int = 8,
        draft_temperature: float | None = None,
        k: int | None = None,
    ) -> list[Table]:
        """Score plans in shared forwards: what all of them skip isn't run, the rest is gated.

        Args:
            plans: C of them. On a CPU one at a time is as fast.
            depth: longest draft to look at.
            draft_temperature: the draft's own; None is the target's.
            k: score no more than decoding with this k would meet, which takes half the time;
                the tables then walk with this k alone. None scores every round of every k.
        """
        entries = Entries(len(plans) * len(self.reference.texts), int(self._counts.max()), depth)
        chains = Chains(self.reference, plans)
        counts = self._counts.repeat(len(plans))  # [G]
        starts = torch.arange(entries.rows, device=counts.device).expand(len(counts), -1)  # [G, R]
        valid = starts < counts[:, None]
        temperature = draft_temperature
        followed = None
        self._follow(chains, starts, valid, range(depth if k is None else 1), entries, temperature)
        if k is not None and k > 1:
            followed = self._follow_begun(chains, valid, min(k, depth), entries, temperature)
        stops = self._stop is not None
        texts = self.reference.texts
        sizes, budgets = self._counts.tolist(), tuple(text.budget for text in texts)
        return [
            entries.table(c * len(texts), sizes, budgets, stops=stops, k=k, followed=followed)
            for c in range(len(plans))
        ]

    def _follow(
        self,
        chains: Chains,
        starts: Tensor,
        valid: Tensor,
        depths: range,
        entries: Entries,
        draft_temperature: float | None,
    ) -> None:
        """Draft on in the rounds that begin at the valid ones of [G, R], as far as they get."""
        counts = self._counts.repeat(len(starts) // len(self._counts))  # [G]
        reach = valid.float()
        for d in depths:
            h = chains.step(starts, d, valid)  # [G, R, D]
            passes, gains, goes_on = self._judge(h[valid], starts, valid, d, draft_temperature)
            entries.write(valid.nonzero()[:, 0], starts[valid], d, passes, gains, goes_on)
            reach = reach.masked_scatter(valid, reach[valid] * passes)
            going = valid & (reach > _NEVER) & (starts + d + 1 < counts[:, None])
            width = int(going.sum(-1).max())
            if width == 0 or d + 1 == depths.stop:
                break
            order = first_of(going, width)
            valid = going.gather(-1, order)
            starts, reach = starts.gather(-1, order), reach.gather(-1, order)
            chains = chains.kept(order)

    def _follow_begun(
        self,
        chains: Chains,
        valid: Tensor,
        k: int,
        entries: Entries,
        draft_temperature: float | None,
    ) -> Tensor:
        """Draft on in the rounds [G, R] that decoding with this k begins, and in no others.

        Where they begin depends on how far those before them get. That is guessed first from
        the first drafts of later rounds, which read the same text, and put right until no
        round is left that was guessed away.
        """
        counts = self._counts.repeat(len(valid) // len(self._counts))  # [G]
        sizes = counts.tolist()
        budgets = [text.budget for text in self.reference.texts]
        followed = torch.zeros_like(valid)
        starts = torch.arange(valid.shape[1], device=valid.device)
        goes_on = entries.passed(valid.device) & (starts + 1 < counts[:, None])
        while True:
            begun = entries.begun(sizes, budgets, k, followed).to(valid.device)  # [G, R]
            missing = begun & valid & ~followed
            followed |= missing
            missing &= goes_on  # the others end with their first draft
            width = int(missing.sum(-1).max())
            if width == 0:
                return followed
            order = first_of(missing, width)
            rest = missing.gather(-1, order)
            self._follow(chains.kept(order), order, rest, range(1, k), entries, draft_temperature)

    # -- verdicts -------------------------------------------------------------------------------

    def _judge(
        self, h: Tensor, starts: Tensor, valid: Tensor, d: int, draft_temperature: float | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draft d of the valid rows [N, D].

        Returns:
            [N] the chance that it is accepted given the text, [N] expected, and [N, 2] that
            more is drafted after it where it is accepted and where not.
        """
        sampling = self.request.sampling
        if draft_temperature is not None and not sampling.greedy:
            sampling = sampling.at(draft_temperature)
        plain = (
            sampling.greedy
            and self._stop is None
            and not (sampling.looks_back or sampling.logit_bias or sampling.min_new_tokens)
        )
        texts = valid.nonzero()[:, 0] % len(self.reference.texts)  # [N]
        written = starts[valid] + d  # [N] tokens written before the draft
        slots = self._starts[texts] + written  # [N] of the row that it is drafted at
        tokens = self.reference.tokens[texts, slots + 1]  # [N] what the text says
        judged = []
        for part in torch.arange(len(h), device=h.device).split(_CHUNK):
            logits = self.reference.decoder.readout(h[part][None])[0, :, : self.engine.vocab_size]
            if plain:  # the law's likeliest, without making the law
                agrees = (logits.max(-1).indices == tokens[part]).float()
                judged.append((agrees, agrees, agrees.new_ones(len(agrees), 2)))
                continue
            draft = self._laws(logits, sampling, texts[part], written[part])
            if self._expected:
                target = self._target(texts[part], written[part])
                judged.append(self._by_ratio(draft, target, tokens[part]))
                continue
            noise = None if draft.greedy else self._noise[slots[part] + 1 - self._first]
            judged.append(self._by_choice(draft, draft.choose(noise), tokens[part]))
        passes, gains, onward = (torch.cat(column) for column in zip(*judged, strict=True))
        return passes.clamp(max=1), gains, onward

    def _by_choice(
        self, draft: Laws, chosen: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Where the draft's token is known: greedily and under `coupled`."""
        agrees = (chosen == tokens).float()
        confidence = draft.log_probs.gather(-1, chosen[:, None]).exp()  # [N, 1]
        return agrees, agrees, self._goes_on(confidence).expand(-1, 2)

    def _by_ratio(self, draft: Laws, target: Laws, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where the draft's token is drawn: an accepted one is the text's, others are q − p."""
        log_p, log_q = target.log_probs, draft.log_law()
        p, q = log_p.exp(), log_q.exp()
        passes = acceptance_ratio(log_p, log_q, tokens).reciprocal()
        onward = torch.ones(len(tokens), 2, device=p.device)
        if self._stop is not None:
            onward[:, :1] = self._goes_on(q.gather(-1, tokens[:, None]))
            surplus = (q - p).clamp(min=0)  # [N, V] the law of a rejected draft, but for its sum
            mass = surplus.sum(-1).clamp(min=1e-12)
            onward[:, 1] = (surplus * self._goes_on(q)).sum(-1) / mass
        return passes, expected_acceptance(p, q, REJECTION), onward

    def _goes_on(self, confidence: Tensor) -> Tensor:
        """1 where more is drafted after a token of this probability in the draft, else 0."""
        if self._stop is None:
            return torch.ones_like(confidence)
        return (confidence >= self._stop).float()

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
