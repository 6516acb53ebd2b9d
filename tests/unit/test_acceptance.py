"""The rules: identity for arbitrary noise, exact losses, expected acceptance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from selfspec_core.acceptance import (
    RULES,
    Rule,
    expected_acceptance,
    judge,
    residual,
    typical_bound,
    walk,
)
from selfspec_core.noise import Purpose, gumbel
from selfspec_core.sampling import Laws, Sampling

from .rounds import PLAIN, PROCESSED, Table, decode, laws

EXACT = 1e-12


# -- walk and trees ----------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=16))
def test_walk_takes_a_chain_up_to_its_first_rejection(accepted):
    first = accepted.index(False) if False in accepted else len(accepted)
    assert walk(accepted) == list(range(first))


def test_walk_through_a_tree_goes_from_parent_to_accepted_child():
    parents = [-1, -1, 0, 1, 3, 3]
    assert walk([False, True, True, True, False, True], parents) == [1, 3, 5]
    assert walk([True, True, True, False, True, True], parents) == [0, 2]
    assert walk([False] * 6, parents) == []


def test_a_tree_is_judged_by_each_drafts_own_parent_row():
    p = laws([0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.5, 0.5])
    tokens, parents = torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1])
    got = judge(Rule(), p, None, tokens, noise=torch.zeros(4, 2), parents=parents)
    assert got.accepted.tolist() == [True, True, False]


# -- coupled: plain decoding's tokens ----------------------------------------------------------

_NOISE_LEVELS = st.sampled_from([-2.0, 0.0, 0.0, 1.0, 5.0]) | st.floats(-40, 40)


@st.composite
def decodings(draw):
    vocab_size = draw(st.integers(2, 6))
    seed = draw(st.integers(0, 10**6))
    target = Table(seed, vocab_size)
    near = draw(st.booleans())
    noise = draw(arrays.arrays(np.float64, (14, vocab_size), elements=_NOISE_LEVELS))
    how = draw(st.sampled_from([PLAIN, *PROCESSED.values()]))
    if vocab_size == 2 and how.logit_bias:  # one token is always left
        how = PLAIN
    return {
        "target": target,
        "draft": Table(seed + 1, vocab_size, near=target if near else None),
        "noise": torch.from_numpy(noise),
        "sampling": how,
        "draft_sampling": how.at(draw(st.sampled_from([0.0, 0.4, how.temperature]))),
        "prompt": (0, 1),
        "end_ids": (0,),
    }


@settings(max_examples=60, deadline=None)
@given(decodings(), st.integers(1, 16))
def test_coupled_is_plain_decoding_for_arbitrary_noise(setting, k):
    """Cases 3 to 6 too: the same processors for every row, with its own history and length."""
    plain = decode(0, rule=Rule(), **setting)
    assert len(plain) == 12
    assert decode(k, rule=Rule(), **setting) == plain


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_coupled_with_the_seeds_noise_is_plain_decoding_for_every_k(temperature):
    """Case 17: rounds without drafts, or with any number, leave the noise where it was."""
    target = Table(11, 6)
    setting = {
        "target": target,
        "draft": Table(12, 6, near=target),
        "sampling": Sampling(temperature=temperature),
        "noise": gumbel(5, torch.arange(40), 6, Purpose.COUPLED),
        "n_tokens": 39,
    }
    plain = decode(0, rule=Rule(), **setting)
    assert len(set(plain)) > 2
    assert all(decode(k, rule=Rule(), **setting) == plain for k in range(1, 17))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("k", [1, 3, 8])
def test_every_rule_is_greedy_decoding_at_temperature_0(name, k):
    """The lossy ones too, for settings that accept and refuse everything."""
    for extreme in (0.0, 0.5, 1.0):
        for seed in range(3):
            target = Table(seed, 5)
            setting = {
                "target": target,
                "draft": Table(30 + seed, 5, near=target),
                "sampling": Sampling(),
                "noise": torch.zeros(13, 5),
            }
            rule = Rule(name=name, threshold=extreme, epsilon=extreme, delta=extreme)
            assert decode(k, rule=rule, **setting) == decode(0, rule=Rule(), **setting)


def test_a_draft_with_other_noise_is_not_plain_decoding_under_a_lossy_rule():
    """The comparison above can fail: at temperature 1 the lossy rules do depart."""
    target = Table(1, 5)
    setting = {
        "target": target,
        "draft": Table(2, 5, near=target),
        "sampling": PLAIN,
        "noise": gumbel(0, torch.arange(41), 5, Purpose.COUPLED),
        "n_tokens": 40,
    }
    plain = decode(0, rule=Rule(), **setting)
    assert decode(3, rule=Rule(name="typical"), **setting) != plain
    assert decode(3, rule=Rule(name="threshold", threshold=0.3), **setting) != plain


# -- the lossy rules lose this much ------------------------------------------------------------


def _first_token_law(rule: Rule, p: list[float], q: list[float], n: int = 1000) -> list[float]:
    """Law of the first token for two tokens: n equally likely values of the noise's difference."""
    at = (torch.arange(n).double() + 0.5) / n
    noise = torch.stack([(at / (1 - at)).log(), torch.zeros(n)], dim=-1)  # logistic, as G0 − G1 is
    noise = torch.cat([noise, noise[:1]])
    target, draft = laws(*[p] * (n + 1)), laws(*[q] * n)
    drafts = draft.choose(noise[:n])
    got = judge(rule, target, draft, drafts, noise=noise, parents=torch.arange(n))
    out = torch.where(got.accepted, drafts, got.choices[:n])
    return (out.bincount(minlength=2) / n).tolist()


