"""Race and A/B: two runs side by side, in a real browser."""

from __future__ import annotations

import pytest

from .saved import beside_slow_decoding, events_of, value_of
from .test_decode import open_stage

pytestmark = pytest.mark.browser


def test_the_race_runs_at_the_measured_pace_and_ends_in_what_was_measured(app, new_page):
    stage = open_stage(new_page, app, reduced_motion="reduce")
    done = stage.run()
    page = stage.page
    baseline = stage.event("baseline")
    assert len(baseline["plain"]["ms"]) == len(baseline["plain"]["texts"]) == 24
    plain_ms = sum(baseline["plain"]["ms"])
    assert 24 / plain_ms * 1000 == pytest.approx(baseline["plain_tps"], rel=1e-3)
    page.click("#ss-tab-race")
    said = page.locator(".ss-race-verdict").inner_text()
    assert said.startswith("Same text, ")
    speedup = baseline["speedup"]
    if abs(speedup - 1) > 0.005:
        times, word = (speedup, "faster") if speedup > 1 else (1 / speedup, "slower")
        assert said == f"Same text, {times:.2f} times {word} with drafts"
    ends = page.locator(".ss-race-table tbody tr").last.locator("td").all_inner_texts()
    assert ends == [f"{plain_ms / 1000:.2f} s", f"{done['seconds']:.2f} s"]
    lanes = page.locator(".ss-lane-text").all_inner_texts()
    assert [lane.split() for lane in lanes[:2]] == [done["text"].split()] * 2


def test_the_race_starts_pauses_and_replays(app, open_saved):
    events = events_of(app)
    saved = open_saved(beside_slow_decoding(events), reduced_motion="no-preference")
    page = saved.page
    saved.tab("race")
    go = page.locator(".ss-race-go")
    assert go.inner_text() == "Start the race"
    assert not page.locator(".ss-race-table").is_visible()
    go.click()
    page.wait_for_function("document.querySelector('.ss-lane-plain .ss-lane-text').textContent")
    go.click()
    at = page.locator(".ss-clock").inner_text()
    assert 0.9 <= float(at.split()[0]) < 0.9 * len(events[-1].tokens)
    page.wait_for_timeout(200)
    assert page.locator(".ss-clock").inner_text() == at
    assert go.inner_text() == "Go on"
    # Its pace is the trace's: one token each 900 ms.
    written = page.locator(".ss-lane-plain .ss-lane-time").inner_text().split(" / ")[0]
    at_most, at_least = (int((float(at.split()[0]) + slack) / 0.9) for slack in (0.01, -0.01))
    assert at_least <= int(written) <= at_most  # the clock shows hundredths
    page.get_by_role("button", name="Start over").click()
    assert page.locator(".ss-race-verdict").inner_text() == ""


def test_a_run_that_is_plain_decoding_says_why_there_is_no_race(app, open_saved):
    saved = open_saved(value_of(events_of(app, k=0, plan="none")))
    assert saved.page.locator(".ss-round .ss-mark-plain").count() == 40
    assert "nothing to race against" in saved.tab("race").inner_text()
    saved.tab("step")
    assert "nothing was drafted for this place" in saved.page.locator(".ss-detail").inner_text()


def test_a_pinned_run_stands_beside_the_next_with_every_difference(app, new_page):
    stage = open_stage(new_page, app)
    first = stage.run()
    page = stage.page
    page.click("#ss-tab-ab")
    page.get_by_role("button", name="Pin this run as A").click()
    assert "Same text: all 24 tokens are equal" in page.locator(".ss-pinned-bar").inner_text()
    page.uncheck("#auto input")
    page.fill("#temperature input[type=number]", "1.5")
    page.locator("#temperature input[type=number]").blur()
    second = stage.run()
    assert second["tokens"] != first["tokens"]
    texts = page.locator(".ss-ab-text")
    assert [text.split() for text in texts.all_inner_texts()] == [
        first["text"].split(),
        second["text"].split(),
    ]
    assert page.locator(".ss-ab-text mark").count() > 0
    tables = page.locator(".ss-ab-tables")
    assert "temperature" in tables.inner_text()
    row = tables.locator("[data-figure=drafted] td").all_inner_texts()
    assert row[:2] == [str(first["drafted"]), str(second["drafted"])]
    change = second["drafted"] - first["drafted"]
    assert row[2] == (f"{'−' if change < 0 else '+'}{abs(change)}" if change else "0")
    tau = tables.locator("[data-figure=tau] td").all_inner_texts()
    assert tau[:2] == [f"{first['tau']:.2f}", f"{second['tau']:.2f}"]
    speed = tables.locator("[data-figure=speedup] td").nth(1)
    assert speed.inner_text() == f"{stage.event('baseline')['speedup']:.2f}×"
    page.get_by_role("button", name="Unpin").click()
    assert not texts.first.is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Pin this run as A"


@pytest.mark.parametrize(
    ("a", "b", "in_a", "in_b"),
    [
        ("abcd", "abcd", "1111", "1111"),
        ("abcd", "abxd", "1101", "1101"),
        ("abcd", "bcde", "0111", "1110"),
        ("abc", "", "000", ""),
        ("axbyc", "abc", "10101", "111"),
    ],
)
def test_texts_are_aligned_token_by_token(app, open_saved, a, b, in_a, in_b):
    saved = open_saved(value_of(events_of(app, tokens=4)))
    found = saved.page.evaluate("([a, b]) => SelfSpec.align([...a], [...b])", [a, b])
    assert ["".join("01"[shared] for shared in side) for side in found] == [in_a, in_b]
