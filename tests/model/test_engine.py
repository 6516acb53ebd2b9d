"""The round on tiny models: nothing is lost, whatever the rule, the length or the accident."""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from scipy import stats

from selfspec_core.cache import KVCache
from selfspec_core.engine import RequestError
from selfspec_core.events import Commit, Draft, Round, Verdict, from_ndjson, to_ndjson
from selfspec_core.generation import Generation
from selfspec_core.plan import LengthSchedule, SkipPlan
from selfspec_core.request import Request
from selfspec_core.runtime import probe
from selfspec_core.sampling import Sampling

from .engines import BYTES, engine_on, request
from .tiny import TINY

PLANS = ["none", "1", "a0-3", "a1,m2,3"]


@pytest.fixture(scope="module")
def engine():
    return engine_on(end=None)


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def plain(engine, one: Request, window: int):
    return engine.generate(replace(one, k=0, window=window, confidence=None))


# -- nothing is lost -------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_output_is_identical_to_plain_decoding_in_every_family(name, temperature):
    """Cases 12, 13: also far past a sliding window of 6, also with all attention skipped."""
    engine = engine_on(name, end=None)
    for plan, k in zip(PLANS, (1, 3, 5, 8), strict=True):
        one = request(engine, plan, temperature, k=k, seed=k, max_new_tokens=40)
        fast = engine.generate(one)
        assert fast.tokens == plain(engine, one, fast.start.window).tokens


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_the_same_seed_gives_the_same_text_for_every_k_of_one_window(engine, temperature):
    """Case 17: the noise has no state, and a round without drafts advances nothing."""
    texts = {
        engine.generate(request(engine, "1", temperature, k=k, window=12, seed=7)).tokens
        for k in range(9)
    }
    assert len(texts) == 1


def test_where_the_width_changes_the_bits_one_width_serves_every_k():
    engine = engine_on()
    assert [engine.window_for(k) for k in (0, 3, 4, 16)] == [4, 4, 8, 20]
    found = replace(engine.probe((4, 8)), any_rows=False)  # as eager modules on most processors
    engine.guarantee = replace(found, widths=True)
    assert engine.window_for(4) == 8
    engine.guarantee = replace(found, widths=False)
    assert {engine.window_for(k) for k in range(17)} == {20}


def test_the_probe_notices_rows_that_differ(engine, monkeypatch):
    """Case 14: it measures; it doesn't believe."""
    readout = engine.decoder.readout

    def uneven(h):
        logits = readout(h).clone()
        logits[:, 1:] += 1e-6
        return logits

    monkeypatch.setattr(engine.decoder, "readout", uneven)
    broken = probe(engine.decoder, (4,))
    assert not broken.exact
    assert broken.worst[4] > 0
    assert "near-ties" in broken.sentence()


def test_another_seed_gives_another_text(engine):
    texts = {
        engine.generate(request(engine, temperature=1.0, seed=seed)).tokens for seed in range(4)
    }
    assert len(texts) == 4


