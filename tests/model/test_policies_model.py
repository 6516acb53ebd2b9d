"""Draft policies and where verification starts, on tiny models: only the speed may change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from scipy import stats

from selfspec_core.branch import Branch
from selfspec_core.check import check, summary
from selfspec_core.drafting import Proposal, SkippedStack
from selfspec_core.engine import RequestError
from selfspec_core.events import Done, Draft, Round, Start, from_ndjson, to_ndjson
from selfspec_core.experience import Experience
from selfspec_core.generation import Generation
from selfspec_core.plan import SkipPlan
from selfspec_core.policies import POLICIES
from selfspec_core.request import Request

from .engines import engine_on, request
from .tiny import TINY

POLICY_K = 6


@pytest.fixture(scope="module")
def engine():
    return engine_on(end=None)


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def pretend(engine, monkeypatch, step: float) -> None:
    """Let a draft step cost so many windows, whatever it takes here."""
    monkeypatch.setattr(
        Experience,
        "times",
        lambda self, plan, most, **_: tuple(1 + step * k for k in range(most + 1)),
    )
    engine.experience.forget_texts()


# -- policies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("plan", ["none", "1", "a1-2,m2"])
def test_coupled_output_is_plain_decodings_under_every_policy(engine, policy, temperature, plan):
    one = request(
        engine, plan, temperature, k=POLICY_K, draft_policy=policy, seed=4, max_new_tokens=60
    )
    fast = engine.generate(one)
    slow = engine.generate(replace(one.plainly(), window=fast.start.window))
    assert fast.tokens == slow.tokens
    assert fast.start.policy.partition(":")[0] == policy
    assert slow.start.policy == "fixed"
    assert slow.done.drafted == 0


def test_the_text_is_the_same_whatever_the_clock_makes_auto_choose(engine, monkeypatch):
    lengths, texts = set(), set()
    for step in (0.05, 0.3, 0.6, 0.9, 2.0):
        pretend(engine, monkeypatch, step)
        one = request(engine, "1", 0.8, k=POLICY_K, draft_policy="auto", seed=9, max_new_tokens=80)
        generated = engine.generate(one)
        lengths.add(tuple(r.drafted for r in of(generated.events, Round)))
        texts.add(generated.tokens)
    assert len(lengths) > 2
    assert len(texts) == 1


def test_auto_drafts_all_it_may_where_drafts_are_free_and_always_right(engine, monkeypatch):
    pretend(engine, monkeypatch, 0.05)
    one = request(engine, "none", k=3, draft_policy="auto", max_new_tokens=60)
    rounds = of(engine.generate(one).events, Round)
    assert {r.drafted for r in rounds[:-1]} == {3}


def test_auto_never_drafts_what_cannot_pay(engine, monkeypatch):
    pretend(engine, monkeypatch, 1.0)
    done = engine.generate(request(engine, "none", draft_policy="auto", max_new_tokens=60)).done
    assert done.drafted == 0


def test_auto_remembers_a_plans_acceptance_from_text_to_text(engine, monkeypatch):
    pretend(engine, monkeypatch, 0.5)
    one = request(engine, "none", k=3, draft_policy="auto", max_new_tokens=60)
    begun = [of(engine.generate(replace(one, seed=n)).events, Round)[0].drafted for n in range(2)]
    assert begun == [1, 3]


def test_auto_pays_for_getting_to_know_a_plan_once(engine, monkeypatch):
    pretend(engine, monkeypatch, 0.6)
    one = request(engine, "0-2", 1.0, k=3, draft_policy="auto", max_new_tokens=30)
    texts = [engine.generate(replace(one, seed=seed)).done for seed in range(20)]
    assert texts[0].drafted > 0
    lost = sum(0.6 * text.drafted - text.accepted for text in texts)
    assert 0 < lost <= 0.03 * 20 * 30


def test_the_adaptive_threshold_moves_within_a_text_and_not_between_texts(engine):
    one = request(engine, "1", 1.0, k=8, draft_policy="adaptive", confidence=0.3, max_new_tokens=60)
    generation = Generation(engine, one, engine.encode(one))
    list(generation.prefill())
    policy = generation._steering.policy
    before = policy.threshold
    while generation.reason is None:
        list(generation.round())
    assert before == 0.3
    assert policy.threshold != before
    assert one.policy.threshold == 0.3


@pytest.mark.parametrize("policy", ["adaptive", "auto"])
def test_the_law_of_rejection_is_the_same_under_a_policy_that_learns(engine, policy, monkeypatch):
    """The fourth token of many seeds, against plain decoding's, by a chi-squared test."""
    pretend(engine, monkeypatch, 0.4)
    base = request(engine, "1", 0.35, max_new_tokens=5, rule="rejection", k=3)
    counts = []
    for one in (base.plainly(), replace(base, draft_policy=policy)):
        runs = [engine.generate(replace(one, seed=seed)).tokens for seed in range(300)]
        counts.append(Counter(tokens[3:5] for tokens in runs))
    frequent = [t for t, n in (counts[0] + counts[1]).items() if n >= 16]
    table = [[c[t] for t in frequent] + [300 - sum(c[t] for t in frequent)] for c in counts]
    table = [row for row in zip(*table, strict=True) if sum(row)]
    assert len(table) > 1
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_a_warm_up_leaves_costs_and_no_acceptance():
    engine = engine_on()
    engine.warm_up()
    plan = SkipPlan.parse("1-2", 4)
    assert engine.experience.record("any").running.evidence == 0
    times = engine.experience.times(plan, 3, mode=engine.execution, window=4, slots=128)
    assert times == tuple(sorted(times))
    assert times != Experience(4).times(plan, 3, mode=engine.execution, window=4, slots=128)


