"""What is sent to the page: a run's events as numbered lines, the newest again and again.

A value that grows with the text would cost quadratically, so each value holds the lines of the
last rounds only, and the browser takes what it hasn't seen (`assets/store.js`). The last value
holds the whole trace, so nothing that a busy browser skipped stays lost.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from selfspec_core.events import Event, Wait

WINDOW_UPDATES = 8
"""How many updates back a value reaches: so many may be dropped with nothing lost."""


class TraceFeed:
    """The lines of one run and where its newest ones begin.

    Args:
        run: number of the run; the page ignores what comes from an older one.
        header: what the page shows beside the events (`prompt`, `machine`, ...).
    """

    def __init__(self, run: int, **header: Any) -> None:
        self._header = {"run": run, "state": "waiting", "message": "", **header}
        self._lines: list[str] = []
        self._updates: deque[int] = deque(maxlen=WINDOW_UPDATES)

    def add(self, events: Iterable[Event | Mapping[str, Any]]) -> None:
        """Take events, or notes of the page itself, in order."""
        self._updates.append(len(self._lines))
        for event in events:
            if isinstance(event, Wait):
                continue
            self._lines.append(event.to_json() if isinstance(event, Event) else as_line(event))

    def window(self, **header: Any) -> str:
        """The newest lines as a value; `header` says what has changed."""
        self._header.update(header)
        return self._value(self._updates[0] if self._updates else 0, whole=False)

    def whole(self, **header: Any) -> str:
        """All lines as a value."""
        self._header.update(header)
        return self._value(0, whole=True)

    def _value(self, first: int, *, whole: bool) -> str:
        head = as_line({**self._header, "first": first, "whole": whole})
        # "<" occurs inside strings only; escaped, no token can look like markup to anybody.
        return "\n".join([head, *self._lines[first:]]).replace("<", "\\u003c")


def as_line(record: Mapping[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))
