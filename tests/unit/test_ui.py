"""The page's parts without a browser or a model: feed, settings, plans, sentences, recordings."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec_core.events import Commit, Done, Round, Start, TraceError, Wait, to_ndjson
from selfspec_core.plan import PRESETS, LengthSchedule, PlanError, SkipPlan
from tests import loops
from ui import explain, plan_view
from ui.errors import said
from ui.feed import WINDOW_UPDATES, TraceFeed
from ui.recorded import WELCOME, read_recording
from ui.run import run
from ui.session import Studio
from ui.settings import Settings
from ui.status import ModelStatus, execution
from ui.studio import _status
from ui.words import say

LAYERS = 12


def start(**changes) -> Start:
    values = {
        "model": {"id": "org/tiny", "n_layers": LAYERS, "device": "cpu", "dtype": "float32"},
        "plan": "4-6",
        "k": 2,
        "policy": "fixed",
        "rule": "coupled",
        "lossless": True,
        "sampling": {},
        "seed": 0,
        "window": 4,
        "max_new_tokens": 8,
        "prompt": "hello",
        "prompt_ids": (1, 2),
    }
    known = Start.__dataclass_fields__
    if "threshold" in known:
        values["threshold"] = None
    if "draft_temperature" in known:
        values["draft_temperature"] = 0.0
    return Start(**values | changes)


def done(**changes) -> Done:
    values = {
        "reason": "length",
        "text": "abcd",
        "tokens": (5, 6, 7, 8),
        "tau": 2.0,
        "alpha": 0.5,
        "drafted": 4,
        "accepted": 2,
        "rounds": 2,
        "prefill_seconds": 0.1,
        "seconds": 0.4,
        "tokens_per_second": 10.0,
        "peak_memory_mb": 1.0,
        "weights_mb": 1.0,
    }
    return Done(**values | changes)


def commit(number: int, text: str = "a") -> Commit:
    return Commit(round=number, position=number, token=5, text=text, source="plain")


def a_round(number: int) -> Round:
    return Round(
        round=number,
        drafted=0,
        accepted=0,
        committed=1,
        plan="none",
        draft_ms=0.0,
        verify_ms=1.0,
        other_ms=0.0,
    )


def taken(values: list[str]) -> list[dict]:
    """What a browser that renders these values has seen in the end (as assets/store.js)."""
    seen: list[dict] = []
    for value in values:
        head, *lines = value.split("\n")
        known = len(seen) - json.loads(head)["first"]
        assert known >= 0, "a gap"
        seen += [json.loads(line) for line in lines[known:]]
    return seen


# -- feed -------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.data())
def test_a_browser_that_drops_up_to_seven_values_in_a_row_misses_nothing(rounds, data):
    feed, kept, dropped = TraceFeed(1), [], 0
    for number, size in enumerate(rounds):
        feed.add([*[commit(number)] * size, a_round(number)])
        value = feed.window()
        drop = dropped < WINDOW_UPDATES - 1 and data.draw(st.booleans())
        dropped = dropped + 1 if drop else 0
        if not drop:
            kept.append(value)
    kept.append(feed.whole())
    assert len(taken(kept)) == sum(rounds) + len(rounds)


def test_a_window_does_not_grow_with_the_text_and_the_whole_is_the_whole():
    feed, sizes = TraceFeed(1), []
    for number in range(200):
        feed.add([commit(number), a_round(number)])
        sizes.append(len(feed.window()))
    assert max(sizes[20:]) < 1.2 * sizes[20]
    assert len(taken([feed.whole()])) == 400


def test_no_value_holds_a_bracket_that_could_be_markup():
    feed = TraceFeed(1, prompt="<img onerror=alert(1)>")
    feed.add([commit(0, "<script>"), {"type": "note", "tone": "info", "text": "</script>"}])
    assert "<" not in feed.whole()
    lines = feed.whole().split("\n")
    assert json.loads(lines[0])["prompt"] == "<img onerror=alert(1)>"
    assert json.loads(lines[1])["text"] == "<script>"


def test_wait_events_never_get_into_a_trace():
    feed = TraceFeed(1)
    feed.add([Wait(place=1), commit(0), Wait(place=0)])
    assert [line["type"] for line in taken([feed.whole()])] == ["commit"]


# -- settings ---------------------------------------------------------------------------------


def test_settings_make_the_request_that_they_say():
    request = Settings(
        prompt="hi", plan="a3-5", k=4.0, temperature=0.5, seed=3, max_new_tokens=9, stop="x\n\ny"
    ).request(LAYERS)
    assert (request.k, request.seed, request.max_new_tokens) == (4, 3, 9)
    assert request.plan == SkipPlan(LAYERS, {3, 4, 5})
    assert request.sampling.temperature == 0.5
    assert request.stop == ("x", "y")
    assert request.confidence is None
    assert request.draft_temperature is None
    assert Settings(prompt="hi", draft_temperature=0.3).request(LAYERS).draft_temperature == 0.3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": " \n"}, "prompt is empty"),
        ({"prompt": None}, "prompt is empty"),
        ({"k": 17}, "k must be 0–16"),
        ({"k": None}, "k must be a whole number from 0 to 16, got None"),
        ({"k": 2.5}, "k must be a whole number"),
        ({"seed": float("inf")}, "seed must be a whole number"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"max_new_tokens": 5000}, "length must be 0–4096"),
        ({"plan": ""}, "plan is empty"),
        ({"rule": "other"}, "unknown rule"),
        ({"top_p": 0}, "top_p must be"),
        ({"confidence": 2}, "onfidence"),
        ({"draft_temperature": "warm"}, "draft temperature must be a number"),
        ({"draft_temperature": 11}, "draft temperature"),
    ],
)
def test_a_bad_setting_is_refused_with_what_is_allowed(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(**{"prompt": "hi", **changes}).request(LAYERS)


# -- plans ------------------------------------------------------------------------------------

branches = st.frozensets(st.integers(0, LAYERS - 1), max_size=LAYERS - 1)
plans = st.builds(lambda a, m: SkipPlan(LAYERS, a, m), branches, branches)


def test_presets_are_recognised_and_shallow_models_get_what_their_depth_allows():
    for name in PRESETS:
        assert plan_view.preset_of(SkipPlan.preset(name, 30)) == name
    assert plan_view.preset_of(SkipPlan.parse("a3", 30)) is None
    assert plan_view.preset_of(SkipPlan.preset("standard", 8), "standard") == "standard"
    assert plan_view.from_preset("by length", 64, 30) == LengthSchedule.standard(30, boundary=64)
    assert plan_view.from_preset("by length", 64, 4).at(100) == SkipPlan.from_ratio(0.25, 4)
    assert plan_view.from_percent(80, 4) == SkipPlan.from_ratio(0.25, 4)
    with pytest.raises(PlanError, match="whole number"):
        plan_view.from_preset("by length", None, 30)


# -- sentences --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "result", "part"),
    [
        ({"k": 0}, {"drafted": 0, "accepted": 0}, "k is 0"),
        ({"plan": "none"}, {}, "No layer is skipped"),
        ({}, {"accepted": 0}, "None of the 4 drafted tokens was right"),
        ({"policy": "confidence:0.9"}, {"drafted": 0, "accepted": 0}, "as sure as 0.9"),
        ({}, {"drafted": 0, "accepted": 0, "tokens": (1,)}, "1 token was written"),
        ({"max_new_tokens": 0}, {"tokens": ()}, "length is 0"),
        ({}, {"tokens": (), "reason": "eos"}, "ended its answer at once"),
    ],
)
def test_the_page_says_why_there_is_nothing_to_see(request_, result, part):
    """Case 26."""
    assert part in say(explain.nothing_to_see(start(**request_), done(**result)))


def test_nothing_is_explained_where_there_is_something_to_see():
    assert explain.nothing_to_see(start(), done()) is None
    assert explain.lossy(start()) is None
    assert "lossy" in say(explain.lossy(start(rule="typical", lossless=False)))


def test_a_slow_down_is_called_one():
    assert say(explain.against_plain(0.8, 20.0)).startswith(
        "slower than plain decoding here, 0.80×"
    )
    assert say(explain.against_plain(1.0, 20.0)).startswith("as fast as")
    assert say(explain.against_plain(1.5, 20.0)).startswith("faster than")


def test_identity_is_said_promised_or_not():
    def identity(mine, plain, promised=True):
        return say(explain.identity(mine, plain, promised=promised))

    assert "✓" in identity((1, 2), (1, 2))
    assert "from token 2 on, which should not happen" in identity((1, 2), (1, 3))
    assert "does not promise" in identity((1, 2), (1, 3), promised=False)
    assert "from token 3 on" in identity((1, 2), (1, 2, 3))


def test_models_go_by_their_own_name():
    assert explain.model_name({"id": "builtin", "source": "SmolLM2 (Apache) from"}) == "SmolLM2"
    assert explain.model_name({"id": "/home/me/secret/gpt2/"}) == "gpt2"


# -- recordings -------------------------------------------------------------------------------


def test_the_shipped_recording_is_a_whole_trace_of_a_real_run():
    recording = read_recording()
    head, *lines = recording.value.split("\n")
    header = json.loads(head)
    assert header["state"] == "recorded"
    assert header["prompt"]
    assert explain.model_name(recording.start.model) in say(header["message"])
    trace = [json.loads(line) for line in lines]
    finished = next(event for event in trace if event["type"] == "done")
    assert len(finished["tokens"]) == sum(event["type"] == "commit" for event in trace)
    assert finished["accepted"] > 0
    heat = next(event for event in trace if event["type"] == "heat")
    assert len(heat["attention"]) == recording.n_layers == len(heat["mlp"])
    assert next(event for event in trace if event["type"] == "baseline")["identical"] is True


def test_what_is_no_recording_is_refused(tmp_path):
    path = tmp_path / "empty.ndjson"
    path.write_text("")
    with pytest.raises(TraceError, match=r"empty\.ndjson holds no trace"):
        read_recording(path)


def test_a_trace_alone_can_be_played(tmp_path):
    path = tmp_path / "mine.ndjson"
    path.write_text(to_ndjson([start(), commit(0), a_round(0), done()]))
    assert json.loads(read_recording(path).value.split("\n")[0])["prompt"] == "hello"


def test_recordings_are_where_the_app_looks():
    assert WELCOME.exists()


# -- a run, on an engine made of events ---------------------------------------------------------


class EventsEngine:
    """Plays events instead of computing them."""

    n_layers = LAYERS
    default_k = 2
    guarantee = None

    def window_for(self, k):
        return 4 if k < 4 else 8

    def plain_window_for(self, k):
        return self.window_for(k)

    def __init__(self, fails: Exception | None = None, plain_tokens=(5, 6, 7, 8)) -> None:
        self.fails, self.plain_tokens, self.asked = fails, plain_tokens, []

    def stream(self, request, cancelled=lambda: False):
        self.asked.append(request)
        yield start(k=request.k, plan=str(request.plan or "none"))
        if self.fails:
            raise self.fails
        for number in range(4):
            yield commit(number)
            yield a_round(number)
        if request.k:
            yield done()
        else:
            speed = 20.0 if request.window == 1 else 16.0
            yield done(tokens=self.plain_tokens, drafted=0, accepted=0, tokens_per_second=speed)


@pytest.fixture
def studio():
    studio = Studio()
    studio.engine = EventsEngine()
    studio.loaded = SimpleNamespace(info=SimpleNamespace(n_layers=LAYERS))
    yield studio
    studio.close()


def played(studio, **settings) -> tuple[dict, list[dict]]:
    """Header and lines of the last value of a run."""

    async def read():
        return [v async for v in run(studio, Settings(**{"prompt": "hi", **settings}), owner="me")]

    values = loops.run(read())
    head, *lines = values[-1].split("\n")
    return json.loads(head), [json.loads(line) for line in lines]


def test_a_run_ends_with_the_measured_comparison(studio):
    header, lines = played(studio)
    assert header["state"] == "done"
    assert header["whole"]
    baseline = [line for line in lines if line["type"] == "baseline"][-1]
    assert baseline["speedup"] == 0.5
    assert baseline["identical"] is True
    assert "slower than plain decoding here, 0.50×" in say(baseline["text"])
    asked = [(request.k, request.window) for request in studio.engine.asked]
    assert asked == [(2, None), (0, 4), (0, 1)]  # counted against the faster plain decoding


def test_plain_decoding_is_measured_once_for_all_plans_of_a_prompt_and_seed(studio):
    played(studio)
    played(studio, plan="3-5")
    played(studio, k=3)
    assert [request.k for request in studio.engine.asked] == [2, 0, 0, 2, 3]
    played(studio, seed=1)
    played(studio, k=5)  # another window
    assert [request.k for request in studio.engine.asked][5:] == [2, 0, 0, 5, 0, 0]


def test_a_text_that_differs_is_said_to_differ(studio):
    studio.engine.plain_tokens = (5, 6, 9)
    _, lines = played(studio)
    baseline = [line for line in lines if line["type"] == "baseline"][-1]
    assert baseline["identical"] is False
    assert "should not happen" in say(baseline["identity"])


def test_a_device_that_was_measured_inexact_says_near_ties(studio):
    studio.engine.plain_tokens = (5, 6, 9)
    studio.engine.guarantee = SimpleNamespace(exact=False)
    _, lines = played(studio)
    baseline = [line for line in lines if line["type"] == "baseline"][-1]
    assert "near-ties" in say(baseline["identity"])


def test_bad_settings_and_failures_become_sentences_and_the_next_run_is_fine(studio):
    header, lines = played(studio, k=40)
    assert header["state"] == "error"
    assert say(lines[-1]["text"]).startswith("k must be 0–16")
    good, studio.engine = studio.engine, EventsEngine(fails=ZeroDivisionError("oh"))
    header, lines = played(studio)
    assert header["state"] == "error"
    assert "The run failed (ZeroDivisionError: oh)" in say(lines[-1]["text"])
    studio.engine = good
    assert played(studio)[0]["state"] == "done"


def test_a_model_that_is_not_there_is_said_in_a_sentence(studio):
    studio.engine = None
    header, lines = played(studio)
    assert header["state"] == "error"
    assert lines[-1]["text"] == said(studio.status.text)


def test_a_slow_round_is_not_called_reading_the_prompt(studio):
    """Between slow rounds the page goes on saying how far it is."""

    class Slow(EventsEngine):
        def stream(self, request, cancelled=lambda: False):
            for event in super().stream(request, cancelled):
                yield event
                if event.type == "round" and event.round == 1 and request.k:
                    time.sleep(0.3)

    studio.engine = Slow()
    studio.scheduler.wait_seconds = 0.05

    async def read():
        return [v async for v in run(studio, Settings(prompt="hi"), owner="me")]

    headers = [json.loads(value.split("\n")[0]) for value in loops.run(read())]
    messages = [say(h["message"]) for h in headers if h["state"] == "running"]
    running = [message for message in messages if "round 2" in message]
    assert len(running) > 2
    assert not any("reading" in message for message in running)


def test_run_numbers_rise(studio):
    numbers = [studio.next_run() for _ in range(3)]
    assert numbers == sorted(set(numbers))


# -- the entry point ---------------------------------------------------------------------------


def test_importing_the_page_does_not_import_torch():
    """The page is up within a second because torch comes later, on the engine's thread."""
    code = "import sys, ui.session, ui.run, ui.recorded; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("building", "mode", "words", "shown"),
    [
        (True, "eager", "eager: kernels are being built for this machine", "being compiled"),
        (False, "compiled", "compiled: every branch in kernels", "compiled for this processor"),
        (False, "eager", "eager: as loaded; not compiled: no C++ compiler", "no C++ compiler"),
    ],
)
def test_the_page_says_how_forwards_are_executed_and_why(building, mode, words, shown):
    engine = SimpleNamespace(building=building, mode=mode, execution=words)
    assert shown in say(execution(engine))
    assert say(execution(engine), "zh") != say(execution(engine))
    studio = SimpleNamespace(
        engine=engine,
        status=ModelStatus("ready", "there"),
        model_name="tiny",
        n_layers=4,
        switchable=False,
    )
    told = json.loads(_status(studio))
    assert (told["execution"], told["compiling"]) == (execution(engine), building)
