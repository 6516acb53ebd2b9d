"""The two ends of a piece of work: what the engine thread advances, and what its consumer reads.

A `Ticket` is what `Scheduler.submit` gives back; `Work` is the scheduler's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

from .events import Commit, Done, Draft, Start, Verdict

if TYPE_CHECKING:
    from .scheduler import Scheduler

Cancelled = Callable[[], bool]
MakeIterator = Callable[[Cancelled], Iterator[Any]]
"""Called on the engine thread with a function that says whether the work is cancelled."""

_WITHIN_A_TURN = (Start, Draft, Verdict, Commit)
_FLUSH_SECONDS = 0.1  # a slow model's drafts are shown before their verdicts are there


class Ticket:
    """What `submit` gives back: the way to the items of one piece of work.

    Read it once, as an iterator or as an asynchronous iterator. A ticket that nobody holds any
    more ends its work.
    """

    def __init__(self, scheduler: Scheduler, work: Work) -> None:
        self._scheduler = scheduler
        self._work = work
        weakref.finalize(self, scheduler.drop, work, abandoned=True).atexit = False

    def cancel(self) -> None:
        """End the work at its next round boundary; what it says at its end is delivered."""
        self._scheduler.drop(self._work, abandoned=False)

    @property
    def cancelled(self) -> bool:
        """Whether the work was cancelled or superseded."""
        return self._work.cancelled

    @property
    def over(self) -> bool:
        """Whether the engine is through with the work."""
        return self._work.over

    def __iter__(self) -> Iterator[Any]:
        work, patience = self._work, self._scheduler.wait_seconds
        try:
            while True:
                items, over = work.take()
                yield from items
                if over:
                    work.raise_error()
                    return
                if not items and not work.wait(patience):
                    yield self._scheduler.wait_event(work)
        finally:
            self._scheduler.drop(work, abandoned=True)

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
        work, patience = self._work, self._scheduler.wait_seconds
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        gathering = woken = False

        def hear() -> None:  # on the engine thread: each time it wakes the loop costs it time
            nonlocal woken
            # A loop that is gone is told again: it refuses, and so the work learns of it.
            if work.over or not (gathering or woken) or loop.is_closed():
                woken = True
                loop.call_soon_threadsafe(arrived.set)

        work.listen(hear)
        told = loop.time()
        try:
            while True:
                arrived.clear()
                woken = False
                items, over = work.take()
                if items:
                    yield items
                    told = loop.time()
                if over:
                    work.raise_error()
                    return
                if items and min_interval > 0:
                    gathering = True
                    await _quiet_or_over(work, arrived, loop.time() + min_interval)
                    gathering = False
                elif not items:
                    try:
                        # not wait_for: on 3.11 it can swallow the consumer's cancellation
                        # since the last word: the time in which items gather counts as well
                        async with asyncio.timeout_at(told + patience):
                            await arrived.wait()
                    except TimeoutError:
                        yield [self._scheduler.wait_event(work)]
                        told = loop.time()
        finally:
            work.listen(None)
            self._scheduler.drop(work, abandoned=True)


class Work:
    """One piece of work: its iterator, and the items on their way to the consumer."""

    def __init__(
        self,
        make_iterator: MakeIterator,
        *,
        owner: str | None = None,
        person: Hashable = None,
        background: bool = False,
        heavy: bool = False,
        paces: bool = True,
    ) -> None:
        self.owner = owner
        # Work of nobody in particular stands for itself.
        self.person: Hashable = person or owner or object()
        self.background = background
        self.heavy = heavy
        self.paces = paces
        self.last_turn = -1
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

    @property
    def failed(self) -> bool:
        """Whether it ended with an error."""
        return self._error is not None

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


async def _quiet_or_over(work: Work, arrived: asyncio.Event, deadline: float) -> None:
    """Let items gather until the deadline (on the loop's clock), but an end is told at once."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            while not work.over:
                arrived.clear()
                await arrived.wait()
