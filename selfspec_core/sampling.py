"""From logits to laws: one function for draft and target, for every row (design §3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .bounded_json import shown

Processor = Callable[[Tensor, Tensor], Tensor]
"""A custom step: (history [n] int64, scores [V] float32) → scores [V]."""

_NUCLEUS = 1024  # top-p looks at this many tokens before it sorts the whole vocabulary


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How logits become a law. The defaults change nothing and take the likeliest token.

    Args:
        temperature: 0 is greedy; otherwise logits are divided by it (0 to 10).
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the likeliest tokens that together reach this probability (0 < p ≤ 1).
        min_p: keep tokens at least this fraction as likely as the likeliest (0 ≤ p < 1).
        repetition_penalty: divides positive and multiplies negative logits of every token in
            the text so far, prompt included (Keskar et al. 2019); 1 is off.
        presence_penalty: subtracted from the logits of tokens already written, prompt
            excluded; 0 is off.
        min_new_tokens: no end token before this many new tokens.
        logit_bias: (token id, addend) pairs.
        processors: custom steps, run after the built-in penalties and before the temperature.

    Raises:
        ValueError: a value outside the range; the message names it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    min_new_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    processors: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, allowed: str) -> None:
            if not ok:
                raise ValueError(f"{name} must be {allowed}, got {shown(getattr(self, name))}")

        need(0 <= self.temperature <= 10, "temperature", "0 to 10 (0 takes the likeliest token)")
        need(self.temperature == 0 or self.temperature >= 0.01, "temperature", "0, or 0.01 to 10")
        need(self.top_k >= 0, "top_k", "0 (off) or more")
        need(0 < self.top_p <= 1, "top_p", "above 0 and at most 1 (1 is off)")
        need(0 <= self.min_p < 1, "min_p", "at least 0 (off) and below 1")
        need(0.1 <= self.repetition_penalty <= 10, "repetition_penalty", "0.1 to 10 (1 is off)")
        need(abs(self.presence_penalty) <= 10, "presence_penalty", "-10 to 10 (0 is off)")
        need(self.min_new_tokens >= 0, "min_new_tokens", "0 or more")
        for _, bias in self.logit_bias:
            need(bias < math.inf, "logit_bias", "numbers below infinity (-inf forbids a token)")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0

    @property
    def looks_back(self) -> bool:
        """Whether a row's law depends on which tokens came before."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or bool(self.processors)

    def at(self, temperature: float) -> Sampling:
        """The same settings at another temperature."""
        return replace(self, temperature=temperature)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for events; custom processors by name."""
        plain = asdict(self)
        plain["logit_bias"] = [list(pair) for pair in self.logit_bias]
        plain["processors"] = [getattr(p, "__name__", type(p).__name__) for p in self.processors]
        return plain


@dataclass(frozen=True)
class Laws:
    """The laws of some rows.

    Args:
        scores: [R, V] float32 logits after penalties, before the temperature.
        log_probs: [R, V] float32 log-probabilities after temperature and truncation; at
            temperature 0, where the law itself is one-hot, those of `scores` at temperature 1.
        temperature: of the draw.
    """

    scores: Tensor
    log_probs: Tensor
    temperature: float

    @property
    def greedy(self) -> bool:
        """Whether each row's law is one-hot on its likeliest token."""
        return self.temperature == 0

    def log_law(self) -> Tensor:
        """[R, V] logarithm of `probs`: -inf but for one token a row at temperature 0."""
        return self.probs().log() if self.greedy else self.log_probs

    def probs(self) -> Tensor:
        """[R, V] the laws that tokens are drawn from; one-hot at temperature 0."""
        if not self.greedy:
            return self.log_probs.exp()
        top = self.scores.argmax(-1, keepdim=True)
        return torch.zeros_like(self.scores).scatter_(-1, top, 1.0)

    def choose(self, noise: Tensor | None) -> Tensor:
        """[R] a token of each row: `argmax(log p + noise)`; the likeliest at temperature 0.

        Args:
            noise: [R, V] Gumbel noise; not looked at, and may be None, at temperature 0.
        """
        if self.greedy:
            return self.scores.argmax(-1)
        assert noise is not None
        return (self.log_probs + noise).argmax(-1)

    def judged(self) -> Tensor:
        """[R, V] log-softmax at temperature max(T, 1), untruncated: what lossy rules look at."""
        return torch.log_softmax(self.scores / max(self.temperature, 1.0), dim=-1)

    def rows(self, index: slice) -> Laws:
        """Some of the rows."""
        return Laws(self.scores[index], self.log_probs[index], self.temperature)


