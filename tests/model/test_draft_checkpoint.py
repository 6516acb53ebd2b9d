"""A draft on its own: what our stack computes under the plan, and what transformers makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from selfspec_core.bounded_json import PlanFileError
from selfspec_core.decoder import ResidualDecoder
from selfspec_core.draft_checkpoint import ORIGIN, write_draft
from selfspec_core.engine import Engine
from selfspec_core.families import family_of
from selfspec_core.loading import load, wrap
from selfspec_core.plan import SkipPlan, parse_plan
from selfspec_core.plan_files import PlanFile
from selfspec_core.plan_formats import dump_plan
from selfspec_core.snippet import snippet

from .gguf_writing import tiny_tokenizer
from .tiny import TINY, ids, tiny

PLANS = ["0", "1", "2-3", "0,2"]  # each moves layers with other types, scales and rotary settings

every_family = pytest.mark.parametrize("name", TINY)


def read(folder: Path):
    """The checkpoint as transformers reads it, all weights accounted for."""
    config = AutoModelForCausalLM.from_pretrained(folder).config
    model, told = AutoModelForCausalLM.from_pretrained(
        folder,
        attn_implementation=family_of(config).attn_implementation,
        output_loading_info=True,
    )
    assert not any(told[problem] for problem in ("missing_keys", "unexpected_keys"))
    return model.eval()


@every_family
@pytest.mark.parametrize("plan", PLANS)
@torch.inference_mode()
def test_a_draft_checkpoint_gives_the_logits_of_our_stack_under_the_plan(tmp_path, name, plan):
    model, tokens = tiny(name), ids(40)
    loaded = wrap(model, None)
    skip = SkipPlan.parse(plan, 4)
    before = loaded.info.weights_hash
    written = write_draft(tmp_path / "draft", loaded, skip)
    draft = read(tmp_path / "draft")
    assert draft.config.num_hidden_layers == len(written.kept) == 4 - len(skip.attention)
    ours = ResidualDecoder(model).logits(tokens, plan=skip)[0]
    torch.testing.assert_close(draft(tokens[None]).logits[0], ours, rtol=0, atol=1e-5)
    assert (ours - model(tokens[None]).logits[0]).abs().max() > 1e-2  # the plan does something
    assert wrap(model, None).info.weights_hash == before
    assert model.config.num_hidden_layers == 4


@every_family
def test_transformers_drafts_with_the_checkpoint_and_writes_its_own_greedy_text(tmp_path, name):
    model = tiny(name)
    write_draft(tmp_path / "draft", wrap(model, None), SkipPlan.parse("1", 4), k=3)
    draft = read(tmp_path / "draft")
    prompt, options = ids(9)[None], {"do_sample": False, "max_new_tokens": 24}
    options["eos_token_id"] = None
    alone = model.generate(prompt, **options)
    calls = []
    hook = draft.register_forward_hook(lambda *_: calls.append(1))
    assisted = model.generate(prompt, assistant_model=draft, **options)
    hook.remove()
    assert alone.shape[1] == 33
    assert assisted.tolist() == alone.tolist()
    assert calls  # it did draft
    assert draft.generation_config.num_assistant_tokens == 3


def test_a_draft_checkpoint_loads_by_our_own_loader_with_its_tokenizer_and_origin(tmp_path):
    loaded = wrap(tiny("llama", vocab_size=300), tiny_tokenizer(), id="tiny")
    written = write_draft(tmp_path / "new" / "draft", loaded, SkipPlan.parse("1-2", 4))
    draft = load(str(tmp_path / "new" / "draft"), dtype="float32", device="cpu")
    assert draft.info.n_layers == 2
    assert draft.info.parameters == written.parameters < loaded.info.parameters
    assert draft.tokenizer.decode(draft.tokenizer("héllo").input_ids) == "héllo"
    origin = json.loads((written.folder / ORIGIN).read_text())
    assert (origin["plan"], origin["kept"], origin["model"]) == ("1-2", [0, 3], "tiny")
    assert origin["weights_hash"] == loaded.info.weights_hash
    assert [path.name for path in written.folder.parent.iterdir()] == ["draft"]


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_tied_in_the_draft_too(tmp_path, tied):
    model = tiny("llama", tie_word_embeddings=tied)
    write_draft(tmp_path / "draft", wrap(model, None), SkipPlan.parse("1", 4))
    draft = read(tmp_path / "draft")
    assert (draft.lm_head.weight is draft.model.embed_tokens.weight) == tied


def test_the_dtype_of_the_weights_is_kept(tmp_path):
    model = tiny("qwen2").to(torch.bfloat16)
    write_draft(tmp_path / "draft", wrap(model, None), SkipPlan.parse("1", 4))
    draft = AutoModelForCausalLM.from_pretrained(tmp_path / "draft", dtype="auto")
    assert draft.dtype == torch.bfloat16
    assert torch.equal(
        draft.model.layers[1].mlp.up_proj.weight, model.model.layers[2].mlp.up_proj.weight
    )


def test_per_layer_lists_are_cut_and_a_broken_pattern_is_told(tmp_path):
    loaded = wrap(tiny("gemma3"), None)
    broken = write_draft(tmp_path / "broken", loaded, SkipPlan.parse("1", 4))
    types = json.loads((broken.folder / "config.json").read_text())["layer_types"]
    assert types == ["sliding_attention", "sliding_attention", "full_attention"]
    assert any("layer_types no longer follow" in note for note in broken.notes)
    assert write_draft(tmp_path / "fine", loaded, SkipPlan.parse("1-2", 4)).notes == ()
    qwen = write_draft(tmp_path / "q", wrap(tiny("qwen2-sliding"), None), SkipPlan.parse("0,2", 4))
    config = json.loads((qwen.folder / "config.json").read_text())
    assert (config["max_window_layers"], config["layer_types"]) == (0, ["sliding_attention"] * 2)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ("a1", "whole layers only.*keeps the MLP of layer 1"),
        ("1,m2", "keeps the attention of layer 2"),
        ("none", "skips nothing"),
        ("1;64:2", "length schedule"),
    ],
)
def test_a_plan_that_is_no_model_of_its_own_is_refused(tmp_path, plan, told):
    with pytest.raises(PlanFileError, match=told):
        write_draft(tmp_path / "draft", wrap(tiny("llama"), None), parse_plan(plan, 4))
    assert not (tmp_path / "draft").exists()


def test_another_models_plan_and_a_folder_in_use_are_refused(tmp_path):
    loaded = wrap(tiny("llama"), None)
    with pytest.raises(PlanFileError, match="for 6 layers, this model has 4"):
        write_draft(tmp_path / "draft", loaded, SkipPlan.parse("1", 6))
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(PlanFileError, match="isn't empty"):
        write_draft(tmp_path, loaded, SkipPlan.parse("1", 4))
    (tmp_path / "empty").mkdir()
    write_draft(tmp_path / "empty", loaded, SkipPlan.parse("1", 4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "mine.txt"]


# -- the other ways into transformers, and the snippet -------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gemma2", "cohere"])
def test_transformers_exits_early_by_our_generation_config_and_writes_its_greedy_text(
    tmp_path, name
):
    model = tiny(name)
    text = dump_plan("generation-config", SkipPlan.parse("2-3", 4), k=3)
    (tmp_path / "generation_config.json").write_text(text)
    config = GenerationConfig.from_pretrained(tmp_path, max_new_tokens=20, do_sample=False)
    assert (config.assistant_early_exit, config.num_assistant_tokens) == (2, 3)
    prompt = ids(9)[None]
    expected = model.generate(prompt, max_new_tokens=20, do_sample=False)
    ran = {0: 0, 3: 0}
    for layer, (_, mlp) in enumerate(ResidualDecoder(model).branches):
        if layer in ran:
            mlp.module.register_forward_hook(lambda *_, i=layer: ran.update({i: ran[i] + 1}))
    assert model.generate(prompt, generation_config=config).tolist() == expected.tolist()
    assert ran[0] > ran[3] > 0  # drafts left the model before its last layer


def test_the_snippet_runs_by_itself_and_writes_what_the_engine_writes(tmp_path):
    loaded = wrap(tiny("llama", vocab_size=259), tiny_tokenizer())
    loaded.model.save_pretrained(tmp_path / "model")
    loaded.tokenizer.save_pretrained(tmp_path / "model")
    loaded = load(str(tmp_path / "model"), dtype="float32", device="cpu")
    file = PlanFile.of(loaded.info, SkipPlan.parse("a1,2", 4), k=3, confidence=0.1)
    prompt = 'it\'s a "test"\n{x} é'
    program = snippet(file, model=str(tmp_path / "model"), prompt=prompt, max_new_tokens=12)
    (tmp_path / "draft.py").write_text(program, encoding="utf-8")
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, tmp_path / "draft.py"],
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    written = Engine(loaded).generate(file.request(prompt=prompt, max_new_tokens=12))
    assert written.done.drafted > 0
    assert done.stdout.decode().rstrip("\r\n") == written.text.rstrip("\r\n")
    assert f"{len(written.tokens)} tokens" in done.stderr.decode()
    assert "note:" not in done.stderr.decode()  # the plan fits the model it was made for


def test_nothing_in_a_plan_file_becomes_code_of_the_snippet():
    hostile = '"""\nraise SystemExit(1)\n{} \\ \u2028 %s'
    file = PlanFile(plan=SkipPlan.parse("1", 4), k=2, model=hostile, device="'" + hostile)
    module = types.ModuleType("snippet")
    exec(compile(snippet(file, prompt=hostile, name=hostile), "snippet", "exec"), module.__dict__)
    assert (file, hostile, hostile) == (module.PLAN, module.MODEL, module.PROMPT)
