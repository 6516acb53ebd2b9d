"""Hostile input, by the thousand: prompts, plans, plan files, traces, links, calls.

Nothing that anybody sends may crash, hang, run as code or answer with a stack trace: whatever
isn't right is refused with a sentence. Hypothesis makes what nobody would think of; these run
without a server, on the functions that stand under its endpoints. `tests/web/test_hostile_http.py`
sends a smaller set through the real one. Case 28 of the project's list (markup as text) is
tested in the browser, case 29 (a link carries its own settings only) in `tests/web`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfspec_core.events import TraceError, from_ndjson, to_ndjson
from selfspec_core.plan import PlanError, parse_plan
from selfspec_core.plan_files import PlanFile, PlanFileError
from selfspec_core.plan_formats import FORMATS, parse_foreign
from selfspec_core.request import Request
from selfspec_core.snippet import snippet
from ui.api_analysis import check_job, importance_job, search_job
from ui.api_files import exported
from ui.errors import said
from ui.feed import TraceFeed
from ui.layers_demand import DemandError, read_demand
from ui.limits import Limits
from ui.run import failure
from ui.settings import Settings
from ui.words import say

LAYERS = 12
EXAMPLES = 260  # of each of the nine kinds below: 2,340 in all
SLOWEST = 2.0  # seconds for one input; all of them are small
MANY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

CODE = [
    "<script>alert(1)</script>",
    "${window.owned=1}",
    "{{7*7}}",
    "__import__('os').system('true')",
    "'; import os; os._exit(1) #",
    '"""\nimport os\nos._exit(1)\n"""',
    "{0.__class__.__mro__}",
    "%s%n%x",
    "../../etc/passwd",
    "\x00",
    "\u202e\u2066",
    "\ud800",
    "a" * 5000,
    "\N{PILE OF POO}" * 300,
    "-" * 3000,
    "0-" * 1000,
    "9" * 5000,
    "a0-" + "9" * 400,
    "1e999%",
    "nan%;1:inf%",
    "-0%",
    "%",
    ";" * 500,
    "1" + ";1:1" * 300,
]
TEXT = st.one_of(
    st.sampled_from(CODE),
    st.text(max_size=60),
    st.text(st.characters(codec=None), max_size=30),  # lone surrogates too
    st.builds("".join, st.lists(st.sampled_from([*CODE[:12], "3-4", "a1", ",", " "]), max_size=6)),
)
NUMBER = st.one_of(
    st.integers(-3, 40),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**63, 2**64 - 1, -1, 0]),
    st.floats(),
    st.booleans(),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBER, TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NOTATION = st.one_of(
    TEXT, st.from_regex(r"\A([am]?\d{1,3}(-\d{1,3})?[,;:% ]?){1,8}\Z", fullmatch=False)
)


def survived(act: Callable[[], object], *refusals: type[Exception]) -> object | None:
    """The result, or None after one of the refusals: nothing else, not for long, and readable."""
    begin = time.perf_counter()
    result = None
    try:
        result = act()
    except refusals as error:
        told = str(error)
        assert told.strip()
        assert "Traceback" not in told
        assert "object at 0x" not in told
        assert len(told) < 4000
        assert " " in told, f"no sentence: {told}"
    assert time.perf_counter() - begin < SLOWEST
    return result


@MANY
@given(
    TEXT | JSON,
    st.dictionaries(
        st.sampled_from(
            [
                "plan",
                "k",
                "temperature",
                "rule",
                "seed",
                "max_new_tokens",
                "chat",
                "threshold",
                "top_k",
                "top_p",
                "min_p",
                "repetition_penalty",
                "presence_penalty",
                "confidence",
                "stop",
            ]
        ),
        JSON,
        max_size=5,
    ),
)
def test_a_call_of_generate_makes_a_request_or_is_refused(prompt, values):
    made = survived(lambda: Settings(prompt=prompt, **values).request(LAYERS, Limits()), ValueError)
    if made is not None:
        assert isinstance(made, Request)
        assert 0 <= made.k <= 16
        assert 0 <= made.max_new_tokens <= Limits().max_new_tokens
        made.prompt.encode()


@MANY
@given(NOTATION)
def test_a_plan_as_text_is_a_plan_or_is_refused(notation):
    plan = survived(lambda: parse_plan(notation, LAYERS), PlanError)
    if plan is not None:
        assert parse_plan(str(plan), LAYERS) == plan


def entries() -> dict:
    return json.loads(
        PlanFile(plan=parse_plan("3-4;64:30%", LAYERS), k=3, model="org/name").to_json()
    )


@MANY
@given(
    st.one_of(
        TEXT,
        JSON.map(lambda value: json.dumps(value)),
        st.tuples(st.sampled_from(sorted(entries())), JSON).map(
            lambda change: json.dumps({**entries(), change[0]: change[1]})
        ),
        st.integers(1, 400).map(lambda depth: "[" * depth * 100),
        st.text(max_size=20).map(lambda name: json.dumps({**entries(), name: 1})),
    )
)
def test_a_plan_file_is_read_or_refused_and_its_program_is_only_a_program(text):
    file = survived(lambda: PlanFile.from_json(text), PlanFileError)
    if file is None:
        return
    assert PlanFile.from_json(file.to_json()) == file
    program = snippet(file, name=file.model, prompt=file.model)
    compiled = compile(program, "draft.py", "exec")
    # Nothing but its own functions and constants: texts of the file stay inside literals.
    own = {"main", "MODEL", "PROMPT", "MAX_NEW_TOKENS", "PLAN", "sys", "Engine", "Commit", "Done",
           "load", "PlanFile", "from_json", "__name__", "__doc__"}  # fmt: skip
    allowed = own | {
        "selfspec_core.engine", "selfspec_core.events", "selfspec_core.loading",
        "selfspec_core.plan_files",
    }  # fmt: skip
    assert set(compiled.co_names) <= allowed


@pytest.mark.parametrize("value", ["a" * 6000, 10**3000, {"b" * 6000: "c" * 6000}])
@pytest.mark.parametrize("name", sorted(entries()))
def test_a_long_value_is_cut_in_the_message(name, value):
    survived(lambda: PlanFile.from_json(json.dumps({**entries(), name: value})), PlanFileError)


@MANY
@given(st.one_of(TEXT, JSON.map(json.dumps)), st.sampled_from([None, *FORMATS]), TEXT | st.none())
def test_another_projects_plan_is_read_or_refused(text, format, key):
    survived(lambda: parse_foreign(text, LAYERS, format=format, key=key), PlanFileError)


def trace() -> list[dict]:
    start = {
        "type": "start", "schema": 1, "model": {"id": "m", "n_layers": LAYERS}, "plan": "3-4",
        "k": 2, "policy": "fixed", "rule": "coupled", "threshold": None, "lossless": True,
        "sampling": {"temperature": 0.0}, "draft_temperature": 0.0, "seed": 0, "window": 4,
        "max_new_tokens": 8, "stop": [], "prompt": "a", "prompt_ids": [1],
    }  # fmt: skip
    commit = {
        "type": "commit", "round": 0, "position": 1, "token": 5, "text": "b", "source": "plain",
        "special": False, "p": 0.5,
    }  # fmt: skip
    return [start, commit]


def changed(number: int, name: str | None, value: object) -> str:
    lines = trace()
    line = lines[number]
    line[name if name is not None else sorted(line)[0]] = value
    return "\n".join(json.dumps(each) for each in lines)


@MANY
@given(
    st.one_of(
        TEXT,
        JSON.map(json.dumps),
        st.builds(
            changed,
            st.integers(0, 1),
            st.none()
            | st.sampled_from(
                [
                    "type",
                    "schema",
                    "model",
                    "plan",
                    "k",
                    "prompt",
                    "prompt_ids",
                    "text",
                    "token",
                    "source",
                    "round",
                    "position",
                    "p",
                    "stop",
                    "sampling",
                    "extra",
                ]
            ),
            JSON,
        ),
        st.integers(1, 300).map(lambda depth: '{"type":' * depth * 50),
    )
)
def test_a_trace_is_read_or_refused_and_is_never_markup(text):
    events = survived(lambda: list(from_ndjson(text)), TraceError)
    if events:
        assert list(from_ndjson(to_ndjson(events))) == [e for e in events if e.type != "wait"]
        feed = TraceFeed(1)
        feed.add(events)
        assert "<" not in feed.whole()


STUDIO = SimpleNamespace(limits=Limits(), ready=lambda: None)


@MANY
@given(JSON, JSON, JSON, st.sampled_from(["check", "search"]))
def test_check_and_search_are_made_or_refused(prompts, one, other, which):
    def make() -> object:
        if which == "check":
            return check_job(STUDIO, Settings(prompt="-", k=one, plan=other), prompts)
        asked = Settings(prompt="-", plan="none", max_new_tokens=48)
        return search_job(STUDIO, asked, prompts, seconds=one, method=other)

    survived(make, ValueError)


@MANY
@given(
    st.fixed_dictionaries(
        dict.fromkeys(
            ("prompts", "methods", "score", "plan", "max_new_tokens", "budget_seconds", "seed"),
            JSON,
        )
    )
)
def test_importance_is_made_or_refused(values):
    survived(lambda: importance_job(STUDIO, **values), ValueError)


INFO = SimpleNamespace(
    id="m", family="llama", n_layers=LAYERS, weights_hash="0", dtype="float32", device="cpu"
)
LOADED = SimpleNamespace(limits=Limits(), ready=lambda: None, loaded=SimpleNamespace(info=INFO))


@pytest.mark.parametrize("value", [None, True, "0", [], {}, -1, 1e400])
@pytest.mark.parametrize("name", sorted(entries()))
def test_every_entry_of_a_plan_file_may_be_anything_and_is_read_or_refused(name, value):
    text = json.dumps({**entries(), name: value})
    survived(lambda: PlanFile.from_json(text), PlanFileError)


@MANY
@given(NOTATION | JSON, JSON | st.sampled_from(["plan", "snippet", *FORMATS]), JSON, JSON, JSON)
def test_an_export_is_a_file_or_a_refusal(plan, format, k, confidence, key):
    file = survived(
        lambda: exported(LOADED, plan, format=format, k=k, confidence=confidence, key=key),
        ValueError,
    )
    if file is not None:
        assert "/" not in file["name"]
        compile(file["text"], "x", "exec") if format == "snippet" else json.loads(file["text"])


@MANY
@given(JSON, JSON, JSON)
def test_what_a_page_asks_of_the_layers_is_read_or_refused(sent, plan, prompt):
    refused: DemandError | None = None
    try:
        read_demand(sent, plan=plan, prompt=prompt)
    except DemandError as error:
        refused = error
    assert refused is None or say(said(refused), "zh")


@MANY
@given(TEXT)
def test_an_error_is_shown_as_a_sentence_whatever_stands_in_it(text):
    told = failure(ValueError(text))
    assert isinstance(say(told), str)
    assert isinstance(say(told, "zh"), str)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "9" * 1_000_000])
def test_what_is_deep_or_long_is_refused_at_once(text):
    survived(lambda: PlanFile.from_json(text), PlanFileError)
    survived(lambda: list(from_ndjson(text)), TraceError)
    survived(lambda: parse_foreign(text, LAYERS), PlanFileError)
    survived(lambda: parse_plan(text, LAYERS), PlanError)
    survived(lambda: Settings(prompt="a", plan=text).request(LAYERS), ValueError)
