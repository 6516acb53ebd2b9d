"""The Layers panel without a browser or a model: what it accepts, its slices, values and words."""

from __future__ import annotations

import json
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.methods import METHODS
from analysis.scores import SCORES as ANALYSIS_SCORES
from analysis.table import Column, Importance
from analysis.texts import CancelledError
from selfspec_core.plan import SkipPlan
from ui import layers_demand
from ui.layers_demand import COLUMNS, SCORES, VIEWS, DemandError, read_demand
from ui.layers_job import Known, Result
from ui.layers_panel import EXAMPLE, _first_value
from ui.layers_slices import PAUSE, in_slices
from ui.layers_values import result_of, value
from ui.places import ASSETS
from ui.recorded import read_recording
from ui.words import dictionary

GOOD = {
    "source": "run",
    "prompt_ids": [1, 2, 3],
    "tokens": [4, 5],
    "weights": "abc",
    "column": "input_x_gradient",
    "view": "attention",
    "score": "logprob",
    "rows": 32,
    "budget": 10,
    "step": 0,
}


def demand(**changes):
    return read_demand({**GOOD, **changes}, plan="none", prompt="hello")


# -- what a page may ask for -------------------------------------------------------------------


def test_what_the_page_sends_is_understood():
    read = demand()
    assert read.ids == (1, 2, 3, 4, 5)
    assert read.prompt_length == 3
    assert read.methods == ("input_x_gradient", "attention", "measured")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"source": "elsewhere"}, "choice"),
        ({"column": "importance"}, "choice"),
        ({"column": ["kl"]}, "choice"),
        ({"score": None}, "choice"),
        ({"view": "lens"}, "choice"),
        ({"rows": 10**9}, "choice"),
        ({"rows": True}, "choice"),
        ({"budget": "60"}, "choice"),
        ({"ig_steps": 9}, "choice"),
        ({"budget": float("nan")}, "choice"),
        ({"step": -1}, "choice"),
        ({"tokens": []}, "nothing_written"),
        ({"prompt_ids": []}, "nothing_written"),
        ({"tokens": "45"}, "nonsense"),
        ({"tokens": [4.5]}, "nonsense"),
        ({"tokens": [True]}, "nonsense"),
        ({"tokens": [-1]}, "nonsense"),
        ({"tokens": [2**40]}, "nonsense"),
        ({"prompt_ids": [1] * 100_000}, "nonsense"),
        ({"prompt_ids": {"0": 1}}, "nonsense"),
        ({"score": "kl"}, "silent"),
    ],
)
def test_nonsense_is_answered_with_a_sentence(changes, key):
    with pytest.raises(DemandError) as refused:
        demand(**changes)
    assert refused.value.words["key"] == f"layers.error.{key}"
    assert "{" not in str(refused.value)


@pytest.mark.parametrize("sent", [None, [], "compute", 3])
def test_an_event_without_data_is_answered_too(sent):
    with pytest.raises(DemandError):
        read_demand(sent, plan="none", prompt="hello")


def test_the_prompt_alone_needs_no_ids():
    read = demand(source="prompt", tokens="never read", prompt_ids=None)
    assert (read.ids, read.prompt) == ((), "hello")


def test_a_silent_view_is_left_out_of_what_is_run():
    read = demand(column="integrated_gradients", view="gradient_flow", score="kl")
    assert read.methods == ("integrated_gradients", "measured")


def test_the_panel_knows_every_method_and_score_of_the_analysis():
    assert set(COLUMNS.values()) | set(VIEWS) == set(METHODS)
    assert set(SCORES) == set(ANALYSIS_SCORES)
    silent = {name for name, method in METHODS.items() if method.at_whole}
    assert set(layers_demand.SILENT["kl"]) == silent
    assert set(layers_demand.COPYLESS) == {n for n, m in METHODS.items() if not m.copies}
    assert set(layers_demand.BUDGETED) == {n for n, m in METHODS.items() if m.work is None}


# -- slices ------------------------------------------------------------------------------------


def test_a_computation_hands_over_where_it_asks_and_never_runs_beside_its_taker():
    running, overlaps = [], []

    def compute(asked):
        for number in range(5):
            running.append(threading.get_ident())
            asked()
            running.pop()
            yield number

    seen = []
    for item in in_slices(compute, lambda: False, seconds=0.0):
        if item is PAUSE:
            overlaps.append(running[-1] == threading.get_ident())
        else:
            seen.append(item)
            assert not running
    assert seen == [0, 1, 2, 3, 4]
    assert overlaps == [False] * 5  # it paused each time it asked, on a thread of its own


def test_a_slice_that_is_short_enough_doesnt_pause():
    def compute(asked):
        yield [asked() for _ in range(10)]

    assert list(in_slices(compute, lambda: False, seconds=60.0)) == [[False] * 10]


def test_closing_the_slices_ends_the_computation_and_its_thread():
    ends, threads = [], []

    def compute(asked):
        threads.append(threading.current_thread())
        try:
            while True:
                if asked():
                    raise CancelledError
        finally:
            ends.append("ended")
        yield

    slices = in_slices(compute, lambda: False, seconds=0.0)
    assert next(slices) is PAUSE
    slices.close()
    assert ends == ["ended"]
    assert not threads[0].is_alive()


