"""The Tune panel's plans, files, studies and words, without a model or a browser."""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from selfspec_core.draft_checkpoint import kept_layers
from selfspec_core.loading import ModelInfo
from selfspec_core.plan import LengthSchedule, SkipPlan
from selfspec_core.plan_files import PlanFileError
from selfspec_core.plan_formats import FORMATS, dump_plan
from ui import tune_files, tune_plans, tune_studies
from ui.settings import Settings
from ui.tune_feed import Patch, Progress, TuneError, TuneFeed
from ui.tune_jobs import METHODS
from ui.tune_searching import STRATEGIES
from ui.tune_subject import Asked, example_prompts
from ui.words import WORDS, say

LAYERS = 8


@pytest.fixture
def engine():
    info = ModelInfo(
        id="tiny",
        source="a test",
        family="llama",
        n_layers=LAYERS,
        quantised=None,
        context=256,
        parameters=1000,
        dtype="float32",
        device="cpu",
        weights_mb=1.0,
        weights_hash="0" * 64,
    )
    return SimpleNamespace(n_layers=LAYERS, loaded=SimpleNamespace(info=info))


def random_plans(count: int) -> list[SkipPlan]:
    source = random.Random(5)
    plans = [SkipPlan(LAYERS)]
    for first in range(1, LAYERS):
        tail = frozenset(range(first, LAYERS))
        plans.append(SkipPlan(LAYERS, tail, tail))
        plans.append(SkipPlan(LAYERS, tail, tail - {first}))
    while len(plans) < count:
        attention = frozenset(i for i in range(LAYERS) if source.random() < 0.4)
        mlp = attention if source.random() < 0.5 else frozenset(source.sample(range(LAYERS), 3))
        plans.append(SkipPlan(LAYERS, attention, mlp))
    return plans


# -- plans -------------------------------------------------------------------------------------


def test_the_least_important_branches_are_skipped_first():
    values = [9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0]  # a0, m0, a1, m1, …
    assert str(tune_plans.least_important(values, 0.25)) == "m0-1"
    assert str(tune_plans.least_important(values, 0.5)) == "m0-3"
    assert tune_plans.least_important(values, 1.0).n_skipped == 7


def test_branches_that_a_method_says_nothing_of_are_kept():
    values = [math.nan, None, 5.0, 6.0]
    assert str(tune_plans.least_important(values, 1.0)) == "1"
    with pytest.raises(TuneError, match="says nothing"):
        tune_plans.least_important([None, math.nan], 0.5)


@pytest.mark.parametrize("n_layers", [8, 12, 30])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_rule_of_thumb_is_the_plan_of_the_presets(n_layers, share):
    wanted = SkipPlan.from_ratio(share, n_layers)
    values = tune_plans.middle_values(n_layers)
    assert tune_plans.least_important(values, wanted.share) == wanted


def test_a_schedule_is_made_of_two_plans_and_a_length():
    made = tune_plans.schedule("2-3", 64.0, "a2-5", LAYERS)
    assert str(made) == "2-3;64:a2-5"


@pytest.mark.parametrize(
    ("below", "boundary", "above"),
    [
        ("2", 0, "3"), ("2", 1.5, "3"), ("2", None, "3"), ("2", math.nan, "3"), ("2", True, "3"),
        ("2", 1e9, "3"), ("99", 8, "3"), ("", 8, "3"), ("2", 8, "3;64:4"), (None, 8, "3"),
        ("2", 8, "x" * 100_000),
    ],
)  # fmt: skip
def test_a_schedule_of_nonsense_is_refused_with_a_sentence(below, boundary, above):
    with pytest.raises(TuneError) as caught:
        tune_plans.schedule(below, boundary, above, LAYERS)
    assert len(str(caught.value)) > 20


def test_thinning_keeps_the_ends():
    assert tune_plans.thinned(list(range(1000)), 5) == [0, 250, 500, 749, 999]
    assert tune_plans.thinned([1, 2], 5) == [1, 2]


# -- what a person may ask for -------------------------------------------------------------------


