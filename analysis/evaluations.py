"""How far a method is, told by how often it has asked whether it should stop.

Methods ask `cancelled` before every evaluation of the model. One text takes a known number of
them, so their count is progress also inside a call of Captum's, which reports none.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import dropping, gates

_ENDS = 2  # of a path of integrated gradients, evaluated for its convergence delta


def evaluations(method: str, *, n_layers: int, n_rows: int, steps: int) -> Sequence[float]:
    """Share of the work that is done when a method asks for the first, second, … time.

    Args:
        method: of `METHODS`.
        n_layers: L.
        n_rows: N, of the one text.
        steps: of integrated gradients.

    Returns:
        Ascending, from 0; empty for methods that fill a time budget.
    """
    if method == "measured":
        # The same shares as `drop_each` gives: streams grow by two a layer, then are read out.
        streams = 2 * n_layers + 1
        at_once = max(1, dropping._ROWS_READ_OUT // n_rows)
        work = n_layers * (n_layers + 1) + streams
        climbed = [layer * (layer + 1) / work for layer in range(n_layers)]
        read = range(1, streams, at_once)
        return [*climbed, *((work - streams + first) / work for first in read)]
    if method in ("integrated_gradients", "integrated_gradients_plan"):
        at_once = max(1, gates._ROWS_WITH_GRADIENT // n_rows)
        return _equal(-(-steps // at_once) + _ENDS)
    if method == "feature_ablation":
        at_once = max(1, gates._ROWS_AT_ONCE // n_rows)
        return _equal(1 + -(-2 * n_layers // at_once))
    return [] if method in ("shapley", "layer_conductance") else _equal(1)


def _equal(count: int) -> list[float]:
    return [number / count for number in range(count)]
