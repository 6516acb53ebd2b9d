"""The table of importance and its rank correlations: known numbers in, known figures out."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from analysis.correlation import rank_correlation
from analysis.figures import bars, heatmap
from analysis.importance import METHODS, chosen_methods
from analysis.subject import Settings
from analysis.table import TRUTH, Column, Importance, column_of
from analysis.texts import Text
from selfspec_core.plan import SkipPlan

NAN = float("nan")


def importance(**columns: list[float]) -> Importance:
    """A table of 3 layers with these columns, two written tokens that say the same."""
    made = {
        name: Column(np.array(values), (np.tile(np.array(values)[:, None], 2),))
        for name, values in columns.items()
    }
    return Importance(3, (("a", " b"),), made, "logprob")


def test_rank_correlation_of_known_data():
    """Kendall: 10 pairs of which 8 agree and 2 don't; Spearman: 1 − 6·Σd²/(n(n²−1))."""
    found = rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert found.kendall == pytest.approx((8 - 2) / 10)
    assert found.spearman == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert found.branches == 5


def test_rank_correlation_minds_order_and_nothing_else():
    x = np.random.default_rng(0).normal(size=40)
    assert rank_correlation(x, np.exp(3 * x)).spearman == pytest.approx(1)
    assert rank_correlation(x, -(x**3)).kendall == pytest.approx(-1)


def test_branches_without_a_value_are_left_out_of_the_correlation():
    found = rank_correlation([1, NAN, 2, 3, NAN], [1, 99, 2, 3, -99])
    assert found.branches == 3
    assert found.spearman == pytest.approx(1)


@pytest.mark.parametrize("estimate", [[1, 1, 1, 1], [NAN, NAN, 1, 2]])
def test_a_correlation_that_is_not_defined_is_none_and_not_a_number(estimate):
    found = rank_correlation(estimate, [1, 2, 3, 4])
    assert found.spearman is found.kendall is found.interval is None


def test_the_bootstrap_interval_holds_the_figure_and_narrows_with_more_branches():
    generator = np.random.default_rng(1)
    widths = []
    for n in (20, 500):
        x = generator.normal(size=n)
        found = rank_correlation(x, x + generator.normal(size=n), seed=3)
        low, high = found.interval
        assert low < found.spearman < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_the_bootstrap_interval_covers_the_true_correlation_most_of_the_time():
    """ρ of a bivariate normal with r = 0.6 is 6/π·asin(0.3) = 0.582."""
    generator, covered = np.random.default_rng(5), 0
    for trial in range(40):
        x = generator.normal(size=60)
        y = 0.6 * x + 0.8 * generator.normal(size=60)
        low, high = rank_correlation(x, y, seed=trial).interval
        covered += low < 0.582 < high
    assert covered >= 33  # 38 of 40 is what 95% means


def test_the_same_seed_gives_the_same_interval():
    x, y = np.random.default_rng(2).normal(size=(2, 30))
    assert rank_correlation(x, y, seed=1) == rank_correlation(x, y, seed=1)
    assert rank_correlation(x, y, seed=1).interval != rank_correlation(x, y, seed=2).interval


def test_signed_values_cancel_over_tokens_unless_taken_by_absolute_value():
    texts = [np.array([[1.0, -1.0], [0.5, 0.5]]), np.array([[2.0], [0.5]])]
    assert column_of(texts, absolute=True).values == pytest.approx([4 / 3, 0.5])
    assert column_of(texts, absolute=False).values == pytest.approx([2 / 3, 0.5])


def test_the_table_has_a_row_a_branch_and_a_column_a_method():
    frame = importance(**{TRUTH: [1, 2, 3, 4, 5, 6], "kl": [0, 1, 2, 3, 4, NAN]}).table()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.index) == ["a0", "m0", "a1", "m1", "a2", "m2"]
    assert list(frame.columns) == ["kind", "layer", TRUTH, "kl"]
    assert frame.loc["m1", ["kind", "layer", TRUTH]].tolist() == ["mlp", 1, 4]
    for name in frame.index:  # plans read the names
        assert str(SkipPlan.parse(name, 3)) == name


def test_json_has_the_agreed_keys_and_no_nan():
    made = importance(**{TRUTH: [1, 2, 3, 4, 5, 6], "kl": [0, 1, 2, 3, 4, NAN]})
    found = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert found["branches"] == list(made.branches)
    method = found["methods"]["kl"]
    assert {"spearman", "kendall", "interval", "seconds", "values"} <= set(method)
    assert method["spearman"] == pytest.approx(1)
    assert method["values"] == [0, 1, 2, 3, 4, None]


def test_no_correlation_is_told_before_the_truth_is_measured():
    made = importance(kl=[0, 1, 2, 3, 4, 5])
    assert made.correlations == {}
    assert made.to_dict()["methods"]["kl"]["spearman"] is None


def test_the_heatmap_shows_every_branch_and_token_and_the_bars_every_layer():
    made = importance(**{TRUTH: [1, 2, 3, 4, 5, 6], "shapley": [-1, 0, 1, 2, 3, 4]})
    plot = heatmap(made, "shapley").data[0]
    assert np.array(plot.z).shape == (6, 2)
    assert list(plot.y) == list(made.branches)
    assert plot.zmin == -plot.zmax  # signed values are coloured about 0
    attention, mlp = bars(made, "shapley").data
    assert list(attention.y) == [-1, 1, 3]
    assert list(mlp.y) == [0, 2, 4]
    assert "1.00" in bars(made, "shapley").layout.title.text
    with pytest.raises(KeyError):
        heatmap(made, "shapley", text=1)


def test_methods_run_with_the_truth_first_whatever_order_they_are_named_in():
    assert chosen_methods(["shapley", "measured"], "logprob") == ("measured", "shapley")
    assert chosen_methods(None, "logprob") == tuple(METHODS)


def test_gradients_at_the_whole_model_are_refused_for_the_score_that_has_its_top_there():
    with pytest.raises(ValueError, match="gradient at the whole model is 0"):
        chosen_methods(["input_x_gradient"], "kl")
    assert "input_x_gradient" not in chosen_methods(None, "kl")
    assert "integrated_gradients" in chosen_methods(None, "kl")


def test_wrong_settings_are_answered_with_what_is_allowed():
    plan = SkipPlan(3)
    with pytest.raises(ValueError, match="logprob, margin, kl"):
        Settings(score="accuracy", plan=plan)
    with pytest.raises(ValueError, match="1–256"):
        Settings(steps=0, plan=plan)
    with pytest.raises(ValueError, match="budget"):
        Settings(budget=0, plan=plan)
    with pytest.raises(ValueError, match="input_x_gradient"):
        chosen_methods(["saliency"], "logprob")
    with pytest.raises(ValueError, match="at least one written token"):
        Text((1, 2), 2)
