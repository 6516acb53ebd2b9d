"""One engine, many people: live generations take turns by the round on one thread.

A model is one resource, so all its work runs on one thread. A *turn* advances one generation
until its next `round` (or `done`) event; then it is somebody else's turn, so that everybody gets
the same share of the engine's time (`turns`). Background work (heatmaps, baselines, searches) gets
the gaps, and a small share where there are none. Nobody's work goes on once nobody reads it: a
consumer that goes away ends its work at the next round boundary.

The iterators may yield anything; what isn't a `start`, `draft`, `verdict` or `commit` event
ends a turn, so a background job slices itself by yielding.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from .events import Wait
from .tickets import Cancelled, MakeIterator, Ticket, Work
from .turns import Share, Turns, running_mean

__all__ = [
    "NOTHING",
    "Cancelled",
    "Load",
    "MakeIterator",
    "Scheduler",
    "SchedulerClosed",
    "Ticket",
]


class SchedulerClosed(RuntimeError):
    """The scheduler was closed, so no more work is done."""


@dataclass(frozen=True)
class Load:
    """How much there is to do.

    Args:
        running: generations that take turns.
        waiting: generations in line for a place among these.
        background: background work, begun or not.
        turn_seconds: how long the turn that is going on has lasted; 0 between turns.
        people: whose all this is, once for every piece of work that is still wanted.
    """

    running: int
    waiting: int
    background: int
    turn_seconds: float
    people: tuple[Hashable, ...]


NOTHING = Load(running=0, waiting=0, background=0, turn_seconds=0.0, people=())


class Scheduler:
    """Runs generations in turns, and background work in the gaps, on one thread of its own.

    Args:
        max_live: generations that take turns at once (each holds a cache); more wait in line.
        max_background: pieces of background work begun at once.
        background_share: of the engine's time that background work gets while generations want
            all of it, so that it ends some day.
        wait_seconds: how long a consumer gets nothing before it gets a `Wait` event.
        clock: seconds, for whoever wants to decide what a turn takes.
    """

    def __init__(
        self,
        *,
        max_live: int = 32,
        max_background: int = 8,
        background_share: float = 0.1,
        wait_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if min(max_live, max_background) < 1:
            raise ValueError(f"at once must be at least 1, got {min(max_live, max_background)}")
        self.wait_seconds = wait_seconds
        self._max_live, self._max_background = max_live, max_background
        self._clock = clock
        self._changed = threading.Condition()
        self._in_line: deque[Work] = deque()
        self._behind: deque[Work] = deque()  # background work that hasn't begun
        self._live, self._background = Turns(), Turns()
        self._share = Share(background_share)
        self._closed = False
        self._turn_began: float | None = None
        self._generation_seconds: float | None = None
        self._thread = threading.Thread(target=self._run, name="selfspec-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        make_iterator: MakeIterator,
        *,
        owner: str | None = None,
        person: Hashable = None,
        supersede: bool = True,
        background: bool = False,
        heavy: bool = False,
        paces: bool = True,
    ) -> Ticket:
        """Queue a piece of work.

        Args:
            make_iterator: makes the iterator whose items the ticket delivers; called, advanced
                and closed on the engine thread only.
            owner: whose work this is, or None for nobody's in particular.
            person: who gets a share of the engine for it; all of a person's work together gets
                one. None is the owner, or nobody else.
            supersede: cancel all earlier work of the same owner, background work too.
            background: take a turn while no generation wants one.
            heavy: background work that takes much memory: one such at a time is begun.
            paces: whether it tells how long others may take; loading a model doesn't.

        Raises:
            SchedulerClosed: after `close`.
        """
        work = Work(
            make_iterator,
            owner=owner,
            person=person,
            background=background,
            heavy=heavy,
            paces=paces,
        )
        with self._changed:
            if self._closed:
                raise SchedulerClosed("the engine was shut down")
            if supersede and owner is not None:
                self._cancel_owner(owner)
            (self._behind if background else self._in_line).append(work)
            self._changed.notify_all()
        return Ticket(self, work)

    def cancel(self, owner: str) -> int:
        """Cancel all work of an owner; returns how many pieces there were."""
        with self._changed:
            cancelled = self._cancel_owner(owner)
            self._changed.notify_all()
        return cancelled

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, in the foreground or the background."""
        with self._changed:
            return not any((self._in_line, self._live, self._behind, self._background))

    @property
    def load(self) -> Load:
        """How much there is to do now."""
        with self._changed:
            began = self._turn_began
            return Load(
                running=len(self._live),
                waiting=len(self._in_line),
                background=len(self._background) + len(self._behind),
                turn_seconds=0.0 if began is None else max(self._clock() - began, 0.0),
                people=tuple(work.person for work in self._everything() if not work.unwanted),
            )

    @property
    def expected_seconds(self) -> float | None:
        """How long somebody who came now would wait for a place; None before anything ended."""
        with self._changed:
            places = len(self._in_line) + 1 + len(self._live) - self._max_live
            mean = self._generation_seconds
            return 0.0 if places <= 0 else None if mean is None else places * mean

    def close(self, timeout: float | None = 10.0) -> None:
        """End all work at its next round boundary, tell its consumers, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout)

    # -- the engine thread --------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next()) is not None:
            began = self._turn_began = self._clock()
            over = work.turn()
            self._turn_began = None
            self._account(work, self._clock() - began, over)
        with self._changed:
            left = self._everything()
            self._in_line.clear()
            self._behind.clear()
            self._live, self._background = Turns(), Turns()
        for work in left:
            work.end(SchedulerClosed("the engine was shut down before this was finished"))

    def _next(self) -> Work | None:
        """The work whose turn it is, waiting for one; None when closed."""
        with self._changed:
            while not self._closed:
                self._let_in()
                if not self._live:
                    self._share.settle()
                    if self._background:
                        return self._background.pick()
                elif self._background and self._share.owes(self._background.mean_seconds):
                    return self._background.pick()
                else:
                    return self._live.pick()
                self._changed.wait()
        return None

    def _let_in(self) -> None:
        """Begin what there is a place for, and what is cancelled: it mustn't wait to end."""
        while self._in_line and len(self._live) < self._max_live:
            # Whoever has fewest under way; of these, whoever came first.
            first = min(self._in_line, key=lambda work: self._live.works_of(work.person))
            self._in_line.remove(first)
            self._live.join(first)
        for line, turns in ((self._in_line, self._live), (self._behind, self._background)):
            for work in [work for work in line if work.unwanted]:
                line.remove(work)
                turns.join(work)
        for work in list(self._behind):
            full = len(self._background) >= self._max_background
            if not full and not (work.heavy and any(other.heavy for other in self._background)):
                self._behind.remove(work)
                self._background.join(work)

    def _account(self, work: Work, seconds: float, over: bool) -> None:
        with self._changed:
            turns = self._background if work.background else self._live
            turns.charge(work, seconds)
            if not work.background:
                if self._background:
                    self._share.others_had(seconds)
            elif self._live:
                self._share.had(seconds)
            if over:
                turns.leave(work)
                if work.paces and not (work.background or work.unwanted or work.failed):
                    self._generation_seconds = running_mean(
                        self._generation_seconds, work.busy_seconds
                    )

    # -- asked from any thread ----------------------------------------------------------------

    def _everything(self) -> list[Work]:
        return [*self._live, *self._in_line, *self._background, *self._behind]

    def _cancel_owner(self, owner: str) -> int:
        theirs = [work for work in self._everything() if work.owner == owner and not work.unwanted]
        for work in theirs:
            work.cancelled = True
        return len(theirs)

    def drop(self, work: Work, *, abandoned: bool) -> None:
        """For tickets: the work is cancelled; `abandoned` also says that nobody reads it."""
        with self._changed:
            if not work.over:
                work.cancelled = True
                work.abandoned = work.abandoned or abandoned
                self._changed.notify_all()

    def wait_event(self, work: Work) -> Wait:
        """For tickets: where `work` stands. Place 0 takes turns, 1 is the next to be let in."""
        with self._changed:
            if work in self._in_line:
                place = self._in_line.index(work) + 1
                mean = self._generation_seconds
                return Wait(place=place, expected_seconds=None if mean is None else place * mean)
            if work.background:
                ahead = self._behind.index(work) + 1 if work in self._behind else 0
                return Wait(place=len(self._live) + len(self._in_line) + ahead)
            mean, others = self._live.mean_seconds, max(len(self._live) - 1, 0)
            return Wait(place=0, expected_seconds=None if mean is None else others * mean)
