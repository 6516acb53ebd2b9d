"""Events: to and from NDJSON without loss, hostile texts as data, anything else refused."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfspec_core.events import (
    EVENTS,
    REASONS,
    SCHEMA,
    SOURCES,
    STATUSES,
    Candidate,
    Commit,
    Residual,
    Start,
    TraceError,
    Verdict,
    Wait,
    from_json,
    from_ndjson,
    to_ndjson,
)

HOSTILE = [
    "${alert(1)}",
    "<img src=x onerror=alert(1)>",
    "</script><script>",
    "back\\slash `tick` \"quote\" 'single'",
    "line\nbreak\r\ttab",
    "\u2028 line and \u2029 paragraph separators",
    "\x85 next line, \x0b \x0c \x1c \x1d \x1e",
    "\x00 null \x7f delete",
    "\ufffd\ufeff\u202e right to left",
    "👩‍👩‍👧 e\u0301 𝔘",
    "",
    '"},{"type":"done"}',
]  # fmt: skip

texts = st.text(max_size=20) | st.sampled_from(HOSTILE)
numbers = st.floats(allow_nan=False, allow_infinity=False)
optional = st.none() | numbers
ids = st.integers(-1, 2**31)
token_ids = st.lists(ids, max_size=5).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
objects = st.dictionaries(texts, json_values, max_size=2)
NAMED = {"status": STATUSES, "source": SOURCES, "reason": REASONS}
SIMPLE = {
    "int": ids,
    "float": numbers,
    "float | None": optional,
    "str": texts,
    "bool": st.booleans(),
    "tuple[int, ...]": token_ids,
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "dict[str, Any]": objects,
}


def instances(kind: type, **nested: st.SearchStrategy) -> st.SearchStrategy:
    """Any instance of an event's class, by the annotations of its fields."""

    def values(field: dataclasses.Field) -> st.SearchStrategy:
        if field.name == "schema":
            return st.just(SCHEMA)
        if field.name in NAMED:
            return st.sampled_from(NAMED[field.name])
        return (SIMPLE | nested)[str(field.type)]

    return st.builds(kind, **{field.name: values(field) for field in dataclasses.fields(kind)})


tops = {"tuple[Candidate, ...]": st.lists(instances(Candidate), max_size=3).map(tuple)}
residuals = {"Residual | None": st.none() | instances(Residual, **tops)}
starts = instances(Start)
others = {kind: instances(kind, **tops, **residuals) for kind in EVENTS if kind is not Start}
events = st.one_of(starts, *others.values())


def start(**changes) -> Start:
    fields = {
        "model": {"id": "tiny", "layers": 4},
        "plan": "1-2",
        "k": 2,
        "policy": "fixed",
        "rule": "coupled",
        "lossless": True,
        "sampling": {"temperature": 0.0},
        "seed": 0,
        "window": 4,
        "max_new_tokens": 8,
        "prompt": "Once",
        "prompt_ids": (1, 2),
    }
    return Start(**fields | changes)


def commit(**changes) -> Commit:
    return Commit(
        **{"round": 0, "position": 2, "token": 5, "text": "a", "source": "draft"} | changes
    )


def verdict() -> Verdict:
    """One that has a number in every field that must have one."""
    example = {"int": 5, "float": 0.25, "str": "a", "tuple[Candidate, ...]": ()}
    fields = dataclasses.fields(Verdict)
    needed = {f.name: example[str(f.type)] for f in fields if str(f.type) in example}
    return Verdict(**needed | {"offset": -0.7, "status": "rejected"})


# -- round trips -------------------------------------------------------------------------------


@given(events)
def test_every_event_survives_its_line(event):
    line = event.to_json()
    assert "\n" not in line
    assert "\r" not in line
    assert from_json(line) == event


@settings(deadline=None, max_examples=50)
@given(starts, st.lists(st.one_of(*others.values()), max_size=4))
def test_a_trace_survives_and_leaves_waiting_out(first, rest):
    trace = to_ndjson([first, *rest])
    kept = [first, *(event for event in rest if not isinstance(event, Wait))]
    assert list(from_ndjson(trace)) == kept
    assert to_ndjson(from_ndjson(trace)) == trace


@pytest.mark.parametrize("text", HOSTILE)
def test_case_28_hostile_texts_are_data(text, tmp_path):
    events = [start(prompt=text, stop=(text,)), commit(text=text)]
    trace = to_ndjson(events)
    assert trace.count("\n") == 2
    assert list(from_ndjson(trace)) == events
    path = tmp_path / "trace.ndjson"
    path.write_bytes(trace.encode())
    with path.open(encoding="utf-8", newline="\n") as lines:
        assert list(from_ndjson(lines)) == events


