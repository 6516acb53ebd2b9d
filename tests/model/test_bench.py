"""The benchmark measures what it says: the same prompts, interleaved, checked against plain."""

from __future__ import annotations

import json

import pytest

from bench.__main__ import main
from bench.compare import _bootstrap, _figures
from bench.systems import Written, ours, transformers_generate
from selfspec_core.request import Request

from .engines import engine_on


def test_figures_are_medians_of_ratios_on_the_same_prompts():
    """Case 22: the baseline is run, on the same prompts."""
    plain = [
        [Written((1, 2), 1.0), Written((1, 2), 3.0), Written((1, 2), 1.0)],
        [Written((5, 6), 2.0)],
    ]
    mine = [[Written((1, 2), 0.5, 1, 2, 1)], [Written((5, 7), 4.0, 1, 2, 0)]]
    figures = _figures(mine, plain, [(1, 2), (5, 6)], 10.0)
    assert figures["ratio_to_plain"] == pytest.approx((2.0 + 0.5) / 2)
    assert figures["identical"] == 1
    assert figures["tau"] == 2.0
    assert figures["alpha"] == 0.25


def test_the_interval_holds_the_median_and_narrows_without_spread():
    low, high = _bootstrap([0.9, 1.0, 1.1, 1.2, 0.8])
    assert 0.8 <= low < 1.0 < high <= 1.2
    assert _bootstrap([1.0] * 5) == (1.0, 1.0)


@pytest.mark.parametrize(
    "options", [{}, {"prompt_lookup_num_tokens": 3}, {"assistant_early_exit": 2}]
)
def test_transformers_writes_what_this_engine_writes_on_the_same_prompt(options):
    engine = engine_on(end=None)
    ids = engine.encode(Request(prompt="A kettle sings"))
    theirs = transformers_generate(engine.loaded, **options)(ids, 16)
    assert theirs.tokens == ours(engine)(ids, 16).tokens
    assert theirs.seconds > 0


@pytest.mark.builtin
def test_compare_prints_one_line_of_json(capsys):
    arguments = ["compare", "--limit", "1", "--max-new-tokens", "8", "--repeats", "1", "--json"]
    assert main(arguments) == 0
    systems = json.loads(capsys.readouterr().out)["systems"]
    assert set(systems) == {"plain", "selfspec", "hf-generate"}
    assert systems["plain"]["ratio_to_plain"] == 1.0
    assert all(row["prompts"] == 1 for row in systems.values())


def test_an_unknown_system_is_answered_with_the_known_ones(capsys):
    assert main(["compare", "--systems", "magic"]) == 2
    assert "hf-generate" in capsys.readouterr().err
