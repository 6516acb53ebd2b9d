"""The search finds a plan that was planted, keeps what it knows, and stops when told to."""

from __future__ import annotations

import itertools
import time
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM

from analysis.acceptance import Predictor
from analysis.clasp import clasp_plans
from analysis.confirm import Choice, Confirmation
from analysis.finding import METHODS, search
from analysis.plans import random_plans
from analysis.reference import Reference, write_texts
from analysis.search import Deadline, Objective, middle_plans, pareto, random_search
from analysis.search_optuna import Study, draft_verify
from analysis.standalone import standalone_table
from selfspec_core.cost import CostModel
from selfspec_core.draft_checkpoint import write_draft
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request
from selfspec_core.sampling import Sampling

from .engines import engine_on

LAYERS = 6
PLANTED = SkipPlan.parse("2,m3,a4", LAYERS)  # these branches write nothing
COSTS = CostModel(
    n_layers=LAYERS,
    draft=(0.0, 1.0, 1.0, 1.0, 0.0),
    windows=((1, 14.0), (4, 14.0), (8, 15.0)),
    slots=0.0,
    law=0.0,
    other=(0.0, 0.0, 0.0),
    spread=(0.02, 0.02, 0.02),
)


@cache
def planted_engine():
    def plant(decoder):
        for pair in decoder.branches:
            for branch in pair:
                if PLANTED.skips(branch.kind, branch.layer):
                    last = branch.writes if branch.kind == "attention" else branch.writes.down_proj
                    last.weight.zero_()

    return engine_on("llama", end=None, change=plant, num_hidden_layers=LAYERS)


@cache
def predictor_at(temperature: float) -> Predictor:
    engine = planted_engine()
    request = Request(max_new_tokens=16, sampling=Sampling(temperature=temperature), seed=3)
    texts = [text for text, _ in write_texts(engine, request, ["One", "Two and", "Three"])]
    return Predictor(engine, Reference(engine.decoder, texts), request)


def objective(temperature: float = 0.0, screen: bool = False) -> Objective:
    predictor = predictor_at(temperature)
    few = Predictor(predictor.engine, predictor.reference.first(1), predictor.request)
    return Objective(predictor, COSTS, screen=few if screen else None, most=4)


def study_of(wanted: Objective, storage: str | None = None) -> Study:
    return Study(wanted, wanted.predictor.request, "weights", storage)


@pytest.mark.parametrize("screen", [False, True])
@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("clasp", "random")])
def test_every_method_finds_the_branches_that_write_nothing(method, screen):
    wanted = objective(screen=screen)
    steps = search(wanted, Deadline.after(30), method=method, study=study_of(wanted), seed=1)
    for _, step in itertools.islice(steps, 400):
        if step.best is not None and step.best.choice.plan == PLANTED:
            break
    assert wanted.best is not None
    assert wanted.best.choice.plan == PLANTED
    assert wanted.best.alpha == 1.0
    assert wanted.best.speedup == max(s.speedup for s in wanted.ranked())


def test_plans_scored_in_one_forward_score_as_alone():
    together, alone = objective(), objective()
    together._batch = 4
    plans = random_plans(LAYERS, 10, 2)
    found = list(together.score_all(plans, Deadline.after(30)))
    assert found == [alone.score(plan) for plan in plans]


def test_clasp_skips_the_layer_that_writes_nothing_first():
    plans = clasp_plans(predictor_at(0.0).reference, 3)
    assert [plan.n_skipped for plan in plans] == [2, 4, 6]
    assert plans[0] == SkipPlan.parse("2", LAYERS)


@pytest.mark.parametrize("storage", ["journal.log", "sqlite:///{}/plans.db"])
def test_a_search_that_was_killed_goes_on_from_what_it_knew(tmp_path, storage):
    storage = storage.format(tmp_path) if "://" in storage else str(tmp_path / storage)
    first = objective()
    steps = search(first, Deadline.after(30), method="beam", study=study_of(first, storage))
    for _ in itertools.islice(steps, 20):
        pass
    steps.close()
    again = objective()
    study = study_of(again, storage)
    assert study.known == len(first.scores) == 20
    assert again.ranked() == first.ranked()

    def scored_anew(*_args, **_options):
        raise AssertionError("it was known")

    again._scored = scored_anew
    for scored in first.ranked():
        assert again.score(scored.choice.plan) == scored


def test_two_searches_share_one_study_while_they_run(tmp_path):
    storage = str(tmp_path / "journal.log")
    one, other = objective(), objective()
    studies = [study_of(one, storage), study_of(other, storage)]
    one.score(PLANTED)
    next(studies[1].tpe(Deadline.after(30), seed=0))
    assert other.best == one.best


