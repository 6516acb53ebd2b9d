"""Traces as files: saved, opened, dropped; what is no trace is refused and does nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfspec_core.events import from_ndjson, to_ndjson
from ui.recorded import WELCOME
from ui.trace_page import main

from .conftest import HOSTILE
from .saved import RULES, Saved, events_of, value_of
from .test_decode import open_stage

pytestmark = pytest.mark.browser


def drop(page: Any, name: str, text: str, *, size: int | None = None) -> None:
    """Drop a file on the page, as a person's file manager does."""
    page.evaluate(
        """([name, text, size]) => {
             const file = new File([text], name);
             if (size) Object.defineProperty(file, 'size', {value: size});
             const event = new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: new DataTransfer()});
             event.dataTransfer.items.add(file);
             if (size) Object.defineProperty(event, 'dataTransfer', {value: {types: ['Files'], files: [file]}});
             document.querySelector('.ss-stage').dispatchEvent(event);
           }""",
        [name, text, size],
    )


def test_a_saved_trace_is_the_engines_own_and_opens_again_by_drop_and_by_button(app, open_saved):
    events = events_of(app, **RULES["coupled"])
    saved = open_saved(value_of(events))
    with saved.page.expect_download() as download:
        saved.page.click("[data-tool=ndjson]")
    path = Path(download.value.path())
    text = path.read_text(encoding="utf-8")
    assert [e.to_dict() for e in from_ndjson(text)] == [e.to_dict() for e in events]
    assert download.value.suggested_filename.endswith("-seed0.ndjson")
    other = open_saved(value_of(events_of(app)))
    drop(other.page, "mine.ndjson", text)
    other.page.wait_for_function("SelfSpec.trace.header.state === 'opened'")
    other.page.wait_for_function("!SelfSpec.trace.playing")
    done = events[-1]
    assert other.page.locator(".ss-clean").text_content() == done.text
    assert "mine.ndjson" in other.page.locator(".ss-status").inner_text()
    tau = other.page.locator(".ss-figure-tau .ss-value").inner_text()
    assert tau == f"{done.tau:.2f}"
    third = open_saved(value_of(events_of(app)))
    # The dialog itself is the system's; that Enter asks for it, and what it gives is opened, is ours.
    third.page.evaluate(
        """document.querySelector('.ss-tools input').addEventListener('click', event => {
             event.preventDefault();
             window.asked = true;
           })"""
    )
    third.page.focus("[data-tool=open]")
    third.page.keyboard.press("Enter")
    assert third.page.evaluate("window.asked") is True
    file = {"name": "t.ndjson", "mimeType": "", "buffer": text.encode()}
    third.page.set_input_files(".ss-tools input", file)
    third.page.wait_for_function("SelfSpec.trace.header.state === 'opened'")


def test_a_page_saved_in_the_studio_replays_offline_with_all_its_views(app, new_page, open_saved):
    stage = open_stage(new_page, app)
    done = stage.run()
    with stage.page.expect_download() as download:
        stage.page.click("[data-tool=page]")
    page = Path(download.value.path()).read_text(encoding="utf-8")
    saved = open_saved(page)
    assert json.dumps(saved.events("done")) == json.dumps([done])
    assert saved.page.locator(".ss-clean").text_content() == done["text"]
    assert saved.page.locator(".ss-round").count() == done["rounds"]
    speedup = stage.page.locator(".ss-figure-speedup .ss-value").inner_text()
    assert saved.page.locator(".ss-figure-speedup .ss-value").inner_text() == speedup
    saved.tab("race")
    assert saved.page.locator(".ss-race-verdict").inner_text().startswith("Same text, ")
    # What it saves and opens itself is that page again.
    with saved.page.expect_download() as again:
        saved.page.click("[data-tool=page]")
    second = open_saved(Path(again.value.path()).read_text(encoding="utf-8"))
    assert second.events("done") == [done]
    drop(second.page, "page.html", page)
    second.page.wait_for_function("SelfSpec.trace.header.state === 'opened'")
    second.page.wait_for_function("!SelfSpec.trace.playing")
    assert second.events("done") == [done]
    assert second.page.evaluate("SelfSpec.reading.baseline.plain.ms.length") == len(done["tokens"])


def test_an_opened_trace_stays_until_a_new_run_begins(app, new_page):
    stage = open_stage(new_page, app)
    first = stage.run()
    drop(stage.page, "t.ndjson", to_ndjson(events_of(app, tokens=6)))
    stage.page.wait_for_function("SelfSpec.trace.header.state === 'opened'")
    assert len(stage.event("done")["tokens"]) == 6
    again = stage.run()
    assert again["tokens"] == first["tokens"]
    assert "t.ndjson" not in stage.page.locator(".ss-status").inner_text()


