"""What an engine learns of its own rounds: what drafts cost here, and how often they are kept.

Costs are kept as ratios to the forward of the same round's window: what slows the machine down
for a while slows both, so their ratio stays, and a round's times compare with an earlier one's.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Hashable, Mapping

import numpy as np

from .acceptance_record import AcceptanceRecord
from .cost import interpolate
from .plan import SkipPlan
from .policies import MAX_K, Outcome

HELD = 15
"""Rounds that a running median looks back on."""
FEW = 3
"""As long as fewer rounds were measured, a prediction stands in for the missing ones."""
PLANS = 256
"""Plans that are remembered; a search tries thousands."""
REST, REST_PER_DRAFT = 0.05, 0.02
"""Window forwards that a round's rest takes, and the rest of each draft, where nothing is known."""


def corners(n_layers: int) -> tuple[SkipPlan, SkipPlan, SkipPlan]:
    """Nothing skipped, all attention, all MLP: what these cost tells what any plan costs."""
    every = frozenset(range(n_layers))
    return SkipPlan(n_layers), SkipPlan(n_layers, every), SkipPlan(n_layers, mlp=every)


class Experience:
    """Running medians of costs, by execution mode and window; acceptance, by plan and law.

    One engine's, shared by all its requests.

    Args:
        n_layers: decoder layers of the model.
    """

    def __init__(self, n_layers: int) -> None:
        self._corners = corners(n_layers)
        self._costs: dict[tuple[str, int], _Costs] = {}
        self._records: dict[Hashable, AcceptanceRecord] = {}
        self._forwards: dict[str, list[tuple[int, float]]] = {}
        self._growths: dict[tuple[str, int, int], float] = {}

    def learn_rows(self, mode: str, forwards: Mapping[int, float]) -> None:
        """Take in what forwards of so many rows take, in milliseconds, measured in turns.

        Rounds without padding have windows of different rows; this makes them comparable.
        """
        self._forwards[mode] = sorted(forwards.items())
        self._growths.clear()

    def observe(
        self, plan: SkipPlan, outcome: Outcome, *, mode: str, window: int, slots: int
    ) -> None:
        """Take in the times of a round.

        Args:
            plan: that it drafted under.
            mode: how forwards are executed.
            window: fewest rows of its verification, padding included.
            slots: cache slots that attention read, a multiple of 128.
        """
        if outcome.window_ms > 0:
            costs = self._costs.setdefault((mode, window), _Costs())
            costs.observe(plan, slots, outcome, self._growth(mode, window, outcome.drafted))

    def times(
        self, plan: SkipPlan, most: int, *, mode: str, window: int, slots: int
    ) -> tuple[float, ...]:
        """What a round with 0, 1, …, `most` drafts takes, in forwards of the fewest rows.

        A plan, mode or window that wasn't met is predicted from those that were.
        """
        costs = self._nearest(mode, window)
        step = costs.step(plan, slots, self._predicted(plan, costs))
        return tuple(
            self._growth(mode, window, k) + k * step + rest
            for k, rest in enumerate(costs.rests(most))
        )

    def record(self, key: Hashable) -> AcceptanceRecord:
        """What is remembered of drafts made in this way (plan, rule, temperatures)."""
        record = self._records.pop(key, None) or AcceptanceRecord()
        self._records[key] = record  # the newest is the last
        if len(self._records) > PLANS:
            del self._records[next(iter(self._records))]
        return record

    def forget_texts(self) -> None:
        """Forget acceptance, keep costs: what a warm-up writes says nothing of real texts."""
        self._records.clear()

    def _growth(self, mode: str, window: int, drafts: int) -> float:
        """The forward of a round with so many drafts ÷ that of `window` rows."""
        forwards = self._forwards.get(mode)
        rows = max(window, drafts + 1)
        if forwards is None or rows == window:
            return 1.0
        if (key := (mode, window, rows)) not in self._growths:
            self._growths[key] = interpolate(forwards, rows) / interpolate(forwards, window)
        return self._growths[key]

    def _nearest(self, mode: str, window: int) -> _Costs:
        """The costs of this mode and window, else of a like one, else none."""
        if not self._costs:
            return _Costs()
        nearest = min(
            self._costs,
            key=lambda known: (known[0] != mode, abs(known[1] - window), -self._costs[known].seen),
        )
        return self._costs[nearest]

    def _predicted(self, plan: SkipPlan, costs: _Costs) -> float:
        """A draft step under a plan: the whole one's cost, less what the skipped branches cost."""
        whole, no_attention, no_mlp = self._corners
        known = [costs.measured(corner) for corner in (whole, no_attention, no_mlp)]
        if None in known:
            return 1 - plan.share
        full, bare_attention, bare_mlp = (float(ratio or 0.0) for ratio in known)
        saved = (full - bare_attention) * len(plan.attention) + (full - bare_mlp) * len(plan.mlp)
        return max(full - saved / plan.n_layers, 0.0)


