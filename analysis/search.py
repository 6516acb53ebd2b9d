"""The search for the plan and k with the highest predicted speed under measured costs.

`Objective` scores a plan without decoding and remembers it; the methods here and in
`search_optuna` only differ in which plan they ask for next. Each is a generator of `Step`s, so
that whoever iterates sees the best so far and may stop at any time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from selfspec_core.cost import CostModel, mean_slots
from selfspec_core.plan import SkipPlan

from .acceptance import Predictor, Table, Walked
from .confirm import Choice
from .plans import KEPT_FIRST, KEPT_LAST, random_plan

_HOPELESS = 0.85  # of the best so far: a plan that screens below this isn't scored in full

_SHALLOW = 4  # drafts longer than this are looked at where this long ones are the best


@dataclass(frozen=True)
class Scored:
    """A plan as predicted.

    Args:
        choice: the plan, the best k of at least 1, and the draft's temperature.
        alpha, tau: at that k.
        speedup, low, high: against the fastest plain decoding, with the 95% interval.
        draft_ms: what a draft step costs.
        full: False where only a part of the texts was looked at, since it was hopeless.
        tokens_per_second: by the clock.
    """

    choice: Choice
    alpha: float
    tau: float
    speedup: float
    low: float
    high: float
    draft_ms: float
    full: bool = True
    tokens_per_second: float = 0.0


@dataclass(frozen=True)
class Step:
    """One plan looked at.

    Args:
        best: of all that were scored in full; None before the first.
        scored: this one.
        trials: scored so far by this objective, pruned ones too.
        seconds_left: of the budget.
    """

    best: Scored | None
    scored: Scored
    trials: int
    seconds_left: float


@dataclass(frozen=True)
class Deadline:
    """A time budget: `seconds` from when it is made, and a way to stop earlier."""

    end: float
    cancelled: Callable[[], bool] = lambda: False

    @classmethod
    def after(cls, seconds: float, cancelled: Callable[[], bool] = lambda: False) -> Deadline:
        """So many seconds from now."""
        return cls(time.perf_counter() + seconds, cancelled)

    @property
    def left(self) -> float:
        """Seconds, 0 at least."""
        return 0.0 if self.cancelled() else max(0.0, self.end - time.perf_counter())


Counts = Mapping[int, Walked]
"""k → what decoding the reference texts with k drafts would count."""


class Objective:
    """Predicted speed of plans over one reference.

    Args:
        predictor: of the calibration texts.
        costs: of this device.
        screen: of a few of the texts; hopeless plans are dropped after these.
        most: largest k.
        batch: plans that `score_all` runs in one forward; None is 8 on a GPU and 1 on a CPU,
            where a forward takes as long as its rows.
    """

    def __init__(
        self,
        predictor: Predictor,
        costs: CostModel,
        *,
        screen: Predictor | None = None,
        most: int = 8,
        batch: int | None = None,
    ) -> None:
        self.predictor, self.costs, self.most = predictor, costs, most
        self._screen = screen
        self._batch = batch or (8 if predictor.reference.final.is_cuda else 1)
        self._tables: dict[tuple[SkipPlan, int], Table] = {}  # made ahead, of `predictor`
        texts = predictor.reference.texts
        slots = [mean_slots(len(t.prompt_ids), len(t.written), 4) for t in texts]
        self.slots = sum(slots) / len(slots)
        self.scores: dict[tuple[SkipPlan, float | None], Scored] = {}
        self.best: Scored | None = None
        self.on_scored: Callable[[Scored, Counts], None] = lambda _scored, _counts: None
        """Called with every plan newly scored in full (the storage keeps it)."""

    @property
    def n_layers(self) -> int:
        """Decoder layers of the model."""
        return self.costs.n_layers

    def score(self, plan: SkipPlan, draft_temperature: float | None = None) -> Scored:
        """Score a plan, unless it was; a hopeless one on a part of the texts."""
        key = (plan, draft_temperature)
        if key not in self.scores:
            ahead = draft_temperature is None and (plan, min(_SHALLOW, self.most)) in self._tables
            if self._screen is not None and self.best is not None and not ahead:
                first = self._scored(plan, draft_temperature, self._screen, full=False)[0]
                if first.speedup < _HOPELESS * self.best.speedup:
                    self.scores[key] = first
                    return first
            scored, counts = self._scored(plan, draft_temperature, self.predictor, full=True)
            self._take(key, scored)
            self.on_scored(scored, counts)
        return self.scores[key]

    def at(self, choice: Choice) -> Scored:
        """A choice with its own k, be it the best or not; it isn't remembered."""
        table = self.predictor.table(
            choice.plan, depth=choice.k, draft_temperature=choice.draft_temperature
        )
        counts = {choice.k: table.walk(choice.k)}
        return self._of(choice.plan, choice.draft_temperature, counts, full=True)

    def score_all(self, plans: Sequence[SkipPlan], deadline: Deadline) -> Iterator[Scored]:
        """Score plans in order while there is time, several of them in one forward."""
        for begin in range(0, len(plans), self._batch):
            chunk = plans[begin : begin + self._batch]
            if not deadline.left:
                return
            self._make_tables([plan for plan in chunk if (plan, None) not in self.scores])
            for plan in chunk:
                if not deadline.left:
                    return
                yield self.score(plan)

    def remember(self, choice: Choice, counts: Counts) -> Scored:
        """Take a plan scored earlier or elsewhere, under the costs of this device."""
        scored = self._of(choice.plan, choice.draft_temperature, counts, full=True)
        self._take((choice.plan, choice.draft_temperature), scored)
        return scored

    def ranked(self) -> list[Scored]:
        """Everything scored in full, fastest first."""
        full = [scored for scored in self.scores.values() if scored.full]
        return sorted(full, key=lambda scored: -scored.speedup)

    def step(self, scored: Scored, deadline: Deadline) -> Step:
        """What to tell of a score."""
        return Step(self.best, scored, len(self.scores), deadline.left)

    def _make_tables(self, plans: Sequence[SkipPlan]) -> None:
        self._tables.clear()
        if len(plans) > 1:
            depth = min(_SHALLOW, self.most)
            tables = self.predictor.tables(plans, depth=depth)
            self._tables = {(plan, depth): t for plan, t in zip(plans, tables, strict=True)}

    def _take(self, key: tuple[SkipPlan, float | None], scored: Scored) -> None:
        self.scores[key] = scored
        if self.best is None or scored.speedup > self.best.speedup:
            self.best = scored

    def _scored(
        self, plan: SkipPlan, draft_temperature: float | None, predictor: Predictor, *, full: bool
    ) -> tuple[Scored, Counts]:
        for depth in sorted({min(_SHALLOW, self.most), self.most}):
            table = self._tables.get((plan, depth)) if full and draft_temperature is None else None
            if table is None:
                table = predictor.table(plan, depth=depth, draft_temperature=draft_temperature)
            counts = {k: table.walk(k) for k in range(1, depth + 1)}
            scored = self._of(plan, draft_temperature, counts, full=full)
            if scored.choice.k < depth:
                break  # longer drafts gain nothing
        return scored, counts

    def _of(
        self, plan: SkipPlan, draft_temperature: float | None, counts: Counts, *, full: bool
    ) -> Scored:
        speeds = [self.costs.speed(plan, k, counts[k], self.slots) for k in counts]
        best = max(speeds, key=lambda speed: speed.speedup)
        walked = counts[best.k]
        return Scored(
            Choice(plan, best.k, draft_temperature),
            walked.alpha,
            walked.tau,
            best.speedup,
            best.low,
            best.high,
            self.costs.draft_ms(plan, self.slots),
            full,
            best.tokens_per_second,
        )