SAMPLINGS = {
    "top-k": Sampling(temperature=1.0, top_k=5),
    "top-p": Sampling(temperature=1.3, top_p=0.7),
    "min-p": Sampling(temperature=1.0, min_p=0.1),
    "repetition": Sampling(repetition_penalty=1.5),
    "presence": Sampling(temperature=0.8, presence_penalty=2.0),
    "bias": Sampling(temperature=1.0, logit_bias=((9, 4.0), (10, -100.0))),
    "processor": Sampling(processors=(lambda ids, scores: scores - 3 * (scores == scores.max()),)),
    "all": Sampling(
        temperature=0.9,
        top_k=50,
        top_p=0.95,
        min_p=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.5,
    ),
}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_output_is_identical_with_every_way_of_sampling(engine, name):
    """Cases 3, 4, 5: every row, the bonus row too, is processed as in plain decoding."""
    one = request(engine, "1", sampling=SAMPLINGS[name], k=4, max_new_tokens=40)
    fast = engine.generate(one)
    assert fast.tokens == plain(engine, one, 8).tokens
    assert fast.done.accepted > 0  # or the window's later rows weren't looked at
    unprocessed = replace(one, sampling=Sampling(temperature=one.sampling.temperature))
    assert fast.tokens != engine.generate(unprocessed).tokens


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_plain_greedy_decoding_is_what_transformers_generates(engine, penalty):
    one = request(engine, k=0, sampling=Sampling(repetition_penalty=penalty))
    ids = torch.tensor([engine.encode(one)])
    theirs = engine.loaded.model.generate(
        ids, max_new_tokens=24, do_sample=False, repetition_penalty=penalty, pad_token_id=0
    )
    assert list(engine.generate(one).tokens) == theirs[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("minimum", [0, 5, 6, 7, 12])
def test_a_minimum_length_masks_the_end_by_each_rows_own_length(engine, minimum):
    """Case 6: the text ends at the first end token that is allowed, not one off."""
    reference = engine.generate(request(engine, k=0, max_new_tokens=40)).tokens
    end = engine_on(end=reference[6])
    one = request(end, k=5, max_new_tokens=40, sampling=Sampling(min_new_tokens=minimum))
    fast = end.generate(one)
    assert fast.tokens == plain(end, one, 8).tokens
    if minimum <= 6:
        assert fast.tokens == reference[: reference.index(reference[6]) + 1] or minimum > 0
    assert reference[6] not in fast.tokens[:minimum]


SEEDS = 1000


def test_rejection_writes_the_targets_law():
    """Chi-square of two-token texts over many seeds against the model's own law."""
    engine = engine_on(vocab_size=6, end=None)
    engine.vocab_size = 6
    base = request(
        engine, "1-3", 1.5, k=2, max_new_tokens=3, rule="rejection", prompt="", prompt_ids=(2, 3, 4)
    )
    counts = Counter(engine.generate(replace(base, seed=seed)).tokens[:2] for seed in range(SEEDS))
    law = {}
    first = torch.softmax(engine.decoder.logits(torch.tensor([2, 3, 4]))[0, -1] / 1.5, -1)
    for a in range(6):
        logits = engine.decoder.logits(torch.tensor([2, 3, 4, a]))[0, -1]
        second = torch.softmax(logits / 1.5, -1)
        law.update({(a, b): float(first[a] * second[b]) for b in range(6)})
    common = [pair for pair in law if law[pair] * SEEDS >= 5]
    seen = [counts[pair] for pair in common] + [SEEDS - sum(counts[p] for p in common)]
    expected = [SEEDS * law[pair] for pair in common]
    expected.append(SEEDS - sum(expected))
    assert stats.chisquare(seen, expected).pvalue > 1e-3
    uniform = [sum(seen) / len(seen)] * len(seen)
    assert stats.chisquare(seen, uniform).pvalue < 1e-6  # a wrong law is noticed


# -- where it ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 2, 7, 16])
@pytest.mark.parametrize("budget", [0, 1, 2, 19])
def test_budgets_are_exact(engine, k, budget):
    """Case 8, and the draft length above what is left of case 30."""
    done = engine.generate(request(engine, "none", k=k, max_new_tokens=budget)).done
    assert len(done.tokens) == budget
    assert done.reason == "length"


@pytest.mark.parametrize("at", range(1, 10))
def test_the_first_end_token_ends_everything_also_in_mid_window(at):
    """Case 7: in ids, text, commits and figures alike."""
    reference = engine_on(end=None)
    whole = reference.generate(request(reference, "none", k=5)).tokens
    engine = engine_on(end=whole[at])
    generated = engine.generate(request(engine, "none", k=5))
    assert generated.tokens == whole[: whole.index(whole[at]) + 1]
    assert generated.done.reason == "eos"
    commits = of(generated.events, Commit)
    assert [commit.token for commit in commits] == list(generated.tokens)
    assert "".join(commit.text for commit in commits) == generated.text
    accepted = [v for v in of(generated.events, Verdict) if v.status == "accepted"]
    assert len(accepted) == generated.done.accepted <= len(generated.tokens)


def test_a_model_without_an_end_token_ends_by_length(engine):
    """Case 9."""
    assert engine.end_ids == ()
    assert engine.generate(request(engine)).done.reason == "length"


@pytest.mark.parametrize("k", [0, 1, 5])
def test_the_token_that_completes_a_stop_string_is_the_last_one(engine, k):
    """Case 10: ids, text, probabilities and events are cut at the same token."""
    whole = engine.generate(request(engine, "none", k=0, temperature=1.0)).text
    stop = whole[4:7]
    generated = engine.generate(request(engine, "none", k=k, temperature=1.0, stop=(stop,)))
    assert generated.done.reason == "stop"
    assert generated.text.endswith(stop)
    assert stop not in generated.text[:-1]
    assert whole.startswith(generated.text)
    commits = of(generated.events, Commit)
    assert "".join(c.text for c in commits) == generated.text
    assert tuple(c.token for c in commits) == generated.tokens


@pytest.mark.parametrize("seed", range(6))
def test_streamed_text_is_the_whole_decode_of_split_characters(engine, seed):
    """Case 18: random bytes, so nearly every character is broken or spans tokens."""
    generated = engine.generate(request(engine, temperature=2.0, seed=seed, max_new_tokens=60))
    deltas = [commit.text for commit in of(generated.events, Commit)]
    assert "".join(deltas) == engine.tokenizer.decode(list(generated.tokens)) == generated.text


def test_an_emoji_of_four_tokens_arrives_whole(engine):
    ids = engine.tokenizer("🙂x")["input_ids"]
    prompt = len(engine.encode(request(engine)))

    def force(seen, scores):
        forced = torch.full_like(scores, -torch.inf)
        forced[ids[len(seen) - prompt]] = 0.0
        return forced

    sampling = Sampling(processors=(force,))
    generated = engine.generate(request(engine, "none", sampling=sampling, max_new_tokens=5))
    assert [c.text for c in of(generated.events, Commit)] == ["", "", "", "🙂", "x"]


def test_an_embedding_padded_past_the_vocabulary_gives_no_id_outside_it():
    """Case 15."""
    engine = engine_on(vocab_size=BYTES + 90, end=None)
    for rule in ("coupled", "rejection"):
        one = request(engine, temperature=2.0, rule=rule, max_new_tokens=60)
        assert max(engine.generate(one).tokens) < BYTES


# -- the cache -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize("plan", PLANS)
def test_the_cache_is_one_short_of_the_prefix_after_every_round(engine, k, plan):
    """Case 11: for every k and every number of accepted drafts."""
    one = request(engine, plan, 0.7, k=k, max_new_tokens=40)
    generation = Generation(engine, one, engine.encode(one))
    list(generation.prefill())
    accepted = set()
    while generation.reason is None:
        events = list(generation.round())
        assert generation.cache.length == len(generation.prefix) - 1
        accepted.add(of(events, Round)[0].accepted)
    if plan == "none":
        assert k in accepted


@pytest.mark.parametrize("fails_at", range(1, 8))
def test_an_exception_in_mid_round_leaves_everything_right(engine, fails_at, monkeypatch):
    """Cases 11, 24: the cache's invariant, the model's config, and the next request."""
    one = request(engine, k=3, temperature=0.8)
    expected = engine.generate(one).tokens
    config = copy.deepcopy(engine.loaded.model.config.to_dict())
    generation = Generation(engine, one, engine.encode(one))
    list(generation.prefill())
    calls = 0
    readout = engine.decoder.readout

    def failing(h):
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise RuntimeError("out of memory, say")
        return readout(h)

    monkeypatch.setattr(engine.decoder, "readout", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        _rounds(generation, 3)
    assert generation.cache.length == len(generation.prefix) - 1
    monkeypatch.undo()
    while generation.reason is None:  # the very same generation can go on
        list(generation.round())
    assert tuple(generation.written) == expected
    assert engine.generate(one).tokens == expected
    assert engine.loaded.model.config.to_dict() == config


def _drain(stream, events):
    for event in stream:
        events.append(event)


def _rounds(generation, n):
    for _ in range(n):
        list(generation.round())


def test_an_error_ends_the_trace_before_it_is_raised(engine, monkeypatch):
    monkeypatch.setattr(engine.decoder, "readout", lambda h: 1 / 0)
    events = []
    stream = engine.stream(request(engine))
    with pytest.raises(ZeroDivisionError):
        _drain(stream, events)
    assert events[-1].reason == "error"
    assert "division" in events[-1].message


def test_the_draft_reads_the_targets_own_keys_and_values(engine):
    """Case 20: a draft that skips nothing is always right; any other reads the same prefix."""
    whole = engine.generate(request(engine, "none", 0.9, k=4, max_new_tokens=41))
    assert whole.done.alpha == 1.0
    assert whole.done.tau == pytest.approx(41 / 9)
    one = request(engine, "1,a2")
    ids = engine.encode(one)
    generation = Generation(engine, one, ids)
    list(generation.prefill())
    draft = of(generation.round(), Draft)[0]
    cache = KVCache(engine.n_layers, 64)
    engine.decoder.forward(torch.tensor(ids[:-1]), cache=cache)
    cache.advance(len(ids) - 1)
    last = engine.decoder.logits(torch.tensor(ids[-1:]), cache=cache, plan=one.plan)[0, 0]
    assert draft.token == int(last.argmax())
    assert draft.q == pytest.approx(float(torch.softmax(last, -1).max()), abs=1e-6)


# -- figures, policies, people ---------------------------------------------------------------


@pytest.mark.parametrize("rule", ["coupled", "rejection", "threshold", "typical"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tau_and_alpha_are_what_their_definitions_say(engine, rule, temperature):
    """Case 23: τ = committed ÷ verification forwards, prefill not counted."""
    forwards = []
    forward = engine.decoder.forward
    generated = None
    try:
        engine.decoder.forward = lambda rows, **o: (
            forwards.append(o.get("plan")),
            forward(rows, **o),
        )[1]
        generated = engine.generate(request(engine, "1", temperature, rule=rule, k=3))
    finally:
        del engine.decoder.forward
    done = generated.done
    verified = sum(plan is None for plan in forwards) - 1  # one of them read the prompt
    assert done.tau == pytest.approx(len(done.tokens) / verified)
    rounds = of(generated.events, Round)
    assert len(rounds) == verified == done.rounds
    assert sum(r.committed for r in rounds) == len(done.tokens)
    verdicts = of(generated.events, Verdict)
    assert done.drafted == len(verdicts) == len(of(generated.events, Draft))
    assert done.alpha == sum(v.status == "accepted" for v in verdicts) / len(verdicts)


def test_after_a_rejection_under_threshold_the_next_token_is_decoded_plainly(engine):
    generated = engine.generate(
        request(engine, "1-2", 1.0, rule="threshold", k=3, max_new_tokens=60)
    )
    rounds = of(generated.events, Round)
    rejected = {v.round for v in of(generated.events, Verdict) if v.status == "rejected"}
    assert rejected
    for r in rounds[:-1]:
        following = rounds[r.round + 1]
        assert (following.drafted == 0) == (r.round in rejected) or following is rounds[-1]


def test_confidence_stops_after_an_unlikely_token_which_is_kept(engine):
    generated = engine.generate(request(engine, "1", 1.0, k=8, confidence=0.3, max_new_tokens=60))
    stopped = 0
    drafts = of(generated.events, Draft)
    for r in of(generated.events, Round)[:-2]:
        own = [d for d in drafts if d.round == r.round]
        assert all(d.q >= 0.3 for d in own[:-1])
        stopped += len(own) < 8
        assert own[-1].q < 0.3 or len(own) == 8
    assert stopped
    one = request(engine, "1", 1.0, k=8, confidence=0.3, max_new_tokens=60)
    assert generated.tokens == plain(engine, one, 12).tokens


def test_a_length_schedule_is_followed_while_the_text_grows(engine):
    short, long = SkipPlan.parse("1", 4), SkipPlan.parse("1-2", 4)
    prompt = len(engine.encode(request(engine)))
    schedule = LengthSchedule(((0, short), (prompt + 10, long)))
    one = replace(request(engine, k=2, max_new_tokens=30), plan=schedule)
    generated = engine.generate(one)
    length = prompt
    for r in of(generated.events, Round):
        assert r.plan == str(short if length < prompt + 10 else long)
        length += r.committed
    assert generated.tokens == plain(engine, one, 4).tokens


def test_two_people_at_once_with_different_plans_get_what_they_would_get_alone(engine):
    """Case 25."""
    requests = [
        request(engine, "1", 0.8, seed=1, k=4, rule="rejection"),
        request(engine, "a0-3", 0.8, seed=2, k=2, rule="rejection"),
        request(engine, "none", 0.0, k=7, prompt="Quite another text"),
    ]
    alone = [engine.generate(one).tokens for one in requests]
    streams = {i: engine.stream(one) for i, one in enumerate(requests)}
    written: dict[int, list[int]] = {i: [] for i in streams}
    while streams:
        for i, stream in list(streams.items()):
            event = next(stream, None)
            if event is None:
                del streams[i]
            elif isinstance(event, Commit):
                written[i].append(event.token)
    assert [tuple(tokens) for tokens in written.values()] == alone


def test_cancelling_ends_at_the_next_round(engine):
    seen = []

    def cancelled() -> bool:
        return len(of(seen, Round)) >= 2

    for event in engine.stream(request(engine, max_new_tokens=200), cancelled):
        seen.append(event)
    assert seen[-1].reason == "cancelled"
    assert len(of(seen, Round)) == 2
    assert [c.token for c in of(seen, Commit)] == list(seen[-1].tokens)


# -- what a person may give ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        ({"k": 40}, "0–16"),
        ({"prompt": ""}, "empty"),
        ({"prompt": " \n"}, "empty"),
        ({"prompt": "x" * 600}, "511 at most"),
        ({"prompt": "", "prompt_ids": (1, 9999)}, "257"),
        ({"prompt": ["a", "b"]}, "batches aren't supported"),
        ({"chat": True}, "chat template"),
        ({"plan": SkipPlan(30)}, "4"),
        ({"window": 2}, "4 rows"),
        ({"rule": "guess"}, "coupled"),
        ({"stop": ("",)}, "empty"),
        ({"max_new_tokens": -1}, "0 or more"),
    ],
)
def test_what_cant_be_served_is_refused_with_what_is_allowed(engine, wrong, allowed):
    """Cases 19, 30."""
    one = request(engine)
    with pytest.raises(RequestError, match=allowed):
        engine.generate(replace(one, **wrong))


@pytest.mark.parametrize("k", [1, 3, 16])
@pytest.mark.parametrize("n_prompt", [1, 2, 500, 511])
def test_prompts_of_any_length_that_fits_work_up_to_the_end_of_the_context(k, n_prompt):
    """Case 30: one token, and a draft length above what is left of the context."""
    engine = engine_on("gpt2", end=None)  # learned positions have an end
    ids = tuple(2 + i % 250 for i in range(n_prompt))
    one = request(engine, "1", k=k, prompt="", prompt_ids=ids, max_new_tokens=30)
    generated = engine.generate(one)
    assert len(generated.tokens) == min(30, 512 - n_prompt)
    assert generated.tokens == plain(engine, one, generated.start.window).tokens


# -- the trace -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["coupled", "rejection", "threshold", "typical"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_every_verdict_follows_from_its_own_numbers(engine, rule, temperature):
    sampling = Sampling(temperature=temperature, top_p=0.9 if temperature else 1.0)
    generated = engine.generate(
        request(engine, "1", sampling=sampling, rule=rule, k=4, max_new_tokens=60, threshold=0.2)
    )
    trace = list(from_ndjson(to_ndjson(generated.events)))
    assert trace == list(generated.events)
    redo(trace)


def test_a_greedy_draft_under_rejection_is_judged_by_its_one_hot_law(engine):
    """Case 1, live: the trace says q = 1, and its verdicts follow from that."""
    one = request(engine, "1", 1.0, rule="rejection", draft_temperature=0.0, max_new_tokens=60)
    generated = engine.generate(one)
    assert {draft.q for draft in of(generated.events, Draft)} == {1.0}
    assert {v.q for v in of(generated.events, Verdict)} == {1.0}
    redo(list(generated.events))


def redo(trace) -> None:
    """Redo every decision of a trace from the numbers it carries."""
    start = trace[0]
    greedy = start.sampling["temperature"] == 0
    commits = {c.position: c for c in of(trace, Commit)}
    running: dict[int, bool] = {}
    last_round = of(trace, Round)[-1].round
    for v in of(trace, Verdict):
        if greedy or start.rule in ("coupled",):
            passes = v.token == v.choice
        elif start.rule == "rejection":
            passes = v.u < v.p / v.q
        else:
            passes = v.judged >= v.bound
        if greedy and start.rule == "threshold":
            passes = passes and v.judged >= v.bound
        if v.p > 0:
            assert v.offset == pytest.approx(math.log(v.p) - math.log(v.q), abs=1e-4)
        if not greedy and start.rule == "coupled":
            scored = {c.token: math.log(c.p) + c.noise for c in v.top if c.p > 0}
            chosen = math.log(v.choice_p) + v.choice_noise
            assert chosen >= max(scored.values()) - 1e-5
            if v.p > 0:
                assert (math.log(v.p) + v.noise >= chosen - 1e-5) == (v.token == v.choice)
        assert v.rank >= 1
        assert (v.rank == 1) == (v.top[0].p <= v.p + 1e-9)
        so_far = running.get(v.round, True)
        if v.status == "accepted":
            assert so_far
            assert passes
            assert commits[v.position].token == v.token
            assert commits[v.position].source == "draft"
        elif v.status == "rejected":
            assert so_far
            assert not passes
            correction = commits[v.position]
            assert correction.source == "correction"
            if v.residual is None:
                assert correction.token == v.choice
            else:
                drawn = {c.token: math.log(c.p) + c.noise for c in v.residual.top if c.p > 0}
                if correction.token in drawn:
                    assert max(drawn, key=drawn.get) == correction.token
                total = sum(c.p for c in v.residual.top) + v.residual.rest
                assert total == pytest.approx(1, abs=1e-4)
        else:
            assert not so_far or v.round == last_round
        running[v.round] = so_far and passes
