"""Hostile calls through the real server: each is answered, soon, without a stack trace."""

from __future__ import annotations

import json
import random
import time

import httpx
import pytest

from bench.load_tabs import parameters_of

from .conftest import HOSTILE
from .test_many import values_of

VALUES = [
    None, True, -1, 0, 17, 2.5, 1e308, 10**30, "", " ", "2", "nan", [], [[[1]]], {}, {"a": {"b": 1}},
    *HOSTILE, "\x00", "\u202e", "a" * 30_000, "\n" * 500, "3-99", "9" * 500,
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
    {"path": "http://127.0.0.1:1/", "url": "file:///etc/passwd", "meta": {"_type": "gradio.FileData"}},
]  # fmt: skip
ENDPOINTS = ("generate", "check", "importance", "search", "export", "models")
ANSWER_SECONDS = 20.0


def answer(client: httpx.Client, url: str, name: str, data: object) -> tuple[int, str]:
    """The status and the whole answer of a call, as curl makes it."""
    address = f"{url}/gradio_api/call/{name}"
    begun = client.post(address, json={"data": data})
    if begun.status_code != 200:
        return begun.status_code, begun.text
    event = begun.json()["event_id"]
    with client.stream("GET", f"{address}/{event}") as response:
        return response.status_code, "".join(response.iter_text())


@pytest.mark.parametrize("name", ENDPOINTS)
def test_any_values_are_answered_with_a_result_or_a_sentence(app, name):
    source = random.Random(name)
    count = len(parameters_of(app.url, name))
    with httpx.Client(timeout=ANSWER_SECONDS) as client:
        for _ in range(25):
            data = [source.choice(VALUES) for _ in range(count)]
            if name == "search" and len(data) > 1:
                data[1] = source.choice([v for v in VALUES if not isinstance(v, int | float)])
            begin = time.monotonic()
            status, text = answer(client, app.url, name, data)
            assert time.monotonic() - begin < ANSWER_SECONDS
            assert status == 200, (data, text)
            assert "Traceback" not in text
            assert 'File "' not in text
            assert "root:x:" not in text  # of /etc/passwd


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"{", b'{"data": 1}', b'{"data": {"a": 1}}', b'{"data": null}',
        b'{"data": []}', b'{"data": ["a", "b"]}', b'{"data": [' + b"1," * 50 + b"1]}",
        b'{"data": ' + b"[" * 100_000, b"\xff\xfe", b'{"data": ["\\ud800"]}',
        b'{"data": [NaN]}', b'{"data": [1e999]}', b'{"data": ["a"], "session_hash": 7}',
        b'{"data": ["a"], "session_hash": "' + b"s" * 10_000 + b'"}',
    ],
)  # fmt: skip
def test_any_body_is_answered(app, body):
    with httpx.Client(timeout=ANSWER_SECONDS) as client:
        begun = client.post(
            f"{app.url}/gradio_api/call/generate",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        assert begun.status_code < 600
        assert "Traceback" not in begun.text
        assert 'File "' not in begun.text
        if begun.status_code == 200:
            event = json.loads(begun.text)["event_id"]
            got = client.get(f"{app.url}/gradio_api/call/generate/{event}").text
            assert "Traceback" not in got
    assert httpx.get(f"{app.url}/health", timeout=60).json()["status"] == "ready"


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd", "/gradio_api/file=../../etc/passwd", "/file=/etc/passwd",
        "/gradio_api/call/nothing/x", "/gradio_api/call/generate/no-such-event",
        "/gradio_api/queue/data?session_hash=nobody", "/metrics/../config", "/health/",
        "/?prompt=%3Cscript%3E&plan=%00&k=9e9", "/%2e%2e/%2e%2e/etc/passwd",
        "/gradio_api/proxy=http://127.0.0.1:1/",
    ],
)  # fmt: skip
def test_any_address_is_answered_and_gives_no_file_away(app, path):
    try:
        answered = httpx.get(f"{app.url}{path}", timeout=ANSWER_SECONDS)
    except httpx.RemoteProtocolError:  # Gradio breaks off a stream that nobody began
        assert "/gradio_api/" in path
    else:
        assert "root:x:" not in answered.text
        assert "Traceback" not in answered.text
    assert httpx.get(f"{app.url}/health", timeout=60).json()["status"] == "ready"


def test_the_engine_still_writes_what_it_wrote_before(app):
    """Case 24: whatever was refused or broke off, the next request is right."""
    with httpx.Client(timeout=60) as client:
        values = values_of(app.url, "a fox runs", 12)
        before = answer(client, app.url, "generate", values)[1]
        for data in (["a fox", "3-4", 40], [HOSTILE[0], "standard", 2, 0.7], [None]):
            answer(client, app.url, "generate", data)
        after = answer(client, app.url, "generate", values)[1]

    def tokens(stream: str) -> list[int]:
        last = [line[6:] for line in stream.splitlines() if line.startswith("data: ")][-1]
        return json.loads(json.loads(last)[0].splitlines()[-1])["tokens"]

    assert tokens(before) == tokens(after)
    assert len(tokens(before)) == 12
