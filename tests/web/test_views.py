"""The views of a run, rounds and step above all, in a real browser, on traces of a tiny model."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from ui.places import ASSETS
from ui.words import dictionary

from .conftest import serious
from .saved import RULES, Saved, events_of, value_of

pytestmark = pytest.mark.browser


# -- rounds -----------------------------------------------------------------------------------


def test_a_bar_a_round_as_long_as_its_measured_milliseconds(app, open_saved):
    saved = open_saved(value_of(events_of(app)))
    rounds = saved.events("round")
    bars = saved.page.evaluate(
        """() => [...document.querySelectorAll('.ss-round')].map(e => [Number(e.dataset.index),
             ...['draft', 'verify', 'other'].map(p => e.querySelector(`.ss-time-${p}`).getBoundingClientRect().height)])"""
    )
    assert [index for index, *_ in sorted(bars)] == list(range(len(rounds)))
    top = saved.page.locator(".ss-rounds-axis span").first.inner_text()
    pixels = saved.page.evaluate("document.querySelector('.ss-round-bars').clientHeight")
    per_ms = pixels / float(top.split()[0])
    for index, *heights in bars:
        told = rounds[index]
        for height, name in zip(heights, ("draft_ms", "verify_ms", "other_ms"), strict=True):
            assert height == pytest.approx(told[name] * per_ms, abs=0.6)


def test_marks_under_the_bars_are_the_fates_of_the_trace(app, open_saved):
    saved = open_saved(value_of(events_of(app)))
    for status in ("accepted", "rejected", "unreached"):
        expected = sum(v["status"] == status for v in saved.events("verdict"))
        assert saved.page.locator(f".ss-round .ss-mark-{status}").count() == expected > 0
    for source in ("correction", "bonus"):
        expected = sum(c["source"] == source for c in saved.events("commit"))
        assert saved.page.locator(f".ss-round .ss-mark-{source}").count() == expected


def test_pointing_at_a_round_lights_its_tokens_and_the_other_way_round(app, open_saved):
    saved = open_saved(value_of(events_of(app)))
    page = saved.page
    page.hover(".ss-round[data-index='2']")
    lit = "[...document.querySelectorAll('.ss-tokens .ss-lit')].map(e => e.dataset.round)"
    drafted = sum(d["round"] == 2 for d in saved.events("draft"))
    assert page.evaluate(lit) == ["2"] * (drafted + 1)
    told = saved.events("round")[2]
    readout = page.locator(".ss-readout p").inner_text()
    assert f"{told['accepted']} of {told['drafted']} drafted kept" in readout
    page.locator(".ss-tokens [data-round='4']").first.hover()
    assert page.locator(".ss-round.ss-lit").get_attribute("data-index") == "4"
    page.mouse.move(2, 2)
    assert page.locator(".ss-lit").count() == 0


def test_rounds_are_walked_by_keyboard_with_one_stop_and_enter_steps_through(app, open_saved):
    saved = open_saved(value_of(events_of(app)))
    page = saved.page
    page.focus(".ss-rounds [tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.index") == "2"
    assert page.evaluate("document.querySelector('.ss-tokens .ss-lit').dataset.round") == "2"
    page.keyboard.press("End")
    last = len(saved.events("round")) - 1
    assert page.evaluate("document.activeElement.dataset.index") == str(last)
    assert page.locator(".ss-rounds [tabindex='0']").count() == 1
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.locator("#ss-panel-step").is_visible()
    assert page.locator(".ss-where").inner_text() == f"round 1 of {last + 1}"


def test_a_long_trace_keeps_only_the_columns_in_sight(app, open_saved):
    saved = open_saved(value_of(events_of(app, tokens=700, k=1)))
    page = saved.page
    n = len(saved.events("round"))
    assert n > 300
    page.focus(".ss-rounds [tabindex='0']")
    for key in ("Home", "PageDown", "End"):
        page.keyboard.press(key)
        assert page.locator(".ss-round").count() < 120
    assert page.evaluate("document.activeElement.dataset.index") == str(n - 1)


# -- step -------------------------------------------------------------------------------------


def test_stepping_by_key_shows_the_text_as_it_was_at_every_step(app, open_saved):
    saved = open_saved(value_of(events_of(app, tokens=14)))
    page = saved.page
    saved.tab("step")
    page.focus(".ss-step-slider")
    page.keyboard.press("Home")
    steps = int(page.get_attribute(".ss-step-slider", "max")) + 1
    seen = []
    for step in range(steps):
        assert page.locator(".ss-where").inner_text().startswith(f"step {step + 1} of {steps}")
        seen.append(saved.shown_text())
        page.keyboard.press("ArrowRight")
    # Words of the tiny model are joined by nothing here: its texts carry their own spaces.
    whole = "".join(commit["text"] for commit in saved.events("commit"))
    assert seen[-1].split() == whole.split()
    assert all(whole.startswith(text.rstrip()) for text in seen)
    assert [len(text) for text in seen] == sorted(len(text) for text in seen)
    page.keyboard.press("Home")
    later = page.locator(".ss-tokens .ss-later").count()
    assert later > 0
    saved.tab("rounds")
    assert page.locator(".ss-tokens .ss-later").count() == 0


def test_by_round_the_slider_goes_round_by_round_with_all_its_decisions(app, open_saved):
    saved = open_saved(value_of(events_of(app)))
    page = saved.page
    panel = saved.tab("step")
    page.click("[data-unit=round]")
    page.focus(".ss-step-slider")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    rounds = saved.events("round")
    assert page.locator(".ss-where").inner_text() == f"round 2 of {len(rounds)}"
    verdicts = [v for v in saved.events("verdict") if v["round"] == 1]
    rows = panel.locator(".ss-decisions tbody tr")
    assert rows.count() == len(verdicts)
    for row, verdict in zip(rows.all(), verdicts, strict=True):
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == probability(verdict["p"])
        assert cells[1] == probability(verdict["q"])
    page.click("button[aria-label^='Last']")
    assert page.locator(".ss-where").inner_text() == f"round {len(rounds)} of {len(rounds)}"
    assert page.locator("button[aria-label^='Last']").is_disabled()


@pytest.mark.parametrize("rule", RULES)
def test_the_arithmetic_shown_is_that_of_the_verdict_event(app, open_saved, rule):
    saved = open_saved(value_of(events_of(app, **RULES[rule])))
    panel = saved.tab("step")
    verdicts = [v for v in saved.events("verdict") if v["status"] != "unreached"]
    for status in ("accepted", "rejected"):
        verdict = next((v for v in verdicts if v["status"] == status), None)
        assert verdict is not None, f"no draft was {status}"
        choose(saved, verdict)
        numbers = panel.locator(".ss-decision-numbers dd:not(.ss-hint)").all_inner_texts()
        assert numbers[:2] == [probability(verdict["p"]), probability(verdict["q"])]
        assert f"{verdict['rank']}" == numbers[-1]
        if verdict["offset"] is not None:
            assert numbers[2] == signed(verdict["offset"])
            assert verdict["offset"] == pytest.approx(
                math.log(verdict["p"] / verdict["q"]), abs=1e-3
            )
        CHECKS[rule](panel, verdict)
        outcome = panel.locator(".ss-outcome").inner_text()
        assert ("kept" in outcome) == (status == "accepted")
        assert ("struck out" in outcome) == (status == "rejected")


def choose(saved: Saved, verdict: dict[str, Any]) -> None:
    """Step to a verdict."""
    saved.page.evaluate(
        """({round, index}) => [...document.querySelectorAll(`.ss-tokens [data-round="${round}"]`)]
             .filter(e => /ss-(accepted|rejected|unreached|pending)/.test(e.className))[index].click()""",
        verdict,
    )


def check_scores(panel: Any, verdict: dict[str, Any]) -> None:
    """log q + G and log p + G of the draft's token and the choice, each marked as the largest."""
    heads = panel.locator(".ss-candidates thead th").all_inner_texts()
    won = panel.locator(".ss-candidates .ss-won").all_inner_texts()
    drafted = math.log(verdict["q"]) + verdict["noise"]
    chosen = math.log(verdict["choice_p"]) + verdict["choice_noise"]
    assert heads[-2:] == ["log q + G", "log p + G"]
    assert {drafted_or_chosen.strip("▸ ") for drafted_or_chosen in won} == {
        plain(drafted),
        plain(chosen),
    }
    columns = panel.locator(".ss-candidates tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].slice(-2).map(c => c.textContent.replace('▸ ', '').replace('−', '-')))"
    )
    numbers = [
        [float(c) for c in column if c not in ("–", "-∞")] for column in zip(*columns, strict=True)
    ]
    assert max(numbers[1]) == pytest.approx(chosen, abs=1e-3)
    assert max(numbers[0]) == pytest.approx(drafted, abs=1e-3)


