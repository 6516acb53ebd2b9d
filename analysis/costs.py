"""Costs measured on this device, and how well they foretell the speed of other plans."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from selfspec_core.cost import CostModel, fit, mean_slots
from selfspec_core.engine import Engine
from selfspec_core.events import Done, Round
from selfspec_core.measuring import Pass, measure, samples, settings, undisturbed
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request

from .confirm import Choice
from .plans import random_plans

_TRAINING_SEED = 7919  # added to the seed, so that no judged plan is among them


@dataclass(frozen=True)
class Judged:
    """A plan that the costs weren't fitted to, predicted and measured.

    Args:
        plan, k: what was decoded.
        predicted: tokens per second by the clock.
        measured: the same, of rounds as they are undisturbed, less what the machine loses to
            disturbance on average. A moment when something else ran changes neither.
        wall: tokens per second by the clock, whatever else was running just then.
        low, high: 95% interval of the prediction.
    """

    plan: SkipPlan
    k: int
    predicted: float
    measured: float
    wall: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """|predicted − measured| ÷ measured."""
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True)
class Costs:
    """What was found out.

    Args:
        model: the fitted costs.
        judged: other plans, predicted and measured; may be none.
    """

    model: CostModel
    judged: tuple[Judged, ...]

    @property
    def median_error(self) -> float | None:
        """Median relative error of the judged speeds."""
        return statistics.median(j.error for j in self.judged) if self.judged else None

    @property
    def worst_error(self) -> float | None:
        """Largest relative error of the judged speeds."""
        return max((j.error for j in self.judged), default=None)

    @property
    def clock_error(self) -> float | None:
        """Median relative error against the bare clock, with all that else was running."""
        errors = [abs(j.predicted - j.wall) / j.wall for j in self.judged]
        return statistics.median(errors) if errors else None


class Costing:
    """Measures costs; iterate for progress, then read `result`.

    Args:
        engine: warmed up.
        request: rule, sampling, seed, and tokens a judged text.
        prompts: of the judged texts, one a plan in turn.
        judged: how many random (plan, k) to predict and measure.
        passes: over everything, so that no setting meets only a busy moment.
        most: largest k.
        training: plans that costs are fitted to.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        prompts: Sequence[str] = (),
        *,
        judged: int = 0,
        passes: int = 4,
        most: int = 8,
        training: int = 12,
    ) -> None:
        self._engine, self._request, self._prompts = engine, request, prompts
        self._passes = passes
        source = random.Random(request.seed)
        plans = random_plans(engine.n_layers, judged, request.seed)
        self._choices = [Choice(plan, source.randint(1, most)) for plan in plans]
        self._texts: list[list[tuple[list[Round], Done]]] = [[] for _ in plans]
        self._lengths = [0] * len(plans)
        others = random_plans(engine.n_layers, training + judged, request.seed + _TRAINING_SEED)
        fitted = [plan for plan in others if plan not in plans][:training]
        self._settings = settings(engine, fitted, request.seed, most)
        self._measured: list[Pass] = []

    def run(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[Pass]:
        """Measure, yielding progress."""
        jobs = [self._decode_job(number) for number in range(len(self._choices))]
        for each in measure(
            self._engine,
            self._settings,
            self._request,
            passes=self._passes,
            extra=jobs,
            cancelled=cancelled,
        ):
            self._measured.append(each)
            yield each

    def result(self) -> Costs:
        """The fitted costs, and the judged plans if every one of them was decoded."""
        model = fit(
            samples(self._measured),
            self._engine.n_layers,
            multiple=self._engine.window_multiple,
        )
        return Costs(
            model,
            tuple(self._judge(model, number) for number, texts in enumerate(self._texts) if texts),
        )

    def _decode_job(self, number: int) -> Callable[[], object]:
        def decode() -> None:
            prompt = self._prompts[number % len(self._prompts)]
            request = self._choices[number].request(self._request, prompt)
            generated = self._engine.generate(request)
            rounds = [event for event in generated.events if isinstance(event, Round)]
            self._texts[number].append((rounds, generated.done))
            self._lengths[number] = len(generated.start.prompt_ids)

        return decode

    def _judge(self, model: CostModel, number: int) -> Judged:
        choice, texts = self._choices[number], self._texts[number]
        # Rounds that drafted alike take alike: each counts as what it takes undisturbed, which
        # is also what the costs are fitted to.
        alike: dict[int, list[float]] = defaultdict(list)
        for rounds, _ in texts:
            for r in rounds:
                alike[r.drafted].append((r.draft_ms + r.verify_ms + r.other_ms) / 1e3)
        seconds = sum(undisturbed(times) * len(times) / len(texts) for times in alike.values())
        end = texts[0][1]
        window = self._engine.window_for(choice.k)
        slots = mean_slots(self._lengths[number], len(end.tokens), window)
        speed = model.speed(choice.plan, choice.k, _Counts(end), slots)
        wall = statistics.fmean(done.seconds for _, done in texts)
        scale = speed.tokens_per_second / speed.speedup
        return Judged(
            choice.plan,
            choice.k,
            speed.tokens_per_second,
            len(end.tokens) / seconds / model.disturbed,
            len(end.tokens) / wall,
            speed.low * scale,
            speed.high * scale,
        )


@dataclass(frozen=True)
class _Counts:
    """A decoded text's counts, as the cost model asks for them."""

    end: Done

    @property
    def drafted(self) -> float:
        return self.end.drafted

    @property
    def rounds(self) -> float:
        return self.end.rounds

    @property
    def tokens(self) -> int:
        return len(self.end.tokens)
