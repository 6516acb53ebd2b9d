"""Plans as the layer strip shows them: text to JSON and back, through the core's own parser."""

from __future__ import annotations

import json
from typing import Any

from selfspec_core.plan import PRESETS, LengthSchedule, PlanError, SkipPlan

from .errors import said
from .feed import as_line

BY_LENGTH = "by length"


def to_strip(plan: SkipPlan | LengthSchedule) -> str:
    """A plan as the strip's value."""
    steps = plan.steps if isinstance(plan, LengthSchedule) else ((0, plan),)
    return as_line(
        {
            "text": str(plan),
            "layers": plan.n_layers,
            "steps": [
                {"from": start, "attention": sorted(step.attention), "mlp": sorted(step.mlp)}
                for start, step in steps
            ],
        }
    ).replace("<", "\\u003c")


def to_strip_error(error: PlanError, n_layers: int) -> str:
    """Why a plan can't be used; the strip says so under the plan that it shows."""
    return as_line({"layers": n_layers, "error": said(error)}).replace("<", "\\u003c")


def from_strip(value: str, n_layers: int) -> SkipPlan | LengthSchedule:
    """The plan that the strip shows.

    Raises:
        PlanError: not a strip's value, a layer out of range, or every branch skipped.
    """
    try:
        steps = tuple(
            (int(step["from"]), SkipPlan(n_layers, step["attention"], step["mlp"]))
            for step in json.loads(value)["steps"]
        )
    except PlanError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"this isn't a plan: {error}") from None
    return steps[0][1] if len(steps) == 1 else LengthSchedule(steps)


def preset_of(plan: SkipPlan | LengthSchedule, named: str = "") -> str | None:
    """The preset that makes this plan, or None; on shallow models several do, then `named`."""
    if isinstance(plan, LengthSchedule):
        return BY_LENGTH
    if named in PRESETS:
        return named
    return next((name for name in PRESETS if SkipPlan.preset(name, plan.n_layers) == plan), None)


def from_preset(name: str, boundary: Any, n_layers: int) -> SkipPlan | LengthSchedule:
    """The plan of a preset's button.

    Raises:
        PlanError: unknown name or a boundary that isn't a length.
    """
    if name != BY_LENGTH:
        return SkipPlan.preset(name, n_layers)
    if not isinstance(boundary, int | float) or boundary < 1 or boundary != int(boundary):
        raise PlanError(f"the length must be a whole number of at least 1, got {boundary!r}")
    most = largest_ratio(n_layers)
    return LengthSchedule.standard(
        n_layers, boundary=int(boundary), short=min(0.30, most), long=min(0.50, most)
    )


def from_percent(percent: float, n_layers: int) -> SkipPlan:
    """The plan of the skip-ratio slider, as far as the model's depth allows."""
    return SkipPlan.from_ratio(min(percent / 100, largest_ratio(n_layers)), n_layers)


def largest_ratio(n_layers: int) -> float:
    """The largest share that `SkipPlan.from_ratio` makes: two first layers and the last stay."""
    return max(n_layers - 3, 0) / n_layers


def largest_percent(n_layers: int) -> int:
    """Where the skip-ratio slider ends."""
    return max(1, min(80, int(100 * largest_ratio(n_layers))))


def layers_of(strip: str) -> int | None:
    """How many layers the strip shows; None for what isn't a strip's value."""
    try:
        return int(json.loads(strip)["layers"])
    except (KeyError, TypeError, ValueError):
        return None


def percent_of(plan: SkipPlan | LengthSchedule) -> int:
    """The share of skipped branches in per cent; of a schedule, the first step's."""
    first = plan.steps[0][1] if isinstance(plan, LengthSchedule) else plan
    return round(100 * first.share)
