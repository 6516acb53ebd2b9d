"""How well an estimate ranks branches: rank correlation with the measured truth."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_RESAMPLES = 1000
_FEWEST = 3


@dataclass(frozen=True)
class RankCorrelation:
    """Of an estimate with the truth, over the branches that the estimate speaks of.

    Args:
        spearman: ρ; None where it isn't defined (fewer than 3 branches, or all equal).
        kendall: τ-b, which minds ties; None likewise.
        interval: 95% percentile bootstrap interval of ρ, branches resampled; None likewise.
        branches: how many there were.
    """

    spearman: float | None
    kendall: float | None
    interval: tuple[float, float] | None
    branches: int


def rank_correlation(
    estimate: Sequence[float] | NDArray[np.float64],
    truth: Sequence[float] | NDArray[np.float64],
    *,
    seed: int = 0,
) -> RankCorrelation:
    """Spearman's and Kendall's rank correlation, with a bootstrap interval.

    Branches where either is NaN are left out. The interval tells how far the figure depends on
    which branches the model happens to have; the noise of the texts comes on top.
    """
    x, y = np.asarray(estimate, dtype=float), np.asarray(truth, dtype=float)
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(x) < _FEWEST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return RankCorrelation(None, None, None, len(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of resamples that are all ties
        interval = stats.bootstrap(
            (x, y),
            _spearman,
            paired=True,
            vectorized=True,
            n_resamples=_RESAMPLES,
            method="percentile",
            rng=seed,
        ).confidence_interval
    ends = (float(interval.low), float(interval.high))
    return RankCorrelation(
        spearman=float(stats.spearmanr(x, y).statistic),
        kendall=float(stats.kendalltau(x, y).statistic),
        interval=None if any(np.isnan(ends)) else ends,
        branches=len(x),
    )


def _spearman(
    x: NDArray[np.float64], y: NDArray[np.float64], axis: int = -1
) -> NDArray[np.float64]:
    """Pearson's correlation of the ranks along `axis`; 0 where all are equal."""
    a, b = (stats.rankdata(v, axis=axis) for v in (x, y))
    a, b = (v - v.mean(axis=axis, keepdims=True) for v in (a, b))
    scale = np.sqrt((a * a).sum(axis=axis) * (b * b).sum(axis=axis))
    found: NDArray[np.float64] = (a * b).sum(axis=axis) / np.where(scale == 0, 1, scale)
    return found
