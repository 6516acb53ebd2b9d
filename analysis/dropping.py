"""What dropping one branch really costs: the truth that attributions estimate.

One pass up the stack carries the whole stream and, from its layer on, the stream of every
dropped branch, as one batch. So nothing below a dropped branch is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .stack import Reading, Stack
from .texts import CancelledError

_ROWS_READ_OUT = 256


@dataclass(frozen=True, eq=False)
class Dropped:
    """Every branch of a text dropped alone. Rows as in `gates.py`.

    Args:
        lost: [2L, N] 1 where the likeliest token changes (lost greedy agreement), else 0.
        kl: [2L, N] KL(whole ‖ without the branch), in nats.
        logprob_drop: [2L, N] what the written token's log-probability loses, in nats.
    """

    lost: Tensor
    kl: Tensor
    logprob_drop: Tensor


def drop_each(
    stack: Stack,
    reading: Reading,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda _: None,
) -> Dropped:
    """Drop every branch alone, in all rows of a text; what comes before them is kept whole.

    Args:
        stack: in the precision that drafts run in.
        reading: made with it.
        cancelled: asked at every layer and readout.
        progress: called with the share of the work done, 0 to 1.

    Raises:
        CancelledError: it answered True.
    """
    n_streams = 2 * stack.n_layers + 1
    work = stack.n_layers * (stack.n_layers + 1) + n_streams
    with torch.inference_mode():
        h = reading.h
        for layer in range(stack.n_layers):
            if cancelled():
                raise CancelledError
            h = _up(stack, layer, h, reading)
            progress((layer + 1) * (layer + 2) / work)
        parts = []
        whole = torch.log_softmax(stack.readout(h[:1]).float(), dim=-1)  # [1, N, V]
        at_once = max(1, _ROWS_READ_OUT // h.shape[1])
        for first in range(1, n_streams, at_once):
            if cancelled():
                raise CancelledError
            law = torch.log_softmax(
                stack.readout(h[first : first + at_once]).float(), dim=-1
            )  # [b, N, V]
            parts.append(_compared(whole, law, reading.written))
            done = min(first + at_once, n_streams)
            progress((stack.n_layers * (stack.n_layers + 1) + done) / work)
    lost, kl, drop = (torch.cat(found).cpu() for found in zip(*parts, strict=True))
    return Dropped(lost, kl, drop)


def _up(stack: Stack, layer: int, h: Tensor, reading: Reading) -> Tensor:
    """One layer for all streams, [S, N, D] → [S + 2, N, D]: two more, dropped here.

    The whole stream is the first; the new ones come last.
    """
    attention, mlp = stack.branches[layer]
    first = attention(h, reading.context)
    if stack.parallel:
        second = mlp(h, reading.context)
        without = [h[:1] + second[:1], h[:1] + first[:1]]
        return torch.cat([h + (first + second), *without])
    h = torch.cat([h + first, h[:1]])
    second = mlp(h, reading.context)
    return torch.cat([h + second, h[:1]])


def _compared(whole: Tensor, law: Tensor, written: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whole's log-probabilities [1, N, V] against others' [b, N, V]; each result is [b, N]."""
    lost = (law.argmax(dim=-1) != whole.argmax(dim=-1)).float()
    kl = (whole.exp() * (whole - law)).sum(dim=-1)
    index = written[None, :, None]
    before, after = (x.gather(-1, index.expand(len(x), -1, 1))[..., 0] for x in (whole, law))
    return lost, kl, before - after
