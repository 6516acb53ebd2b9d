"""The first drafts under a plan that nobody has drafted with: what to risk on them.

Such a plan may save half the time or nothing, and only drafts tell. A rejected one costs a short
text nearly all of the 3% that `auto` may lose, so they are spent as a bandit explores: one small
draft first, more with every one accepted, and none for a while once what was risked is lost.
Where the risk pays for a draft and a half, the text's lot decides on the second one (stochastic
rounding): texts lose on average what they may, and one unlucky draft doesn't end what would pay.

Rounds of more than 4 drafts save so much that beginning small is what costs a text: there the lot
also says how much is risked, up to 28% less or more, and once a draft was accepted nothing holds k
back.

The constants were searched for the least regret on one text of 32 tokens, over draft steps of
0.1 to 0.9 windows and all acceptances. `tests/unit/test_first_drafts.py` compares them with what
dynamic programming shows that no policy can do better than.
"""

from __future__ import annotations

from collections.abc import Sequence

RISK = 0.9
"""Window forwards that getting to know a plan may cost: 3% of a text of 30 tokens."""
PAYS_OFF, SAVED = 30, 0.02
"""Plain rounds that make up for it, and what may be risked again for each that follows: together
less than 3% of the time, however long texts become."""
HOPE, HOPE_SHARED = 0.8, 0.28
"""What may be lost once a draft was accepted; the second one is shared among a round's drafts,
since long rounds cost more where hope is wrong."""
EARNS = 0.73
"""Share of what an accepted draft saves that may be risked again."""
BELIEF, BELIEF_WEIGHT = 0.79, 1.9
"""Acceptance under a plan never met, and how many judged drafts that guess counts for."""
FIRST_ROUND = (0.45, 0.85)
"""Share of the risk that the first round and one more draft may cost: this, and that times lot."""
LAST_DRAFT = (0.9, 0.8)
"""Share of a draft's cost that must be left for it once one was accepted: this, less that times
lot."""
GROWTH = 2
"""How many drafts a round may have more for each that was accepted so far."""
FEW = 4
"""Drafts a round up to which the above holds; where there may be more, growth is free."""
LONG_RISK, LONG_FIRST_ROUND = (0.65, 0.5), (0.67, 0.72)
"""`RISK` and `FIRST_ROUND` there: this, and that times lot."""
ENOUGH = 30
"""Judged drafts after which a plan is known."""


class FirstDrafts:
    """What the first drafts under a plan showed, in whichever texts they were made.

    Costs and losses are in plain rounds; one draft costs c, so it pays where it is accepted more
    often than c.
    """

    def __init__(self) -> None:
        self._accepted = self._rejected = 0
        self._lost = 0.0  # until a draft is accepted
        self._rests = 0

    @property
    def over(self) -> bool:
        """Whether there were enough to know the plan."""
        return self._accepted + self._rejected >= ENOUGH

    def observe(self, judged: int, accepted: int) -> None:
        """Count a round's drafts, whoever chose how many."""
        self._accepted += accepted
        self._rejected += judged - accepted

    def pay(self, cost: float) -> None:
        """Account for what a round took longer than a plain one; after `observe`."""
        if not self._accepted:
            self._lost += cost

    def rest(self) -> None:
        """Account for a plain round."""
        self._rests += 1

    def choose(self, times: Sequence[float], most: int, lot: float) -> int:
        """How many drafts to make in the coming round; 0 where no more may be risked.

        Args:
            times: what a round with 0, 1, …, `most` drafts takes, or more of them, in any unit.
            most: drafts that the round may have, at least 1.
            lot: of the text, 0 to 1, evenly spread; it rounds the last draft up or down.
        """
        costs = [time / times[0] - 1 for time in times]
        if self._has_lost(costs[1], len(times) - 1, lot):
            return 0
        gains = [n / (1 + cost) for n, cost in zip(self._tokens(most), costs, strict=False)]
        allowed = [k for k in range(1, most + 1) if k == 1 or self._may(k, costs, lot)]
        best = max(allowed, key=gains.__getitem__)
        return best if gains[best] >= 1 else 1

    def _has_lost(self, cost: float, longest: int, lot: float) -> bool:
        """Whether what was risked doesn't pay for one more draft.

        Once a draft was accepted, rounds count as if they had one draft each: how many were
        rejected tells what the plan is worth, not what those rounds happened to cost.
        """
        saved = SAVED * max(self._rests - PAYS_OFF, 0)
        if not self._accepted:
            lost = max(self._lost, self._rejected * cost)  # others' drafts count too
            return _risk(longest, lot) - lost + saved < (1 - lot) * cost
        earned = EARNS * self._accepted * (1 - cost) - self._rejected * cost
        left = HOPE + HOPE_SHARED / longest + earned + saved
        return left < (LAST_DRAFT[0] - LAST_DRAFT[1] * lot) * cost

    def _may(self, k: int, costs: Sequence[float], lot: float) -> bool:
        """Whether so little is known already that k drafts may be made, or so much."""
        few = len(costs) - 1 <= FEW
        if self._accepted + self._rejected:
            return k <= GROWTH * self._accepted + 1 or (not few and self._accepted > 0)
        begin, spread = FIRST_ROUND if few else LONG_FIRST_ROUND
        return costs[k] + costs[1] <= RISK * (begin + spread * lot)

    def _tokens(self, most: int) -> list[float]:
        """Tokens that a round with 0 to `most` drafts writes on average: 1 + E a + E a² + …

        The acceptance a is one for all drafts and follows Beta(BELIEF·w + accepted,
        (1 − BELIEF)·w + rejected), w = `BELIEF_WEIGHT`: where it is unknown, long runs are likelier
        than its mean says.
        """
        tokens, reached = [1.0], 1.0
        judged = BELIEF_WEIGHT + self._accepted + self._rejected
        accepted = BELIEF * BELIEF_WEIGHT + self._accepted
        for place in range(most):
            reached *= (accepted + place) / (judged + place)
            tokens.append(tokens[-1] + reached)
        return tokens


def _risk(longest: int, lot: float) -> float:
    """What getting to know a plan may cost, where a round may have so many drafts."""
    return RISK if longest <= FEW else LONG_RISK[0] + LONG_RISK[1] * lot
