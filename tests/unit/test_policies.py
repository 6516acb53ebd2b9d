"""How many are drafted: each policy with made-up times and acceptance, no model and no clock."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfspec_core.acceptance_record import AcceptanceRecord, RunningAcceptance
from selfspec_core.auto_policy import AutoPolicy
from selfspec_core.experience import PLANS, Experience, corners
from selfspec_core.plan import SkipPlan
from selfspec_core.policies import (
    AdaptiveConfidence,
    ConfidenceStop,
    DraftPolicy,
    FixedLength,
    Outcome,
    Situation,
)

K = 3
Text = Sequence[bool]
"""For each position whether a draft of its token is right."""


def times_of(step: float, rest: float = 0.0, most: int = K) -> tuple[float, ...]:
    """Times of rounds with 0 to `most` drafts, in windows."""
    return tuple(1 + k * step + rest * (k > 0) for k in range(most + 1))


def texts_of(rate: float, lengths: Sequence[int], seed: int = 0) -> list[Text]:
    source = random.Random(seed)
    return [[source.random() < rate for _ in range(length)] for length in lengths]


def write(
    policy: DraftPolicy, text: Text, times: tuple[float, ...], record: AcceptanceRecord
) -> list[int]:
    """The k of every round while a text is written."""
    chosen, at = [], 0
    while at < len(text):
        room = len(text) - at - 1
        k = policy.choose(Situation(room, times, record)) if room else 0
        assert 0 <= k <= room
        accepted = next((i for i in range(k) if not text[at + i]), k)
        outcome = Outcome(k, accepted)
        record.observe(outcome.judged, accepted)
        policy.observe(outcome)
        chosen.append(k)
        at += accepted + 1
    return chosen


def cost(make: Callable[[], DraftPolicy], texts: Sequence[Text], times: tuple[float, ...]) -> float:
    """Time to write texts one after the other with one engine that knew nothing before."""
    record = AcceptanceRecord()
    return sum(times[k] for text in texts for k in write(make(), text, times, record))


# -- auto: what it chooses ----------------------------------------------------------------------


def knowing(rate: float, rounds: int = 200) -> AcceptanceRecord:
    """What is remembered of a plan that was drafted with for long."""
    record = AcceptanceRecord()
    for text in texts_of(rate, [4] * rounds, seed=5):
        accepted = next((i for i in range(K) if not text[i]), K)
        record.observe(min(accepted + 1, K), accepted)
    return record


@pytest.mark.parametrize("step", [0.1, 0.25, 0.5, 0.7])
@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8, 0.95])
def test_a_text_begins_with_the_k_that_pays_best_at_what_is_remembered(step, rate):
    times = times_of(step)
    gains = [(1 - rate ** (k + 1)) / (1 - rate) / times[k] for k in range(K + 1)]
    record = knowing(rate)
    record.credit = 0.0
    chosen = AutoPolicy(K).choose(Situation(50, times, record))
    assert gains[chosen] >= max(gains) * 0.96


@pytest.mark.parametrize("step", [0.97, 1.0, 1.4])
def test_what_could_hardly_pay_if_every_draft_were_accepted_is_never_drafted(step):
    """Not even once, to try; what 3% and more could be gained with is."""
    (text,) = texts_of(1.0, [3000])
    assert set(write(AutoPolicy(K), text, times_of(step), AcceptanceRecord())) == {0}
    assert any(write(AutoPolicy(K), text, times_of(0.9), AcceptanceRecord()))


def test_it_goes_plain_when_drafts_are_refused_and_comes_back_when_they_are_accepted():
    bad, good, worse = (t[0] for t in (texts_of(a, [600]) for a in (0.05, 0.97, 0.05)))
    record, times = AcceptanceRecord(), times_of(0.5)
    policy = AutoPolicy(K)
    first = write(policy, bad, times, record)
    assert first[100:].count(0) > 0.95 * len(first[100:])
    second = write(policy, good, times, record)
    assert second[-50:].count(K) > 45
    assert len(second) < 0.6 * len(good)
    third = write(policy, worse, times, record)
    assert third[150:].count(0) > 0.9 * len(third[150:])


def test_trying_again_costs_at_most_two_percent_of_plain_decoding_and_becomes_rarer():
    (text,) = texts_of(0.0, [8000])
    chosen = write(AutoPolicy(K), text, times_of(0.8), knowing(0.0))
    tried = [at for at, k in enumerate(chosen) if k]
    assert tried
    assert sum(times_of(0.8)[k] - 1 for k in chosen) < 0.02 * len(text)
    waits = [b - a for a, b in itertools.pairwise([0, *tried])]
    assert waits[-1] > 3 * min(waits)
    assert max(waits) < 1000  # it never gives up


def test_short_texts_do_not_pay_for_trying_each_on_its_own():
    texts = texts_of(0.0, [12] * 200)
    times = times_of(0.8)
    assert cost(lambda: AutoPolicy(K), texts, times) < 1.02 * 12 * 200


def test_small_differences_do_not_toss_k_to_and_fro():
    rates = [0.8] * 4000
    (text,) = [[random.Random(i).random() < a for i, a in enumerate(rates)]]
    chosen = write(AutoPolicy(K), text, times_of(0.3), AcceptanceRecord())
    changes = sum(a != b for a, b in itertools.pairwise(chosen))
    assert changes < 0.1 * len(chosen)


def test_while_it_rests_it_asks_for_nothing_and_then_looks_again():
    policy, record = AutoPolicy(K), knowing(0.0)
    record.credit = 0.0
    asked = []
    for _ in range(200):
        asked.append(policy.weighs)
        situation = Situation(50, times_of(0.8), record) if policy.weighs else Situation(50)
        k = policy.choose(situation)
        policy.observe(Outcome(drafted=k, accepted=0))
    assert asked[0]
    assert 200 / 8 <= sum(asked) < 40
    assert not all(asked[1:9])


def test_the_same_times_and_outcomes_give_the_same_choices():
    (text,) = texts_of(0.6, [500])
    runs = [write(AutoPolicy(K), text, times_of(0.5), AcceptanceRecord()) for _ in range(2)]
    assert runs[0] == runs[1]


def test_the_unit_of_the_times_does_not_matter():
    (text,) = texts_of(0.6, [500])
    milliseconds = tuple(16.5 * time for time in times_of(0.5))
    assert write(AutoPolicy(K), text, milliseconds, AcceptanceRecord()) == write(
        AutoPolicy(K), text, times_of(0.5), AcceptanceRecord()
    )


def test_k_0_is_plain_decoding_under_auto_too():
    (text,) = texts_of(1.0, [40])
    assert set(write(AutoPolicy(0), text, times_of(0.1, most=0), AcceptanceRecord())) == {0}


def test_another_plan_in_mid_text_begins_from_what_is_known_of_it():
    policy = AutoPolicy(K)
    good, bad = knowing(0.95), knowing(0.02)
    bad.credit = 0.0
    assert policy.choose(Situation(50, times_of(0.4), good)) == K
    assert policy.choose(Situation(50, times_of(0.4), bad)) == 0


# -- auto: what it costs ------------------------------------------------------------------------

SETS = {"short": [20] * 25, "middling": [64] * 8, "long": [256] * 4, "very short": [12] * 60}


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.sampled_from(sorted(SETS)),
    st.floats(0.1, 1.2),
    st.floats(0.0, 0.1),
    st.floats(0.0, 1.0),
    st.integers(0, 10**6),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_it_is_never_3_percent_slower_than_the_better_of_plain_and_fixed_k(
    lengths, step, rest, rate, seed, lot
):
    """From no knowledge at all, and with k fixed at the request's own k."""
    texts, times = texts_of(rate, SETS[lengths], seed), times_of(step, rest)
    plain = cost(lambda: FixedLength(0), texts, times)
    fixed = cost(lambda: FixedLength(K), texts, times)
    assert cost(lambda: AutoPolicy(K, lot), texts, times) <= min(plain, fixed) / 0.97


