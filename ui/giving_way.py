"""Work that gives way: what people look at meanwhile comes first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

OPENING = 0.9  # seconds that a page is given to be built and to show its recorded run
PATIENCE = 15.0  # seconds that work waits for pages in all, however many are opened

SOONER = 0.1  # of the time after which Python's threads usually take turns
NICENESS = 10  # of 0 to 19; what 0 does beside it gets about ten times as much of a processor


def give_way(work: Callable[[], T], opening: Opening | None = None) -> T:
    """Do `work` in a thread of lower priority, and wait for it.

    The browser that shows the page may run on the same processors. Threads that `work` starts have
    its priority too. Where threads have no priorities of their own, it is as any other. Meanwhile
    Python's threads take turns sooner, so that requests are answered while modules are imported.

    Args:
        work: what takes a while.
        opening: the pages that it stands still for between two imports; None for none.

    Returns:
        What it returns; what it raises is raised.
    """
    interval = sys.getswitchinterval()

    def courteous() -> T:
        with opening.between_imports() if opening else contextlib.nullcontext():
            return work()

    sys.setswitchinterval(interval * SOONER)
    try:
        with ThreadPoolExecutor(1, "giving-way", initializer=_lower) as one:
            return one.submit(courteous).result()
    finally:
        sys.setswitchinterval(interval)


def _lower() -> None:
    with contextlib.suppress(AttributeError, OSError):  # not Linux
        thread = os.PRIO_PROCESS, threading.get_native_id()
        os.setpriority(*thread, max(os.getpriority(*thread), NICENESS))


class Opening:
    """Pages being opened, for which other work stands still a moment.

    Priorities don't suffice: a thread of low priority that isn't given a processor may hold
    Python's lock, which the server needs to answer.

    Args:
        seconds: how long a page is opening, from its request.
        patience: seconds that work stands still in all.
    """

    def __init__(self, seconds: float = OPENING, patience: float = PATIENCE) -> None:
        self._seconds = seconds
        self._left = patience
        self._until = 0.0

    def begins(self) -> None:
        """A page is asked for."""
        self._until = time.monotonic() + self._seconds

    def wait(self) -> None:
        """Return when no page is opening, at once if none is or patience has ended."""
        while self._left > 0 and (ahead := self._until - time.monotonic()) > 0:
            begun = time.monotonic()
            time.sleep(min(ahead, self._left))
            self._left -= time.monotonic() - begun

    @contextlib.contextmanager
    def between_imports(self) -> Iterator[None]:
        """Meanwhile this thread waits before each module that it imports: thousands, for torch."""
        finder = _Waits(self.wait, threading.get_ident())
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)


class _Waits:
    """Finds no module, after a wait, on one thread."""

    def __init__(self, wait: Callable[[], None], thread: int) -> None:
        self._wait = wait
        self._thread = thread

    def find_spec(self, *_: object) -> None:
        if threading.get_ident() == self._thread:
            self._wait()
