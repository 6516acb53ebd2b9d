"""One engine, many people: live generations take turns by the round on one thread.

A model is one resource, so all its work runs on one thread. A *turn* advances one generation
until its next `round` (or `done`) event; then it is the next one's turn. Background work
(heatmaps, baselines) gets a turn only while no generation wants one. Nobody's work goes on
once nobody reads it: a consumer that goes away ends its work at the next round boundary.

The iterators may yield anything; what isn't a `start`, `draft`, `verdict` or `commit` event
ends a turn, so a background job slices itself by yielding.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from .events import Commit, Done, Draft, Start, Verdict, Wait

Cancelled = Callable[[], bool]
MakeIterator = Callable[[Cancelled], Iterator[Any]]
"""Called on the engine thread with a function that says whether the work is cancelled."""

_WITHIN_A_TURN = (Start, Draft, Verdict, Commit)
_FLUSH_SECONDS = 0.1  # a slow model's drafts are shown before their verdicts are there
_PACE_WEIGHT = 0.2  # of the newest measurement in the running means


class SchedulerClosed(RuntimeError):
    """The scheduler was closed, so no more work is done."""


class Scheduler:
    """Runs generations in turns, and background work in the gaps, on one thread of its own.

    Args:
        max_live: generations that take turns at once (each holds a cache); more wait in line.
        wait_seconds: how long a consumer gets nothing before it gets a `Wait` event.
    """

    def __init__(self, *, max_live: int = 8, wait_seconds: float = 1.0) -> None:
        if max_live < 1:
            raise ValueError(f"max_live must be at least 1, got {max_live}")
        self._max_live = max_live
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        self._in_line: deque[_Work] = deque()
        self._live: deque[_Work] = deque()
        self._background: deque[_Work] = deque()
        self._closed = False
        self._turn_seconds: float | None = None
        self._generation_seconds: float | None = None
        self._thread = threading.Thread(target=self._run, name="selfspec-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        make_iterator: MakeIterator,
        *,
        owner: str | None = None,
        supersede: bool = True,
        background: bool = False,
    ) -> Ticket:
        """Queue a piece of work.

        Args:
            make_iterator: makes the iterator whose items the ticket delivers; called, advanced
                and closed on the engine thread only.
            owner: whose work this is, or None for nobody's in particular.
            supersede: cancel all earlier work of the same owner, background work too.
            background: take a turn only while no generation wants one.

        Raises:
            SchedulerClosed: after `close`.
        """
        work = _Work(make_iterator, owner, background)
        with self._changed:
            if self._closed:
                raise SchedulerClosed("the engine was shut down")
            if supersede and owner is not None:
                self._cancel_owner(owner)
            (self._background if background else self._in_line).append(work)
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
            return not (self._in_line or self._live or self._background)

    def close(self, timeout: float | None = 10.0) -> None:
        """End all work at its next round boundary, tell its consumers, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout)

    # -- the engine thread --------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next()) is not None:
            started = time.monotonic()
            over = work.turn()
            self._account(work, time.monotonic() - started, over)
        with self._changed:
            left = [*self._live, *self._in_line, *self._background]
            for line in (self._live, self._in_line, self._background):
                line.clear()
        for work in left:
            work.end(SchedulerClosed("the engine was shut down before this was finished"))

    def _next(self) -> _Work | None:
        """The work whose turn it is, waiting for one; None when closed."""
        with self._changed:
            while not self._closed:
                while self._in_line and len(self._live) < self._max_live:
                    self._live.append(self._in_line.popleft())
                # What is cancelled before it was let in must not wait for a place to end.
                gone = next((work for work in self._in_line if work.unwanted), None)
                if gone is not None:
                    self._in_line.remove(gone)
                    self._live.appendleft(gone)
                if self._live:
                    self._live.rotate(-1)
                    return self._live[-1]
                if self._background:
                    return self._background[0]
                self._changed.wait()
        return None

    def _account(self, work: _Work, seconds: float, over: bool) -> None:
        work.busy_seconds += seconds
        with self._changed:
            if not work.background:
                self._turn_seconds = _running_mean(self._turn_seconds, seconds)
            if over:
                (self._background if work.background else self._live).remove(work)
                if not (work.background or work.unwanted):
                    self._generation_seconds = _running_mean(
                        self._generation_seconds, work.busy_seconds
                    )

    # -- asked from any thread ----------------------------------------------------------------

    def _cancel_owner(self, owner: str) -> int:
        theirs = [
            work
            for work in (*self._in_line, *self._live, *self._background)
            if work.owner == owner and not work.unwanted
        ]
        for work in theirs:
            work.cancelled = True
        return len(theirs)

    def _drop(self, work: _Work, *, abandoned: bool) -> None:
        with self._changed:
            if not work.over:
                work.cancelled = True
                work.abandoned = work.abandoned or abandoned
                self._changed.notify_all()

    def _wait_event(self, work: _Work) -> Wait:
        """Where `work` stands: place 0 takes turns, 1 is the next to be let in."""
        with self._changed:
            if work in self._in_line:
                place = self._in_line.index(work) + 1
                mean = self._generation_seconds
                return Wait(place=place, expected_seconds=None if mean is None else place * mean)
            if work.background:
                return Wait(place=len(self._live) + len(self._in_line))
            mean, others = self._turn_seconds, max(len(self._live) - 1, 0)
            return Wait(place=0, expected_seconds=None if mean is None else others * mean)


