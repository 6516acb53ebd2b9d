"""Skip plans: the notation, how plans are made, and what is refused with which words."""

from __future__ import annotations

import math
from urllib.parse import parse_qs, quote, urlencode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from selfspec_core.plan import PRESETS, LengthSchedule, PlanError, SkipPlan, parse_plan


@st.composite
def plans(draw, n_layers: int | None = None) -> SkipPlan:
    n = n_layers or draw(st.integers(1, 40))
    layers = st.frozensets(st.integers(0, n - 1))
    attention, mlp = draw(layers), draw(layers)
    assume(len(attention) + len(mlp) < 2 * n)
    return SkipPlan(n, attention, mlp)


@st.composite
def schedules(draw) -> LengthSchedule:
    n = draw(st.integers(1, 40))
    starts = sorted(draw(st.sets(st.integers(1, 10_000), max_size=4)))
    return LengthSchedule(tuple((start, draw(plans(n))) for start in (0, *starts)))


# -- the notation ------------------------------------------------------------------------------


@given(plans())
def test_a_printed_plan_parses_to_itself(plan):
    assert SkipPlan.parse(str(plan), plan.n_layers) == plan
    assert parse_plan(str(plan), plan.n_layers) == plan


@given(plans())
def test_printing_is_canonical(plan):
    """Terms in any order and any cut of the ranges print as one text."""
    terms = [f"a{i}" for i in sorted(plan.attention)] + [f"m{i}" for i in sorted(plan.mlp)]
    assert str(SkipPlan.parse(",".join(reversed(terms)) or "none", plan.n_layers)) == str(plan)


@pytest.mark.parametrize(
    ("text", "attention", "mlp"),
    [
        ("a3-12,m5,m7-9,14", {*range(3, 13), 14}, {5, 7, 8, 9, 14}),
        ("6-9", {6, 7, 8, 9}, {6, 7, 8, 9}),
        ("a3-12", set(range(3, 13)), set()),
        ("m5", set(), {5}),
        ("0,29", {0, 29}, {0, 29}),
        ("none", set(), set()),
    ],
)
def test_the_notation_names_these_branches_and_prints_as_itself(text, attention, mlp):
    plan = SkipPlan.parse(text, 30)
    assert (plan.attention, plan.mlp) == (attention, mlp)
    assert str(plan) == text
    assert all(plan.skips("attention", i) == (i in attention) for i in range(30))
    assert all(plan.skips("mlp", i) == (i in mlp) for i in range(30))
    assert plan.whole_layers == attention & mlp


def test_parsing_is_lenient_about_case_and_spaces():
    assert SkipPlan.parse("  A3-5 , M4,  7 ", 30) == SkipPlan.parse("a3-5,m4,7", 30)
    assert SkipPlan.parse("Standard", 30) == SkipPlan.preset("standard", 30)


@given(plans())
def test_a_plan_fits_a_url_unescaped_but_for_its_commas(plan):
    assert quote(str(plan), safe=",-") == str(plan)
    assert parse_qs(urlencode({"skip": str(plan)}))["skip"] == [str(plan)]


# -- what a plan says --------------------------------------------------------------------------


@given(plans())
def test_share_counts_both_kinds_alike(plan):
    assert plan.share == (len(plan.attention) + len(plan.mlp)) / (2 * plan.n_layers)
    assert 0 <= plan.share < 1
    swapped = SkipPlan(plan.n_layers, plan.mlp, plan.attention)
    assert swapped.share == plan.share


@given(plans(), st.sampled_from(["attention", "mlp"]), st.data())
def test_toggling_twice_is_the_plan_itself(plan, kind, data):
    layer = data.draw(st.integers(0, plan.n_layers - 1))
    assume(plan.n_skipped < 2 * plan.n_layers - 1)
    once = plan.toggled(kind, layer)
    assert once.skips(kind, layer) != plan.skips(kind, layer)
    assert abs(once.n_skipped - plan.n_skipped) == 1
    assert once.toggled(kind, layer) == plan


