"""Plan files: ours and other projects', there and back, and what hostile ones get."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from dataclasses import replace

import pytest

from selfspec_core import bounded_json
from selfspec_core.bounded_json import PlanFileError
from selfspec_core.loading import ModelInfo
from selfspec_core.plan import LengthSchedule, SkipPlan, parse_plan
from selfspec_core.plan_files import (
    Figures,
    PlanFile,
    hash_of_texts,
    read_plan_file,
    versions,
    write_plan_file,
)
from selfspec_core.plan_formats import FORMATS, dump_plan, export_plan, import_plan, parse_foreign
from selfspec_core.request import Request
from selfspec_core.sampling import Sampling

INFO = ModelInfo(
    id="org/model",
    family="Llama",
    n_layers=30,
    dtype="bfloat16",
    device="cpu",
    weights_hash="ab" * 32,
    source="here",
    quantised=None,
    context=2048,
    parameters=135,
    weights_mb=270.0,
)
FULL = PlanFile.of(
    INFO,
    parse_plan("a3-12,m5,14", 30),
    k=5,
    rule="threshold",
    threshold=0.65,
    confidence=0.123456789,
    temperature=0.7,
    draft_temperature=0.9,
    calibration_hash=hash_of_texts(["one", "two"]),
    predicted=Figures(alpha=0.71, tau=2.9, tokens_per_second=61.5, speedup=1.2),
    measured=Figures(alpha=0.69, tau=2.8),
    check={"prompts": 20, "identical": 20, "bit_exact": True, "speedup": None, "rule": "coupled"},
)


def entries(**changes):
    """The JSON text of a small plan file with changes; a value of `...` leaves an entry out."""
    values = {"schema": 1, "plan": "3-8", "n_layers": 30, "k": 4, "model": "m", **changes}
    return json.dumps({name: value for name, value in values.items() if value is not ...})


def random_plan(n_layers: int, seed: int) -> SkipPlan:
    draw = random.Random(seed)
    attention, mlp = (
        frozenset(i for i in range(n_layers) if draw.random() < 0.5) for _ in range(2)
    )
    return SkipPlan(n_layers, attention - {0}, mlp)


# -- our own file ------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["none", "a3-12,m5,14", "30%", "schedule", "2-4;64:a2-9;512:m0-7"])
def test_everything_in_our_file_comes_back_as_it_was(tmp_path, plan):
    file = replace(FULL, plan=parse_plan(plan, 30))
    write_plan_file(tmp_path / "plan.json", file)
    assert read_plan_file(tmp_path / "plan.json") == file


@pytest.mark.parametrize(
    "request_",
    [
        Request(k=3, plan=SkipPlan.parse("a3-8", 30), confidence=0.4),
        Request(k=8, draft_policy="adaptive", confidence=0.5, rule="rejection"),
        Request(
            k=8,
            draft_policy="auto",
            draft_temperature=0.7,
            sampling=Sampling(
                temperature=0.9,
                top_k=40,
                top_p=0.95,
                min_p=0.05,
                repetition_penalty=1.1,
                presence_penalty=0.2,
                min_new_tokens=4,
            ),
        ),
        Request(k=0, rule="threshold", threshold=0.6),
    ],
    ids=lambda request: request.policy_name,
)
def test_a_request_leaves_as_a_file_and_comes_back(request_):
    file = PlanFile.of_request(INFO, request_)
    back = PlanFile.from_json(file.to_json())
    assert back == file
    again = back.request(plan=request_.plan)
    assert again == request_
    assert json.loads(file.to_json())["policy"] == request_.policy_name


def test_a_policy_by_name_is_the_one_that_its_confidence_says():
    file = replace(FULL, policy="confidence", confidence=None)
    assert (file.confidence, file.policy) == (0.6, None)
    assert json.loads(file.to_json())["policy"] == "confidence"
    assert PlanFile.from_json(file.to_json()) == file
    with pytest.raises(PlanFileError, match="draft_policy must be one of"):
        replace(FULL, policy="sometimes")


def test_sampling_that_no_file_holds_is_refused():
    request = Request(sampling=Sampling(logit_bias=((5, 1.0),)))
    with pytest.raises(PlanFileError, match="logit_bias"):
        PlanFile.of_request(INFO, request)


def test_our_file_holds_what_a_reader_without_our_code_needs():
    told = json.loads(FULL.to_json())
    assert told["schema"] == 1
    assert told["plan"] == "a3-12,m5,14"
    assert (told["n_layers"], told["n_branches"]) == (30, 60)
    assert (told["k"], told["policy"], told["confidence"]) == (5, "confidence", 0.123456789)
    assert (told["model"], told["dtype"], told["device"]) == ("org/model", "bfloat16", "cpu")
    assert set(told["versions"]) == {"selfspec-studio", "torch", "transformers", "python"}
    assert told["predicted"]["alpha"] == 0.71
    assert told["check"]["identical"] == 20


def test_a_small_file_written_by_hand_is_enough():
    file = PlanFile.from_json(entries())
    assert (file.plan, file.k, file.rule) == (parse_plan("3-8", 30), 4, "coupled")
    assert file.weights_hash is file.measured is file.check is None


def test_a_file_asks_for_the_drafting_it_describes():
    request = FULL.request(prompt="Hello", max_new_tokens=7)
    assert (request.plan, request.k, request.rule) == (FULL.plan, 5, "threshold")
    assert (request.threshold, request.confidence) == (0.65, 0.123456789)
    assert (request.sampling.temperature, request.draft_temperature) == (0.7, 0.9)
    assert (request.prompt, request.max_new_tokens) == ("Hello", 7)


# -- held against a model ------------------------------------------------------------------------


def test_the_model_and_machine_that_it_was_made_for_fit():
    assert FULL.misfits(INFO, calibration_hash=FULL.calibration_hash) == []
    FULL.require(INFO)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"n_layers": 32}, "layers"),
        ({"weights_hash": "cd" * 32}, "weights"),
        ({"family": "Qwen3"}, "family"),
        ({"dtype": "float32"}, "dtype"),
        ({"device": "cuda:0"}, "device"),
    ],
)
def test_what_does_not_fit_is_named_with_both_sides(changes, what):
    found = FULL.misfits(replace(INFO, **changes))
    assert [misfit.what for misfit in found] == [what]
    assert str(getattr(INFO, next(iter(changes)))) in str(found[0])
    assert str(next(iter(changes.values()))) in str(found[0])
    assert found[0].blocks == (what == "layers")


def test_one_model_under_another_name_fits_and_another_model_of_that_depth_does_not():
    assert FULL.misfits(replace(INFO, id="a local folder")) == []
    other = FULL.misfits(replace(INFO, id="org/other", weights_hash="cd" * 32))
    assert {misfit.what for misfit in other} == {"model", "weights"}
    by_name = replace(FULL, weights_hash=None).misfits(replace(INFO, id="org/other"))
    assert [misfit.what for misfit in by_name] == ["model"]


def test_other_libraries_and_other_calibration_texts_are_told():
    old = replace(FULL, versions={**versions(), "torch": "1.0"})
    assert [misfit.file for misfit in old.misfits(INFO)] == ["torch 1.0"]
    found = FULL.misfits(INFO, calibration_hash=hash_of_texts(["onet", "wo"]))
    assert [misfit.what for misfit in found] == ["calibration"]


def test_a_model_of_another_depth_is_refused_by_name():
    with pytest.raises(PlanFileError, match=r"doesn't fit org/model: layers.*30.*32"):
        FULL.require(replace(INFO, n_layers=32))


# -- hostile and broken files --------------------------------------------------------------------

HOSTILE = {
    "nothing": ("", "not JSON"),
    "no object": ("[1, 2]", "no schema"),
    "text": ("hello", "not JSON"),
    "deep": ("[" * 100_000, "nested too deeply|not JSON"),
    "deep object": ('{"a":' * 50_000, "nested too deeply|not JSON"),
    "long number": ('{"schema": ' + "9" * 10_000 + "}", "not JSON"),
    "nan": ('{"schema": NaN}', "NaN"),
    "twice": ('{"schema": 1, "schema": 1}', "'schema' stands there twice"),
    "schema of the future": (entries(schema=2), "schema 2 isn't known; 1 is"),
    "schema true": (entries(schema=True), "schema True"),
    "no plan": (entries(plan=...), "no 'plan'"),
    "no model": (entries(model=...), "no 'model'"),
    "plan as list": (entries(plan=[3, 4]), "'plan' is a text"),
    "plan past the end": (entries(plan="0-999999999999"), "layer 999999999999 doesn't exist"),
    "plan of digits": (entries(plan="9" * 5000), "can't read|too long"),
    "plan of all": (entries(plan="0-29"), "every branch is skipped"),
    "long plan": (entries(plan="1," * 60_000), "'plan' is a text"),
    "endless schedule": (
        entries(plan="0-1;" + ";".join(f"{i}:0-28" for i in range(1, 9000))),
        "more than 64 plans",
    ),
    "schedule of digits": (entries(plan="1;" + "9" * 5000 + ":2"), "too long|is no length"),
    "many layers": (entries(n_layers=10**9), "number of layers must be 1 to 1024"),
    "huge layers": (entries(n_layers=10**300), "number of layers must be 1 to 1024"),
    "no layers": (entries(n_layers=0), "number of layers must be 1 to 1024"),
    "layers as text": (entries(n_layers="30"), "number of layers"),
    "other branches": (entries(n_branches=59), "have 60 branches, the file says 59"),
    "k": (entries(k=17), "k must be 0–16"),
    "k true": (entries(k=True), "k must be 0–16"),
    "k as text": (entries(k="4"), "k must be 0–16"),
    "rule": (entries(rule="always"), "always"),
    "rule as list": (entries(rule=["coupled"]), "rule must be a text"),
    "policy": (entries(policy="confidence"), "doesn't go with confidence None"),
    "policy fixed": (entries(policy="fixed", confidence=0.5), "doesn't go with confidence 0.5"),
    "unknown policy": (entries(policy="greedy"), "'fixed' and 'auto' have none"),
    "sampling as list": (entries(sampling=[1]), "'sampling' is a table of top_k"),
    "no sampling": (entries(sampling=None), "'sampling' is a table of top_k"),
    "unknown sampling": (entries(sampling={"temperature": 1}), "'sampling' is a table of top_k"),
    "top p": (entries(sampling={"top_p": 1.5}), "top_p must be above 0"),
    "top p as text": (entries(sampling={"top_p": "all"}), "top_p must be a number"),
    "top k of a half": (entries(sampling={"top_k": 1.5}), "top_k must be a whole number"),
    "confidence": (entries(confidence=1.5), "0 to 1"),
    "temperature": (entries(temperature=-1), "temperature"),
    "draft temperature": (entries(draft_temperature=-1), "temperature"),
    "temperature as text": (entries(temperature="warm"), "temperature must be a number"),
    "temperature too large": (entries(temperature=10**400), "temperature must be a number"),
    "infinite": ('{"schema": 1, "k": 1e999}', "no 'plan'"),
    "figures": (entries(measured={"alpha": 1.5}), "alpha must be 0 to 1"),
    "figures as list": (entries(measured=[1]), "'measured' has the entries"),
    "unknown figure": (entries(predicted={"beta": 1}), "'predicted' has the entries"),
    "figure too large": (entries(predicted={"tau": 10**400}), "tau must be 0 or more"),
    "versions": (entries(versions={"torch": 2}), "versions is a table of texts"),
    "no versions": (entries(versions=None), "'versions' is a table"),
    "check nested": (entries(check={"a": {"b": 1}}), "check is a table"),
    "check long": (entries(check={str(i): i for i in range(1000)}), "at most 64 entries"),
    "device": (entries(device=1), "device must be a text"),
    "unknown entry": (entries(run="rm -rf"), "'run' is no entry of schema 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gets_a_clear_error_that_names_it(tmp_path, name):
    text, told = HOSTILE[name]
    (tmp_path / "hostile.json").write_text(text)
    with pytest.raises(PlanFileError, match=rf"(?s)^hostile\.json: .*({told})") as refusal:
        read_plan_file(tmp_path / "hostile.json")
    assert len(str(refusal.value)) < 600


def test_no_hostile_file_makes_us_hold_much_memory(tmp_path):
    path = tmp_path / "hostile.json"
    path.write_text("[" * (50 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(PlanFileError, match=r"hostile\.json is longer than a plan file's"):
            read_plan_file(path)
        for text, _ in HOSTILE.values():
            with pytest.raises(PlanFileError):
                PlanFile.from_json(text)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_what_is_no_text_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "none.json", tmp_path / "pipe", "/dev/zero", "bad\0name"):
        with pytest.raises(PlanFileError, match=r"no file|can't be read"):
            read_plan_file(path)
    with pytest.raises(PlanFileError, match="no text in UTF-8"):
        read_plan_file(tmp_path / "binary")


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(PlanFileError, match="can't be written"):
        write_plan_file(tmp_path / "no" / "such" / "folder.json", FULL)
    with pytest.raises(PlanFileError, match="can't be written"):  # half a character
        write_plan_file(tmp_path / "x.json", replace(FULL, model="\ud800"))


# -- other projects' files -----------------------------------------------------------------------


@pytest.mark.parametrize("format", ["draft-verify", "knapspec"])
@pytest.mark.parametrize("seed", range(8))
def test_any_plan_comes_back_from_formats_of_branches(tmp_path, format, seed):
    plan = random_plan(13, seed)
    export_plan(tmp_path / "plan.json", format, plan)
    assert import_plan(tmp_path / "plan.json", 13).plan == plan
    assert import_plan(tmp_path / "plan.json", 13, format=format).plan == plan


@pytest.mark.parametrize("notation", ["none", "5", "0,2-4,12"])
def test_whole_layers_come_back_from_conflayers(notation):
    plan = SkipPlan.parse(notation, 13)
    text = dump_plan("conflayers", plan, key="llama")
    assert parse_foreign(text, 13).plan == plan
    assert json.loads(text) == {"llama": {"layers": sorted(plan.attention)}}


@pytest.mark.parametrize("exit_layer", [1, 8, 12])
@pytest.mark.parametrize("confidence", [None, 0.35])
def test_a_skipped_tail_comes_back_from_the_formats_of_early_exit(exit_layer, confidence):
    plan = SkipPlan.parse(f"{exit_layer}-12", 13)
    back = parse_foreign(dump_plan("layerskip", plan, k=6), 13)
    assert (back.plan, back.k, back.notes) == (plan, 6, ())
    text = dump_plan("generation-config", plan, k=6, confidence=confidence)
    back = parse_foreign(text, 13)
    assert (back.plan, back.k, back.confidence, back.notes) == (plan, 6, confidence, ())


def test_the_texts_are_as_those_projects_write_them():
    plan = SkipPlan(3, frozenset({0, 2}), frozenset({1}))
    written = json.loads(dump_plan("draft-verify", plan, key="llama-2-13b"))
    assert written == {"llama-2-13b": {"attention": [0, 2], "mlp": [1]}}
    assert json.loads(dump_plan("knapspec", plan)) == [1, 0, 0, 1, 1, 0]
    tail = SkipPlan.parse("2", 3)
    written = json.loads(dump_plan("layerskip", tail, k=4))
    assert (written["exit_layer"], written["num_speculations"]) == (2, 4)
    assert json.loads(dump_plan("generation-config", tail, k=4, confidence=0.5)) == {
        "assistant_early_exit": 2,
        "num_assistant_tokens": 4,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.5,
    }


def test_one_of_several_plans_in_a_file_is_named_by_its_key():
    text = json.dumps(
        {
            "llama-2-13b": {"attention": [3, 5], "mlp": [6]},
            "codellama": {"attention": [9, 5], "mlp": []},
        }
    )
    back = parse_foreign(text, 13, key="codellama")
    assert (back.plan, back.key) == (SkipPlan.parse("a5,a9", 13), "codellama")
    with pytest.raises(PlanFileError, match="holds 2 plans; name the key of one: 'llama-2-13b'"):
        parse_foreign(text, 13)
    with pytest.raises(PlanFileError, match="no key 'llama'; it has"):
        parse_foreign(text, 13, key="llama")


def test_settings_that_are_not_ours_are_told_and_not_guessed():
    said = {"assistant_early_exit": 4, "num_assistant_tokens": 20}
    said["num_assistant_tokens_schedule"] = "heuristic"
    back = parse_foreign(json.dumps(said), 6)
    assert (str(back.plan), back.k, back.confidence) == ("4-5", None, None)
    told = " ".join(back.notes)
    for word in ("num_assistant_tokens is 20", "'heuristic'", "confidence threshold"):
        assert word in told
    back = parse_foreign('{"exit_layer": 4, "num_speculations": -1}', 6)
    assert (back.k, back.notes) == (None, ("it sets no num_speculations",))


@pytest.mark.parametrize(
    ("format", "plan", "told"),
    [
        ("conflayers", "a3", "ConfLayers skips whole layers only.*keeps the MLP of layer 3"),
        ("conflayers", "2,m3", "keeps the attention of layer 3"),
        ("layerskip", "3-4", "LayerSkip leaves the model after some layer.*skips 3-4 of 6"),
        ("layerskip", "3-4,a5", "LayerSkip leaves"),
        ("layerskip", "none", "LayerSkip leaves"),
        ("generation-config", "3,5", "transformers' early exit leaves"),
        ("knapspec", "1;64:2", "KnapSpec can't hold a length schedule"),
        ("draft-verify", "1;64:2", "Draft & Verify, SWIFT, KNN-SSD can't hold a length schedule"),
    ],
)
def test_a_plan_that_a_format_cannot_hold_is_refused_by_name(format, plan, told):
    with pytest.raises(PlanFileError, match=told):
        dump_plan(format, parse_plan(plan, 6), k=4)


@pytest.mark.parametrize("format", ["layerskip", "generation-config"])
@pytest.mark.parametrize("k", [None, 0, 17])
def test_early_exit_without_a_draft_length_is_refused(format, k):
    with pytest.raises(PlanFileError, match="needs k, 1 to 16"):
        dump_plan(format, SkipPlan.parse("4-5", 6), k=k)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "no format that is known: draft-verify"),
        ("5", "no format that is known"),
        (entries(), "plan file of ours"),
        ('{"a": {"attention": [6], "mlp": []}}', "Draft & Verify.*6 in 'attention' is no layer"),
        ('{"a": {"attention": [-1], "mlp": []}}', "-1 in 'attention'"),
        ('{"a": {"attention": [true], "mlp": []}}', "True in 'attention'"),
        ('{"a": {"attention": [1, 1], "mlp": []}}', "'attention' names a layer twice"),
        ('{"a": {"attention": "1", "mlp": []}}', "a list 'attention'"),
        ('{"a": {"attention": [1e400], "mlp": []}}', "inf in 'attention'"),
        ('{"a": {"layers": [0, 1, 2, 3, 4, 5]}}', "ConfLayers: every branch is skipped"),
        ('{"a": {"layers": [[1]]}}', "a list of 1 in 'layers'"),
        ("[0, 1, 0]", "KnapSpec: it says 3 branches, and a model of 6 layers has 12"),
        ("[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 2]", "got 2"),
        ("[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, false]", "got False"),
        (f"[{'1,' * 11}1]", "every branch is skipped"),
        (f"[{'0,' * 100_000}0]", "it says 100001 branches"),
        ('{"exit_layer": 6}', "LayerSkip: exit_layer must be 1 to 5"),
        ('{"exit_layer": 0}', "exit_layer must be 1 to 5"),
        ('{"exit_layer": 2.0}', "exit_layer must be 1 to 5"),
        ('{"exit_layer": 2, "num_speculations": 0}', "num_speculations must be a whole number"),
        ('{"assistant_early_exit": null}', "assistant_early_exit must be 1 to 5"),
        (
            '{"assistant_early_exit": 2, "assistant_confidence_threshold": 2}',
            "threshold must be 0 to 1",
        ),
        (
            '{"assistant_early_exit": 2, "num_assistant_tokens_schedule": "x"}',
            "schedule 'x' isn't known",
        ),
    ],
)
def test_a_foreign_file_that_does_not_fit_gets_a_clear_error(tmp_path, text, told):
    (tmp_path / "their.json").write_text(text)
    with pytest.raises(PlanFileError, match=rf"^their\.json: .*{told}") as refusal:
        import_plan(tmp_path / "their.json", 6)
    assert len(str(refusal.value)) < 600


def test_an_unknown_format_is_refused_with_those_that_there_are():
    with pytest.raises(PlanFileError, match=r"no format 'onnx'; there are draft-verify.*knapspec"):
        dump_plan("onnx", SkipPlan(3))
    with pytest.raises(PlanFileError, match="no format 'onnx'"):
        parse_foreign("[]", 3, format="onnx")
    with pytest.raises(PlanFileError, match="number of layers"):
        parse_foreign("[]", 1 << 40)
    assert len(FORMATS) == 5


def test_a_schedule_longer_than_a_file_may_have_is_refused_on_writing_too():
    steps = tuple((i, SkipPlan.parse("1", 6)) for i in range(65))
    with pytest.raises(PlanFileError, match="at most 64 plans"):
        PlanFile(plan=LengthSchedule(steps), k=4, model="m")
    with pytest.raises(PlanFileError, match="at most 1024 layers"):
        PlanFile(plan=SkipPlan(bounded_json.MAX_LAYERS + 1), k=4, model="m")
