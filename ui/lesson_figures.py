"""The figures of lessons: numbers and texts, read from recorded traces and measurements only.

`figures:forward_ms.4` is a value of `assets/lessons/figures.json`; `trace:one-round:done.tau` a
field of an event, or of a note beside the trace. Over all events of a kind stands one of
`median`, `mean`, `min`, `max`, `sum`, `count`, `first`, `last`, or `count=VALUE`; `2` is the event
of round 2, `2.1` the second one of that round (rounds and events from 0, as traces number them).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .lessons import LESSON_TRACES, LESSONS, Chart, Figure, LessonError, Row

TRACES_COMMAND = "python -m ui.lessons_record --only traces"
_FOLDS: dict[str, Callable[[list[Any]], Any]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "sum": sum,
    "count": len,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}


class Figures:
    """What lessons may quote; files are read when they are first asked for.

    Args:
        lessons: the folder of `figures.json`.
        traces: the folder of the recorded traces.
    """

    def __init__(self, lessons: Path = LESSONS, traces: Path = LESSON_TRACES) -> None:
        self._lessons, self._traces = lessons, traces
        self._recorded: dict[str, Any] | None = None
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._about: dict[str, dict[str, Any]] = {}

    def value(self, item: Figure | Row) -> int | float | str | bool:
        """A figure's value, divided and scaled as it asks.

        Raises:
            LessonError: there is no such figure, or it is no number where one is needed.
        """
        value = self._at(item.source)
        if item.over is not None:
            below = self._at(item.over)
            if not _is_number(value) or not _is_number(below) or not below:
                raise LessonError(f"{item.source} ÷ {item.over} isn't a number")
            value = value / below
        if item.scale != 1:
            if not _is_number(value):
                raise LessonError(f"{item.source} isn't a number: it can't be scaled")
            value = value * item.scale
        return value

    def told(self, item: Figure | Chart) -> dict[str, Any]:
        """A figure or chart as the page shows it: with its values, and where they are from."""
        shown = item.model_dump(exclude_none=True, by_alias=True)
        if isinstance(item, Figure):
            if item.zh is not None:  # the same number, counted as it is there
                other = item.model_copy(update={"scale": item.zh.scale})
                shown["zh"]["value"] = self.value(other)
            return shown | {"value": self.value(item), "recorded": self.recorded(item.source)}
        for row, given in zip(shown["rows"], item.rows, strict=True):
            value = self.value(given)
            if not _is_number(value):
                raise LessonError(f"{given.source} isn't a number: it has no bar")
            row["value"] = value
        return shown | {"recorded": self.recorded(item.rows[0].source)}

    def recorded(self, source: str) -> dict[str, Any]:
        """How a source was recorded: `command`, and where known `date` and `machine`."""
        kind, _, rest = source.partition(":")
        if kind == "trace":
            name = rest.partition(":")[0]
            self._read(name)
            about = {"command": TRACES_COMMAND, **self._about[name]}
        else:
            figures = self._figures()
            part = figures.get("parts", {}).get(rest.partition(".")[0], {})
            about = {**figures, **part}
        known = {key: about.get(key) for key in ("command", "date", "machine")}
        return {key: value for key, value in known.items() if value}

    def _at(self, source: str) -> Any:
        kind, _, rest = source.partition(":")
        try:
            if kind == "figures":
                return _scalar(_walk(self._figures()["values"], rest))
            if kind == "trace":
                name, path, *pick = rest.split(":")
                return _scalar(self._pick(name, path, ":".join(pick)))
        except LessonError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, statistics.StatisticsError) as error:
            raise LessonError(f"there is no figure {source} ({error})") from None
        raise LessonError(f"a figure comes from figures:… or trace:…, not from {source}")

    def _pick(self, name: str, path: str, how: str) -> Any:
        kind, _, field = path.partition(".")
        events = [event for event in self._read(name) if event["type"] == kind]
        if how and how[0].isdigit():
            number, _, index = how.partition(".")
            events = [event for event in events if event.get("round") == int(number)]
            return _walk(events[int(index or 0)], field)
        values = [_walk(event, field) for event in events]
        if how.startswith("count="):
            return sum(str(value) == how.removeprefix("count=") for value in values)
        return _FOLDS[how or "last"](values)

    def _read(self, name: str) -> list[dict[str, Any]]:
        if name not in self._events:
            path = self._traces / f"{name}.ndjson"
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                beside = path.with_suffix(".json")
                about = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else {}
                events = [json.loads(line) for line in lines if line]
            except (OSError, ValueError) as error:
                raise LessonError(f"the trace {name} can't be read ({error})") from None
            self._about[name] = about
            self._events[name] = [*events, *about.get("notes", [])]
        return self._events[name]

    def _figures(self) -> dict[str, Any]:
        if self._recorded is None:
            path = self._lessons / "figures.json"
            try:
                self._recorded = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise LessonError(f"{path.name} can't be read ({error})") from None
        return self._recorded


def _walk(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{value!r:.40} is no number and no text")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
