"""A text of two thousand tokens: what an act touches, and that nobody sees how it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.page import RECORDED, stretched
from selfspec_core.events import from_ndjson

from .saved import Saved, value_of

TOKENS = 2000
LAST = " farewell"
"""The last token, and no other."""
_TOKEN = ".ss-tokens .ss-token"
_COUNT = f"document.querySelectorAll('{_TOKEN}').length"
_RESTS = "!document.querySelector('.ss-waiting')"
_TOUCHED = """async ([where, key]) => {
  let touched = 0;
  const observer = new MutationObserver((records) => (touched += records.length));
  const list = document.querySelector(".ss-tokens");
  observer.observe(list, { subtree: true, childList: true, attributes: true, characterData: true });
  const target = document.querySelector(where);
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  await new Promise((resolve) => setTimeout(resolve));
  observer.disconnect();
  return touched;
}"""
"""How many nodes of the text a key changed: attributes, children and texts, one by one."""


@pytest.fixture
def long_page(open_saved) -> Saved:
    """A saved page with a trace of two thousand tokens, at rest."""
    events = stretched(list(from_ndjson(RECORDED.read_text(encoding="utf-8"))), TOKENS)
    last = max(i for i, event in enumerate(events) if event.type == "commit")
    events[last] = replace(events[last], text=LAST)
    saved = open_saved(value_of(events))
    saved.page.wait_for_function(_RESTS)
    assert saved.page.evaluate(_COUNT) > TOKENS
    return saved


def written(saved: Saved) -> str:
    """The output of the trace."""
    return "".join(commit["text"] for commit in saved.events("commit"))


def test_what_is_far_from_sight_is_not_laid_out_but_there_to_find_and_to_copy(long_page):
    page = long_page.page
    laid_out = page.evaluate(
        f"[...document.querySelectorAll('{_TOKEN}')]"
        ".filter(e => e.checkVisibility({contentVisibilityAuto: true})).length"
    )
    assert 0 < laid_out < page.evaluate(_COUNT) * 0.75
    assert page.evaluate("document.querySelector('.ss-tokens').scrollTop") == 0  # read from there
    assert page.evaluate("text => window.find(text)", LAST.strip())
    assert page.evaluate(
        "document.querySelector('.ss-block:last-child').contains(getSelection().anchorNode)"
    )
    copied = page.evaluate(
        "() => { getSelection().selectAllChildren(document.querySelector('.ss-tokens'));"
        " return getSelection().toString() }"
    )
    assert copied.count("moon") == page.locator(".ss-tokens").text_content().count("moon") > 50
    assert LAST in copied


def test_a_step_touches_the_tokens_it_changes_and_not_the_text(long_page):
    page = long_page.page
    long_page.tab("step")
    slider = ".ss-step-slider"
    blocks = page.evaluate("document.querySelectorAll('.ss-block').length")
    tokens = page.evaluate(_COUNT)
    assert blocks < tokens / 20
    # The whole text goes and comes back as blocks, each of which waits and follows at most.
    for key in ("Home", "End"):
        assert 0 < page.evaluate(_TOUCHED, [slider, key]) < 3 * blocks + 100
        page.wait_for_function(_RESTS)
    page.evaluate(f"SelfSpec.stage.views.step.go({tokens // 2})")
    page.wait_for_function(_RESTS)
    for key in ["ArrowRight"] * 3 + ["ArrowLeft"] * 3:
        assert 0 < page.evaluate(_TOUCHED, [slider, key]) < 150


def test_a_walk_through_the_text_touches_a_few_tokens(long_page):
    page = long_page.page
    page.focus(f'{_TOKEN}[tabindex="0"]')
    for key in ("ArrowRight", "ArrowDown", "ArrowUp"):
        assert 0 < page.evaluate(_TOUCHED, [f'{_TOKEN}[tabindex="0"]', key]) < 60
    page.keyboard.press("End")
    last = f"[...document.querySelectorAll('{_TOKEN}')].at(-1)"
    assert page.evaluate(f"document.activeElement === {last}")
    page.wait_for_function(_RESTS)
    inside = page.evaluate(
        f"() => {{ const [box, list] = [{last}, document.querySelector('.ss-tokens')]"
        ".map(e => e.getBoundingClientRect());"
        " return box.top >= list.top - 1 && box.bottom <= list.bottom + 1 }"
    )
    assert inside


def test_a_change_of_theme_begins_in_sight_and_reaches_every_block(long_page):
    page = long_page.page
    blocks, waiting, seen = page.evaluate(
        """async () => {
          document.body.classList.toggle("dark");
          await null;
          const [list] = document.querySelectorAll(".ss-tokens");
          const outer = list.getBoundingClientRect();
          const sight = [...list.children].filter((block) => {
            const box = block.getBoundingClientRect();
            return box.bottom > outer.top && box.top < outer.bottom;
          });
          const waits = (block) => block.classList.contains("ss-waiting");
          const waiting = [...list.children].filter(waits).length;
          return [list.childElementCount, waiting, sight.some(waits)];
        }"""
    )
    assert waiting > blocks / 2
    assert not seen
    page.wait_for_function(_RESTS)


def test_every_token_is_named_in_the_language_that_was_chosen(long_page):
    page = long_page.page
    names = f"[...document.querySelectorAll('{_TOKEN}')].map(e => e.getAttribute('aria-label'))"
    english = page.evaluate(names)
    page.click(".ss-language")
    page.wait_for_function(f"{names}.every(name => /[\\u4e00-\\u9fff]/.test(name))")
    page.click(".ss-language")
    page.wait_for_function(
        f"english => JSON.stringify({names}) === JSON.stringify(english)", arg=english
    )


def test_a_text_that_is_stepped_back_stays_so_in_another_width(long_page):
    page = long_page.page
    long_page.tab("step")
    page.evaluate("SelfSpec.stage.views.step.go(400)")
    page.wait_for_function(_RESTS)
    before = long_page.shown_text()
    assert 0 < len(before) < len(written(long_page)) / 2
    for width in (700, 375, 1100):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(500)  # a slice of blocks after the other
        page.wait_for_function(_RESTS)
        assert long_page.shown_text() == before
    long_page.tab("rounds")
    assert page.locator(".ss-tokens .ss-later").count() == 0
    assert long_page.shown_text() == written(long_page)


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_colours_change_at_once_in_the_text(app, new_page, motion):
    """A transition on a colour that is inherited styles every token anew in every frame."""
    page = new_page(app.url, reduced_motion=motion)
    page.wait_for_selector("#stage .ss-tokens", state="attached")
    fading = page.evaluate(
        """() => {
          const [list] = document.querySelectorAll(".ss-tokens");
          const colour = () => getComputedStyle(list).color;
          const before = colour();
          document.body.classList.toggle("dark");
          if (colour() === before) return "it is the same colour";
          const touches = ({ effect }) => effect.target.contains(list) || list.contains(effect.target);
          return document.getAnimations().filter(touches).map((a) => a.transitionProperty);
        }"""
    )
    assert fading == []


def test_an_empty_text_which_is_opaque_covers_neither_its_placeholder_nor_the_legend(long_page):
    page = long_page.page
    page.evaluate("SelfSpec.trace.open({}, [], 'empty')")
    page.wait_for_selector(".ss-placeholder:not(:empty)")
    for part in (".ss-placeholder", ".ss-legend li"):
        on_top = page.evaluate(
            """part => {
              const element = document.querySelector(part);
              const { left, top, height } = element.getBoundingClientRect();
              return element.contains(document.elementFromPoint(left + 8, top + height / 2));
            }""",
            part,
        )
        assert on_top, part
