"""The policy `auto`: as many drafts as pay just now, which may be none.

Under a plan that nobody has drafted with, `first_drafts.py` chooses the first drafts. From then
on it weighs before each round, for every k, the tokens that k drafts bring at the running
acceptance against what they cost. Where no k pays it decodes plainly, and tries a draft now and
then out of what it has saved up: 1% of the plain rounds' time, so that trying never costs more.
Where even full acceptance would gain less than 3% there is nothing to find out, and it doesn't try.
"""

from __future__ import annotations

import math

from .acceptance_record import AcceptanceRecord, RunningAcceptance
from .policies import MAX_K, Outcome, Situation

SAVED = 0.01
"""Share of the plain rounds' time that trials may cost."""
DEAREST = 4.0
"""Most that trials become rarer by failing, and most trials that can be saved up for."""
LOOKS = 8
"""Rounds after which it weighs again what may have changed while it decoded plainly."""
ENTERS, LEAVES, SWITCHES = 1.01, 0.995, 1.01
"""Predicted gains over plain decoding at which drafting begins and ends, and over the present k
at which it changes. They differ so that noise doesn't toss it to and fro."""
WORTH = 1.03
"""Gain if every draft were accepted, below which none is tried: it can't bring what it may cost."""
PATIENCE = 1.0
"""Standard errors of the acceptance that drafting is granted before it ends."""
KEEP = 0.985
"""What a round counts for after the next one."""
WEIGHT = 24.0
"""Judged drafts that earlier texts count for, at most."""


class AutoPolicy:
    """Picks k before every round; deterministic, given the times and outcomes it is told.

    Args:
        k: most drafts a round, 0 to 16.
        lot: of the text, 0 to 1, for `FirstDrafts.choose`; evenly spread over texts.
    """

    looks = False

    def __init__(self, k: int, lot: float = 0.5) -> None:
        if not 0 <= k <= MAX_K:
            raise ValueError(f"k must be 0–{MAX_K}, got {k}")
        self._k, self._lot = k, lot
        self._chosen = 0
        self._trying = self._encouraged = False
        self._resting = 0  # rounds to come that are decoded plainly, unasked
        self._record: AcceptanceRecord | None = None
        self._own: RunningAcceptance | None = None
        self._times: tuple[float, ...] = ()

    @property
    def limit(self) -> int:
        return self._k

    @property
    def weighs(self) -> bool:
        """Not while it rests, so that resting costs nothing beside plain decoding."""
        return self._resting == 0

    def choose(self, situation: Situation) -> int:
        """The number of drafts with the most tokens a millisecond, with hysteresis."""
        self._trying = False
        if self._resting:
            self._resting -= 1
            return self._settle(0)
        self._read(situation)
        assert self._own is not None
        assert self._record is not None
        times = situation.times
        most = min(self._k, situation.room, len(times) - 1)
        if all((k + 1) * times[0] < WORTH * times[k] for k in range(1, most + 1)):
            return self._rest(LOOKS - 1)
        if not self._record.first.over:
            k = self._record.first.choose(times, most, self._lot)
            return self._settle(k) if k else self._rest(LOOKS - 1)
        tokens = self._own.expected_tokens(most)
        gains = [n * times[0] / time for n, time in zip(tokens, times, strict=False)]
        best = max(range(1, most + 1), key=gains.__getitem__)
        present = min(self._chosen, most)
        if present and gains[best] < gains[present] * SWITCHES:
            best = present
        if gains[best] >= ENTERS or (self._chosen and self._may_still_pay(best, situation)):
            return self._settle(best)
        return self._try_or_rest()

    def stops(self, confidence: float) -> bool:  # noqa: ARG002
        return False

    def observe(self, outcome: Outcome) -> None:
        """Learn from a round: its acceptance, and what it lost or saved."""
        if self._own is None or self._record is None:
            return
        record, dearest = self._record, DEAREST * self._cost_of_trial()
        self._encouraged = False
        if not outcome.drafted:
            record.credit = max(record.credit, min(record.credit + SAVED, dearest))
            record.first.rest()
            return
        self._own.observe(outcome.judged, outcome.accepted)
        spent = self._times[min(outcome.drafted, len(self._times) - 1)] / self._times[0]
        record.first.pay(spent - 1)
        if self._trying:
            # At the full price, else what is left over would pay for the next trial too soon.
            record.credit += record.price * min(outcome.accepted + 1 - spent, 0.0)
            self._encouraged = outcome.accepted == outcome.drafted
            record.price = 1.0 if self._encouraged else min(2 * record.price, DEAREST)
            self._trying = False

    def __str__(self) -> str:
        return "auto"

    def _read(self, situation: Situation) -> None:
        """Take up the situation; a new text, or a new plan, begins from what is remembered."""
        self._times = situation.times
        if self._record is not situation.record:
            assert situation.record is not None
            self._record = situation.record
            self._record.price = 1.0  # another text may be drafted better
            self._own = self._record.begin(KEEP, WEIGHT, self._k)
            self._chosen = 0

    def _settle(self, k: int) -> int:
        self._chosen = k
        return k

    def _may_still_pay(self, k: int, situation: Situation) -> bool:
        """Whether k drafts would pay if the acceptance were better than seen, within its error."""
        assert self._own is not None
        tokens = self._own.expected_tokens(k, optimism=PATIENCE)[k]
        return tokens * situation.times[0] >= LEAVES * situation.times[k]

    def _try_or_rest(self) -> int:
        """Plain decoding, or one draft where there is credit for it.

        After a trial that was accepted the next follows at once: so a trial ends with its first
        rejection, and costs no more than one draft on average, whatever the acceptance is.
        """
        self._chosen = 0
        assert self._record is not None
        missing = self._record.price * self._cost_of_trial() - self._record.credit
        if self._encouraged or missing <= 0:
            self._trying = True
            return 1
        return self._rest(min(math.ceil(missing / SAVED), LOOKS) - 1)

    def _rest(self, more: int) -> int:
        """Decode plainly now, and for so many rounds more."""
        self._resting = more
        return self._settle(0)

    def _cost_of_trial(self) -> float:
        """What one rejected draft costs, in windows."""
        return max(self._times[1] / self._times[0] - 1, 0.0) if len(self._times) > 1 else 0.0
