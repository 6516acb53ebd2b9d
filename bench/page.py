"""`bench page`: how soon a recorded run is seen, and how long the page keeps the browser busy.

The server is the real app in a process of its own, visited from when it answers, whether its
model is there or not; the browser is a Chromium without a window. What is measured is a long
trace (the recorded run, over and over) that is dropped on the page and then used.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import torch

from selfspec_core.events import Done, Event, Start, from_ndjson, to_ndjson

from .opening import hardware, say
from .page_tasks import LONG_MS, Tasks, chromium, recorded
from .streaming import APP, START_SECONDS, _free_port

RECORDED = APP.parent / "assets" / "traces" / "welcome.ndjson"
TOKENS = 2000
ROUNDS = 200
_WAIT_MS = 120_000
_SETTLE_MS = 600  # what follows an act in later frames is its work as well

# When the first token is drawn, in ms since navigation began.
_SEEN = """(() => {
  const drawn = () => setTimeout(() => { window.seenAfter = performance.now(); });
  const there = () => document.querySelector(".ss-tokens .ss-token");
  const look = () => requestAnimationFrame(there() ? drawn : look);
  look();
})()"""
_HOLD = "text => { window.held = new File([text], 'long.ndjson'); }"
_DROP = """() => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(window.held);
  const drop = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer });
  document.querySelector(".ss-stage").dispatchEvent(drop);
}"""
_OPENED = "SelfSpec.trace.header.state === 'opened' && SelfSpec.trace.resting"
_PLAYED = f"SelfSpec.reading.rounds.length >= {ROUNDS}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `bench page` takes."""
    add = parser.add_argument
    add("--model", default="builtin", help="what the server loads meanwhile (default builtin)")
    add("--url", help="of a studio that is there already (default: start one)")
    add("--tokens", type=int, default=TOKENS, help=f"length of the trace (default {TOKENS})")
    add("--repeats", type=int, default=3, help="how often everything is done (default 3)")
    add("--reduced-motion", action="store_true", help="as for people who want no motion")
    add("--browser", metavar="FILE", help="a Chromium (default: the one that is installed)")
    add("--json", action="store_true", help="machine-readable output")


def run(options: argparse.Namespace) -> int:
    """Visit, drop, use; print the time to the first token and the longest task of every act."""
    for name in ("tokens", "repeats"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(options, name)}")
    events = list(from_ndjson(RECORDED.read_text(encoding="utf-8")))
    trace = to_ndjson(stretched(events, options.tokens))
    seen: list[dict[str, Any]] = []
    found: dict[str, list[Tasks]] = {}
    with chromium(options.browser) as browser, _served(options.url, options.model) as url:
        say("visits while the model is loaded")
        for _ in range(options.repeats):
            with _opened(browser, reduced=options.reduced_motion) as page:
                seen.append(_visit(page, url))
        while _state(url) == "loading":  # which takes the processor from the browser
            time.sleep(0.5)
        for repeat in range(options.repeats):
            say(f"everything, {repeat + 1} of {options.repeats}")
            with _opened(browser, reduced=options.reduced_motion) as page:
                page.goto(url)
                for name, tasks in _use(page, trace, still=options.reduced_motion):
                    found.setdefault(name, []).append(tasks)
        version = browser.version
    figures = summary(seen, found)
    figures |= {"tokens": options.tokens, "reduced_motion": options.reduced_motion}
    figures |= {"browser": version, "hardware": hardware(torch.device("cpu"))}
    print(json.dumps(figures) if options.json else table(figures))
    return 0


