"""The Decode panel in a real browser, on a tiny random model."""

from __future__ import annotations

import re
from typing import Any

import pytest

from selfspec_core.plan import SkipPlan

from .conftest import LAYERS, Stage, wait_until

pytestmark = pytest.mark.browser

FATES = ("accepted", "rejected", "unreached", "correction", "bonus")


def open_stage(new_page, app, **options) -> Stage:
    stage = Stage(new_page(app.url, **options))
    stage.page.wait_for_selector('.ss-model[data-state="ready"]')
    stage.page.fill("#prompt textarea", "a fox runs")
    stage.set_length(24)
    return stage


def test_run_streams_a_text_whose_tokens_show_their_fate_by_colour_and_mark(app, new_page):
    stage = open_stage(new_page, app)
    done = stage.run()
    assert len(done["tokens"]) == 24
    assert done["reason"] == "length"
    shown = {fate: stage.page.locator(f".ss-tokens .ss-{fate}").count() for fate in FATES}
    verdicts = [e for e in stage.state()["events"] if e["type"] == "verdict"]
    commits = [e for e in stage.state()["events"] if e["type"] == "commit"]
    for status in ("accepted", "rejected", "unreached"):
        assert shown[status] == sum(v["status"] == status for v in verdicts)
    for source in ("correction", "bonus"):
        assert shown[source] == sum(c["source"] == source for c in commits)
    assert shown["rejected"] > 0
    assert shown["correction"] == shown["rejected"]
    mark = stage.page.evaluate(
        """() => Object.fromEntries(["accepted", "rejected", "correction", "bonus"].map(fate => {
             const word = document.querySelector(`.ss-legend .ss-${fate} > .ss-word`);
             const style = getComputedStyle(word);
             return [fate, `${style.textDecorationLine} ${style.textDecorationStyle}`];
           }))"""
    )
    assert mark == {
        "accepted": "underline solid",
        "rejected": "line-through solid",
        "correction": "underline double",
        "bonus": "underline dotted",
    }
    cross = "getComputedStyle(document.querySelector('.ss-tokens .ss-rejected > .ss-word'), '::before').content"
    assert "✗" in stage.page.evaluate(cross)


