"""The Tune panel's search: `analysis.finding` in slices, then real decoding of what it chose."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import SkipPlan

from . import tune_plans, tune_studies
from .tune_feed import Patch, Progress, TuneError, rounded, said
from .tune_jobs import Jobs, costs_patch
from .tune_subject import SLICE, Asked, Cancelled, Subject, confirmed

if TYPE_CHECKING:
    from analysis.confirm import Measured
    from analysis.search import Objective, Scored

STRATEGIES = ("all", "clasp", "greedy", "beam", "tpe", "nsga2", "random")
"""As `analysis.finding.METHODS`, which isn't imported before the model is: it pulls in torch."""
_TOLD_SECONDS = 0.5
_FINALISTS = 3
_SEEN = 3  # prompts that the finalists are decoded on
MINE = "mine"


@dataclass(frozen=True, kw_only=True)
class Search:
    """What to search.

    Args:
        study: the browser's id of it.
        strategy: one of `STRATEGIES`.
        seconds: the budget; preparing and confirming come on top.
        mine: the plan's text in Decode, decoded beside what is found.
    """

    study: str
    strategy: str
    seconds: int
    mine: str


def search_job(jobs: Jobs, asked: Asked, wanted: Search, cancelled: Cancelled) -> Iterator[Any]:
    """Search, tell what is found as it is found, confirm the best by decoding.

    Raises:
        TuneError: unknown strategy, or a study that can't be kept.
    """
    if wanted.strategy not in STRATEGIES:
        raise TuneError("tune.error.strategy")
    path = tune_studies.path_of(wanted.study)
    subject = yield from jobs.subjects.prepared(asked, cancelled)
    yield costs_patch(subject.costs)
    # Figures are of fixed drafting to the end, whatever Decode stops at.
    searched = replace(asked.settings, draft_policy="fixed", confidence=0.0, stop="")
    yield Patch({"at": replace(asked, settings=searched).terms(subject.engine)})
    objective = subject.fresh_objective()
    yield from _searched(subject, objective, wanted, path, cancelled)
    finalists = _useful(objective)[:_FINALISTS]
    if not finalists:
        raise TuneError("tune.error.too_short")
    yield from _confirm(subject, finalists, wanted.mine, cancelled)


def _useful(objective: Objective) -> list[Scored]:
    """What was scored in full, fastest first; a draft that is the whole model saves nothing."""
    return [scored for scored in objective.ranked() if scored.choice.plan.n_skipped]


def _searched(
    subject: Subject, objective: Objective, wanted: Search, path: Path, cancelled: Cancelled
) -> Iterator[Any]:
    from analysis.finding import search
    from analysis.search import Deadline, pareto
    from analysis.search_optuna import Study

    yield Progress("tune.step.study")
    weights = subject.engine.loaded.info.weights_hash
    study = Study(objective, subject.request, weights, str(path))
    yield Patch({"known": study.known, "full": False})
    deadline = Deadline.after(wanted.seconds, cancelled)
    seed, told = subject.request.seed, 0.0

    def found() -> Patch:
        ranked = _useful(objective)
        data = tune_plans.front_of(ranked, pareto(ranked))
        best = tune_plans.point(ranked[0]) if ranked else None
        return Patch({**data, "best": best, "trials": len(objective.scores)})

    for name, step in search(objective, deadline, method=wanted.strategy, study=study, seed=seed):
        if time.monotonic() < told + _TOLD_SECONDS:
            yield SLICE
            continue
        told = time.monotonic()
        yield found()
        args = {"strategy": said(f"tune.strategy.{name}"), "trials": step.trials}
        done = 1 - deadline.left / wanted.seconds
        yield Progress("tune.step.search", args, done, deadline.left)
        if tune_studies.is_full(path):
            yield Patch({"full": True})
            break
    yield found()


def _confirm(
    subject: Subject, ranked: Sequence[Scored], mine: str, cancelled: Cancelled
) -> Iterator[Any]:
    """Decode the best few on prompts they were chosen by, and the best of these on others."""
    from analysis.confirm import Choice

    finalists = {str(number): scored for number, scored in enumerate(ranked)}
    choices = {name: scored.choice for name, scored in finalists.items()}
    seen = yield from confirmed(
        subject.engine,
        subject.request,
        choices,
        subject.seen[:_SEEN],
        cancelled,
        "tune.step.finalists",
    )
    winner = max(finalists, key=lambda name: seen[name].speedup)
    chosen = {winner: choices[winner]}
    own = _own(mine, subject.engine.n_layers)
    if own is not None and own != choices[winner].plan:
        chosen[MINE] = Choice(own, max(1, subject.request.k))
    unseen = yield from _unseen(subject, chosen, cancelled)
    yield Patch({"confirmed": _told(finalists[winner], seen[winner], unseen[winner])})
    if MINE in unseen:
        row = {"plan": str(own), "k": chosen[MINE].k, "share": rounded(chosen[MINE].plan.share)}
        yield Patch({"mine": row | tune_plans.measured_point(unseen[MINE])})


def _unseen(
    subject: Subject, chosen: dict[str, Any], cancelled: Cancelled
) -> Generator[Any, None, dict[str, Measured]]:
    found = yield from confirmed(
        subject.engine,
        subject.request,
        chosen,
        subject.unseen,
        cancelled,
        "tune.step.confirming",
    )
    return found


def _told(predicted: Scored, seen: Measured, unseen: Measured) -> dict[str, Any]:
    """The choice with what was predicted and measured, and what it comes to."""
    return {
        "verdict": verdict(seen, unseen),
        "predicted": tune_plans.point(predicted),
        "seen": tune_plans.measured_point(seen),
        "unseen": tune_plans.measured_point(unseen),
    }


def verdict(seen: Measured, unseen: Measured) -> dict[str, Any]:
    """What measuring the choice comes to: a key of the dictionary and its arguments.

    Args:
        seen: against plain decoding, on the prompts by which it was chosen.
        unseen: on prompts that the search never saw; only these can say that it pays.
    """
    low, high = unseen.interval
    if unseen.speedup <= 1:
        name = "plain"
    elif seen.speedup <= 1:
        name = "mixed"
    else:
        name = "pays" if low > 1 else "perhaps"
    args = {"times": rounded(unseen.speedup), "low": rounded(low), "high": rounded(high)}
    return said(f"tune.verdict.{name}", **args)


def _own(text: str, n_layers: int) -> SkipPlan | None:
    """The plan in Decode, if it is one that drafts with less than the whole model."""
    try:
        plan = tune_plans.single(text, n_layers)[0]
    except TuneError:
        return None
    return plan if plan.n_skipped else None