def test_threshold_moves_the_law_by_exactly_this_much():
    """p = [.75, .25] passes θ = .7 with token 0, so what the draft overdoes comes through."""
    p, q = [0.75, 0.25], [0.9, 0.1]
    assert _first_token_law(Rule(), p, q) == pytest.approx(p, abs=1e-6)
    assert _first_token_law(Rule(name="threshold"), p, q) == pytest.approx(q, abs=1e-6)
    strict = Rule(name="threshold", threshold=0.8)  # nothing passes: the target's own choice
    assert _first_token_law(strict, p, q) == pytest.approx(p, abs=1e-6)


def test_threshold_loses_nothing_where_the_draft_underdoes_the_likely_token():
    assert _first_token_law(Rule(name="threshold"), [0.75, 0.25], [0.4, 0.6]) == pytest.approx(
        [0.75, 0.25], abs=1e-6
    )


def test_typical_moves_the_law_by_exactly_this_much():
    """Its bound here is ε = .09, which both tokens of p reach: the output is the draft's law."""
    for q in ([0.9, 0.1], [0.4, 0.6]):
        assert _first_token_law(Rule(name="typical"), [0.75, 0.25], q) == pytest.approx(q, abs=1e-6)
    strict = Rule(name="typical", epsilon=0.3, delta=1.0)  # the bound is .3: token 1 fails
    assert _first_token_law(strict, [0.75, 0.25], [0.4, 0.6]) == pytest.approx(
        [0.75, 0.25], abs=1e-6
    )


def test_threshold_accepts_at_its_bound():
    got = judge(
        Rule(name="threshold", threshold=0.5),
        laws([0.5, 0.5], [0.5, 0.5]),
        None,
        torch.tensor([1]),
        noise=torch.zeros(2, 2),
    )
    assert got.accepted.tolist() == [True]
    assert got.judged.tolist() == pytest.approx([0.5])
    assert got.bounds.tolist() == [0.5]


@pytest.mark.parametrize(
    ("temperature", "judged_at"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (2.0, 2.0)]
)
def test_lossy_rules_judge_the_untruncated_law_at_temperature_1_or_above(temperature, judged_at):
    scores = torch.tensor([[2.0, 1.0, -1.0]] * 2)
    cut = torch.tensor([[0.0, -torch.inf, -torch.inf]] * 2)  # truncation left token 0 alone
    for name in ("threshold", "typical"):
        tokens = torch.tensor([1])
        got = judge(
            Rule(name=name), Laws(scores, cut, temperature), None, tokens, noise=torch.zeros(2, 3)
        )
        expected = (scores[0] / judged_at).softmax(-1)[1]
        assert float(got.judged) == pytest.approx(float(expected), abs=1e-6)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_typical_bound_is_medusas(weights, epsilon, delta):
    p = [w / sum(weights) for w in weights]
    entropy = -sum(x * math.log(x) for x in p)
    bound = typical_bound(torch.tensor(p, dtype=torch.float64).log(), epsilon, delta)
    assert float(bound) == pytest.approx(min(epsilon, delta * math.exp(-entropy)), abs=1e-9)


def test_typical_bound_of_excluded_tokens_is_finite():
    bound = typical_bound(torch.tensor([[0.0, -torch.inf]]), 0.09, 0.05)
    assert bound.tolist() == pytest.approx([0.05])


# -- expected acceptance -----------------------------------------------------------------------


@st.composite
def pairs_of_laws(draw):
    """Two laws of one size, with zeros and ties."""
    n = draw(st.integers(1, 9))
    weights = st.sampled_from([0.0, 0.0, 0.25, 1.0]) | st.floats(1e-3, 10)
    rows = [draw(st.lists(weights, min_size=n, max_size=n).filter(any)) for _ in range(2)]
    p, q = (torch.tensor(row, dtype=torch.float64) for row in rows)
    return p / p.sum(), q / q.sum()


def brute_coupled(p, q) -> float:
    """Σᵢ 1 / Σⱼ max(pⱼ/pᵢ, qⱼ/qᵢ), as design §3 writes it."""
    both = [i for i in range(len(p)) if p[i] > 0 and q[i] > 0]
    return sum(1 / sum(max(p[j] / p[i], q[j] / q[i]) for j in range(len(p))) for i in both)