def test_a_correction_stands_right_after_the_draft_it_replaces(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    after = stage.page.evaluate(
        "[...document.querySelectorAll('.ss-tokens .ss-rejected')]"
        ".map(e => e.nextElementSibling.classList.contains('ss-correction'))"
    )
    assert after
    assert all(after)


def test_clean_text_is_the_text_and_nothing_else(app, new_page):
    stage = open_stage(new_page, app)
    done = stage.run()
    assert stage.clean_text() == done["text"]
    stage.page.check("#ss-clean-text")
    assert stage.page.locator(".ss-clean").is_visible()
    assert not stage.page.locator(".ss-tokens").is_visible()


def test_figures_are_the_done_events_and_the_baseline_is_measured_and_identical(app, new_page):
    stage = open_stage(new_page, app)
    done = stage.run()
    baseline = stage.event("baseline")
    assert baseline["identical"] is True
    assert baseline["plain_tps"] > 0
    assert baseline["speedup"] == pytest.approx(
        done["tokens_per_second"] / baseline["plain_tps"], rel=1e-3
    )
    tiles = stage.page.locator(".ss-figures")
    assert f"{done['tau']:.2f}" in tiles.locator(".ss-figure-tau").inner_text()
    assert f"{round(100 * done['alpha'])}%" in tiles.locator(".ss-figure-alpha").inner_text()
    speedup = tiles.locator(".ss-figure-speedup").inner_text()
    assert "identical to plain decoding ✓" in speedup
    assert ("slower than plain decoding here" in speedup) == (baseline["speedup"] < 0.995)


def test_a_click_on_the_strip_toggles_a_branch_and_runs_again(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.fill("#plan textarea, #plan input", "3-4")
    before = stage.run_number()
    stage.page.press("#plan textarea, #plan input", "Enter")
    stage.done(before)
    before = stage.run_number()
    stage.page.click('.ss-branch-attention[data-layer="5"]')
    stage.done(before)
    assert stage.event("start")["plan"] == str(SkipPlan.parse("3-4,a5", LAYERS))
    assert stage.page.input_value("#plan textarea, #plan input") == stage.event("start")["plan"]
    before = stage.run_number()
    stage.page.click('.ss-branch-mlp[data-layer="3"]')
    stage.done(before)
    assert stage.event("start")["plan"] == str(SkipPlan.parse("a3-5,m4", LAYERS))


def test_the_strip_works_by_keyboard_with_roving_focus(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    assert page.locator(".ss-branch").count() == 2 * LAYERS
    assert page.locator('.ss-branch[tabindex="0"]').count() == 1
    page.focus('.ss-branch[tabindex="0"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = "[document.activeElement.dataset.layer, document.activeElement.dataset.kind]"
    assert page.evaluate(focused) == ["1", "mlp"]
    before, was = stage.run_number(), page.evaluate("document.activeElement.ariaPressed")
    page.keyboard.press("Space")
    stage.done(before)
    assert page.evaluate("document.activeElement.ariaPressed") != was
    assert page.evaluate(focused) == ["1", "mlp"]
    assert page.locator('.ss-branch[tabindex="0"]').count() == 1


def test_letting_a_slider_go_runs_again_with_the_same_prompt_and_seed(app, new_page):
    stage = open_stage(new_page, app)
    first = stage.run()
    start = stage.event("start")
    before = stage.run_number()
    box = stage.page.locator("#k input[type=range]").bounding_box()
    stage.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
    again = stage.done(before)
    moved = stage.event("start")
    assert moved["k"] != start["k"]
    assert (moved["prompt"], moved["seed"]) == (start["prompt"], start["seed"])
    assert again["text"] == first["text"]


def test_arrow_keys_on_a_slider_count_as_letting_go(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    before, k = stage.run_number(), stage.event("start")["k"]
    stage.page.focus("#k input[type=range]")
    stage.page.keyboard.press("ArrowRight")
    stage.page.keyboard.press("ArrowRight")
    stage.done(before, k=k + 2)  # if the second came late, the first has run as well


def test_leaving_a_field_unchanged_runs_nothing_and_a_new_seed_runs(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    before = stage.run_number()
    for field in ("#k", "#temperature", "#length", "#seed"):
        stage.page.focus(f"{field} input[type=number]")
        stage.page.keyboard.press("Tab")
    stage.page.wait_for_timeout(700)
    assert stage.run_number() == before
    stage.page.fill("#seed input", "5")
    stage.page.keyboard.press("Tab")
    stage.done(before)
    assert stage.event("start")["seed"] == 5


def test_a_seed_that_is_not_whole_is_refused_and_not_rounded(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.fill("#seed input", "1.5")
    stage.page.click("#run")
    stage.says("seed must be a whole number, got 1.5")
    assert stage.page.input_value("#seed input") == "1.5"


def test_the_skip_ratio_and_the_presets_set_the_plan(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    before = stage.run_number()
    stage.page.locator("#preset label", has_text="deep").click()
    stage.done(before)
    assert stage.event("start")["plan"] == "2-5"
    assert stage.page.locator('.ss-branch[aria-pressed="true"]').count() == 8
    before = stage.run_number()
    stage.page.focus("#ratio input[type=range]")
    stage.page.keyboard.press("End")
    stage.done(before)
    assert stage.event("start")["plan"] == "2-6"
    before = stage.run_number()
    stage.page.locator("#preset label", has_text="by length").click()
    stage.done(before)
    assert stage.event("start")["plan"] == "3-4;128:2-5"
    assert stage.page.locator(".ss-step").count() == 2


def test_a_click_on_the_strip_outlives_the_late_answer_to_a_preset(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    held: list[Any] = []
    late = True
    # What isn't queued: plans and presets.
    page.route(
        "**/gradio_api/run/**", lambda route: held.append(route) if late else route.continue_()
    )
    page.locator("#preset label", has_text="deep").click()
    wait_until(lambda: held, "the preset's question", page=page)
    page.click('.ss-branch-mlp[data-layer="6"]')
    late = False
    for route in held:
        route.continue_()
    plan = "document.querySelector('#plan textarea, #plan input').value"
    page.wait_for_function(f"{plan} === '3-4,m6'")
    page.wait_for_timeout(600)  # for what must not happen
    assert page.evaluate(plan) == "3-4,m6"
    assert page.locator('.ss-branch[aria-pressed="true"]').count() == 5
    # The other way round: the later preset wins.
    page.locator("#preset label", has_text="deep").click()
    page.wait_for_function(f"{plan} === '2-5'")


def test_with_re_run_off_nothing_runs_until_asked(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    stage.page.uncheck("#auto input")
    before = stage.run_number()
    stage.page.click('.ss-branch-mlp[data-layer="2"]')
    stage.page.wait_for_function(
        "document.querySelector('#plan textarea, #plan input')?.value.includes('m2')"
    )
    wait_until(lambda: app.studio.scheduler.idle, "idle")
    assert stage.run_number() == before
    stage.run()
    assert "m2" in stage.event("start")["plan"]


def test_a_new_run_supersedes_the_one_under_way(app, new_page):
    app.engine.pause = 0.1
    stage = open_stage(new_page, app)
    stage.set_length(300)
    stage.start_running()
    first = stage.run_number()
    rounds = app.engine.rounds
    stage.page.click('.ss-branch-mlp[data-layer="2"]')
    stage.page.wait_for_function("n => window.SelfSpec.trace.run > n", arg=first)
    app.engine.pause = 0.0
    done = stage.done(first)
    assert len(done["tokens"]) == 300
    assert app.engine.rounds > rounds


def test_stop_stops_and_keeps_what_was_written(app, new_page):
    app.engine.pause = 0.1
    stage = open_stage(new_page, app)
    stage.set_length(400)
    before = stage.run_number()
    stage.start_running()
    stage.page.click("#stop")
    done = stage.done(before)
    assert done["reason"] == "cancelled"
    assert 0 < len(done["tokens"]) < 400
    assert stage.clean_text() == done["text"]
    assert "Stopped" in stage.page.locator(".ss-status").inner_text()


def test_enter_runs_and_escape_stops(app, new_page):
    app.engine.pause = 0.1
    stage = open_stage(new_page, app)
    stage.set_length(400)
    before = stage.run_number()
    stage.page.focus("#prompt textarea")
    stage.page.keyboard.press("Enter")
    stage.page.wait_for_function("document.body.dataset.selfspec === 'running'")
    stage.page.keyboard.press("Escape")
    assert stage.done(before)["reason"] == "cancelled"
    assert stage.page.input_value("#prompt textarea") == "a fox runs"


def test_hovering_a_token_tells_its_probabilities_and_what_happened(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    stage.page.locator(".ss-tokens .ss-rejected").first.hover()
    panel = stage.page.locator(".ss-inspector")
    panel.wait_for()
    verdict = next(e for e in stage.state()["events"] if e.get("status") == "rejected")
    text = panel.inner_text()
    assert "struck out and corrected" in text
    assert f"{verdict['rank']}" in text
    assert re.search(r"p\s+0?\.?\d", text)
    assert f"{abs(verdict['offset']):.2f}" in text
    assert panel.locator(".ss-chart tr").count() == 5
    assert panel.locator(".ss-bar").count() == 10
    stage.page.mouse.move(5, 5)
    panel.wait_for(state="hidden")


def test_tokens_are_read_by_keyboard_with_roving_focus(app, new_page):
    stage = open_stage(new_page, app)
    stage.run()
    page = stage.page
    assert page.locator('.ss-tokens [tabindex="0"]').count() == 1
    page.focus('.ss-tokens [tabindex="0"]')
    panel = page.locator(".ss-inspector")
    panel.wait_for()
    first = panel.inner_text()
    page.keyboard.press("ArrowRight")
    assert panel.inner_text() != first
    page.keyboard.press("End")
    last = page.evaluate(
        "document.activeElement === [...document.querySelectorAll('.ss-tokens [role=option]')].at(-1)"
    )
    assert last
    assert page.locator('.ss-tokens [tabindex="0"]').count() == 1
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")


def test_a_tap_pins_the_details_on_a_phone_without_sideways_scrolling(app, new_page):
    stage = open_stage(new_page, app, viewport={"width": 375, "height": 760}, has_touch=True)
    stage.run()
    stage.page.locator(".ss-tokens .ss-rejected").first.tap()
    panel = stage.page.locator(".ss-inspector")
    panel.wait_for()
    box = panel.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375
    assert stage.page.evaluate("document.documentElement.scrollWidth") <= 375
    panel.locator(".ss-close").click()
    panel.wait_for(state="hidden")


def test_dark_theme_is_dark_and_the_switch_is_remembered(app, new_page):
    dark = Stage(new_page(app.url, color_scheme="dark"))
    paper = "getComputedStyle(document.body).backgroundColor"
    brightness = lambda page: sum(map(int, re.findall(r"\d+", page.evaluate(paper))[:3]))  # noqa: E731
    dark.page.wait_for_selector(".ss-model-name")
    assert brightness(dark.page) < 150
    dark.page.get_by_role("button", name="Switch between light and dark").click()
    assert brightness(dark.page) > 600
    dark.page.reload()
    dark.page.wait_for_selector(".ss-model-name")
    assert brightness(dark.page) > 600


def test_the_heatmap_has_a_value_for_every_branch_and_hatches_the_skipped_ones(app, new_page):
    pytest.importorskip("analysis.gates", reason="the importance analysis isn't there yet")
    stage = open_stage(new_page, app)
    stage.run()
    heat = stage.event("heat")
    assert len(heat["attention"]) == len(heat["mlp"]) == LAYERS
    assert stage.page.locator(".ss-heat .ss-cell").count() == 2 * LAYERS
    skipped = stage.page.locator('.ss-branch[aria-pressed="true"]').count()
    assert stage.page.locator(".ss-heat .ss-hatched").count() == skipped > 0


def test_a_link_carries_the_settings_in_the_fragment_and_nothing_in_the_request(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.fill("#plan textarea, #plan input", "a2-3,m5")
    stage.page.press("#plan textarea, #plan input", "Enter")
    stage.page.click("#share")
    stage.page.wait_for_function("location.hash.length > 1")
    link = stage.page.url
    assert "?" not in link.split("#")[0]
    assert "plan=a2-3%2Cm5" in link
    other = Stage(new_page(link))
    other.page.wait_for_function(
        "document.querySelector('#plan textarea, #plan input')?.value === 'a2-3,m5'"
    )
    assert other.page.input_value("#prompt textarea") == "a fox runs"
    other.page.wait_for_function(
        """() => document.querySelectorAll('.ss-branch[aria-pressed="true"]').length === 3"""
    )


def test_a_hostile_link_is_read_as_text_and_clamped(app, new_page):
    link = f"{app.url}/#prompt=%3Cimg%20src%3Dx%20onerror%3Dwindow.owned%3D1%3E&k=99&rule=evil&plan=%24%7Bwindow.owned%3D1%7D&seed=1e999"
    stage = Stage(new_page(link))
    stage.page.wait_for_function(
        "document.querySelector('#prompt textarea')?.value.includes('onerror')"
    )
    stage.page.wait_for_selector('.ss-model[data-state="ready"]')
    stage.set_length(6)
    stage.run()
    assert stage.page.evaluate("window.owned") is None
    start = stage.event("start")
    assert start["k"] <= 16
    assert start["rule"] == "coupled"
    assert stage.page.locator(".ss-prompt").inner_text() == "<img src=x onerror=window.owned=1>"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("99", "layer 99 doesn't exist"),
        ("0-7", "every branch is skipped"),
        ("lots", "can't read 'lots'"),
    ],
)
def test_a_bad_plan_is_answered_with_a_sentence_and_stays_typed(app, new_page, plan, message):
    stage = open_stage(new_page, app)
    stage.page.fill("#plan textarea, #plan input", plan)
    before = stage.run_number()
    stage.page.press("#plan textarea, #plan input", "Enter")
    stage.page.wait_for_function(
        "m => document.querySelector('.ss-layers .ss-error').textContent.includes(m)", arg=message
    )
    stage.done(before)
    stage.says(message)
    assert stage.page.input_value("#plan textarea, #plan input") == plan
    assert "Traceback" not in stage.page.content()


def test_an_empty_prompt_is_answered_with_a_sentence(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.fill("#prompt textarea", "   ")
    stage.run()
    stage.says("The prompt is empty")


def test_the_page_says_why_there_is_nothing_to_show(app, new_page):
    """Case 26."""
    stage = open_stage(new_page, app)
    stage.page.locator("#preset label", has_text="none").click()
    stage.run()
    stage.says("No layer is skipped")
    stage.set_length(1)
    stage.run()
    stage.says("leaves no room for a draft")


def test_lossy_rules_are_marked_and_warned_of(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.uncheck("#auto input")
    stage.page.fill("#temperature input[type=number]", "0.8")
    stage.page.locator("#temperature input[type=number]").blur()
    stage.page.locator("#rule label", has_text="threshold (lossy)").click()
    stage.run()
    assert stage.event("start")["lossless"] is False
    stage.says("lossy")