# -- where verification starts ------------------------------------------------------------------

PLANS = ["none", "0", "1-2", "m1,3", "a2,m3", "a0-3", "m0-3"]


def resumed(engine, plan: str, temperature: float = 0.0, **values) -> Request:
    return request(engine, plan, temperature, verify_from="first_skipped", **values)


def test_what_rounds_from_the_first_skipped_branch_take_says_nothing_of_others(engine, monkeypatch):
    """A part of a window made drafts look so dear that `auto` never drafted again, for anybody."""
    drafted = []
    monkeypatch.setattr(
        Experience, "observe", lambda self, plan, outcome, **_: drafted.append(outcome.drafted)
    )
    for plan in ("2-3", "none"):
        engine.generate(resumed(engine, plan, k=3, max_new_tokens=24))
    assert not any(drafted)
    engine.generate(request(engine, "2-3", k=3, max_new_tokens=24))
    assert any(drafted)


@pytest.mark.parametrize("name", TINY)
def test_going_on_from_the_drafts_states_gives_the_same_tokens_and_logits(name):
    """In float32, in every family, with the boundary before and inside a layer."""
    engine = engine_on(name, end=None)
    for number, plan in enumerate(PLANS):
        one = resumed(engine, plan, 0.8 * (number % 2), k=3, seed=number, max_new_tokens=24)
        logits: dict[str, dict[int, torch.Tensor]] = {"fast": {}, "slow": {}}
        fast = engine.generate(one, on_logits=logits["fast"].__setitem__)
        slow = engine.generate(
            replace(one.plainly(), window=fast.start.window),
            on_logits=logits["slow"].__setitem__,
        )
        assert fast.tokens == slow.tokens
        for at, row in logits["slow"].items():
            torch.testing.assert_close(logits["fast"][at], row, rtol=0, atol=1e-4)


@pytest.mark.parametrize("plan", PLANS)
def test_branches_before_the_first_skipped_run_once_a_row(plan, monkeypatch):
    engine = engine_on(end=None)
    layout = [("attention", i) for i in range(4)] + [("mlp", i) for i in range(4)]
    calls: Counter = Counter()
    run, join = Branch.__call__, engine.decoder.join

    def counted(branch, h, context):
        calls[branch.kind, branch.layer] += h.shape[1]
        return run(branch, h, context)

    def counted_together(branches, h, context):
        branches = list(branches)
        calls.update({(branch.kind, branch.layer): h.shape[1] for branch in branches})
        return join(branches, h, context)

    one = resumed(engine, plan, k=3, max_new_tokens=24)
    generation = Generation(engine, one, engine.encode(one))
    list(generation.prefill())
    if join is None:  # no kernels here: each branch is called by itself
        monkeypatch.setattr(Branch, "__call__", counted)
    else:
        monkeypatch.setattr(engine.decoder, "join", counted_together)
    first = SkippedStack(engine.decoder, one.plan).first_skipped()
    while generation.reason is None:
        calls.clear()
        (done,) = of(generation.round(), Round)
        k = done.drafted
        assert done.reused == first * k
        if not k:
            continue
        for kind, layer in layout:
            early = 2 * layer + (kind == "mlp") < first
            drafted = 0 if one.plan.skips(kind, layer) else k
            assert calls[kind, layer] == (k + 1 if early else drafted + generation._window)