@pytest.mark.parametrize("texts", [1, 11, 2.5, None, "6", math.nan, math.inf, True])
def test_a_number_of_texts_outside_of_what_is_allowed_is_refused(texts):
    with pytest.raises(TuneError, match="2 to 10"):
        Asked(settings=Settings(prompt="hello"), texts=texts)


def test_prompts_to_confirm_by_were_not_used_to_choose():
    for own in (False, True):
        for prompt in ("mine", example_prompts()[1][0]):
            asked = Asked(settings=Settings(prompt=prompt), texts=10, own=own)
            assert not set(asked.seen) & set(asked.unseen)
            assert (prompt in asked.seen) == own


# -- export ---------------------------------------------------------------------------------------


def test_a_format_is_refused_exactly_where_it_can_not_hold_the_plan():
    for plan in random_plans(120):
        refused = tune_files.refusals(plan)
        for name in FORMATS:
            try:
                dump_plan(name, plan, k=3)
                holds = True
            except PlanFileError:
                holds = False
            assert (refused[name] is None) == holds, (name, str(plan))
        try:
            kept_layers(plan, LAYERS)
            holds = True
        except PlanFileError:
            holds = False
        assert (refused[tune_files.CHECKPOINT] is None) == holds, str(plan)
        assert refused[tune_files.OURS] is None


def test_only_our_own_formats_hold_a_schedule():
    refused = tune_files.refusals(LengthSchedule.standard(LAYERS))
    assert {name for name, why in refused.items() if why is None} == {"plan", "snippet"}


@pytest.mark.parametrize(
    "name", [n for n in tune_files.FILES if n not in ("snippet", tune_files.CHECKPOINT)]
)
def test_what_is_exported_is_imported_again(engine, name):
    settings = Settings(prompt="hello", plan="5-7", k=3, temperature=0.5, rule="rejection")
    file, text, _ = tune_files.exported(engine, Asked(settings=settings), name)
    assert file.endswith(".json")
    back = tune_files.imported(engine, text, file)
    assert back.plan == "5-7"
    if name in ("plan", "layerskip", "generation-config"):
        assert back.settings["k"] == 3
    if name == "plan":
        assert back.settings["temperature"] == 0.5
        assert back.settings["rule"] == "rejection"
        assert back.answer["notes"] == []


def test_a_snippet_holds_the_prompt_as_a_literal(engine):
    settings = Settings(prompt='"""\nimport os  # ${x}', plan="3-4")
    name, text, _ = tune_files.exported(engine, Asked(settings=settings), "snippet")
    compile(text, name, "exec")
    assert "\nimport os" not in text


FOUND = Settings(prompt="hello", plan="3-4", k=2, temperature=0.5)
OTHER_TERMS = {
    "top_p": 0.9,
    "rule": "rejection",
    "chat": False,
    "seed": 1,
    "confidence": 0.3,
    "draft_policy": "adaptive",
    "stop": "x",
    "repetition_penalty": 1.1,
    "verify_from": "first_skipped",
}


def figures_in_file(engine, asked: Asked, at: str) -> tuple[bool, bool]:
    """Whether the exported plan has a search's figures, and whether it says that they went."""
    point = {"plan": "3-4", "k": 2, "draft_temperature": None, "alpha": 0.5, "speedup": 1.2}
    _, text, left_out = tune_files.exported(engine, asked, "plan", point | {"at": at})
    return json.loads(text).get("predicted") is not None, left_out


def test_a_plans_file_has_figures_of_its_very_settings_only(engine):
    asked = Asked(settings=FOUND)
    at = asked.terms(engine)
    assert figures_in_file(engine, asked, at) == (True, False)
    # The person's prompt is none of those it was measured on, so that may change.
    assert figures_in_file(engine, Asked(settings=replace(FOUND, prompt="another")), at)[0]
    for name, value in OTHER_TERMS.items():
        changed = Asked(settings=replace(FOUND, **{name: value}))
        assert figures_in_file(engine, changed, at) == (False, True), name
    for changed in (Asked(settings=FOUND, texts=3), Asked(settings=FOUND, own=True)):
        assert figures_in_file(engine, changed, at) == (False, True)
    engine.loaded.info = replace(engine.loaded.info, weights_hash="1" * 64)
    assert figures_in_file(engine, asked, at) == (False, True)


