"""Acceptance by position and depth, and the rounds that decoding would walk over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
        onward: [n, depth, 2] the chance that more is drafted after draft d where it is
            accepted, and where it is rejected: the draft's confidence in it. None drafts on
            always, as with a fixed k.
        only_k: the one k that can be walked, where only the rounds that it begins were
            followed beyond their first draft; None: every k.
        begun: [n] bool, those rounds; None: all.
    """

    given: tuple[Tensor, ...]
    expected: tuple[Tensor, ...]
    budgets: tuple[int, ...]
    onward: tuple[Tensor, ...] | None = None
    only_k: int | None = None
    begun: tuple[Tensor, ...] | None = None

    @property
    def depth(self) -> int:
        """Longest draft that can be walked."""
        return self.given[0].shape[1]

    def by_depth(self) -> list[float]:
        """Mean acceptance of the first, second, … draft of a round, where it is reached."""
        means = []
        begun = self.begun or tuple(torch.ones(len(given)) for given in self.given)
        for d in range(self.depth):
            weights, sums = 0.0, 0.0
            for given, expected, begins in zip(self.given, self.expected, begun, strict=True):
                reach = given[: len(given) - d, :d].prod(-1) * begins[: len(given) - d]
                weights += float(reach.sum())
                sums += float((reach * expected[: len(given) - d, d]).sum())
            means.append(sums / weights if weights else 0.0)
        return means

    def walk(self, k: int) -> Walked:
        """Go through every text round by round with (up to) k drafts each.

        A round restarts behind a rejection, so not every position is equally likely to begin
        one. Under `rejection` each position carries the probability that a round begins there.

        Drafts behind a rejected one continue a text that nobody wrote, so the table doesn't
        hold them. With a fixed k there are always k; where the draft's confidence decides, so
        many are counted as its mean confidence leads to.

        Raises:
            ValueError: k is more than the table is deep, or not the one it was made for.
        """
        if self.only_k not in (None, k):
            raise ValueError(f"this table holds the rounds of k = {self.only_k}, not of {k}")
        if not 0 <= k <= self.depth:
            raise ValueError(f"this table holds drafts of up to {self.depth} tokens, not {k}")
        onward = self.onward or tuple(torch.ones(*each.shape, 2) for each in self.given)
        further = self._further(onward)
        drafted = accepted = rounds = 0.0
        texts = zip(self.given, self.expected, onward, self.budgets, strict=True)
        for given, expected, goes_on, budget in texts:
            _, *counts = walk_text(
                given.tolist(), expected.tolist(), goes_on.tolist(), budget, k, further
            )
            drafted, accepted, rounds = (
                total + count
                for total, count in zip((drafted, accepted, rounds), counts, strict=True)
            )
        return Walked(drafted, accepted, rounds, sum(len(given) for given in self.given))

    def _further(self, onward: Sequence[Tensor]) -> list[float]:
        """[depth + 1] expected drafts after a decision to draft on, with room for 0, 1, …"""
        first = torch.cat([each[:, 0] for each in onward])  # [n, 2]: every round has a first draft
        passes = torch.cat([each[:, 0] for each in self.given])  # [n]
        mean = float((passes * first[:, 0] + (1 - passes) * first[:, 1]).mean())
        further = [0.0]
        for _ in range(self.depth):
            further.append(1.0 + mean * further[-1])
        return further


def walk_text(
    passes: Sequence[Sequence[float]],
    gains: Sequence[Sequence[float]],
    onward: Sequence[Sequence[Sequence[float]]],
    budget: int,
    k: int,
    further: Sequence[float],
) -> tuple[list[float], float, float, float]:
    """(chance that a round begins, by tokens written; drafted, accepted, rounds) of one text."""
    n = len(passes)
    begins = [1.0] + [0.0] * (n + k + 1)  # chance that a round begins with so many tokens written
    drafted = accepted = rounds = 0.0
    for i in range(n):
        reach = begins[i]
        if reach == 0:
            continue
        rounds += reach
        limit = min(k, budget - i - 1)
        held = min(limit, n - i)  # drafts past an end token are drafted too, but judged by nobody
        for d in range(held):
            accepted += reach * gains[i][d]
            kept = reach * passes[i][d]
            lost, left = reach - kept, limit - d - 1
            drafted += reach + lost * onward[i][d][1] * further[left]
            begins[i + d + 1] += lost
            reach = kept * onward[i][d][0] if left else kept
            begins[i + d + 2] += kept - reach  # it stopped: the bonus follows
            if reach == 0:
                break
        else:
            begins[i + held + 1] += reach
            drafted += reach * further[limit - held]
    return begins, drafted, accepted, rounds
