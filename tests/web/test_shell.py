"""The plan's history and ranges, links, shortcuts and announcements, in a real browser."""

from __future__ import annotations

import json
import random
import re

import pytest

from selfspec_core.plan import LengthSchedule, SkipPlan
from ui.plan_view import to_strip

from .conftest import LAYERS, Stage, wait_until
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


def follows(stage: Stage, plan: str) -> None:
    """Wait until the field and the history have a plan that came from the strip or a preset."""
    stage.page.wait_for_function(
        """plan => document.querySelector('#plan textarea, #plan input')?.value === plan
             && SelfSpec.plans.texts[SelfSpec.plans.at] === plan && !SelfSpec.plans.asking""",
        arg=plan,
    )


def test_the_plan_is_undone_and_done_again(app, new_page):
    stage = open_stage(new_page, app)
    stage.page.uncheck("#auto input")
    set_plan(stage, "3-4")
    stage.page.click('.ss-branch-attention[data-layer="5"]')
    strip_shows(stage, "3-4,a5")
    stage.page.locator("#preset label", has_text="none").click()
    strip_shows(stage, "none")
    follows(stage, "none")
    stage.page.click("#undo")
    strip_shows(stage, "3-4,a5")
    follows(stage, str(SkipPlan.parse("3-4,a5", LAYERS)))
    stage.page.click("#undo")
    strip_shows(stage, "3-4")
    stage.page.click("#redo")
    strip_shows(stage, "3-4,a5")
    stage.page.focus('.ss-branch[tabindex="0"]')
    stage.page.keyboard.press("Control+z")
    strip_shows(stage, "3-4")
    stage.page.keyboard.press("Control+Shift+z")
    strip_shows(stage, "3-4,a5")


