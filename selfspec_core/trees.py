"""Where rows and drafts stand, chain or tree: pure functions of their parents."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def depths_of(parents: Sequence[int] | None, k: int) -> list[int]:
    """How many tokens past the text each of k rows stands, from 0.

    Args:
        parents: the row that each continues, -1 for the text; None is a chain.

    Raises:
        ValueError: a parent that doesn't stand before its child.
    """
    if parents is None:
        return list(range(k))
    depths: list[int] = []
    for row, parent in enumerate(parents):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} can't continue row {parent}: parents stand before")
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


def window_parents(parents: Sequence[int] | None, width: int) -> tuple[int, ...] | None:
    """The drafts' parents as rows of the window, whose row 0 is the last committed token."""
    if parents is None:
        return None
    drafts = [parent + 1 for parent in parents]
    return (-1, *drafts, *range(len(drafts), width - 1))


def own_tokens(drafts: Tensor, parents: Sequence[int] | None) -> list[list[int]]:
    """For each window row, the drafted tokens between the prefix and it, its own included."""
    tokens = drafts.tolist()
    own: list[list[int]] = [[]]
    for draft, token in enumerate(tokens):
        parent = draft - 1 if parents is None else parents[draft]
        own.append([*own[parent + 1], token])
    return own
