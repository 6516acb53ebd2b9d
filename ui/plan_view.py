"""Plans as the layer strip shows them: text to JSON and back, through the core's own parser."""

from __future__ import annotations

import json
from typing import Any

from selfspec_core.plan import PRESETS, LengthSchedule, PlanError, SkipPlan

from .errors import said
from .feed import as_line

BY_LENGTH = "by length"


def to_strip(plan: SkipPlan | LengthSchedule, **more: Any) -> str:
    """A plan as the strip's value.

    Args:
        plan: what to draw.
        more: what else the value says: `asked`, the text that this answers (the page leaves an
            answer alone once its plan's text is another), `act`, which act of the person it
            answers (another one since, and it is left alone), and `follows`, from `follows`.
    """
    steps = plan.steps if isinstance(plan, LengthSchedule) else ((0, plan),)
    return as_line(
        {
            **more,
            "text": str(plan),
            "layers": plan.n_layers,
            "steps": [
                {"from": start, "attention": sorted(step.attention), "mlp": sorted(step.mlp)}
                for start, step in steps
            ],
        }
    ).replace("<", "\\u003c")


def to_strip_error(error: PlanError, n_layers: int, **more: Any) -> str:
    """Why a plan can't be used; the strip says so under the plan that it shows."""
    value = {**more, "layers": n_layers, "error": said(error)}
    return as_line(value).replace("<", "\\u003c")


def follows(plan: SkipPlan | LengthSchedule, named: str) -> dict[str, Any]:
    """What skip ratio, preset and boundary show of a plan.

    Args:
        plan: the plan.
        named: the preset that it may have come from, as for `preset_of`.
    """
    name = preset_of(plan, named)
    by_length = name == BY_LENGTH and isinstance(plan, LengthSchedule) and len(plan.steps) > 1
    boundary = plan.steps[1][0] if by_length else None
    return {"percent": percent_of(plan), "preset": name, "boundary": boundary}


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
