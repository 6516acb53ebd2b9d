"""What a person may ask for, and what is refused with which words."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec_core.drafting import MAX_K, ConfidenceStop, FixedLength
from selfspec_core.plan import LengthSchedule, SkipPlan
from selfspec_core.request import Request, RequestError
from selfspec_core.sampling import Sampling


@given(st.integers(0, MAX_K), st.integers(0, 10**6), st.integers())
def test_case_30_every_k_budget_and_seed_is_a_request(k, max_new_tokens, seed):
    request = Request(prompt="a", k=k, max_new_tokens=max_new_tokens, seed=seed)
    assert request.policy.limit == k
    assert str(request.policy) == "fixed"


@pytest.mark.parametrize("k", [-1, 17, 40, 1.0, "4", None, True])
def test_case_30_a_k_that_cannot_be_is_refused_with_the_range(k):
    with pytest.raises(RequestError, match=rf"k must be 0–16 \(0 is plain decoding\), got {k!r}"):
        Request(prompt="a", k=k)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens must be 0 or more, got -1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be 0 or more, got 2.5"),
        ({"stop": "end"}, "stop is a tuple of strings, none of them empty"),
        ({"stop": ("end", "")}, "stop is a tuple of strings, none of them empty"),
        ({"stop": (7,)}, "stop is a tuple of strings, none of them empty"),
        ({"seed": 1.5}, "the seed must be a whole number, got 1.5"),
        ({"seed": "one"}, "the seed must be a whole number"),
        ({"k": 4, "window": 4}, "a window for k = 4 has at least 5 rows"),
        ({"k": 0, "window": 0}, "a window for k = 0 has at least 1 row"),
        ({"rule": "exact"}, "unknown rule 'exact'.*coupled, rejection, threshold, typical"),
        ({"threshold": 1.5}, "threshold must be 0 to 1, got 1.5"),
        ({"threshold": math.nan}, "threshold must be 0 to 1"),
        ({"confidence": -0.5}, "confidence threshold must be 0 to 1, got -0.5"),
        ({"confidence": math.nan}, "confidence threshold must be 0 to 1"),
        (
            {"draft_temperature": 11.0, "sampling": Sampling(temperature=1.0)},
            "temperature must be 0 to 10.*got 11.0",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(fields, words):
    with pytest.raises(RequestError, match=words):
        Request(prompt="a", **fields)


def test_case_19_a_batch_is_refused_by_name():
    with pytest.raises(RequestError, match=r"one prompt at a time.*batches aren't supported"):
        Request(prompt=["a", "b"])


def test_changes_to_a_request_are_checked_too():
    request = Request(prompt="a", k=4)
    with pytest.raises(RequestError, match="k must be 0–16"):
        dataclasses.replace(request, k=99)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.k = 99


def test_the_policy_is_fixed_or_stops_below_a_confidence():
    assert Request(prompt="a", k=3).policy == FixedLength(3)
    policy = Request(prompt="a", k=3, confidence=0.6).policy
    assert policy == ConfidenceStop(3, 0.6)
    assert (policy.limit, policy.looks, str(policy)) == (3, True, "confidence:0.6")
    assert policy.stops(0.59)
    assert not policy.stops(0.6)
    assert not FixedLength(3).looks
    assert not FixedLength(3).stops(0.0)


def test_policies_check_their_own_settings():
    with pytest.raises(ValueError, match="k must be 0–16, got 17"):
        FixedLength(17)
    with pytest.raises(ValueError, match="k must be 0–16, got -1"):
        ConfidenceStop(-1)
    with pytest.raises(ValueError, match="confidence threshold must be 0 to 1"):
        ConfidenceStop(2, 1.5)


def test_the_drafts_own_temperature_changes_nothing_of_the_target():
    target = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.2)
    request = Request(prompt="a", sampling=target, draft_temperature=0.4)
    assert request.sampling == target
    assert request.draft_sampling == dataclasses.replace(target, temperature=0.4)
    assert Request(prompt="a", sampling=target).draft_sampling == target


def test_a_greedy_target_has_a_greedy_draft():
    assert Request(prompt="a", draft_temperature=0.7).draft_sampling == Sampling()


def test_the_plan_follows_the_length_of_the_text():
    plan = SkipPlan.preset("light", 30)
    assert Request(prompt="a").plan_at(500, 30) == SkipPlan(30)
    assert Request(prompt="a", plan=plan).plan_at(500, 30) == plan
    scheduled = Request(prompt="a", plan=LengthSchedule.standard(30))
    assert [scheduled.plan_at(n, 30).share for n in (127, 128)] == [0.3, 0.5]


def test_a_policy_is_named_or_follows_from_the_confidence():
    names = [
        Request(prompt="a", **fields).policy_name
        for fields in ({}, {"confidence": 0.5}, {"draft_policy": "auto"})
    ]
    assert names == ["fixed", "confidence", "auto"]
    adaptive = Request(prompt="a", k=3, draft_policy="adaptive", confidence=0.4)
    assert str(adaptive.policy) == "adaptive:0.4"
    assert adaptive.policy is not adaptive.policy  # each generation has its own
    assert str(Request(prompt="a", draft_policy="confidence").policy) == "confidence:0.6"
    assert str(Request(prompt="a", draft_policy="auto").policy) == "auto"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"draft_policy": "clever"}, "one of fixed, confidence, adaptive, auto, got 'clever'"),
        ({"draft_policy": "auto", "confidence": 0.5}, "'auto' looks at no confidence"),
        ({"draft_policy": "fixed", "confidence": 0.5}, "'fixed' looks at no confidence"),
        ({"verify_from": "middle"}, "one of start, first_skipped, got 'middle'"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_what_is_allowed(fields, words):
    with pytest.raises(RequestError, match=words):
        Request(prompt="a", **fields)


def test_plain_decoding_of_a_request_has_no_drafts_and_the_same_text():
    request = Request(
        prompt="a", k=5, draft_policy="adaptive", confidence=0.4, verify_from="first_skipped"
    )
    assert request.plainly() == Request(prompt="a", k=0)
