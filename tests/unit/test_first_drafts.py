"""The first drafts under a plan, weighed exactly: every way a text can go, with its probability.

A text's drafts are right with one probability, the rate, that the policy doesn't know. Expected
times are computed for all rates at once, in plain rounds.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from selfspec_core.first_drafts import FirstDrafts
from selfspec_core.request import Request

Times = tuple[float, ...]
ByRate = NDArray[np.float64]

RATES = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97])
LOTS = tuple((np.arange(16) + 0.5) / 16)


def times_of(step: float, most: int) -> Times:
    return tuple(1 + k * step + 0.02 * (k > 0) for k in range(most + 1))


def outcomes(k: int, rates: ByRate) -> list[ByRate]:
    """How likely 0 to k of k drafts are accepted."""
    return [rates**n * (1 - rates if n < k else 1) for n in range(k + 1)]


def fixed(k: int, length: int, times: Times, rates: ByRate = RATES) -> ByRate:
    """Time of a text with k drafts a round."""
    cost = [np.zeros_like(rates)]
    for left in range(1, length + 1):
        likely = outcomes(min(k, left - 1), rates)
        after = sum(p * cost[left - n - 1] for n, p in enumerate(likely))
        cost.append(times[len(likely) - 1] + after)
    return cost[length]


def better(k: int, length: int, times: Times, rates: ByRate = RATES) -> ByRate:
    """Time of the better of plain decoding and fixed k, for each rate."""
    return np.minimum(fixed(0, length, times, rates), fixed(k, length, times, rates))


def opened(times: Times, length: int, lot: float, rates: ByRate = RATES) -> ByRate:
    """Time of a first text; plain once what may be risked is lost."""

    @functools.cache
    def cost(left: int, known: tuple[tuple[str, float], ...]) -> ByRate:
        first = FirstDrafts()
        vars(first).update(known)
        room = left - 1
        k = 0
        if room > 0 and not first.over:
            k = first.choose(times, min(room, len(times) - 1), lot)
        if not k:
            return np.full_like(rates, left)
        begun = dict(vars(first))
        total = np.full_like(rates, times[k])
        for accepted, likely in enumerate(outcomes(k, rates)):
            vars(first).update(begun)
            first.observe(min(accepted + 1, k), accepted)
            first.pay(times[k] - 1)
            after = tuple(sorted(vars(first).items()))
            total = total + likely * cost(left - accepted - 1, after)
        return total

    return cost(length, tuple(sorted(vars(FirstDrafts()).items())))


def least_regret(k: int, length: int, times: Times, prior: dict[float, float]) -> float:
    """Below which no policy can keep the time ÷ the better of plain and fixed k, at every rate.

    The policy that is best on average, if rates come with these weights, has this average; so
    any policy is at least as slow at some rate. Its belief after some drafts is Bayes'.
    """
    rates, weights = np.array(list(prior)), np.array(list(prior.values()))
    weights = weights / weights.sum() / better(k, length, times, rates)

    @functools.cache
    def cost(left: int, accepted: int, rejected: int) -> ByRate:
        if left == 0:
            return np.zeros_like(rates)
        belief = weights * rates**accepted * (1 - rates) ** rejected
        ways = [
            times[drafts]
            + sum(
                p * cost(left - n - 1, accepted + n, rejected + (n < drafts))
                for n, p in enumerate(outcomes(drafts, rates))
            )
            for drafts in range(min(k, left - 1) + 1)
        ]
        return min(ways, key=lambda way: float(way @ belief))

    return float(cost(length, 0, 0) @ weights)


def shares(step: float, most: int, rates: ByRate = RATES) -> ByRate:
    """The better of plain and fixed k ÷ a first text of 32 tokens, averaged over lots."""
    times = times_of(step, most)
    mean = np.mean([opened(times, 32, lot, rates) for lot in LOTS], axis=0)
    return better(most, 32, times, rates) / mean


@pytest.mark.parametrize("step", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_getting_to_know_a_plan_costs_one_text_of_32_tokens_at_most_3_3_percent(step, most):
    assert shares(step, most).min() >= 0.967


@pytest.mark.parametrize("step", [0.1, 0.2, 0.25, 0.3, 0.4, 0.6, 0.8])
def test_where_every_draft_is_accepted_beginning_small_costs_at_most_4_5_percent(step):
    """32 tokens are eight full rounds with k = 3, and one more where it doesn't begin with 3."""
    assert shares(step, 3, np.array([0.985, 1.0])).min() >= 0.955