def test_a_computation_that_is_cancelled_ends_quietly_and_one_that_fails_says_why():
    def cancelled(asked):
        yield 1
        if asked():
            raise CancelledError
        yield 2

    assert list(in_slices(cancelled, lambda: True)) == [1]

    def failing(_):
        yield 1
        raise ZeroDivisionError("of no use")

    slices = in_slices(failing, lambda: False)
    assert next(slices) == 1
    with pytest.raises(ZeroDivisionError, match="of no use"):
        next(slices)


# -- results -----------------------------------------------------------------------------------


def test_known_results_are_bounded_and_the_least_wanted_goes_first():
    known = Known(kept=2)
    for name in "ab":
        known.put((name,), {})
    assert known.get(("a",)) is not None
    known.put(("c",), {})
    assert known.get(("b",)) is None
    assert known.get(("a",)) is not None
    assert known.get(("c",)) is not None


def _result(tokens, **columns) -> Result:
    made = {
        name: Column(np.array(values), (np.tile(np.array(values)[:, None], len(tokens)),))
        for name, values in columns.items()
    }
    table = Importance(len(next(iter(columns.values()))) // 2, (tuple(tokens),), made, "logprob")
    return Result(table, SkipPlan(table.n_layers, attention={1}), 0, 0)


def test_a_result_holds_cells_ranks_and_the_plan_and_no_nan():
    estimate = [1.0, 2.0, float("nan"), 4.0, 5.0, 6.0]
    truth = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    made = result_of(_result(["a", " b"], block_influence=estimate, lost_agreement=truth), demand())
    column = made["columns"]["block_influence"]
    assert column["values"][2] is None
    assert column["cells"][0] == [1, 1]
    ranks = column["ranks"]["lost_agreement"]
    assert (ranks["spearman"], ranks["kendall"], ranks["branches"]) == (1.0, 1.0, 5)
    assert made["columns"]["lost_agreement"]["ranks"] == {}
    assert made["plan"] == {"attention": [1], "mlp": []}
    json.loads(value(1, "done", result=made), parse_constant=lambda name: pytest.fail(name))


def test_no_token_looks_like_markup_in_a_value():
    made = result_of(_result(["</script><img onerror=1>"], kl=[1.0] * 4), demand())
    text = value(1, "done", result=made)
    assert "<" not in text
    assert json.loads(text)["result"]["tokens"] == ["</script><img onerror=1>"]


def test_the_recorded_example_is_of_the_recorded_run_and_whole():
    recording = read_recording()
    example = json.loads(_first_value(SimpleNamespace(recording=recording)))
    made = example["result"]
    assert example["state"] == "recorded"
    assert made["layers"] == recording.n_layers
    assert {"attention_entropy", "gradient_flow", "block_influence", "logit_lens"} <= set(
        made["columns"]
    )
    for column in made["columns"].values():
        if column["cells"]:
            assert len(column["cells"]) == 2 * made["layers"]
            assert {len(row) for row in column["cells"]} == {len(made["tokens"])}
    assert EXAMPLE.stat().st_size < 120_000


def test_without_a_recording_or_an_example_the_panel_begins_with_nothing(tmp_path):
    nothing = json.loads(value(0, "idle"))
    assert json.loads(_first_value(SimpleNamespace(recording=None))) == nothing
    with_run = SimpleNamespace(recording=read_recording())
    assert json.loads(_first_value(with_run, tmp_path / "missing.json")) == nothing


# -- words -------------------------------------------------------------------------------------


def test_every_word_that_the_view_says_is_there_in_both_languages():
    english, chinese = (dictionary()[language] for language in ("en", "zh"))
    said = {f"layers.method.{name}.{what}" for name in COLUMNS for what in ("name", "read")}
    said |= {f"layers.work.{name}" for name in METHODS}
    said |= {f"layers.view.{name}{end}" for name in VIEWS for end in ("", ".read")}
    said |= {f"layers.score.{name}" for name in SCORES}
    for path in ASSETS.glob("layers_panel*.js"):
        said |= set(re.findall(r'"(layers\.[a-z_.0-9]+[a-z_0-9])"', path.read_text("utf-8")))
    assert len(said) > 100
    for key in said:
        assert english.get(key), key
        assert re.search(r"[\u3400-\u9fff]|MLP", chinese[key]), key


def test_the_controls_offer_what_the_server_takes():
    script = (ASSETS / "layers_panel_controls.js").read_text("utf-8")
    columns = re.search(r"const COLUMNS = \{(.*?)\};", script, re.DOTALL)[1]
    assert set(re.findall(r'"(\w+)"', columns)) == set(COLUMNS)
    for name in ("ROWS", "BUDGETS"):
        offered = re.search(rf"const {name} = \[(.*?)\]", script)[1]
        assert tuple(map(int, offered.split(","))) == getattr(layers_demand, name)
