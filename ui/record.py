"""Record a run for the page to play before a model is loaded.

`python -m ui.record` writes `assets/traces/welcome.ndjson`, the trace as the engine yields it,
and `welcome.json` beside it: prompt, date, machine, and the page's own lines (plain decoding
measured on the same request, the importance of every branch).
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
from pathlib import Path

from selfspec_core.events import EVENTS, from_json

from .examples import EXAMPLES
from .recorded import WELCOME
from .run import run
from .session import Studio
from .settings import Settings
from .words import msg, say


async def record(studio: Studio, settings: Settings, path: Path) -> str:
    """Run once as the page does, write the trace and what stands beside it; returns the text.

    Raises:
        RuntimeError: the run ended in an error, which is the message.
    """
    value = ""
    async for value in run(studio, settings, owner=None):  # noqa: B007  (the last one counts)
        pass
    header, *lines = value.split("\n")
    known = {kind.type for kind in EVENTS}
    events, notes = [], []
    for line in lines:
        (events if json.loads(line)["type"] in known else notes).append(json.loads(line))
    if json.loads(header)["state"] != "done":
        raise RuntimeError(say(notes[-1]["text"]) if notes else "the run did not end")
    # What was said while measuring is over; what was measured stays.
    kept = {note["type"]: note for note in notes if note["type"] != "note"}
    notes = [note for note in notes if note["type"] == "note"] + list(kept.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    trace = "".join(from_json(json.dumps(event)).to_json() + "\n" for event in events)
    path.write_text(trace, encoding="utf-8")
    beside = {
        "prompt": settings.prompt,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": msg("decode.recorded.cpu", cores=os.cpu_count())
        if events[0]["model"]["device"] == "cpu"
        else msg("decode.recorded.device", device=events[0]["model"]["device"]),
        "notes": notes,
    }
    path.with_suffix(".json").write_text(
        json.dumps(beside, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return str(events[-1]["text"])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ui.record", description=__doc__)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--prompt", default=EXAMPLES["moon"])
    parser.add_argument("--plan", default="light")
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=72)
    parser.add_argument("--out", type=Path, default=WELCOME)
    options = parser.parse_args()
    studio = Studio(options.model)
    studio.start_loading()
    settings = Settings(
        prompt=options.prompt,
        plan=options.plan,
        k=options.k,
        max_new_tokens=options.max_new_tokens,
    )
    try:
        print(asyncio.run(record(studio, settings, options.out)))
    finally:
        studio.close()


if __name__ == "__main__":
    main()
