"""Verdicts as they come in, until they are a `Table`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .acceptance_table import Table, walk_text


class Entries:
    """Verdicts of G groups (candidate · texts + text), by where a round begins and by depth.

    Args:
        groups: G.
        rows: R, tokens of the longest text.
        depth: longest draft.
    """

    def __init__(self, groups: int, rows: int, depth: int) -> None:
        shape = (groups, rows, depth)
        self._given, self._expected = torch.zeros(shape), torch.zeros(shape)
        self._onward = torch.ones(*shape, 2)

    @property
    def rows(self) -> int:
        """R."""
        return self._given.shape[1]

    def write(
        self,
        groups: Tensor,
        starts: Tensor,
        depth: int,
        given: Tensor,
        expected: Tensor,
        onward: Tensor,
    ) -> None:
        """Verdicts [N] and [N, 2] on draft `depth` of the rounds begun at `starts` [N]."""
        at = groups.cpu(), starts.cpu(), depth
        self._given[at], self._expected[at] = given.cpu(), expected.cpu()
        self._onward[at] = onward.cpu()

    def passed(self, device: torch.device) -> Tensor:
        """[G, R] rounds whose first draft may be accepted."""
        return (self._given[..., 0] > 0).to(device)

    def begun(
        self, sizes: Sequence[int], budgets: Sequence[int], k: int, followed: Tensor
    ) -> Tensor:
        """[G, R] rounds that decoding with this k begins.

        Args:
            sizes: [G] tokens of each group's text.
            budgets: of each text.
            k: drafts a round.
            followed: [G, R] rounds whose verdicts are known at every depth. Of the others the
                first drafts of later rounds stand in for the later drafts.
        """
        first = self._given.shape[1]
        later = (torch.arange(first)[:, None] + torch.arange(k)).clamp(max=first - 1)  # [R, k]
        known = followed.cpu()[..., None]
        passes = torch.where(known, self._given[..., :k], self._given[:, later, 0])
        onward = torch.where(known[..., None], self._onward[:, :, :k], self._onward[:, later, 0])
        begun = torch.zeros(passes.shape[:2], dtype=torch.bool)
        for g, size in enumerate(sizes):
            rows = passes[g, :size].tolist()
            further = [0.0] * (k + 1)  # drafts behind a rejection don't move where rounds begin
            goes_on = onward[g, :size].tolist()
            begins = walk_text(rows, rows, goes_on, budgets[g % len(budgets)], k, further)[0]
            begun[g, :size] = torch.tensor(begins[:size]) > 0
        return begun

    def table(
        self,
        first: int,
        sizes: Sequence[int],
        budgets: tuple[int, ...],
        *,
        stops: bool,
        k: int | None,
        followed: Tensor | None,
    ) -> Table:
        """The table of the candidate whose first group this is."""

        def texts_of(part: Tensor) -> tuple[Tensor, ...]:
            rows = part[first : first + len(sizes)]
            return tuple(row[:size] for row, size in zip(rows, sizes, strict=True))

        return Table(
            texts_of(self._given),
            texts_of(self._expected),
            budgets,
            texts_of(self._onward) if stops else None,
            k,
            None if followed is None else texts_of(followed.cpu()),
        )


def first_of(chosen: Tensor, width: int) -> Tensor:
    """[G, width] where the chosen ones of [G, R] are, in order, the others behind them."""
    return chosen.int().argsort(dim=-1, descending=True, stable=True)[:, :width]
