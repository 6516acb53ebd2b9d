"""The benchmark measures what it says: the same prompts, interleaved, checked against plain."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bench.compare
from bench.__main__ import main
from bench.compare import compare
from bench.distance import Distances
from bench.drafts import setup_of, skip_of
from bench.lineup import Lineup, Setup, unpacked
from bench.roofline import kv_bytes, measure, weight_bytes
from bench.stack import Stack
from bench.sweep import Choice, Sweep, ideal
from bench.systems import (
    DRAFT_ALONE,
    HF_ASSISTANT,
    LLAMA_CPP,
    PLAIN,
    SELFSPEC,
    SYSTEMS,
    draft_alone,
    ours,
    transformers_generate,
)
from selfspec_core.draft_checkpoint import write_draft
from selfspec_core.engine import Engine
from selfspec_core.loading import load
from selfspec_core.plan import SkipPlan
from selfspec_core.plan_files import PlanFile, write_plan_file
from selfspec_core.request import Request, RequestError

from .engines import engine_on

KEYS = {"tps", "ratio_to_plain", "interval", "tau", "alpha", "identical", "prompts", "peak_mb"}
HERE = [name for name in SYSTEMS if name != LLAMA_CPP]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_on(end=None)


def setup(engine: Engine, plan: str = "1-2", k: int = 3) -> Setup:
    return Setup(plan=SkipPlan.parse(plan, engine.n_layers), k=k)


@pytest.mark.parametrize(
    "options", [{}, {"prompt_lookup_num_tokens": 3}, {"assistant_early_exit": 2}]
)
def test_transformers_writes_what_this_engine_writes_on_the_same_prompt(engine, options):
    prompt = engine.encode(Request(prompt="A kettle sings"))
    theirs = transformers_generate(engine.loaded, **options)(prompt, 16)
    assert theirs.tokens == ours(engine)(prompt, 16).tokens
    assert theirs.seconds > 0


@pytest.mark.parametrize("name", HERE)
def test_every_system_ends_its_text_where_it_is_called_off(engine, name):
    asked = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) > 3

    lineup = Lineup(
        setup(engine),
        engine=lambda: engine,
        theirs=lambda: unpacked(engine),
        gguf=lambda: Path(),
        cancelled=cancelled,
    )
    prompt = engine.encode(Request(prompt="A kettle sings"))
    whole = ours(engine)(prompt, 64).tokens
    written = lineup.make(name)(prompt, 64).tokens
    assert asked
    assert len(written) < len(whole) == 64
    if name != DRAFT_ALONE:
        assert written == whole[: len(written)]


def test_every_system_runs_on_the_same_prompts_and_every_figure_is_there(engine):
    steps = list(
        compare(
            engine,
            ["A kettle sings", "Two birds"],
            HERE,
            setup(engine),
            lengths=(3, 9),
            repeats=2,
            by=("length",),
        )
    )
    result = steps[-1].result
    assert set(result.systems) == set(HERE)
    for name, row in result.systems.items():
        assert row.keys() >= KEYS
        assert set(row["by_length"]) == {"3", "9"}
        assert len(result.texts[name]) == row["prompts"] == 2
        if name != DRAFT_ALONE:  # greedy, in float32: all of them promise the same text
            assert (name, row["identical"], row["equal_share"]) == (name, 2, 1.0)
    assert result.systems[PLAIN]["ratio_to_plain"] == 1.0
    assert result.systems[DRAFT_ALONE]["kl"] > 0
    assert steps[-1].done == steps[-1].total
    assert all(step.done <= step.total for step in steps)


def test_a_step_is_one_generation_at_most_and_closing_ends_the_work(engine, monkeypatch):
    calls = []

    def counted(*arguments, **options):
        write = ours(*arguments, **options)

        def write_counted(*asked):
            calls.append(asked)
            return write(*asked)

        return write_counted

    monkeypatch.setattr(bench.compare, "ours", counted)
    monkeypatch.setattr("bench.lineup.ours", counted)
    running = compare(engine, ["A kettle"], [SELFSPEC], setup(engine), lengths=(4,), repeats=2)
    for _ in range(5):
        before = len(calls)
        next(running)
        assert len(calls) - before <= 1
    running.close()
    done = len(calls)
    assert next(running, None) is None
    assert len(calls) == done


def test_what_the_page_shows_while_it_runs_is_measured_against_plain(engine):
    steps = list(compare(engine, ["A kettle"], [SELFSPEC], setup(engine), lengths=(4,), repeats=2))
    partial = [step.so_far for step in steps if step.so_far]
    assert partial[-1][PLAIN]["ratio_to_plain"] == 1.0
    assert partial[-1][SELFSPEC]["tps"] > 0
    assert any(step.seconds_left and step.seconds_left > 0 for step in steps)


def test_a_self_speculative_text_that_differs_is_not_called_identical(engine, monkeypatch):
    """The check compares with plain decoding, not with itself."""
    real = Lineup.make

    def make(self, name, rows=None):
        write = real(self, name, rows)
        if name != SELFSPEC:
            return write
        return lambda *asked: bench.systems.Written((7, *write(*asked).tokens[1:]), 1.0, 1, 1, 0)

    monkeypatch.setattr(Lineup, "make", make)
    *_, last = compare(engine, ["A kettle"], [SELFSPEC], setup(engine), lengths=(6,), repeats=1)
    row = last.result.systems[SELFSPEC]
    assert row["identical"] == 0
    assert row["equal_share"] < 1


def test_the_small_model_alone_is_the_exported_draft_checkpoint(engine, tmp_path):
    plan = SkipPlan.parse("1-2", engine.n_layers)
    folder = write_draft(tmp_path / "draft", unpacked(engine), plan).folder
    small = transformers_generate(load(str(folder), device="cpu", dtype="float32"))
    prompt = engine.encode(Request(prompt="A kettle sings"))
    alone = draft_alone(engine, plan)(prompt, 16).tokens
    assert alone == small(prompt, 16).tokens
    assert alone != ours(engine)(prompt, 16).tokens


def test_the_assistant_of_a_plan_without_whole_layers_is_a_stated_default(engine):
    for notation, skipped, said in (
        ("1-2", "1-2", None),
        ("1,a2", "1", "whole layers"),
        ("a1-2", "2", "skips no whole layer"),
    ):
        lineup = Lineup(
            setup(engine, notation),
            engine=lambda: engine,
            theirs=lambda: engine.loaded,
            gguf=lambda: pytest.fail("not asked for"),
        )
        assert str(lineup.assistant_plan()) == skipped
        assert [said] == [None] if said is None else said in lineup.notes[0]
        prompt = engine.encode(Request(prompt="A kettle"))
        assert lineup.make(HF_ASSISTANT)(prompt, 8).tokens == ours(engine)(prompt, 8).tokens


def test_the_distance_of_a_model_from_itself_is_nothing(engine):
    distances = Distances(engine)
    assert distances.figures() == {"kl": None, "agreement": None}
    prompt = engine.encode(Request(prompt="A kettle"))
    text = ours(engine)(prompt, 8).tokens
    distances.add(SkipPlan(engine.n_layers), prompt, text)
    assert distances.figures() == {"kl": 0.0, "agreement": 1.0}
    distances.add(SkipPlan.parse("1-2", engine.n_layers), prompt, text)
    assert distances.figures()["kl"] > 0


def test_nonsense_is_answered_before_anything_runs(engine):
    for arguments, named in (
        ((["x"], ["magic"], setup(engine)), "magic"),
        (([], [PLAIN], setup(engine)), "prompts"),
        ((["x"], [PLAIN], Setup(plan=SkipPlan(9), k=2)), "9 layers"),
    ):
        with pytest.raises(ValueError, match=named):
            compare(engine, *arguments)
    with pytest.raises(RequestError, match="don't fit"):
        compare(engine, ["x"], [PLAIN], setup(engine), lengths=(engine.context,))
    with pytest.raises(ValueError, match="k must be 1"):
        setup(engine, k=0)


# -- what is possible ------------------------------------------------------------------------


def test_the_possible_speedup_is_tokens_over_forwards():
    assert ideal(tau=3.0, drafts=4, draft_ms=5.0, window_ms=10.0, plain_ms=10.0) == 1.0
    assert ideal(tau=5.0, drafts=4, draft_ms=0.0, window_ms=10.0, plain_ms=10.0) == 5.0


def test_a_sweep_measures_each_choice_and_its_own_forwards(engine):
    choices = [Choice(SkipPlan.parse(plan, engine.n_layers), 3) for plan in ("none", "0-2,a3")]
    sweep = Sweep(engine, [[5, 6, 7], [8, 9]], choices, tokens=12, repeats=2, rows=4)
    seen = list(sweep.run())
    assert seen[-1] == (12, 12)
    whole, deep = (sweep.figures(place) for place in range(2))
    assert whole["alpha"] == 1.0  # drafting with nothing skipped
    assert deep["alpha"] < 1.0
    for row in (whole, deep):
        again = row["tau"] / (row["k"] * row["draft_ms"] + row["window_ms"]) * row["plain_ms"]
        assert row["ideal"] == pytest.approx(again, rel=0.35)  # fewer drafts at a text's end
        assert row["efficiency"] == pytest.approx(row["measured"] / row["ideal"])


def test_a_forward_reads_every_weight_once():
    tied, untied = engine_on(tie_word_embeddings=True), engine_on(tie_word_embeddings=False)
    one = tied.loaded.model.get_input_embeddings().weight.nbytes
    assert weight_bytes(tied) == weight_bytes(untied)
    assert round(untied.loaded.info.weights_mb * 1e6) - weight_bytes(untied) == one
    assert round(tied.loaded.info.weights_mb * 1e6) == weight_bytes(tied)
    assert kv_bytes(tied, 10) == 10 * tied.n_layers * 2 * 2 * 8 * 4  # 2 heads of 8, float32


def test_the_roofline_share_follows_from_its_own_figures(engine):
    found = measure(engine, [[5, 6, 7]], 8, 1, megabytes=8)
    reached = found["bytes_per_token"] * found["tps"] / 1e9
    assert found["share"] == pytest.approx(reached / found["bandwidth_gbs"])
    assert found["bandwidth_gbs"] >= found["median_gbs"] > 0


def test_a_stack_of_set_redundancy_drafts_well_and_not_trivially():
    """Case: a random model that repeats one token would make any draft look good."""
    shape = {"hidden": 64, "intermediate": 128, "heads": 4, "kv_heads": 2, "vocabulary": 512}
    alphas = {}
    for epsilon in (0.0, 1.0):
        stack = Stack(layers=8, epsilon=epsilon, **shape)
        engine = Engine(stack.build(device="cpu", dtype="float32"))
        prompt = stack.prompts(1)[0]
        request = Request(prompt_ids=tuple(prompt), plan=stack.plan, k=4, max_new_tokens=40)
        done = engine.generate(request).done
        alphas[epsilon] = done.alpha
        assert len(set(done.tokens)) > 10
    assert alphas[0.0] == 1.0  # layers that write nothing can be left out
    assert alphas[1.0] < 0.5
    again = Stack(layers=8, **shape).build(device="cpu", dtype="float32").info.weights_hash
    assert again == Stack(layers=8, **shape).build(device="cpu", dtype="float32").info.weights_hash


def test_making_a_stack_leaves_the_random_state_alone():
    torch.manual_seed(3)
    Stack(layers=4, hidden=64, intermediate=64, heads=4, kv_heads=2, vocabulary=64).build()
    drawn = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(2))


# -- command line ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_folder(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "tiny"
    engine.loaded.model.save_pretrained(folder)
    engine.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def arguments(tiny_folder, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt": f"{c} {n}", "category": c} for c in ("tea", "rain") for n in range(2)]
    prompts.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    common = ["--model", str(tiny_folder), "--prompts", str(prompts), "--dtype", "float32"]
    return [*common, "--device", "cpu", "--repeats", "1", "--max-new-tokens", "6", "--json"]


def test_compare_prints_one_line_of_json_and_writes_a_folder(arguments, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    asked = ["--limit", "2", "--by", "category", "--lengths", "6,4", "--skip", "1-2"]
    systems = ["--systems", "plain,selfspec", "--out", str(out)]
    assert main(["compare", *arguments, *asked, *systems]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    found = json.loads(printed)
    assert set(found["systems"]) == {"plain", "selfspec"}
    for row in found["systems"].values():
        assert row.keys() >= KEYS
        assert row["peak_mb"] > row["imported_mb"] > 0
        assert set(row["by_category"]) == {"tea", "rain"}  # both, though only 2 of 4 ran
        assert set(row["by_length"]) == {"4", "6"}
    assert found["lengths"] == [4, 6]
    assert found["execution"]
    assert json.loads((out / "compare.json").read_text("utf-8")) == found
    assert "| selfspec |" in (out / "compare.md").read_text("utf-8")
    page = (out / "compare.html").read_text("utf-8")
    assert "Plotly.newPlot" in page
    assert "<script src" not in page
    assert "<link" not in page.split("</style>")[0]


def test_by_length_takes_the_usual_lengths_and_by_category_goes_with_it(
    arguments, capsys, monkeypatch
):
    monkeypatch.setattr("bench.compare_command.LENGTHS", "2,5")
    asked = ["--limit", "2", "--systems", "plain", "--skip", "1-2", "--no-memory"]
    assert main(["compare", *arguments, *asked, "--by", "length,category"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lengths"] == [2, 5]
    assert set(found["systems"]["plain"]["by_length"]) == {"2", "5"}
    assert set(found["systems"]["plain"]["by_category"]) == {"tea", "rain"}
    assert main(["compare", *arguments, *asked, "--by", "category"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lengths"] == [6]
    assert "by_length" not in found["systems"]["plain"]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(
    arguments, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        "bench.compare_command.open_engine", lambda _: pytest.fail("the model was loaded")
    )
    taken = tmp_path / "a file"
    taken.write_text("mine", encoding="utf-8")
    assert main(["compare", *arguments, "--out", str(taken)]) == 2
    assert "--out" in capsys.readouterr().err
    assert taken.read_text("utf-8") == "mine"


def test_how_it_drafted_stands_beside_the_figures_and_counts_for_memory_too(
    arguments, tmp_path, capsys, monkeypatch
):
    tasks = []
    real = subprocess.run

    def run(command, **options):
        if "bench.memory" not in command:
            return real(command, **options)
        tasks.append(json.loads(options["input"]))
        peak = '{"peak_mb": 2.0, "loading_mb": 3.0, "imported_mb": 1.0}'
        return subprocess.CompletedProcess([], 0, stdout=peak, stderr="")

    monkeypatch.setattr("bench.memory.subprocess.run", run)
    asked = ["--limit", "1", "--systems", "selfspec", "--skip", "1-2", "--out", str(tmp_path)]
    way = ["--policy", "auto", "--verify-from", "first_skipped"]
    assert main(["compare", *arguments, *asked, *way]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["verify_from"]) == ("auto", "first_skipped")
    assert all(task["policy"] == "auto" for task in tasks)
    assert [task["verify_from"] for task in tasks] == ["first_skipped"] * 2
    assert "policy auto" in (tmp_path / "compare.md").read_text("utf-8")


def test_a_scale_drafts_by_the_policy_that_is_asked_for(arguments, monkeypatch, capsys):
    policies = []
    real = Sweep.__init__

    def seen(self, engine, prompts, choices, **options):
        policies.append([choice.policy for choice in choices])
        real(self, engine, prompts, choices, **options)

    monkeypatch.setattr(Sweep, "__init__", seen)
    asked = ["--limit", "1", "--parts", "k,share", "--ks", "2", "--shares", "20,25"]
    draft = ["--skip", "1-2", "--policy", "confidence"]
    assert main(["scale", *arguments, *asked, *draft]) == 0
    capsys.readouterr()
    assert policies == [["confidence"], ["confidence"] * 2]


def test_kernels_that_are_compiled_first_are_progress_and_not_silence(
    arguments, capsys, monkeypatch
):
    monkeypatch.setattr("selfspec_core.engine.is_built", lambda: False)
    assert main(["roofline", *arguments, "--limit", "1", "--buffer-mb", "8"]) == 0
    captured = capsys.readouterr()
    assert "compiling kernels" in captured.err
    assert json.loads(captured.out)["execution"].startswith("compiled")


def test_roofline_ideal_and_scale_print_what_was_promised(arguments, capsys):
    one = [*arguments, "--limit", "1"]
    draft = ["--skip", "1-2", "--k", "2"]
    assert main(["roofline", *one, "--buffer-mb", "8"]) == 0
    assert json.loads(capsys.readouterr().out).keys() >= {"bandwidth_gbs", "share"}
    assert main(["ideal", *one, *draft]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["efficiency"] == pytest.approx(found["measured"] / found["ideal"])
    depth = ["--layers", "4,6", "--hidden", "64", "--ks", "2,3", "--contexts", "64,9999"]
    assert main(["scale", *one, *draft, *depth, "--shares", "20,25"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [row["layers"] for row in found["depth"]] == [4, 6]
    assert all(math.isfinite(row["measured"]) for row in found["depth"])
    assert [row["k"] for row in found["k"]] == [2, 3]
    assert [row["context"] for row in found["context"]] == [64]
    assert "9999 is left out" in captured.err
    assert len(found["share"]) == 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["compare", "--systems", "magic"], "hf-generate"),
        (["compare", "--lengths", "long"], "32,128,512"),
        (["compare", "--limit", "0"], "--limit"),
        (["compare", "--repeats", "0"], "--repeats"),
        (["compare", "--by", "weather"], "category or length"),
        (["compare", "--prompts", "nowhere.jsonl"], "nowhere.jsonl"),
        (["roofline", "--buffer-mb", "0"], "--buffer-mb"),
        (["scale", "--parts", ","], "context, k, share, depth"),
        (["compare", "--skip", "99"], "layer 99"),
        (["compare", "--plan", "nowhere.json"], "nowhere.json"),
        (["compare", "--skip", "1-2", "--early-exit", "40"], "--early-exit"),
        (["compare", "--search", "0"], "--search"),
        (["scale", "--parts", "width"], "depth"),
        (["scale", "--ks", "0"], "--ks"),
        (["scale", "--keep", "1.5"], "between 0 and 1"),
        (["scale", "--hidden", "130"], "--hidden 130"),
        (["scale", "--parts", "depth", "--limit", "0"], "--limit must be 1 or more"),
        (["ideal", "--repeats", "0"], "--repeats must be 1 or more"),
        (["ideal", "--max-new-tokens", "0"], "--max-new-tokens must be 1 or more"),
        (["ideal", "--skip", "1", "--k", "17"], "k must be 1–16, got 17"),
        (["streaming", "--repeats", "0"], "--repeats must be 1 or more"),
        (["streaming", "--mode", "eager"], "--mode eager: leave it out"),
        (["compare", "--out", ""], "names no folder"),
    ],
)
def test_wrong_input_is_a_sentence(arguments, wrong, named, capsys):
    command, *given = wrong
    assert main([command, *arguments, *given]) == 2
    captured = capsys.readouterr()
    assert named in captured.err
    assert captured.out == ""


def test_the_plan_unless_told_is_one_that_the_model_has(engine):
    usual = argparse.Namespace(plan=None, search=None, skip=None, k=2, policy=None)
    assert engine.n_layers < 9
    assert setup_of(usual, engine).plan == SkipPlan.preset("standard", engine.n_layers)
    assert skip_of(usual, 30) == "a3-8"


def test_a_plan_file_says_how_many_are_drafted_unless_an_option_does(engine, tmp_path):
    def setup(asked=None, **saved):
        plan = SkipPlan.parse("1", engine.n_layers)
        path = tmp_path / "plan.json"
        write_plan_file(path, PlanFile(plan=plan, k=3, model=engine.loaded.info.id, **saved))
        return setup_of(argparse.Namespace(plan=path, k=None, policy=asked), engine)

    assert setup().drafting == "fixed"
    assert setup(confidence=0.3).drafting == "confidence"
    assert setup("auto", confidence=0.3).confidence is None
    assert setup(policy="auto").drafting == "auto"
    with pytest.raises(ValueError, match="auto looks at no confidence"):
        Setup(plan=SkipPlan.parse("1", engine.n_layers), k=2, confidence=0.5, policy="auto")


def test_a_system_of_transformers_that_fails_is_left_out_and_the_rest_measured(engine, monkeypatch):
    made = Lineup.make

    def breaks(*_):
        raise IndexError("list index out of range")

    monkeypatch.setattr(
        Lineup,
        "make",
        lambda self, name, rows=None: breaks if name == "hf-early-exit" else made(self, name, rows),
    )
    setup = Setup(plan=SkipPlan.parse("1", engine.n_layers), k=2)
    names = ["selfspec", "hf-early-exit"]
    *_, last = compare(engine, ["a fox"], names, setup, lengths=[8], repeats=1)
    assert set(last.result.systems) == {"plain", "selfspec"}
    assert "hf-early-exit is left out" in last.result.notes[0]
    assert "IndexError: list index out of range" in last.result.notes[0]


def test_memory_that_cannot_be_measured_loses_nothing_else(arguments, monkeypatch, capsys):
    def fails(name, *_):
        raise ValueError(f"the memory of {name} can't be measured: no")

    monkeypatch.setattr("bench.compare_command.peak_of", fails)
    asked = ["--systems", "plain", "--skip", "1-2", "--limit", "1"]
    assert main(["compare", *arguments, *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["systems"]["plain"]["tps"] > 0
    assert found["systems"]["plain"]["peak_mb"] is None
    assert found["notes"] == ["the memory of plain can't be measured: no"]


def test_llama_cpp_is_never_required(arguments, capsys, monkeypatch):
    monkeypatch.setattr("bench.llama_cpp.is_installed", lambda: False)
    asked = ["--systems", "plain,llama-cpp", "--skip", "1-2", "--limit", "1", "--no-memory"]
    assert main(["compare", *arguments, *asked]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert set(found["systems"]) == {"plain"}
    assert found["left_out"]["llama-cpp"].endswith("pip install llama-cpp-python")
    assert "pip install llama-cpp-python" in captured.err


def test_memory_is_of_a_process_of_its_own(arguments):
    """A large process that measures must not lend its own peak to what it measures."""
    ballast = torch.ones(100_000_000)  # 400 MB, of this process alone
    code = "import bench.memory as m; print(m.peak_resident_mb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    alone = float(done.stdout)
    del ballast
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert alone == pytest.approx(float(again.stdout), rel=0.2)


def test_a_plan_is_searched_on_prompts_that_are_not_measured(arguments, capsys):
    asked = ["--limit", "2", "--search", "1", "--systems", "selfspec", "--no-memory"]
    assert main(["compare", *arguments, *asked]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["plan"] in captured.err


@pytest.mark.builtin
def test_compare_runs_on_the_builtin_model(capsys):
    arguments = ["compare", "--limit", "1", "--max-new-tokens", "8", "--repeats", "1", "--json"]
    assert main([*arguments, "--no-memory"]) == 0
    systems = json.loads(capsys.readouterr().out)["systems"]
    assert set(systems) == {"plain", "selfspec", "hf-generate"}
    assert systems["plain"]["ratio_to_plain"] == 1.0
    assert all(row["prompts"] == 1 for row in systems.values())
