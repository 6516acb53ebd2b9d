"""The plan's history and ranges, links, shortcuts and announcements, in a real browser."""

from __future__ import annotations

import re

import pytest

from selfspec_core.plan import SkipPlan

from .conftest import LAYERS, Stage
from .test_decode import open_stage

pytestmark = pytest.mark.browser


def set_plan(stage: Stage, plan: str) -> None:
    stage.page.fill("#plan textarea, #plan input", plan)
    stage.page.press("#plan textarea, #plan input", "Enter")
    strip_shows(stage, plan)


def strip_shows(stage: Stage, plan: str) -> None:
    """Wait until the strip shows a plan, and nothing else."""
    wanted = SkipPlan.parse(plan, LAYERS)
    keys = sorted([f"a{i}" for i in wanted.attention] + [f"m{i}" for i in wanted.mlp])
    stage.page.wait_for_function(
        """keys => JSON.stringify([...document.querySelectorAll('.ss-branch[aria-pressed="true"]')]
             .map(b => b.dataset.kind[0] + b.dataset.layer).sort()) === JSON.stringify(keys)""",
        arg=keys,
    )


def test_the_plan_is_undone_and_done_again(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.uncheck("#auto input")
    set_plan(stage, "3-4")
    stage.page.click('.ss-branch-attention[data-layer="5"]')
    strip_shows(stage, "3-4,a5")
    stage.page.locator("#preset label", has_text="none").click()
    strip_shows(stage, "none")
    stage.page.wait_for_timeout(800)
    stage.page.click("#undo")
    strip_shows(stage, "3-4,a5")
    shown = SkipPlan.parse(stage.page.input_value("#plan textarea, #plan input"), LAYERS)
    assert shown == SkipPlan.parse("3-4,a5", LAYERS)
    stage.page.click("#undo")
    strip_shows(stage, "3-4")
    stage.page.click("#redo")
    strip_shows(stage, "3-4,a5")
    stage.page.focus('.ss-branch[tabindex="0"]')
    stage.page.keyboard.press("Control+z")
    strip_shows(stage, "3-4")
    stage.page.keyboard.press("Control+Shift+z")
    strip_shows(stage, "3-4,a5")


def test_shift_takes_a_range_by_mouse_and_by_keyboard(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    set_plan(stage, "none")
    page.click('.ss-branch-attention[data-layer="2"]')
    page.click('.ss-branch-attention[data-layer="5"]', modifiers=["Shift"])
    strip_shows(stage, "a2-5")
    page.wait_for_timeout(800)
    assert page.input_value("#plan textarea, #plan input") == "a2-5"
    page.click('.ss-branch-mlp[data-layer="1"]')
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    strip_shows(stage, "a2-5,m1-3")
    page.click('.ss-branch-mlp[data-layer="1"]')
    page.click('.ss-branch-mlp[data-layer="3"]', modifiers=["Shift"])
    strip_shows(stage, "a2-5")


def test_whatever_changes_the_plan_changes_all_that_shows_it(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    set_plan(stage, str(SkipPlan.preset("deep", LAYERS)))
    page.wait_for_function(
        "document.querySelector('#preset label.selected')?.innerText.includes('deep')"
    )
    share = round(100 * SkipPlan.preset("deep", LAYERS).share)
    page.wait_for_function(
        f"document.querySelector('#ratio input[type=number]').value === '{share}'"
    )


def test_a_link_carries_model_panel_language_and_policy(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.locator("#more").get_by_role("button").first.click()
    page.locator("#policy label", has_text="while sure, adapting").click()
    page.click("#share")
    page.wait_for_function("location.hash.length > 1")
    given = page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")
    assert given["policy"] == "adaptive"
    assert given["verify"] == "start"
    assert given["panel"] == "decode"
    assert given["lang"] == "en"
    assert given["model"] == app.studio.model_name.rsplit("/", 1)[-1]
    other = Stage(new_page(page.url.replace("panel=decode", "panel=tune")))
    other.page.wait_for_function("window.SelfSpec.panel() === 'tune'")
    other.page.evaluate("window.SelfSpec.openPanel('decode')")
    other.run()
    assert other.event("start")["policy"].startswith("adaptive")


def test_a_link_of_another_model_says_so(app, new_page):
    page = new_page(f"{app.url}/#model=org%2Fother")
    page.wait_for_function(
        "document.querySelector('.ss-header .ss-note').textContent.includes('org/other')"
    )


def test_a_question_mark_shows_the_shortcuts(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.focus("#prompt textarea")
    page.keyboard.type("?")
    assert not page.locator(".ss-dialog").is_visible()
    page.focus("#run")
    page.keyboard.press("?")
    dialog = page.locator(".ss-dialog")
    dialog.wait_for()
    assert "Undo and redo the plan" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")


def test_a_live_run_is_announced_and_a_recorded_one_is_not(app, new_page):
    stage = open_stage(new_page, app)
    heard = stage.page.locator(".ss-heard")
    assert heard.text_content() == ""
    stage.run()
    stage.page.wait_for_function("document.querySelector('.ss-heard').textContent !== ''")
    assert re.match(r"Round \d+: \d+ of \d+ kept\. ", heard.text_content())
