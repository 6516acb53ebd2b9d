"""The round without a model: tables of logits stand where forwards would.

`Table` gives logits that depend on the whole text, `round_law` the exact law of what one round
writes, path by path, and `decode` the tokens of a whole round loop with given noise. All three
decide nothing themselves: laws, verdicts, paths and residuals are `selfspec_core`'s.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from selfspec_core.acceptance import Rule, judge, residual, walk
from selfspec_core.sampling import Laws, Sampling, concatenate, laws_of

Text = tuple[int, ...]
LawOf = Callable[[Text], Laws]
"""The law of the next token after a text, one row."""
REJECTION = Rule(name="rejection")


def laws(*rows: list[float], temperature: float = 1.0) -> Laws:
    """Float64 laws with these probabilities."""
    log_probs = torch.tensor(rows, dtype=torch.float64).log()
    return Laws(log_probs.clone(), log_probs, temperature)


def doubles(first_below_its_vocabulary, scores):
    scores = scores.clone()
    scores[:2] = scores[:2] * 2 - 0.1 * len(first_below_its_vocabulary)
    return scores


PLAIN = Sampling(temperature=1.0)
PROCESSED = {
    "temperature": Sampling(temperature=0.6),
    "top_k": Sampling(temperature=1.0, top_k=2),
    "top_p": Sampling(temperature=0.8, top_p=0.7),
    "min_p": Sampling(temperature=1.2, min_p=0.25),
    "penalties": Sampling(temperature=1.0, repetition_penalty=1.7, presence_penalty=0.9),
    "logit_bias": Sampling(temperature=1.0, logit_bias=((1, 1.5), (2, -math.inf))),
    "processor": Sampling(temperature=1.0, processors=(doubles,)),
    "minimum_length": Sampling(temperature=1.0, min_new_tokens=2),
    "all": Sampling(
        temperature=0.9,
        top_k=4,
        top_p=0.95,
        min_p=0.05,
        repetition_penalty=1.3,
        presence_penalty=-0.4,
        min_new_tokens=1,
        logit_bias=((1, 0.5),),
        processors=(doubles,),
    ),
}
"""Every way of processing logits, one by one and together."""


class Table:
    """Random logits [V] for every text; two texts share nothing, `near` makes a draft of one."""

    def __init__(self, seed: int, vocab_size: int, *, near: Table | None = None) -> None:
        self.vocab_size = vocab_size
        self._seed, self._near = seed, near

    def __call__(self, text: Sequence[int]) -> Tensor:
        own = np.random.default_rng([self._seed, len(text), *text]).normal(size=self.vocab_size)
        logits = torch.tensor(1.5 * own)
        return logits if self._near is None else self._near(text) + 0.7 * logits


def law_of(
    table: Table,
    sampling: Sampling,
    *,
    prompt: Text = (),
    end_ids: Text = (),
    exact: bool = True,
) -> LawOf:
    """The law of a table's next token after prompt + text, through the one way there is.

    `laws_of` works in float32; so that sums are exact to 1e-12 its law is normalised again in
    float64, unless not `exact`. Truncation and penalties are in it all the same.
    """
    known: dict[Text, Laws] = {}

    def law(text: Text) -> Laws:
        if text not in known:
            rows = laws_of(
                table((*prompt, *text))[None],
                sampling,
                histories=[(*prompt, *text)],
                n_new=[len(text)],
                prompt_length=len(prompt),
                end_ids=end_ids,
            )
            if exact:
                log_probs = torch.log_softmax(rows.log_probs.double(), dim=-1)
                rows = Laws(rows.scores.double(), log_probs, rows.temperature)
            known[text] = rows
        return known[text]

    return law


@functools.lru_cache(maxsize=4096)
def written_by(target: LawOf, n: int, text: Text = ()) -> Tensor:
    """[V] * n, the law of the next n tokens of plain decoding after `text`."""
    if n == 0:
        return torch.ones((), dtype=torch.float64)
    p = target(text).probs()[0].double()
    after = torch.stack([written_by(target, n - 1, (*text, t)) for t in range(len(p))])
    return p.view(-1, *[1] * (n - 1)) * after


def round_law(
    k: int,
    target: LawOf,
    draft: LawOf,
    *,
    scored: LawOf | None = None,
    bonus: LawOf | None = None,
    replacement: Callable[[Tensor, Tensor], Tensor] = lambda p, q: residual(p, q)[0],
) -> tuple[Tensor, float]:
    """The exact law of the next k + 1 tokens under `rejection`, summed over every path.

    A path is the drafts drawn, how many pass, and the token after them; tokens past a shorter
    path's end are the target's own.

    Args:
        k: drafts in the round.
        target, draft: p and q.
        scored: what is handed to `judge` as q; `draft` where right.
        bonus: the law after a fully accepted draft; `target` where right.
        replacement: the law after a rejection.

    Returns:
        the law, [V] * (k + 1), and the probability that the first draft passes.
    """
    vocab_size = target(()).probs().shape[-1]
    law = torch.zeros([vocab_size] * (k + 1), dtype=torch.float64)
    first_passes = 0.0
    for drafts in itertools.product(range(vocab_size), repeat=k):
        texts = [drafts[:i] for i in range(k + 1)]
        rows = [target(text) for text in texts]
        p, q = concatenate(rows), concatenate([draft(text) for text in texts[:-1]])
        handed = q if scored is None else concatenate([scored(text) for text in texts[:-1]])
        tokens = torch.tensor(drafts)
        drawn = math.prod(q.probs()[range(k), drafts].tolist())
        if drawn == 0:
            continue

        def verdict(u: Tensor, p=p, handed=handed, tokens=tokens):
            return judge(REJECTION, p, handed, tokens, noise=torch.zeros_like(p.scores), u=u)

        ratios = verdict(torch.zeros(k, dtype=torch.float64)).ratios
        assert ratios is not None
        passes = ratios.clamp(max=1).tolist()
        first_passes += drawn * passes[0]
        for accepted in range(k + 1):
            fails = 1 - passes[accepted] if accepted < k else 1.0
            weight = drawn * math.prod(passes[:accepted]) * fails
            if weight <= 0:
                continue
            u = torch.where(torch.arange(k) < accepted, ratios / 2, ratios)
            assert walk(verdict(u).accepted.tolist()) == list(range(accepted))
            if accepted < k:
                final = replacement(p.probs()[accepted], q.probs()[accepted])
            else:
                final = (bonus or target)(drafts).probs()[0]
            head = drafts[:accepted]
            tails = [written_by(target, k - accepted, (*head, t)) for t in range(vocab_size)]
            final = final.double().view(-1, *[1] * (k - accepted))
            law[head] += weight * final * torch.stack(tails)
    return law, first_passes


def total_variation(a: Tensor, b: Tensor) -> float:
    """Half the summed absolute difference of two laws."""
    return float((a - b).abs().sum()) / 2


def decode(
    k: int,
    target: Table,
    draft: Table,
    *,
    rule: Rule,
    sampling: Sampling,
    noise: Tensor,
    prompt: Text = (0,),
    n_tokens: int = 12,
    draft_sampling: Sampling | None = None,
    end_ids: Text = (),
) -> list[int]:
    """The tokens of a whole round loop: drafts, one verdict for the window, commit.

    Args:
        k: drafts a round; 0 is plain decoding.
        noise: [len(prompt) + n_tokens, V], the shared Gumbel noise of every position.
    """
    text = list(prompt)

    def laws(table: Table, how: Sampling, drafts: list[int], rows: range) -> Laws:
        histories = [text + drafts[:i] for i in rows]
        return laws_of(
            torch.stack([table(history) for history in histories]),
            how,
            histories=histories,
            n_new=[len(history) - len(prompt) for history in histories],
            prompt_length=len(prompt),
            end_ids=end_ids,
        )

    while (left := len(prompt) + n_tokens - len(text)) > 0:
        drafts: list[int] = []
        q: list[Laws] = []
        for i in range(min(k, left - 1)):
            q.append(laws(draft, draft_sampling or sampling, drafts, range(i, i + 1)))
            drafts.append(int(q[-1].choose(noise[len(text) + i][None])))
        p = laws(target, sampling, drafts, range(len(drafts) + 1))
        judgement = judge(
            rule,
            p,
            concatenate(q) if q else None,
            torch.tensor(drafts, dtype=torch.int64),
            noise=None if p.greedy else noise[len(text) : len(text) + len(drafts) + 1],
        )
        path = walk(judgement.accepted.tolist())
        text += [*(drafts[i] for i in path), int(judgement.choices[len(path)])]
    return text[len(prompt) :]