@given(pairs_of_laws())
def test_expected_acceptance_equals_its_definition(pair):
    p, q = pair
    pl, ql = p.tolist(), q.tolist()
    rejection = sum(min(a, b) for a, b in zip(pl, ql, strict=True))
    assert float(expected_acceptance(p, q, "rejection")) == pytest.approx(rejection, abs=EXACT)
    coupled = float(expected_acceptance(p, q, "coupled"))
    assert coupled == pytest.approx(brute_coupled(pl, ql), abs=1e-10)
    assert coupled <= rejection + 1e-10
    assert float(expected_acceptance(p, p, "coupled")) == pytest.approx(1, abs=1e-10)


def test_expected_acceptance_of_coupled_is_how_often_the_two_races_agree():
    generator = torch.Generator().manual_seed(1)
    p, q = (torch.randn(8, generator=generator).double() * 1.5 for _ in range(2))
    noise = gumbel(3, torch.arange(100_000), 8, Purpose.COUPLED)
    agree = (
        (p.log_softmax(-1) + noise).argmax(-1) == (q.log_softmax(-1) + noise).argmax(-1)
    ).double()
    expected = float(expected_acceptance(p.softmax(-1), q.softmax(-1), "coupled"))
    assert float(agree.mean()) == pytest.approx(expected, abs=0.006)


def test_expected_acceptance_at_temperature_0_is_agreement():
    p = torch.tensor([[0.6, 0.4], [0.6, 0.4]])
    q = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    assert expected_acceptance(p, q, "threshold", greedy=True).tolist() == [1.0, 0.0]


def test_expected_acceptance_keeps_leading_shapes():
    p = torch.rand(2, 3, 5, dtype=torch.float64).softmax(-1)
    q = torch.rand(2, 3, 5, dtype=torch.float64).softmax(-1)
    for rule in ("coupled", "rejection"):
        whole = expected_acceptance(p, q, rule)
        assert whole.shape == (2, 3)
        assert float(whole[1, 2]) == pytest.approx(
            float(expected_acceptance(p[1, 2], q[1, 2], rule))
        )


def test_coupled_accepts_58_percent_where_rejection_accepts_64():
    """Design §3's averages, for peaked laws over 1,000 tokens and drafts near and far from them."""
    generator = torch.Generator().manual_seed(0)
    logits, off = (torch.randn(1000, 1000, generator=generator).double() for _ in range(2))
    how_far = 2 * torch.rand(1000, 1, generator=generator).double()
    p, q = (2 * logits).softmax(-1), (2 * logits + how_far * off).softmax(-1)
    assert float(expected_acceptance(p, q, "coupled").mean()) == pytest.approx(0.58, abs=0.01)
    assert float(expected_acceptance(p, q, "rejection").mean()) == pytest.approx(0.64, abs=0.01)


@pytest.mark.parametrize("rule", ["threshold", "typical"])
def test_there_is_no_formula_for_the_lossy_rules(rule):
    with pytest.raises(ValueError, match="only for coupled and rejection"):
        expected_acceptance(torch.ones(1), torch.ones(1), rule)


# -- rules -------------------------------------------------------------------------------------


def test_an_unknown_rule_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="coupled, rejection, threshold, typical"):
        Rule(name="exact")


@pytest.mark.parametrize("setting", ["threshold", "epsilon", "delta"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_settings_outside_0_to_1_are_refused(setting, value):
    with pytest.raises(ValueError, match=f"{setting} must be 0 to 1"):
        Rule(**{setting: value})


def test_what_the_rules_promise():
    for temperature in (0.0, 0.7):
        lossless = [Rule(name=name).lossless(temperature) for name in RULES]
        identical = [Rule(name=name).identical(temperature) for name in RULES]
        greedy = temperature == 0
        assert lossless == [True, True, greedy, greedy]
        assert identical == [True, greedy, greedy, greedy]


def test_a_window_without_drafts_is_the_targets_own_choice():
    """k = 0: nothing to judge, and one token to commit, whatever the rule."""
    for name in RULES:
        none = torch.zeros(0, dtype=torch.int64)
        got = judge(Rule(name=name), laws([0.1, 0.9]), None, none, noise=torch.zeros(1, 2))
        assert got.accepted.shape == (0,)
        assert got.choices.tolist() == [1]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_case_16_rules_write_into_nothing(name, temperature):
    generator = torch.Generator().manual_seed(3)
    p, q = (torch.randn(n, 7, generator=generator).log_softmax(-1) for n in (4, 3))
    target, draft = Laws(p * 2, p, temperature), Laws(q * 2, q, temperature)
    tokens, u = torch.tensor([1, 2, 3]), torch.rand(3, generator=generator).double()
    noise = gumbel(0, torch.arange(4), 7, Purpose.COUPLED)
    given_ = [target.scores, target.log_probs, draft.scores, draft.log_probs, tokens, u, noise]
    before = [tensor.clone() for tensor in given_]
    judge(Rule(name=name), target, draft, tokens, noise=noise, u=u)
    residual(target.probs()[0], draft.probs()[0])
    residual(p[0], q[0])
    for rule in ("coupled", "rejection"):
        expected_acceptance(p.exp()[:3], q.exp(), rule)
    typical_bound(p, 0.09, 0.3)
    assert all(torch.equal(a, b) for a, b in zip(given_, before, strict=True))
