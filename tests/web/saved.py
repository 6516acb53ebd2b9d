"""Traces of the tiny model, and pages that were saved with them, for the tests of the views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selfspec_core.events import Event
from tests import loops
from ui.feed import TraceFeed
from ui.settings import Settings
from ui.trace_page import trace_page

RULES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "coupled": {"temperature": 0.9},
    "rejection": {"temperature": 0.9, "rule": "rejection"},
    "threshold": {"temperature": 0.9, "rule": "threshold", "threshold": 0.05},
    "typical": {"temperature": 0.9, "rule": "typical"},
}
_TRACES: dict[tuple[Any, ...], list[Event]] = {}


def events_of(app: Any, *, tokens: int = 40, **settings: Any) -> list[Event]:
    """What the engine says of a request; asked once, on the engine's own thread."""
    asked = Settings(
        prompt="a fox runs", **{"plan": "3-4", "k": 3, "max_new_tokens": tokens, **settings}
    )
    key = (id(app.studio), *sorted(vars(asked).items()))
    if key not in _TRACES:

        async def read() -> list[Event]:
            _, ticket = app.studio.generate(asked, owner=None)
            return [event async for event in ticket if event.type != "wait"]

        _TRACES[key] = loops.run(read())
    return _TRACES[key]


def value_of(events: list[Event], *notes: dict[str, Any]) -> str:
    """The same as a value of the stage."""
    feed = TraceFeed(0, prompt="a fox runs")
    feed.add(events)
    feed.add(notes)
    return feed.whole(state="recorded", message="a recorded run")


def beside_slow_decoding(events: list[Event]) -> str:
    """The same beside plain decoding of 0.9 s a token, which the race is run against."""
    texts = [e.text for e in events if e.type == "commit"]
    plain = {"ms": [900.0] * len(events[-1].tokens), "texts": texts}
    baseline = {
        "type": "baseline", "identical": True, "identity": "", "text": "", "speedup": 0.5,
        "plain_tps": 1.0, "plain": plain,
    }  # fmt: skip
    return value_of(events, baseline)


class Saved:
    """A saved page, open in a browser without any server."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def tab(self, name: str) -> Any:
        """Choose a view; its panel."""
        self.page.click(f"#ss-tab-{name}")
        return self.page.locator(f"#ss-panel-{name}")

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, as the page holds them."""
        events = json.loads(self.page.evaluate("JSON.stringify(SelfSpec.trace.events)"))
        return [event for event in events if event["type"] == kind]

    def shown_text(self) -> str:
        """The output as far as the token view shows it."""
        return self.page.evaluate(
            """() => SelfSpec.reading.commits.length && [...document.querySelectorAll('.ss-tokens .ss-token')]
                 .filter(e => e.offsetParent && /ss-(accepted|correction|bonus|plain)/.test(e.className))
                 .map(e => e.textContent).join('')"""
        )


@pytest.fixture
def open_saved(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a saved page from its file; fails the test on an error, or if it asks for anything."""
    contexts, errors, asked = [], [], []

    def open_page(page_or_value: str, **options: Any) -> Saved:
        text = page_or_value
        if not text.startswith("<!doctype"):
            text = trace_page(text)
        path = tmp_path / f"saved{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        # Without bypass_csp Playwright's own functions would be refused as well.
        context = browser.new_context(
            **{
                "bypass_csp": True,
                "reduced_motion": "reduce",
                "viewport": {"width": 1100, "height": 1000},
                **options,
            }
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_function("!SelfSpec.trace.playing && SelfSpec.trace.events.length > 1")
        return Saved(page)

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in asked if not url.startswith(("file://", "data:", "blob:"))] == []