@pytest.mark.parametrize("step", [0.1, 0.15, 0.2, 0.3, 0.5, 0.7])
def test_with_up_to_8_drafts_a_round_it_costs_at_most_6_percent(step):
    shared = shares(step, 8, np.array([0.0, 0.1, 0.3, 0.6, 0.75, 0.85, 0.9, 0.95, 0.985, 1.0]))
    assert shared[:5].min() >= 0.966
    assert shared.min() >= 0.94


def test_with_16_drafts_a_round_the_best_plans_lose_most():
    """The text is over in two or three rounds, before it is known how good the plan is."""
    shared = shares(0.1, 16, np.array([0.0, 0.3, 0.6, 0.9, 1.0]))
    assert shared[:4].min() >= 0.966
    assert 0.84 <= shared[4] <= 0.86


@pytest.mark.parametrize(
    ("step", "prior"),
    [
        (0.2, {0.1: 0.6, 0.75: 0.4}),
        (0.3, {0.1: 0.6, 0.85: 0.4}),
        (0.4, {0.1: 0.8, 0.85: 0.2}),
        (0.5, {0.2: 0.7, 0.9: 0.3}),
        (0.6, {0.4: 0.6, 0.95: 0.4}),
    ],
)
def test_no_policy_could_cost_one_percent_less(step, prior):
    """Hardly ever right, or nearly always: both can begin alike."""
    least = least_regret(3, 32, times_of(step, 3), prior)
    assert least > 1.02
    assert 1 / shares(step, 3).min() <= least + 0.01


@pytest.mark.parametrize(
    ("k", "length", "step", "prior"),
    [
        (3, 24, 0.4, {0.1: 0.75, 0.88: 0.25}),
        (8, 32, 0.33, {0.0: 0.31, 0.1: 0.3, 0.97: 0.2, 1.0: 0.2}),
        (16, 32, 0.2, {0.0: 0.25, 0.1: 0.3, 0.98: 0.1, 1.0: 0.35}),
    ],
)
def test_no_policy_whatever_keeps_3_percent_on_one_text_so_short(k, length, step, prior):
    assert least_regret(k, length, times_of(step, k), prior) > 1 / 0.97


def test_the_least_regret_is_none_where_there_is_nothing_to_find_out():
    times = times_of(0.4, 3)
    assert least_regret(3, 32, times, {0.0: 1.0}) == pytest.approx(1)
    assert least_regret(3, 32, times, {0.97: 1.0}) <= 1


def test_after_a_while_it_tries_again_and_loses_less_than_3_percent_doing_so():
    """However long the text, but for the one draft that a lot may round up to."""
    for step, lot in itertools.product((0.2, 0.5, 0.8), (0.0, 0.5, 0.999)):
        times, first = times_of(step, 3), FirstDrafts()
        tried, time = 0, 0.0
        for written in range(1, 601):
            k = first.choose(times, 3, lot)
            time += times[k]
            if k:
                tried += 1
                first.observe(1, 0)
                first.pay(times[k] - 1)
            else:
                first.rest()
            assert time - written <= 0.03 * max(written, 30) + lot * (times[1] - 1)
            if first.over:
                break
        assert tried > 5


def test_the_more_is_accepted_the_more_it_drafts():
    first, drafted = FirstDrafts(), []
    while not first.over:
        k = first.choose(times_of(0.5, 8), 8, 0.0)
        first.observe(k, k)
        drafted.append(k)
    assert drafted[0] == 1
    assert drafted == sorted(drafted)
    assert drafted[-1] == 8


def test_lots_of_requests_are_spread_evenly_and_stay():
    """A request's lot depends on its prompt and seed alone, in every process."""
    lots = [Request(prompt=f"{n}", draft_policy="auto").policy._lot for n in range(2000)]
    counts, _ = np.histogram(lots, bins=10, range=(0, 1))
    assert stats.chisquare(counts).pvalue > 0.001
    seeds = {Request(prompt="a", seed=n, draft_policy="auto").policy._lot for n in range(50)}
    assert len(seeds) == 50
    one = Request(prompt="A draft", seed=3, draft_policy="auto").policy
    assert one._lot == pytest.approx(0.193450894)
