"""The comparison's table, as it fills in: what was written so far, as figures a system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .compare_choice import PLAIN, SELFSPEC
from .tune_feed import rounded

if TYPE_CHECKING:
    from bench.compare import Result
    from bench.systems import Written


class Table:
    """Takes generations, gives rows.

    Args:
        names: of the systems, plain first.
        lengths: tokens asked for, ascending.
        prompts: how many.
    """

    def __init__(self, names: Sequence[str], lengths: Sequence[int], prompts: int) -> None:
        self._names, self._lengths, self._prompts = names, lengths, prompts
        self._runs: dict[tuple[str, int, int], list[Written]] = defaultdict(list)
        self._cells: dict[tuple[str, int], dict[str, Any]] = {}
        self._facts: dict[str, dict[str, Any]] = {name: {} for name in names}

    def tell(self, name: str, **facts: Any) -> None:
        """Set what a row says of the system itself."""
        self._facts[name] |= facts

    def add(self, name: str, prompt: int, length: int, written: Written) -> None:
        """Take a generation."""
        self._runs[name, length, prompt].append(written)
        # Whatever plain decoding writes changes what the others are compared with.
        for each in self._names if name == PLAIN else (name,):
            if cell := self._cell(each, length):
                self._cells[each, length] = cell

    def finish(self, result: Result) -> None:
        """Take the final figures: identity is checked to the end in these only."""
        for name, row in result.systems.items():
            for length, found in row["by_length"].items():
                self._cells[name, int(length)] = _figures(found)
            self.tell(name, kl=rounded(row.get("kl")), agreement=rounded(row.get("agreement")))

    def rows(self) -> list[dict[str, Any]]:
        """A row a system: `system`, its facts, and `cells`, one a length (None: not yet)."""
        return [
            {
                "system": name,
                **self._facts[name],
                "cells": [self._cells.get((name, length)) for length in self._lengths],
            }
            for name in self._names
        ]

    def differing(self, names: Sequence[str]) -> bool:
        """Whether a text of one of these systems isn't the whole model's."""
        cells = [cell for (name, _), cell in self._cells.items() if name in names]
        return any(cell["identical"] != cell["prompts"] for cell in cells)

    def rates(self) -> dict[str, float]:
        """System → seconds a token, of what was written."""
        spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for (name, _, _), runs in self._runs.items():
            for written in runs:
                spent[name][0] += written.seconds
                spent[name][1] += len(written.tokens)
        return {name: seconds / tokens for name, (seconds, tokens) in spent.items() if tokens}

    def _cell(self, name: str, length: int) -> dict[str, Any] | None:
        from bench.figures import Item, figures

        items = []
        for prompt in range(self._prompts):
            mine = self._runs.get((name, length, prompt))
            plain = self._runs.get((PLAIN, length, prompt))
            if mine and plain:
                expected = plain[0].tokens
                items.append(Item(prompt, None, length, tuple(mine), tuple(plain), expected))
        if not items:
            return None
        cell = _figures(figures(items))
        if name == SELFSPEC and cell["identical"] < cell["prompts"]:
            # Promised is the text of plain decoding in the same window, which is written last.
            cell |= {"identical": None, "equal_share": None}
        return cell


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    low, high = found["interval"]
    several = found["prompts"] > 1  # of one prompt there is no spread
    return {
        "tps": rounded(found["tps"]),
        "speedup": rounded(found["ratio_to_plain"]),
        "low": rounded(low) if several else None,
        "high": rounded(high) if several else None,
        "tau": rounded(found["tau"]),
        "alpha": rounded(found["alpha"]),
        "identical": found["identical"],
        "prompts": found["prompts"],
        "equal_share": rounded(found["equal_share"]),
    }
