"""`rejection`: the law of what it writes, summed over every path, is exactly the target's."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfspec_core.acceptance import acceptance_ratio, judge, residual
from selfspec_core.noise import Purpose, gumbel, uniform
from selfspec_core.sampling import Laws, Sampling

from .rounds import (
    PLAIN,
    PROCESSED,
    REJECTION,
    Table,
    law_of,
    laws,
    round_law,
    total_variation,
    written_by,
)

EXACT = 1e-12


def constant(*p: float, temperature: float = 1.0):
    """The same law after every text."""
    return lambda text: laws(list(p), temperature=temperature)


# -- the output's law, path by path ------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("vocab_size", [1, 2, 3, 4, 5, 6])
def test_rejection_writes_exactly_the_targets_law_over_every_path(vocab_size, k):
    table = Table(vocab_size, vocab_size)
    target = law_of(table, PLAIN)
    draft = law_of(Table(100 + k, vocab_size, near=table), PLAIN)
    law, _ = round_law(k, target, draft)
    assert float(law.sum()) == pytest.approx(1, abs=EXACT)
    assert total_variation(law, written_by(target, k + 1)) < EXACT


@pytest.mark.parametrize(("vocab_size", "k"), [(6, 2), (4, 3)])
@pytest.mark.parametrize("name", PROCESSED)
def test_rejection_stays_exact_under_truncation_penalties_and_processors(name, vocab_size, k):
    """Cases 2 to 6: processed p and q, each row with its own history and length."""
    table = Table(7, vocab_size)
    options = {"prompt": (1, 0), "end_ids": (0,)}
    target = law_of(table, PROCESSED[name], **options)
    draft = law_of(Table(8, vocab_size, near=table), PROCESSED[name], **options)
    law, _ = round_law(k, target, draft)
    assert total_variation(law, written_by(target, k + 1)) < EXACT


@pytest.mark.parametrize("name", ["temperature", "top_p", "all"])
def test_rejection_in_float32_is_exact_to_its_rounding(name):
    """The laws as the engine has them."""
    table = Table(7, 5)
    options = {"prompt": (1, 0), "end_ids": (0,), "exact": False}
    target = law_of(table, PROCESSED[name], **options)
    draft = law_of(Table(8, 5, near=table), PROCESSED[name], **options)
    law, _ = round_law(2, target, draft)
    assert total_variation(law, written_by(target, 3)) < 1e-6


@pytest.mark.parametrize("draft_sampling", [PROCESSED["temperature"], PROCESSED["top_k"], PLAIN])
def test_rejection_is_exact_whatever_law_the_draft_has(draft_sampling):
    target = law_of(Table(1, 5), PROCESSED["top_p"])
    draft = law_of(Table(2, 5), draft_sampling)  # another model altogether
    law, _ = round_law(2, target, draft)
    assert total_variation(law, written_by(target, 3)) < EXACT


TABLE = Table(3, 4)
TARGET = law_of(TABLE, Sampling(temperature=0.9, min_p=0.05))
DRAFT = law_of(Table(4, 4, near=TABLE), PROCESSED["temperature"])
WRONG = {
    "q of the raw logits": {"scored": law_of(Table(4, 4, near=TABLE), PLAIN)},
    "q of another draft": {"scored": law_of(Table(5, 4, near=TABLE), PROCESSED["temperature"])},
    "bonus from q": {"bonus": DRAFT},
    "bonus from raw logits": {"bonus": law_of(TABLE, PLAIN)},
    "rejections replaced from p": {"replacement": lambda p, q: p},
    "rejections replaced from |p - q|": {
        "replacement": lambda p, q: (p - q).abs() / (p - q).abs().sum()
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_the_enumeration_catches_a_wrong_round(name):
    law, _ = round_law(2, TARGET, DRAFT, **WRONG[name])
    assert total_variation(law, written_by(TARGET, 3)) > 1e-2


def test_case_1_a_greedy_draft_is_scored_by_its_one_hot_law():
    p = constant(0.6, 0.4)
    greedy = constant(0.8, 0.2, temperature=0.0)  # draws token 0 for sure
    right, _ = round_law(1, p, greedy)
    assert right.sum(1).tolist() == pytest.approx([0.6, 0.4], abs=EXACT)
    softmax_scored, _ = round_law(1, p, greedy, scored=constant(0.8, 0.2))
    assert softmax_scored.sum(1).tolist() == pytest.approx([0.75, 0.25], abs=EXACT)


def test_case_2_acceptance_is_the_overlap_of_the_processed_laws():
    for seed in range(10):
        table = Table(seed, 6)
        target = law_of(table, PROCESSED["top_p"])
        draft = law_of(Table(50 + seed, 6, near=table), PROCESSED["top_p"])
        _, passes = round_law(1, target, draft)
        p, q = target(()).probs(), draft(()).probs()
        assert passes == pytest.approx(float(torch.minimum(p, q).sum()), abs=EXACT)


def test_case_2_raw_logits_in_verification_look_better_and_are_wrong():
    how, wrong, better = Sampling(temperature=0.7, top_p=0.9), [], 0
    for seed in range(30):
        table, near = Table(seed, 6), Table(50 + seed, 6, near=Table(seed, 6))
        target, draft = law_of(table, how), law_of(near, how)
        law, passes = round_law(1, target, draft, scored=law_of(near, PLAIN))
        better += passes > round_law(1, target, draft)[1]
        wrong.append(total_variation(law, written_by(target, 2)))
    assert better > 20
    assert statistics.median(wrong) > 0.03


@pytest.mark.parametrize("ratio", [0.25, 0.5, 1.0])
def test_a_draft_passes_below_its_ratio_and_not_at_it(ratio):
    p, q = laws([ratio / 2, 1 - ratio / 2], [0.5, 0.5]), laws([0.5, 0.5])
    token = torch.tensor([0])
    exact = float(acceptance_ratio(p.log_probs[:1], q.log_probs, token))
    assert exact == pytest.approx(ratio, abs=EXACT)

    def passes(u: float) -> bool:
        noise = torch.zeros(2, 2)
        u = torch.tensor([u], dtype=torch.float64)
        return bool(judge(REJECTION, p, q, token, noise=noise, u=u).accepted)

    assert passes(math.nextafter(exact, 0))
    assert not passes(exact)
    assert not passes(math.nextafter(exact, 2))


def test_a_draft_that_the_target_excludes_never_passes():
    p, q = laws([0.0, 1.0], [0.5, 0.5]), laws([0.5, 0.5])
    u = torch.tensor([0.0], dtype=torch.float64)
    tokens = torch.tensor([0])
    assert not judge(REJECTION, p, q, tokens, noise=torch.zeros(2, 2), u=u).accepted


def test_a_draft_that_the_target_likes_better_always_passes():
    p, q = laws([0.9, 0.1], [0.5, 0.5]), laws([0.5, 0.5])
    u = torch.tensor([1 - 2**-53], dtype=torch.float64)
    assert judge(REJECTION, p, q, torch.tensor([0]), noise=torch.zeros(2, 2), u=u).accepted


P, Q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]

# -- residual ----------------------------------------------------------------------------------


def test_residual_is_the_excess_and_its_mass_the_chance_of_a_rejection():
    p, q = (torch.tensor(law, dtype=torch.float64) for law in (P, Q))
    law, mass = residual(p, q)
    assert law.tolist() == pytest.approx([0.75, 0.25, 0.0], abs=EXACT)
    assert float(mass) == pytest.approx(0.4, abs=EXACT)
    assert float(mass) == pytest.approx(1 - float(torch.minimum(p, q).sum()), abs=EXACT)


def test_case_15_residual_without_mass_is_the_targets_law():
    rows = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    law, mass = residual(rows, torch.stack([rows[0], rows[1].flip(0)]))
    assert mass.tolist() == pytest.approx([0.0, 0.6])
    assert law[0].tolist() == rows[0].tolist()
    assert law[1].tolist() == pytest.approx([0.0, 0.0, 1.0])


@given(st.integers(0, 10**6), st.integers(1, 40), st.booleans())
def test_case_15_a_correction_is_always_a_token_that_the_target_allows(seed, vocab_size, same):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, vocab_size, generator=generator) * 3
    logits[0, 1:][torch.rand(vocab_size - 1, generator=generator) < 0.5] = -torch.inf
    p, q = logits.softmax(-1)
    law, _ = residual(p, p.clone() if same else q)
    noise = gumbel(seed, torch.arange(8), vocab_size, Purpose.TARGET)
    tokens = (law.log() + noise).argmax(-1)
    assert bool((tokens < vocab_size).all())
    assert bool((p[tokens] > 0).all())


# -- its streams of noise ------------------------------------------------------------------------


def _rejection_frequencies(n: int, target_stream: Purpose, seed: int = 0) -> list[float]:
    """How often each token comes out of n rounds of one draft, with the noise of `noise.py`."""
    positions = torch.arange(n)
    p, q = laws(P), laws(Q)
    many_p = Laws(p.scores.expand(n + 1, 3), p.log_probs.expand(n + 1, 3), 1.0)
    many_q = Laws(q.scores.expand(n, 3), q.log_probs.expand(n, 3), 1.0)
    drafts = many_q.choose(gumbel(seed, positions, 3, Purpose.DRAFT))
    noise = gumbel(seed, torch.arange(n + 1), 3, target_stream)
    u = uniform(seed, positions, drafts, Purpose.ACCEPT)
    accepted = judge(REJECTION, many_p, many_q, drafts, noise=noise, u=u, parents=positions)
    law, _ = residual(torch.tensor(P).double(), torch.tensor(Q).double())
    corrections = (law.log() + noise[:n]).argmax(-1)
    out = torch.where(accepted.accepted, drafts, corrections)
    return (out.bincount(minlength=3) / n).tolist()


def test_case_17_streams_of_their_own_give_the_targets_law():
    assert _rejection_frequencies(150_000, Purpose.TARGET) == pytest.approx(P, abs=0.005)


def test_case_17_one_stream_for_draft_and_residual_gives_a_wrong_law():
    """Design §3 measured [.527, .273, .200]; the race of exponentials gives it exactly.

    Given that token 2 (rate .6) won the draft, tokens 0 and 1 still run: 0 wins the residual
    (rates .75 and .25) with 1 − E[e^(−2s)] E[e^(−3b)] = 1 − 5/7 · 1/4, for s ~ Exp(5).
    """
    exact = [0.2 + 0.4 * 23 / 28, 0.2 + 0.4 * 5 / 28, 0.2]
    assert exact == pytest.approx([0.527, 0.273, 0.200], abs=0.002)
    shared = _rejection_frequencies(150_000, Purpose.DRAFT)
    assert shared == pytest.approx(exact, abs=0.005)
    assert max(abs(a - b) for a, b in zip(shared, P, strict=True)) > 0.02
