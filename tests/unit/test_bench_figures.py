"""Figures of the benchmark, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import compare as comparing
from bench import llama_cpp
from bench.__main__ import _parser
from bench.compare import interleaved
from bench.compare_command import chosen_systems
from bench.figures import Item, bootstrap, broken_down, equal_share, figures
from bench.prompts import read_categorised
from bench.report import markdown, page
from bench.systems import ROWS, SYSTEMS, Written, fastest
from selfspec_core.prompts import PromptsError
from ui import compare_choice


def item(prompt: int = 0, **values) -> Item:
    given = {
        "category": None,
        "length": 2,
        "mine": (Written((1, 2), 1.0),),
        "plain": (Written((1, 2), 1.0),),
        "expected": (1, 2),
        **values,
    }
    return Item(prompt, **given)


@pytest.mark.parametrize(
    ("one", "four", "rows"),
    [
        ((1.0, 1.0, 1.0), (1.1, 1.1, 1.1), 1),
        ((1.0, 1.0, 1.0), (0.8, 0.8, 0.8), 4),
        ((1.0, 1.0, 1.0), (0.99, 0.98, 0.99), 1),  # noise
        ((1.0, 2.0, 1.0), (0.8, 1.6, 1.1), 4),  # a machine that slows down slows both
        ((1.0, 1.0, 3.0), (1.1, 1.1, 1.1), 1),  # one slow run decides nothing
    ],
)
def test_plain_decoding_takes_more_rows_only_where_that_is_faster_for_sure(one, four, rows):
    assert fastest({1: one, 4: four}) == rows


def test_the_page_expects_what_a_comparison_writes_before_it_measures():
    assert (
        comparing.ROWS_REPEATS * comparing.ROWS_TOKENS * len(ROWS)
    ) == compare_choice._ROWS_TOKENS
    assert compare_choice._WARM_UP_TOKENS == comparing.WARM_UP_TOKENS


def test_figures_are_medians_of_ratios_on_the_same_prompts():
    """Case 22: the baseline is run, on the same prompts."""
    slow = (Written((1, 2), 1.0), Written((1, 2), 3.0), Written((1, 2), 1.0))
    first = item(0, mine=(Written((1, 2), 0.5, 1, 2, 1),), plain=slow)
    second = item(
        1,
        mine=(Written((5, 7), 4.0, 1, 2, 0),),
        plain=(Written((5, 6), 2.0),),
        expected=(5, 6),
    )
    found = figures([first, second])
    assert found["ratio_to_plain"] == pytest.approx((2.0 + 0.5) / 2)
    assert (found["identical"], found["prompts"]) == (1, 2)
    assert (found["tau"], found["alpha"]) == (2.0, 0.25)
    assert found["equal_share"] == pytest.approx(0.75)


def test_a_prompt_is_identical_only_at_every_length():
    wrong = item(0, length=3, mine=(Written((1, 2, 9), 1.0),), expected=(1, 2, 3))
    assert figures([item(0), wrong])["identical"] == 0
    by_length = broken_down([item(0), wrong], "length")
    assert [row["identical"] for row in by_length.values()] == [1, 0]


def test_equal_share_counts_places_of_the_longer_text():
    assert equal_share((1, 2, 3), (1, 9, 3)) == pytest.approx(2 / 3)
    assert equal_share((1, 2), (1, 2, 3, 4)) == 0.5
    assert equal_share((), ()) == 1.0


def test_the_interval_holds_the_median_and_narrows_without_spread():
    low, high = bootstrap([0.9, 1.0, 1.1, 1.2, 0.8])
    assert 0.8 <= low < 1.0 < high <= 1.2
    assert bootstrap([1.0] * 5) == (1.0, 1.0)


def test_every_system_writes_a_prompt_before_the_next_and_takes_turns_at_being_first():
    jobs = interleaved(["a", "b", "c"], prompts=2, lengths=[4, 8], repeats=3)
    assert len(jobs) == 3 * 2 * 2 * 3
    groups = [jobs[at : at + 3] for at in range(0, len(jobs), 3)]
    for group in groups:
        assert {job.system for job in group} == {"a", "b", "c"}
        assert len({(job.prompt, job.length) for job in group}) == 1
    assert {group[0].system for group in groups} == {"a", "b", "c"}


def test_few_prompts_by_category_come_from_every_category(tmp_path):
    path = tmp_path / "sorted.jsonl"
    kinds = ["tea"] * 3 + ["rain"] * 3 + ["birds"]
    lines = [json.dumps({"turns": [f"{k} {n}"], "category": k}) for n, k in enumerate(kinds)]
    path.write_text("\n\n".join(lines), encoding="utf-8")
    taken = read_categorised(path, 4, by_category=True)
    assert [prompt.category for prompt in taken] == ["tea", "rain", "birds", "tea"]
    first = read_categorised(path, 2, by_category=False)
    assert [prompt.text for prompt in first] == ["tea 0", "tea 1"]
    with path.open("a", encoding="utf-8") as file:
        file.write('\n{"prompt": "no kind"}')
    with pytest.raises(PromptsError, match="category"):
        read_categorised(path, 4, by_category=True)


def test_a_system_that_is_not_installed_is_left_out_and_the_rest_runs(monkeypatch):
    monkeypatch.setattr(llama_cpp, "is_installed", lambda: False)
    names, left_out = chosen_systems("selfspec,llama-cpp")
    assert names == ["plain", "selfspec"]
    assert "pip install llama-cpp-python" in left_out["llama-cpp"]
    monkeypatch.setattr(llama_cpp, "is_installed", lambda: True)
    assert chosen_systems("all") == (list(SYSTEMS), {})
    for wrong, said in (("magic", "magic"), (" , ", "choose of all, plain")):
        with pytest.raises(ValueError, match=said):
            chosen_systems(wrong)


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("compare", (8, 64, 3)),
        ("roofline", (3, 64, 3)),
        ("ideal", (8, 64, 3)),
        ("scale", (2, 48, 2)),
        ("streaming", (8, 64, 3)),
    ],
)
def test_a_commands_defaults_are_its_own(command, defaults):
    options = _parser().parse_args([command])
    assert (options.limit, options.max_new_tokens, options.repeats) == defaults


def test_llama_cpp_is_asked_for_greedy_tokens_up_to_the_end(monkeypatch):
    class Llama:
        def __init__(self, **options):
            self.options = options

        def reset(self):
            self.at = 0

        def generate(self, ids, **options):
            assert (ids, options["temp"]) == ([3, 4], 0.0)
            yield from (5, 6, 1, 7)

    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", SimpleNamespace(Llama=Llama))
    monkeypatch.setattr(llama_cpp, "is_installed", lambda: True)
    write = llama_cpp.llama_cpp(Path("model.gguf"), [1])
    assert write([3, 4], 10).tokens == (5, 6, 1)
    assert write([3, 4], 2).tokens == (5, 6)


def test_text_of_a_model_or_a_note_cannot_break_the_page_or_the_table():
    row = figures([item()])
    result = {
        "systems": {"plain": row, "selfspec": row},
        "model": "<b>|x",
        "quantised": None,
        "dtype": "float32",
        "hardware": "cpu",
        "device": "cpu",
        "threads": 2,
        "execution": "eager",
        "plan": "1-2",
        "k": 2,
        "plain_rows": 4,
        "lengths": [2],
        "repeats": 1,
        "notes": ["<script>alert(1)</script>"],
    }
    assert "<script>alert" not in page(result)
    assert "<b>|x" not in page(result)
    lines = [line for line in markdown(result).split("\n") if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