def pareto(scored: Iterable[Scored]) -> list[Scored]:
    """Those that no other beats in both α and cost of a draft step, cheapest first."""
    front: list[Scored] = []
    for each in sorted(scored, key=lambda s: (s.draft_ms, -s.alpha)):
        if not front or each.alpha > front[-1].alpha:
            front.append(each)
    return front


# -- methods ---------------------------------------------------------------------------------


def greedy(objective: Objective, deadline: Deadline, *, width: int = 10) -> Iterator[Step]:
    """Greedy removal: `beam` with one plan kept."""
    yield from beam(objective, deadline, kept=1, width=width)


def beam(
    objective: Objective,
    deadline: Deadline,
    *,
    kept: int = 3,
    width: int = 8,
    patience: int = 3,
) -> Iterator[Step]:
    """Remove one more branch a level, from each of the best plans of the level before.

    Every branch is dropped alone first. After that a plan is only extended by the `width`
    branches that cost least alone and that it still has.

    Args:
        kept: plans that go on to the next level.
        patience: levels without a better plan before it ends.
    """
    empty = SkipPlan(objective.n_layers)
    if objective.n_layers == 1:
        return
    last = objective.n_layers - KEPT_LAST
    layers = sorted(range(objective.n_layers), key=lambda i: not KEPT_FIRST <= i < last)
    branches = [(kind, layer) for layer in layers for kind in ("attention", "mlp")]
    alone: list[tuple[float, tuple[str, int]]] = []
    plans = [empty.toggled(*branch) for branch in branches]
    for branch, scored in zip(branches, objective.score_all(plans, deadline), strict=False):
        alone.append((scored.speedup, branch))
        yield objective.step(scored, deadline)
    if len(alone) < len(branches):
        return
    ranked = [branch for _, branch in sorted(alone, key=lambda each: -each[0])]
    level = [empty.toggled(*branch) for branch in ranked[:kept]]
    best, stale = float("-inf"), 0
    while level and stale < patience:
        wider: dict[SkipPlan, None] = {}
        for plan in level if level[0].n_skipped + 2 < 2 * objective.n_layers else ():
            present = [branch for branch in ranked if not plan.skips(*branch)][:width]
            wider |= dict.fromkeys(plan.toggled(*branch) for branch in present)
        scores: dict[SkipPlan, float] = {}
        for scored in objective.score_all(list(wider), deadline):
            scores[scored.choice.plan] = scored.speedup
            yield objective.step(scored, deadline)
        if len(scores) < len(wider):
            return
        level = sorted(scores, key=lambda plan: -scores[plan])[:kept]
        top = scores[level[0]] if level else best
        best, stale = (top, 0) if top > best else (best, stale + 1)