def test_hostile_words_in_a_file_are_shown_as_text(app, open_saved):
    events = events_of(app, tokens=300, temperature=2.0)
    assert all(word in events[-1].text for word in HOSTILE)
    saved = open_saved(value_of(events))
    for tab in ("rounds", "step", "race", "ab"):
        saved.tab(tab)
    saved.page.get_by_role("button", name="Pin this run as A").click()
    with saved.page.expect_download() as download:
        saved.page.click("[data-tool=page]")
    page = Path(download.value.path()).read_text(encoding="utf-8")
    second = open_saved(page)
    shown = second.page.locator(".ss-tokens").inner_text()
    assert all(word in shown for word in HOSTILE)
    drop(second.page, "<img src=x onerror=window.owned=5>.html", page)
    second.page.wait_for_function("SelfSpec.trace.header.state === 'opened'")
    second.page.wait_for_function("!SelfSpec.trace.playing")
    for opened in (saved, second):
        assert opened.page.evaluate("window.owned") is None
        assert opened.page.locator("main img, main script").count() == 0


def test_what_is_no_trace_is_refused_with_what_is_allowed_and_changes_nothing(app, open_saved):
    events = events_of(app, tokens=6)
    lines = to_ndjson(events).splitlines()
    start, draft = json.loads(lines[0]), json.loads(lines[1])
    saved = open_saved(value_of(events))
    page = saved.page

    def with_draft(**fields: Any) -> str:
        return "\n".join([lines[0], json.dumps({**draft, **fields})])

    bad = {
        "": "there is no event",
        "nonsense": "line 1 is no JSON object",
        "[1]": "line 1 is no JSON object",
        "\x00\x01\ufffd": "line 1 is no JSON object",
        '{"type": "constructor"}': "line 1 is no event",
        '{\n  "schema": 1,\n  "plan": "3-4"\n}': "it holds a plan",
        '{"best": {"attention": [3], "mlp": [3]}}': "it holds a plan",
        "[0, 0, 1, 1]": "it holds a plan",
        lines[1]: "“start”",
        json.dumps({**start, "schema": 9}): "schema 9",
        with_draft(q="0.5"): "“q” of draft must be float",
        with_draft(round=1.5): "“round” of draft must be int",
        with_draft(text=["<b>"]): "“text” of draft must be str",
        with_draft(evil="<img src=x onerror=window.owned=1>"): "draft has no field “evil”",
        lines[0] + '\n{"type": "draft"}': "draft lacks “round”",
        lines[0] + '\n{"type": "verdict", "__proto__": {}}': "verdict has no field “__proto__”",
        "<html><img src=x onerror=window.owned=2></html>": "a web page without a trace",
        '<script id="ss-trace">{}\n{"type":1}</script>': "line 1 is no event",
    }
    before = page.evaluate("SelfSpec.trace.events.length")
    for text, why in bad.items():
        drop(page, "file.bin", text)
        page.wait_for_function(
            "why => document.querySelector('.ss-file-problem').textContent.includes(why)", arg=why
        )
        said = page.locator(".ss-file-problem").inner_text()
        assert "What opens here: a trace (NDJSON)" in said
        assert page.evaluate("SelfSpec.trace.events.length") == before
    drop(page, "big.ndjson", lines[0], size=65_000_000)
    page.wait_for_function(
        "document.querySelector('.ss-file-problem').textContent.includes('larger than 64 MB')"
    )
    assert page.evaluate("window.owned") is None
    assert page.evaluate("({}).polluted") is None
    drop(page, "good.ndjson", "\n".join(lines))
    page.wait_for_function("SelfSpec.trace.header.state === 'opened'")
    assert not page.locator(".ss-file-problem").is_visible()


def test_a_broken_trace_of_the_right_form_still_leaves_the_page_alive(app, open_saved):
    """Verdicts without drafts, rounds out of order, twice the same: each event alone is valid."""
    events = [e for e in events_of(app, tokens=12) if e.type != "draft"]
    shuffled = [events[0], *reversed(events[1:]), *events[1:]]
    saved = open_saved(value_of(events_of(app, tokens=6)))
    drop(saved.page, "odd.ndjson", to_ndjson(shuffled))
    saved.page.wait_for_function("SelfSpec.trace.header.state === 'opened'")
    saved.page.wait_for_function("!SelfSpec.trace.playing")
    for tab in ("rounds", "step", "race", "ab"):
        assert saved.tab(tab).inner_text()


def test_replay_plays_the_same_events_again(app, open_saved):
    saved = open_saved(value_of(events_of(app)))
    before = saved.page.evaluate("JSON.stringify(SelfSpec.trace.events)")
    saved.page.click("[data-tool=replay]")
    saved.page.wait_for_function("!SelfSpec.trace.playing")
    assert saved.page.evaluate("JSON.stringify(SelfSpec.trace.events)") == before
    assert saved.page.locator(".ss-tokens [role=option]").count() > 0


def test_the_command_line_makes_the_page_and_refuses_what_is_no_trace(tmp_path, capsys, open_saved):
    out = tmp_path / "out.html"
    assert main([str(WELCOME), str(out)]) == 0
    saved = open_saved(out.read_text(encoding="utf-8"))
    assert isinstance(saved, Saved)
    done = saved.events("done")[0]
    assert saved.page.locator(".ss-clean").text_content() == done["text"]
    bad = tmp_path / "bad.ndjson"
    bad.write_text('{"type": "draft"}\n', encoding="utf-8")
    assert main([str(bad), str(out)]) == 2
    assert "line 1" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.ndjson"), str(out)]) == 2
