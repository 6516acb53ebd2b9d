"""Other people, hostile words, closed tabs and other hosts, in a real browser."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from .conftest import HOSTILE, Stage, serious, wait_until
from .test_decode import open_stage

pytestmark = pytest.mark.browser


def test_hostile_tokens_are_shown_as_text(app, new_page):
    """Case 28: ${…}, <img onerror>, <script>, a backslash, a backtick and a template."""
    stage = open_stage(new_page, app)
    page = stage.page
    page.fill("#prompt textarea", " ".join(HOSTILE))
    page.uncheck("#auto input")  # a shorter run of its own would do for the one that is asked for
    page.fill("#temperature input[type=number]", "2")
    page.locator("#temperature input[type=number]").blur()
    stage.set_length(300)
    stage.run()
    written = stage.event("done")["text"]
    seen = [word for word in HOSTILE if word in written]
    assert len(seen) == len(HOSTILE), f"the model wrote only {seen}"
    shown = page.locator(".ss-tokens").inner_text()
    for word in HOSTILE:
        assert word in shown
    commits = [e for e in stage.state()["events"] if e["type"] == "commit"]
    assert stage.clean_text() == "".join(e["text"] for e in commits if not e["special"])
    tokens = page.locator(".ss-tokens [role=option]", has_text="window.owned").all()[:6]
    for token in tokens:
        token.dispatch_event(
            "pointerover", {"pointerType": "mouse", "bubbles": True}
        )  # a word over two lines has its middle elsewhere
        page.locator(".ss-inspector").wait_for()
    assert page.evaluate("window.owned") is None
    assert page.locator(".ss-stage img, .ss-stage script, .ss-inspector img").count() == 0


def test_two_people_with_different_plans_each_get_what_they_would_get_alone(app, new_page):
    """Case 25."""
    people = {"none": "1-3", "light": "4-6"}
    alone, together = {}, {}
    stages = {}
    for name, plan in people.items():
        stage = stages[name] = open_stage(new_page, app)
        stage.page.uncheck("#auto input")
        stage.page.fill("#plan textarea, #plan input", plan)
        stage.page.press("#plan textarea, #plan input", "Enter")
        stage.page.fill("#prompt textarea", f"a fox runs {name}")
        stage.set_length(60)
        stage.page.uncheck("#auto input")
        stage.run()
        alone[name] = story(stage)
    app.engine.pause = 0.03
    before = {name: stage.run_number() for name, stage in stages.items()}
    for stage in stages.values():
        stage.page.click("#run")
    for name, stage in stages.items():
        stage.done(before[name])
        together[name] = story(stage)
    assert together == alone
    assert alone["none"] != alone["light"]


def story(stage: Stage) -> list[tuple]:
    """All that was drafted, judged and written, without times."""
    keys = ("type", "round", "position", "token", "status", "source", "plan", "text")
    kinds = ("draft", "verdict", "commit", "round")
    return [
        tuple(e.get(key) for key in keys) for e in stage.state()["events"] if e["type"] in kinds
    ]


def test_a_closed_tab_stops_the_work_at_the_next_round(app, new_page):
    """Case 27."""
    app.engine.pause = 0.3
    stage = open_stage(new_page, app)
    stage.set_length(512)
    stage.start_running()
    stage.page.close()
    rounds = app.engine.rounds
    wait_until(lambda: app.studio.scheduler.idle, "the work of a closed tab to stop")
    # Noticing takes a message to a closed connection; then the round under way is the last.
    assert app.engine.rounds - rounds < 20


def test_nothing_loads_from_another_host(app, browser):
    context = browser.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(90_000)
        hosts = set()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(app.url)
        page.wait_for_selector('.ss-model[data-state="ready"]')
        for panel in ("layers", "tune", "compare", "learn", "decode"):
            page.evaluate("name => SelfSpec.openPanel(name)", panel)
            page.wait_for_function("name => SelfSpec.panel() === name", arg=panel)
            page.wait_for_timeout(300)
        assert {host for host in hosts if host} == {urlsplit(app.url).netloc}
    finally:
        context.close()


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("open_", ["token", "shortcuts"])
def test_axe_finds_nothing_serious_on_the_decode_panel(app, new_page, theme, locale, open_):
    stage = open_stage(new_page, app, color_scheme=theme, locale=locale)
    stage.page.locator("#more").get_by_role("button").first.click()
    stage.run()
    if open_ == "token":
        stage.page.locator(".ss-tokens .ss-rejected").first.click()
    else:
        stage.page.locator(".ss-header-tools .ss-icon-button").first.click()
    assert serious(stage.page) == []