def test_plans_entered_one_after_the_other_are_undone_one_by_one_in_every_panel(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    for plan in ("a2", "m3", "a4"):
        set_plan(stage, plan)  # the field keeps the focus
        page.wait_for_function("plan => SelfSpec.plans.texts.at(-1) === plan", arg=plan)
    now = lambda: page.evaluate("SelfSpec.plans.now()")  # noqa: E731
    page.click("#undo")
    strip_shows(stage, "m3")
    page.locator("[role=tab]").nth(2).click()
    page.keyboard.press("Control+z")
    wait_until(lambda: now() == "a2", "the first plan", page=page)
    page.keyboard.press("Control+Shift+z")
    page.keyboard.press("Control+y")
    wait_until(lambda: now() == "a4", "the last plan", page=page)
    # A text field has a history of its own.
    page.wait_for_selector(".ss-tune-import textarea")
    page.focus(".ss-tune-import textarea")
    page.keyboard.press("Control+z")
    page.wait_for_timeout(300)
    assert now() == "a4"


def test_the_header_fits_a_phone(app, new_page):
    for width in (375, 330):
        page = new_page(app.url, viewport={"width": width, "height": 700})
        page.wait_for_selector(".ss-header-tools .ss-link-button")
        ends = page.evaluate(
            "[...document.querySelectorAll('.ss-header-tools button')].map(b => b.getBoundingClientRect().right)"
        )
        assert max(ends) <= width - 8


def test_shift_takes_a_range_by_mouse_and_by_keyboard(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    set_plan(stage, "none")
    page.click('.ss-branch-attention[data-layer="2"]')
    page.click('.ss-branch-attention[data-layer="5"]', modifiers=["Shift"])
    strip_shows(stage, "a2-5")
    follows(stage, "a2-5")
    page.click('.ss-branch-mlp[data-layer="1"]')
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    strip_shows(stage, "a2-5,m1-3")
    page.click('.ss-branch-mlp[data-layer="1"]')
    page.click('.ss-branch-mlp[data-layer="3"]', modifiers=["Shift"])
    strip_shows(stage, "a2-5")


def test_late_answers_change_nothing_that_was_clicked_since(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    set_plan(stage, "none")
    held = []

    def hold(route):
        held.append(route)

    # Every answer of the server waits while somebody clicks, and then they come backwards.
    page.route("**/gradio_api/run/*", hold)
    page.route("**/gradio_api/call/*", hold)
    page.route("**/gradio_api/api/*", hold)
    page.route("**/gradio_api/queue/join*", hold)
    for layer in (1, 2, 3, 4):
        page.click(f'.ss-branch-attention[data-layer="{layer}"]')
        page.wait_for_timeout(100)
    wait_until(lambda: len(held) >= 4, "the page to ask", page=page)
    strip_shows(stage, "a1-4")
    for number, route in enumerate(reversed(held)):
        with page.expect_response(lambda _: True):
            route.continue_()
        page.wait_for_timeout(100)
        if number == 0:
            page.click('.ss-branch-mlp[data-layer="6"]')
    follows(stage, "a1-4,m6")
    page.wait_for_timeout(300)  # for what must not happen
    strip_shows(stage, "a1-4,m6")
    follows(stage, "a1-4,m6")


def test_a_run_waits_for_the_plan_that_was_asked_for(app, new_page):
    """Run comes right after a preset's click, whose plan only the server knows."""
    stage = open_stage(new_page, app)
    page = stage.page
    page.uncheck("#auto input")
    set_plan(stage, "3-4")
    follows(stage, "3-4")
    held = []

    def hold(route):  # the preset's request, and no other that happens to come first
        asks = '"none"' in (route.request.post_data or "")
        held.append(route) if asks and not held else route.continue_()

    page.route("**/gradio_api/run/*", hold)
    page.locator("#preset label", has_text="none").click()
    wait_until(lambda: held, "the page to ask", page=page)
    before = stage.run_number()
    page.click("#run")
    page.wait_for_timeout(300)
    assert stage.run_number() == before
    held[0].continue_()
    stage.done(before)
    assert stage.event("start")["plan"] == "none"
    # A boundary that makes no plan is answered as well, so the next run doesn't wait for one.
    page.evaluate("() => window.SelfSpec.plans.ask()")
    page.evaluate(
        "() => window.SelfSpec.plans.refused({ act: String(window.SelfSpec.plans.acts) })"
    )
    assert page.evaluate("() => window.SelfSpec.plans.settled()") == "none"


def test_the_page_writes_plans_as_python_does(app, new_page):
    page = open_stage(new_page, app).page
    draw = random.Random(7)

    def plan() -> SkipPlan:
        return SkipPlan(
            LAYERS, *([i for i in range(LAYERS) if draw.random() < 0.5] for _ in range(2))
        )

    plans = [SkipPlan(LAYERS), SkipPlan.parse("a2-5,m2-5", LAYERS)]
    plans += [
        LengthSchedule(((0, plan()), (8 * n, plan()))) if n % 3 == 0 else plan()
        for n in range(1, 120)
    ]
    drawn = [json.loads(to_strip(plan)) for plan in plans]
    assert page.evaluate("drawn => drawn.map(SelfSpec.planText)", drawn) == list(map(str, plans))


def test_whatever_changes_the_plan_changes_all_that_shows_it(app, new_page):
    stage = open_stage(new_page, app)
    page = stage.page
    set_plan(stage, str(SkipPlan.preset("deep", LAYERS)))
    page.wait_for_function(
        "document.querySelector('#preset label.selected')?.innerText.includes('deep')"
    )
    share = round(100 * SkipPlan.preset("deep", LAYERS).share)
    page.wait_for_function(
        f"document.querySelector('#ratio input[type=number]')?.value === '{share}'"
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
    other.page.wait_for_function(
        "document.querySelector('#prompt textarea')?.value === 'a fox runs'"
    )
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
    heard.filter(has_text=re.compile(r"^Round \d+: \d+ of \d+ kept\. ")).wait_for(state="attached")


def test_a_link_carries_sampling_where_it_is_not_the_page_s_first(app, new_page):
    link = f"{app.url}/#rule=threshold&threshold=0.25&topk=40&repetition=1.3&stop=fox%0Aruns&confidence=0.35"
    stage = Stage(new_page(link))
    page = stage.page
    page.wait_for_selector('.ss-model[data-state="ready"]')
    page.locator("#more").get_by_role("button").first.click()
    for name, value in (("threshold", "0.25"), ("top-k", "40"), ("repetition-penalty", "1.3")):
        page.wait_for_function(
            "([id, value]) => document.querySelector(`#${id} input`)?.value === value",
            arg=[name, value],
        )
    page.click("#share")
    page.wait_for_function("location.hash.includes('panel=')")
    given = page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")
    wanted = {"threshold": "0.25", "topk": "40", "repetition": "1.3", "stop": "fox\nruns"}
    assert wanted.items() <= given.items()
    assert given["confidence"] == "0.35"
    assert not {"topp", "minp", "presence"} & set(given)


def test_a_link_beyond_this_server_s_sliders_still_runs(app, new_page):
    stage = Stage(new_page(f"{app.url}/#prompt=a+fox&k=40&length=1000"))
    page = stage.page
    page.wait_for_selector('.ss-model[data-state="ready"]')
    page.wait_for_function("document.querySelector('#length input[type=number]')?.value === '512'")
    page.wait_for_function("document.querySelector('#k input[type=number]')?.value === '16'")
    stage.set_length(6)
    stage.run()
    assert stage.event("start")["k"] == 16


def test_a_link_can_be_copied_in_every_panel(app, new_page):
    page = open_stage(new_page, app).page
    page.locator("[role=tab]").nth(3).click()
    page.wait_for_selector("#compare-go")
    page.get_by_role("button", name="Copy a link to this page").click()
    page.wait_for_function("location.hash.includes('panel=compare')")
