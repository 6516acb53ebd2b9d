"""Every family's gated stack is the model of transformers, in every way it is run."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch
from transformers import MambaConfig, T5Config

from selfspec_core.branch import KINDS
from selfspec_core.cache import KVCache
from selfspec_core.decoder import ResidualDecoder, Rows
from selfspec_core.families import FAMILIES, UnsupportedModelError, family_of
from selfspec_core.plan import SkipPlan

from .tiny import PECULIARITIES, TINY, WEIGHTS_THAT_COUNT, WINDOW, ids, tiny

LENGTH = 40  # far past the sliding windows of 6
SUMS = 2e-5
"""By how much float32 logits differ where windows of other shapes sum in another order: 1.43e-5 on
a Xeon with AMX, and below 1e-5 on an EPYC."""
PLANS = ["none", "1-2", "a0-3", "m0-3", "a1,m2,3", "0"]

every_family = pytest.mark.parametrize("name", TINY)


@contextlib.contextmanager
def outputs_zeroed(decoder: ResidualDecoder, plan: SkipPlan):
    """transformers' own forward, with what the plan's branches write replaced by zero."""

    def zero(module, inputs, output):
        if isinstance(output, tuple):
            return (torch.zeros_like(output[0]), *output[1:])
        return torch.zeros_like(output)

    hooks = [
        branch.writes.register_forward_hook(zero)
        for pair in decoder.branches
        for branch in pair
        if plan.skips(branch.kind, branch.layer)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def grow(decoder, tokens, chunks, cache, plan=None):
    """Logits [R, V] of tokens run through the cache in chunks of these sizes."""
    parts, at = [], 0
    for size in chunks:
        parts.append(decoder.logits(tokens[at : at + size], cache=cache, plan=plan)[0])
        cache.advance(size)
        at += size
    return torch.cat(parts)


@every_family
def test_all_gates_one_equals_transformers_logits(name):
    model, tokens = tiny(name), ids(LENGTH)
    expected = model(tokens[None]).logits[0]
    decoder = ResidualDecoder(model)
    torch.testing.assert_close(decoder.logits(tokens)[0], expected, rtol=0, atol=1e-5)
    ones = torch.ones(1, LENGTH, 2, decoder.n_layers)
    torch.testing.assert_close(decoder.logits(tokens, gates=ones)[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "change"), PECULIARITIES, ids=lambda v: str(v)[:40])
def test_each_peculiarity_moves_the_logits_and_is_followed(name, change):
    tokens = ids(LENGTH)
    plain, changed = tiny(name), tiny(name, **change)
    loaded = changed.load_state_dict(plain.state_dict(), strict=False)
    assert not loaded.missing_keys  # all weights are shared; a peculiarity may bring its own
    logits = ResidualDecoder(changed).logits(tokens)[0]
    assert (logits - plain(tokens[None]).logits[0]).abs().max() > 1e-2
    torch.testing.assert_close(logits, changed(tokens[None]).logits[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "weights"), WEIGHTS_THAT_COUNT)
def test_each_familys_own_weights_move_the_logits_and_are_followed(name, weights):
    tokens = ids(LENGTH)
    plain, changed = tiny(name), tiny(name)
    found = [weight for key, weight in changed.named_parameters() if re.search(weights, key)]
    assert found
    for weight in found:
        weight.mul_(-0.5)
    logits = ResidualDecoder(changed).logits(tokens)[0]
    assert (logits - plain(tokens[None]).logits[0]).abs().max() > 1e-2
    torch.testing.assert_close(logits, changed(tokens[None]).logits[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "olmo2", "granite", "phi", "cohere"])
def test_a_window_that_transformers_does_not_read_is_not_applied(name):
    """A Llama made from a Mistral often carries one in its config."""
    model, tokens = tiny(name, sliding_window=WINDOW), ids(LENGTH)
    assert model.config.sliding_window == WINDOW
    expected = model(tokens[None]).logits[0]
    torch.testing.assert_close(
        ResidualDecoder(model).logits(tokens)[0], expected, rtol=0, atol=1e-5
    )


@every_family
@pytest.mark.parametrize("plan", PLANS)
def test_any_plan_equals_those_modules_writing_zero(name, plan):
    model, tokens = tiny(name), ids(LENGTH)
    decoder = ResidualDecoder(model)
    skip = SkipPlan.parse(plan, decoder.n_layers)
    with outputs_zeroed(decoder, skip):
        expected = model(tokens[None]).logits[0]
    torch.testing.assert_close(decoder.logits(tokens, plan=skip)[0], expected, rtol=0, atol=1e-5)
    gates = torch.tensor(
        [[float(not skip.skips(kind, i)) for i in range(decoder.n_layers)] for kind in KINDS]
    )
    torch.testing.assert_close(decoder.logits(tokens, gates=gates)[0], expected, rtol=0, atol=1e-5)


@every_family
@pytest.mark.parametrize("plan", ["none", "a1,m2,3", "a0-3"])
def test_cached_equals_uncached_far_past_a_sliding_window(name, plan):  # cases 12 and 13
    model, tokens = tiny(name), ids(150, seed=3)  # past a bucket's edge too
    decoder = ResidualDecoder(model)
    skip = SkipPlan.parse(plan, decoder.n_layers)
    whole = decoder.logits(tokens, plan=skip)[0]
    cache = KVCache(decoder.n_layers, 150)
    pieces = grow(decoder, tokens, [30, 1, 4, 1, 90, 4, 1, 1, 18], cache, skip)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=SUMS)


@every_family
@pytest.mark.parametrize("back", [1, 3, 8, 20])
def test_rolling_back_and_going_on_equals_never_having_gone_there(name, back):
    model, tokens = tiny(name), ids(LENGTH)
    decoder = ResidualDecoder(model)
    straight = KVCache(decoder.n_layers, 64)
    expected = grow(decoder, tokens, [20, 10, 1, 4, 5], straight)
    detour = KVCache(decoder.n_layers, 64)
    grow(decoder, tokens, [20], detour)
    grow(decoder, ids(30, seed=9), [4, 26], detour, SkipPlan.parse("1", decoder.n_layers))
    detour.rollback(20)
    grow(decoder, tokens[20:], [20], detour)
    detour.rollback(LENGTH - back)
    again = grow(decoder, tokens[-back:], [back], detour)
    torch.testing.assert_close(again, expected[-back:], rtol=0, atol=1e-5)


@every_family
def test_rows_of_a_tree_see_their_own_ancestors_only(name):
    decoder = ResidualDecoder(tiny(name))
    prefix, rows = ids(20), ids(6, seed=4)
    parents = (-1, 0, 0, 1, 3, 2)
    cache = KVCache(decoder.n_layers, 64)
    grow(decoder, prefix, [20], cache)
    tree = decoder.logits(Rows(rows, parents), cache=cache)[0]
    for row in range(6):
        path, at = [], row
        while at >= 0:
            path.insert(0, at)
            at = parents[at]
        text = torch.cat([prefix, rows[path]])
        alone = decoder.logits(text)[0, -1]
        torch.testing.assert_close(tree[row], alone, rtol=0, atol=SUMS)
    cache.keep([0, 2, 5])  # the path that is accepted closes up
    after = decoder.logits(ids(1, seed=8), cache=cache)[0, -1]
    text = torch.cat([prefix, rows[[0, 2, 5]], ids(1, seed=8)])
    torch.testing.assert_close(after, decoder.logits(text)[0, -1], rtol=0, atol=SUMS)


@every_family
def test_a_skipped_branch_is_not_called(name):
    decoder = ResidualDecoder(tiny(name))
    plan = SkipPlan.parse("a1,m2,3", decoder.n_layers)
    called: list[tuple[str, int]] = []
    for pair in decoder.branches:
        for branch in pair:
            branch.module.register_forward_hook(
                lambda *_, b=branch: called.append((b.kind, b.layer))
            )
    decoder.logits(ids(5), plan=plan)
    expected = {(k, i) for i in range(decoder.n_layers) for k in KINDS if not plan.skips(k, i)}
    assert set(called) == expected
    assert len(called) == len(expected)


@every_family
def test_the_declared_last_module_is_what_the_branch_writes(name):
    decoder = ResidualDecoder(tiny(name))
    h = torch.randn(1, 7, 32)
    seen = {}
    decoder.forward(ids(7), observe=lambda branch, read: seen.update({branch: read}))
    assert len(seen) == 2 * decoder.n_layers
    written = {}
    for pair in decoder.branches:
        for branch in pair:
            branch.writes.register_forward_hook(
                lambda module, inputs, output, b=branch: written.update({b: output})
            )
    h = decoder.forward(ids(7))
    first = decoder.branches[0][0]
    times = getattr(decoder.config, decoder.family.residual_multiplier or "", 1.0)
    total = seen[first] + times * sum(written.values())
    torch.testing.assert_close(total, h, rtol=0, atol=1e-3)


def test_every_layout_of_this_issue_has_a_tiny_model():
    covered = {family_of(tiny(name).config).name for name in TINY}
    assert covered == {family.name for family in FAMILIES}


@pytest.mark.parametrize(
    ("config", "reason"),
    [(MambaConfig(), "can't be rolled back"), (T5Config(), "encoder-decoder")],
)
def test_an_unknown_family_is_refused_by_name_with_the_reason(config, reason):
    with pytest.raises(UnsupportedModelError) as refusal:
        family_of(config)
    assert config.model_type in str(refusal.value)
    assert reason in str(refusal.value)
    assert "Llama" in str(refusal.value)


@pytest.mark.parametrize(("name", "kind"), [("llama", "dynamic"), ("phi3", "longrope")])
def test_a_rotary_embedding_that_moves_with_the_length_is_refused(name, kind):
    config = tiny(name).config
    config.rope_parameters = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(UnsupportedModelError, match="cached keys"):
        family_of(config)
