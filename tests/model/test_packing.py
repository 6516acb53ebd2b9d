"""Packed weights: the same bits, read faster, and held once."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from selfspec_core.decoder import ResidualDecoder
from selfspec_core.execution import make_eager
from selfspec_core.packing import PackedLinear, pack, packs

from .tiny import ids, tiny

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]

PACK_A_MODEL_OF_100_MB = """
import contextlib, json, sys
from pathlib import Path
import psutil, torch
from selfspec_core.decoder import ResidualDecoder
from selfspec_core.execution import make_compiled, make_eager
from selfspec_core.native.build import Unavailable
from selfspec_core.pages import give_back
from selfspec_core.runtime import peak_memory_mb
from tests.model.tiny import tiny

model = tiny("llama", hidden_size=512, intermediate_size=2048, num_hidden_layers=12).bfloat16()
weights = sum(weight.nbytes for weight in model.parameters())
decoder = ResidualDecoder(model)
decoder.logits(torch.arange(4))
give_back()
begin = psutil.Process().memory_info().rss
with contextlib.suppress(OSError):  # forgets the peak so far, on Linux
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
try:
    told = {"eager": make_eager, "compiled": make_compiled}[sys.argv[1]](decoder)
except Unavailable as reason:
    told = str(reason)
peak = peak_memory_mb(torch.device("cpu")) - begin / 1e6
print(json.dumps({"weights": weights / 1e6, "told": told, "peak": peak}))
"""
needs_bfloat16 = pytest.mark.skipif(
    packs(torch.bfloat16, CPU) is not None, reason="this CPU doesn't compute bfloat16 natively"
)


@needs_bfloat16
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2", "gpt_neox"])
def test_a_packed_model_gives_the_same_text(name):
    plain, packed = tiny(name).bfloat16(), tiny(name).bfloat16()
    assert pack(packed) > 0
    expected = ResidualDecoder(plain).logits(ids(20))
    torch.testing.assert_close(
        ResidualDecoder(packed).logits(ids(20)), expected, rtol=0.02, atol=0.1
    )


@needs_bfloat16
def test_originals_are_released_one_by_one():
    model = tiny("llama").bfloat16()
    weights = [weakref.ref(m.weight) for m in model.modules() if type(m) is nn.Linear]
    assert all(ref() is not None for ref in weights)
    pack(model)
    assert not any(type(m) is nn.Linear for m in model.modules())
    alive = [ref for ref in weights if ref() is not None]
    assert len(alive) <= model.config.tie_word_embeddings


@needs_bfloat16
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_two_whole_copies_are_never_in_memory_at_once(mode):
    done = subprocess.run(
        [sys.executable, "-c", PACK_A_MODEL_OF_100_MB, mode],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["weights"] > 80, found
    assert mode == "compiled" or "packed" in found["told"], found
    assert found["peak"] < 0.3 * found["weights"], found


@needs_bfloat16
def test_a_deep_copy_and_a_state_dict_have_the_plain_weights_again():
    model = tiny("qwen2").bfloat16()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pack(model)
    for state in (model.state_dict(), copy.deepcopy(model).state_dict()):
        assert state.keys() == before.keys()
        assert all(torch.equal(state[name], before[name]) for name in before)
    assert not any(isinstance(m, PackedLinear) for m in copy.deepcopy(model).modules())


@needs_bfloat16
@pytest.mark.parametrize("tied", [True, False])
def test_a_weight_is_there_once_also_where_the_head_is_the_embedding(tied):
    model = tiny("llama", tie_word_embeddings=tied).bfloat16()
    make_eager(ResidualDecoder(model))
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    assert isinstance(head, PackedLinear) is not tied
    assert (head.weight is embedding.weight) is tied


def test_where_packing_gains_nothing_the_model_stays_and_the_reason_is_said():
    model = tiny("llama")
    told = make_eager(ResidualDecoder(model))
    assert "float32" in told
    assert not any(isinstance(m, PackedLinear) for m in model.modules())
    assert "cuda" in (packs(torch.bfloat16, torch.device("cuda:0")) or "")