def stretched(events: Sequence[Event], tokens: int) -> list[Event]:
    """A trace of at least so many tokens: another one's rounds, over and over."""
    start, *body, done = events
    if not isinstance(start, Start) or not isinstance(done, Done):
        raise ValueError("the trace must begin with `start` and end in `done`")
    times = -(-tokens // len(done.tokens))
    made: list[Event] = [replace(start, max_new_tokens=times * len(done.tokens))]
    for turn in range(times):
        for event in body:
            moved = {"round": event.round + turn * done.rounds} if hasattr(event, "round") else {}
            if hasattr(event, "position"):
                moved["position"] = event.position + turn * len(done.tokens)
            made.append(replace(event, **moved))
    grown = {name: times * getattr(done, name) for name in ("text", "tokens", "drafted")}
    grown |= {name: times * getattr(done, name) for name in ("accepted", "rounds", "seconds")}
    return [*made, replace(done, **grown)]


def summary(seen: Sequence[dict[str, Any]], found: dict[str, list[Tasks]]) -> dict[str, Any]:
    """The figures of all repeats.

    Args:
        seen: of each visit `ms` (navigation to first token) and `model` (its state then).
        found: the tasks of each act, one a repeat.
    """
    before = [visit["ms"] for visit in seen if visit["model"] == "loading"]
    return {
        "visits": list(seen),
        "seen_before_model_ms": statistics.median(before) if before else None,
        "seen_ms": statistics.median(visit["ms"] for visit in seen),
        "acts": [
            {
                "act": name,
                "median_ms": statistics.median(tasks.longest_ms for tasks in repeats),
                "worst_ms": max(tasks.longest_ms for tasks in repeats),
                "long": sum(tasks.long for tasks in repeats),
                "repeats": len(repeats),
            }
            for name, repeats in found.items()
        ],
    }


def table(figures: dict[str, Any]) -> str:
    """The same for a person."""
    early = figures["seen_before_model_ms"]
    lines = [
        f"first token after {figures['seen_ms']:.0f} ms (median of {len(figures['visits'])})",
        "the model was there at every visit"
        if early is None
        else f"first token with no model loaded yet after {early:.0f} ms",
        "",
        f"{'longest browser task, ms':28}{'median':>8}{'worst':>8}{f'>{LONG_MS:.0f} ms':>9}",
    ]
    for act in figures["acts"]:
        line = f"{act['act']:28}{act['median_ms']:8.0f}{act['worst_ms']:8.0f}{act['long']:9d}"
        lines.append(line)
    return "\n".join(lines)


@contextmanager
def _opened(browser: Any, *, reduced: bool) -> Iterator[Any]:
    """A page in a fresh profile: nothing is in its cache."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        reduced_motion="reduce" if reduced else "no-preference",
        bypass_csp=True,
    )
    try:
        page = context.new_page()
        page.set_default_timeout(_WAIT_MS)
        yield page
    finally:
        context.close()


@contextmanager
def _served(url: str | None, model: str) -> Iterator[str]:
    """The app from when it answers, which is before its model is there."""
    if url:
        yield url.rstrip("/")
        return
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, str(APP), "--port", str(port), "--model", model],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while _state(url) is None:
            if server.poll() is not None or time.monotonic() > deadline:
                raise ValueError("the app didn't start: run `python app.py` to see why")
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def _state(url: str) -> str | None:
    """What the server says of its model: "loading", "ready", …; None when it doesn't answer."""
    try:
        return str(httpx.get(f"{url}/health", timeout=10).json()["status"])
    except (httpx.HTTPError, ValueError, KeyError):
        return None


def _visit(page: Any, url: str) -> dict[str, Any]:
    page.add_init_script(_SEEN)
    page.goto(url)
    page.wait_for_function("window.seenAfter")
    return {"ms": page.evaluate("window.seenAfter"), "model": _state(url)}


def _use(page: Any, trace: str, *, still: bool) -> Iterator[tuple[str, Tasks]]:
    """Everything that a person does with a trace, each with its tasks."""
    page.wait_for_selector("#run")
    page.wait_for_function("SelfSpec.trace.resting")
    page.evaluate(_HOLD, trace)
    for name, act in acts(page):

        def settled(act: Callable[[], Any] = act) -> None:
            act()
            page.wait_for_timeout(_SETTLE_MS)

        yield name, recorded(page, settled)
    if not still:  # without motion nothing is played

        def play() -> None:
            page.evaluate("SelfSpec.trace.replay()")
            page.wait_for_function(_PLAYED, polling=500)

        yield f"play {ROUNDS} rounds", recorded(page, play)


def acts(page: Any) -> list[tuple[str, Callable[[], Any]]]:
    """What is done, in order, by name."""

    def drop() -> None:
        page.evaluate(_DROP)
        page.wait_for_function(_OPENED, polling=100)

    def tab(name: str) -> Callable[[], None]:
        return lambda: page.click(f"#ss-tab-{name}")

    def keys(where: str, *pressed: str) -> Callable[[], None]:
        def press() -> None:
            page.focus(where)
            for key in pressed:
                page.keyboard.press(key)
                page.wait_for_timeout(80)

        return press

    def scroll() -> None:
        page.hover(".ss-tokens")
        for turn in range(30):
            page.mouse.wheel(0, -300 if turn < 15 else 300)
            page.wait_for_timeout(40)
        page.mouse.move(2, 2)

    def clean() -> None:
        page.check("#ss-clean-text")
        page.wait_for_timeout(_SETTLE_MS)
        page.uncheck("#ss-clean-text")

    def width(pixels: int) -> Callable[[], None]:
        def resize() -> None:
            page.set_viewport_size({"width": pixels, "height": 900})
            page.wait_for_timeout(1000)

        return resize

    stop = '.ss-tokens [tabindex="0"], .ss-tokens[tabindex="0"]'
    return [
        ("drop a trace", drop),
        ("scroll the text", scroll),
        ("arrow keys in the text", keys(stop, *_WALK)),
        ("hover over tokens", lambda: _hover(page)),
        ("clean text and back", clean),
        ("tab Step", tab("step")),
        ("step by slider keys", keys(".ss-step-slider", *_STEPS)),
        ("tab Race", tab("race")),
        ("tab A/B", tab("ab")),
        ("pin a run", lambda: page.locator(".ss-pinned-bar button").first.click()),
        ("tab Rounds", tab("rounds")),
        ("resize to 800 px", width(800)),
        ("resize to 375 px", width(375)),
        ("resize to 1280 px", width(1280)),
        ("switch language", lambda: page.click(".ss-lang[aria-pressed=false]")),
        ("switch theme", lambda: page.click(".ss-icon-button:text-is('◐')")),
    ]


_WALK = ("End", "ArrowUp", "ArrowLeft", "Home", "ArrowRight", "ArrowDown", "ArrowDown")
_STEPS = ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "End", "ArrowLeft", "ArrowLeft", "Home")


def _hover(page: Any) -> None:
    box = page.locator(".ss-tokens").bounding_box()
    for turn in range(20):
        x, y = 20 + (turn * 47) % (box["width"] - 40), 20 + (turn * 31) % (box["height"] - 40)
        page.mouse.move(box["x"] + x, box["y"] + y)
        page.wait_for_timeout(40)
    page.mouse.move(2, 2)