def check_greedy(panel: Any, verdict: dict[str, Any]) -> None:
    equal = verdict["token"] == verdict["choice"]
    assert panel.locator(".ss-equals").inner_text() == ("=" if equal else "≠")
    won = panel.locator(".ss-candidates .ss-won").all_inner_texts()
    assert f"▸ {probability(verdict['choice_p'])}" in won
    assert f"▸ {probability(verdict['q'])}" in won


def check_coupled(panel: Any, verdict: dict[str, Any]) -> None:
    equal = verdict["token"] == verdict["choice"]
    assert panel.locator(".ss-equals").inner_text() == ("=" if equal else "≠")
    check_scores(panel, verdict)


def check_rejection(panel: Any, verdict: dict[str, Any]) -> None:
    ratio = verdict["p"] / verdict["q"]
    sign = "<" if verdict["u"] < ratio else "≥"
    compared = panel.locator(".ss-compared").inner_text()
    assert compared == f"{probability(verdict['u'])} {sign} {plain(ratio, 4)}"
    assert (sign == "<") == (verdict["status"] == "accepted")
    rows = panel.locator(".ss-residual tr")
    if verdict["residual"] is None:
        assert rows.count() == 0
        return
    shares = panel.locator(".ss-residual td:last-child").all_inner_texts()
    expected = [c["p"] for c in verdict["residual"]["top"]] + [verdict["residual"]["rest"]]
    assert shares == [probability(share) for share in expected]
    assert probability(verdict["residual"]["mass"]) in panel.locator("figcaption").inner_text()
    assert panel.locator(".ss-drawn").count() == 1