def test_plans_are_frozen_and_comparable():
    plan = SkipPlan(4, {1}, [2])
    assert plan == SkipPlan(4, frozenset({1}), frozenset({2}))
    assert hash(plan) == hash(SkipPlan(4, {1}, {2}))
    with pytest.raises(AttributeError):
        plan.n_layers = 5


# -- from a ratio ------------------------------------------------------------------------------


@given(st.integers(4, 100), st.floats(0, 1))
def test_a_ratio_skips_whole_middle_layers_never_the_first_two_or_the_last(n_layers, ratio):
    wanted = round(ratio * n_layers)
    if wanted > n_layers - 3:
        with pytest.raises(PlanError, match="the first two and the last always stay"):
            SkipPlan.from_ratio(ratio, n_layers)
        return
    plan = SkipPlan.from_ratio(ratio, n_layers)
    assert plan.attention == plan.mlp
    assert len(plan.attention) == wanted
    assert not plan.attention & {0, 1, n_layers - 1}
    centre = (n_layers - 1) / 2
    kept = set(range(2, n_layers - 1)) - plan.attention
    furthest = max((abs(i - centre) for i in plan.attention), default=0)
    assert all(abs(i - centre) >= furthest for i in kept)  # the middle ones first


@given(st.integers(4, 60), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_ratio_skips_more_of_the_same(n_layers, a, b):
    most = (n_layers - 3) / n_layers
    small, large = sorted((a * most, b * most))
    less, more = (SkipPlan.from_ratio(r, n_layers) for r in (small, large))
    assert less.attention <= more.attention


@pytest.mark.parametrize("ratio", [-0.01, -1e-9, 0.95, 1.0, 7.0, math.nan, math.inf, -math.inf])
def test_a_ratio_that_cannot_be_is_refused_with_the_range(ratio):
    with pytest.raises(PlanError, match="0% to 90% is possible on 30 layers"):
        SkipPlan.from_ratio(ratio, 30)


@pytest.mark.parametrize(
    ("name", "layers"), [("none", 0), ("light", 6), ("standard", 9), ("deep", 15)]
)
def test_presets_of_thirty_layers(name, layers):
    plan = SkipPlan.preset(name, 30)
    assert len(plan.whole_layers) == layers
    assert plan.share == pytest.approx(PRESETS[name]) == layers / 30
    assert SkipPlan.parse(name, 30) == plan == SkipPlan.parse(f"{PRESETS[name]:.0%}", 30)


@given(st.integers(1, 12), st.sampled_from(sorted(PRESETS)))
def test_presets_work_on_the_shallowest_models(n_layers, name):
    plan = SkipPlan.preset(name, n_layers)
    assert plan.share <= PRESETS[name] + 0.5 / n_layers
    assert not plan.attention & {0, 1, n_layers - 1}


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write 'none' to skip nothing"),
        ("   ", "write 'none' to skip nothing"),
        ("30", "layer 30 doesn't exist: this model has layers 0 to 29"),
        ("a3-30", "layer 30 doesn't exist: this model has layers 0 to 29"),
        ("0-99999999999999999999", "this model has layers 0 to 29"),
        ("9-6", "runs backwards: write 6-9"),
        ("3,3", "the attention branch of layer 3 is named twice"),
        ("a3-5,4", "the attention branch of layer 4 is named twice"),
        ("m3,m1-4", "the MLP branch of layer 3 is named twice"),
        ("0-29", "every branch is skipped.*keep at least one"),
        ("a0-29,m0-29", "every branch is skipped.*keep at least one"),
        ("100%", "0% to 90% is possible"),
        ("9" * 400 + "%", "0% to 90% is possible"),
        ("9" * 5000, "this model has layers 0 to 29|can't read"),
        ("x5", "can't read 'x5'.*layers count from 0"),
        ("5,", "can't read ''.*layers count from 0"),
        ("-3", "can't read '-3'"),
        ("1.5", "can't read '1.5'"),
        ("5-", "can't read '5-'"),
        ("lite", "none, light, standard, deep"),
        ("-5%", "a share such as '30%'"),
        ("<img onerror=x>", "can't read"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused_with_what_is_allowed(text, words):
    with pytest.raises(PlanError, match=words):
        SkipPlan.parse(text, 30)


NOTATION_LIKE = st.text("am0123456789-,;:% ", max_size=12)


@given(st.text(max_size=20) | NOTATION_LIKE)
def test_any_text_is_a_plan_or_a_plan_error(text):
    try:
        plan = parse_plan(text, 12)
    except PlanError:
        return
    assert parse_plan(str(plan), 12) == plan


def test_plans_made_from_sets_are_checked_too():
    for attention in ({4}, {-1}):
        with pytest.raises(PlanError, match="this model has layers 0 to 3"):
            SkipPlan(4, attention)
    with pytest.raises(PlanError, match="keep at least one"):
        SkipPlan(2, {0, 1}, {0, 1})
    with pytest.raises(PlanError, match="at least 1 layer"):
        SkipPlan(0)
    with pytest.raises(
        PlanError, match="unknown preset 'huge': choose one of none, light, standard, deep"
    ):
        SkipPlan.preset("huge", 30)
    with pytest.raises(PlanError, match="'attention' or 'mlp'"):
        SkipPlan(4).toggled("bridge", 1)
    with pytest.raises(PlanError, match="layers 0 to 3"):
        SkipPlan(4).toggled("mlp", 4)
    with pytest.raises(PlanError, match="keep at least one"):
        SkipPlan(1, {0}).toggled("mlp", 0)


# -- length schedules --------------------------------------------------------------------------


def test_the_standard_schedule_skips_30_percent_below_128_tokens_and_50_from_there():
    schedule = parse_plan("schedule", 30)
    assert isinstance(schedule, LengthSchedule)
    shares = {length: schedule.at(length).share for length in (0, 1, 127, 128, 129, 100_000)}
    assert shares == {0: 0.3, 1: 0.3, 127: 0.3, 128: 0.5, 129: 0.5, 100_000: 0.5}


def test_the_boundaries_of_a_schedule_can_be_moved():
    schedule = LengthSchedule.standard(30, boundary=10, short=0.1, long=0.6)
    assert [schedule.at(n).share for n in (9, 10)] == [0.1, 0.6]
    written = parse_plan("10%;64:a3-12;200:deep", 30)
    assert [str(written.at(n)) for n in (63, 64, 199)] == ["13-15", "a3-12", "a3-12"]
    assert written.at(200) == SkipPlan.preset("deep", 30)
    assert written.n_layers == 30


@given(schedules())
def test_a_printed_schedule_parses_to_itself(schedule):
    if len(schedule.steps) > 1:  # one step prints as the plan it is
        assert parse_plan(str(schedule), schedule.n_layers) == schedule
    assert LengthSchedule.parse(str(schedule), schedule.n_layers) == schedule
    assert parse_qs(urlencode({"skip": str(schedule)}))["skip"] == [str(schedule)]


@given(schedules(), st.integers(0, 20_000))
def test_a_schedules_plan_is_the_last_that_has_begun(schedule, length):
    begun = [plan for start, plan in schedule.steps if start <= length]
    assert schedule.at(length) == begun[-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30%;50%", "lacks its length: write a schedule as '30%;128:50%'"),
        ("30%;x:50%", "'x' is no length: write a schedule as '30%;128:50%'"),
        ("30%;-5:50%", "'-5' is no length"),
        (":30%;128:50%", "is no length"),
        ("5:30%;128:50%", "starts at length 0"),
        ("30%;128:50%;128:none", "ascend"),
        ("30%;128:50%;64:none", "ascend"),
        ("30%;128:", "write 'none' to skip nothing"),
        ("30%;128:99", "layers 0 to 29"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_what_is_allowed(text, words):
    with pytest.raises(PlanError, match=words):
        parse_plan(text, 30)


def test_a_schedule_needs_steps_of_one_model():
    with pytest.raises(PlanError, match="starts at length 0"):
        LengthSchedule(())
    with pytest.raises(PlanError, match="different depth"):
        LengthSchedule(((0, SkipPlan(4)), (10, SkipPlan(5))))