def test_other_texts_or_other_sampling_are_another_study(tmp_path):
    storage = str(tmp_path / "journal.log")
    first = objective()
    study_of(first, storage)
    first.score(PLANTED)
    assert study_of(objective(0.8), storage).known == 0
    assert study_of(objective(), storage).known == 1


def test_the_draft_temperature_is_searched_where_there_is_one():
    wanted = objective(0.8)
    steps = search(wanted, Deadline.after(20), method="tpe", study=study_of(wanted), seed=2)
    for _ in itertools.islice(steps, 12):
        pass
    found = {scored.choice.draft_temperature for scored in wanted.scores.values()}
    assert len(found) > 6
    assert all(0.32 <= t <= 1.12 for t in found)


def test_a_search_ends_with_its_budget_and_when_it_is_cancelled():
    wanted = objective()
    begin = time.perf_counter()
    for _ in search(wanted, Deadline.after(0.5), method="random", study=study_of(wanted)):
        pass
    assert time.perf_counter() - begin < 5
    never = Deadline.after(100, cancelled=lambda: True)
    assert list(random_search(objective(), never, seed=0)) == []


def test_the_front_holds_what_nothing_beats():
    wanted = objective()
    for plan in [PLANTED, *random_plans(LAYERS, 12, 0)]:
        wanted.score(plan)
    front = pareto(wanted.ranked())
    assert [s.draft_ms for s in front] == sorted(s.draft_ms for s in front)
    for each in wanted.ranked():
        assert any(f.alpha >= each.alpha and f.draft_ms <= each.draft_ms for f in front)


def test_the_middle_rule_skips_what_it_says():
    plans = middle_plans(30)
    assert {name: round(plan.share, 2) for name, plan in plans.items()} == {
        "middle 30%": 0.3,
        "middle 40%": 0.4,
        "middle 50%": 0.5,
    }


def test_random_plans_are_the_seeds_own():
    assert random_plans(30, 20, 4) == random_plans(30, 20, 4)
    assert len(set(random_plans(30, 20, 4))) == 20
    assert random_plans(30, 20, 4) != random_plans(30, 20, 5)


def test_a_choice_is_predicted_with_its_own_k_even_where_another_is_better():
    wanted = objective()
    found = [wanted.at(Choice(PLANTED, k)) for k in (1, 2, 4)]
    rounds = [8, 6, 4]  # of 16 tokens, k + 1 in each
    assert [each.choice.k for each in found] == [1, 2, 4]
    assert [each.tau for each in found] == [16 / count for count in rounds]
    assert wanted.score(PLANTED).speedup >= max(each.speedup for each in found)
    assert len(wanted.scores) == 1


def test_draft_and_verify_decodes_for_real():
    wanted = objective()
    engine, request = planted_engine(), predictor_at(0.0).request
    steps = draft_verify(engine, request, ["One"], wanted, Deadline.after(20), k=2, seed=0)
    choice, _ = next(steps)
    assert choice.k == 2
    assert wanted.scores == {}


def test_finalists_are_confirmed_by_decoding_beside_plain_decoding():
    engine = planted_engine()
    confirmation = Confirmation(engine, predictor_at(0.0).request, {"planted": Choice(PLANTED, 3)})
    assert len(list(confirmation.run(["Four", "Five"]))) == 2
    measured = confirmation.results()["planted"]
    assert (measured.alpha, measured.tau) == (1.0, 4.0)
    assert measured.interval[0] <= measured.speedup <= measured.interval[1]


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "smollm3"])
@torch.inference_mode()
def test_a_draft_on_its_own_is_scored_as_the_checkpoint_drafts(name, tmp_path):
    engine = engine_on(name, end=None)
    plan = SkipPlan.parse("2", engine.n_layers)
    request = Request(max_new_tokens=16)
    texts = [text for text, _ in write_texts(engine, request, ["One", "Two and"])]
    table = standalone_table(Reference(engine.decoder, texts), plan, depth=3)
    write_draft(tmp_path / "draft", engine.loaded, plan)
    draft = AutoModelForCausalLM.from_pretrained(tmp_path / "draft")
    for text, given in zip(texts, table.given, strict=True):
        logits = draft(torch.tensor([text.ids])).logits[0].argmax(-1).tolist()
        first = len(text.prompt_ids)
        agrees = [logits[first + i - 1] == token for i, token in enumerate(text.written)]
        assert given[:, 0].tolist() == agrees
        assert given[:-2, 2].tolist() == agrees[2:]
