"""What the target computes while reading texts that it wrote.

Everything that scores plans without decoding reads from here: the streams before every
branch, and the keys and values of every layer, of one parallel forward over each text.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from selfspec_core.branch import ATTENTION, Branch, Context
from selfspec_core.decoder import ResidualDecoder
from selfspec_core.plan import SkipPlan

from .texts import Text, write_texts

__all__ = ["Reference", "Text", "additive", "write_texts"]


class Reference:
    """What the target computes over some texts, run once side by side.

    Args:
        decoder: the model's gated stack.
        texts: at least one; shorter ones are padded on the right, which causality hides.

    Raises:
        ValueError: no texts.
    """

    def __init__(self, decoder: ResidualDecoder, texts: Sequence[Text]) -> None:
        if not texts:
            raise ValueError("nothing was written to score plans on: give at least one prompt")
        self.decoder, self.texts = decoder, tuple(texts)
        rows = [torch.tensor(text.ids, device=decoder.device) for text in texts]
        self.tokens = pad_sequence(rows, batch_first=True)  # [B, T]
        prompts = [len(text.prompt_ids) for text in texts]
        self.starts = torch.tensor(prompts, device=decoder.device) - 1
        """[B] the slot of each prompt's last token, which the first round begins with."""
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        """Layer → [B, kv_heads, T, head_dim]."""
        self._streams: dict[tuple[str, int], Tensor] = {}
        self.final = self._read()
        """[B, T, D] the stream after the last layer."""

    @property
    def written(self) -> int:
        """Tokens written in all texts together."""
        return sum(len(text.written) for text in self.texts)

    def first(self, count: int) -> Reference:
        """The same of the first texts only; nothing is computed again."""
        part = copy.copy(self)
        part.texts, part.tokens = self.texts[:count], self.tokens[:count]
        part.starts, part.final = self.starts[:count], self.final[:count]
        part.keys = {layer: side[:count] for layer, side in self.keys.items()}
        part.values = {layer: side[:count] for layer, side in self.values.items()}
        part._streams = {branch: stream[:count] for branch, stream in self._streams.items()}
        return part

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """transformers' `Cache.update`, which attention calls: keep the rows and read them."""
        self.keys[layer_idx], self.values[layer_idx] = keys.contiguous(), values.contiguous()
        return keys, values

    def stream(self, kind: str, layer: int) -> Tensor:
        """[B, T, D] what a branch reads in the target."""
        return self._streams[kind, layer]

    def before(self, plans: Sequence[SkipPlan]) -> tuple[int, Tensor]:
        """Where drafts part from the target: (the first layer to run, the stream it reads).

        Before the first branch that any of them skips, their streams are the target's.
        """
        skipped = [plan.attention | plan.mlp for plan in plans]
        layer = min(frozenset[int]().union(*skipped), default=self.decoder.n_layers)
        if layer == self.decoder.n_layers:
            return layer, self.final
        if len(plans) == 1 and layer not in plans[0].attention and not self.decoder.parallel:
            return layer + 1, self.stream("mlp", layer)
        return layer, self.stream(ATTENTION, layer)

    @torch.inference_mode()
    def _read(self) -> Tensor:
        decoder, (count, length) = self.decoder, self.tokens.shape
        slots = torch.arange(length, device=decoder.device)
        positions = slots.expand(count, length)
        h = decoder.embed(self.tokens, positions)
        masks = {}
        for kind, window in decoder.windows.items():
            seen = slots <= slots[:, None]
            if window is not None:
                seen &= slots > slots[:, None] - window
            masks[kind] = additive(seen[None, None], h.dtype)
        context = Context(decoder.rotary(h, positions), masks, self, positions)

        def keep(branch: Branch, stream: Tensor) -> None:
            self._streams[branch.kind, branch.layer] = stream

        return decoder.run_layers(h, context, observe=keep)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask to add: 0 where `seen`, the type's lowest number where not; same shape."""
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)
