"""`bench page` without a server or a browser: its trace, its tasks, its answers."""

from __future__ import annotations

import sys

import pytest

from bench.__main__ import main
from bench.page import RECORDED, stretched, summary, table
from bench.page_tasks import Tasks, longest
from selfspec_core.events import from_ndjson, to_ndjson

MAIN, OTHER = 7, 8


def task(start: int, ms: float, thread: int = MAIN, name: str = "ThreadControllerImpl::RunTask"):
    return {"name": name, "ph": "X", "pid": 1, "tid": thread, "ts": start, "dur": 1000 * ms}


def thread(number: int, name: str):
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": name}}


NAMES = [thread(MAIN, "CrRendererMain"), thread(OTHER, "Compositor")]


def test_the_longest_task_is_of_the_pages_own_thread():
    events = [*NAMES, task(0, 12), task(20_000, 61), task(100_000, 50), task(0, 400, OTHER)]
    assert longest(events) == Tasks(61.0, 1)


def test_a_task_inside_another_is_counted_once_in_whatever_order_they_come():
    outer, inner, next_one = task(0, 80), task(10_000, 60), task(80_000, 55)
    assert longest([*NAMES, inner, next_one, outer]) == Tasks(80.0, 2)


def test_what_is_no_task_does_not_count():
    assert longest([*NAMES, task(0, 99, name="Paint")]) == Tasks(0.0, 0)


@pytest.mark.parametrize("tokens", [1, 65, 66, 2000])
def test_a_stretched_trace_is_a_trace_with_that_many_tokens_and_rounds_in_order(tokens):
    events = list(from_ndjson(RECORDED.read_text(encoding="utf-8")))
    done = events[-1]
    long = stretched(events, tokens)
    times = len(long[-1].tokens) // len(done.tokens)
    assert tokens <= len(long[-1].tokens) < tokens + len(done.tokens)
    assert list(from_ndjson(to_ndjson(long))) == long
    assert [e.round for e in long if e.type == "round"] == list(range(times * done.rounds))
    assert [e.token for e in long if e.type == "commit"] == list(long[-1].tokens)
    positions = [e.position for e in long if e.type == "commit"]
    assert positions == list(range(positions[0], positions[0] + len(positions)))


def test_figures_are_medians_and_worsts_and_visits_without_a_model_stand_apart():
    seen = [{"ms": 900.0, "model": "loading"}, {"ms": 400.0, "model": "ready"}]
    found = {"drop a trace": [Tasks(20.0, 0), Tasks(60.0, 2), Tasks(30.0, 0)]}
    figures = summary(seen, found)
    assert figures["seen_before_model_ms"] == 900.0
    assert figures["seen_ms"] == 650.0
    assert figures["acts"] == [
        {"act": "drop a trace", "median_ms": 30.0, "worst_ms": 60.0, "long": 2, "repeats": 3}
    ]
    said = table(figures)
    assert "no model loaded yet after 900 ms" in said
    assert said.splitlines()[-1].split() == ["drop", "a", "trace", "30", "60", "2"]


def test_visits_that_all_found_the_model_say_nothing_of_those_without():
    figures = summary([{"ms": 400.0, "model": "ready"}], {})
    assert figures["seen_before_model_ms"] is None
    assert "no model loaded yet" not in table(figures)


@pytest.mark.parametrize("option", ["--tokens", "--repeats"])
def test_nonsense_is_answered_with_what_is_allowed(option, capsys):
    assert main(["page", option, "0"]) == 2
    assert f"{option} must be at least 1, got 0" in capsys.readouterr().err


def test_a_missing_browser_is_named_with_how_to_get_one(tmp_path, capsys):
    assert main(["page", "--browser", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "none") in said
    assert "--browser" in said


def test_a_missing_playwright_is_named_with_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    assert main(["page"]) == 2
    assert "pip install -r requirements-dev.txt" in capsys.readouterr().err
