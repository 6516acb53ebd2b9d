"""Record what the Layers panel shows before a model is loaded.

`python -m ui.layers_record` computes it for the recorded run (`python -m ui.record` first) and
writes `assets/traces/welcome_layers.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfspec_core.events import Done, from_ndjson

from .explain import model_name
from .feed import as_line
from .layers_demand import VIEWS, Demand
from .layers_job import Known, Result, work
from .layers_panel import EXAMPLE
from .layers_values import result_of
from .recorded import WELCOME, read_recording
from .session import Studio

_ROWS = 24


def record(studio: Studio, trace: Path) -> dict[str, Any]:
    """Compute the views for a recorded run; the value's `result` and what it was made from.

    Raises:
        ValueError: the trace isn't of the studio's model, or nothing was written in it.
    """
    recording = read_recording(trace)
    *_, done = from_ndjson(trace.read_text(encoding="utf-8"))
    assert isinstance(done, Done)
    demand = Demand(
        source="run",
        ids=(*recording.start.prompt_ids, *done.tokens),
        prompt_length=len(recording.start.prompt_ids),
        weights=str(recording.start.model["weights_hash"]),
        prompt="",
        column="input_x_gradient",
        view=None,
        score="logprob",
        rows=_ROWS,
        budget=10,
        plan=recording.start.plan,
        step=0,
    )
    known = Known()
    result = _result(studio, demand, known)
    for view in VIEWS:
        more = _result(studio, replace(demand, view=view), known)
        columns = {**result.importance.columns, **more.importance.columns}
        result = replace(result, importance=replace(result.importance, columns=columns))
    return {
        "result": result_of(result, demand),
        "model": model_name(recording.start.model),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _result(studio: Studio, demand: Demand, known: Known) -> Result:
    def run(cancelled: Any) -> Iterator[Any]:
        return work(demand, lambda: (studio.ready(), studio.loaded), known, cancelled)

    ended = [item for item in studio.scheduler.submit(run) if isinstance(item, Result)]
    return ended[-1]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ui.layers_record", description=__doc__)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--trace", type=Path, default=WELCOME)
    parser.add_argument("--out", type=Path, default=EXAMPLE)
    options = parser.parse_args()
    studio = Studio(options.model)
    studio.start_loading()
    try:
        found = record(studio, options.trace)
    finally:
        studio.close()
    options.out.write_text(as_line(found) + "\n", encoding="utf-8")
    print(f"{options.out}: {options.out.stat().st_size / 1e3:.0f} kB")
    print(
        json.dumps({name: column["seconds"] for name, column in found["result"]["columns"].items()})
    )


if __name__ == "__main__":
    main()
