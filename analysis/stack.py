"""The gated stack taken apart: a text read once, then run layer by layer (design §1).

The rows of a text are the positions that its written tokens are predicted from. What comes
before them is given: its keys and values are the whole model's, as a draft reads them in the
engine, and no gate reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from selfspec_core.branch import Branch, Context
from selfspec_core.decoder import ResidualDecoder, Rows

from .texts import Text


@dataclass(frozen=True, eq=False)
class Reading:
    """A text, ready to be run.

    Args:
        text: N written tokens.
        h: [1, N, D] the stream that the first layer reads, of the N rows.
        context: what their branches share; its cache holds the text before them.
        written: [N] the tokens that the rows predict.
    """

    text: Text
    h: Tensor
    context: Context
    written: Tensor

    def cut(self, tokens: int) -> Reading:
        """The reading of the first `tokens` rows."""
        n = min(tokens, len(self.written))
        if n == len(self.written):
            return self
        keys = self.text.prompt_length - 1 + n
        context = _rows_of(self.context, slice(0, n), keys)
        return Reading(self.text.cut(n), self.h[:, :n], context, self.written[:n])


class Stack(ResidualDecoder):
    """A `ResidualDecoder` that reads a text as drafts do, and runs it layer by layer.

    Args are its own. Nothing of the model is changed, and nothing of a text is kept.
    """

    @property
    def final_norm(self) -> nn.Module:
        """The norm before the readout, through which the whole stream flows."""
        norm: nn.Module = self._final_norm
        return norm

    def read(self, text: Text) -> Reading:
        """Run the text before the rows whole, once, and embed the rows."""
        tokens = torch.tensor(text.ids[:-1], device=self.device)
        before = text.prompt_length - 1  # as the engine's cache has it: all but the last token
        with torch.no_grad():
            positions = self._position_ids(Rows(tokens), 0)
            h = self.embed(tokens[None], positions)  # [1, T, D]
            context = self._context(h, Rows(tokens), positions, 0, None)
            prefix = _Keep()
            if before:
                first = _rows_of(context, slice(0, before), before)
                self.run_layers(h[:, :before], replace(first, cache=_as_cache(prefix)))
        rows = _rows_of(context, slice(before, None), len(tokens))
        rows = replace(rows, cache=_as_cache(_Prefixed(prefix)) if before else None)
        written = torch.tensor(text.written, device=self.device)
        return Reading(text, h[:, before:], rows, written)

    def run_layer(
        self, layer: int, h: Tensor, context: Context, gates: Tensor | None = None
    ) -> Tensor:
        """One layer: the stream [B, N, D] before it → after it."""
        attention, mlp = self.branches[layer]
        return self._layer(h, attention, mlp, context, None, gates, None)

    def trace(self, reading: Reading) -> Iterator[tuple[Branch, Tensor, Tensor]]:
        """Run whole; yields each branch with the stream it reads and what it adds, [1, N, D].

        After the last of them, the sum of both is not the final stream in the parallel layout,
        where the attention of the same layer is missing from it.
        """
        h = reading.h
        for attention, mlp in self.branches:
            first = attention(h, reading.context)
            yield attention, h, first
            h_mlp = h if self.parallel else h + first
            second = mlp(h_mlp, reading.context)
            yield mlp, h_mlp, second
            h = h + first + second


class _Keep:
    """Stands in for a cache: keeps every layer's keys and values, [1, heads, P, d]."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.layers[layer_idx] = (keys, values)
        return keys, values


class _Prefixed:
    """Stands in for a cache: puts the prefix's keys and values before the rows' own.

    Writes nothing, so gradients flow through the rows' own, and a batch shares the prefix.
    """

    def __init__(self, prefix: _Keep) -> None:
        self._prefix = prefix

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        batch = keys.shape[0]
        before = self._prefix.layers[layer_idx]
        both = [
            torch.cat([kept.expand(batch, -1, -1, -1), own], dim=2)  # [B, heads, P + N, d]
            for kept, own in zip(before, (keys, values), strict=True)
        ]
        return both[0], both[1]


def _as_cache(cache: _Keep | _Prefixed) -> Any:
    """Attention modules only call `update`."""
    return cache


def _rows_of(context: Context, rows: slice, keys: int) -> Context:
    """The context of some of its rows, which attend to the first `keys` positions."""
    return Context(
        {kind: (cos[:, rows], sin[:, rows]) for kind, (cos, sin) in context.rotary.items()},
        {kind: mask[:, :, rows, :keys] for kind, mask in context.masks.items()},
        context.cache,
        context.position_ids[:, rows],
    )
