"""All lessons as the page asks for them: a contents list, single lessons, glossary, traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

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
    Text,
    Try,
    read_glossary,
    read_lessons,
)
from .recorded import read_recording

LABELS = LESSONS / "labels.json"
"""Which words of the page lead to which entry of the glossary: entry → keys of the dictionary."""
_PLACE = re.compile(r"\{(\w+)\}")
_TERM = re.compile(r"\[\[([^\]|]+)(?:\|[^\]]+)?\]\]")


class Book:
    """Lessons, glossary and recorded traces of one folder each; all is read and checked at once.

    Args:
        lessons: the folder of the lessons, `glossary.json` and `figures.json`.
        traces: the folder of the recorded traces.

    Raises:
        LessonError: anything in it can't be used; the message names file and field.
    """

    def __init__(self, lessons: Path = LESSONS, traces: Path = LESSON_TRACES) -> None:
        self._folder, self._traces = lessons, traces
        self.lessons = {lesson.id: lesson for lesson in read_lessons(lessons)}
        self.terms = read_glossary(lessons)
        figures = Figures(lessons, traces)
        self._told = {name: self._tell(lesson, figures) for name, lesson in self.lessons.items()}

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
            at = f"{lesson.number:02d}-{lesson.id}.json: steps.{i}"
            try:
                shown["figures"] = [figures.told(figure) for figure in step.figures]
                if isinstance(step, Predict) and isinstance(step.answer, Binned):
                    shown["answer"] = _answer(step, step.answer, figures)
                self._check(step)
            except LessonError as error:
                raise LessonError(f"{at}: {error}") from None
        for text in (lesson.title, lesson.goal, lesson.takeaway):
            self._check_terms(text)
        for show in lesson.shows():
            for trace in filter(None, (show.trace, show.race)):
                if not (self._traces / f"{trace}.ndjson").exists():
                    raise LessonError(f"{lesson.number:02d}-{lesson.id}.json: no trace “{trace}”")
        return told

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
        for language in ("en", "zh"):
            lost = [
                name for name in _TERM.findall(getattr(text, language)) if name not in self.terms
            ]
            if lost:
                raise LessonError(f"the glossary has no “{lost[0]}”: “{text.en[:40]}…”")


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