def test_a_line_is_one_json_object_with_its_type_first():
    raw = json.loads(commit().to_json())
    assert next(iter(raw)) == "type"
    assert raw["type"] == "commit"
    assert json.loads(start().to_json())["schema"] == SCHEMA == 1


def test_blank_lines_are_passed_over():
    trace = "\n" + start().to_json() + "\n\n  \n" + commit().to_json()
    assert list(from_ndjson(trace)) == [start(), commit()]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_become_null(value):
    raw = json.loads(commit(p=value).to_json())
    assert raw["p"] is None
    assert from_json(json.dumps(raw)) == commit(p=None)
    nested = start(sampling={"logit_bias": [[1, value]]}, model={"deep": {"value": (value, 1.0)}})
    raw = json.loads(nested.to_json(), parse_constant=pytest.fail)
    assert raw["sampling"] == {"logit_bias": [[1, None]]}
    assert raw["model"] == {"deep": {"value": [None, 1.0]}}


# -- what is refused ---------------------------------------------------------------------------


def changed(event, **changes) -> str:
    raw = json.loads(event.to_json()) | changes
    return json.dumps({key: value for key, value in raw.items() if value is not ...})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not a line of JSON"),
        ("nonsense", "not a line of JSON"),
        ("[" * 100_000, "not a line of JSON"),
        ("[]", "'type' must be one of start, draft, verdict, commit, round, wait, done"),
        ("7", "'type' must be one of start, draft"),
        ("{}", "'type' must be one of start, draft"),
        ('{"type": "bonus"}', "'type' must be one of start, draft"),
        ('{"type": ["start"]}', "'type' must be one of start, draft"),
        (changed(start(), schema=2), "this is schema 2; schema 1 is read here"),
        (changed(start(), schema=...), "this is schema None; schema 1 is read here"),
        (changed(start(), schema="1"), "this is schema '1'; schema 1 is read here"),
        (changed(commit(), colour="red"), "unknown field 'colour' in commit"),
        (changed(commit(), token=...), "commit lacks token"),
        (changed(commit(), token="5"), "'token' of commit must be int"),
        (changed(commit(), token=5.5), "'token' of commit must be int"),
        (changed(commit(), token=True), "'token' of commit must be int"),
        (changed(commit(), token=None), "'token' of commit must be int"),
        (changed(commit(), text=None), "'text' of commit must be str"),
        (changed(commit(), special=1), "'special' of commit must be bool"),
        (changed(commit(), p="0.5"), r"'p' of commit must be float \| None"),
        (changed(start(), prompt_ids=[1, "2"]), r"'prompt_ids' of start must be tuple\[int"),
        (changed(start(), prompt_ids=7), r"'prompt_ids' of start must be tuple\[int"),
        (changed(start(), stop="end"), r"'stop' of start must be tuple\[str"),
        (changed(start(), model=[]), "'model' of start must be dict"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_event_is_refused_with_what_was_expected(line, words):
    with pytest.raises(TraceError, match=words):
        from_json(line)
    with pytest.raises(TraceError, match="line 3: .*" + words):
        list(from_ndjson([start().to_json(), "", line]))


@given(st.one_of(starts, *others.values()), st.data())
def test_a_missing_field_is_named(event, data):
    needed = [
        field.name
        for field in dataclasses.fields(event)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    name = data.draw(st.sampled_from(needed))
    with pytest.raises(TraceError, match=f"{event.type} lacks {name}"):
        from_json(changed(event, **{name: ...}))


@pytest.mark.parametrize(
    ("residual", "words"),
    [
        ({"mass": 0.5, "top": [], "rest": 0.5, "more": 1}, "unknown field 'more' in residual"),
        ({"mass": 0.5, "top": []}, "residual lacks rest"),
        ({"mass": 0.5, "top": [7], "rest": 0.5}, "candidate must be an object"),
        ({"mass": 0.5, "top": [{"token": 1}], "rest": 0.5}, "candidate lacks p, q, text"),
        ({"mass": 0.5, "top": None, "rest": 0.5}, "'top' of residual must be tuple"),
        ([], "'residual' of verdict must be Residual"),
        ("half", "residual must be an object"),
    ],
)
def test_what_is_nested_is_checked_too(residual, words):
    assert from_json(verdict().to_json()) == verdict()
    with pytest.raises(TraceError, match=words):
        from_json(changed(verdict(), residual=residual))


def test_a_trace_begins_with_start():
    with pytest.raises(TraceError, match="line 2: a trace begins with 'start', got 'commit'"):
        list(from_ndjson(["", commit().to_json(), start().to_json()]))


@given(st.text(max_size=60))
def test_any_text_is_an_event_or_a_trace_error(line):
    with pytest.raises(TraceError):
        from_json(line)


@given(json_values)
def test_any_json_is_an_event_or_a_trace_error(value):
    with pytest.raises(TraceError):
        from_json(json.dumps(value))


def test_events_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        commit().text = "b"
