"""Costs that are known are found again, and say what pays."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, replace

import pytest

from selfspec_core.cost import CostModel, Sample, fit, mean_slots
from selfspec_core.measuring import undisturbed
from selfspec_core.plan import SkipPlan

TRUE = CostModel(
    n_layers=30,
    draft=(0.5, 6.0, 0.3, 0.4, 0.05),
    windows=((1, 31.0), (4, 26.0), (8, 33.0), (12, 41.0)),
    slots=1.5,
    law=0.8,
    other=(0.7, 0.2, 0.1),
    spread=(0.0, 0.0, 0.0),
)


@dataclass(frozen=True)
class Counts:
    drafted: float
    rounds: float
    tokens: int


def synthetic(noise: float = 0.0, seed: int = 0) -> list[Sample]:
    source = random.Random(seed)
    found = []
    plain = [(0, w, 30, 30) for w in (1, 4, 8, 12)]
    drafts = [
        (k, -(-(k + 1) // 4) * 4, a, m)
        for k, (a, m) in itertools.product((1, 2, 3, 5, 8), ((25, 20), (15, 28), (20, 20)))
    ]
    for (k, w, a, m), slots, committed in itertools.product(plain + drafts, (128, 384), (1, 2)):
        plan = SkipPlan(30, frozenset(range(30 - a)), frozenset(range(30 - m)))
        one = TRUE.parts_ms(plan, k, Counts(k, 1, committed), slots)
        one = (one[0], TRUE.window_ms(w, slots) + TRUE.law * k, one[2])
        ms = [t * (1 + source.gauss(0, noise)) for t in one]
        found.append(
            Sample(
                attention=a,
                mlp=m,
                k=k,
                window=w,
                slots=slots,
                committed=committed,
                draft_ms=ms[0],
                verify_ms=ms[1],
                other_ms=ms[2],
            )
        )
    return found


def test_the_fit_recovers_the_costs_that_times_were_made_of():
    found = fit(synthetic(), 30)
    assert found.draft == pytest.approx(TRUE.draft, rel=1e-6)
    assert dict(found.windows) == pytest.approx(dict(TRUE.windows), rel=1e-6)
    assert (found.slots, found.law) == pytest.approx((TRUE.slots, TRUE.law), rel=1e-6)
    assert found.other == pytest.approx(TRUE.other, rel=1e-6)
    assert max(found.spread) < 1e-6


def test_windows_without_padding_are_found_between_the_measured_ones():
    found = fit(synthetic(), 30, multiple=1)
    plan, counts = SkipPlan.parse("3-8", 30), Counts(10, 5, 15)
    for k, window in ((1, 2), (2, 3), (6, 7)):
        verify = found.parts_ms(plan, k, counts)[1]
        assert verify == pytest.approx(5 * TRUE.window_ms(window) + 10 * TRUE.law, rel=0.02)
    assert CostModel.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    with pytest.raises(ValueError, match="windows of 20 rows"):
        fit([*synthetic(), replace(synthetic()[-1], window=20)], 30)


def test_a_few_samples_of_a_busy_moment_change_little():
    samples = synthetic(noise=0.02)
    for i in range(0, len(samples), 9):  # one in nine is three times as slow
        slow = samples[i]
        samples[i] = replace(
            slow, draft_ms=3 * slow.draft_ms, verify_ms=3 * slow.verify_ms, other_ms=3
        )
    found = fit(samples, 30)
    plan = SkipPlan.preset("standard", 30)
    assert found.draft_ms(plan) == pytest.approx(TRUE.draft_ms(plan), rel=0.05)
    assert found.window_ms(8) == pytest.approx(TRUE.window_ms(8), rel=0.05)
    assert 0.005 < found.spread[0] < 0.06


def test_speed_is_tokens_over_the_sum_of_the_parts_against_the_fastest_plain_decoding():
    plan = SkipPlan.parse("a3-12,m5", 30)  # keeps 20 attentions and 29 MLPs
    speed = TRUE.speed(plan, 2, Counts(drafted=20, rounds=10, tokens=25))
    draft = 10 * 0.5 + 20 * (6.0 + 20 * 0.3 + 29 * 0.4)
    total = draft + 10 * 26.0 + 20 * 0.8 + 10 * 0.7 + 20 * 0.2 + 25 * 0.1
    assert speed.tokens_per_second == pytest.approx(25 / total * 1e3)
    assert TRUE.plain() == (4, pytest.approx(26.8))
    assert speed.speedup == pytest.approx(25 * 26.8 / total)


def test_the_best_k_grows_with_acceptance_and_is_0_where_nothing_pays():
    def counts(alpha: float):
        def walk(k: int) -> Counts:
            tau = sum(alpha**d for d in range(k + 1))
            return Counts(drafted=100 * k, rounds=100, tokens=round(100 * tau))

        return walk

    plan = SkipPlan.preset("deep", 30)
    found = [TRUE.best(plan, counts(alpha), range(1, 9)) for alpha in (0.1, 0.7, 0.98)]
    assert [each.k for each in found] == sorted(each.k for each in found)
    assert (found[0].k, found[0].speedup, found[0].pays) == (0, 1.0, False)
    assert found[2].k >= 3
    assert found[2].pays


def test_uncertainty_grows_with_the_scatter():
    plan = SkipPlan.preset("deep", 30)
    counts = Counts(drafted=20, rounds=10, tokens=25)
    certain = TRUE.speed(plan, 2, counts)
    shaky = replace(TRUE, spread=(0.1, 0.1, 0.1)).speed(plan, 2, counts)
    assert certain.low == certain.speedup == certain.high
    assert shaky.low < shaky.speedup < shaky.high


def test_costs_survive_json():
    assert CostModel.from_dict(json.loads(json.dumps(TRUE.to_dict()))) == TRUE


def test_samples_of_one_kind_only_are_refused():
    with pytest.raises(ValueError, match="need both"):
        fit([s for s in synthetic() if s.k], 30)


def test_slots_go_by_buckets():
    assert mean_slots(100, 10, 4) == 128
    assert mean_slots(120, 10, 4) == pytest.approx((5 * 128 + 5 * 256) / 10)


def test_busy_moments_do_not_move_what_a_round_takes():
    assert undisturbed([30.0, 31.0, 30.5, 90.0, 95.0, 250.0, 31.5, 88.0]) < 32
    assert undisturbed([7.0]) == 7.0


def test_tokens_a_second_are_by_the_clock_and_the_speed_up_is_the_same():
    samples = [
        replace(s, clock_ms=1.2 * (s.draft_ms + s.verify_ms + s.other_ms)) for s in synthetic()
    ]
    clocked, ideal = fit(samples, 30), fit(synthetic(), 30)
    assert (clocked.disturbed, ideal.disturbed) == (pytest.approx(1.2), 1.0)
    plan, counts = SkipPlan.preset("deep", 30), Counts(drafted=20, rounds=10, tokens=25)
    found, best = clocked.speed(plan, 2, counts), ideal.speed(plan, 2, counts)
    assert found.tokens_per_second == pytest.approx(best.tokens_per_second / 1.2)
    assert found.speedup == pytest.approx(best.speedup)
    assert clocked.plain_speed() == pytest.approx(ideal.plain_speed() / 1.2)
