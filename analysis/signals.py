"""Signals that need no gradient: block influence, logit lens, where attention goes.

Values are [2·n_layers, N]: a row a branch (attention 0, MLP 0, attention 1, …), a column a
scored row of the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfspec_core.branch import ATTENTION

from .float_copy import FloatCopy
from .stack import Reading, Stack


def block_influence(stack: Stack, reading: Reading) -> Tensor:
    """1 − cosine of the stream before and after each branch (ShortGPT, Men et al. 2024).

    [2L, N], 0 to 2; in the parallel layout both branches of a layer start from what it reads.
    """
    with torch.inference_mode():
        values = [
            1 - nn.functional.cosine_similarity(h.float(), (h + written).float(), dim=-1)
            for _, h, written in stack.trace(reading)
        ]
    return torch.cat(values).cpu()


@dataclass(frozen=True, eq=False)
class LogitLens:
    """Where the final answer is already on top (nostalgebraist 2020).

    Args:
        on_top: [n_layers + 1, N] whether the readout of the stream before each layer, and of
            the final one, has the final answer on top.
        layer: [N] the first layer after which it stays on top: 0 where the embedding says it,
            n_layers where only the last layer does.
    """

    on_top: Tensor
    layer: Tensor

    def undecided(self) -> Tensor:
        """[2L, N] 1 where the answer isn't settled yet when the branch's layer begins."""
        layers = torch.arange(len(self.on_top) - 1)[:, None]
        return (layers < self.layer[None]).float().repeat_interleave(2, dim=0)


def logit_lens(stack: Stack, reading: Reading) -> LogitLens:
    """Read out the stream before every layer with the final norm and head."""
    tops = []
    with torch.inference_mode():
        h = reading.h
        for layer in range(stack.n_layers + 1):
            tops.append(stack.readout(h)[0].argmax(dim=-1).cpu())
            if layer < stack.n_layers:
                h = stack.run_layer(layer, h, reading.context)
    on_top = torch.stack([top == tops[-1] for top in tops])  # [n_layers + 1, N]
    settled = on_top.flip(0).int().cumprod(dim=0).flip(0)  # on top from here to the end
    return LogitLens(on_top, len(tops) - settled.sum(dim=0))


@dataclass(frozen=True, eq=False)
class AttentionSpread:
    """How each head distributes its attention.

    Args:
        entropy: [n_layers, heads, N] in nats.
        first: [n_layers, heads, N] weight on the first token of the text.
        distance: [n_layers, heads, N] mean number of tokens it looks back.
    """

    entropy: Tensor
    first: Tensor
    distance: Tensor


def attention_spread(copy: FloatCopy, reading: Reading) -> AttentionSpread:
    """Weights of the copy's attention modules, which return them when run eagerly.

    Args:
        copy: of the model.
        reading: made with the copy's stack.
    """
    weights: list[Tensor] = []
    hooks = [
        branch.module.register_forward_hook(lambda _, __, output: weights.append(output[1]))
        for pair in copy.stack.branches
        for branch in pair
        if branch.kind == ATTENTION
    ]
    spreads = []
    try:
        with torch.inference_mode(), copy.eager_attention():
            h = reading.h
            for layer in range(copy.stack.n_layers):
                h = copy.stack.run_layer(layer, h, reading.context)
                spreads.append(_spread(weights.pop().float(), reading))
    finally:
        for hook in hooks:
            hook.remove()
    entropy, first, distance = (torch.stack(found).cpu() for found in zip(*spreads, strict=True))
    return AttentionSpread(entropy, first, distance)


def _spread(weights: Tensor, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
    """Entropy, weight on the first token and distance, each [heads, N]."""
    weights = weights[0]  # [heads, N, P + N]
    keys = torch.arange(weights.shape[-1], device=weights.device)
    own = reading.text.prompt_length - 1 + torch.arange(weights.shape[-2], device=weights.device)
    back = (own[:, None] - keys).clamp(min=0)  # [N, P + N]
    return torch.special.entr(weights).sum(dim=-1), weights[..., 0], (weights * back).sum(dim=-1)


def for_attention(values: Tensor) -> Tensor:
    """[n_layers, heads, N] → [2L, N]: the mean over heads; NaN for MLP branches."""
    mean = values.mean(dim=1)  # [n_layers, N]
    return torch.stack([mean, torch.full_like(mean, float("nan"))], dim=1).flatten(0, 1)
