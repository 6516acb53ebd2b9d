"""Who proposes tokens (design §3); how many is for `policies` to say.

A drafter hands over rows and the laws they were drawn from. The engine knows nothing else of
where rows come from, so other drafters (a bridged stack, a tree, prompt lookup) change
nothing in the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .branch import Context
from .cache import KVCache
from .decoder import ResidualDecoder
from .plan import SkipPlan
from .policies import MAX_K, ConfidenceStop, DraftPolicy, FixedLength
from .sampling import Laws, concatenate

__all__ = ["MAX_K", "ConfidenceStop", "DraftPolicy", "FixedLength", "Proposal", "SkippedStack"]


@dataclass(frozen=True)
class Proposal:
    """Drafted rows.

    Args:
        drafter: who drafted, for the events.
        tokens: [k] ids, on the model's device.
        laws: the law q that each was really drawn from.
        parents: the draft that each continues, -1 for the committed text; None is a chain.
        states: [1, k + 1, D] the stream of the last committed token and of every draft where the
            first skipped branch reads it; None where the drafter doesn't keep it.
    """

    drafter: str
    tokens: Tensor
    laws: Laws
    parents: tuple[int, ...] | None = None
    states: Tensor | None = None


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
        keep_states: bool = False,
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
            keep_states: keep the stream at the first skipped branch, up to which the draft
                computes what the target does. The last draft takes these branches alone.
        """
        tokens: list[Tensor] = []
        laws: list[Laws] = []
        states: list[Tensor] = []
        row = last
        for depth in range(limit):
            logits = self._logits(row, cache, states if keep_states else None)  # [1, V]
            cache.advance(1)
            laws.append(law(logits, tokens))
            row = draw(laws[-1], depth)
            tokens.append(row)
            if policy.looks and policy.stops(_probability(laws[-1], row)):
                break
        if not tokens:
            return None
        if keep_states:
            states.append(self._shared(row, cache)[0])
        return Proposal(
            self.name,
            torch.cat(tokens),
            concatenate(laws),
            states=torch.cat(states, dim=1) if keep_states else None,  # [1, k + 1, D]
        )

    def first_skipped(self) -> int:
        """The branch at which draft and target part: attention and MLP of layer 0 are 0 and 1.

        A layer whose branches both read its input is taken whole. 2 × layers if none is skipped.
        """
        attention = (2 * layer for layer in self.plan.attention)
        first = min([*attention, *(2 * layer + 1 for layer in self.plan.mlp)],
                    default=2 * self.plan.n_layers)  # fmt: skip
        return first - first % 2 if self.decoder.parallel else first

    def _logits(self, row: Tensor, cache: KVCache, states: list[Tensor] | None) -> Tensor:
        """[1, V] the draft's logits after a token, whose stream is put to the states."""
        if states is None:
            logits: Tensor = self.decoder.logits(row, cache=cache, plan=self.plan)[0]
            return logits
        h, context = self._shared(row, cache)
        states.append(h)
        h = self.decoder.run_branches(h, context, self.first_skipped(), plan=self.plan)
        return self.decoder.readout(h)[0]

    def _shared(self, row: Tensor, cache: KVCache) -> tuple[Tensor, Context]:
        """The branches before the first skipped one: the stream [1, 1, D] there."""
        h, context = self.decoder.enter(row, cache)
        return self.decoder.run_branches(h, context, 0, self.first_skipped()), context


def _probability(laws: Laws, token: Tensor) -> float:
    return float(laws.log_probs[0, token[0]].exp())
