"""Importance of every branch by every method, step by step, with the results so far.

texts = [text for text, _ in write_texts(engine, Request(max_new_tokens=64), prompts)]
for step in importance(engine.loaded, texts, Settings(plan=plan)):
    print(step.message, step.seconds_left)
step.importance.table()  # a pandas frame; `figures` draws it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from selfspec_core.detokenize import token_texts
from selfspec_core.loading import LoadedModel
from selfspec_core.plan import PlanError

from .float_copy import FloatCopy, float_copy
from .methods import METHODS, Part
from .scores import KL
from .stack import Stack
from .subject import Settings, Subject
from .table import Column, Importance
from .texts import CancelledError, Text

__all__ = ["METHODS", "Importance", "Settings", "Step", "importance"]


@dataclass(frozen=True, eq=False)
class Step:
    """Progress of the whole, and what is there.

    Args:
        method: that is being run.
        message: for a person: the method, and how far it is.
        done: share of all work, 0 to 1, roughly.
        seconds_left: estimate for the rest; None before there is any ground for one.
        importance: all columns so far; one that isn't complete covers part of the texts.
        cancelled: the person asked to stop; nothing comes after this step.
    """

    method: str
    message: str
    done: float
    seconds_left: float | None
    importance: Importance
    cancelled: bool = False


def importance(
    loaded: LoadedModel,
    texts: Sequence[Text],
    settings: Settings,
    *,
    methods: Sequence[str] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Step]:
    """Run the methods, one after another.

    The float32 copy is made when the first method needs it, and freed at the end: after the
    last step, on cancelling, when the iterator is closed, or where something fails.

    Args:
        loaded: the model, packed or not; nothing of it is changed.
        texts: that the target wrote (`write_texts`), at least one.
        settings: score, plan, steps, budget, seed.
        methods: names of `METHODS`; None is all that the score has something to say on.
        cancelled: asked often; when it says True the last step has `cancelled` set.

    Raises:
        ValueError: no text, an unknown method, or one that the score makes 0 everywhere.
        PlanError: the plan is another model's.
    """
    chosen = chosen_methods(methods, settings.score)
    if not texts:
        raise ValueError("importance needs at least one text that the model wrote")
    if settings.plan.n_layers != loaded.info.n_layers:
        raise PlanError(
            f"the plan is for {settings.plan.n_layers} layers and this model has "
            f"{loaded.info.n_layers}"
        )
    return _steps(loaded, tuple(texts), settings, chosen, cancelled)


def chosen_methods(names: Sequence[str] | None, score: str) -> tuple[str, ...]:
    """The methods to run, in their order.

    Raises:
        ValueError: see `importance`.
    """
    silent = {name for name, method in METHODS.items() if method.at_whole and score == KL}
    if names is None:
        return tuple(name for name in METHODS if name not in silent)
    if unknown := [name for name in names if name not in METHODS]:
        raise ValueError(f"unknown method {unknown[0]!r}: choose of {', '.join(METHODS)}")
    if named := [name for name in names if name in silent]:
        raise ValueError(
            f"{named[0]} says nothing with the score kl, whose gradient at the whole model is 0: "
            "choose logprob or margin, or integrated gradients"
        )
    return tuple(name for name in METHODS if name in names)


def _steps(
    loaded: LoadedModel,
    texts: tuple[Text, ...],
    settings: Settings,
    chosen: tuple[str, ...],
    cancelled: Callable[[], bool],
) -> Iterator[Step]:
    live = Stack(loaded.model, loaded.family)
    words = tuple(tuple(token_texts(loaded.tokenizer, list(text.written))) for text in texts)
    result = Importance(live.n_layers, words, {}, settings.score, seed=settings.seed)
    clock = _Clock(chosen, settings.budget)
    copy: FloatCopy | None = None
    subject = Subject(texts, live, None, settings, cancelled)
    name, done = chosen[0] if chosen else "", 0.0
    try:
        for name in chosen:
            method, begin, done = METHODS[name], time.perf_counter(), 0.0
            if method.copies and copy is None:
                yield Step(name, "copying the model in float32", *clock.at(name, 0.0), result)
                copy = float_copy(loaded)
                subject = Subject(texts, live, copy, settings, cancelled)
                result = replace(result, copy_mb=copy.mb)
                begin = time.perf_counter()
            for part in method.run(subject):
                seconds, done = time.perf_counter() - begin, part.done
                result = replace(result, columns={**result.columns, **_timed(part, seconds)})
                message = f"{method.label}: {done:.0%}"
                yield Step(name, message, *clock.at(name, done), result)
    except CancelledError:
        yield Step(name, "stopped", *clock.at(name, done), result, cancelled=True)
    finally:
        del copy, subject


def _timed(part: Part, seconds: float) -> dict[str, Column]:
    complete = part.done >= 1
    return {
        name: replace(column, seconds=seconds, complete=complete)
        for name, column in part.columns.items()
    }


class _Clock:
    """How far all methods together are, and what the rest may take."""

    def __init__(self, chosen: Sequence[str], budget: float) -> None:
        self._begin = time.perf_counter()
        self._chosen, self._budget = tuple(chosen), budget
        self._work = {name: METHODS[name].work for name in chosen}

    def at(self, name: str, done: float) -> tuple[float, float | None]:
        """Share done and seconds left, when `name` is at `done`."""
        place = self._chosen.index(name) if name in self._chosen else 0
        elapsed = time.perf_counter() - self._begin
        shares = {
            other: 1.0 if i < place else done if i == place else 0.0
            for i, other in enumerate(self._chosen)
        }
        worked = sum((self._work[n] or 0.0) * share for n, share in shares.items())
        timed = sum(self._budget * share for n, share in shares.items() if self._work[n] is None)
        a_forward = max(elapsed - timed, 0.0) / worked if worked else None
        fixed = sum(self._budget for n in self._chosen if self._work[n] is None)
        units = sum(self._work[n] or 0.0 for n in self._chosen)
        if a_forward is None and units:
            return 0.0, None
        total = units * (a_forward or 0.0) + fixed
        left = max((units - worked) * (a_forward or 0.0) + fixed - timed, 0.0)
        return (1 - left / total if total else 1.0), left
