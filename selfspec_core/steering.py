"""How a generation decides on drafts: its policy, asked with what the engine has learnt so far."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from .cache import BUCKET, round_up
from .plan import SkipPlan
from .policies import Outcome, Situation
from .request import FIRST_SKIPPED, Request

if TYPE_CHECKING:
    from .engine import Engine


class Steering:
    """The policy of one request, between its rounds and the engine's experience.

    Args:
        engine: whose experience is used and added to.
        request: the policy, and what acceptance depends on.
        window: most rows of a verification forward.
        fewest: and the fewest.
    """

    def __init__(self, engine: Engine, request: Request, window: int, fewest: int) -> None:
        self.policy = request.policy
        self._experience = engine.experience
        self._mode = engine.execution  # the request keeps it, also where the engine's changes
        self._window, self._fewest = window, fewest
        # A part of a window, and a draft that goes on for the branches before it: what these take
        # says nothing of other requests' rounds, and costs here are a little less than theirs.
        self._measures = request.verify_from != FIRST_SKIPPED
        drawn = (request.sampling.temperature, request.draft_sampling.temperature)
        self._way: Hashable = (request.acceptance_rule, *drawn)

    def choose(self, plan: SkipPlan, length: int, room: int) -> int:
        """Most drafts in the coming round.

        Args:
            plan: that they are made under.
            length: tokens in the cache.
            room: drafts that the budget allows.
        """
        if room <= 0:
            return 0
        if not self.policy.weighs:
            return self.policy.choose(Situation(room))
        times = self._experience.times(
            plan,
            self.policy.limit,
            mode=self._mode,
            window=self._fewest,
            slots=self._slots(length),
        )
        record = self._experience.record((plan, self._way))
        return self.policy.choose(Situation(room, times, record))

    def learn(self, plan: SkipPlan, length: int, outcome: Outcome) -> None:
        """Tell the engine and the policy what came of a round; arguments as in `choose`."""
        if self._measures or not outcome.drafted:
            self._experience.observe(
                plan, outcome, mode=self._mode, window=self._fewest, slots=self._slots(length)
            )
        self._experience.record((plan, self._way)).observe(outcome.judged, outcome.accepted)
        self.policy.observe(outcome)

    def _slots(self, length: int) -> int:
        """Cache slots that a window's attention reads."""
        return round_up(length + self._window, BUCKET)