class Ticket:
    """What `submit` gives back: the way to the items of one piece of work.

    Read it once, as an iterator or as an asynchronous iterator. A ticket that nobody holds any
    more ends its work.
    """

    def __init__(self, scheduler: Scheduler, work: _Work) -> None:
        self._scheduler = scheduler
        self._work = work
        weakref.finalize(self, scheduler._drop, work, abandoned=True).atexit = False

    def cancel(self) -> None:
        """End the work at its next round boundary; what it says at its end is delivered."""
        self._scheduler._drop(self._work, abandoned=False)

    @property
    def cancelled(self) -> bool:
        """Whether the work was cancelled or superseded."""
        return self._work.cancelled

    @property
    def over(self) -> bool:
        """Whether the engine is through with the work."""
        return self._work.over

    def __iter__(self) -> Iterator[Any]:
        work, patience = self._work, self._scheduler._wait_seconds
        try:
            while True:
                items, over = work.take()
                yield from items
                if over:
                    work.raise_error()
                    return
                if not items and not work.wait(patience):
                    yield self._scheduler._wait_event(work)
        finally:
            self._scheduler._drop(work, abandoned=True)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for batch in self.batches():
            for item in batch:
                yield item

    async def batches(self, min_interval: float = 0.0) -> AsyncIterator[list[Any]]:
        """All items that have arrived, together, at most every `min_interval` seconds.

        Raises:
            Exception: whatever the work's iterator raised, after what it had yielded.
            SchedulerClosed: the scheduler was closed before the work was finished.
        """
        work, patience = self._work, self._scheduler._wait_seconds
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        work.listen(lambda: loop.call_soon_threadsafe(arrived.set))
        try:
            while True:
                arrived.clear()
                items, over = work.take()
                if items:
                    yield items
                if over:
                    work.raise_error()
                    return
                if items and min_interval > 0:
                    await _quiet_or_over(work, arrived, loop.time() + min_interval)
                elif not items:
                    try:
                        # not wait_for: on 3.11 it can swallow the consumer's cancellation
                        async with asyncio.timeout(patience):
                            await arrived.wait()
                    except TimeoutError:
                        yield [self._scheduler._wait_event(work)]
        finally:
            work.listen(None)
            self._scheduler._drop(work, abandoned=True)


class _Work:
    """One piece of work: its iterator, and the items on their way to the consumer."""

    def __init__(self, make_iterator: MakeIterator, owner: str | None, background: bool) -> None:
        self.owner = owner
        self.background = background
        self.cancelled = False
        self.abandoned = False
        self.over = False
        self.busy_seconds = 0.0
        self._make_iterator: MakeIterator | None = make_iterator
        self._iterator: Iterator[Any] | None = None
        self._items: deque[Any] = deque()
        self._error: BaseException | None = None
        self._arrived = threading.Condition()
        self._listener: Callable[[], object] | None = None

    @property
    def unwanted(self) -> bool:
        return self.cancelled or self.abandoned

    # -- on the engine thread -----------------------------------------------------------------

    def turn(self) -> bool:
        """Advance to the next round boundary; True if that was the end."""
        if self.abandoned or (self.cancelled and self._iterator is None):
            self.end()
            return True
        was_cancelled, flushed = self.cancelled, time.monotonic()
        try:
            if self._iterator is None:
                assert self._make_iterator is not None
                self._iterator = iter(self._make_iterator(lambda: self.unwanted))
                self._make_iterator = None
            for item in self._iterator:
                self._items.append(item)
                if isinstance(item, Done):
                    break
                if not isinstance(item, _WITHIN_A_TURN):
                    # An iterator that was told to stop and went on for a round is closed.
                    if was_cancelled:
                        break
                    self._wake()
                    return False
                if time.monotonic() - flushed > _FLUSH_SECONDS:
                    flushed = time.monotonic()
                    self._wake()
        except Exception as error:
            self.end(error)
        else:
            self.end()
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Close the iterator and tell the consumer; the first error counts."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            try:
                close()
            except Exception as closing:
                error = error or closing
        self._iterator = self._make_iterator = None  # lets go of the cache at once
        self._error = error
        self.over = True
        self._wake()

    def _wake(self) -> None:
        with self._arrived:
            self._arrived.notify_all()
            if self._listener is not None:
                try:
                    self._listener()
                except RuntimeError:  # its event loop is closed: nobody reads this any more
                    self.abandoned = True

    # -- on the consumer's thread -------------------------------------------------------------

    def take(self) -> tuple[list[Any], bool]:
        """What has arrived, and whether that was all."""
        over = self.over  # read first: all items were there before it was set
        # As many as there are now: a producer that keeps pace must not hold the consumer here.
        return [self._items.popleft() for _ in range(len(self._items))], over

    def wait(self, seconds: float) -> bool:
        """Whether something arrived within `seconds`."""
        with self._arrived:
            return self._arrived.wait_for(lambda: bool(self._items) or self.over, seconds)

    def listen(self, listener: Callable[[], object] | None) -> None:
        """Have `listener` called from the engine thread whenever something arrived."""
        with self._arrived:
            self._listener = listener

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


async def _quiet_or_over(work: _Work, arrived: asyncio.Event, deadline: float) -> None:
    """Let items gather until the deadline (on the loop's clock), but an end is told at once."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            while not work.over:
                arrived.clear()
                await arrived.wait()


def _running_mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _PACE_WEIGHT * (value - mean)