@pytest.mark.parametrize("step", [0.1, 0.2, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_four_short_texts_under_a_plan_never_met_lose_at_most_3_percent_on_average(k, step):
    """Over 80 sets of texts, at each acceptance, with a lot of its own for each text."""
    times = times_of(step, 0.02, k)
    for rate in (0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.96, 1.0):
        sets = [texts_of(rate, [32] * 4, seed) for seed in range(80)]
        lots = random.Random(k)

        def total(make: Callable[[], DraftPolicy], sets: Sequence[Sequence[Text]] = sets) -> float:
            return sum(cost(make, texts, times) for texts in sets)

        better = min(total(lambda: FixedLength(0)), total(lambda: FixedLength(k)))
        assert total(lambda lots=lots: AutoPolicy(k, lots.random())) <= better / 0.97


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", [0.2, 0.35, 0.5, 0.65, 0.8])
@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_it_is_hardly_slower_than_the_k_that_hindsight_picks(step, rate, seed):
    texts, times = texts_of(rate, [128] * 10, seed), times_of(step, 0.04)
    best = min(cost(lambda k=k: FixedLength(k), texts, times) for k in range(K + 1))
    assert cost(lambda: AutoPolicy(K), texts, times) <= best / 0.97


@pytest.mark.parametrize("step", [0.1, 0.25, 0.4, 0.6])
@pytest.mark.parametrize("rate", [0.0, 0.15, 0.3, 0.5, 0.8, 0.97])
def test_getting_to_know_a_plan_costs_one_short_text_at_most_3_5_percent_on_average(step, rate):
    """`test_first_drafts.py` weighs every way that a text can go; these are 400 of them."""
    times, texts = times_of(step, 0.02), [texts_of(rate, [32], seed) for seed in range(400)]

    def mean(make: Callable[[float], DraftPolicy]) -> float:
        lots = ((number * 0.618) % 1 for number in itertools.count())
        return statistics.fmean(
            cost(lambda lot=lot: make(lot), text, times)
            for text, lot in zip(texts, lots, strict=False)
        )

    better = min(mean(lambda _: FixedLength(0)), mean(lambda _: FixedLength(K)))
    assert mean(lambda lot: AutoPolicy(K, lot)) <= better / 0.965


# -- acceptance ---------------------------------------------------------------------------------


def test_expected_tokens_are_the_geometric_sum_where_all_places_are_alike():
    running = RunningAcceptance(1.0, (0.6,), 5.0)
    assert running.expected_tokens(4) == pytest.approx(
        [(1 - 0.6 ** (k + 1)) / 0.4 for k in range(5)]
    )


def test_places_are_told_apart_where_they_differ():
    running = RunningAcceptance(1.0)
    for _ in range(300):
        running.observe(2, 1)  # the first is always right, the second never
    first, second = running.rates(2)
    assert first > 0.97
    assert second < 0.03


def test_unjudged_drafts_count_for_nothing():
    assert Outcome(5, 2).judged == 3
    assert Outcome(5, 5).judged == 5
    assert Outcome(0, 0).judged == 0


# -- Draft & Verify -----------------------------------------------------------------------------


def test_the_threshold_follows_the_papers_equations():
    policy = AdaptiveConfidence(4, 0.6, target=0.8, memory=0.5, inertia=0.9, step=0.1)
    policy.observe(Outcome(4, 4))  # AR = 0.5·0.8 + 0.5·1 = 0.9 > 0.8: γ̃ = 0.5
    assert policy.acceptance == pytest.approx(0.9)
    assert policy.threshold == pytest.approx(0.9 * 0.6 + 0.1 * 0.5)
    policy.observe(Outcome(4, 0))  # AR = 0.45: γ̃ = 0.69
    assert policy.acceptance == pytest.approx(0.45)
    assert policy.threshold == pytest.approx(0.9 * 0.59 + 0.1 * 0.69)
    policy.observe(Outcome(0, 0))  # a round without drafts says nothing
    assert policy.threshold == pytest.approx(0.6)


def test_the_threshold_finds_the_acceptance_that_is_aimed_at():
    """A draft that is right as often as it is sure: only sure enough drafts reach 85%."""
    source, policy = random.Random(3), AdaptiveConfidence(8, 0.2, target=0.85, step=0.1)
    judged = accepted = 0
    for number in range(6000):
        drafted = good = 0
        right = True
        while drafted < 8:
            sure = source.random()
            drafted += 1
            right = right and source.random() < sure**0.2
            good += right
            if policy.stops(sure):
                break
        outcome = Outcome(drafted, good)
        policy.observe(outcome)
        if number > 2000:
            judged, accepted = judged + outcome.judged, accepted + good
    assert 0.2 < policy.threshold < 1.0
    assert accepted / judged == pytest.approx(0.85, abs=0.06)


def test_tokens_that_nobody_verified_move_no_threshold():
    """Else the number of unverified drafts, drawn with noise that is used again, biases the law."""
    few, many = AdaptiveConfidence(8), AdaptiveConfidence(8)
    few.observe(Outcome(2, 1))
    many.observe(Outcome(8, 1))
    assert few.threshold == many.threshold


@given(st.lists(st.integers(0, 8), max_size=200), st.floats(0, 1))
def test_the_threshold_stays_a_probability(accepted, begin):
    policy = AdaptiveConfidence(8, begin, step=0.5)
    for count in accepted:
        policy.observe(Outcome(8, count))
        assert 0 <= policy.threshold <= 1


@pytest.mark.parametrize("make", [FixedLength, ConfidenceStop, AdaptiveConfidence, AutoPolicy])
def test_every_policy_keeps_to_its_k_and_the_room_and_refuses_an_impossible_k(make):
    policy = make(5)
    assert policy.limit == 5
    for room in range(1, 8):
        assert 0 <= policy.choose(Situation(room, times_of(0.1, most=5), knowing(1.0))) <= 5
        assert policy.choose(Situation(room, times_of(0.1, most=5), knowing(1.0))) <= room
    with pytest.raises(ValueError, match="k must be 0–16, got 17"):
        make(17)


# -- what an engine learns of costs -------------------------------------------------------------

WHERE = {"mode": "eager", "window": 4, "slots": 128}


def outcome(k: int, step: float, window: float = 10.0, rest: float = 0.5) -> Outcome:
    """A round whose draft steps take `step` windows and whose rest takes `rest` ms."""
    return Outcome(k, k, k * step * window, window + rest, 0.0, window)


def test_times_are_what_was_measured():
    experience, plan = Experience(4), SkipPlan.parse("1-2", 4)
    for k, rest in ((0, 0.5), (2, 0.9)):
        for _ in range(5):
            experience.observe(plan, outcome(k, 0.4, rest=rest), **WHERE)
    assert experience.times(plan, 2, **WHERE) == pytest.approx((1.05, 1.47, 1.89))


def test_windows_of_different_rows_are_made_comparable():
    """Without padding a round with two drafts has a window of three rows, a plain one of one."""
    experience, plan = Experience(4), SkipPlan.parse("1-2", 4)
    where = {**WHERE, "window": 1}
    experience.learn_rows("eager", {1: 10.0, 2: 11.0, 4: 12.0})
    for _ in range(5):
        experience.observe(plan, outcome(0, 0.4, window=10.0), **where)
        two = outcome(2, 0.4)
        experience.observe(plan, replace(two, window_ms=11.5, verify_ms=12.0), **where)
    one, two, three = experience.times(plan, 2, **where)
    assert one == pytest.approx(1.05)
    assert three == pytest.approx(1.15 + 0.8 + 0.05)  # three rows, two drafts, the rest
    assert two == pytest.approx(1.1 + 0.4 + 0.05)
    assert experience.times(plan, 2, **WHERE)[2] < three  # padded to four rows, all cost alike


def test_a_machine_that_is_slow_for_a_while_changes_nothing():
    experience, plan = Experience(4), SkipPlan.parse("1-2", 4)
    for slow in (1, 1, 1, 9, 9):
        experience.observe(plan, outcome(2, 0.4, window=10.0 * slow, rest=0.5 * slow), **WHERE)
    assert experience.times(plan, 2, **WHERE)[2] == pytest.approx(1.85)


def test_one_disturbed_round_moves_no_median():
    experience, plan = Experience(4), SkipPlan.parse("1-2", 4)
    for step in (0.4, 0.41, 7.0, 0.39, 0.4):
        experience.observe(plan, outcome(1, step), **WHERE)
    assert experience.times(plan, 1, **WHERE)[1] == pytest.approx(1.45)


def test_a_plan_never_met_costs_what_three_others_predict():
    experience = Experience(4)
    for plan, step in zip(corners(4), (0.9, 0.5, 0.3), strict=True):
        for _ in range(3):
            experience.observe(plan, outcome(2, step), **WHERE)
    half = SkipPlan.parse("a0-1,m0-1", 4)  # 0.9 − ½·0.4 − ½·0.6
    assert experience.times(half, 1, **WHERE)[1] == pytest.approx(1.05 + 0.4 - 0.02, abs=0.03)
    bare = SkipPlan.parse("m0-3", 4)
    assert experience.times(bare, 2, **WHERE)[2] == pytest.approx(1.05 + 2 * 0.3)


def test_where_nothing_was_measured_a_step_costs_the_share_it_keeps():
    plan = SkipPlan.parse("0-1", 4)
    first, second, third = Experience(4).times(plan, 2, **WHERE)
    assert first < second < third
    assert second - first == pytest.approx(0.5, abs=0.05)


def test_another_window_or_mode_begins_from_what_the_nearest_one_costs():
    experience, plan = Experience(4), SkipPlan.parse("1-2", 4)
    for _ in range(5):
        experience.observe(plan, outcome(1, 0.4), **WHERE)
    assert experience.times(plan, 1, **{**WHERE, "window": 8}) == experience.times(plan, 1, **WHERE)
    assert experience.times(plan, 1, **{**WHERE, "mode": "compiled"})[1] == pytest.approx(1.45)


def test_a_search_over_thousands_of_plans_fills_no_memory_and_loses_no_corner():
    experience = Experience(16)
    for _ in range(3):
        experience.observe(corners(16)[0], outcome(1, 0.8), **WHERE)
    for number in range(3 * PLANS):
        layers = frozenset(i for i in range(16) if number >> i & 1)
        experience.observe(SkipPlan(16, layers, frozenset({15})), outcome(1, 0.4), **WHERE)
        experience.record(number)
    (costs,) = experience._costs.values()
    assert len(costs._steps) <= PLANS
    assert len(experience._records) <= PLANS
    assert experience.times(corners(16)[0], 1, **WHERE)[1] == pytest.approx(1.85)


def test_a_warm_ups_texts_are_forgotten_and_its_costs_are_not():
    experience, plan = Experience(4), SkipPlan.parse("1-2", 4)
    experience.record("x").observe(2, 2)
    experience.observe(plan, outcome(1, 0.4), **WHERE)
    experience.forget_texts()
    assert experience.record("x").running.evidence == 0
    assert experience.times(plan, 1, **WHERE)[1] < 1.6
