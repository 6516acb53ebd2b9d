"""The commands on a tiny model: JSON keys, files that are written, and sentences for mistakes."""

from __future__ import annotations

import json

import pytest

from analysis.__main__ import _parser, main
from selfspec_core.plan_files import read_plan_file

from .engines import saved_model

NUMBER = (int, float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("model"), num_hidden_layers=5)


@pytest.fixture
def run(folder, capsys):
    def run_command(*arguments: object, status: int = 0) -> dict:
        common = ["--model", folder, "--dtype", "float32", "--json", "--limit", 4]
        common += ["--prompts", folder / "prompts.jsonl"]
        command, *rest = arguments
        assert main([str(part) for part in (command, *common, *rest)]) == status
        out = capsys.readouterr().out
        return json.loads(out) if status == 0 else {}

    return run_command


def test_acceptance_predicts_what_it_measures(run):
    found = run("acceptance", "--skip", "a2,m3", "--max-new-tokens", 12, "--k", 3)
    assert found["predicted_alpha"] == pytest.approx(found["measured_alpha"])
    assert found["times_faster"] > 0
    many = run("acceptance", "--plans", 3, "--seed", 4, "--max-new-tokens", 8)
    assert len(many["plans"]) == 3
    assert many["worst_error"] == pytest.approx(0, abs=1e-9)


def test_cost_tells_its_errors_and_the_best_k(run):
    found = run(
        "cost", "--plans", 2, "--passes", 1, "--max-new-tokens", 8, "--skip", "a2,m3", "--seed", 1
    )
    assert isinstance(found["median_error"], NUMBER)
    assert found["worst_error"] >= found["median_error"]
    assert found["best"]["k"] >= 0
    assert len(found["plans"]) == 2


def test_search_writes_a_plan_file_and_compares(run, tmp_path):
    out = tmp_path / "plan.json"
    found = run(
        "search", "--budget", 2, "--max-new-tokens", 8, "--out", out, "--storage", tmp_path / "j"
    )
    for part in ("predicted", "measured_seen", "measured_unseen"):
        assert {"alpha", "tau", "speedup"} <= found[part].keys()
    assert found["trials"] > 0
    assert {"random", "draft-verify", "middle 30%", "middle 40%", "middle 50%"} == set(
        found["compared"]
    )
    for compared in found["compared"].values():
        assert {"plan", "k", "predicted", "measured_seen", "measured_unseen"} <= compared.keys()
    file = read_plan_file(out)
    assert (str(file.plan), file.k) == (found["plan"], found["k"])
    assert file.predicted.tau == found["predicted"]["tau"]
    assert file.measured.speedup == found["measured_unseen"]["speedup"]
    assert file.check is not None
    assert file.check["identical"] == file.check["prompts"]


@pytest.mark.parametrize(
    "format", ["draft-verify", "knapspec", "conflayers", "layerskip", "generation-config", "plan"]
)
def test_a_plan_leaves_and_comes_back(run, tmp_path, format):
    out, back = tmp_path / "out.json", tmp_path / "back.json"
    run("export", "--skip", "3-4", "--k", 3, "--format", format, "--out", out)
    found = run("import", out, "--k", 3, "--out", back)
    assert (found["plan"], found["k"], found["fits"]) == ("3-4", 3, True)
    assert str(read_plan_file(back).plan) == "3-4"


def test_a_plan_that_a_format_cannot_hold_is_refused_by_name(run, tmp_path, capsys):
    out = tmp_path / "out.json"
    arguments = ("export", "--skip", "a3", "--format", "conflayers", "--out", out)
    run(*arguments, status=2)
    assert not out.exists()


def test_a_draft_checkpoint_tells_both_acceptances(run, tmp_path):
    out = tmp_path / "draft"
    found = run("export", "--skip", "2", "--k", 2, "--format", "draft-checkpoint", "--out", out)
    assert (out / "config.json").exists()
    assert found["kept"] == [0, 1, 3, 4]
    assert 0 <= found["standalone_alpha"] <= 1
    assert 0 <= found["engine_alpha"] <= 1


def test_a_snippet_is_a_program(run, tmp_path):
    out = tmp_path / "draft.py"
    run("export", "--skip", "2", "--format", "snippet", "--out", out)
    compile(out.read_text(encoding="utf-8"), "draft.py", "exec")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["acceptance", "--k", "0"], "k must be 1"),
        (["acceptance", "--skip", "99"], "layer 99"),
        (["acceptance", "--rule", "typical"], "typical"),
        (["search", "--limit", "1"], "two prompts"),
        (["cost", "--passes", "0"], "--passes"),
        (["import", "nowhere.json"], "nowhere.json"),
    ],
)
def test_mistakes_are_told_in_a_sentence(folder, capsys, arguments, told):
    common = ["--model", str(folder), "--prompts", str(folder / "prompts.jsonl")]
    command, *rest = arguments
    assert main([command, *common, *rest]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("command", "limit"), [("importance", 8), ("cost", 8), ("search", 12)])
def test_a_commands_default_is_its_own_and_what_its_help_says(command, limit, capsys):
    assert _parser().parse_args([command]).limit == limit
    with pytest.raises(SystemExit):
        _parser().parse_args([command, "--help"])
    assert f"how many prompts (default {limit})" in capsys.readouterr().out
