"""The whole search: cheap guesses first, then the methods that learn, in one time budget."""

from __future__ import annotations

from collections.abc import Iterator

from selfspec_core.plan import PRESETS, SkipPlan

from .clasp import clasp_plans
from .search import (
    Deadline,
    Objective,
    Step,
    beam,
    calibrate,
    each_of,
    greedy,
    middle_plans,
    random_search,
)
from .search_optuna import Study

METHODS = ("all", "clasp", "greedy", "beam", "tpe", "nsga2", "random")

_BEAM_SHARE = 0.5  # of the time that is left when it begins
_CALIBRATED = 3  # plans whose draft temperature is chosen at the end


def search(
    objective: Objective, deadline: Deadline, *, method: str = "all", study: Study, seed: int = 0
) -> Iterator[tuple[str, Step]]:
    """Search with one method, or with all of them one after the other.

    Args:
        objective: scores plans, and remembers them.
        deadline: the time budget.
        method: one of `METHODS`.
        study: keeps what is scored; begun earlier, it goes on from there.
        seed: of what is drawn.

    Yields:
        the method at work and its step.

    Raises:
        ValueError: unknown method.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    everything = method == "all"
    if everything:
        guesses = [*middle_plans(objective.n_layers).values(), *_presets(objective.n_layers)]
        yield from _named("guess", each_of(objective, deadline, guesses))
    if method in ("all", "clasp"):
        most = max(1, objective.n_layers * 2 // 3)
        plans = clasp_plans(objective.predictor.reference, min(most, objective.n_layers - 1))
        yield from _named("clasp", each_of(objective, deadline, plans))
    if method == "greedy":
        yield from _named("greedy", greedy(objective, deadline))
    if method in ("all", "beam"):
        until = Deadline.after(deadline.left * (_BEAM_SHARE if everything else 1))
        until = Deadline(until.end, deadline.cancelled)
        yield from _named("beam", beam(objective, until))
    temperature = objective.predictor.request.sampling.temperature
    if method in ("all", "tpe"):
        share = 0.8 if everything and temperature else 1.0
        until = Deadline.after(deadline.left * share)
        yield from _named("tpe", study.tpe(Deadline(until.end, deadline.cancelled), seed=seed))
    if method == "nsga2":
        yield from _named("nsga2", study.nsga2(deadline, seed=seed))
    if method == "random":
        yield from _named("random", random_search(objective, deadline, seed=seed))
    if everything:
        top = [scored.choice for scored in objective.ranked()[:_CALIBRATED]]
        yield from _named("calibration", calibrate(objective, deadline, top))


def _presets(n_layers: int) -> list[SkipPlan]:
    return [SkipPlan.preset(name, n_layers) for name in PRESETS if name != "none"]


def _named(name: str, steps: Iterator[Step]) -> Iterator[tuple[str, Step]]:
    for step in steps:
        yield name, step