def concatenate(laws: Sequence[Laws]) -> Laws:
    """Rows of several laws of one temperature, one after the other."""
    return Laws(
        torch.cat([law.scores for law in laws]),
        torch.cat([law.log_probs for law in laws]),
        laws[0].temperature,
    )


def laws_of(
    logits: Tensor,
    sampling: Sampling,
    *,
    histories: Sequence[Sequence[int]] | None = None,
    n_new: Sequence[int],
    prompt_length: int,
    end_ids: Sequence[int] = (),
) -> Laws:
    """The laws of rows of logits. This is the only way from logits to a law.

    Args:
        logits: [R, V], any float type; not written to.
        sampling: the settings.
        histories: each row's text so far (prefix and its own ancestors in the window);
            needed only where `sampling.looks_back`.
        n_new: how many new tokens each row's text has already.
        prompt_length: tokens of each history that are the prompt's.
        end_ids: tokens that end a text.
    """
    scores = _scores(logits, sampling, histories, n_new, prompt_length, end_ids)
    if sampling.greedy:
        return Laws(scores, torch.log_softmax(scores, dim=-1), 0.0)
    kept = _truncated(scores / sampling.temperature, sampling)
    return Laws(scores, torch.log_softmax(kept, dim=-1), sampling.temperature)


def _scores(
    logits: Tensor,
    sampling: Sampling,
    histories: Sequence[Sequence[int]] | None,
    n_new: Sequence[int],
    prompt_length: int,
    end_ids: Sequence[int],
) -> Tensor:
    scores = logits.to(torch.float32, copy=True)
    if sampling.looks_back:
        assert histories is not None
        for row, history in zip(range(len(scores)), histories, strict=True):
            scores[row] = _penalised(scores[row], sampling, history, prompt_length)
    for token, bias in sampling.logit_bias:
        if not 0 <= token < scores.shape[-1]:
            raise ValueError(f"logit_bias names token {token}; ids are 0 to {scores.shape[-1] - 1}")
        scores[:, token] += bias
    if end_ids:
        early = [row for row, n in enumerate(n_new) if n < sampling.min_new_tokens]
        for row in early:
            scores[row, list(end_ids)] = -torch.inf
    return scores


def _penalised(
    scores: Tensor, sampling: Sampling, history: Sequence[int], prompt_length: int
) -> Tensor:
    ids = torch.tensor(history, dtype=torch.int64, device=scores.device)
    if sampling.repetition_penalty != 1:
        seen = ids.unique()
        value = scores[seen]
        penalty = sampling.repetition_penalty
        scores[seen] = torch.where(value > 0, value / penalty, value * penalty)
    if sampling.presence_penalty:
        scores[ids[prompt_length:].unique()] -= sampling.presence_penalty
    for processor in sampling.processors:
        scores = processor(ids, scores)
    return scores


def _truncated(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores with the tokens that top-k, top-p and min-p leave out at -inf, in that order."""
    vocab_size = scores.shape[-1]
    if 0 < sampling.top_k < vocab_size:
        lowest = scores.topk(sampling.top_k, dim=-1).values[:, -1:]  # [R, 1]
        scores = scores.masked_fill(scores < lowest, -torch.inf)
    if sampling.top_p < 1:
        scores = scores.masked_fill(scores < _nucleus_bound(scores, sampling.top_p), -torch.inf)
    if sampling.min_p > 0:
        bound = scores.amax(-1, keepdim=True) + math.log(sampling.min_p)
        scores = scores.masked_fill(scores < bound, -torch.inf)
    return scores


def _nucleus_bound(scores: Tensor, top_p: float) -> Tensor:
    """[R, 1] the lowest score kept by top-p (Holtzman et al. 2020): row by row.

    A token is kept if the tokens above it don't reach `top_p` together.
    """
    log_total = scores.logsumexp(-1, keepdim=True)
    bounds = []
    for row, total in zip(scores, log_total, strict=True):  # [V], [1]
        top = row.topk(min(_NUCLEUS, len(row))).values
        reached = (top - total).exp().cumsum(0)
        if len(top) < len(row) and reached[-1] < top_p:
            top = row.sort(descending=True).values
            reached = (top - total).exp().cumsum(0)
        last = int((reached < top_p).sum().clamp(max=len(top) - 1))
        bounds.append(top[last])
    return torch.stack(bounds)[:, None]