def test_with_nothing_drawn_the_seed_changes_no_figure(engine):
    greedy = replace(FOUND, temperature=0.0)
    at = Asked(settings=greedy).terms(engine)
    assert Asked(settings=replace(greedy, seed=9)).terms(engine) == at


# -- import ----------------------------------------------------------------------------------------

PLAN_FILE = {"schema": 1, "plan": "3-4", "n_layers": LAYERS, "k": 2, "model": "tiny"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "tune.import.empty"),
        ("   \n", "tune.import.empty"),
        ("{", "tune.import.broken"),
        ('{"a": NaN}', "tune.import.broken"),
        ("[" * 100_000, "tune.import.broken"),
        ('{"a": 1, "a": 2}', "tune.import.broken"),
        ("x" * (1 << 21), "tune.import.too_large"),
        (None, "tune.import.too_large"),
        (["not a text"], "tune.import.too_large"),
        ("hello there", "tune.import.not_a_plan"),
        ("a3-99", "tune.import.not_a_plan"),
        ("<script>alert(1)</script>", "tune.import.not_a_plan"),
        ("word " * 2000, "tune.import.unknown"),
        ("{}", "tune.import.unknown"),
        ('{"a": 1}', "tune.import.unknown"),
        ("[]", "tune.import.refused"),
        ("[1, 0, 1]", "tune.import.refused"),
        (json.dumps([0, 1] * 12), "tune.import.layers"),
        (json.dumps([2] * 16), "tune.import.refused"),
        (json.dumps([1] * 16), "tune.import.refused"),
        ('{"p": {"attention": [1, 99], "mlp": []}}', "tune.import.outside"),
        ('{"p": {"attention": [1, 1], "mlp": []}}', "tune.import.refused"),
        ('{"p": {"layers": [1]}, "q": {"layers": [2]}}', "tune.import.several"),
        ('{"exit_layer": 99}', "tune.import.refused"),
        ('{"exit_layer": "3"}', "tune.import.refused"),
        (json.dumps(PLAN_FILE | {"n_layers": 30}), "tune.import.layers"),
        (json.dumps(PLAN_FILE | {"k": 99}), "tune.import.refused"),
        (json.dumps(PLAN_FILE | {"rule": "sudo"}), "tune.import.refused"),
        (json.dumps(PLAN_FILE | {"schema": 7}), "tune.import.refused"),
        (json.dumps(PLAN_FILE | {"plan": "../../etc/passwd"}), "tune.import.refused"),
        (json.dumps(PLAN_FILE | {"extra": "x"}), "tune.import.refused"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_gets_a_clear_answer(engine, text, key):
    with pytest.raises(TuneError) as caught:
        tune_files.imported(engine, text, "some.json")
    assert caught.value.key == key
    assert len(str(caught.value)) < 2000


def test_one_of_several_plans_is_chosen_by_its_name(engine):
    text = '{"p": {"layers": [1]}, "q": {"layers": [2, 3]}}'
    assert tune_files.imported(engine, text, key="q").plan == "2-3"


def test_a_plan_of_other_weights_is_taken_with_a_warning(engine):
    text = json.dumps(PLAN_FILE | {"model": "another", "weights_hash": "f" * 64, "device": "cuda"})
    found = tune_files.imported(engine, text)
    assert found.plan == "3-4"
    assert [note["key"] for note in found.answer["notes"]] == [
        "tune.misfit.weights", "tune.misfit.model", "tune.misfit.device",
    ]  # fmt: skip


def test_a_file_that_says_plain_decoding_leaves_k_alone(engine):
    found = tune_files.imported(engine, json.dumps(PLAN_FILE | {"k": 0}))
    assert "k" not in found.settings
    assert any(note["key"] == "tune.import.no_k" for note in found.answer["notes"])


# -- studies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "study", [None, 3, "", "short", "../" * 10 + "ab", "G" * 32, "a" * 33, "a" * 32 + "\n"]
)
def test_a_study_has_an_id_and_nothing_else(study, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    with pytest.raises(TuneError):
        tune_studies.path_of(study)
    assert list(tmp_path.rglob("*")) == []


def test_studies_are_few_and_short_lived(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    mine = tune_studies.path_of("a" * 32)
    mine.write_text("mine")
    week = time.time() - tune_studies.MAX_AGE_SECONDS - 60
    for number in range(tune_studies.MAX_STUDIES + 20):
        other = mine.parent / f"{number:032x}.journal"
        other.write_text("x")
        os.utime(other, (time.time() - number, time.time() - number))
    old = mine.parent / ("b" * 32 + ".journal")
    old.write_text("x")
    os.utime(old, (week, week))
    os.utime(mine, (week, week))  # one's own stays while it is being used
    assert tune_studies.path_of("a" * 32) == mine
    left = list(mine.parent.iterdir())
    assert mine in left
    assert old not in left
    assert len(left) == tune_studies.MAX_STUDIES
    assert mine.parent / f"{0:032x}.journal" in left


def test_a_study_is_full_at_its_limit(tmp_path):
    path = tmp_path / "study"
    assert not tune_studies.is_full(path)
    with path.open("wb") as file:
        file.truncate(tune_studies.MAX_BYTES + 1)
    assert tune_studies.is_full(path)


# -- what the page is told ---------------------------------------------------------------------------


def test_values_hold_no_markup_and_keep_private_entries_back():
    feed = TuneFeed(3)
    feed.take(Patch({"plan": "</script><b>", "_path": "/secret/place"}))
    feed.take(Progress("tune.step.search", {"strategy": "x", "trials": 3}, 0.5, math.inf))
    assert not feed.take(object())
    value = feed.value("running")
    assert "<" not in value
    assert "secret" not in value
    shown = json.loads(value)
    assert shown["progress"]["left"] is None
    assert shown["plan"] == "</script><b>"
    assert json.loads(feed.value("done"))["progress"] is None


def test_every_word_is_there_in_both_languages_with_the_same_places():
    words = json.loads((WORDS / "tune.json").read_text(encoding="utf-8"))
    for key, texts in words.items():
        assert set(texts) == {"en", "zh"}, key
        places = [set(re.findall(r"\{(\w+)", text)) for text in texts.values()]
        assert places[1] <= places[0], key
    for name in METHODS:
        assert f"tune.method.{name}" in words
    for name in (*STRATEGIES, "guess", "calibration"):
        assert f"tune.strategy.{name}" in words
    for name in tune_files.FILES:
        assert f"tune.format.{name}" in words
        assert f"tune.export.{name}" in words


def test_strategies_and_methods_are_those_of_the_analyzer():
    from analysis.finding import METHODS as strategies
    from analysis.importance import METHODS as methods

    assert strategies == STRATEGIES
    assert set(METHODS) - {"middle"} <= set(methods)


# -- what this server allows ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fixed", "confidence", "adaptive", "auto"])
def test_our_own_file_holds_policy_and_sampling(engine, policy):
    settings = Settings(
        prompt="hi", plan="5-7", k=3, draft_policy=policy, temperature=0.5, top_k=40, top_p=0.9
    )
    _, text, _ = tune_files.exported(engine, Asked(settings=settings), "plan")
    back = tune_files.imported(engine, text).settings
    assert back["draft_policy"] == policy
    assert (back["top_k"], back["top_p"], back["min_p"]) == (40, 0.9, 0.0)


@pytest.mark.parametrize(
    "file",
    [PLAN_FILE | {"k": 40}, {"exit_layer": 5, "num_speculations": 40}],
)
def test_a_draft_too_long_is_answered_with_this_server_s_limit(engine, file):
    try:
        found = tune_files.imported(engine, json.dumps(file), max_k=4)
    except TuneError as error:
        told = str(error)
    else:
        assert "k" not in found.settings
        told = " ".join(say(note) for note in found.answer["notes"])
    assert "40" in told
    assert "16" not in told
    assert "at most 4" in told or "0–4" in told
