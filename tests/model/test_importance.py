"""Importance on tiny models of every layout: what each method says can be checked by hand."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest
import torch
from captum.attr import LayerConductance

import analysis.importance
from analysis import gates, modules, signals
from analysis.dropping import drop_each
from analysis.float_copy import float_copy
from analysis.gates import gate_importance
from analysis.importance import METHODS, Settings, importance
from analysis.scores import SCORES, Objective
from analysis.stack import Stack
from analysis.table import TRUTH
from analysis.texts import CancelledError, Text, write_texts
from selfspec_core.decoder import ResidualDecoder
from selfspec_core.engine import Engine
from selfspec_core.loading import wrap
from selfspec_core.plan import PlanError, SkipPlan
from selfspec_core.request import Request

from .engines import byte_tokenizer, engine_on
from .tiny import TINY, ids, tiny

every_family = pytest.mark.parametrize("name", TINY)
LAYOUTS = ("llama", "gemma2", "olmo2", "gpt_neox", "gpt2", "cohere", "granite")
every_layout = pytest.mark.parametrize("name", LAYOUTS)
N_LAYERS, PROMPT, WRITTEN = 4, 9, 7


def text(seed: int = 1, prompt: int = PROMPT, written: int = WRITTEN) -> Text:
    return Text(tuple(ids(prompt + written, seed=seed).tolist()), prompt)


def loaded(name: str = "llama", **overrides):
    return wrap(tiny(name, **overrides), byte_tokenizer())


def objective(name: str, score: str = "logprob", **overrides) -> Objective:
    stack = float_copy(loaded(name, **overrides)).stack
    return Objective(stack, stack.read(text()), score)


def calm(name: str, score: str = "logprob") -> Objective:
    """A model so tame that few quadrature steps are exact enough."""
    return objective(name, score, initializer_range=0.1)


def single(branch: int) -> SkipPlan:
    kind = ("attention", "mlp")[branch % 2]
    return SkipPlan(N_LAYERS).toggled(kind, branch // 2)


# -- the stack, read from the prompt's end on ------------------------------------------------


@every_family
@pytest.mark.parametrize("prompt", [1, PROMPT, 30])
def test_rows_after_a_given_prefix_are_the_whole_texts_rows(name, prompt):
    model = tiny(name)
    stack, one = Stack(model), text(prompt=prompt)
    reading = stack.read(one)
    expected = model(torch.tensor([one.ids])).logits[0, prompt - 1 : -1]
    found = stack.readout(stack.run_layers(reading.h, reading.context))[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    short = reading.cut(3)
    found = stack.readout(stack.run_layers(short.h, short.context))[0]
    torch.testing.assert_close(found, expected[:3], rtol=0, atol=1e-5)


# -- measured --------------------------------------------------------------------------------


@every_family
def test_dropping_all_branches_in_one_pass_is_dropping_each_in_a_pass_of_its_own(name):
    stack = Stack(tiny(name))
    reading = stack.read(text())
    dropped = drop_each(stack, reading)
    whole = torch.log_softmax(stack.readout(stack.run_layers(reading.h, reading.context)), -1)[0]
    for branch in range(2 * N_LAYERS):
        h = stack.run_layers(reading.h, reading.context, plan=single(branch))
        law = torch.log_softmax(stack.readout(h), dim=-1)[0]
        kl = (whole.exp() * (whole - law)).sum(-1)
        torch.testing.assert_close(dropped.kl[branch], kl, rtol=1e-3, atol=1e-4)
        assert dropped.lost[branch].tolist() == (law.argmax(-1) != whole.argmax(-1)).tolist()
    assert dropped.kl.min() > -1e-5
    assert dropped.kl.max() > 1e-4


def test_with_a_prompt_of_one_token_the_truth_is_the_plans_own_forward():
    """Nothing is given then, so it is `ResidualDecoder` without a cache under the plan."""
    model, one = tiny("llama"), text(prompt=1, written=20)
    decoder, stack = ResidualDecoder(model), Stack(model)
    dropped = drop_each(stack, stack.read(one))
    tokens = torch.tensor(one.ids[:-1])
    whole = decoder.logits(tokens)[0].argmax(-1)
    for branch in range(2 * N_LAYERS):
        drafted = decoder.logits(tokens, plan=single(branch))[0].argmax(-1)
        assert dropped.lost[branch].tolist() == (drafted != whole).tolist()


# -- captum on gates -------------------------------------------------------------------------


@every_layout
def test_ablation_equals_the_measured_difference(name):
    scored = objective(name)
    ablated = gates.feature_ablation(scored)
    measured = drop_each(scored.stack, scored.reading).logprob_drop
    torch.testing.assert_close(ablated, measured, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", ["llama", "cohere"])
def test_integrated_gradients_of_all_gates_sum_to_what_the_draft_lacks(name, score):
    scored = calm(name, score)
    plan = SkipPlan.parse("1,a2", N_LAYERS)
    values, delta = gates.integrated_gradients(scored, plan, n_steps=64)
    draft = gates.plan_gates(plan, N_LAYERS)
    change = (scored(scored.ones()) - scored(draft)).sum()
    assert abs(change) > 1e-3
    torch.testing.assert_close(values.sum(), change, rtol=0.03, atol=1e-4)
    assert delta == pytest.approx(float(values.sum() - change), abs=1e-3)
    kept = draft.T.flatten().bool()
    assert not values[kept].any()
    assert values[~kept].abs().sum(dim=1).min() > 0


def test_fewer_steps_leave_a_larger_convergence_delta():
    scored = objective("llama")
    few, many = (abs(gates.integrated_gradients(scored, n_steps=n)[1]) for n in (2, 128))
    assert few > 5 * many


@every_layout
def test_shapley_values_share_out_exactly_what_all_branches_are_worth(name):
    scored = objective(name)
    change = scored(scored.ones())[0] - scored(gates.plan_gates(None, N_LAYERS))[0]  # [N]
    permutations = gates.shapley_values(scored)
    first, second = next(permutations), next(permutations)
    for values in (first, second):
        torch.testing.assert_close(values.sum(dim=0), change, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(first, second)  # another permutation
    torch.testing.assert_close(next(gates.shapley_values(scored)), first)


def test_shapley_sampling_leaves_the_global_generator_alone():
    scored = objective("llama")
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    next(gates.shapley_values(scored, seed=5))
    assert torch.equal(torch.rand(3), expected)


def test_input_x_gradient_is_the_slope_of_the_score_at_the_whole_model():
    scored = calm("llama")
    values = gates.input_x_gradient(scored).sum(dim=1)
    for branch in range(2 * N_LAYERS):
        step = torch.zeros(2, N_LAYERS)
        step[branch % 2, branch // 2] = 1e-2
        up, down = (scored(1 + sign * step).sum() for sign in (1, -1))
        assert float(up - down) / 2e-2 == pytest.approx(float(values[branch]), rel=2e-2, abs=2e-3)


def test_gradients_at_the_whole_model_say_nothing_of_the_divergence_from_it():
    assert gates.input_x_gradient(objective("llama", "kl")).abs().max() < 1e-4
    assert gates.input_x_gradient(objective("llama", "margin")).abs().max() > 1e-2


# -- real modules ----------------------------------------------------------------------------


@every_family
def test_hooks_see_what_the_branch_writes(name):
    """Gradient × activation of it, summed over the stream, is gate × gradient."""
    scored = objective(name)
    found = modules.layer_gradient_x_activation(scored)
    torch.testing.assert_close(found.signed, gates.input_x_gradient(scored), rtol=1e-3, atol=1e-3)
    assert (found.absolute >= found.signed.abs() - 1e-4).all()


@every_layout
def test_gradient_flow_bounds_gradient_x_activation(name):
    """|a · g| ≤ ‖a‖ ‖g‖, for every branch and row."""
    scored = objective(name)
    flow = modules.gradient_flow(scored)
    written = torch.cat([w for _, _, w in scored.stack.trace(scored.reading)]).norm(dim=-1)
    times = getattr(scored.stack.config, scored.stack.family.residual_multiplier or "", 1.0)
    bound = flow * written / times
    assert (gates.input_x_gradient(scored).abs() <= bound * 1.001 + 1e-5).all()
    assert flow.min() > 0


@every_layout
def test_conductance_through_the_whole_cut_leaves_little_and_hooks_are_gone_after(name):
    scored = calm(name)
    found = list(modules.layer_conductance(scored, budget=300.0))
    last = found[-1]
    assert last.done == 1
    assert len(found) == 2 * N_LAYERS
    assert not last.values.isnan().any()
    assert last.steps == 32
    assert abs(last.cut_delta) < 0.1 * last.values.abs().sum()
    assert found[0].values.isnan().any(dim=1).sum() == 2 * N_LAYERS - 1
    assert not any(m._forward_hooks for m in scored.stack.branches[0][0].module.modules())


def test_the_convergence_delta_told_is_captums_own():
    scored = objective("llama")
    last = list(modules.layer_conductance(scored, budget=300.0))[-1]
    h = scored.reading.h
    module = modules.write_modules(scored.stack)[3]
    with torch.enable_grad():
        values, delta = LayerConductance(lambda x: scored.of_stream(x).sum(1), module).attribute(
            h.clone(),
            h.mean(1, keepdim=True).expand_as(h).clone(),
            n_steps=last.steps,
            return_convergence_delta=True,
        )
    assert float(last.deltas[3]) == pytest.approx(float(delta), rel=1e-3, abs=1e-3)
    torch.testing.assert_close(last.values[3], values.sum(-1)[0].detach(), rtol=1e-3, atol=1e-3)


def test_conductance_stops_at_its_budget_with_branches_from_all_over_the_stack():
    scored = objective("llama", num_hidden_layers=24)
    last = list(modules.layer_conductance(scored, budget=0.05))[-1]
    assert last.done == 1
    assert last.steps == 4
    seen = (~last.deltas.isnan()).nonzero().flatten()
    assert 1 <= len(seen) < 48


# -- signals ---------------------------------------------------------------------------------


@every_family
def test_attention_weights_are_distributions_and_the_copy_is_as_before(name):
    model = loaded(name)
    copied = float_copy(model)
    reading = copied.stack.read(text())
    before = copied.stack.run_layers(reading.h, reading.context)
    kind = copied.model.config._attn_implementation
    spread = signals.attention_spread(copied, reading)
    heads = model.model.config.num_attention_heads
    assert spread.entropy.shape == (N_LAYERS, heads, WRITTEN)
    assert copied.model.config._attn_implementation == kind
    assert model.model.config._attn_implementation == kind
    assert 0 <= spread.entropy.min() <= spread.entropy.max() <= np.log(PROMPT + WRITTEN) + 1e-4
    assert 0 <= spread.first.min() <= spread.first.max() <= 1 + 1e-5
    assert 0 <= spread.distance.min() <= spread.distance.max() < PROMPT + WRITTEN
    assert torch.equal(copied.stack.run_layers(reading.h, reading.context), before)
    rows = signals.for_attention(spread.entropy)
    assert rows[1::2].isnan().all()
    assert not rows[0::2].isnan().any()


def test_attention_weights_are_transformers_own():
    model = tiny("llama")
    copied = float_copy(wrap(model, byte_tokenizer()))
    one = text()
    spread = signals.attention_spread(copied, copied.stack.read(one))
    model.set_attn_implementation("eager")
    weights = model(torch.tensor([one.ids]), output_attentions=True).attentions
    for layer in range(N_LAYERS):
        rows = weights[layer][0, :, PROMPT - 1 : -1]  # [heads, N, T]
        torch.testing.assert_close(spread.first[layer], rows[..., 0], rtol=1e-3, atol=1e-5)
        entropy = torch.special.entr(rows).sum(-1)
        torch.testing.assert_close(spread.entropy[layer], entropy, rtol=1e-3, atol=1e-5)


@every_layout
def test_a_branch_that_writes_nothing_has_no_influence_and_no_importance(name):
    model = loaded(name)
    stack = Stack(model.model)
    writes = stack.branches[2][1].writes
    for weight in [
        p
        for n, p in writes.named_parameters()
        if n.split(".")[0] in ("down_proj", "c_proj", "dense_4h_to_h", "weight", "bias")
    ]:
        weight.zero_()
    if model.family.name == "Gemma 2":  # its norm multiplies by 1 + weight
        writes.weight.fill_(-1.0)
    reading = stack.read(text())
    scored = Objective(stack, reading)
    influence = signals.block_influence(stack, reading)
    assert influence[5].abs().max() < 1e-5
    assert influence[[0, 1, 4]].mean() > 1e-3
    assert drop_each(stack, reading).kl[5].abs().max() < 1e-4
    assert gates.input_x_gradient(scored)[5].abs().max() < 1e-5


def test_the_logit_lens_settles_where_nothing_after_it_moves_the_answer():
    model = loaded("llama")
    stack = Stack(model.model)
    for layer in (2, 3):
        stack.branches[layer][0].module.o_proj.weight.zero_()
        stack.branches[layer][1].module.down_proj.weight.zero_()
    lens = signals.logit_lens(stack, stack.read(text()))
    assert lens.on_top.shape == (N_LAYERS + 1, WRITTEN)
    assert lens.on_top[2:].all()
    assert lens.layer.max() <= 2
    undecided = lens.undecided()
    assert not undecided[4:].any()
    assert undecided[:4].any()


# -- all together ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine():
    return engine_on("llama", end=None)


@pytest.fixture(scope="module")
def texts(engine):
    request = Request(max_new_tokens=6)
    return [text for text, _ in write_texts(engine, request, ["one 🙂", "two, three"])]


def settings(**values) -> Settings:
    return Settings(**{"plan": SkipPlan.parse("1-2", N_LAYERS), "budget": 0.2, **values})


def test_every_method_fills_its_columns_with_progress_to_the_end(engine, texts):
    steps = list(importance(engine.loaded, texts, settings()))
    last = steps[-1].importance
    assert steps[-1].done == pytest.approx(1, abs=0.2)
    assert steps[-1].seconds_left == pytest.approx(0, abs=0.1)
    shares = [step.done for step in steps]
    assert shares[0] < 0.5 < shares[-1]
    assert all(0 <= share <= 1 for share in shares)
    assert {TRUTH, "kl", "attention_entropy", *METHODS} - {"measured", "attention"} <= set(
        last.columns
    )
    assert all(column.complete for column in last.columns.values())
    assert last.table().shape == (2 * N_LAYERS, 2 + len(last.columns))
    plain = Engine(engine_on("llama", end=None).loaded, mode="eager")
    # Float32 already: only the modules are copied, unless kernels hold the weights in their order.
    assert last.copy_mb == float_copy(engine.loaded).mb
    assert (last.copy_mb == 0) == (engine.mode == plain.mode)
    for name in last.columns:
        assert last.per_token(name, 0).shape[0] == 2 * N_LAYERS
    plan_rows = ~np.isnan(last.columns["integrated_gradients_plan"].values)
    assert plan_rows.tolist() == [False, False, True, True, True, True, False, False]
    json.dumps(last.to_dict(), allow_nan=False)
    details = last.columns["shapley"].details
    assert details["permutations"] >= 2
    assert details["mean_standard_error"] > 0


def test_partial_results_are_yielded_on_the_way(engine, texts):
    steps = importance(engine.loaded, texts, settings(), methods=["measured"])
    first = next(steps).importance.columns[TRUTH]
    assert not first.complete
    assert len(first.per_token) == 1
    assert next(steps).importance.columns[TRUTH].complete


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_person_can_stop_any_method_on_its_way(engine, texts, method):
    asked = []

    def cancelled() -> bool:
        asked.append(True)
        return len(asked) > 1

    steps = list(
        importance(
            engine.loaded, texts * 3, settings(budget=30), methods=[method], cancelled=cancelled
        )
    )
    assert steps[-1].cancelled
    assert len(asked) <= 3


def test_stopping_while_the_model_writes():
    with pytest.raises(CancelledError):
        list(write_texts(engine_on("llama"), Request(), ["a"], cancelled=lambda: True))


@pytest.mark.parametrize("end", ["finish", "close", "fail"])
def test_the_float32_copy_is_freed_however_it_ends(monkeypatch, texts, end):
    model = engine_on("llama", end=None).loaded
    model.model.to(torch.bfloat16)
    copies = []

    def kept(loaded):
        made = float_copy(loaded)
        copies.append(weakref.ref(made.model))
        assert made.mb == pytest.approx(model.info.weights_mb, rel=1e-3)
        if end == "fail":
            monkeypatch.setattr(made.stack, "readout", None)
        return made

    monkeypatch.setattr(analysis.importance, "float_copy", kept)
    steps = importance(model, texts, settings(), methods=["input_x_gradient", "attention"])
    if end == "fail":
        with pytest.raises(TypeError):
            list(steps)
    elif end == "close":
        next(steps)
        assert next(steps).importance.columns
        steps.close()
    else:
        list(steps)
    del steps
    monkeypatch.undo()  # what it would put back holds the copy
    gc.collect()
    assert [copy() for copy in copies] == [None]


def test_nothing_of_the_model_in_use_is_changed(engine, texts):
    model = engine.loaded.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = model.config.to_dict()
    for _ in importance(engine.loaded, texts, settings()):
        assert not any(module._forward_hooks for module in model.modules())
        assert model.config._attn_implementation == "sdpa"
    assert model.config.to_dict() == config
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(p.requires_grad for p in model.parameters())


def test_the_pages_importance_is_the_tables_input_x_gradient_summed(engine, texts):
    page = gate_importance(engine.loaded, texts[0].ids, prompt_length=texts[0].prompt_length)
    (*_, last) = importance(engine.loaded, texts[:1], settings(), methods=["input_x_gradient"])
    values = last.importance.columns["input_x_gradient"].values * page.tokens
    assert page.attention == pytest.approx(values[0::2], rel=1e-4)
    assert page.mlp == pytest.approx(values[1::2], rel=1e-4)


def test_a_plan_of_another_model_is_refused(engine, texts):
    with pytest.raises(PlanError, match="5 layers"):
        importance(engine.loaded, texts, settings(plan=SkipPlan(5)))
