"""Plans drawn at random, reproducibly: what predictions are judged on and searches begin with."""

from __future__ import annotations

import random

from selfspec_core.plan import SkipPlan

KEPT_FIRST, KEPT_LAST = 2, 1
"""Layers that random plans leave alone, as the presets do: without them no draft is any good."""


def random_plan(n_layers: int, source: random.Random, *, most: float = 0.5) -> SkipPlan:
    """A plan of any mix: a tenth to `most` of the branches between the first and last layers.

    Half of the plans skip single branches anywhere, half whole layers in one run.
    """
    layers = range(min(KEPT_FIRST, n_layers - 1), max(n_layers - KEPT_LAST, 1))
    branches = [(kind, layer) for layer in layers for kind in ("attention", "mlp")]
    if not branches:
        return SkipPlan(n_layers)
    share = source.uniform(0.1, most)
    if source.random() < 0.5:
        chosen = source.sample(branches, max(1, round(share * len(branches))))
    else:
        count = max(1, round(share * len(layers)))
        first = source.randint(layers[0], layers[-1] - count + 1)
        chosen = [(k, i) for k, i in branches if first <= i < first + count]
    return of_branches(n_layers, chosen)


def random_plans(n_layers: int, count: int, seed: int, *, most: float = 0.5) -> list[SkipPlan]:
    """`count` of them; the same for the same seed, and different ones where there are enough."""
    source = random.Random(seed)
    plans: dict[SkipPlan, None] = {}
    for _ in range(count * 50):
        plans.setdefault(random_plan(n_layers, source, most=most))
        if len(plans) == count:
            break
    return list(plans)


def of_branches(n_layers: int, branches: list[tuple[str, int]]) -> SkipPlan:
    """The plan that skips these (kind, layer) branches."""
    return SkipPlan(
        n_layers,
        frozenset(layer for kind, layer in branches if kind == "attention"),
        frozenset(layer for kind, layer in branches if kind == "mlp"),
    )
