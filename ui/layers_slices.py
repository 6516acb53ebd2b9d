"""Long computations in slices: what can't yield by itself stops for others where it asks.

Captum's calls return when they are through, seconds later. But they evaluate the model through
`analysis`, which asks before every evaluation whether it should stop. There the computation,
on a thread of its own, hands over; exactly one of the two threads runs at any time, so the
engine's rule that all work on the model is done in turn still holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from analysis.texts import CancelledError

Asked = Callable[[], bool]

SLICE_SECONDS = 0.15
"""A computation that has run this long hands over the next time it asks."""


PAUSE = object()
"""What is yielded where the computation stopped to let others run."""


def in_slices(
    make: Callable[[Asked], Iterator[Any]],
    cancelled: Asked,
    *,
    seconds: float = SLICE_SECONDS,
) -> Iterator[Any]:
    """Run an iterator on a thread of its own; yields its items, and `PAUSE` every slice.

    Closing this generator ends the computation at its next question, and waits for that.

    Args:
        make: makes the iterator from the function that it shall ask whether to stop.
        cancelled: whether it shall.
        seconds: of a slice.

    Raises:
        Exception: whatever the iterator raised, but for `CancelledError`, which ends it.
    """
    relay = _Relay(make, cancelled, seconds)
    relay.thread.start()
    try:
        while (item := relay.resume()) is not _END:
            yield item
    finally:
        relay.finish()
    if relay.error is not None:
        raise relay.error


_END = object()


class _Relay:
    """The baton between the thread that computes and the one that takes the items."""

    def __init__(
        self, make: Callable[[Asked], Iterator[Any]], cancelled: Asked, seconds: float
    ) -> None:
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="selfspec-slices", daemon=True)
        self._make, self._cancelled, self._seconds = make, cancelled, seconds
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._item: Any = None
        self._began = 0.0
        self._unwanted = False

    # -- on the thread that takes ---------------------------------------------------------------

    def resume(self) -> Any:
        """Let it compute until it hands over; the item, or `_END`."""
        self._go.release()
        self._back.acquire()
        return self._item

    def finish(self) -> None:
        """Let it end, and wait until it has."""
        self._unwanted = True
        self._go.release()
        self.thread.join()

    # -- on the thread that computes --------------------------------------------------------------

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._began = time.monotonic()
            for item in self._make(self._ask):
                self._hand_over(item)
                if self._unwanted:
                    break
        except CancelledError:
            pass
        except BaseException as error:
            self.error = error
        self._item = _END
        self._back.release()

    def _ask(self) -> bool:
        if not self._unwanted and time.monotonic() - self._began > self._seconds:
            self._hand_over(PAUSE)
        return self._unwanted or self._cancelled()

    def _hand_over(self, item: Any) -> None:
        if self._unwanted:  # a last word that nobody waits for
            return
        self._item = item
        self._back.release()
        self._go.acquire()
        self._began = time.monotonic()
