"""What a text's score is, and the score as a function of gates or of a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from .stack import Reading, Stack
from .texts import CancelledError

LOGPROB, MARGIN, KL = "logprob", "margin", "kl"
SCORES: dict[str, str] = {
    LOGPROB: "log-probability of the written token",
    MARGIN: "its margin to the runner-up, in logits",
    KL: "negative KL divergence of the law from the whole model's",
}
"""Score choices, in words. All are in nats a token, and higher is better."""


def token_scores(
    score: str, logits: Tensor, written: Tensor, whole: Tensor | None = None
) -> Tensor:
    """The score of every written token.

    Args:
        score: one of `SCORES`.
        logits: [B, N, V].
        written: [N] token ids.
        whole: [1, N, V] log-probabilities of the whole model, for `kl`.

    Returns:
        [B, N]
    """
    index = written[None, :, None].expand(len(logits), -1, 1)
    if score == LOGPROB:
        return logits.gather(-1, index)[..., 0] - torch.logsumexp(logits, dim=-1)
    if score == MARGIN:
        others = logits.scatter(-1, index, float("-inf"))
        return logits.gather(-1, index)[..., 0] - others.amax(dim=-1)
    if score == KL:
        assert whole is not None, "kl is of a law against the whole model's"
        law = torch.log_softmax(logits, dim=-1)
        return -(whole.exp() * (whole - law)).sum(dim=-1)
    raise ValueError(f"a score is one of {', '.join(SCORES)}, got {score!r}")


class Objective:
    """A text's scores as a function of its gates, each row having its own.

    Args:
        stack: float32 for attribution.
        reading: of the text.
        score: one of `SCORES`.
        cancelled: asked before every evaluation.
    """

    def __init__(
        self,
        stack: Stack,
        reading: Reading,
        score: str = LOGPROB,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.stack, self.reading, self.score = stack, reading, score
        self._cancelled = cancelled

    @cached_property
    def _whole(self) -> Tensor:
        """[1, N, V] log-probabilities of the whole model; only `kl` asks for them."""
        with torch.no_grad():
            final = self.stack.run_layers(self.reading.h, self.reading.context)
            return torch.log_softmax(self.stack.readout(final).float(), dim=-1)

    @property
    def n_rows(self) -> int:
        """N, rows of the text and written tokens alike."""
        return len(self.reading.written)

    def ones(self) -> Tensor:
        """[1, N, 2, n_layers] gates of the whole model."""
        return torch.ones(1, self.n_rows, 2, self.stack.n_layers, device=self.stack.device)

    def __call__(self, gates: Tensor) -> Tensor:
        """Gates, broadcastable to [B, N, 2, n_layers] → scores [B, N]."""
        self.check()
        return self.of_final(
            self.stack.run_layers(self.reading.h, self.reading.context, gates=gates)
        )

    def of_stream(self, h: Tensor) -> Tensor:
        """The stream that the first layer reads, [B, N, D] → scores [B, N]."""
        self.check()
        return self.of_final(self.stack.run_layers(h, self.reading.context))

    def of_final(self, h: Tensor) -> Tensor:
        """The stream after the last layer, [B, N, D] → scores [B, N]."""
        logits = self.stack.readout(h).float()  # [B, N, V]
        whole = self._whole if self.score == KL else None
        return token_scores(self.score, logits, self.reading.written, whole)

    def check(self) -> None:
        """Raise `CancelledError` if the person asked to stop."""
        if self._cancelled():
            raise CancelledError