class _Ratios:
    """A running median, worked out once for each new ratio: it is asked for every round."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=HELD)
        self._median: float | None = None

    def append(self, ratio: float) -> None:
        self._last.append(ratio)
        self._median = None

    def median(self) -> float:
        if self._median is None:
            self._median = statistics.median(self._last)
        return self._median

    def median_with(self, predicted: float) -> float:
        """With a prediction in place of the ratios that are still missing."""
        missing = FEW - len(self._last)
        if missing <= 0:
            return self.median()
        return statistics.median([*self._last, *[predicted] * missing])


class _Costs:
    """Ratios to the window's forward: of a draft step by plan and slots, of the rest by k."""

    def __init__(self) -> None:
        self.seen = 0
        self._steps: dict[SkipPlan, dict[int, _Ratios]] = defaultdict(dict)
        self._rests: dict[int, _Ratios] = {}

    def observe(self, plan: SkipPlan, slots: int, outcome: Outcome, growth: float) -> None:
        self.seen += 1
        k, window = outcome.drafted, outcome.window_ms / growth
        if k:
            if len(self._steps) >= PLANS and plan not in self._steps:
                ends = corners(plan.n_layers)
                del self._steps[next(known for known in self._steps if known not in ends)]
            steps = self._steps[plan].setdefault(slots, _Ratios())
            steps.append(outcome.draft_ms / k / window)
        rest = outcome.verify_ms - outcome.window_ms + outcome.other_ms
        self._rests.setdefault(k, _Ratios()).append(rest / window)

    def measured(self, plan: SkipPlan) -> float | None:
        """A draft step under a plan, at the fewest slots; None where never met."""
        ratios = self._nearest(plan, 0)
        return None if ratios is None else ratios.median()

    def step(self, plan: SkipPlan, slots: int, predicted: float) -> float:
        """A draft step, measured, or predicted as long as it hardly was."""
        return (self._nearest(plan, slots) or _Ratios()).median_with(predicted)

    def _nearest(self, plan: SkipPlan, slots: int) -> _Ratios | None:
        """What was measured of a plan at the nearest number of slots; None where never met."""
        by_slots = self._steps.get(plan)
        return by_slots[min(by_slots, key=lambda known: abs(known - slots))] if by_slots else None

    def rests(self, most: int) -> list[float]:
        """What a round with 0, 1, …, `most` drafts takes beside its forwards.

        In proportion between two numbers of drafts that were met; beyond them, less and more by
        the usual rest of a draft.
        """
        known = {k: ratios.median() for k, ratios in self._rests.items()} or {0: REST}
        fewest, highest = min(known), max(known)
        known.setdefault(0, max(known[fewest] - REST_PER_DRAFT * fewest, 0.0))
        known.setdefault(MAX_K, known[highest] + REST_PER_DRAFT * (MAX_K - highest))
        ks = sorted(known)
        rests: list[float] = np.interp(range(most + 1), ks, [known[k] for k in ks]).tolist()
        return rests
