"""Lessons as data: what a file in `assets/lessons/` may hold, read and checked in one place.

A lesson sets the panels up, asks before it reveals, and ends with a sentence to take home. Every
text is in both languages, and every number in it comes from a recorded trace or figure
(`ui/lesson_figures.py`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic import model_validator as checked

from .lesson_anchors import ANCHORS
from .places import ASSETS
from .recorded import TRACES

LESSONS = ASSETS / "lessons"
LESSON_TRACES = TRACES / "lessons"


class LessonError(ValueError):
    """A lesson, the glossary or a figure that can't be used; names the file and the field."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Conditions = dict[str, bool | int | float | str | dict[str, bool | int | float | str]]


class Text(_Strict):
    """A text in every language of the page: paragraphs, *emphasis*, `code`, [[term|words]]."""

    en: Words
    zh: Words

    @checked(mode="after")
    def _is_no_markup(self) -> Text:
        for language in ("en", "zh"):
            if re.search(r"</?[a-zA-Z!]", getattr(self, language)):
                raise ValueError(
                    f"{language} holds HTML, which is shown as it is: write plain text"
                )
        return self


class Settings(_Strict):
    """Controls of the Decode panel; what is left out stays as it is."""

    prompt: Annotated[str, StringConstraints(min_length=1, max_length=4000)] | None = None
    plan: (
        Annotated[str, StringConstraints(pattern=r"^[a-z0-9\s,;:%.\-]+$", max_length=500)] | None
    ) = None
    k: Annotated[int, Field(ge=1, le=16)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    rule: Literal["coupled", "rejection", "threshold", "typical"] | None = None
    seed: int | None = None
    length: Annotated[int, Field(ge=1, le=512)] | None = None
    chat: bool | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=200)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=0.95)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.5, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Annotated[str, StringConstraints(max_length=500)] | None = None
    policy: Literal["fixed", "confidence", "adaptive", "auto"] | None = None
    verify: Literal["start", "first_skipped"] | None = None
    drafttemp: Annotated[float, Field(ge=0, le=10)] | None = None


class At(_Strict):
    """Where Step stands: a round or a token, counted from 1 as the page says it."""

    round: Annotated[int, Field(ge=1)] | None = None
    token: Annotated[int, Field(ge=1)] | None = None

    @checked(mode="after")
    def _is_one(self) -> At:
        if (self.round is None) == (self.token is None):
            raise ValueError("give either round or token")
        return self


def _known_anchor(field: str, name: str) -> None:
    if name not in ANCHORS:
        raise ValueError(f"{field} “{name}” isn't one of {', '.join(ANCHORS)}")


class Show(_Strict):
    """What stands on the page in a step; `hide` covers what would give an answer away."""

    panel: Literal["decode", "layers", "tune", "compare"] | None = None
    view: Literal["rounds", "step", "race", "ab"] | None = None
    settings: Settings | None = None
    trace: Name | None = None
    at: At | None = None
    race: Name | None = None
    outline: str | None = None
    hide: list[str] = []

    @checked(mode="after")
    def _outlines_what_is_there(self) -> Show:
        if self.outline is not None:
            _known_anchor("outline", self.outline)
        for name in self.hide:
            _known_anchor("hide", name)
        return self


class Counted(_Strict):
    """How a language counts a figure otherwise: 135 million are 1.35 亿."""

    scale: float = 1
    digits: Annotated[int, Field(ge=0, le=6)] | None = None


class Figure(_Strict):
    """A recorded number or text, which fills the place of its name in the step's texts."""

    name: Annotated[str, StringConstraints(pattern=r"^\w+$")]
    source: str = Field(alias="from")
    over: str | None = None
    scale: float = 1
    digits: Annotated[int, Field(ge=0, le=6)] | None = None
    zh: Counted | None = None
    unit: Text | None = None
    label: Text | None = None
    hidden: bool = False


class Row(_Strict):
    """A bar of a chart."""

    label: Text
    source: str = Field(alias="from")
    over: str | None = None
    scale: float = 1
    digits: Annotated[int, Field(ge=0, le=6)] | None = None


class Chart(_Strict):
    """Bars with their numbers beside them."""

    chart: Literal["bars"]
    rows: Annotated[list[Row], Field(min_length=2, max_length=12)]
    unit: Text | None = None
    title: Text | None = None


class Binned(_Strict):
    """The right choice by a figure: as many as there are edges at or below it."""

    figure: str
    bins: Annotated[list[float], Field(min_length=1)]


class _Step(_Strict):
    show: Show | None = None
    figures: list[Chart | Figure] = []


class Read(_Step):
    """A step to read."""

    kind: Literal["read"]
    text: Text


class Predict(_Step):
    """A question that is answered before anything is revealed; `show` comes with the reveal."""

    kind: Literal["predict"]
    question: Text
    choices: Annotated[list[Text], Field(min_length=2, max_length=6)]
    answer: int | Binned
    reveal: Text
    before: Show | None = None

    @checked(mode="after")
    def _has_an_answer(self) -> Predict:
        n = len(self.choices)
        if isinstance(self.answer, int) and not 0 <= self.answer < n:
            raise ValueError(f"answer {self.answer} isn't one of the choices 0–{n - 1}")
        if isinstance(self.answer, Binned):
            if len(self.answer.bins) != n - 1:
                raise ValueError(f"{n} choices need {n - 1} bins, got {len(self.answer.bins)}")
            if sorted(self.answer.bins) != self.answer.bins:
                raise ValueError("bins must rise")
        return self


