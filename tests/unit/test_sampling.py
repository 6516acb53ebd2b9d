"""From logits to laws: supports, processing of every row alike, ranges."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfspec_core.sampling import Laws, Sampling, concatenate, laws_of

NOTHING = -torch.inf


def law(logits, sampling: Sampling, **options) -> Laws:
    """Laws of rows of logits without a history."""
    rows = torch.as_tensor(logits, dtype=torch.float32)
    rows = rows[None] if rows.ndim == 1 else rows
    return laws_of(rows, sampling, **{"n_new": [0] * len(rows), "prompt_length": 0} | options)


def support(logits, **settings) -> set[int]:
    """The tokens that one row can give."""
    return set(
        law(logits, Sampling(**{"temperature": 1.0} | settings)).probs()[0].nonzero()[:, 0].tolist()
    )


def of(*p: float) -> torch.Tensor:
    """Logits of a law."""
    return torch.tensor(p).log()


@st.composite
def rows(draw) -> torch.Tensor:
    """Logits of a few tokens, ties among them."""
    levels = st.sampled_from([-3.0, 0.0, 0.0, 2.0]) | st.floats(-8, 8, width=32)
    return torch.tensor(draw(st.lists(levels, min_size=1, max_size=12)))


# -- temperature -------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.01, 0.3, 1.0, 2.5, 10.0])
def test_temperature_divides_the_logits(temperature):
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.5, 3.0]])
    expected = (logits.double() / temperature).softmax(-1)
    assert torch.allclose(
        law(logits, Sampling(temperature=temperature)).probs().double(), expected, atol=1e-6
    )


def test_greedy_is_one_hot_on_the_likeliest_token_and_needs_no_noise():
    got = law([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]], Sampling())
    assert got.greedy
    assert got.probs().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert got.choose(None).tolist() == [1, 0]
    assert torch.allclose(got.log_probs.exp().sum(-1), torch.ones(2))


@given(rows())
def test_greedy_ignores_truncation(logits):
    plain = law(logits, Sampling()).choose(None)
    assert torch.equal(law(logits, Sampling(top_k=1, top_p=0.1, min_p=0.5)).choose(None), plain)


def test_choose_adds_the_noise_to_the_log_law():
    got = law(of(0.7, 0.2, 0.1), Sampling(temperature=1.0))
    assert got.choose(torch.tensor([[0.0, 0.0, 0.0]])).tolist() == [0]
    assert got.choose(torch.tensor([[0.0, 1.2, 0.0]])).tolist() == [0]  # log(.7/.2) = 1.253
    assert got.choose(torch.tensor([[0.0, 1.3, 0.0]])).tolist() == [1]


def test_choose_never_takes_an_excluded_token_whatever_the_noise():
    got = law(of(0.7, 0.2, 0.1), Sampling(temperature=1.0, top_k=2))
    assert got.choose(torch.tensor([[-1e30, -1e30, 1e30]])).tolist() != [2]


# -- truncation --------------------------------------------------------------------------------


def test_top_k_keeps_the_k_likeliest():
    p = of(0.1, 0.4, 0.2, 0.3)
    assert [support(p, top_k=k) for k in (1, 2, 3, 4, 5, 0)] == [
        {1}, {1, 3}, {1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3},
    ]  # fmt: skip


def test_top_p_keeps_the_fewest_that_reach_it_and_always_one():
    p = of(0.1, 0.4, 0.2, 0.3)
    assert [support(p, top_p=x) for x in (0.01, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91, 1.0)] == [
        {1}, {1}, {1, 3}, {1, 3}, {1, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3},
    ]  # fmt: skip


def test_min_p_keeps_those_near_the_likeliest():
    p = of(0.1, 0.4, 0.2, 0.3)
    assert [support(p, min_p=x) for x in (0.99, 0.76, 0.74, 0.51, 0.49, 0.24, 0.0)] == [
        {1}, {1}, {1, 3}, {1, 3}, {1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3},
    ]  # fmt: skip


def test_top_p_counts_what_top_k_left_and_comes_after_the_temperature():
    p = of(0.1, 0.4, 0.2, 0.3)
    assert support(p, top_p=0.5) == {1, 3}
    assert support(p, top_k=2, top_p=0.5) == {1}  # .4 of .7 is more than half
    assert support(p, top_p=0.5, temperature=0.3) == {1}
    assert support(p, top_p=0.5, temperature=5.0) == {1, 3}
    assert support(p, top_p=0.6, temperature=5.0) == {1, 2, 3}


@given(rows(), st.integers(0, 14), st.floats(0.05, 1), st.floats(0, 0.95), st.floats(0.2, 3))
def test_truncation_keeps_the_likeliest_and_their_proportions(
    logits, top_k, top_p, min_p, temperature
):
    how = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    p = law(logits, how).probs()[0].double()
    whole = (logits.double() / temperature).softmax(-1)
    kept = p > 0
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    assert bool(kept[whole.argmax()])
    if not bool(kept.all()):
        assert float(whole[kept].min()) >= float(whole[~kept].max())
    assert torch.allclose(p[kept], (whole[kept] / whole[kept].sum()), rtol=1e-4)
    ties = int((logits == logits[kept].min()).sum())
    assert top_k == 0 or int(kept.sum()) <= top_k - 1 + ties


def full_sort_support(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """The nucleus by sorting everything, in float64."""
    order = logits.argsort(descending=True)
    p = logits.double().softmax(-1)[order]
    return order[(p.cumsum(0) - p) < top_p].sort().values


@pytest.mark.parametrize("vocab_size", [1023, 1024, 1025, 5000])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 4.0])
def test_a_nucleus_of_any_size_is_that_of_the_full_sort(vocab_size, spread):
    """The likeliest 1,024 are looked at first; flat laws need more of them."""
    generator = torch.Generator().manual_seed(vocab_size)
    logits = torch.randn(3, vocab_size, generator=generator) * torch.tensor([[0.01], [1.0], [1.0]])
    logits[2] *= spread
    sizes = []
    for top_p in (0.3, 0.9, 0.999):
        got = law(logits, Sampling(temperature=1.0, top_p=top_p)).probs()
        for row, p in zip(logits, got, strict=True):
            kept, expected = p.nonzero()[:, 0], full_sort_support(row, top_p)
            sizes.append(len(expected))
            if row.unique().numel() == 1:  # all tie: none is left out
                assert len(kept) == vocab_size
            else:  # a token at the edge may fall either way by rounding
                assert abs(len(kept) - len(expected)) <= max(1, vocab_size // 2000)
                fewer, more = sorted((kept, expected), key=len)
                assert set(fewer.tolist()) <= set(more.tolist())
    if vocab_size == 5000:
        assert min(sizes) <= 1024 < max(sizes)


# -- what comes before the temperature ---------------------------------------------------------


def test_case_4_logit_bias_is_added_to_every_row():
    how = Sampling(temperature=1.0, logit_bias=((1, 2.0), (2, NOTHING)))
    got = law([[0.0, 0.0, 9.0], [1.0, -1.0, 9.0]], how)
    assert got.scores.tolist() == [[0, 2, NOTHING], [1, 1, NOTHING]]
    assert got.probs()[1].tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_logit_bias_of_a_token_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="names token 3; ids are 0 to 2"):
        law([0.0, 0.0, 0.0], Sampling(logit_bias=((3, 1.0),)))


def test_case_4_custom_processors_see_history_and_scores_before_the_temperature():
    seen = []

    def halve_last(history, scores):
        seen.append((history.tolist(), scores.tolist()))
        scores = scores.clone()
        scores[history[-1]] /= 2
        return scores

    got = laws_of(
        torch.tensor([[2.0, 4.0], [2.0, 4.0]]),
        Sampling(temperature=2.0, processors=(halve_last,)),
        histories=[[0, 1], [1, 0]],
        n_new=[1, 2],
        prompt_length=1,
    )
    assert seen == [([0, 1], [2.0, 4.0]), ([1, 0], [2.0, 4.0])]
    assert got.scores.tolist() == [[2.0, 2.0], [1.0, 4.0]]
    assert got.probs()[0].tolist() == pytest.approx([0.5, 0.5])


def test_case_5_repetition_penalty_counts_each_rows_own_history_prompt_included():
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0]] * 3)
    got = laws_of(
        logits,
        Sampling(repetition_penalty=2.0),
        histories=[[0], [0, 1, 0], [3, 2, 2]],
        n_new=[0, 2, 2],
        prompt_length=1,
    )
    assert got.scores.tolist() == [[1, -2, 2, -2], [1, -4, 2, -2], [2, -2, 1, -4]]


def test_case_5_presence_penalty_counts_written_tokens_once_and_not_the_prompt():
    got = laws_of(
        torch.zeros(3, 4),
        Sampling(presence_penalty=0.5),
        histories=[[0, 1], [0, 1, 2], [0, 1, 0, 3, 3]],
        n_new=[0, 1, 3],
        prompt_length=2,
    )
    assert got.scores.tolist() == [[0, 0, 0, 0], [0, 0, -0.5, 0], [-0.5, 0, 0, -0.5]]


def test_case_6_minimum_length_masks_the_end_by_each_rows_own_length():
    got = laws_of(
        torch.zeros(4, 3),
        Sampling(temperature=1.0, min_new_tokens=3),
        n_new=[1, 2, 3, 4],
        prompt_length=5,
        end_ids=(0, 2),
    )
    assert (got.probs() > 0).tolist() == [[False, True, False]] * 2 + [[True] * 3] * 2


def test_case_6_without_end_tokens_a_minimum_length_changes_nothing():
    got = laws_of(torch.zeros(1, 3), Sampling(min_new_tokens=3), n_new=[0], prompt_length=1)
    assert got.scores.tolist() == [[0, 0, 0]]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_case_3_rows_together_are_the_same_bits_as_rows_alone(seed, n):
    """So the bonus row, and every other, is processed like plain decoding's."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 1500, generator=generator) * 2
    histories = torch.randint(1500, (n, 9), generator=generator).tolist()
    how = Sampling(
        temperature=0.7,
        top_k=1200,
        top_p=0.95,
        min_p=0.001,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        min_new_tokens=2,
        logit_bias=((3, 1.0),),
    )
    options = {"prompt_length": 2, "end_ids": (5,)}
    together = laws_of(logits, how, histories=histories, n_new=range(n), **options)
    for i in range(n):
        alone = laws_of(
            logits[i : i + 1], how, histories=histories[i : i + 1], n_new=[i], **options
        )
        assert torch.equal(alone.log_probs, together.log_probs[i : i + 1])
        assert torch.equal(alone.scores, together.rows(slice(i, i + 1)).scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_case_16_logits_are_not_written_to(dtype):
    logits = torch.randn(2, 6).to(dtype)
    before = logits.clone()
    everything = Sampling(
        temperature=0.5, top_k=4, top_p=0.8, min_p=0.1, repetition_penalty=1.5,
        presence_penalty=1.0, min_new_tokens=5, logit_bias=((0, 3.0),),
    )  # fmt: skip
    got = laws_of(
        logits, everything, histories=[[1, 2], [1, 3]], n_new=[1, 1], prompt_length=1, end_ids=(4,)
    )
    assert got.log_probs.dtype == torch.float32
    assert torch.equal(logits, before)
    for how in (Sampling(), Sampling(temperature=1.0)):
        laws_of(logits, how, n_new=[0, 0], prompt_length=1).scores.zero_()
        assert torch.equal(logits, before)


def test_concatenating_rows_and_slicing_them_are_inverse():
    a, b = (
        law([[1.0, 2.0]], Sampling(temperature=0.5)),
        law([[3.0, 1.0]], Sampling(temperature=0.5)),
    )
    both = concatenate([a, b])
    assert both.temperature == 0.5
    assert torch.equal(both.rows(slice(1, 2)).log_probs, b.log_probs)
    assert torch.equal(both.rows(slice(0, 1)).scores, a.scores)


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -0.1}, "temperature must be 0 to 10"),
        ({"temperature": 10.1}, "temperature must be 0 to 10"),
        ({"temperature": 0.001}, "temperature must be 0, or 0.01 to 10"),
        ({"temperature": math.nan}, "temperature must be 0 to 10"),
        ({"temperature": math.inf}, "temperature must be 0 to 10"),
        ({"top_k": -1}, r"top_k must be 0 \(off\) or more, got -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"top_p": math.nan}, "top_p must be above 0 and at most 1"),
        ({"min_p": -0.1}, r"min_p must be at least 0 \(off\) and below 1"),
        ({"min_p": 1.0}, r"min_p must be at least 0 \(off\) and below 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be 0.1 to 10"),
        ({"repetition_penalty": 11.0}, "repetition_penalty must be 0.1 to 10"),
        ({"presence_penalty": -11.0}, "presence_penalty must be -10 to 10"),
        ({"presence_penalty": math.nan}, "presence_penalty must be -10 to 10"),
        ({"min_new_tokens": -1}, "min_new_tokens must be 0 or more"),
        ({"logit_bias": ((0, math.nan),)}, "logit_bias must be"),
        ({"logit_bias": ((0, math.inf),)}, "logit_bias must be"),
    ],
)  # fmt: skip
def test_a_setting_outside_its_range_is_refused_with_what_is_allowed(settings, words):
    with pytest.raises(ValueError, match=words):
        Sampling(**settings)


def test_the_edges_of_the_ranges_are_allowed():
    for temperature in (0, 0.01, 10):
        Sampling(
            temperature=temperature, top_p=1, min_p=0, presence_penalty=-10, repetition_penalty=0.1
        )


def test_the_defaults_change_nothing_and_look_at_no_history():
    how = Sampling()
    assert how.greedy
    assert not how.looks_back
    logits = torch.randn(2, 9)
    assert torch.equal(law(logits, how).scores, logits)
    assert torch.equal(law(logits, how.at(1.0)).log_probs, logits.log_softmax(-1))
    assert Sampling(repetition_penalty=1.1).looks_back
    assert Sampling(presence_penalty=0.1).looks_back
    assert Sampling(processors=(lambda history, scores: scores,)).looks_back


def test_settings_are_plain_data_for_the_trace():
    def louder(history, scores):
        return scores * 2

    plain = Sampling(temperature=0.5, logit_bias=((3, 1.0),), processors=(louder,)).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["logit_bias"] == [[3, 1.0]]
    assert plain["processors"] == ["louder"]
    assert plain["temperature"] == 0.5
