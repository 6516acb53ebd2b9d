"""What the browser's main thread does while somebody acts on a page, task by task.

A task is what that thread does without a pause, as the browser's own timeline has it: while
one runs, nothing that a person does is answered.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONG_MS = 50.0
"""From here on a task is called long, as in the W3C's Long Tasks."""
_TASK = "ThreadControllerImpl::RunTask"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_NO_PLAYWRIGHT = (
    "this measures a page in a browser, and Playwright, which drives one, isn't installed: "
    "pip install -r requirements-dev.txt"
)
_NO_BROWSER = (
    "no Chromium found: install one (`sudo apt-get install chromium`, or "
    "`python -m playwright install chromium`), or name its file with --browser"
)


@dataclass(frozen=True)
class Tasks:
    """The tasks of one act.

    Args:
        longest_ms: the longest; 0 without any.
        long: how many took more than `LONG_MS`.
    """

    longest_ms: float
    long: int


def longest(events: Sequence[Mapping[str, Any]]) -> Tasks:
    """The tasks of a page's main thread, from the browser's trace events.

    A task within a task (a loop that the browser runs inside one) is a part of it.
    """
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    found: list[float] = []
    ends: dict[tuple[int, int], float] = {}
    tasks = [e for e in events if e["name"] == _TASK and e["ph"] == "X"]
    for event in sorted(tasks, key=lambda e: (e["ts"], -e.get("dur", 0))):
        thread, end = (event["pid"], event["tid"]), event["ts"] + event.get("dur", 0)
        if thread not in mains or end <= ends.get(thread, 0):
            continue
        ends[thread] = end
        found.append(event.get("dur", 0) / 1000)
    return Tasks(max(found, default=0.0), sum(ms > LONG_MS for ms in found))


def recorded(page: Any, act: Callable[[], Any]) -> Tasks:
    """Do something on a page; the tasks that it made."""
    session = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    complete: list[Any] = []
    session.on("Tracing.dataCollected", lambda told: events.extend(told["value"]))
    session.on("Tracing.tracingComplete", lambda told: complete.append(told))
    categories = {"includedCategories": ["toplevel"]}
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
    try:
        act()
    finally:
        session.send("Tracing.end")
        while not complete:
            page.wait_for_timeout(20)
        session.detach()
    return longest(events)


@contextmanager
def chromium(path: str | None = None) -> Iterator[Any]:
    """A Chromium without a window.

    Args:
        path: its file; None looks for one that is installed, then for Playwright's own.

    Raises:
        ValueError: Playwright or the browser is missing; says how to get it.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise ValueError(_NO_PLAYWRIGHT) from None
    found = path or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is not None and not Path(found).is_file():
        raise ValueError(f"no browser at {found}: {_NO_BROWSER}")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        except Error as error:
            raise ValueError(f"{_NO_BROWSER} ({str(error).splitlines()[0]})") from None
        try:
            yield browser
        finally:
            browser.close()
