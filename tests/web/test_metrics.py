"""/health and /metrics of the real server."""

from __future__ import annotations

import httpx
from gradio_client import Client
from prometheus_client.parser import text_string_to_metric_families

from .conftest import wait_until


def counts(app) -> dict[str, float]:
    text = httpx.get(f"{app.url}/metrics", timeout=60).raise_for_status().text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_health_says_that_it_is_ready_and_nothing_of_anybody(app):
    answer = httpx.get(f"{app.url}/health", timeout=60)
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "model", "running", "waiting", "background"}
    assert answer.json()["status"] == "ready"


def test_health_is_503_before_the_model_is_there(app_before_loading):
    answer = httpx.get(f"{app_before_loading.url}/health", timeout=60)
    assert answer.status_code == 503
    assert answer.json()["status"] == "loading"


def test_what_programs_do_is_counted_and_not_what_they_write(app):
    before = counts(app)
    client = Client(app.url, verbose=False, analytics_enabled=False)
    try:
        client.predict("a fox runs secretly", max_new_tokens=11, api_name="/generate")
    finally:
        client.close()
    wait_until(lambda: app.studio.scheduler.idle, "the engine to be idle")
    after = counts(app)
    assert after["selfspec_tokens_total"] - before["selfspec_tokens_total"] == 11
    name = "selfspec_requests_total"
    assert after[name] - before.get(name, 0.0) == 1
    name = "selfspec_first_token_seconds_count"
    assert after[name] - before[name] == 1
    assert "secretly" not in httpx.get(f"{app.url}/metrics", timeout=60).text
