"""The table of importance: a row a branch, a column a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .correlation import RankCorrelation, rank_correlation

TRUTH = "lost_agreement"

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Column:
    """What one method says.

    Args:
        values: [2L] a branch; NaN where it says nothing.
        per_token: for every text done so far [2L, N], a branch and written token; signed.
        details: what belongs beside it: deltas, errors, steps; plain JSON data.
        seconds: what it took so far; columns of one pass all have that of the pass.
        complete: whether all of the method's work is in it.
    """

    values: Array
    per_token: tuple[Array, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    complete: bool = False


@dataclass(frozen=True, eq=False)
class Importance:
    """All columns so far.

    Args:
        n_layers: L, of the model.
        tokens: for every text, the written tokens as text.
        columns: method → column.
        score: which score was attributed.
        copy_mb: the float32 copy, MB of 10⁶ bytes beside the model; None if none was made.
        seed: of the bootstrap.
    """

    n_layers: int
    tokens: tuple[tuple[str, ...], ...]
    columns: Mapping[str, Column]
    score: str
    copy_mb: float | None = None
    seed: int = 0

    @property
    def branches(self) -> tuple[str, ...]:
        """Names of the rows as plans have them: a0, m0, a1, m1, …"""
        return tuple(f"{kind}{layer}" for layer in range(self.n_layers) for kind in "am")

    def table(self) -> pd.DataFrame:
        """A row a branch (`kind`, `layer`, then a column a method), indexed by its name."""
        rows = pd.Index(self.branches, name="branch")
        start = pd.DataFrame(
            {
                "kind": ["attention", "mlp"] * self.n_layers,
                "layer": np.repeat(np.arange(self.n_layers), 2),
            },
            index=rows,
        )
        values = {name: column.values for name, column in self.columns.items()}
        return pd.concat([start, pd.DataFrame(values, index=rows)], axis=1)

    def per_token(self, method: str, text: int) -> pd.DataFrame:
        """A row a branch, a column a written token (its number from 0), for a heatmap.

        Raises:
            KeyError: the method wasn't run, or has nothing a token for that text.
        """
        found = self.columns[method].per_token
        if not 0 <= text < len(found):
            raise KeyError(f"{method} says nothing of the tokens of text {text}")
        return pd.DataFrame(found[text], index=pd.Index(self.branches, name="branch"))

    @cached_property
    def correlations(self) -> dict[str, RankCorrelation]:
        """Every method's rank correlation with the measured truth; empty before that is there."""
        truth = self.columns.get(TRUTH)
        if truth is None:
            return {}
        return {
            name: rank_correlation(column.values, truth.values, seed=self.seed)
            for name, column in self.columns.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: `branches`, `methods` with what they say, and how it was made."""
        return {
            "branches": list(self.branches),
            "methods": {name: self._method(name) for name in self.columns},
            "truth": TRUTH,
            "score": self.score,
            "texts": len(self.tokens),
            "tokens": sum(len(text) for text in self.tokens),
            "float32_copy_mb": self.copy_mb,
        }

    def _method(self, name: str) -> dict[str, Any]:
        column = self.columns[name]
        found = self.correlations.get(name)
        return {
            "spearman": found.spearman if found else None,
            "kendall": found.kendall if found else None,
            "interval": list(found.interval) if found and found.interval else None,
            "seconds": round(column.seconds, 3),
            "values": [None if np.isnan(v) else float(v) for v in column.values],
            "complete": column.complete,
            "details": dict(column.details),
        }


def column_of(
    per_token: Sequence[Array], *, absolute: bool, details: Mapping[str, Any] | None = None
) -> Column:
    """A column from texts, each [2L, N]: the mean over all tokens, of absolute values if wished.

    Signed gradients of different tokens cancel, so theirs are taken by absolute value.
    """
    joined = np.concatenate(list(per_token), axis=1)  # [2L, all tokens]
    values = (np.abs(joined) if absolute else joined).mean(axis=1)
    return Column(values, tuple(per_token), details or {})
