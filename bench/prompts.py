"""Prompts with the category that each belongs to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selfspec_core.prompts import PromptsError, read_prompts


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Args:
        text: what is asked.
        category: the kind of task; None where the file doesn't say.
    """

    text: str
    category: str | None = None


def read_categorised(path: str | Path, limit: int | None, *, by_category: bool) -> list[Prompt]:
    """The prompts of a JSONL file, first ones first.

    Args:
        path: as `read_prompts` reads it; a line may have a "category".
        limit: at most so many; None is all.
        by_category: take them from every category in turn, so that few prompts cover many.

    Raises:
        PromptsError: the file can't be read, or `by_category` and a line has no category.
    """
    if limit is not None and limit < 1:
        raise PromptsError(f"--limit must be 1 or more, got {limit}")
    texts = read_prompts(path, None if by_category else limit)
    lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    entries = [json.loads(line) for line in lines if line.strip()][: len(texts)]
    categories = [entry.get("category") for entry in entries]
    prompts = [
        Prompt(text, category if isinstance(category, str) else None)
        for text, category in zip(texts, categories, strict=True)
    ]
    if by_category:
        if any(prompt.category is None for prompt in prompts):
            raise PromptsError(f'--by category: not every line of {path} has a "category"')
        prompts = _in_turn(prompts)[:limit]
    return prompts


def _in_turn(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The first of every category, then the second of every one, and so on."""
    seen: dict[str | None, int] = defaultdict(int)
    places = []
    for prompt in prompts:
        places.append(seen[prompt.category])
        seen[prompt.category] += 1
    return [prompt for _, prompt in sorted(zip(places, prompts, strict=True), key=lambda p: p[0])]
