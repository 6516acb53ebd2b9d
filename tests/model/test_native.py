"""Branches compiled for the machine: the same as eager ones, in every family that they fit."""

from __future__ import annotations

import copy
import os
import threading
from typing import Any

import pytest
import torch
from torch import nn

from analysis.chains import Chains
from analysis.reference import Reference, Text
from selfspec_core.cache import KVCache
from selfspec_core.decoder import ResidualDecoder, Rows
from selfspec_core.engine import Engine
from selfspec_core.execution import await_kernels, make_compiled, settling, why_not_compiled
from selfspec_core.loading import wrap
from selfspec_core.native import build
from selfspec_core.native.weights import NativeLinear, pack_together, packed, unpacked
from selfspec_core.packing import PackedLinear
from selfspec_core.pages import Pages
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request
from selfspec_core.runtime import probe

from .engines import BYTES, byte_tokenizer, request
from .tiny import ids, tiny

WIDE = {"hidden_size": 64, "intermediate_size": 96}  # whole vectors of sixteen everywhere
# What fits, of each family: (attention branches, MLP branches) of its 4 layers.
FITS = {
    "llama": (4, 4),
    "smollm3": (4, 4),
    "smollm3-sliding": (4, 4),
    "mistral": (4, 4),
    "qwen2": (4, 4),
    "qwen2-sliding": (4, 4),
    "qwen3": (4, 4),
    "granite": (4, 4),
    "phi3": (4, 4),
    "starcoder2": (4, 4),
    "gemma2": (4, 4),
    "gemma3": (4, 4),
    "olmo2": (4, 4),
    "cohere": (0, 0),
    "gpt_neox": (0, 0),
    "gpt2": (0, 0),
}
HEADS = {"gemma2", "gemma3", "qwen3", "qwen3-sliding"}  # whose head size stands in the config


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Without a compiler the engine has no kernels and runs eagerly, which the other tests test."""
    try:
        build.load()
    except build.Unavailable as reason:
        pytest.skip(str(reason))


def wide(name: str, dtype: torch.dtype = torch.float32, **more: Any) -> nn.Module:
    """A tiny model whose sizes are multiples of sixteen."""
    if name in HEADS:
        more["head_dim"] = 16
    return tiny(name, **WIDE, **more).to(dtype)


def walk(decoder: ResidualDecoder, plan: SkipPlan | None = None) -> torch.Tensor:
    """[20, V] logits of 20 tokens: 11 at once, then windows of 1, 5 and 3."""
    cache = KVCache(decoder.n_layers, 32)
    text, parts, at = ids(20), [], 0
    with torch.inference_mode():
        for n in (11, 1, 5, 3):
            parts.append(decoder.logits(text[at : at + n], cache=cache, plan=plan)[0])
            cache.advance(n)
            at += n
    return torch.cat(parts)


@pytest.mark.parametrize("name", FITS)
def test_compiled_logits_are_the_eager_ones(name):
    plain = ResidualDecoder(wide(name))
    compiled = ResidualDecoder(wide(name))
    make_compiled(compiled)
    fits = tuple(sum(pair[i].native is not None for pair in compiled.branches) for i in (0, 1))
    assert fits == FITS[name], {b.why_eager for pair in compiled.branches for b in pair}
    for plan in (None, SkipPlan.parse("a1,m2,3", 4)):
        expected = walk(plain, plan)
        torch.testing.assert_close(walk(compiled, plan), expected, rtol=2e-4, atol=2e-4)


def test_biases_are_those_of_the_outputs_that_they_belong_to():
    plain, compiled = (wide("llama", attention_bias=True, mlp_bias=True) for _ in range(2))
    for model in (plain, compiled):
        generator = torch.Generator().manual_seed(3)
        for name, value in model.named_parameters():
            if name.endswith("bias"):  # zeros as they are made
                value.data.normal_(generator=generator)
    decoder = ResidualDecoder(compiled)
    assert make_compiled(decoder).startswith("every branch")
    torch.testing.assert_close(walk(decoder), walk(ResidualDecoder(plain)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gemma2", "granite", "olmo2"])
def test_branches_in_one_call_give_the_bits_of_one_call_each(name, dtype):
    decoder = ResidualDecoder(wide(name, dtype))
    make_compiled(decoder)
    for plan in (None, SkipPlan.parse("a1,m2,3", 4)):
        joined = walk(decoder, plan)
        join, decoder.join = decoder.join, None
        assert join is not None
        assert torch.equal(walk(decoder, plan), joined)
        decoder.join = join


def test_bits_depend_on_no_number_of_threads():
    """Each has an equal share, and who is done takes the others' last."""
    decoder = ResidualDecoder(wide("llama", torch.bfloat16))
    make_compiled(decoder)
    found = []
    for threads in (1, 2, 3, 7):  # fewer and more than some of the work has parts
        torch.set_num_threads(threads)
        found.append(walk(decoder))
    assert all(torch.equal(logits, found[0]) for logits in found[1:])


