"""The operator's limits: read, refused with a sentence in both languages, held at the gate."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec_core.scheduler import NOTHING, Load
from ui.errors import said
from ui.limits import PREFIX, Gate, LimitError, Limits, Visitor, visitor_of
from ui.settings import Settings
from ui.words import say

ROOT = Path(__file__).resolve().parents[2]
ANN, BOB = Visitor("ann", "10.0.0.1"), Visitor("bob", "10.0.0.1")


def load(*people, running=0, waiting=0, background=0) -> Load:
    return Load(
        running=running, waiting=waiting, background=background, turn_seconds=0.0, people=people
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- reading --------------------------------------------------------------------------------------


def test_limits_come_from_the_environment_and_options_go_before_it():
    environ = {"SELFSPEC_MAX_K": "4", "SELFSPEC_SECONDS": "2.5", "SELFSPEC_MODELS": "a, b/c ,"}
    limits = Limits.read(environ, ["max_k=8", "queue=3"])
    assert (limits.max_k, limits.seconds, limits.queue) == (8, 2.5, 3)
    assert limits.models == ("a", "b/c")
    assert limits.prompt_tokens == Limits().prompt_tokens


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("max_k=40", "max_k must be at most 16, got 40"),
        ("queue=0", "queue must be a whole number of at least 1, got 0"),
        ("queue=many", "queue must be a number, got 'many'"),
        ("seconds=nan", "seconds must be a number of at least 1, got nan"),
        ("per_minute=-1", "per_minute must be a whole number of at least 0"),
        ("no_such=1", "no limit 'no_such=1'"),
        ("queue", "no limit 'queue'"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_name(option, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        Limits.read({}, [option])


def test_the_hosting_page_names_every_limit_with_its_default():
    page = (ROOT / "docs" / "hosting.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(SELFSPEC_\w+)` \| ([^|]*) \|", page, re.MULTILINE))
    assert set(rows) == {PREFIX + each.name.upper() for each in fields(Limits)}
    for each in fields(Limits):
        told = rows[PREFIX + each.name.upper()].strip()
        assert told == ("any" if each.default == () else f"{each.default:g}"), each.name


# -- what a request may ask for -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "settings", "told"),
    [
        (Limits(max_new_tokens=10), {"max_new_tokens": 11}, "length must be 0–10 tokens, got 11"),
        (Limits(prompt_characters=5), {"prompt": "a fox"[:5] + "!"}, "6 characters"),
        (Limits(max_k=3), {"k": 4}, "k must be 0–3 on this server, got 4"),
    ],
)
def test_what_is_over_a_limit_is_refused_and_what_is_at_it_is_not(limits, settings, told):
    with pytest.raises(LimitError, match=told):
        Settings(**{"prompt": "a fox", **settings}).request(12, limits)
    at = {"max_new_tokens": 10, "k": 3}
    assert Settings(prompt="a fox", **at).request(12, limits).k == 3


def test_a_refusal_is_said_in_both_languages():
    error = LimitError("queue_full_for", n=64, seconds=12)
    assert said(error) == {"key": "limits.queue_full_for", "args": {"n": 64, "seconds": 12}}
    assert say(said(error)) == str(error)
    assert "64" in say(said(error), "zh")
    assert "12" in say(said(error), "zh")
    assert say(said(error), "zh") != str(error)


# -- the gate -------------------------------------------------------------------------------------


def refused(gate: Gate, visitor: Visitor, now: Load = NOTHING, **options) -> str | None:
    try:
        gate.admit(visitor, now, **options)
    except LimitError as error:
        return error.code
    return None


def test_a_full_queue_refuses_and_says_for_how_long():
    gate = Gate(Limits(queue=4))
    assert refused(gate, ANN, load(running=2, waiting=1)) is None
    assert refused(gate, ANN, load(running=2, waiting=2)) == "queue_full"
    full = load(running=2, waiting=2)
    assert refused(gate, ANN, full, expected_seconds=3.2) == "queue_full_for"
    assert refused(gate, ANN, full, background=True) is None


def test_one_person_has_so_many_under_way_and_others_still_come_in():
    gate = Gate(Limits(per_person=2))
    now = load(ANN, ANN, running=2)
    assert refused(gate, ANN, now) == "person_busy"
    assert refused(gate, BOB, now) is None
    assert refused(gate, ANN, now, supersedes=True) is None  # it ends the others
    assert refused(gate, ANN, load("ann", "ann", background=2)) == "person_busy"


def test_an_address_is_limited_only_where_the_operator_says_so():
    now = load(ANN, BOB, running=2)
    assert refused(Gate(Limits()), Visitor("cy", "10.0.0.1"), now) is None
    gate = Gate(Limits(per_address=2, per_address_minute=3))
    assert refused(gate, Visitor("cy", "10.0.0.1"), now) == "address_busy"
    assert refused(gate, Visitor("cy", "10.0.0.2"), now) is None
    codes = [refused(gate, Visitor(f"s{i}", "10.0.0.3")) for i in range(4)]
    assert codes == [None, None, None, "address_rate"]


def test_the_rate_is_of_the_last_minute_and_a_refusal_does_not_count():
    clock = Clock()
    gate = Gate(Limits(per_minute=3), clock=clock)
    for _ in range(3):
        assert refused(gate, ANN) is None
        clock.now += 10
    for _ in range(5):
        assert refused(gate, ANN) == "person_rate"
    assert refused(gate, BOB) is None
    clock.now += 31  # the first of the three is over a minute ago
    assert refused(gate, ANN) is None
    assert refused(gate, ANN) == "person_rate"


def test_the_refusal_says_when_to_come_back_and_then_it_is_so():
    clock = Clock()
    gate = Gate(Limits(per_minute=1), clock=clock)
    gate.admit(ANN, NOTHING)
    clock.now += 12.5
    with pytest.raises(LimitError) as caught:
        gate.admit(ANN, NOTHING)
    clock.now += caught.value.words["args"]["seconds"]
    gate.admit(ANN, NOTHING)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 30)), max_size=200))
def test_nobody_is_remembered_for_longer_than_a_minute(calls):
    clock = Clock()
    gate = Gate(Limits(per_minute=5), clock=clock)
    for person, pause in calls:
        clock.now += pause
        refused(gate, Visitor(str(person), None))
    clock.now += 61
    refused(gate, Visitor("last", None))
    assert len(gate) == 1


# -- who it is ------------------------------------------------------------------------------------


def asks(session=None, host=None, **headers):
    client = SimpleNamespace(host=host) if host else None
    return SimpleNamespace(session_hash=session, client=client, headers=headers)


def test_a_header_that_anybody_can_send_makes_nobody_someone_else():
    visitor = visitor_of(asks("s1", "10.0.0.9", **{"x-forwarded-for": "1.2.3.4"}))
    assert visitor == Visitor("s1", "10.0.0.9")


def test_calls_through_mcp_count_together():
    one = visitor_of(asks("s1", "127.0.0.1", **{"x-gradio-user": "mcp"}))
    assert one == visitor_of(asks("s2", "10.0.0.9", **{"x-gradio-user": "mcp"}))


def test_a_session_of_any_length_takes_no_room():
    assert len(visitor_of(asks("s" * 1_000_000)).session) <= 64


def test_a_draft_length_that_is_no_number_is_answered_with_this_server_s_limit():
    with pytest.raises(ValueError, match=r"from 0 to 4, got 2\.5"):
        Settings(prompt="hi", plan="none", k=2.5).request(8, Limits(max_k=4))


@pytest.mark.parametrize("least", ["max_k", "max_new_tokens"])
def test_a_page_can_be_built_for_the_smallest_limits(least):
    import gradio as gr

    from ui.decode import build_decode
    from ui.session import Studio

    studio = Studio("none", limits=Limits(**{least: 1}))
    try:
        with gr.Blocks():
            panel = build_decode(studio)
    finally:
        studio.close()
    k, length = panel.settings[2], panel.settings[6]
    assert (k if least == "max_k" else length).value == 1
