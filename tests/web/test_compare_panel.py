"""The Compare panel in a real browser: a table that fills in, stop, nonsense, languages, looks."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

from ui.compare_table import Table

from .conftest import SlowedEngine, serious, wait_until

pytestmark = pytest.mark.browser

OTHERS = ("hf-generate", "hf-early-exit", "hf-prompt-lookup", "hf-assistant", "draft-alone")


@pytest.fixture
def compare(app, new_page):
    """Opens the panel with two systems and short texts chosen."""

    def open_panel(**options):
        page = new_page(options.pop("url", app.url), **options)
        page.wait_for_selector('.ss-model[data-state="ready"]')
        return few(on_compare(page))

    return open_panel


def on_compare(page):
    page.locator("[role=tab]").nth(3).click()
    page.wait_for_selector("#compare-go")
    return page


def few(page):
    """Plain, self-speculative and transformers, on the person's prompt and one example."""
    for name in OTHERS[1:]:
        page.uncheck(f"#compare-systems input[name='{name}']")
    page.uncheck("#compare-lengths input[name=medium]")
    field = page.locator("#compare-examples input[type=number]")
    field.fill("1")
    field.blur()
    return page


def finished(page) -> None:
    page.wait_for_function(
        """() => { const card = document.querySelector('.ss-compare-table');
        return card.querySelector('.ss-compare-words li') && card.querySelector('.ss-tune-job').hidden; }"""
    )


def stop(page) -> None:
    """Press Stop, unless all is over already."""
    page.evaluate("document.querySelector('.ss-compare-table .ss-tune-job button').click()")


def saved(page, format: str) -> str:
    with page.expect_download() as downloading:
        page.click(f".ss-compare-table button[data-format={format}]")
    return Path(downloading.value.path()).read_text(encoding="utf-8")


def test_two_systems_fill_the_table_and_the_result_is_taken_along(app, compare, monkeypatch):
    # What was timed is remembered by engine: this one is new, in a second try as well.
    monkeypatch.setattr(app.studio, "engine", SlowedEngine(app.engine))
    page = compare()
    page.wait_for_selector('.ss-compare-time:has-text("1 of them hasn’t been timed")')
    page.click("#compare-go")
    finished(page)
    rows = page.locator("table.ss-compare-grid tbody")
    assert rows.count() == 3
    own = page.locator('tbody[data-system="selfspec"]')
    text = own.inner_text()
    assert "No extra model, equal memory" in text  # the claim, and beside it what was measured
    assert "none" in own.locator(".ss-compare-extra").inner_text()
    assert "identical: 2 of 2" in own.locator(".ss-compare-output").inner_text()
    others = page.locator('tbody[data-system="hf-generate"] .ss-compare-tau')
    assert others.inner_text() == "no drafts"
    speed = own.locator("td.ss-compare-speedup").inner_text()
    assert any(word in speed for word in ("faster", "slower", "no clear difference"))
    assert page.locator(".ss-compare-words li").count() == 2
    record = json.loads(saved(page, "json"))
    assert record["complete"] is True
    assert [system["system"] for system in record["systems"]] == ["plain", "selfspec", OTHERS[0]]
    table = list(csv.DictReader(io.StringIO(saved(page, "csv"))))
    assert {row["system"] for row in table} == {"plain", "selfspec", OTHERS[0]}
    shown = float(own.locator("td.ss-compare-speedup strong").inner_text().rstrip("×"))
    assert shown == pytest.approx(float(table[1]["speedup"]), abs=0.006)


def test_it_stops_half_way_and_what_was_measured_stays(app, compare, monkeypatch):
    real = Table.add

    def add(self, *arguments):
        time.sleep(0.4)
        real(self, *arguments)

    monkeypatch.setattr(Table, "add", add)
    page = compare()
    field = page.locator("#compare-repeats input[type=number]")
    field.fill("5")
    field.blur()
    page.click("#compare-go")
    page.wait_for_selector("table.ss-compare-grid td.ss-compare-speedup")
    assert "left" in page.locator(".ss-compare-table .ss-tune-about").inner_text()
    stop(page)
    page.wait_for_selector('.ss-compare-table .ss-tune-job[data-state="stopped"]')
    wait_until(lambda: app.studio.scheduler.idle, "the comparison to end")
    page.locator(".ss-compare-table .ss-note:visible").wait_for()  # and there is one only
    assert page.locator("table.ss-compare-grid td.ss-compare-speedup").count() >= 1
    assert json.loads(saved(page, "json"))["complete"] is False


def test_nonsense_gets_a_clear_answer(compare):
    page = compare()
    page.uncheck("#compare-lengths input[name=short]")
    page.wait_for_selector('.ss-compare-ahead .ss-error:has-text("at least one length")')
    page.click("#compare-go")
    page.wait_for_selector('.ss-compare-table .ss-error:has-text("at least one length")')
    page.check("#compare-lengths input[name=short]")
    field = page.locator("#compare-examples input[type=number]")
    field.fill("0")
    field.blur()
    page.uncheck("#compare-own input")
    page.wait_for_selector('.ss-compare-ahead .ss-error:has-text("There is no prompt")')


def test_before_the_model_is_there_it_waits_and_says_so(app_before_loading, new_page):
    page = new_page(app_before_loading.url)
    page.fill("#plan textarea, #plan input", "3-4")  # the recorded run's plan is a deeper model's
    few(on_compare(page))
    page.wait_for_selector('.ss-compare-time:has-text("still being loaded")')
    page.click("#compare-go")
    page.wait_for_selector('.ss-compare-table .ss-tune-about:has-text("still being loaded")')
    app_before_loading.loads.set()
    page.wait_for_selector("table.ss-compare-grid tbody")
    stop(page)


@pytest.mark.parametrize(
    ("theme", "width", "locale"), [("light", 1280, "en"), ("dark", 375, "zh-CN")]
)
def test_axe_finds_nothing_serious_and_nothing_scrolls_sideways(compare, theme, width, locale):
    page = compare(color_scheme=theme, viewport={"width": width, "height": 900}, locale=locale)
    page.click("#compare-go")
    finished(page)
    if locale == "zh-CN":
        panel = page.locator("#compare").inner_text()
        for word in ("教科书的说法", "自推测解码", "在此实测", "普通解码"):
            assert word in panel
        from .test_languages import english

        assert english(page) == []
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1100, 1280, 1500])
def test_a_glossary_mark_stands_beside_its_word(compare, width):
    page = compare(viewport={"width": width, "height": 900})
    page.click("#compare-go")
    page.wait_for_selector(".ss-compare-grid thead .ss-term-mark")
    lower = page.evaluate(
        """() => [...document.querySelectorAll('.ss-compare-grid thead .ss-term-mark')].filter(mark => {
          const text = document.createRange();
          text.selectNodeContents(mark.previousSibling);
          const last = [...text.getClientRects()].at(-1);
          return mark.getBoundingClientRect().top >= last.bottom - 2;
        }).map(mark => mark.parentNode.textContent)"""
    )
    assert lower == []
