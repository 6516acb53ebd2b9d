"""The `generate` endpoint, called from another process with gradio_client (no browser)."""

from __future__ import annotations

import json
import subprocess
import sys

CALL = """
import json, sys
from gradio_client import Client
client = Client(sys.argv[1], verbose=False)
job = client.submit(**json.loads(sys.argv[2]), api_name="/generate")
items = []
try:
    for item in job:
        items.append(item)
    job.result()  # raises what iterating keeps to itself
    print(json.dumps({"items": items}))
except Exception as error:
    print(json.dumps({"error": str(error)}))
"""


def call(app, **options):
    answer = subprocess.run(
        [sys.executable, "-c", CALL, app.url, json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_call_streams_event_lines_and_ends_with_the_whole_trace(app):
    app.engine.pause = 0.05
    items = call(app, prompt="a fox runs", plan="3-4", k=3, max_new_tokens=30)["items"]
    assert len(items) > 2
    *chunks, whole = items
    assert events("".join(chunks)) == events(whole)
    trace = events(whole)
    assert trace[0]["type"] == "start"
    assert trace[0]["plan"] == "3-4"
    assert trace[-1]["type"] == "done"
    assert len(trace[-1]["tokens"]) == 30


def test_a_call_gets_what_the_engine_gives(app):
    from selfspec_core.plan import SkipPlan
    from selfspec_core.request import Request
    from selfspec_core.sampling import Sampling

    whole = call(
        app, prompt="a fox runs", plan="m2-5", k=4, temperature=0.9, seed=7, max_new_tokens=25
    )["items"][-1]
    request = Request(
        prompt="a fox runs",
        plan=SkipPlan.parse("m2-5", app.engine.n_layers),
        k=4,
        sampling=Sampling(temperature=0.9),
        seed=7,
        max_new_tokens=25,
    )
    assert events(whole)[-1]["tokens"] == list(app.engine.generate(request).tokens)


def test_k_0_is_plain_decoding_with_the_same_text(app):
    plain = events(call(app, prompt="a fox", k=0, max_new_tokens=20)["items"][-1])
    drafted = events(call(app, prompt="a fox", k=2, max_new_tokens=20)["items"][-1])
    assert not any(event["type"] == "draft" for event in plain)
    assert plain[-1]["text"] == drafted[-1]["text"]


def test_bad_values_are_refused_by_the_server_with_a_sentence(app):
    for options, message in (
        ({"k": 40}, "k must be 0–16"),
        ({"k": 2.5}, "whole number"),
        ({"temperature": -1}, "temperature must be 0 to 10"),
        ({"rule": "magic"}, "unknown rule"),
        ({"plan": "3-99"}, "layer 99 doesn"),
        ({"max_new_tokens": 10**6}, "length must be 0–4096"),
        ({"prompt": "  "}, "prompt is empty"),
    ):
        answer = call(app, **{"prompt": "a fox", "max_new_tokens": 4, **options})
        assert message in answer.get("error", ""), answer


def test_only_generate_is_offered_to_programs(app):
    from gradio_client import Client

    offered = Client(app.url, verbose=False).view_api(return_format="dict", print_info=False)
    assert set(offered["named_endpoints"]) == {"/generate"}
    assert not offered["unnamed_endpoints"]
