"""The built-in model: real weights, float32 and bfloat16."""

from __future__ import annotations

import json

import pytest

from analysis.gates import gate_importance
from selfspec_core.__main__ import main
from selfspec_core.check import DTYPES, check, covering, summary
from selfspec_core.command_line import EXAMPLE_PROMPTS
from selfspec_core.events import Commit, Start, from_ndjson
from selfspec_core.plan import SkipPlan
from selfspec_core.prompts import read_prompts
from selfspec_core.request import Request
from selfspec_core.sampling import Sampling

from .test_engine import redo

pytestmark = pytest.mark.builtin

PROMPTS = read_prompts(EXAMPLE_PROMPTS)
COVERING = covering()


@pytest.mark.parametrize("number", range(len(COVERING)))
def test_output_is_identical_to_plain_decoding_over_the_covering_set(builtin_engine, number):
    """Case 14: token for token, and the logits behind them bit for bit, in bfloat16 too."""
    cell = COVERING[number]
    engine = builtin_engine(cell.dtype)
    request = cell.request(PROMPTS[number % len(PROMPTS)], engine.n_layers, 24, seed=number)
    (result,) = check(engine, [request], speed=False)
    assert result.identical, result.difference
    assert result.bit_exact
    redo(list(result.speculative.events))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_row_of_a_window_gives_the_same_bits_on_this_machine(builtin_engine, dtype):
    probe = builtin_engine(dtype).probe()
    assert probe.exact, probe.sentence()
    assert probe.widths


@pytest.mark.parametrize("rule", ["rejection", "threshold", "typical"])
def test_verdicts_of_every_rule_are_redone_from_the_traces_own_numbers(builtin_engine, rule):
    engine = builtin_engine("bfloat16")
    request = Request(
        prompt=PROMPTS[4],
        plan=SkipPlan.parse("a3-9", engine.n_layers),
        k=4,
        rule=rule,
        threshold=0.4,
        sampling=Sampling(temperature=0.8, top_p=0.95),
        max_new_tokens=32,
        seed=5,
    )
    generated = engine.generate(request)
    assert generated.done.accepted > 0
    redo(list(generated.events))


def test_a_plan_that_drops_little_is_accepted_often_and_a_fatal_one_never(builtin_engine):
    """The drafts are really the skipped stack's: attention 2 hardly matters, MLP 0 does."""
    engine = builtin_engine("bfloat16")
    alphas = {}
    for plan in ("a2", "m0"):
        request = Request(prompt=PROMPTS[0], plan=SkipPlan.parse(plan, 30), k=2, max_new_tokens=40)
        alphas[plan] = engine.generate(request).done.alpha
    assert alphas["a2"] > 0.8
    assert alphas["m0"] < 0.3


def test_importance_of_the_gates_finds_the_branches_that_matter(builtin_engine):
    engine = builtin_engine("bfloat16")
    generated = engine.generate(Request(prompt=PROMPTS[0], k=0, max_new_tokens=24))
    ids = generated.start.prompt_ids + generated.tokens
    importance = gate_importance(engine.loaded, ids, prompt_length=len(generated.start.prompt_ids))
    assert len(importance.attention) == len(importance.mlp) == 30
    assert importance.tokens == 24
    assert max(importance.attention) == importance.attention[1]  # measured: design §6
    assert importance.mlp[0] > sorted(importance.mlp)[20]


def test_the_command_line_generates_checks_and_lists(capsys, tmp_path):
    common = ["--max-new-tokens", "12", "--k", "3", "--json"]
    assert main(["generate", "--prompt", "Name three colours.", *common]) == 0
    trace = list(from_ndjson(capsys.readouterr().out))
    assert isinstance(trace[0], Start)
    assert len([event for event in trace if isinstance(event, Commit)]) == 12

    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"turns": ["Say hello.", "x"]}\n{"prompt": "What is a kettle?"}\n')
    assert main(["check", "--prompts", str(prompts), *common]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["prompts"] == figures["identical"] == 2
    assert figures["bit_exact"] is True
    assert figures["speedup"] == pytest.approx(figures["selfspec_tps"] / figures["plain_tps"])
    assert figures["plain_tps"] >= figures["window_plain_tps"]

    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "builtin" in [model["name"] for model in listed["models"]]


def test_the_command_line_prints_the_text_without_marks_where_it_isnt_a_terminal(capsys):
    assert main(["generate", "--prompt", "Name three colours.", "--max-new-tokens", "8"]) == 0
    out = capsys.readouterr().out
    assert "✗" not in out
    assert "<|im" not in out
    assert out.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--prompt", "x", "--k", "40"], "k must be 0–16"),
        (["generate", "--prompt", "x", "--skip", "7-99"], "layers 0 to 29"),
        (["generate", "--prompt", "x", "--temperature", "-1"], "temperature must be"),
        (["generate", "--prompt", "x", "--model", "no/such-model-here"], "no/such-model-here"),
        (["generate", "--prompt", "x", "--device", "cuda:9"], "cuda"),
        (["check", "--prompts", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["check", "--k", "0", "--limit", "1"], "k must be 1 or more"),
    ],
)
def test_wrong_input_is_answered_with_a_sentence_and_status_2(capsys, arguments, message):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_a_broken_promise_is_exit_status_1(builtin_engine, monkeypatch, capsys, tmp_path):
    """The certificate can fail: rows that see another window's bits are noticed."""
    from selfspec_core import __main__ as cli
    from selfspec_core.decoder import ResidualDecoder

    engine = builtin_engine("bfloat16")
    readout = ResidualDecoder.readout

    def crooked(decoder, h):
        logits = readout(decoder, h)
        if logits.shape[1] > 1:  # only rows after the first are off, as in a broken cache
            logits = logits.clone()
            logits[:, 1:] = logits[:, 1:].roll(1, dims=-1)
        return logits

    monkeypatch.setattr(ResidualDecoder, "readout", crooked)
    monkeypatch.setattr(cli, "_engine", lambda options: engine)
    arguments = ["check", "--limit", "1", "--max-new-tokens", "8", "--k", "3", "--skip", "a2"]
    assert main(arguments) == 1
    assert "DIFFERS" in capsys.readouterr().err


def test_a_summary_quotes_the_speed_up_against_the_fastest_plain_decoding(builtin_engine):
    engine = builtin_engine("bfloat16")
    request = Request(prompt=PROMPTS[1], plan=SkipPlan.parse("a2-9", 30), k=5, max_new_tokens=8)
    results = list(check(engine, [request]))
    figures = summary(results)
    speeds = {8: results[0].plain, **results[0].others}
    assert set(speeds) == {1, 4, 8}
    fastest = max(len(r.tokens) / r.done.seconds for r in speeds.values())
    assert figures["plain_tps"] == pytest.approx(fastest)