@pytest.mark.parametrize("eager", [{("attention", 1)}, {("mlp", 0), ("attention", 3), ("mlp", 3)}])
def test_branches_that_stay_eager_run_between_those_that_do_not(eager):
    plain, compiled = (ResidualDecoder(wide("llama")) for _ in range(2))
    make_compiled(compiled)
    for pair in compiled.branches:
        for branch in pair:
            if (branch.kind, branch.layer) in eager:
                branch.native = None
    for plan in (None, SkipPlan.parse("a1,m2", 4)):
        torch.testing.assert_close(walk(compiled, plan), walk(plain, plan), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gemma3"])
def test_a_long_text_is_the_eager_one_and_the_same_bits_however_it_is_cut(name):
    """It is attended in parts of 128 slots, and a long prompt's rows in turns."""
    text = ids(1700)

    def read(decoder: ResidualDecoder, *cuts: int) -> torch.Tensor:
        cache, logits = KVCache(decoder.n_layers, len(text)), []
        with torch.inference_mode():
            for chunk in text.tensor_split(cuts):
                logits.append(decoder.logits(chunk, cache=cache)[0])
                cache.advance(len(chunk))
        return torch.cat(logits)

    plain, compiled = (ResidualDecoder(wide(name, max_position_embeddings=4096)) for _ in range(2))
    make_compiled(compiled)
    assert all(branch.native is not None for pair in compiled.branches for branch in pair)
    whole = read(compiled)
    torch.testing.assert_close(whole, read(plain), rtol=5e-4, atol=5e-4)
    assert torch.equal(read(compiled, 1, 5, 127, 130, 640, 1280), whole)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_in_bfloat16_they_differ_by_rounding_only(name):
    exact = walk(ResidualDecoder(wide(name)))
    plain = walk(ResidualDecoder(wide(name, torch.bfloat16))).float()
    compiled = ResidualDecoder(wide(name, torch.bfloat16))
    make_compiled(compiled)
    error = (walk(compiled).float() - exact).norm() / exact.norm()
    assert error < 1.5 * (plain - exact).norm() / exact.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3"])
def test_bits_depend_on_no_row(name, dtype):
    decoder = ResidualDecoder(wide(name, dtype))
    make_compiled(decoder)
    measured = probe(decoder, (1, 4, 8, 20))
    assert measured.exact
    assert measured.widths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("enough", [1, 10_000])
@pytest.mark.parametrize("n", [1, 16, 37, 64, 100])
def test_a_packed_weight_loses_nothing(monkeypatch, n, enough, dtype):
    monkeypatch.setattr("selfspec_core.native.weights.GROUPS", enough / torch.get_num_threads())
    weight = torch.randn(n, 24).to(dtype)
    assert torch.equal(unpacked(packed(weight), n), weight)
    linear = nn.Linear(24, n).to(dtype)
    x = torch.randn(2, 3, 24).to(dtype)
    mine = NativeLinear(linear)
    torch.testing.assert_close(mine(x), linear(x), rtol=0.02, atol=0.02)
    assert torch.equal(mine.weight, linear.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("enough", [1, 10_000])
@pytest.mark.parametrize("outputs", [(128, 256), (64, 128), (64, 48), (16, 16), (96,)])
def test_linears_packed_together_keep_their_parts(monkeypatch, outputs, enough, dtype):
    monkeypatch.setattr("selfspec_core.native.weights.GROUPS", enough / torch.get_num_threads())
    parent = nn.ModuleList(nn.Linear(24, n, bias=False) for n in outputs).to(dtype)
    weights = [linear.weight.detach().clone() for linear in parent]
    names = tuple(str(i) for i in range(len(outputs)))
    whole = pack_together(parent, names, Pages())
    widths = {(128, 256): 64 if enough == 1 else 32, (64, 128): 32}
    assert whole.shape[2] == widths.get(outputs, 16)
    assert torch.equal(unpacked(whole, sum(outputs)), torch.cat(weights))
    x = torch.randn(3, 24).to(dtype)
    for linear, weight in zip(parent, weights, strict=True):
        assert torch.equal(linear.weight, weight)
        torch.testing.assert_close(linear(x), x @ weight.T, rtol=0.02, atol=0.02)


def test_a_deep_copy_of_a_compiled_model_is_plain_again():
    model = wide("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    make_compiled(ResidualDecoder(model))
    assert any(isinstance(m, PackedLinear) for m in model.modules())
    again = copy.deepcopy(model)
    assert not any(isinstance(m, PackedLinear) for m in again.modules())
    assert all(torch.equal(again.state_dict()[name], before[name]) for name in before)


def test_trees_gradients_and_gates_run_eagerly_on_the_same_weights():
    plain, compiled = ResidualDecoder(wide("llama")), ResidualDecoder(wide("llama"))
    make_compiled(compiled)
    gates = torch.full((1, 1, 2, 4), 0.5)
    tree = Rows(ids(5), (-1, 0, 0, 1, 2))
    with torch.inference_mode():
        for rows, more in ((tree, {}), (ids(5), {"gates": gates})):
            mine, theirs = KVCache(4, 32), KVCache(4, 32)
            expected = plain.logits(rows, cache=theirs, **more)
            got = compiled.logits(rows, cache=mine, **more)
            torch.testing.assert_close(got, expected, rtol=2e-4, atol=2e-4)


def test_a_branch_that_differs_goes_back_to_being_eager(monkeypatch):
    decoder = ResidualDecoder(wide("llama"))
    # As if the modules did something that nobody has thought of.
    module = decoder.branches[2][1].module
    forward = module.forward
    monkeypatch.setattr(module, "forward", lambda x: forward(x) * 1.5)
    told = make_compiled(decoder)
    assert decoder.branches[2][1].native is None
    assert "differ" in decoder.branches[2][1].why_eager
    assert told.startswith("7 of 8")


def test_skipped_branches_are_not_called():
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()))
    assert engine.mode == "compiled"
    calls = []
    for pair in engine.decoder.branches:
        for branch in pair:
            native = branch.native
            branch.native = lambda h, c, n=native, b=branch: (
                calls.append((b.kind, b.layer)),
                n(h, c),
            )[1]
    engine.decoder.logits(ids(3), cache=KVCache(4, 8), plan=SkipPlan.parse("a1,m2", 4))
    assert not calls  # with gradients enabled modules run
    with torch.inference_mode():
        engine.decoder.logits(ids(3), cache=KVCache(4, 8), plan=SkipPlan.parse("a1,m2", 4))
    assert len(calls) == 6
    assert not {("attention", 1), ("mlp", 2)} & set(calls)


def wide_bytes() -> nn.Module:
    return tiny("llama", **WIDE, vocab_size=BYTES)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nothing_is_lost(temperature):
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), mode="compiled")
    one = request(engine, temperature=temperature, max_new_tokens=40)
    plain = request(engine, temperature=temperature, max_new_tokens=40, k=0, window=4)
    assert engine.generate(one).tokens == engine.generate(plain).tokens


