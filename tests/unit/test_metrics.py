"""What an operator is told: counters that count, a registry each, and nothing that people wrote."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from selfspec_core.scheduler import Scheduler
from tests import loops
from ui.limits import LimitError, Limits, Visitor
from ui.metrics import Metrics, health, routes
from ui.session import ModelStatus, Studio
from ui.settings import Settings

from .test_scheduler import Generation, commit, done, round_event


@pytest.fixture
def studio():
    studio = Studio(limits=Limits(queue=2, per_minute=3))
    yield studio
    studio.close()


def told(metrics: Metrics) -> dict[str, float]:
    scheduler = Scheduler()
    try:
        text = metrics.text(scheduler, ready=True).decode()
    finally:
        scheduler.close()
    return {
        sample.name + "".join(f",{v}" for v in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def written(*tokens: int):
    yield commit(0)
    yield None  # what a background job yields at the end of a slice
    yield round_event(0)
    yield replace(done(), tokens=tokens, drafted=4, accepted=3)


def test_a_generation_is_counted_whole():
    metrics = Metrics()
    items = list(metrics.watch("generate").over(written(5, 6, 7)))
    assert len(items) == 4
    counts = told(metrics)
    assert counts["selfspec_requests_total,generate"] == 1
    assert counts["selfspec_requests_ended_total,generate,done"] == 1
    assert counts["selfspec_tokens_total"] == 3
    assert counts["selfspec_tokens_drafted_total"] == 4
    assert counts["selfspec_tokens_accepted_total"] == 3
    assert counts["selfspec_first_token_seconds_count"] == 1
    assert counts["selfspec_wait_seconds_count,generate"] == 1


def test_how_it_ended_is_told_apart():
    metrics = Metrics()

    def breaks():
        yield 1
        raise RuntimeError("out of memory")

    def refuses():
        raise LimitError("k", most=4, got=5)
        yield

    with pytest.raises(RuntimeError):
        list(metrics.watch("a").over(breaks()))
    with pytest.raises(LimitError):
        list(metrics.watch("b").over(refuses()))
    list(metrics.watch("c").over(iter([done("cancelled")])))
    left = metrics.watch("d").over(written(1))
    next(left)
    left.close()
    counts = told(metrics)
    for kind, outcome in (("a", "error"), ("b", "refused"), ("c", "cancelled"), ("d", "abandoned")):
        assert counts[f"selfspec_requests_ended_total,{kind},{outcome}"] == 1
    assert counts["selfspec_requests_refused_total,k"] == 1


def test_closing_what_is_watched_closes_what_it_watches():
    generation = Generation(5)
    steps = Metrics().watch("generate").over(generation(lambda: False))
    next(steps)
    steps.close()
    assert generation.closed.is_set()


def test_two_servers_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    list(one.watch("generate").over(written(1)))
    assert told(one)["selfspec_tokens_total"] == 1
    assert told(other)["selfspec_tokens_total"] == 0


def test_refusals_are_counted_by_limit(studio):
    for _ in range(3):
        studio.admit("generate", Visitor("ann"))
    for _ in range(2):
        with pytest.raises(LimitError):
            studio.admit("generate", Visitor("ann"))
    assert told(studio.metrics)["selfspec_requests_refused_total,person_rate"] == 2
    assert told(studio.metrics)["selfspec_requests_total,generate"] == 3


def test_a_queue_that_is_full_refuses_before_anything_is_queued(studio):
    tickets = [studio.scheduler.submit(Generation(10_000_000)) for _ in range(2)]
    with pytest.raises(LimitError, match="The server is full"):
        studio.generate(Settings(prompt="a"), owner=None, visitor=Visitor("ann"))
    assert studio.scheduler.load.running + studio.scheduler.load.waiting == 2
    for ticket in tickets:
        ticket.cancel()


def answer(studio: Studio, path: str):
    [route] = [route for route in routes(studio) if route.path == path]
    return loops.run(route.endpoint(None))


def test_health_is_200_only_when_requests_are_served(studio):
    assert health(studio)["status"] == "loading"
    assert answer(studio, "/health").status_code == 503
    studio.status = ModelStatus("ready", "there")
    assert answer(studio, "/health").status_code == 200
    studio.status = ModelStatus("failed", "no file /home/someone/secret.gguf")
    response = answer(studio, "/health")
    assert response.status_code == 503
    assert b"secret" not in response.body


def test_an_engine_that_hangs_in_a_turn_is_not_well():
    now = [0.0]
    studio = Studio()
    studio.scheduler.close()
    studio.scheduler = Scheduler(clock=lambda: now[0])
    try:
        studio.status = ModelStatus("ready", "there")
        generation = Generation(1, gate=threading.Event())
        ticket = studio.scheduler.submit(generation)
        assert generation.begun.wait(5)
        assert health(studio)["status"] == "ready"
        now[0] = 1000.0
        assert health(studio)["status"] == "stuck"
        generation.gate.set()
        list(ticket)
        assert health(studio)["status"] == "ready"
    finally:
        studio.close()


def test_metrics_are_prometheus_text(studio):
    response = answer(studio, "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(response.body.decode())}
    assert {"selfspec_running", "selfspec_waiting", "selfspec_model_ready"} <= names
