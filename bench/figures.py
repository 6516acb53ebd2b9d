"""From what was written to figures: medians, intervals, shares. No model is touched here."""

from __future__ import annotations

import random
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from .systems import Written


@dataclass(frozen=True)
class Item:
    """What one system wrote for one prompt at one length.

    Args:
        prompt: number of the prompt.
        category: of the prompt; None where it has none.
        length: tokens asked for.
        mine, plain: the repeats of this system and of plain decoding.
        expected: the text that counts as identical.
    """

    prompt: int
    category: str | None
    length: int
    mine: tuple[Written, ...]
    plain: tuple[Written, ...]
    expected: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """Speed ÷ that of plain decoding on the same prompt."""
        return speed(self.mine) / speed(self.plain)


def speed(repeats: Sequence[Written]) -> float:
    """Tokens per second, prompt included: the median of the repeats."""
    return statistics.median(len(w.tokens) / w.seconds for w in repeats)


def equal_share(tokens: Sequence[int], expected: Sequence[int]) -> float:
    """Share of places of the longer text where both have the same token; 1 for two empty ones."""
    longest = max(len(tokens), len(expected))
    same = sum(a == b for a, b in zip(tokens, expected, strict=False))
    return same / longest if longest else 1.0


def figures(items: Sequence[Item]) -> dict[str, Any]:
    """One system's figures: medians over repeats, then over prompts (and lengths).

    The interval is of the median ratio, by a bootstrap over prompts (95%).
    """
    ratios = [item.ratio for item in items]
    first = [item.mine[0] for item in items]
    rounds, drafted = sum(w.rounds for w in first), sum(w.drafted for w in first)
    prompts = {item.prompt for item in items}
    differing = {item.prompt for item in items if item.mine[0].tokens != item.expected}
    return {
        "tps": statistics.median(speed(item.mine) for item in items),
        "ratio_to_plain": statistics.median(ratios),
        "interval": bootstrap(ratios),
        "tau": sum(len(w.tokens) for w in first) / rounds if rounds else None,
        "alpha": sum(w.accepted for w in first) / drafted if drafted else None,
        "identical": len(prompts - differing),
        "prompts": len(prompts),
        "equal_share": statistics.fmean(
            equal_share(item.mine[0].tokens, item.expected) for item in items
        ),
        "peak_mb": None,
    }


def broken_down(items: Sequence[Item], by: str) -> dict[str, dict[str, Any]]:
    """`figures` by "category" or by "length", in the order in which they first stand."""
    keys: dict[Hashable, list[Item]] = {}
    for item in items:
        keys.setdefault(getattr(item, by), []).append(item)
    return {str(key): figures(part) for key, part in keys.items()}


def bootstrap(values: Sequence[float], *, draws: int = 2000) -> tuple[float, float]:
    """95% interval of the median, by resampling with a fixed seed."""
    generator = random.Random(0)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(draws)
    )
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]
