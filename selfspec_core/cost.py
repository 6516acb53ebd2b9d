"""Measured costs → predicted speed: what a round costs, and which k pays (design §2).

A round is k draft steps, one window of W rows and the rest. A draft step costs a fixed part
(embedding, readout, law, Python) and so much for every attention and every MLP branch that
the draft keeps; attention costs more the more slots of the cache it reads. The numbers are
fitted to `Sample`s that `measuring` takes on the device. No model is touched here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .cache import BUCKET, round_up
from .plan import SkipPlan
from .runtime import WINDOW_MULTIPLE


class Counted(Protocol):
    """What decoding some texts counts, measured or predicted."""

    @property
    def drafted(self) -> float:
        """Draft tokens."""

    @property
    def rounds(self) -> float:
        """Verification forwards."""

    @property
    def tokens(self) -> int:
        """Tokens written."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The measured times of one setting, of a few rounds, in milliseconds.

    Args:
        attention, mlp: branches that the draft keeps.
        k: drafts a round; 0 is plain decoding.
        window: rows W of the verification.
        slots: cache slots that attention reads, a multiple of 128.
        committed: mean tokens a round.
        draft_ms, verify_ms, other_ms: of a round, on an undisturbed machine.
        clock_ms: of a whole round, by the clock, whatever else was running; 0 where it isn't
            known.
    """

    attention: int
    mlp: int
    k: int
    window: int
    slots: int
    committed: float
    draft_ms: float
    verify_ms: float
    other_ms: float
    clock_ms: float = 0.0


@dataclass(frozen=True)
class Speed:
    """A predicted speed.

    Args:
        k: drafts a round; 0 where plain decoding is fastest.
        tokens_per_second: of the rounds, prefill not counted, by the clock.
        speedup: against the fastest plain decoding.
        low, high: the speed-up's 95% interval, from the scatter of the measured times.
    """

    k: int
    tokens_per_second: float
    speedup: float
    low: float
    high: float

    @property
    def pays(self) -> bool:
        """Whether drafting is predicted to gain anything."""
        return self.k > 0 and self.speedup > 1


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """What things cost on one device, in milliseconds.

    Args:
        n_layers: decoder layers of the model.
        draft: a round's drafting, and for each draft: the fixed part, an attention branch, an
            MLP branch, and an attention branch's next 128 slots.
        windows: (W, a window of W rows with 128 slots), ascending.
        slots: a window's next 128 slots.
        law: a draft's law in the verification.
        other: a round's rest, for each draft, and for each committed token.
        spread: relative standard deviation of a draft's, a window's and the rest's times.
        disturbed: how much longer things take by the clock than undisturbed, as everything else
            here counts them: what other processes took while it was measured.
        multiple: what a window's rows are a multiple of; 1 where there is no padding.
    """

    n_layers: int
    draft: tuple[float, float, float, float, float]
    windows: tuple[tuple[int, float], ...]
    slots: float
    law: float
    other: tuple[float, float, float]
    spread: tuple[float, float, float]
    disturbed: float = 1.0
    multiple: int = WINDOW_MULTIPLE

    def draft_ms(self, plan: SkipPlan, slots: float = BUCKET) -> float:
        """One draft step under a plan, reading so many slots."""
        _, fixed, attention, mlp, further = self.draft
        kept = self.n_layers - len(plan.attention)
        each = attention + further * (slots / BUCKET - 1)
        return fixed + kept * each + (self.n_layers - len(plan.mlp)) * mlp

    def window_ms(self, window: int, slots: float = BUCKET) -> float:
        """One forward of W rows; between the measured widths by interpolation."""
        return interpolate(self.windows, window) + self.slots * (slots / BUCKET - 1)

    def plain(self, slots: float = BUCKET) -> tuple[int, float]:
        """The fastest plain decoding: (its rows, milliseconds a token)."""
        rest = self.other[0] + self.other[2]
        return min(
            ((w, self.window_ms(w, slots) + rest) for w, _ in self.windows),
            key=lambda each: each[1],
        )

    def plain_speed(self, slots: float = BUCKET) -> float:
        """Tokens per second of the fastest plain decoding, by the clock."""
        return 1e3 / self.plain(slots)[1] / self.disturbed

    def parts_ms(
        self, plan: SkipPlan, k: int, counts: Counted, slots: float = BUCKET
    ) -> tuple[float, float, float]:
        """Milliseconds of drafting, of verifying and of the rest, for a whole text."""
        window = round_up(k + 1, self.multiple)
        start, per_draft, per_token = self.other
        return (
            (self.draft[0] * counts.rounds if k else 0.0)
            + self.draft_ms(plan, slots) * counts.drafted,
            self.window_ms(window, slots) * counts.rounds + self.law * counts.drafted,
            start * counts.rounds + per_draft * counts.drafted + per_token * counts.tokens,
        )

    def speed(self, plan: SkipPlan, k: int, counts: Counted, slots: float = BUCKET) -> Speed:
        """Predicted speed of drafting k under a plan, for counts measured or predicted."""
        parts = self.parts_ms(plan, k, counts, slots)
        total = sum(parts)
        plain = self.plain(slots)[1]
        deviation = math.hypot(*(p * s / total for p, s in zip(parts, self.spread, strict=True)))
        deviation = math.hypot(deviation, self.spread[1])  # plain decoding is a window too
        speedup = counts.tokens * plain / total
        reach = math.exp(1.96 * deviation)
        clock = counts.tokens / total * 1e3 / self.disturbed
        return Speed(k, clock, speedup, speedup / reach, speedup * reach)

    def best(
        self,
        plan: SkipPlan,
        walk: Callable[[int], Counted],
        ks: Iterable[int],
        slots: float = BUCKET,
    ) -> Speed:
        """The k with the highest predicted speed; k 0 and a speed-up of 1 where none pays.

        Args:
            walk: k → what decoding with k drafts would count.
            ks: to choose from.
        """
        plain = self.plain_speed(slots)
        speeds = [self.speed(plan, k, walk(k), slots) for k in ks if k > 0]
        return max([Speed(0, plain, 1.0, 1.0, 1.0), *speeds], key=lambda each: each.speedup)

    def sentence(self) -> str:
        """The costs in words."""
        rows, _ = self.plain()
        return (
            f"a draft step costs {self.draft[1]:.1f} ms, and {self.draft[2]:.2f} ms for each "
            f"attention and {self.draft[3]:.2f} ms for each MLP that it keeps; a window costs "
            + ", ".join(f"{ms:.1f} ms ({w} rows)" for w, ms in self.windows)
            + f"; plain decoding is fastest with {rows} rows, {self.plain_speed():.1f} tokens/s"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CostModel:
        """Back from `to_dict`, also by way of JSON."""
        pairs = tuple((int(w), float(ms)) for w, ms in data["windows"])
        lists = {name: tuple(data[name]) for name in ("draft", "other", "spread")}
        return cls(**{**data, **lists, "windows": pairs})


def fit(samples: Sequence[Sample], n_layers: int, *, multiple: int = WINDOW_MULTIPLE) -> CostModel:
    """Fit the costs: least squares of relative errors, outliers weighted down (Huber 1964).

    No cost is negative: what would be is 0. Windows are measured at the widths of plain
    decoding, and between these by interpolation.

    Args:
        samples: of plain decoding and of rounds with drafts.
        n_layers: decoder layers of the model.
        multiple: what a window's rows are a multiple of.

    Raises:
        ValueError: no sample of plain decoding, or none with drafts.
    """
    drafting = [s for s in samples if s.k]
    if not drafting or len(drafting) == len(samples):
        raise ValueError("costs are fitted to rounds with drafts and to plain decoding: need both")
    further = [s.slots / BUCKET - 1 for s in samples]
    widths = sorted({s.window for s in samples if not s.k})
    draft, draft_spread = _solve(
        [[1, s.k, s.k * s.attention, s.k * s.mlp, s.k * s.attention * (s.slots / BUCKET - 1)]
         for s in drafting],
        [s.draft_ms for s in drafting],
    )  # fmt: skip
    verify, verify_spread = _solve(
        [[*_between(widths, s.window), more, s.k]
         for s, more in zip(samples, further, strict=True)],
        [s.verify_ms for s in samples],
    )  # fmt: skip
    other, other_spread = _solve(
        [[1, s.k, s.committed] for s in samples], [s.other_ms for s in samples]
    )
    return CostModel(
        n_layers=n_layers,
        draft=(draft[0], draft[1], draft[2], draft[3], draft[4]),
        windows=tuple(zip(widths, verify, strict=False)),
        slots=verify[-2],
        law=verify[-1],
        other=(other[0], other[1], other[2]),
        spread=(draft_spread, verify_spread, other_spread),
        disturbed=_disturbed(samples),
        multiple=multiple,
    )


def _disturbed(samples: Sequence[Sample]) -> float:
    """Time by the clock ÷ undisturbed time, the median of those samples that know both."""
    shares = [
        s.clock_ms / (s.draft_ms + s.verify_ms + s.other_ms) for s in samples if s.clock_ms > 0
    ]
    return max(1.0, statistics.median(shares)) if shares else 1.0


def mean_slots(prompt: int, written: int, window: int) -> float:
    """Slots that attention reads on average while `written` tokens follow `prompt` ones."""
    ends = range(prompt, prompt + max(written, 1))
    return sum(round_up(end + window, BUCKET) for end in ends) / len(ends)


def _solve(rows: Sequence[Sequence[float]], times: Sequence[float]) -> tuple[list[float], float]:
    """Non-negative coefficients of rows [N, F] for times [N], and the relative scatter."""
    y = torch.tensor(times, dtype=torch.float64).clamp(min=1e-6)
    x = torch.tensor(rows, dtype=torch.float64) / y[:, None]  # relative: every target is 1
    weights, scatter = torch.ones_like(y), 0.0
    coefficients = torch.zeros(x.shape[1], dtype=torch.float64)
    for _ in range(20):
        coefficients = _non_negative(x * weights[:, None].sqrt(), weights.sqrt())
        errors = x @ coefficients - 1
        scatter = float(1.4826 * errors.abs().median())
        weights = (1.345 * max(scatter, 1e-9) / errors.abs().clamp(min=1e-12)).clamp(max=1)
    return coefficients.tolist(), scatter


def _non_negative(x: Tensor, y: Tensor) -> Tensor:
    """Least squares over [N, F], leaving out columns one by one while a coefficient is below 0."""
    kept = [i for i in range(x.shape[1]) if bool(x[:, i].abs().sum() > 0)]
    while True:
        part: Tensor = torch.linalg.lstsq(x[:, kept], y[:, None], driver="gelsd").solution[:, 0]
        lowest = int(part.argmin())
        if len(kept) == 1 or part[lowest] >= 0:
            break
        del kept[lowest]
    whole = torch.zeros(x.shape[1], dtype=torch.float64)
    whole[kept] = part.clamp(min=0)
    return whole


def _between(points: Sequence[int], at: int) -> list[float]:
    """The points' shares in what `interpolate` gives there."""
    if at > points[-1]:
        raise ValueError(f"windows of {at} rows, and plain decoding was timed up to {points[-1]}")
    return [interpolate([(x, float(x == p)) for x in points], at) for p in points]


def interpolate(points: Sequence[tuple[int, float]], at: int) -> float:
    """Linear between the points, and on past the last two; as the first below it."""
    if at <= points[0][0] or len(points) == 1:
        return points[0][1]
    right = next((i for i, (x, _) in enumerate(points) if x >= at), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return max(y0 + (y1 - y0) * (at - x0) / (x1 - x0), 0.0)
