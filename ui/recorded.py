"""Recorded runs: what the page plays before the model is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfspec_core.events import Start, TraceError, from_ndjson

from . import explain
from .feed import TraceFeed

TRACES = Path(__file__).resolve().parent.parent / "assets" / "traces"
WELCOME = TRACES / "welcome.ndjson"


@dataclass(frozen=True)
class Recording:
    """A trace on disk with what was measured beside it.

    Args:
        value: what the token view takes.
        start: the trace's first event.
        prompt: what was asked, as it was typed.
    """

    value: str
    start: Start
    prompt: str

    @property
    def n_layers(self) -> int:
        """Decoder layers of the recorded model."""
        return int(self.start.model["n_layers"])


def read_recording(path: Path = WELCOME) -> Recording:
    """Read `NAME.ndjson`, and `NAME.json` beside it for prompt, date, baseline and heat.

    Raises:
        TraceError: the trace can't be read.
    """
    events = list(from_ndjson(path.read_text(encoding="utf-8")))
    start = events[0] if events else None
    if not isinstance(start, Start):
        raise TraceError(f"{path.name} holds no trace")
    beside = path.with_suffix(".json")
    about: dict[str, Any] = (
        json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else {}
    )
    prompt = str(about.get("prompt", start.prompt))
    feed = TraceFeed(0, prompt=prompt, machine=about.get("machine"))
    feed.add(events)
    feed.add(about.get("notes", []))
    value = feed.whole(state="recorded", message=explain.run_name(start, about.get("date")))
    return Recording(value, start, prompt)
