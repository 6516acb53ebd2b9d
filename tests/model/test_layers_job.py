"""The Layers panel's work on a tiny model: what it computes, and that it can be stopped."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from analysis.evaluations import evaluations
from analysis.importance import METHODS, importance
from analysis.subject import Settings
from analysis.texts import Text
from selfspec_core.plan import SkipPlan
from ui.layers_demand import BUDGETED, COLUMNS, Demand, DemandError
from ui.layers_job import Known, Progress, Result, work

from .engines import engine_on
from .tiny import ids

PROMPT, WRITTEN = 5, 6
IDS = tuple(ids(PROMPT + WRITTEN).tolist())


@pytest.fixture(scope="module")
def engine():
    return engine_on("llama")


def wish(**changes) -> Demand:
    settings = {
        "source": "run",
        "ids": IDS,
        "prompt_length": PROMPT,
        "weights": "",
        "prompt": "",
        "column": "input_x_gradient",
        "view": "attention",
        "score": "logprob",
        "rows": 8,
        "budget": 5,
        "plan": "a1,2",
        "step": 0,
    }
    return Demand(**settings | changes)


def run(engine, demand, known=None, cancelled=lambda: False) -> list:
    known = Known() if known is None else known
    return list(work(demand, lambda: (engine, engine.loaded), known, cancelled))


def columns(items) -> dict:
    assert isinstance(items[-1], Result)
    return dict(items[-1].importance.columns)


@pytest.mark.parametrize("column", [c for c in COLUMNS if COLUMNS[c] not in BUDGETED])
def test_the_panel_shows_what_the_analysis_says(engine, column):
    found = columns(run(engine, wish(column=column, view=None)))
    settings = Settings(plan=SkipPlan.parse("a1,2", engine.n_layers))
    *_, last = importance(
        engine.loaded, [Text(IDS, PROMPT)], settings, methods=[COLUMNS[column], "measured"]
    )
    assert set(found) == set(last.importance.columns)
    for name in (column, "lost_agreement"):
        expected = last.importance.columns[name].per_token[0]
        np.testing.assert_allclose(found[name].per_token[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in BUDGETED])
@pytest.mark.parametrize("rows", [3, 40])
def test_progress_counts_what_a_method_asks(engine, method, rows):
    text = Text(tuple(ids(PROMPT + rows).tolist()), PROMPT)
    settings = Settings(plan=SkipPlan.parse("a1,2", engine.n_layers))
    asked = []
    list(
        importance(
            engine.loaded,
            [text],
            settings,
            methods=[method],
            cancelled=lambda: bool(asked.append(0)),
        )
    )
    shares = evaluations(method, n_layers=engine.n_layers, n_rows=rows, steps=settings.steps)
    assert len(shares) == len(asked)
    assert shares[0] == 0
    assert all(a < b < 1 for a, b in itertools.pairwise(shares))


def test_what_is_looked_at_comes_first_and_the_truth_last(engine):
    items = run(engine, wish())
    found = [p for p in items if isinstance(p, Progress) and p.result is not None]
    assert [p.method for p in found] == ["input_x_gradient", "attention", "measured"]
    assert [p.number for p in found] == [1, 2, 3]
    assert found[0].result.importance.copy_mb is not None


def test_what_is_known_is_not_computed_again_unless_it_depends_on_what_changed(engine):
    known = Known()
    run(engine, wish(column="integrated_gradients_plan"), known)

    def computed(**changes):
        items = run(engine, wish(column="integrated_gradients_plan", **changes), known)
        return {p.method for p in items if isinstance(p, Progress)}

    assert computed() == set()
    assert computed(plan="a1,3") == {"integrated_gradients_plan"}
    assert computed(score="margin") == {"integrated_gradients_plan"}
    assert computed(rows=16) == set()  # the same words
    assert computed(ids=IDS[:-1]) == {"integrated_gradients_plan", "attention", "measured"}


def test_a_stop_keeps_what_was_finished_and_nothing_half_done(engine):
    known, seen = Known(), []
    steps = work(
        wish(column="shapley", budget=60, view="block_influence"),
        lambda: (engine, engine.loaded),
        known,
        lambda: len(seen) > 4,
    )
    for step in steps:
        seen.append(step)
    assert isinstance(seen[-1], Result)
    shapley = seen[-1].importance.columns.get("shapley")
    assert shapley is None or not shapley.complete
    assert "lost_agreement" not in seen[-1].importance.columns
    fresh = run(engine, wish(column="shapley", budget=5), known)
    assert "shapley" in {p.method for p in fresh if isinstance(p, Progress)}


def test_a_budget_is_shown_as_time_left(engine):
    items = run(engine, wish(column="layer_conductance", budget=5, view=None))
    shown = [p for p in items if isinstance(p, Progress) and p.method == "layer_conductance"]
    assert all(p.seconds_left is None or 0 <= p.seconds_left <= 5 for p in shown)
    assert columns(items)["layer_conductance"].complete


def test_the_prompt_alone_is_read_from_its_second_token_on(engine):
    items = run(engine, wish(source="prompt", ids=(), prompt_length=0, prompt="abcdef", view=None))
    result = items[-1]
    assert "".join(result.importance.tokens[0]) == "bcdef"


def test_long_texts_are_cut_and_it_says_so(engine, monkeypatch):
    monkeypatch.setattr("ui.layers_job.MAX_PROMPT", 2)
    result = run(engine, wish(rows=4, view=None, column="block_influence"))[-1]
    assert (result.cut, result.left_out) == (PROMPT - 2, WRITTEN - 4)
    assert len(result.importance.tokens[0]) == 4


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"weights": "another model’s"}, "other_model"),
        ({"ids": (*IDS, 10**6)}, "text"),
        ({"source": "prompt", "ids": (), "prompt": "  "}, "text"),
        ({"source": "prompt", "ids": (), "prompt": "a"}, "too_short"),
        ({"plan": "99", "column": "integrated_gradients_plan"}, "plan"),
        ({"plan": "<b>", "column": "integrated_gradients_plan"}, "plan"),
    ],
)
def test_a_text_or_plan_of_another_model_is_refused_in_words(engine, changes, key):
    with pytest.raises(DemandError) as refused:
        run(engine, replace(wish(), **changes))
    assert refused.value.words["key"] == f"layers.error.{key}"


def test_the_step_of_a_schedule_is_the_plan_that_is_hatched(engine):
    results = [
        run(engine, wish(plan="1;8:1-2", step=n, column="kl", view=None))[-1] for n in (0, 1)
    ]
    assert [str(result.plan) for result in results] == ["1", "1-2"]


def test_a_plan_that_cannot_be_read_only_matters_where_it_is_asked_for(engine):
    result = run(engine, wish(plan="99", column="kl", view=None))[-1]
    assert result.plan == SkipPlan(engine.n_layers)