def test_windows_without_padding_where_no_number_of_rows_changes_a_bit():
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), mode="compiled")
    assert [engine.window_for(k) for k in (0, 2, 4)] == [4, 4, 8]  # not measured yet
    engine.warm_up()
    assert engine.guarantee.any_rows
    assert [engine.window_for(k) for k in (0, 2, 4)] == [1, 3, 5]
    rows = []
    logits = engine.decoder.logits
    engine.decoder.logits = lambda ids, **kw: (
        rows.append(getattr(ids, "tokens", ids).shape[-1]),
        logits(ids, **kw),
    )[1]
    one = request(engine, temperature=0.8, max_new_tokens=24, k=3, draft_policy="auto")
    mine = engine.generate(one)
    drafted = [event.drafted for event in mine.events if event.type == "round"]
    assert {n + 1 for n in drafted} <= set(rows) <= {1, *(n + 1 for n in drafted)}
    for window in (4, 7):  # asked for by number, it is that number
        padded = request(engine, temperature=0.8, max_new_tokens=24, k=0, window=window)
        assert engine.generate(padded).tokens == mine.tokens
        assert rows[-1] == window


def test_one_kernel_that_minds_the_number_of_rows_brings_the_padding_back(monkeypatch):
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), mode="compiled")
    readout = engine.decoder.readout
    monkeypatch.setattr(
        engine.decoder, "readout", lambda h: readout(h) + 1e-3 * (h.shape[-2] in (3, 13))
    )
    found = engine.probe()
    assert found.exact
    assert found.widths
    assert not found.any_rows
    assert engine.window_for(2) == 4


