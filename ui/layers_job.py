"""The Layers panel's work on the engine's thread: methods, one after another, in slices."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import PlanError, SkipPlan, parse_plan

from .errors import said
from .layers_demand import BUDGETED, MAX_PROMPT, PLANNED, STEPPED, UNSCORED, Demand, DemandError
from .layers_slices import PAUSE, in_slices

if TYPE_CHECKING:
    from analysis.methods import Part
    from analysis.subject import Settings
    from analysis.table import Column, Importance
    from analysis.texts import Text
    from selfspec_core.engine import Engine
    from selfspec_core.loading import LoadedModel

Columns = Mapping[str, "Column"]
_KEPT = 96


class Known:
    """What was computed lately, for whoever asks for the same text again; names nobody.

    Args:
        kept: results of methods, at most; of the longest texts some 0.2 MB each.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._results: OrderedDict[tuple[Any, ...], Columns] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...]) -> Columns | None:
        """A method's columns, if they are still there."""
        with self._lock:
            found = self._results.get(key)
            if found is not None:
                self._results.move_to_end(key)
            return found

    def put(self, key: tuple[Any, ...], columns: Columns) -> None:
        """Keep them, and forget what nobody has asked for the longest."""
        with self._lock:
            self._results[key] = columns
            while len(self._results) > self._kept:
                self._results.popitem(last=False)


@dataclass(frozen=True, eq=False)
class Result:
    """Everything there is so far.

    Args:
        importance: columns of all methods so far.
        plan: whose branches are hatched.
        cut: tokens of the prompt that weren't read.
        left_out: written tokens that weren't looked at.
    """

    importance: Importance
    plan: SkipPlan
    cut: int
    left_out: int


@dataclass(frozen=True, eq=False)
class Progress:
    """How far the work is.

    Args:
        method: being run.
        number, methods: its number from 1, and how many there are.
        done: share of this method, 0 to 1.
        seconds_left: of this method; None before there is ground for one.
        copying: the float32 copy is being made.
        result: everything there is, where something new is in it.
    """

    method: str
    number: int
    methods: int
    done: float = 0.0
    seconds_left: float | None = None
    copying: bool = False
    result: Result | None = None


def work(
    demand: Demand,
    ready: Callable[[], tuple[Engine, LoadedModel]],
    known: Known,
    cancelled: Callable[[], bool],
) -> Iterator[Progress | Result]:
    """Do what was asked for; yields progress at least every slice, and the whole result last.

    Args:
        demand: checked.
        ready: the engine and its model; raises what there is to say where there is none.
        known: earlier results.
        cancelled: asked often; what was finished before is kept.

    Raises:
        DemandError: the text or the plan doesn't belong to the model.
    """
    from analysis.subject import Settings  # pulls in captum, which is slow to import
    from analysis.table import Importance
    from selfspec_core.detokenize import token_texts

    engine, loaded = ready()
    plan = _plan(demand, loaded.info.n_layers)
    text, cut, left_out = _text(demand, engine, loaded)
    words = tuple(token_texts(loaded.tokenizer, list(text.written)))
    settings = Settings(
        score=demand.score, plan=plan, budget=float(demand.budget), steps=demand.ig_steps
    )
    table = Importance(loaded.info.n_layers, (words,), {}, settings.score)
    result = Result(table, plan, cut, left_out)
    missing = []
    for method in demand.methods:
        columns = known.get(_key(method, loaded, text, settings))
        if columns is None:
            missing.append(method)
        else:
            result = _with(result, columns)
    running = _Running(loaded, text, settings, tuple(missing))
    for item in in_slices(running.run, cancelled):
        if item is PAUSE:
            yield running.progress()
        elif isinstance(item, _Found):
            result = _with(result, item.columns, item.copy_mb)
            if item.complete:
                known.put(_key(item.method, loaded, text, settings), item.columns)
            yield replace(running.progress(), result=result)
        else:
            yield item
    yield result


@dataclass(frozen=True, eq=False)
class _Found:
    method: str
    columns: Columns
    complete: bool
    copy_mb: float | None


