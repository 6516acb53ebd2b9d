"""Plans of the Tune panel: from importance, by length, and as the page's charts take them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import LengthSchedule, PlanError, SkipPlan, parse_plan

from . import errors
from .tune_feed import TuneError, rounded

if TYPE_CHECKING:
    from analysis.confirm import Measured
    from analysis.search import Scored

MAX_PLAN_TEXT = 10_000
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Skipped shares of the ratio sweep."""
_FRONT, _CLOUD = 60, 240  # points that a chart of the search shows


def least_important(values: Sequence[float | None], share: float) -> SkipPlan:
    """The plan that skips about a share of the branches, the least important first.

    Args:
        values: [2L] importance in the order attention 0, MLP 0, attention 1, …; None or NaN
            where a method says nothing: such a branch is kept.
        share: 0 to 1; at least one branch stays.

    Raises:
        TuneError: no branch has a value.
    """
    n_layers = len(values) // 2
    known = [i for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    if not known:
        raise TuneError("tune.error.no_importance")
    count = min(round(share * len(values)), len(known), len(values) - 1)
    chosen = sorted(known, key=lambda i: (values[i], i))[:count]
    return SkipPlan(
        n_layers,
        frozenset(i // 2 for i in chosen if i % 2 == 0),
        frozenset(i // 2 for i in chosen if i % 2),
    )


def middle_values(n_layers: int) -> list[float]:
    """The rule of thumb as importance: the further from the middle, the more important.

    The first two layers and the last come last of all, as in `SkipPlan.from_ratio`.
    """
    centre = (n_layers - 1) / 2
    ends = {0, 1, n_layers - 1}
    return [
        abs(layer - centre) + (n_layers if layer in ends else 0)
        for layer in range(n_layers)
        for _ in ("attention", "mlp")
    ]


def single(text: str, n_layers: int) -> tuple[SkipPlan, int | None]:
    """A plan to look at: of a schedule the first one, and the length up to which it holds.

    Raises:
        TuneError: it can't be read.
    """
    plan = read_plan(text, n_layers)
    if isinstance(plan, LengthSchedule):
        return plan.steps[0][1], plan.steps[1][0] if len(plan.steps) > 1 else None
    return plan, None


def read_plan(text: Any, n_layers: int) -> SkipPlan | LengthSchedule:
    """A plan's text, from anywhere.

    Raises:
        TuneError: it isn't one; carries the core's own sentence.
    """
    if not isinstance(text, str) or len(text) > MAX_PLAN_TEXT:
        raise TuneError("tune.error.plan_text")
    try:
        return parse_plan(text, n_layers)
    except (PlanError, ValueError) as error:
        raise TuneError("tune.error.plan", text=errors.said(error)) from None


def schedule(below: str, boundary: Any, above: str, n_layers: int) -> LengthSchedule:
    """The length schedule of the editor.

    Raises:
        TuneError: a part of it can't be read.
    """
    if (
        isinstance(boundary, bool)
        or not isinstance(boundary, int | float)
        or boundary != boundary
        or not 1 <= boundary <= 1_000_000
        or boundary != int(boundary)
    ):
        raise TuneError("tune.error.boundary")
    parts = []
    for text in (below, above):
        plan = read_plan(text, n_layers)
        if isinstance(plan, LengthSchedule):
            raise TuneError("tune.error.nested")
        parts.append(plan)
    return LengthSchedule(((0, parts[0]), (int(boundary), parts[1])))


# -- as the charts take them ------------------------------------------------------------------


def point(scored: Scored) -> dict[str, Any]:
    """A plan as predicted."""
    plan = scored.choice.plan
    return {
        "plan": str(plan),
        "share": rounded(plan.share),
        "k": scored.choice.k,
        "draft_temperature": scored.choice.draft_temperature,
        "alpha": rounded(scored.alpha),
        "tau": rounded(scored.tau),
        "ms": rounded(scored.draft_ms),
        "speedup": rounded(scored.speedup),
        "low": rounded(scored.low),
        "high": rounded(scored.high),
    }


def measured_point(measured: Measured) -> dict[str, Any]:
    """What decoding gave."""
    low, high = measured.interval
    return {
        "alpha": rounded(measured.alpha),
        "tau": rounded(measured.tau),
        "speedup": rounded(measured.speedup),
        "low": rounded(low),
        "high": rounded(high),
        "tps": rounded(measured.tokens_per_second),
    }


def front_of(ranked: Sequence[Scored], front: Iterable[Scored]) -> dict[str, Any]:
    """A search's front, and what lies behind it, thinned out where it is much."""
    points = thinned([point(scored) for scored in front], _FRONT)
    behind = [[rounded(s.draft_ms), rounded(s.alpha)] for s in ranked]
    return {"front": points, "cloud": thinned(behind, _CLOUD)}


def thinned(items: list[Any], most: int) -> list[Any]:
    """At most so many of them, evenly, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
