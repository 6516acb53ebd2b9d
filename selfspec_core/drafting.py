"""Who proposes tokens, and how many (design §3).

A drafter hands over rows and the laws they were drawn from. The engine knows nothing else of
where rows come from, so other drafters (a bridged stack, a tree, prompt lookup) change
nothing in the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .cache import KVCache
from .decoder import ResidualDecoder
from .plan import SkipPlan
from .sampling import Laws, concatenate

MAX_K = 16


@dataclass(frozen=True)
class Proposal:
    """Drafted rows.

    Args:
        drafter: who drafted, for the events.
        tokens: [k] ids, on the model's device.
        laws: the law q that each was really drawn from.
        parents: the draft that each continues, -1 for the committed text; None is a chain.
    """

    drafter: str
    tokens: Tensor
    laws: Laws
    parents: tuple[int, ...] | None = None


class DraftPolicy(Protocol):
    """How many tokens to draft in a round."""

    @property
    def limit(self) -> int:
        """Most drafts in this round."""

    def stops(self, confidence: float) -> bool:
        """Whether to draft no further after a token drawn with this probability.

        The token itself is kept and verified: throwing away a drawn token would bias the law.
        """

    @property
    def looks(self) -> bool:
        """Whether `stops` is worth asking (it costs a device synchronisation a token)."""


@dataclass(frozen=True)
class FixedLength:
    """Draft k tokens every round.

    Args:
        k: 0 to 16; 0 is plain decoding.
    """

    k: int
    looks = False

    def __post_init__(self) -> None:
        if not 0 <= self.k <= MAX_K:
            raise ValueError(f"k must be 0–{MAX_K}, got {self.k}")

    @property
    def limit(self) -> int:
        return self.k

    def stops(self, confidence: float) -> bool:  # noqa: ARG002
        return False

    def __str__(self) -> str:
        return "fixed"


@dataclass(frozen=True)
class ConfidenceStop(FixedLength):
    """Draft up to k tokens, and stop after one that the draft itself finds unlikely.

    Args:
        k: 0 to 16.
        threshold: stop after a token whose probability in the draft is below this, 0 to 1
            (Zhang et al. 2024, Draft & Verify, without their adaptation).
    """

    threshold: float = 0.6
    looks = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"the confidence threshold must be 0 to 1, got {self.threshold}")

    def stops(self, confidence: float) -> bool:
        return confidence < self.threshold

    def __str__(self) -> str:
        return f"confidence:{self.threshold:g}"


@dataclass(frozen=True)
class SkippedStack:
    """The model's own layers under a plan: self-speculation.

    Args:
        decoder: the model's gated stack.
        plan: the branches left out.
    """

    decoder: ResidualDecoder
    plan: SkipPlan
    name = "skip"

    def propose(
        self,
        last: Tensor,
        cache: KVCache,
        limit: int,
        *,
        law: Callable[[Tensor, Sequence[Tensor]], Laws],
        draw: Callable[[Laws, int], Tensor],
        policy: DraftPolicy,
    ) -> Proposal | None:
        """Draft up to `limit` tokens, one forward each; None for a limit of 0.

        Writes provisional keys and values to the cache, from its length on; the caller rolls
        back. What the draft reads of the text is the target's own (case 20).

        Args:
            last: [1] the last committed token.
            limit: most tokens that may be drafted now.
            law: (logits [1, V], drafts so far, each [1]) → the draft's law at that row.
            draw: (law, depth) → [1] the token drawn, `depth` tokens past the committed text.
            policy: asked after each token whether to stop.
        """
        tokens: list[Tensor] = []
        laws: list[Laws] = []
        row = last
        for depth in range(limit):
            logits = self.decoder.logits(row, cache=cache, plan=self.plan)[0]  # [1, V]
            cache.advance(1)
            laws.append(law(logits, tokens))
            row = draw(laws[-1], depth)
            tokens.append(row)
            if policy.looks and policy.stops(_probability(laws[-1], row)):
                break
        if not tokens:
            return None
        return Proposal(self.name, torch.cat(tokens), concatenate(laws))


def _probability(laws: Laws, token: Tensor) -> float:
    return float(laws.log_probs[0, token[0]].exp())