class _Running:
    """Methods on one text, in the order they are wanted, and how far they are."""

    def __init__(
        self, loaded: LoadedModel, text: Text, settings: Settings, methods: tuple[str, ...]
    ) -> None:
        self._loaded, self._text, self._settings = loaded, text, settings
        self._methods = methods
        self._number, self._asked, self._done = 0, 0, 0.0
        self._shares: list[float] = []
        self._began = time.monotonic()

    def run(self, asked: Callable[[], bool]) -> Iterator[Progress | _Found]:
        """Run them; the float32 copy is made when the first one needs it, and freed at the end."""
        from analysis.evaluations import evaluations
        from analysis.float_copy import float_copy
        from analysis.methods import METHODS
        from analysis.stack import Stack
        from analysis.subject import Subject

        def counting() -> bool:
            self._asked += 1
            return asked()

        live, copy = Stack(self._loaded.model, self._loaded.family), None
        texts = (self._text,)
        subject = Subject(texts, live, None, self._settings, counting)
        for self._number, name in enumerate(self._methods, start=1):  # noqa: B020
            if METHODS[name].copies and copy is None:
                yield replace(self.progress(), done=0.0, seconds_left=None, copying=True)
                copy = float_copy(self._loaded)
                subject = Subject(texts, live, copy, self._settings, counting)
            self._shares = list(
                evaluations(
                    name,
                    n_layers=live.n_layers,
                    n_rows=len(self._text.written),
                    steps=self._settings.steps,
                )
            )
            self._asked, self._done, self._began = 0, 0.0, time.monotonic()
            for part in METHODS[name].run(subject):
                self._done = part.done
                mb = copy.mb if copy is not None and METHODS[name].copies else None
                yield _Found(name, self._columns(part), part.done >= 1, mb)

    def progress(self) -> Progress:
        """How far the method that is being run is."""
        seconds = time.monotonic() - self._began
        name = self._methods[self._number - 1]
        if name in BUDGETED:
            done = max(self._done, min(seconds / self._settings.budget, 0.99))
            left: float | None = max(self._settings.budget - seconds, 0.0)
        else:
            count = min(self._asked, len(self._shares))
            done = max(self._done, self._shares[count - 1] if count else 0.0)
            left = seconds * (1 - done) / done if done else None
        return Progress(name, self._number, len(self._methods), done, left)

    def _columns(self, part: Part) -> Columns:
        seconds = time.monotonic() - self._began
        return {
            name: replace(column, seconds=seconds, complete=part.done >= 1)
            for name, column in part.columns.items()
        }


def _with(result: Result, columns: Columns, copy_mb: float | None = None) -> Result:
    table = result.importance
    both = {**table.columns, **columns}
    mb = copy_mb if copy_mb is not None else table.copy_mb
    return replace(result, importance=replace(table, columns=both, copy_mb=mb))


def _key(method: str, loaded: LoadedModel, text: Text, settings: Settings) -> tuple[Any, ...]:
    """What a method's result depends on, and nothing else."""
    return (
        method,
        loaded.info.weights_hash,
        loaded.info.dtype,
        text.ids,
        text.prompt_length,
        None if method in UNSCORED else settings.score,
        settings.plan if method == PLANNED else None,
        settings.budget if method in BUDGETED else None,
        settings.steps if method in STEPPED else None,
    )


def _plan(demand: Demand, n_layers: int) -> SkipPlan:
    try:
        plan = parse_plan(demand.plan, n_layers)
    except PlanError as error:
        if demand.column == PLANNED:
            raise DemandError("plan", why=said(error)) from None
        return SkipPlan(n_layers)  # the plan matters to nothing that was asked for
    if isinstance(plan, SkipPlan):
        return plan
    return plan.steps[min(demand.step, len(plan.steps) - 1)][1]


def _text(demand: Demand, engine: Engine, loaded: LoadedModel) -> tuple[Text, int, int]:
    """The text to look at, how much of its prompt was cut off, and how many words at its end."""
    from analysis.texts import Text
    from selfspec_core.request import Request, RequestError

    if demand.source == "run":
        if demand.weights and demand.weights != loaded.info.weights_hash:
            raise DemandError("other_model")
        ids, start = demand.ids, demand.prompt_length
    else:
        ids, start = (), 1
    try:
        request = Request(prompt=demand.prompt, chat=False, max_new_tokens=0)
        if ids:
            request = Request(prompt_ids=ids, max_new_tokens=0)
        ids = tuple(engine.encode(request))
    except RequestError as error:
        raise DemandError("text", why=said(error)) from None
    if len(ids) < 2:
        raise DemandError("too_short")
    cut = max(0, start - MAX_PROMPT)
    text = Text(ids[cut:], start - cut)
    return text.cut(demand.rows), cut, max(0, len(ids) - start - demand.rows)
