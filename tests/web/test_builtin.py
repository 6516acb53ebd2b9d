"""The page as a visitor gets it: the built-in model, a recorded run, and a real one."""

from __future__ import annotations

import pytest

from ui.recorded import read_recording
from ui.session import Studio

from .conftest import Stage, launch


@pytest.mark.browser
@pytest.mark.builtin
def test_a_visitor_sees_the_built_in_model_draft_and_lose_nothing(new_page):
    studio = Studio(recording=read_recording())
    demo = None
    try:
        studio.start_loading()
        demo, url = launch(studio)
        stage = Stage(new_page(url))
        stage.page.wait_for_selector('.ss-model[data-state="ready"]', timeout=300_000)
        stage.page.set_default_timeout(300_000)  # others may keep this machine busy
        stage.set_length(16)
        assert stage.page.input_value("#prompt textarea") == studio.recording.prompt
        done = stage.run()
        start = stage.event("start")
        assert start["model"]["id"] == "builtin"
        assert start["plan"] == studio.recording.start.plan
        assert len(done["tokens"]) == 16
        assert done["accepted"] > 0
        assert stage.event("baseline")["identical"] is True
        assert len(stage.event("heat")["attention"]) == 30
        assert stage.page.locator(".ss-branch").count() == 60
    finally:
        if demo is not None:
            demo.close()
        studio.close()
