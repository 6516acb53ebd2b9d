"""The race in a real browser: over the recorded run before any model is there, and over a live one."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Stage

pytestmark = pytest.mark.browser

LOOK = """() => {
  const lane = name => {
    const [, n, of, seconds] = /^(\\d+) \\/ (\\d+) · ([\\d.]+) s$/.exec(
      document.querySelector(`.ss-lane-${name} .ss-lane-time`).textContent);
    return { n: +n, of: +of, seconds: +seconds,
      text: document.querySelector(`.ss-lane-${name} .ss-lane-text`).textContent };
  };
  return { clock: parseFloat(document.querySelector('.ss-clock').textContent),
    plain: lane('plain'), draft: lane('draft'),
    verdict: document.querySelector('.ss-race-verdict').textContent };
}"""


def race(page: Any) -> list[dict[str, Any]]:
    """Start the race and look at it until it is over."""
    page.click("#ss-tab-race")
    page.wait_for_selector(".ss-race-go:visible", timeout=60_000)
    assert page.evaluate(LOOK)["verdict"] == ""
    page.click(".ss-race-go")
    seen = []
    while not seen or not seen[-1]["verdict"]:
        seen.append(page.evaluate(LOOK))
        page.wait_for_timeout(20)
    return seen


def check(page: Any, seen: list[dict[str, Any]]) -> None:
    """The lanes ran at their measured pace while the clock did; the end says what came of it."""
    trace = page.evaluate("({events: SelfSpec.trace.events, text: SelfSpec.stage.tokens.text})")
    events = trace["events"]
    [told] = [event for event in events if event["type"] == "baseline"][-1:]
    at, plain, draft = 0.0, [], []
    for ms in told["plain"]["ms"]:
        plain.append(at := at + ms)
    at = 0.0
    for event in events:
        if event["type"] == "round":
            at += event["draft_ms"] + event["verify_ms"] + event["other_ms"]
            draft += [at] * event["committed"]
    for name, times in (("plain", plain), ("draft", draft)):
        for look in seen:
            clock = 1000 * look["clock"]
            least, most = (sum(t <= clock + slack for t in times) for slack in (-11, 11))
            assert least <= look[name]["n"] <= most, (name, look)
        assert seen[-1][name]["n"] == seen[-1][name]["of"] == len(times)
        assert seen[-1][name]["seconds"] == pytest.approx(times[-1] / 1000, abs=0.011)
    clocks = [look["clock"] for look in seen]
    assert clocks == sorted(clocks)
    assert clocks[-1] == pytest.approx(max(plain[-1], draft[-1]) / 1000, abs=0.011)
    assert told["identical"]
    texts = [seen[-1][name]["text"] for name in ("plain", "draft")]
    assert texts == [trace["text"]] * 2
    speedup = told["speedup"]
    times, way = (speedup, "faster") if speedup > 1 else (1 / speedup, "slower")
    said = f"Same text, {times:.2f} times {way} with drafts"
    assert seen[-1]["verdict"] in (said, "Same text, equally fast")
    assert page.locator(".ss-race-table tbody tr").count() == 4


def test_the_recorded_run_is_raced_before_any_model_is_there(app_before_loading, new_page):
    page = new_page(app_before_loading.url)
    # As it begins to be replayed again: what the page plays first may be over by now.
    page.click("#ss-tab-race")
    page.wait_for_function("SelfSpec.trace.resting")
    told = page.evaluate(
        """() => { document.querySelector('[data-tool=replay]').click();
             const missing = document.querySelector('.ss-race-missing');
             return missing.hidden ? '' : missing.textContent; }"""
    )
    assert "being replayed" in told
    seen = race(page)
    assert app_before_loading.studio.engine is None
    running = [look for look in seen if 0 < look["plain"]["n"] < look["plain"]["of"]]
    assert len({look["plain"]["n"] for look in running}) > 3  # it was seen on its way
    check(page, seen)


def test_a_live_run_is_raced_when_plain_decoding_was_measured(app, new_page):
    stage = Stage(new_page(app.url))
    page = stage.page
    page.wait_for_selector('.ss-model[data-state="ready"]')
    page.fill("#prompt textarea", "a fox runs")
    stage.set_length(200)
    app.engine.pause = 0.002
    stage.run()
    check(page, race(page))
    # Paused half-way the clock stands; started over, it begins at nothing.
    # It takes less than a second, so the page itself presses Pause, again if it was over by then.
    page.evaluate(
        """async () => {
          const of = selector => document.querySelector(selector);
          for (let tries = 0; tries < 50; tries += 1) {
            of('.ss-race-go').click();
            do await new Promise(requestAnimationFrame);
            while (parseFloat(of('.ss-clock').textContent) === 0);
            if (of('.ss-race-verdict').textContent) continue;
            return of('.ss-race-go').click();
          }
        }"""
    )
    stands = page.evaluate(LOOK)["clock"]
    page.wait_for_timeout(150)
    assert page.evaluate(LOOK)["clock"] == stands
    assert page.inner_text(".ss-race-go") == "Go on"
