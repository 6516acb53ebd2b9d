"""What the Layers panel's view takes: one JSON value, numbers and codes, no sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .feed import as_line
from .layers_demand import COLUMNS, Demand

if TYPE_CHECKING:
    from analysis.table import Column
    from selfspec_core.plan import SkipPlan

    from .layers_job import Progress, Result

TRUTHS = ("lost_agreement", "kl")
"""Measured columns that an estimate's ranking is compared with."""


def value(job: int, state: str, **more: Any) -> str:
    """A value of the view.

    Args:
        job: its number; the page ignores what comes from an older one.
        state: "idle", "recorded", "loading", "waiting", "running", "done", "stopped" or "error".
        more: `said` (a message), `progress`, `result`; what is missing is as it was.
    """
    line = as_line({"job": job, "state": state, **more})
    # "<" occurs inside strings only; escaped, no token can look like markup to anybody.
    return line.replace("<", "\\u003c")


def progress_of(progress: Progress) -> dict[str, Any]:
    """How far the work is."""
    left = progress.seconds_left
    return {
        "method": progress.method,
        "number": progress.number,
        "methods": progress.methods,
        "done": round(min(progress.done, 1.0), 3),
        "left": None if left is None else round(left, 1),
        "copying": progress.copying,
    }


def result_of(result: Result, demand: Demand) -> dict[str, Any]:
    """Everything there is so far, of the columns that were asked for."""
    table = result.importance
    return {
        "layers": table.n_layers,
        "tokens": list(table.tokens[0]),
        "source": demand.source,
        "score": demand.score,
        "budget": demand.budget,
        "asked_rows": demand.rows,
        "cut": result.cut,
        "left_out": result.left_out,
        "copy_mb": None if table.copy_mb is None else round(table.copy_mb, 1),
        "plan": branches_of(result.plan),
        "columns": {name: _column(name, table.columns) for name in table.columns},
    }


def branches_of(plan: SkipPlan) -> dict[str, list[int]]:
    """The branches that a plan skips."""
    return {"attention": sorted(plan.attention), "mlp": sorted(plan.mlp)}


def _column(name: str, columns: Mapping[str, Column]) -> dict[str, Any]:
    column = columns[name]
    cells = column.per_token[0] if name in COLUMNS and column.per_token else None
    return {
        "values": _numbers(column.values.tolist()),
        "cells": None if cells is None else [_numbers(row) for row in cells.tolist()],
        "seconds": round(column.seconds, 2),
        "complete": column.complete,
        "details": _plain(column.details),
        "ranks": {
            truth: _ranks(column, columns[truth])
            for truth in TRUTHS
            if truth in columns and truth != name
        },
    }


def _ranks(column: Column, truth: Column) -> dict[str, Any] | None:
    from analysis.correlation import rank_correlation

    found = rank_correlation(column.values, truth.values)
    if found.spearman is None or found.kendall is None:
        return None
    return {
        "spearman": round(found.spearman, 3),
        "kendall": round(found.kendall, 3),
        "interval": None if found.interval is None else [round(end, 3) for end in found.interval],
        "branches": found.branches,
    }


def _plain(details: Any) -> Any:
    """Details as JSON has them: rounded, no NaN, no list of a value a branch that nobody shows."""
    if isinstance(details, Mapping):
        return {key: _plain(item) for key, item in details.items()}
    if isinstance(details, list | tuple):
        return [_plain(item) for item in details]
    return _number(details) if isinstance(details, float) else details


def _numbers(values: list[float]) -> list[float | int | None]:
    return [_number(value) for value in values]


def _number(value: float) -> float | int | None:
    """Four digits are more than a picture shows; what isn't a number is None."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded
