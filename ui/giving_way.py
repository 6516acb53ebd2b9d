"""Work that gives way: what people look at meanwhile comes first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

SOONER = 0.1  # of the time after which Python's threads usually take turns
NICENESS = 10  # of 0 to 19; what 0 does beside it gets about ten times as much of a processor


def give_way(work: Callable[[], T]) -> T:
    """Do `work` in a thread of lower priority, and wait for it.

    The browser that shows the page may run on the same processors. Threads that `work` starts have
    its priority too. Where threads have no priorities of their own, it is as any other. Meanwhile
    Python's threads take turns sooner, so that requests are answered while modules are imported.

    Args:
        work: what takes a while.

    Returns:
        What it returns; what it raises is raised.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval * SOONER)
    try:
        with ThreadPoolExecutor(1, "giving-way", initializer=_lower) as one:
            return one.submit(work).result()
    finally:
        sys.setswitchinterval(interval)


def _lower() -> None:
    with contextlib.suppress(AttributeError, OSError):  # not Linux
        thread = os.PRIO_PROCESS, threading.get_native_id()
        os.setpriority(*thread, max(os.getpriority(*thread), NICENESS))
