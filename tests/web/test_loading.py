"""The page before its model is there, and when it never comes."""

from __future__ import annotations

import re
import threading
import time

import pytest

from ui.recorded import read_recording
from ui.session import Studio

from .conftest import Stage, launch, wait_until

pytestmark = pytest.mark.browser


def test_a_recorded_run_plays_at_once_and_is_labelled(app_before_loading, browser):
    context = browser.new_context()
    try:
        context.set_default_timeout(90_000)  # machines may be busy
        context.new_page().goto(app_before_loading.url)  # the server's first answer is a cold one
        page = context.new_page()
        begin = time.monotonic()
        page.goto(app_before_loading.url)
        page.wait_for_selector(".ss-tokens .ss-accepted")
        print(f"a recorded token was visible after {time.monotonic() - begin:.2f} s")
        assert app_before_loading.studio.engine is None
        status = page.locator(".ss-status").inner_text()
        assert "Recorded" in status
        assert "SmolLM2-135M-Instruct" in status
        assert f"k {read_recording().start.k}" in status
        assert re.search(r"\d{4}-\d{2}-\d{2}", status)
        page.wait_for_selector('.ss-model[data-state="loading"]')
    finally:
        context.close()


def test_a_recorded_run_is_seen_before_any_of_gradio_s_scripts_is_there(
    app_before_loading, browser
):
    context = browser.new_context()
    try:
        context.set_default_timeout(90_000)
        page = context.new_page()
        released = threading.Event()
        waiting = []

        def hold(route):
            if released.is_set():
                route.continue_()
            else:
                waiting.append(route)

        page.route("**/assets/*.js", hold)
        page.goto(app_before_loading.url, wait_until="commit")
        page.wait_for_selector(".ss-preview .ss-tokens .ss-accepted")
        assert page.locator(".ss-before .ss-brand").is_visible()
        wait_until(lambda: waiting, "the page to ask for Gradio's scripts", page=page)
        released.set()
        for route in waiting:
            route.continue_()
        page.wait_for_selector("#run", state="attached")
        page.wait_for_function("!document.querySelector('.ss-preview, .ss-before')")
        assert page.locator(".ss-tokens").count() == 1
    finally:
        context.close()


def test_a_run_asked_for_too_early_waits_for_the_model_and_then_runs(app_before_loading, new_page):
    stage = Stage(new_page(app_before_loading.url))
    stage.page.fill("#prompt textarea", "a fox runs")
    before = stage.run_number()
    stage.page.fill("#plan textarea, #plan input", "3-4")
    stage.page.click("#run")
    stage.page.wait_for_function("document.body.dataset.selfspec === 'waiting'")
    stage.page.locator(".ss-status", has_text="Your run starts by itself").wait_for()
    app_before_loading.loads.set()
    done = stage.done(before)
    assert done["tokens"]
    stage.page.wait_for_selector('.ss-model[data-state="ready"]')
    stage.page.wait_for_function("document.querySelectorAll('.ss-branch').length === 16")
    assert stage.page.input_value("#prompt textarea") == "a fox runs"


def test_a_model_that_cannot_be_loaded_is_a_sentence_and_the_page_stays(tmp_path, new_page):
    studio = Studio(str(tmp_path / "nothing-here"), device="cpu")
    demo = None
    try:
        studio.start_loading()
        demo, url = launch(studio)
        stage = Stage(new_page(url))
        stage.page.wait_for_selector('.ss-model[data-state="failed"]')
        stage.run()
        stage.says("nothing-here")
        note = stage.page.locator(".ss-notes").inner_text()
        assert "The model could not be loaded" in note
        assert "nothing-here" in note
        assert "Traceback" not in stage.page.content()
    finally:
        if demo is not None:
            demo.close()
        studio.close()


def test_another_model_is_loaded_for_everybody_and_a_wrong_one_is_answered(
    hostile_model, tmp_path, new_page
):
    studio = Studio(
        str(hostile_model),
        device="cpu",
        dtype="float32",
        allowed=(str(hostile_model), str(tmp_path / "nothing-here")),
        switchable=True,
    )
    demo = None
    try:
        studio.start_loading()
        demo, url = launch(studio)
        stage = Stage(new_page(url))
        page = stage.page
        page.wait_for_selector('.ss-model[data-state="ready"]')
        first = studio.engine
        page.get_by_role("button", name="Change the model").click()
        picker = page.locator("#model-picker")
        picker.wait_for()
        picker.locator("label", has_text="nothing-here").click()
        page.click("#load-model")
        page.wait_for_function(
            "document.querySelector('.ss-header .ss-note').textContent.includes('nothing-here')"
        )
        assert studio.engine is first  # the one before goes on
        picker.locator("label", has_text=hostile_model.name).click()
        page.click("#load-model")
        picker.wait_for(state="hidden")
        assert studio.engine is not first
        stage.page.fill("#prompt textarea", "a fox runs")
        assert stage.run()["tokens"]
    finally:
        if demo is not None:
            demo.close()
        studio.close()


def test_a_model_cannot_be_changed_where_the_operator_did_not_allow_it(app, new_page):
    page = new_page(app.url)
    page.wait_for_selector('.ss-model[data-state="ready"]')
    assert page.locator("#model-picker").count() == 0
    assert not page.locator(".ss-model .ss-quiet-button").is_visible()
    with pytest.raises(ValueError, match="can't be changed from the page"):
        app.studio.switch("builtin")
