"""Skip plans in other projects' files: read, and written where the format can hold the plan.

A format that can't hold a plan refuses it by name; nothing is rounded to what would fit. None
of them names its model, and only KnapSpec's says how many layers it has, so reading needs
the model's number of layers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bounded_json import (
    PlanFileError,
    check_layer_count,
    parse_json,
    read_text,
    shown,
    write_text,
)
from .foreign_plans import (
    ForeignPlan,
    has,
    has_entry,
    read_bits,
    read_branches,
    read_generation_config,
    read_layers,
    read_layerskip,
    write_bits,
    write_branches,
    write_generation_config,
    write_layers,
    write_layerskip,
)
from .plan import LengthSchedule, PlanError, SkipPlan


@dataclass(frozen=True)
class Format:
    """One project's file format.

    Args:
        name: what it is asked for by.
        title: what people call it.
        holds: what it says beside the plan: "k", "confidence", "key".
        write: `ForeignPlan` → JSON data; raises where it can't be held.
        read: (JSON data, layers, key) → `ForeignPlan`.
        looks: whether JSON data is of this format.
    """

    name: str
    title: str
    holds: frozenset[str]
    write: Callable[[ForeignPlan], Any]
    read: Callable[[Any, int, str | None], ForeignPlan]
    looks: Callable[[Any], bool]


def dump_plan(
    format: str,
    plan: SkipPlan | LengthSchedule,
    *,
    k: int | None = None,
    confidence: float | None = None,
    key: str | None = None,
) -> str:
    """The text of a plan in a format of `FORMATS`.

    Args:
        format: its name.
        plan: what the draft skips.
        k, confidence, key: settings; a format takes those that it `holds`.

    Raises:
        PlanFileError: no such format, or it can't hold this plan.
    """
    to = _format(format)
    if isinstance(plan, LengthSchedule):
        raise PlanFileError(
            f"{to.title} can't hold a length schedule: export one of its plans, or our own file"
        )
    data = to.write(ForeignPlan(plan=plan, k=k, confidence=confidence, key=key))
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def parse_foreign(
    text: str, n_layers: int, *, format: str | None = None, key: str | None = None
) -> ForeignPlan:
    """Read the text of a file of another project.

    Args:
        text: JSON.
        n_layers: decoder layers of the model that the plan is for.
        format: its name; None looks which it is.
        key: which of several named entries.

    Raises:
        PlanFileError: it isn't of that format, or names layers that the model doesn't have.
    """
    check_layer_count(n_layers)
    data = parse_json(text)
    if format is None:
        found = next((each for each in FORMATS.values() if each.looks(data)), None)
        if found is None:
            ours = isinstance(data, dict) and "schema" in data
            raise PlanFileError(
                "this is a plan file of ours: read it with `read_plan_file`"
                if ours
                else f"of no format that is known: {_known()}"
            )
    else:
        found = _format(format)
    try:
        return found.read(data, n_layers, key)
    except (PlanFileError, PlanError) as error:
        raise PlanFileError(f"{found.title}: {error}") from None


def export_plan(
    path: str | Path, format: str, plan: SkipPlan | LengthSchedule, **settings: Any
) -> None:
    """`dump_plan` into a file.

    Raises:
        PlanFileError: see there, or the file can't be written.
    """
    write_text(path, dump_plan(format, plan, **settings))


def import_plan(
    path: str | Path, n_layers: int, *, format: str | None = None, key: str | None = None
) -> ForeignPlan:
    """`parse_foreign` of a file.

    Raises:
        PlanFileError: see there, or the file can't be read.
    """
    text = read_text(path)
    try:
        return parse_foreign(text, n_layers, format=format, key=key)
    except PlanFileError as error:
        raise PlanFileError(f"{Path(path).name}: {error}") from None


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "draft-verify",
            "Draft & Verify, SWIFT, KNN-SSD",
            frozenset({"key"}),
            write_branches,
            read_branches,
            has_entry("attention", "mlp"),
        ),
        Format(
            "conflayers",
            "ConfLayers",
            frozenset({"key"}),
            write_layers,
            read_layers,
            has_entry("layers"),
        ),
        Format(
            "knapspec",
            "KnapSpec",
            frozenset(),
            write_bits,
            read_bits,
            lambda data: isinstance(data, list),
        ),
        Format(
            "layerskip",
            "LayerSkip",
            frozenset({"k"}),
            write_layerskip,
            read_layerskip,
            has("exit_layer"),
        ),
        Format(
            "generation-config",
            "transformers' generation_config",
            frozenset({"k", "confidence"}),
            write_generation_config,
            read_generation_config,
            has("assistant_early_exit"),
        ),
    )
}
"""The formats by name, in the order in which `parse_foreign` tries them."""


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise PlanFileError(f"there is no format {shown(name)}; there are {_known()}")
    return FORMATS[name]


def _known() -> str:
    return ", ".join(f"{each.name} ({each.title})" for each in FORMATS.values())
