"""The studio by keyboard alone: passing by changes nothing, and focus is never lost."""

from __future__ import annotations

import pytest

from .conftest import Stage
from .saved import beside_slow_decoding, events_of, value_of
from .test_decode import open_stage
from .test_shell import set_plan, strip_shows

pytestmark = pytest.mark.browser

FOCUSED = "document.activeElement.closest('[id]').id"
PLAN = "#plan textarea, #plan input"


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_until(page, selector: str, most: int = 120) -> None:
    """Press Tab until an element that fits has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
    pytest.fail(f"Tab never came to {selector}")


# -- fields ---------------------------------------------------------------------------------------


def test_who_passes_by_with_tab_keeps_the_plan_and_starts_no_run(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    set_plan(stage, "a1-2")
    page.check("#auto input")
    before = stage.run_number()
    tab_until(page, "#ss-clean-text")  # past all settings
    page.wait_for_timeout(800)
    assert page.input_value(PLAN) == "a1-2"
    assert stage.run_number() == before
    # What is changed counts when it is left.
    page.focus("#ratio input[type=number]")
    press(page, "ArrowUp", "Tab")
    page.wait_for_function(
        "() => document.querySelector('#plan textarea, #plan input').value !== 'a1-2'"
    )
    stage.done(before)


def test_arrow_keys_choose_among_choices_and_go_round(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    page.locator("#preset input").first.focus()
    press(page, "ArrowRight")
    assert page.locator("#preset input").nth(1).is_checked()
    assert page.evaluate(FOCUSED) == "preset"
    press(page, "ArrowLeft")
    strip_shows(stage, "none")
    press(page, "ArrowUp")
    # The answer to the choice before may come in between, and choose that again meanwhile.
    page.wait_for_function("SelfSpec.plans.now().includes(';')")
    page.locator("#preset label.selected:last-child").wait_for()
    page.wait_for_timeout(500)  # for what must not happen
    assert page.locator("#preset input").last.is_checked()


def test_a_list_of_choices_closes_behind_tab_and_a_choice_keeps_the_focus(app, new_page):
    page = open_stage(new_page, app).page
    page.locator("[role=tab]").nth(2).click()
    page.focus("#tune-method input")
    options = page.locator("[role=listbox] [data-testid=dropdown-option]")
    options.first.wait_for()
    press(page, "Tab")
    options.first.wait_for(state="detached")
    page.wait_for_timeout(500)  # for what must not happen
    assert options.count() == 0
    page.focus("#tune-method input")  # not by Shift+Tab: terms are marked between them meanwhile
    options.first.wait_for()
    chosen = page.input_value("#tune-method input")
    press(page, "ArrowDown", "Enter")
    page.wait_for_function(
        "was => document.querySelector('#tune-method input').value !== was", arg=chosen
    )
    options.first.wait_for(state="detached")
    page.wait_for_timeout(500)  # for what must not happen
    assert page.input_value("#tune-method input") != chosen
    assert page.evaluate(FOCUSED) == "tune-method"
    assert options.count() == 0


# -- where focus goes -------------------------------------------------------------------------------


def test_stop_gives_focus_back_to_what_began_the_work(app, new_page, monkeypatch, tmp_path):
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))
    page = open_stage(new_page, app).page
    page.locator("[role=tab]").nth(2).click()
    page.focus("#tune-search-go")
    press(page, "Enter")
    stop = page.locator(".ss-tune-search .ss-tune-job button")
    stop.wait_for()
    stop.focus()
    press(page, "Enter")
    stop.wait_for(state="hidden")
    page.wait_for_function(f"{FOCUSED} === 'tune-search-go'")


def test_steps_of_a_plan_by_length_keep_the_focus(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    page.fill(PLAN, "3-4;64:2-5")
    press(page, "Enter")
    steps = page.locator(".ss-layers .ss-step")
    steps.nth(1).wait_for()
    steps.nth(1).focus()
    press(page, "Enter")
    assert steps.nth(1).get_attribute("aria-pressed") == "true"
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"


def test_replay_and_a_race_that_starts_over_keep_the_focus(app, open_saved):
    page = open_saved(beside_slow_decoding(events_of(app)), reduced_motion="no-preference").page
    page.focus("[data-tool=replay]")
    # Looked at as it begins: it may be over soon.
    page.evaluate(
        """document.querySelector('[data-tool=replay]').addEventListener(
             'click', () => (window.played = SelfSpec.trace.playing))"""
    )
    press(page, "Enter")
    assert page.evaluate("window.played") is True
    page.wait_for_timeout(100)
    assert page.evaluate("document.activeElement.dataset.tool") == "replay"
    press(page, "Enter")  # says nothing while it plays
    page.wait_for_function("!SelfSpec.trace.playing")
    page.click("#ss-tab-race")
    page.click(".ss-race-go")
    page.wait_for_function("document.querySelector('.ss-lane-plain .ss-lane-text').textContent")
    page.get_by_role("button", name="Start over").focus()
    press(page, "Enter")
    page.wait_for_timeout(100)
    assert page.evaluate("document.activeElement.matches('.ss-race-go')")


# -- the text and its rounds ------------------------------------------------------------------------


def test_rounds_keep_their_one_tab_stop_while_the_plot_scrolls(app, open_saved):
    page = open_saved(value_of(events_of(app, tokens=700, k=1))).page
    page.focus(".ss-rounds [tabindex='0']")
    press(page, "Home")
    page.focus("#ss-tab-rounds")
    width = page.locator(".ss-round").first.bounding_box()["width"]
    for columns in (13.5, 26.5, 0):  # as far as takes the tab stop away, among columns that stay
        page.evaluate(
            "left => (document.querySelector('.ss-rounds-scroll').scrollLeft = left)",
            columns * width,
        )
        page.wait_for_timeout(100)
        assert page.locator(".ss-rounds .ss-round[tabindex='0']").count() == 1
        assert page.locator(".ss-round[aria-selected='true']").count() == 1
    tab_until(page, ".ss-round")


def test_space_explains_a_word_again_and_scrolls_nothing(app, new_page):
    stage = Stage(new_page(app.url, viewport={"width": 1280, "height": 500}))
    page = stage.page
    page.wait_for_selector('.ss-model[data-state="ready"]')
    page.fill("#prompt textarea", "a fox runs")
    stage.set_length(24)
    stage.run()
    page.focus(".ss-tokens [tabindex='0']")
    press(page, "Escape")
    page.locator(".ss-inspector").wait_for(state="hidden")
    before = page.evaluate("scrollY")
    press(page, "Space")
    page.locator(".ss-inspector").wait_for()
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") == before


def test_a_number_that_no_slider_can_hold_runs_with_the_nearest_that_it_can(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    field = page.locator("#k input[type=number]")
    for typed, shown in (("1e9", "16"), ("0", "1"), ("4.4", "4")):
        before = stage.run_number()
        field.fill(typed)
        field.blur()
        stage.done(before)
        assert field.input_value() == shown
        assert stage.event("start")["k"] == int(shown)
    # An empty one is as it was.
    before = stage.run_number()
    field.focus()
    field.fill("")
    field.blur()
    page.wait_for_timeout(500)
    assert field.input_value() == "4"
    assert stage.run_number() == before
    assert page.locator(".toast-body").all_inner_texts() == []
