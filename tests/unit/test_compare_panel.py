"""What the Compare panel takes, how its table fills in, and what it gives back afterwards."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from bench.compare import Result
from bench.systems import LLAMA_CPP, Written
from bench.systems import SYSTEMS as BENCH
from ui import compare_choice, compare_job
from ui.compare_choice import PLAIN, SELFSPEC, SYSTEMS, Wanted
from ui.compare_job import Comparisons
from ui.compare_table import Table
from ui.examples import EXAMPLES
from ui.limits import LimitError, Limits
from ui.settings import Settings
from ui.tune_feed import Patch, Progress, TuneError
from ui.words import dictionary

from ..model.engines import engine_on

WRITTEN = dict(compare_choice.LENGTHS)
"""As they are outside of these tests."""


def wanted(**changes) -> Wanted:
    given = {
        "settings": Settings(prompt="A kettle sings", plan="1", k=2),
        "systems": [SELFSPEC, "hf-generate"],
        "lengths": ["short"],
        "examples": 0,
        "own": True,
        "repeats": 1,
        **changes,
    }
    return Wanted(**given)


@pytest.fixture(scope="module")
def engine():
    return engine_on(end=None)


@pytest.fixture
def studio(engine):
    return SimpleNamespace(engine=engine, limits=Limits(), ready=lambda: engine, when_loaded=[])


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for name, tokens in {"short": 3, "medium": 6}.items():
        monkeypatch.setitem(compare_choice.LENGTHS, name, tokens)


def entries(items) -> dict:
    found: dict = {}
    for item in items:
        if isinstance(item, Patch):
            found.update(item.entries)
    return found


def test_the_systems_are_those_of_the_benchmark_and_each_is_described():
    assert {PLAIN, *SYSTEMS} == set(BENCH) - {LLAMA_CPP}
    for name in (PLAIN, *SYSTEMS):
        for kind in ("system", "what", "claim"):
            assert f"compare.{kind}.{name}" in dictionary()["zh"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"systems": []}, "systems"),
        ({"systems": ["llama-cpp"]}, "systems"),
        ({"systems": "selfspec"}, "systems"),
        ({"systems": [["selfspec"]]}, "systems"),
        ({"lengths": []}, "lengths"),
        ({"lengths": [24]}, "lengths"),
        ({"examples": 99}, "examples"),
        ({"examples": 1.5}, "examples"),
        ({"examples": None}, "examples"),
        ({"repeats": 0}, "repeats"),
        ({"repeats": True}, "repeats"),
        ({"own": False}, "prompts"),
        ({"draft_model": "x" * 999}, "draft_name"),
        ({"draft_model": 7}, "draft_name"),
    ],
)
def test_nonsense_is_refused_in_words(changes, key):
    with pytest.raises(TuneError) as refused:
        wanted(**changes)
    assert refused.value.key == f"compare.error.{key}"


def test_the_person_s_prompt_comes_first_and_no_prompt_twice():
    first = next(iter(EXAMPLES.values()))
    assert wanted(examples=2).prompts[0] == "A kettle sings"
    both = wanted(examples=2, settings=Settings(prompt=first)).prompts
    assert len(set(both)) == len(both) == 3


def test_the_operator_s_limits_hold():
    with pytest.raises(LimitError):
        wanted(examples=3).check(Limits(prompts=2))
    with pytest.raises(LimitError):
        wanted(lengths=["long"]).check(Limits(max_new_tokens=100))


def test_the_expected_time_grows_with_the_work_and_is_unknown_before_anything_was_measured():
    assert wanted().seconds({}) is None
    short = wanted().seconds({PLAIN: 0.01})
    assert wanted(repeats=2).seconds({PLAIN: 0.01}) > short
    assert wanted().seconds({PLAIN: 0.01, SELFSPEC: 0.5}) > short
    assert set(wanted().work()) == {PLAIN, SELFSPEC, "hf-generate"}


def test_a_row_is_compared_on_the_prompts_that_plain_decoding_has_written_too():
    table = Table((PLAIN, "hf-generate"), (2, 4), 2)
    table.add("hf-generate", 0, 2, Written((1, 2), 1.0))
    assert table.rows()[1]["cells"] == [None, None]
    table.add(PLAIN, 0, 2, Written((1, 2), 2.0))
    cell, later = table.rows()[1]["cells"]
    assert later is None
    assert (cell["speedup"], cell["identical"], cell["prompts"]) == (2.0, 1, 1)
    assert cell["low"] is None  # one prompt has no spread
    table.add(PLAIN, 1, 2, Written((1, 2), 1.0))
    table.add("hf-generate", 1, 2, Written((1, 9), 4.0))
    cell = table.rows()[1]["cells"][0]
    assert (cell["identical"], cell["prompts"]) == (1, 2)
    assert cell["low"] <= cell["speedup"] <= cell["high"]
    assert table.rates() == {PLAIN: 0.75, "hf-generate": 1.25}


def test_a_draft_s_text_isn_t_called_different_before_its_own_reference_was_written():
    table = Table((PLAIN, SELFSPEC), (2,), 1)
    table.add(PLAIN, 0, 2, Written((1, 2), 1.0))
    table.add(SELFSPEC, 0, 2, Written((1, 9), 1.0, 1, 1, 0))
    assert table.rows()[1]["cells"][0]["identical"] is None
    found = {
        "tps": 1.0,
        "ratio_to_plain": 1.0,
        "interval": (1.0, 1.0),
        "tau": 2.0,
        "alpha": 0.0,
        "identical": 1,
        "prompts": 1,
        "equal_share": 1.0,
    }
    table.finish(Result({SELFSPEC: {**found, "by_length": {"2": found}}}, 1, (), {}))
    assert table.rows()[1]["cells"][0]["identical"] == 1


def test_every_system_is_measured_and_the_copy_of_the_weights_is_freed(studio, monkeypatch):
    import bench.lineup

    copies = []
    real = bench.lineup.unpacked

    def unpacked(engine):
        copy = real(engine)
        copies.append(weakref.ref(copy.model))
        return copy

    monkeypatch.setattr(bench.lineup, "unpacked", unpacked)
    comparisons = Comparisons(studio)
    choice = wanted(systems=list(SYSTEMS), lengths=["short", "medium"], examples=1)
    items = list(comparisons.run(choice, lambda: False))
    found = entries(items)
    assert found["complete"]
    rows = {row["system"]: row for row in found["rows"]}
    assert set(rows) == {PLAIN, *SYSTEMS}
    for row in rows.values():
        assert [cell["prompts"] for cell in row["cells"]] == [2, 2]
    assert rows[SELFSPEC]["cells"][0]["identical"] == 2
    assert rows[SELFSPEC]["memory_ratio"] == 1.0
    assert rows["hf-assistant"]["extra_megabytes"] > 0
    assert rows["hf-assistant"]["memory_ratio"] > 1
    assert rows["draft-alone"]["memory_ratio"] < 1
    # The draft of whole layers, exported, is what the plan leaves of the model.
    assert rows["draft-alone"]["megabytes"] == pytest.approx(
        rows["hf-assistant"]["extra_megabytes"], rel=0.02
    )
    assert rows["draft-alone"]["kl"] > 0
    told = [item for item in items if isinstance(item, Progress)]
    assert any(item.key == "compare.step.copy" for item in told)
    assert any(item.left for item in told)
    assert set(comparisons.rates()) == {PLAIN, *SYSTEMS}
    gc.collect()
    assert len(copies) == 1
    assert copies[0]() is None


def test_a_comparison_that_is_closed_half_way_frees_its_copy_and_keeps_what_it_learned(
    studio, monkeypatch
):
    freed = []
    monkeypatch.setattr(compare_job, "_release", freed.append)
    comparisons = Comparisons(studio)
    running = comparisons.run(wanted(examples=3), lambda: False)
    for item in running:
        if isinstance(item, Patch) and any(c for row in item.entries["rows"] for c in row["cells"]):
            break
    running.close()
    assert freed == [studio.engine]
    assert PLAIN in comparisons.rates()


def test_the_time_that_the_operator_gives_ends_it(studio):
    with pytest.raises(TuneError):
        list(Comparisons(studio).run(wanted(), lambda: True))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"settings": Settings(prompt="A kettle", plan="1", k=0)}, "k"),
        ({"lengths": ["long"]}, "context"),
    ],
)
def test_what_this_model_can_t_do_is_said_before_anything_is_measured(studio, changes, key):
    with pytest.raises(TuneError) as refused:
        list(Comparisons(studio).run(wanted(**changes), lambda: False))
    assert refused.value.key == f"compare.error.{key}"


def test_the_lengths_that_the_page_names_are_those_that_are_written():
    for language in ("en", "zh"):
        for name, tokens in WRITTEN.items():
            assert str(tokens) in dictionary()[language][f"compare.length.{name}"]
    assert WRITTEN["short"] < 32