class Done(_Strict):
    """How a live task knows that it is done."""

    event: Literal["run", "toggle", "step", "open"]
    where: Conditions = {}

    @checked(mode="after")
    def _asks_what_can_be_asked(self) -> Done:
        for name, wanted in self.where.items():
            odd = set(wanted) - _COMPARES if isinstance(wanted, dict) else ()
            if odd:
                raise ValueError(f"where.{name} may compare by {', '.join(sorted(_COMPARES))}")
        return self


_COMPARES = {"at_least", "at_most", "above", "below", "not"}


class Instead(_Strict):
    """What a live task shows where no model is there."""

    text: Text
    show: Show | None = None


class Try(_Step):
    """A live task; once it is done, `look` is outlined: where its result stands."""

    kind: Literal["try"]
    text: Text
    done: Done
    hint: Text | None = None
    look: str | None = None
    recorded: Instead | None = None

    @checked(mode="after")
    def _looks_at_what_is_there(self) -> Try:
        if self.look is not None:
            _known_anchor("look", self.look)
        return self


class Choice(_Strict):
    """An answer of a quiz."""

    text: Text
    right: bool = False
    why: Text


class Quiz(_Step):
    """A question with one right answer, each answer explained."""

    kind: Literal["quiz"]
    question: Text
    choices: Annotated[list[Choice], Field(min_length=2, max_length=6)]

    @checked(mode="after")
    def _has_one_right_answer(self) -> Quiz:
        if sum(choice.right for choice in self.choices) != 1:
            raise ValueError("exactly one of the choices must be right")
        return self


Step = Annotated[Read | Predict | Try | Quiz, Field(discriminator="kind")]


class Lesson(_Strict):
    """One file of `assets/lessons/`."""

    id: Name
    number: Annotated[int, Field(ge=1, le=99)]
    minutes: Annotated[int, Field(ge=1, le=30)]
    title: Text
    goal: Text
    enter: Show = Show()
    steps: Annotated[list[Step], Field(min_length=1, max_length=20)]
    takeaway: Text

    def shows(self) -> list[Show]:
        """Everything that the lesson puts on the page."""
        found: list[Show | None] = [self.enter]
        for step in self.steps:
            found.append(step.show)
            if isinstance(step, Predict):
                found.append(step.before)
            if isinstance(step, Try) and step.recorded is not None:
                found.append(step.recorded.show)
        return [show for show in found if show is not None]

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.number:02d}-{self.id}.json"

    def traces(self) -> list[str]:
        """Names of the recorded traces that it shows, each once."""
        names = [name for show in self.shows() for name in (show.trace, show.race) if name]
        return list(dict.fromkeys(names))


class Term(_Strict):
    """An entry of the glossary."""

    term: Text
    text: Text
    see: list[Name] = []


def sort_lessons(folder: Path = LESSONS) -> tuple[list[Lesson], dict[str, str]]:
    """The lessons of a folder by number, and what is left out of it: file → what is wrong.

    Files of lessons begin with their number (`03-one-round.json`). Of two lessons with one name
    or number, the second is left out.
    """
    lessons: list[Lesson] = []
    left_out: dict[str, str] = {}
    for path in sorted(folder.glob("[0-9][0-9]-*.json")):
        try:
            lesson = _model(Lesson, path)
            for field in ("id", "number"):
                value = getattr(lesson, field)
                if any(getattr(other, field) == value for other in lessons):
                    raise LessonError(f"{path.name}: {field} {value!r} is used by two lessons")
            lessons.append(lesson)
        except LessonError as error:
            left_out[path.name] = str(error)
    return sorted(lessons, key=lambda lesson: lesson.number), left_out


def read_lessons(folder: Path = LESSONS) -> list[Lesson]:
    """All lessons of a folder, by number.

    Raises:
        LessonError: a file that can't be used, or two lessons of one name or number.
    """
    lessons, left_out = sort_lessons(folder)
    if left_out:
        raise LessonError("; ".join(left_out.values()))
    return lessons


def read_glossary(folder: Path = LESSONS) -> dict[str, Term]:
    """The glossary of a folder: id → entry; empty where there is none.

    Raises:
        LessonError: it can't be used, or an entry points to one that isn't there.
    """
    path = folder / "glossary.json"
    if not path.exists():
        return {}
    terms = {name: _valid(Term, value, path, name) for name, value in _json(path).items()}
    for name, term in terms.items():
        lost = [other for other in term.see if other not in terms]
        if lost:
            raise LessonError(f"{path.name}: {name}.see: there is no entry “{lost[0]}”")
    return terms


def _model(kind: type[Lesson], path: Path) -> Lesson:
    lesson = _valid(kind, _json(path), path)
    if path.name != lesson.file:
        raise LessonError(f"{path.name}: id: the file of this lesson is {lesson.file}")
    return lesson


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise LessonError(f"{path.name}: {error}") from None
    if not isinstance(value, dict):
        raise LessonError(f"{path.name}: a JSON object is wanted")
    return value


def _valid(kind: Any, value: Any, path: Path, *at: str) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        # A step's kind, and which of several forms was tried, is no part of the file.
        kinds = {"read", "predict", "try", "quiz", "Chart", "Figure", "Binned", "int", "dict"}
        where = [str(part) for part in (*at, *first["loc"])]
        field = ".".join(part for i, part in enumerate(where) if not (i and part in kinds))
        raise LessonError(f"{path.name}: {field or 'lesson'}: {first['msg']}") from None
