"""All lessons as the page asks for them: a contents list, single lessons, glossary, traces."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from selfspec_core.events import TraceError

from .lesson_figures import Figures
from .lessons import (
    ANCHORS,
    LESSON_TRACES,
    LESSONS,
    Binned,
    Figure,
    Lesson,
    LessonError,
    Predict,
    Step,
    Term,
    Text,
    Try,
    read_glossary,
    sort_lessons,
)
from .recorded import read_recording

log = logging.getLogger("selfspec.ui")

LABELS = LESSONS / "labels.json"
"""Which words of the page lead to which entry of the glossary: entry → keys of the dictionary."""
_PLACE = re.compile(r"\{(\w+)\}")
_TERM = re.compile(r"\[\[([^\]|]+)(?:\|[^\]]+)?\]\]")


class Book:
    """Lessons, glossary and recorded traces of one folder each; all is read and checked at once.

    A lesson that can't be used is left out, and the others are there all the same.

    Args:
        lessons: the folder of the lessons, `glossary.json` and `figures.json`.
        traces: the folder of the recorded traces.

    Attributes:
        lessons: those that can be shown, by their names.
        terms: the glossary; empty where its file can't be used.
        left_out: file → what is wrong in it, with file and field.
    """

    def __init__(self, lessons: Path = LESSONS, traces: Path = LESSON_TRACES) -> None:
        self._traces = traces
        found, self.left_out = sort_lessons(lessons)
        self.terms = self._read_terms(lessons)
        figures = Figures(lessons, traces)
        self.lessons: dict[str, Lesson] = {}
        self._told: dict[str, dict[str, Any]] = {}
        for lesson in found:
            try:
                self._told[lesson.id] = self._tell(lesson, figures)
                self.lessons[lesson.id] = lesson
            except LessonError as error:
                self.left_out[lesson.file] = str(error)
        for reason in self.left_out.values():
            log.error("left out of the lessons: %s", reason)

    def index(self) -> dict[str, Any]:
        """What the list of lessons needs, and where on the page outlines go."""
        return {
            "lessons": [_about(lesson) for lesson in self.lessons.values()],
            "anchors": ANCHORS,
        }

    def lesson(self, name: str) -> dict[str, Any]:
        """A lesson with the values of its figures.

        Raises:
            KeyError: no such lesson.
        """
        return self._told[name]

    def glossary(self) -> dict[str, Any]:
        """The entries: id → term, text, see."""
        return {name: term.model_dump() for name, term in self.terms.items()}

    def labels(self) -> dict[str, list[str]]:
        """Which words of the page lead to which entry, as far as there are entries."""
        labels = json.loads(LABELS.read_text(encoding="utf-8"))
        return {name: keys for name, keys in labels.items() if name in self.terms}

    def traces(self) -> list[str]:
        """Names of all traces that lessons show."""
        names = (name for lesson in self.lessons.values() for name in lesson.traces())
        return list(dict.fromkeys(names))

    def trace(self, name: str) -> str:
        """A recorded trace as a value of the stage.

        Raises:
            KeyError: no lesson shows it.
            TraceError: it can't be read.
        """
        if name not in self.traces():
            raise KeyError(name)
        return read_recording(self._traces / f"{name}.ndjson").value

    def _tell(self, lesson: Lesson, figures: Figures) -> dict[str, Any]:
        told = lesson.model_dump(exclude_none=True, by_alias=True)
        for i, (step, shown) in enumerate(zip(lesson.steps, told["steps"], strict=True)):
            with _said_of(f"{lesson.file}: steps.{i}"):
                shown["figures"] = [figures.told(figure) for figure in step.figures]
                if isinstance(step, Predict) and isinstance(step.answer, Binned):
                    shown["answer"] = _answer(step, step.answer, figures)
                self._check(step)
        for field in ("title", "goal", "takeaway"):
            with _said_of(f"{lesson.file}: {field}"):
                self._check_terms(getattr(lesson, field))
        for trace in lesson.traces():
            with _said_of(lesson.file):
                self._check_trace(trace)
        return told

    def _read_terms(self, folder: Path) -> dict[str, Term]:
        try:
            return read_glossary(folder)
        except LessonError as error:
            self.left_out["glossary.json"] = str(error)
            return {}

    def _check_trace(self, name: str) -> None:
        path = self._traces / f"{name}.ndjson"
        if not path.exists():
            raise LessonError(f"no trace “{name}”")
        try:
            read_recording(path)
        except (OSError, TraceError) as error:
            raise LessonError(f"the trace “{name}” can't be read: {error}") from None

    def _check(self, step: Step) -> None:
        """Places are filled and terms are there, in all texts of a step."""
        names = {figure.name for figure in step.figures if isinstance(figure, Figure)}
        for text in texts(step):
            self._check_terms(text)
            for language in ("en", "zh"):
                lost = set(_PLACE.findall(getattr(text, language))) - names
                if lost:
                    raise LessonError(f"{{{lost.pop()}}} has no figure: “{text.en[:40]}…”")

    def _check_terms(self, text: Text) -> None:
        if "glossary.json" in self.left_out:
            return  # said already, and lessons can be read without it
        for language in ("en", "zh"):
            lost = [
                name for name in _TERM.findall(getattr(text, language)) if name not in self.terms
            ]
            if lost:
                raise LessonError(f"the glossary has no “{lost[0]}”: “{text.en[:40]}…”")


@contextmanager
def _said_of(place: str) -> Iterator[None]:
    """Errors name the file, and the field where there is one."""
    try:
        yield
    except LessonError as error:
        raise LessonError(f"{place}: {error}") from None


def texts(value: Any) -> Iterator[Text]:
    """All texts inside a step or lesson."""
    if isinstance(value, Text):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif hasattr(value, "model_fields_set"):
        for _, item in value:
            yield from texts(item)


@cache
def book() -> Book:
    """The lessons that come with the studio."""
    return Book()


def _answer(step: Predict, answer: Binned, figures: Figures) -> int:
    found = next(
        (f for f in step.figures if isinstance(f, Figure) and f.name == answer.figure), None
    )
    value = None if found is None else figures.value(found)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LessonError(f"answer.figure: “{answer.figure}” is no figure with a number")
    return sum(edge <= value for edge in answer.bins)


def _about(lesson: Lesson) -> dict[str, Any]:
    return {
        "id": lesson.id,
        "number": lesson.number,
        "minutes": lesson.minutes,
        "steps": len(lesson.steps),
        "live": any(isinstance(step, Try) for step in lesson.steps),
        "title": lesson.title.model_dump(),
        "goal": lesson.goal.model_dump(),
    }