def each_of(objective: Objective, deadline: Deadline, plans: Iterable[SkipPlan]) -> Iterator[Step]:
    """Score given plans, in order."""
    for scored in objective.score_all(list(plans), deadline):
        yield objective.step(scored, deadline)


def random_search(objective: Objective, deadline: Deadline, *, seed: int) -> Iterator[Step]:
    """Score random plans until the time is up: what every other method has to beat."""
    source = random.Random(seed)
    while deadline.left:
        plan = random_plan(objective.n_layers, source, most=0.6)
        yield objective.step(objective.score(plan), deadline)


def calibrate(
    objective: Objective,
    deadline: Deadline,
    choices: Sequence[Choice],
    shares: Sequence[float] = (0.5, 0.7, 0.85, 1.15, 1.3),
) -> Iterator[Step]:
    """Try draft temperatures, as shares of the text's, on plans (design §3).

    At temperature 0 there is nothing to choose.
    """
    temperature = objective.predictor.request.sampling.temperature
    for choice in choices if temperature else ():
        for share in shares:
            if not deadline.left:
                return
            scored = objective.score(choice.plan, round(share * temperature, 4))
            yield objective.step(scored, deadline)


def middle_plans(n_layers: int, shares: Sequence[float] = (0.3, 0.4, 0.5)) -> dict[str, SkipPlan]:
    """The common rule: skip the middle layers, at these shares."""
    most = max(n_layers - 3, 0) / n_layers
    return {
        f"middle {share:.0%}": SkipPlan.from_ratio(min(share, most), n_layers) for share in shares
    }
