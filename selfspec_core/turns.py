"""Whose turn it is: everybody gets the same share of the engine's time.

Every person has a clock that runs while the engine works for them; the next turn goes to
somebody whose clock is behind (start-time fair queueing: Goyal, Vin and Cheng 1996). Rounds of
different plans, k and models cost differently, so taking turns by number would favour those
with dear rounds. Clocks that are apart by less than a turn count as equal, and then it goes
round, so that people with equal settings get equally many rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tickets import Work

_PACE_WEIGHT = 0.2  # of the newest measurement in the running means


class Turns:
    """The pieces of work that take turns; not thread-safe, its user holds a lock."""

    def __init__(self) -> None:
        self._works: list[Work] = []
        self._clocks: dict[Hashable, float] = {}
        self._numbers = itertools.count()
        self._last_began = 0.0  # where the clock of whoever had the last turn was before it
        self.mean_seconds: float | None = None
        """Running mean of what a turn takes."""

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def join(self, work: Work) -> None:
        """Let `work` take turns. A newcomer is as far as whoever is furthest behind.

        It may have come while the last turn went on, so that turn counts as not yet had:
        otherwise whoever is there first would have all of it, however long, for nothing.
        """
        floor = min([self._last_began, *self._clocks.values()])
        self._clocks.setdefault(work.person, floor)
        self._works.append(work)

    def leave(self, work: Work) -> None:
        """`work` is over; the clock of a person with no other work is forgotten."""
        self._works.remove(work)
        if all(other.person != work.person for other in self._works):
            del self._clocks[work.person]

    def pick(self) -> Work:
        """The work whose turn it is.

        Work that nobody wants comes first: ending it frees its memory and takes no time.

        Raises:
            ValueError: there is none.
        """
        unwanted = next((work for work in self._works if work.unwanted), None)
        if unwanted is not None:
            return unwanted
        near = min(self._clocks.values(), default=0.0) + (self.mean_seconds or 0.0)
        behind = (work for work in self._works if self._clocks[work.person] <= near)
        return min(behind, key=lambda work: work.last_turn)

    def charge(self, work: Work, seconds: float) -> None:
        """Note that `work` had the engine for `seconds`."""
        work.last_turn = next(self._numbers)
        work.busy_seconds += seconds
        self._last_began = self._clocks[work.person]
        self._clocks[work.person] += seconds
        if work.paces:
            self.mean_seconds = running_mean(self.mean_seconds, seconds)

    def works_of(self, person: Hashable) -> int:
        """How many pieces of a person's work take turns."""
        return sum(work.person == person for work in self._works)


class Share:
    """Lets background work have a share of the time while others want it all.

    Args:
        share: of the engine's time, at least 0 and below 1, once it has been waiting.
        least: seconds that it saves up before it gets a turn.
    """

    def __init__(self, share: float, least: float = 0.02) -> None:
        if not 0 <= share < 1:
            raise ValueError(f"the background's share must be 0 or more and below 1, got {share}")
        self._rate = share / (1 - share)
        self._least = least
        self._owed = 0.0

    def owes(self, slice_seconds: float | None) -> bool:
        """Whether enough was saved up for a slice of that length."""
        return self._owed >= max(self._least, slice_seconds or 0.0)

    def others_had(self, seconds: float) -> None:
        """Somebody else had the engine while background work wanted it."""
        self._owed += seconds * self._rate

    def had(self, seconds: float) -> None:
        """Background work had the engine while others wanted it."""
        self._owed -= seconds

    def settle(self) -> None:
        """Nobody else wants the engine: nothing is owed any more, either way."""
        self._owed = 0.0


def running_mean(mean: float | None, value: float) -> float:
    """The mean that follows `value` slowly; the first value is the mean."""
    return value if mean is None else mean + _PACE_WEIGHT * (value - mean)