def test_modes_are_chosen_and_explained():
    assert Engine(wrap(wide_bytes(), byte_tokenizer()), mode="eager").mode == "eager"
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()))
    assert engine.mode == "compiled"
    assert "kernels" in engine.execution
    assert engine.generate(request(engine)).start.model["execution"] == "compiled"
    with pytest.raises(ValueError, match="auto, eager, compiled"):
        Engine(wrap(wide_bytes(), byte_tokenizer()), mode="fast")


def test_without_a_compiler_it_is_eager_and_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), mode="compiled")
    assert engine.mode == "eager"
    assert "no-such-compiler" in engine.execution
    assert "no-such-compiler" in (why_not_compiled(engine.decoder) or "")


def test_a_compiler_that_fails_is_named_with_its_complaint(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "is_loaded", lambda: False)  # as in a process that starts
    broken = tmp_path / "broken-c++"
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 1 && exit\necho 'fatal error: no' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()))
    assert engine.mode == "eager"
    assert "fatal error: no" in engine.execution
    assert not list((tmp_path / "native").glob("*.so"))


def test_a_request_stays_in_the_mode_it_began_in(monkeypatch):
    """Kernels that are built meanwhile are taken up between requests, never within one."""
    monkeypatch.setattr("selfspec_core.engine.is_built", lambda: False)
    go = threading.Event()
    whole = build.is_whole

    def slowly(path):
        go.wait(60)
        return whole(path)

    monkeypatch.setattr(build, "is_whole", slowly)
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), background=True)
    assert engine.mode == "eager"
    engine.probe((4,))
    running = engine.stream(request(engine, max_new_tokens=16))
    first = next(running)
    go.set()
    engine._building._thread.join(60)
    other = engine.generate(request(engine, max_new_tokens=4))  # joins while one is running
    assert first.model["execution"] == other.start.model["execution"] == "eager"
    list(running)
    after = engine.generate(request(engine, max_new_tokens=4))
    assert after.start.model["execution"] == engine.mode == "compiled"
    assert engine.guarantee is not None


@pytest.mark.parametrize("first", ["the engine", "a request"])
def test_the_engine_is_warm_after_the_change_whoever_found_the_kernels_built(first, monkeypatch):
    monkeypatch.setattr("selfspec_core.engine.is_built", lambda: False)
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), background=True)
    warmed = []
    monkeypatch.setattr(engine, "warm_up", lambda: warmed.append(engine.mode))
    engine._building._thread.join(60)
    changing = settling(engine, pause=0)
    if first == "a request":
        engine.generate(request(engine, max_new_tokens=2))
    list(changing)
    assert warmed == [engine.mode] == ["compiled"]


def test_waiting_for_kernels_says_so_now_and_then_and_nothing_where_there_are_some(monkeypatch):
    said = []
    await_kernels(Engine(wrap(wide_bytes(), byte_tokenizer()), background=True), said.append)
    assert said == []
    monkeypatch.setattr("selfspec_core.engine.is_built", lambda: False)
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), background=True)
    await_kernels(engine, said.append, every=0.0)
    assert not engine.building
    assert engine.mode == "compiled"
    assert len(said) >= 2


def test_an_abandoned_stream_does_not_hold_the_engine():
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()))
    stream = engine.stream(request(engine))
    next(stream)
    assert engine._active == 1
    stream.close()
    assert engine._active == 0


def test_two_processes_build_once(tmp_path, monkeypatch):
    import subprocess
    import sys

    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    code = "from selfspec_core.native import build; build.load(); print(build.library())"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        for _ in range(2)
    ]
    answers = {one.communicate(timeout=300)[0].strip() for one in both}
    assert all(one.returncode == 0 for one in both)
    assert len(answers) == 1
    kept = (tmp_path / "native").iterdir()
    name = os.path.basename(answers.pop())
    assert [path.name for path in kept if path.suffix not in (".lock", ".sha256")] == [name]


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "no sum"])
def test_a_damaged_library_is_built_again(damage, tmp_path, monkeypatch):
    """Loading one that was cut ends the process with a bus error."""
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    path = build.library()
    path.parent.mkdir()
    path.write_bytes(b"the library")
    path.with_suffix(".sha256").write_text(build._digest(path))
    assert build.is_built()
    if damage == "no sum":
        path.with_suffix(".sha256").unlink()
    else:
        path.write_bytes({"cut": b"the lib", "garbage": b"yrarbil eht", "empty": b""}[damage])
    assert not build.is_built()
    monkeypatch.setattr(
        build, "_compile", lambda where: where.write_bytes(b"built again"), raising=True
    )
    build.build(path)
    assert path.read_bytes() == b"built again"