def check_bound(panel: Any, verdict: dict[str, Any]) -> None:
    sign = "≥" if verdict["judged"] >= verdict["bound"] else "<"
    compared = panel.locator(".ss-compared").inner_text()
    assert compared == f"{probability(verdict['judged'])} {sign} {probability(verdict['bound'])}"


CHECKS = {
    "greedy": check_greedy,
    "coupled": check_coupled,
    "rejection": check_rejection,
    "threshold": check_bound,
    "typical": check_bound,
}


def probability(value: float) -> str:
    """As `SelfSpec.show.probability` writes it."""
    if value in (0, 1):
        return f"{value:g}"
    return re.sub(r"e-0?", "e-", f"{value:.2e}") if value < 0.001 else f"{value:.4f}"


def plain(value: float, digits: int = 3) -> str:
    return f"{'−' if value < 0 else ''}{abs(value):.{digits}f}"


def signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{abs(value):.3f}"


# -- for everybody ----------------------------------------------------------------------------


def test_tabs_follow_the_arrow_keys_and_one_panel_is_there(app, open_saved):
    saved = open_saved(value_of(events_of(app, tokens=8)))
    page = saved.page
    page.focus("#ss-tab-rounds")
    for name in ("step", "race", "ab", "rounds"):
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == f"ss-tab-{name}"
        assert page.locator("[role=tabpanel]:visible").get_attribute("id") == f"ss-panel-{name}"
    assert page.locator("[role=tab][tabindex='0']").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1100])
def test_axe_finds_nothing_serious_in_any_view_and_nothing_scrolls_sideways(
    app, open_saved, theme, width
):
    events = events_of(app, **RULES["rejection"])
    saved = open_saved(
        value_of(events), color_scheme=theme, viewport={"width": width, "height": 900}
    )
    for tab in ("rounds", "step", "race", "ab"):
        saved.tab(tab)
        if tab == "step":
            choose(saved, next(v for v in saved.events("verdict") if v["status"] == "rejected"))
        if tab == "ab":
            saved.page.get_by_role("button", name="Pin this run as A").click()
        assert serious(saved.page) == [], tab
        assert saved.page.evaluate("document.documentElement.scrollWidth") <= width, tab


def test_every_word_of_the_views_is_there_in_both_languages():
    words = dictionary()
    mine = [key for key in words["en"] if key.startswith("views.")]
    places = lambda text: sorted(set(re.findall(r"\{(\w+)", text)))  # noqa: E731
    for key in mine:
        assert places(words["en"][key]) == places(words["zh"][key]), key
    for path in ASSETS.glob("*.js"):
        for key in re.findall(r"""["'](views\.[\w.]*\w)["']""", path.read_text(encoding="utf-8")):
            assert key in words["en"], f"{path.name}: {key}"


def test_the_views_speak_chinese_when_asked(app, open_saved):
    saved = open_saved(value_of(events_of(app, tokens=12)))
    saved.tab("step")
    saved.page.click(".ss-language")
    assert saved.page.locator("[role=tab]").all_inner_texts() == [
        "轮次",
        "逐步",
        "竞速",
        "A/B 对比",
    ]
    assert "完整模型" in saved.page.locator(".ss-detail").inner_text()
    assert "views." not in saved.page.locator("body").inner_text()
