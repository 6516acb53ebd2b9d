"""How often drafts were accepted, by their place in the round, and what trying may cost.

Pure counting: the same rounds give the same numbers. The policy `auto` decides by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .first_drafts import BELIEF, BELIEF_WEIGHT, FirstDrafts

POOL_WEIGHT = 6.0
"""How many judged drafts a place in the round takes over from all places together."""


class RunningAcceptance:
    """Acceptance by a draft's place in the round; older rounds count less and less.

    A draft counts where it was judged: after a rejection nothing is known of the rest.

    Args:
        keep: what a round's drafts still count for after the next one, 0 to 1.
        prior, weight: acceptance to begin with, and how many judged drafts it counts for.
    """

    def __init__(
        self, keep: float, prior: Sequence[float] = (BELIEF,), weight: float = BELIEF_WEIGHT
    ) -> None:
        self._keep, self._prior, self._weight = keep, tuple(prior), weight
        self._judged: list[float] = []
        self._accepted: list[float] = []

    @property
    def evidence(self) -> float:
        """Judged drafts, the older ones discounted."""
        return sum(self._judged)

    def observe(self, judged: int, accepted: int) -> None:
        """Count a round: so many of its drafts were judged, so many accepted, from the first."""
        self._judged = [count * self._keep for count in self._judged]
        self._accepted = [count * self._keep for count in self._accepted]
        missing = judged - len(self._judged)
        self._judged += [0.0] * missing
        self._accepted += [0.0] * missing
        for place in range(judged):
            self._judged[place] += 1
            self._accepted[place] += place < accepted

    def rates(self, places: int) -> list[float]:
        """For each of the first places: how likely a draft there is accepted, if judged."""
        priors = [self._prior[min(i, len(self._prior) - 1)] for i in range(places)]
        judged, accepted = self.evidence, sum(self._accepted)
        found = []
        for place, prior in enumerate(priors):
            pooled = (self._weight * prior + accepted) / (self._weight + judged)
            mine = self._judged[place] if place < len(self._judged) else 0.0
            kept = self._accepted[place] if place < len(self._accepted) else 0.0
            found.append((POOL_WEIGHT * pooled + kept) / (POOL_WEIGHT + mine))
        return found

    def expected_tokens(self, most: int, *, optimism: float = 0.0) -> list[float]:
        """Tokens that a round with 0 to `most` drafts writes on average.

        1 + a₁ + a₁·a₂ + …; where all rates are a, that is (1 − a^(k+1)) ÷ (1 − a).

        Args:
            most: drafts.
            optimism: standard errors of the rates that are granted on top.
        """
        tokens, reached = [1.0], 1.0
        for rate in self.rates(most):
            error = math.sqrt(rate * (1 - rate) / (self._weight + self.evidence))
            reached *= min(rate + optimism * error, 1.0)
            tokens.append(tokens[-1] + reached)
        return tokens


class AcceptanceRecord:
    """What an engine remembers of the drafts under one plan, from all texts together.

    Args:
        keep: see `RunningAcceptance`; a long memory.

    `first` chooses the first drafts. After them, `credit` is what may be lost on drafts that
    aren't expected to pay, in windows; plain rounds add to it. `price` is how many times a
    trial's possible loss must be there before it is made; it doubles while trials fail.
    """

    def __init__(self, keep: float = 0.99) -> None:
        self.running = RunningAcceptance(keep)
        self.first = FirstDrafts()
        self.credit = 0.0
        self.price = 1.0

    def observe(self, judged: int, accepted: int) -> None:
        """Count a round, whoever chose its length."""
        if judged:
            self.first.observe(judged, accepted)
            self.running.observe(judged, accepted)

    def begin(self, keep: float, weight: float, places: int) -> RunningAcceptance:
        """A new text's own counts, which begin from what is remembered, discounted.

        Args:
            keep: of the text's own counts.
            weight: judged drafts that the memory counts for, at most.
            places: drafts a round to tell apart.
        """
        known = min(BELIEF_WEIGHT + self.running.evidence, weight)
        return RunningAcceptance(keep, self.running.rates(max(places, 1)), known)
