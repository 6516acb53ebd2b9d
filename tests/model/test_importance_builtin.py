"""Importance of the built-in model's branches, from the command line: what design §6 says."""

from __future__ import annotations

import json

import pytest

from analysis.__main__ import main

pytestmark = pytest.mark.builtin


def test_the_command_line_ranks_all_60_branches_and_tells_how_well_each_method_does(capsys):
    methods = "measured,block_influence,input_x_gradient,layer_gradient_x_activation"
    arguments = ["importance", "--limit", "3", "--tokens", "24", "--methods", methods, "--json"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "float32 copy for attribution: 538 MB" in captured.err
    assert "s left" in captured.err
    assert found["branches"][:3] == ["a0", "m0", "a1"]
    assert len(found["branches"]) == 60
    columns = found["methods"]
    truth = dict(zip(found["branches"], columns["lost_agreement"]["values"], strict=True))
    assert truth["m0"] == max(truth.values())
    assert truth["a1"] > 0.4
    assert truth["a5"] < 0.3
    for method in ("block_influence", "input_x_gradient"):
        column = columns[method]
        low, high = column["interval"]
        assert low <= column["spearman"] <= high
        assert column["spearman"] > 0.4
        assert -1 <= column["kendall"] <= column["spearman"]
        assert column["seconds"] > 0
        assert len(column["values"]) == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "saliency"], "input_x_gradient"),
        (["--methods", "input_x_gradient", "--score", "kl"], "gradient at the whole model is 0"),
        (["--tokens", "0"], "--tokens must be 1 or more"),
        (["--plan", "99"], "layers 0 to 29"),
        (["--steps", "0"], "1–256"),
    ],
)
def test_wrong_input_is_answered_with_a_sentence_and_status_2(capsys, arguments, message):
    assert main(["importance", "--limit", "1", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