def test_where_nothing_can_be_kept_it_runs_eagerly_and_says_where(tmp_path, monkeypatch):
    """A file where the folder should be; root may write to read-only folders."""
    (tmp_path / "native").write_text("in the way")
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(build, "is_loaded", lambda: False)
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()))
    assert engine.mode == "eager"
    assert f"kernels can't be kept in {tmp_path / 'native'}" in engine.execution
    later = Engine(wrap(wide_bytes(), byte_tokenizer()), background=True)
    await_kernels(later, lambda _: None)
    assert "SELFSPEC_HOME" in later.execution
    assert engine.generate(request(engine, max_new_tokens=2)).tokens


def test_a_compiler_that_does_not_answer_is_no_compiler(tmp_path, monkeypatch):
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexit 1\n")
    mute.chmod(0o755)
    monkeypatch.setenv("CXX", str(mute))
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()), background=True)
    assert engine.mode == "eager"
    assert "doesn't answer --version" in engine.execution


def test_cxx_may_have_options(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -O2 -pipe")
    path, *options = build.compiler()
    assert os.path.basename(path) == "g++"
    assert options == ["-O2", "-pipe"]


def test_a_request_from_the_engine_uses_the_whole_machine_path():
    """Prefill longer than a chunk, a bucket's edge, and penalties: all through the kernels."""
    engine = Engine(wrap(wide_bytes(), byte_tokenizer()))
    eager = Engine(wrap(wide_bytes(), byte_tokenizer()), mode="eager")
    prompt = tuple(
        int(i) for i in torch.randint(2, BYTES, (300,), generator=torch.Generator().manual_seed(1))
    )
    one = Request(prompt_ids=prompt, k=2, plan=SkipPlan.parse("1", 4), max_new_tokens=24)
    assert engine.generate(one).tokens == eager.generate(one).tokens


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tied_embedding_is_held_once_and_reads_the_same(dtype):
    model = tiny("llama", **WIDE, tie_word_embeddings=True).to(dtype)
    weight = model.model.embed_tokens.weight.clone()
    make_compiled(ResidualDecoder(model))
    embedding = model.model.embed_tokens
    assert not list(embedding.parameters())
    text = ids(12)[None]
    assert torch.equal(embedding(text), weight[text])
    assert torch.equal(copy.deepcopy(model).model.embed_tokens.weight, weight)
    assert torch.equal(model.state_dict()["model.embed_tokens.weight"], weight)


@pytest.mark.parametrize(
    "name", ["llama", "smollm3-sliding", "mistral", "qwen3", "phi3", "gemma2", "gemma3", "olmo2"]
)
def test_rows_that_continue_a_text_on_their_own_are_the_eager_ones(name):
    """Drafts over a text (analysis/chains.py): padded and masked eagerly, row by row natively."""
    texts = [Text(tuple(ids(20).tolist()), 6), Text(tuple(ids(31).tolist()[11:]), 9)]
    plans = [SkipPlan.parse(plan, 4) for plan in ("a1,m2", "2")]
    starts = torch.tensor([[0, 2, 5, 9], [1, 3, 4, 6]])
    counted = torch.tensor([[True, True, False, True], [True, True, True, True]])
    order = torch.tensor([[3, 0], [1, 2]])
    streams = []
    for compiled in (False, True):
        decoder = ResidualDecoder(wide(name))
        if compiled:
            make_compiled(decoder)
        with torch.inference_mode():
            for group in (plans[:1], plans):
                copies = len(group)
                chains = Chains(Reference(decoder, texts), group)
                begun, rows = starts.repeat(copies, 1), counted.repeat(copies, 1)
                streams.append(chains.step(begun, 0, rows)[rows])
                kept = chains.kept(order.repeat(copies, 1))
                begun = begun.gather(-1, order.repeat(copies, 1))
                rows = torch.ones_like(begun, dtype=torch.bool)
                streams += [kept.step(begun, depth, rows)[rows] for depth in (1, 2)]
    eager, native = streams[: len(streams) // 2], streams[len(streams) // 2 :]
    for expected, got in zip(eager, native, strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-4, atol=2e-4)
