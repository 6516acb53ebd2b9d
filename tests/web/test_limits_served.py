"""Every limit of docs/hosting.md, set low by its own name, and exceeded on a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.load_tabs import Tab, values_for
from ui.limits import Limits
from ui.session import Studio

from .conftest import App, at_rest, served, wait_until

SMALL = {
    "SELFSPEC_MAX_NEW_TOKENS": "40",
    "SELFSPEC_PROMPT_CHARACTERS": "40",
    "SELFSPEC_PROMPT_TOKENS": "5",
    "SELFSPEC_MAX_K": "3",
    "SELFSPEC_SECONDS": "1",
    "SELFSPEC_ANALYSIS_SECONDS": "1",
    "SELFSPEC_PROMPTS": "2",
    "SELFSPEC_QUEUE": "3",
    "SELFSPEC_BACKGROUND_QUEUE": "1",
    "SELFSPEC_LIVE": "1",
    "SELFSPEC_PER_PERSON": "2",
}
SELDOM = {
    "SELFSPEC_PER_MINUTE": "2",
    "SELFSPEC_PER_ADDRESS": "1",
    "SELFSPEC_PER_ADDRESS_MINUTE": "3",
}


def limited(environ: dict[str, str], model: Path) -> Studio:
    """A studio of the tiny model whose operator set these variables."""
    limits = Limits.read({**environ, "SELFSPEC_MODELS": str(model)})
    return Studio(str(model), dtype="float32", device="cpu", limits=limits, switchable=True)


@pytest.fixture(scope="module")
def small_server(hostile_model: Path) -> Iterator[App]:
    with served(limited(SMALL, hostile_model)) as app:
        yield app


@pytest.fixture
def small(small_server: App) -> Iterator[App]:
    yield from at_rest(small_server)


@pytest.fixture
def seldom(hostile_model: Path) -> Iterator[App]:
    with served(limited(SELDOM, hostile_model)) as app:
        yield app


def begin(app: App, session: str, name: str = "generate", **given: Any) -> Tab:
    """Ask for something small, as a page of that name; returns at once."""
    first = {"prompts": ["a fox"]} if name == "check" else {"prompt": "a fox"}
    values = values_for(app.url, name, **{**first, "max_new_tokens": 40, "k": 1, **given})
    tab = Tab(app.url, session, values, name)
    tab.ask()
    return tab


def end(tab: Tab) -> dict[str, Any]:
    """The last message of a page's request."""
    ended = lambda: [m for m in tab.messages if m["msg"] == "process_completed"]  # noqa: E731
    wait_until(lambda: bool(ended()), "the answer")
    return ended()[0]


def refused(tab: Tab) -> str:
    """The sentence that a request was refused with."""
    last = end(tab)
    assert not last["success"], last
    told = last["output"]["error"]
    assert "Traceback" not in told
    return told


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("generate", {"max_new_tokens": 41}, "length must be 0–40 tokens, got 41"),
        ("generate", {"prompt": "fox " * 11}, "44 characters; this server takes 40"),
        ("generate", {"prompt": "a fox a fox a fox"}, "6 tokens; this server takes 5"),
        ("generate", {"k": 4}, "k must be 0–3 on this server, got 4"),
        ("check", {"k": 4}, "k must be 0–3 on this server, got 4"),
        ("check", {"max_new_tokens": 41}, "length must be 0–40 tokens, got 41"),
        ("check", {"prompts": ["a"] * 3}, "takes 1–2 prompts at a time, got 3"),
        ("check", {"prompts": ["fox " * 11]}, "44 characters; this server takes 40"),
    ],
)
def test_what_is_over_a_limit_is_refused_with_the_limit(small, name, given, told):
    assert told in refused(begin(small, "asks", name, **given))


def test_the_pages_sliders_end_at_the_limits_and_begin_within_them(small):
    config = httpx.get(f"{small.url}/config", timeout=60).json()
    props = {each["props"].get("elem_id"): each["props"] for each in config["components"]}
    for name, most in (("length", 40), ("k", 3)):
        assert props[name]["maximum"] == most
        assert 1 <= props[name]["value"] <= most


def test_a_model_that_is_not_listed_is_refused_with_the_list(small):
    with pytest.raises(ValueError, match="org/other") as caught:
        small.studio.switch("org/other")
    assert small.studio.model_name in str(caught.value)


def test_the_time_that_is_up_ends_a_generation_with_what_was_written(small):
    small.engine.pause = 0.2
    trace = end(begin(small, "slow", k=0))["output"]["data"][0].splitlines()
    done = json.loads(trace[-1])
    assert "1 s of engine time" in done["message"]
    assert 0 < len(done["tokens"]) < 40


def test_the_time_that_is_up_ends_an_analysis_with_a_sentence(small):
    small.engine.pause = 0.2
    assert "1 s of engine time" in refused(begin(small, "slow", "check"))


def test_a_full_queue_refuses_and_whoever_waits_in_it_comes_to_a_turn(small):
    load = lambda: small.studio.scheduler.load  # noqa: E731
    with small.engine.held():
        tabs = [begin(small, "first")]
        wait_until(lambda: load().running == 1, "the first to run")
        tabs.append(begin(small, "second"))
        wait_until(lambda: load().waiting == 1, "the second to wait")
        tabs.append(begin(small, "third"))
        wait_until(lambda: load().waiting == 2, "the third to wait")
        assert "The server is full: 3 requests" in refused(begin(small, "fourth"))
    assert all(end(tab)["success"] for tab in tabs)


def test_one_person_has_so_many_requests_under_way(small):
    values = values_for(small.url, "generate", prompt="a fox", k=1, max_new_tokens=40)
    tab = Tab(small.url, "ann", values)
    load = lambda: small.studio.scheduler.load  # noqa: E731
    with small.engine.held():
        for _ in range(2):
            tab.join()
        wait_until(lambda: load().running + load().waiting == 2, "two of the same person")
        tab.ask()
        assert "You have 2 requests under way" in refused(tab)
    assert end(begin(small, "bob", max_new_tokens=2))["success"]  # nobody else is held up
    tab.close()


def test_what_a_call_leaves_out_is_within_the_limits(small):
    """Defaults of the endpoints follow the operator's limits, or no short call would pass."""
    tab = Tab(small.url, "brief", values_for(small.url, "generate", prompt="a fox"))
    tab.ask()
    done = json.loads(end(tab)["output"]["data"][0].splitlines()[-1])
    assert len(done["tokens"]) == 40


def test_analyses_have_a_queue_of_their_own(small):
    small.engine.pause = 0.1
    with small.engine.held():
        first = begin(small, "bob", "check")
        wait_until(lambda: small.studio.scheduler.load.background == 1, "an analysis to run")
        assert "The server is full: 1 requests" in refused(begin(small, "cy", "check"))
    assert end(begin(small, "dee", max_new_tokens=2))["success"]
    first.close()


def test_requests_a_minute_and_an_addresss_requests_are_limited_where_the_operator_says_so(seldom):
    with seldom.engine.held():
        first = begin(seldom, "ann")
        wait_until(lambda: seldom.studio.scheduler.load.running == 1, "the first to run")
        assert "from your network address are under way" in refused(begin(seldom, "bob"))
    assert end(first)["success"]
    assert end(begin(seldom, "ann", max_new_tokens=2))["success"]
    told = refused(begin(seldom, "ann", max_new_tokens=2))
    assert "2 requests within a minute" in told
    assert "Try again in " in told
    assert end(begin(seldom, "cy", max_new_tokens=2))["success"]
    told = refused(begin(seldom, "dee", max_new_tokens=2))
    assert "network address made 3 requests within a minute" in told