def test_the_cache_covers_the_prefix_between_rounds_and_after_an_exception(monkeypatch):
    engine = engine_on(end=None)
    one = resumed(engine, "m1,3", 0.8, k=3, max_new_tokens=30)
    generation = Generation(engine, one, engine.encode(one))
    list(generation.prefill())
    for _ in range(3):
        list(generation.round())
        assert generation.cache.length == len(generation.prefix) - 1
    with monkeypatch.context() as patch:
        patch.setattr(engine.decoder, "readout", lambda h: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(generation.round())
    assert generation.cache.length == len(generation.prefix) - 1
    while generation.reason is None:
        list(generation.round())
    slow = engine.generate(replace(one.plainly(), window=generation._window))
    assert tuple(generation.written) == slow.tokens


@pytest.mark.parametrize("rule", ["coupled", "rejection", "threshold", "typical"])
@pytest.mark.parametrize("policy", ["confidence", "auto"])
def test_it_goes_with_every_rule_and_policy(rule, policy, monkeypatch):
    engine = engine_on(end=None)
    pretend(engine, monkeypatch, 0.2)
    one = resumed(engine, "2", 0.8, k=5, rule=rule, draft_policy=policy, max_new_tokens=30)
    generated = engine.generate(one)
    usual = engine.generate(replace(one, verify_from="start"))
    assert len(generated.tokens) == 30
    if policy == "confidence":  # the same rounds, so the same draws
        assert generated.tokens == usual.tokens
    assert generated.done.reused > 0
    assert usual.done.reused == 0


def test_the_trace_and_the_check_say_what_is_given_up():
    engine = engine_on(end=None)
    one = resumed(engine, "2", k=3, max_new_tokens=24)
    generated = engine.generate(one)
    assert generated.start.verify_from == "first_skipped"
    assert generated.done.reused == sum(r.reused for r in of(generated.events, Round)) > 0
    assert tuple(from_ndjson(to_ndjson(generated.events))) == generated.events
    figures = summary(list(check(engine, [one], speed=False)))
    assert (figures["promised"], figures["verify_from"]) == (False, "first_skipped")
    assert figures["reused"] == generated.done.reused
    usual = summary(list(check(engine, [replace(one, verify_from="start")], speed=False)))
    assert usual["promised"]


def test_a_trace_from_before_these_fields_is_still_read(engine):
    generated = engine.generate(request(engine, max_new_tokens=8))
    lines = []
    for event in generated.events:
        line = event.to_json()
        for field in (',"verify_from":"start"', ',"reused":0'):
            line = line.replace(field, "")
        lines.append(line)
    assert "reused" not in "".join(lines)
    assert tuple(from_ndjson("\n".join(lines))) == generated.events
    assert {Start, Draft, Round, Done} <= {type(event) for event in generated.events}


def test_a_drafter_without_states_is_refused_with_what_is_allowed(engine, monkeypatch):
    propose = SkippedStack.propose

    def tree(self, *arguments, **options) -> Proposal | None:
        proposal = propose(self, *arguments, **options)
        return None if proposal is None else replace(proposal, drafter="tree", states=None)

    monkeypatch.setattr(SkippedStack, "propose", tree)
    with pytest.raises(RequestError, match=r"'tree' keeps no states.*must be 'start'"):
        engine.generate(resumed(engine, "1"))


@pytest.mark.parametrize("name", ["gpt_neox", "phi", "cohere"])
def test_a_layer_whose_branches_read_its_input_together_is_taken_whole(name):
    engine = engine_on(name)
    assert SkippedStack(engine.decoder, SkipPlan.parse("m2", 4)).first_skipped() == 4
    h, context = engine.decoder.enter(torch.tensor([5, 6]))
    with pytest.raises(ValueError, match="together"):
        engine.decoder.run_branches(h, context, 0, 5)
