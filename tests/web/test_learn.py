"""The Learn panel in a real browser: lessons, glossary, the teacher's part, the offline file."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ui.lesson_book import Book, book
from ui.lesson_page import lesson_page
from ui.recorded import TRACES

from .conftest import Faults, Stage, serious
from .test_languages import english

pytestmark = pytest.mark.browser

SAMPLES = Book(Path(__file__).resolve().parents[1] / "lessons", TRACES)
NEXT, BODY = ".ss-coach-next", ".ss-coach-body"
PLAN = "#plan textarea, #plan input"


@pytest.fixture
def open_learn(browser: Any, app: Any) -> Iterator[Any]:
    """Opens the page with a fragment; its lessons are the samples, unless `real` ones are wanted.
    Fails on an error in the page."""
    contexts, faults = [], Faults()

    def answer(route: Any) -> None:
        what, _, name = route.request.url.split("/lessons/")[1].partition("/")
        found = {
            "index": SAMPLES.index,
            "glossary": SAMPLES.glossary,
            "labels": SAMPLES.labels,
            "lesson": lambda: SAMPLES.lesson(name),
            "trace": lambda: SAMPLES.trace(name),
        }[what]()
        body = found if isinstance(found, str) else json.dumps(found)
        route.fulfill(status=200, body=body, content_type="application/json")

    def open_page(
        fragment: str = "panel=learn",
        query: str = "",
        *,
        stored: str = "",
        real: bool = False,
        **options: Any,
    ) -> Any:
        defaults = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**defaults, **options})
        contexts.append(context)
        if not real:
            context.route("**/lessons/**", answer)
        if stored:
            keep = f"localStorage.setItem('selfspec-lessons', {json.dumps(stored)})"
            context.add_init_script(keep)
        page = context.new_page()
        page.set_default_timeout(60_000)
        faults.watch(page)
        page.goto(f"{app.url}/{query}#{fragment}")
        page.wait_for_selector('.ss-model[data-state="ready"]')
        return page

    yield open_page
    faults.close(contexts)


def at_step(page: Any, n: int, of: int = 5) -> None:
    page.wait_for_function(
        "said => document.querySelector('.ss-coach-body h3')?.textContent.startsWith(said)",
        arg=f"Step {n} of {of}:",
    )


def shows(page: Any, name: str) -> None:
    """Wait until the stage shows a lesson's recorded trace."""
    page.wait_for_function(
        "name => SelfSpec.trace.header.lesson === name && !SelfSpec.trace.playing", arg=name
    )


def test_a_link_starts_a_lesson_that_asks_before_it_reveals_and_gives_everything_back(open_learn):
    page = open_learn("panel=learn&lesson=sample&seed=11&k=5&plan=2-3")
    at_step(page, 1)
    page.wait_for_function("document.activeElement.id === 'ss-coach-step'")
    page.wait_for_function("SelfSpec.panel() === 'decode'")
    shows(page, "welcome")
    page.wait_for_function("document.querySelector('#k input[type=number]')?.value === '3'")
    page.wait_for_selector("#layers .ss-strip[data-ss-outlined]")
    assert page.input_value(PLAN) == "30%"
    assert page.input_value("#seed input") == "0"
    # Figures are the trace's own, with the command that recorded it.
    tau = page.evaluate("SelfSpec.reading.done.tau.toFixed(2)")
    assert page.locator(".ss-learn-figure dd").inner_text() == tau
    assert f"wrote {tau} tokens" in page.locator(BODY).inner_text()
    assert "python -m ui." in page.locator(".ss-learn-source").inner_text()
    page.click(NEXT)
    at_step(page, 2)
    assert not page.locator(NEXT).is_visible()
    assert "%." not in page.locator(BODY).inner_text()
    page.wait_for_function("SelfSpec.stage.tabs.selected === 'rounds'")
    page.get_by_role("button", name="about a half").click()
    page.wait_for_selector(".ss-verdict-line.ss-right")
    share = page.evaluate("(100 * SelfSpec.reading.done.alpha).toFixed(0)")
    assert f"It was {share}%." in page.locator(".ss-reveal").inner_text()
    page.wait_for_function("SelfSpec.stage.tabs.selected === 'step'")
    page.locator(".ss-where", has_text=re.compile("^round 2 of")).wait_for()
    assert page.locator(NEXT).inner_text() == "Next"
    # A prediction is made once.
    page.locator(".ss-choice").first.dispatch_event("click")
    assert page.locator(".ss-verdict-line.ss-right").count() == 1
    page.get_by_role("button", name="Leave the lesson").click()
    page.wait_for_function("document.querySelector('#k input[type=number]')?.value === '5'")
    page.wait_for_function("SelfSpec.panel() === 'learn'")
    assert page.input_value(PLAN) == "2-3"
    assert page.input_value("#seed input") == "11"
    assert not page.locator(".ss-coach").is_visible()
    assert page.locator("[data-ss-outlined]").count() == 0
    page.wait_for_function("SelfSpec.trace.header.state === 'empty'")
    # It is remembered, and goes on where it was.
    kept = page.evaluate("localStorage.getItem('selfspec-lessons')")
    page = open_learn("panel=learn", stored=kept)
    page.wait_for_selector(".ss-lesson")
    card = page.locator('[data-lesson="sample"]')
    assert "you are at step 2 of 5" in card.inner_text()
    card.get_by_role("button", name="Go on").click()
    at_step(page, 2)
    assert page.locator(".ss-verdict-line.ss-right").is_visible()


def test_live_tasks_notice_what_is_done_and_the_lesson_ends_with_a_sentence(open_learn):
    page = open_learn("panel=learn&lesson=sample&step=3&seed=5&prompt=a%20fox")
    at_step(page, 3)
    shows(page, "welcome")
    assert page.locator(NEXT).inner_text() == "Skip this"
    page.wait_for_function("document.querySelector('#seed input')?.value === '5'")  # its own
    assert "Your own seed here is 5" in page.locator(BODY).inner_text()
    page.wait_for_selector("#run[data-ss-outlined]")
    views = page.evaluate("SelfSpec.trace.views.length")
    page.click(".ss-coach-run")
    page.wait_for_selector(".ss-try-status.ss-done")
    page.wait_for_selector(".ss-figure-tau[data-ss-outlined]")  # where the result stands
    start = Stage(page).event("start")
    assert (start["seed"], start["k"], start["max_new_tokens"]) == (5, 3, 12)
    page.click(NEXT)
    at_step(page, 4)
    shows(page, "welcome")
    # The last of what the step sets up; from then on it watches.
    page.locator(".ss-where", has_text=re.compile("^round 2 of")).wait_for()
    # Watching a run, and ceasing to, leaves the stage as it was.
    assert page.evaluate("SelfSpec.trace.views.length") == views - 1
    assert page.locator(".ss-state").first.inner_text() == "Recorded"
    assert page.locator(".ss-done").count() == 0
    assert not page.locator(".ss-coach-run").is_visible()
    page.click("#ss-tab-step")
    page.wait_for_selector(".ss-try-status.ss-done")
    page.click(NEXT)
    at_step(page, 5)
    page.locator(".ss-choice").nth(0).click()
    assert "It only guesses" in page.locator(".ss-reveal").inner_text()
    page.locator(".ss-choice").nth(1).click()
    assert "It checks each guess" in page.locator(".ss-reveal").inner_text()
    page.click(NEXT)
    page.wait_for_selector(".ss-takeaway")
    assert page.locator(".ss-takeaway").inner_text().startswith("The draft proposes")
    # Steps 1 and 2 were skipped, so it isn't done yet; nor would it be with a wrong answer.
    page.get_by_role("button", name="Back", exact=True).click()
    page.locator(".ss-choice").nth(0).click()
    page.click(NEXT)
    page.get_by_role("button", name="Go to step 1").click()
    at_step(page, 1)
    page.click(NEXT)
    page.get_by_role("button", name="I don’t know").click()
    for n in (3, 4, 5):
        page.click(NEXT)
        at_step(page, n)
    page.click(NEXT)
    page.get_by_role("button", name="Go to step 5").click()
    page.locator(".ss-choice").nth(1).click()
    page.click(NEXT)
    page.wait_for_selector(".ss-takeaway")
    assert page.evaluate("SelfSpec.learn.progress.of('sample').done") is True
    page.get_by_role("button", name="Next lesson: The one after it").click()
    at_step(page, 1, 3)
    page.wait_for_function("SelfSpec.stage.views.ab.pinned?.lesson === 'welcome'")
    page.click(NEXT)
    page.wait_for_function("SelfSpec.panel() === 'layers'")
    page.wait_for_selector("#layers-panel[data-ss-outlined]")
    assert page.locator(".ss-coach").is_visible()
    page.click(NEXT)
    page.wait_for_function("SelfSpec.panel() === 'decode'")
    page.click('.ss-branch-attention[data-layer="2"]')
    page.wait_for_selector(".ss-try-status.ss-done")
    page.click(NEXT)
    page.get_by_role("button", name="All lessons").click()
    page.wait_for_selector('[data-lesson="sample"].ss-lesson-done')
    assert page.evaluate("SelfSpec.stage.views.ab.pinned") is None


def test_a_reload_in_a_lesson_goes_on_from_its_card_or_as_the_link_says(open_learn):
    page = open_learn("panel=learn")
    page.locator('[data-lesson="sample"] button').click()
    at_step(page, 1)
    page.click(NEXT)
    page.get_by_role("button", name="more than 90%").click()
    page.wait_for_selector(".ss-verdict-line.ss-wrong")
    page.reload()
    page.wait_for_selector('.ss-model[data-state="ready"]')
    assert not page.locator(".ss-coach").is_visible()
    assert page.locator("[data-ss-outlined]").count() == 0
    page.locator('[data-lesson="sample"]').get_by_role("button", name="Go on").click()
    at_step(page, 2)
    assert page.locator(".ss-verdict-line.ss-wrong").is_visible()
    shows(page, "welcome")
    page.evaluate("location.hash = 'panel=learn&lesson=sample&step=3&seed=9'")
    at_step(page, 3)
    page.click(NEXT)
    at_step(page, 4)
    page.reload()
    at_step(page, 3)
    shows(page, "welcome")
    page.wait_for_function("document.querySelector('#seed input')?.value === '9'")
    page.get_by_role("button", name="Back", exact=True).click()
    at_step(page, 2)
    assert page.locator(".ss-verdict-line.ss-wrong").is_visible()


def test_a_lesson_by_keyboard_alone(open_learn):
    page = open_learn("panel=learn")
    page.wait_for_selector(".ss-lesson")
    page.focus("#ss-learn-tab-lessons")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "ss-learn-tab-glossary"
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    at_step(page, 1)
    press_tab_to(page, "Next")
    page.keyboard.press("Enter")
    at_step(page, 2)
    page.wait_for_function("document.activeElement.id === 'ss-coach-step'")
    press_tab_to(page, "about a half")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ss-verdict-line")
    assert page.evaluate("document.activeElement.textContent").startswith("about a half")
    page.keyboard.press("Escape")
    assert not page.locator(BODY).is_visible()
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.keyboard.press("Enter")
    assert page.locator(BODY).is_visible()
    press_tab_to(page, "Leave the lesson")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.ss-coach').hidden")


def press_tab_to(page: Any, name: str) -> None:
    for _ in range(25):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == name:
            return
    raise AssertionError(f"Tab doesn't come to {name}")


def test_terms_open_their_entry_in_lessons_and_behind_the_panels_labels(open_learn):
    page = open_learn("panel=learn&lesson=sample&step=1")
    at_step(page, 1)
    page.wait_for_selector("#k .ss-term-mark")
    page.focus(f"{BODY} .ss-term")
    page.keyboard.press("Enter")
    card = page.locator(".ss-term-card")
    card.wait_for()
    assert "Tokens that are guessed" in card.inner_text()
    page.wait_for_function("document.activeElement.id === 'ss-term-title'")
    card.get_by_role("button", name="τ (tau)").click()
    assert "per pass of the whole model" in card.inner_text()
    page.keyboard.press("Escape")
    assert not card.is_visible()
    assert page.locator(BODY).is_visible()  # Escape closed the card, not the lesson
    assert page.evaluate("document.activeElement.dataset.term") == "draft"
    mark = page.locator("#k .ss-term-mark")
    assert mark.get_attribute("aria-label") == "What does “Draft length k” mean?"
    before = page.input_value("#k input[type=number]")
    mark.click()
    assert "How many tokens are guessed" in card.inner_text()
    assert page.input_value("#k input[type=number]") == before
    page.get_by_role("button", name="中文").click()
    page.wait_for_function("document.querySelector('#k .ss-term-mark')?.title.includes('草稿长度')")
    page.wait_for_selector(".ss-figure-tau .ss-term-mark")
    page.locator(".ss-figure-tau .ss-term-mark").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.querySelector('.ss-term-card').textContent.includes('完整模型每算一次')"
    )


def test_the_teacher_s_links_class_list_and_handout(open_learn, app):
    page = open_learn("panel=learn")
    page.click("#ss-learn-tab-teacher")
    href = page.locator(".ss-links a").first.get_attribute("href")
    assert href == f"{app.url}/#panel=learn&lesson=sample&lang=en"
    page.locator(".ss-links details").first.locator("summary").click()
    setting = page.locator(".ss-link-setting a").first
    setting.wait_for()
    assert "panel=decode&plan=30%25&k=3&length=12" in setting.get_attribute("href")
    page.fill('[data-class="names"]', 'Åsa Öberg\n=1+1,"x"\n<b>Li</b>\n')
    page.fill('[data-class="prompts"]', "one fox\ntwo foxes")
    page.select_option('[data-class="lesson"]', "sample")
    page.fill('[data-class="seed"]', "40")
    links = page.locator(".ss-class-table a")
    assert [link.get_attribute("href") for link in links.all()] == [
        f"{app.url}/#panel=learn&lesson=sample&seed={40 + i}&prompt={prompt}&lang=en"
        for i, prompt in enumerate(["one+fox", "two+foxes", "one+fox"])
    ]
    assert page.locator(".ss-class-table b").count() == 0
    with page.expect_download() as download:
        page.click('[data-class="csv"]')
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    rows = list(csv.reader(text.splitlines()))
    assert rows[0] == ["name", "seed", "prompt", "link"]
    assert [row[0] for row in rows[1:]] == ["Åsa Öberg", '\'=1+1,"x"', "<b>Li</b>"]
    assert rows[2][1:3] == ["41", "two foxes"]
    page.fill('[data-class="names"]', "30")
    assert links.count() == 30
    page.evaluate("() => void (window.print = () => (window.printed = true))")
    page.click('[data-teacher="print"]')
    page.wait_for_function("window.printed")
    page.emulate_media(media="print")
    handout = page.locator(".ss-handout")
    assert handout.is_visible()
    assert not page.locator("#panels").is_visible()
    said = handout.inner_text()
    asked, answers = said.split("\nAnswers\n")
    assert "What share of guesses was kept?" in asked
    assert "It was" not in asked
    assert re.search(r"1\.2 · B\s+It was \d+%\.", answers)
    assert "The draft proposes" in asked
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert handout.count() == 0


def test_hostile_links_and_stored_answers_do_nothing(open_learn):
    page = open_learn("panel=learn&lesson=absent&step=2")
    page.wait_for_selector(".ss-coach h3")
    assert "There is no lesson “absent”" in page.locator(".ss-coach").inner_text()
    page.get_by_role("button", name="Leave the lesson").click()
    for fragment in (
        "lesson=%3Cimg%20src%3Dx%20onerror%3Dwindow.owned%3D1%3E",
        "lesson=..%2F..%2Fhealth", "lesson=__proto__", "lesson=constructor&step=-1",
        "lesson=sample&step=1e9&plan=${window.owned=2}", "step=3",
    ):  # fmt: skip
        page.evaluate("f => (location.hash = f)", fragment)
        page.wait_for_timeout(60)
    stored = {
        "sample": {"at": 1e9, "seen": "x", "answers": {"1": 99, "__proto__": 1}, "done": "yes"},
        "second": 7,
    }
    for text in (json.dumps(stored), "{nonsense"):
        other = open_learn("panel=learn&lesson=sample&step=2", stored=text)
        at_step(other, 2)
        assert not other.locator(NEXT).is_visible()  # 99 is no answer
        assert other.evaluate("window.owned") is None
    assert page.evaluate("window.owned") is None


# Marks of the glossary that stand on another line than the end of their words.
MARKS_ALONE = """() => [...document.querySelectorAll('.ss-term-mark')].filter((mark) => {
  const text = mark.previousSibling;
  if (!mark.offsetParent || text?.nodeType !== Node.TEXT_NODE) return false;
  const range = document.createRange();
  range.selectNodeContents(text);
  const last = [...range.getClientRects()].at(-1);
  const middle = mark.getBoundingClientRect();
  return middle.top > last.bottom || middle.bottom < last.top;
}).map((mark) => mark.parentElement.textContent)"""


def test_a_narrow_page_has_the_coach_above_its_panel_and_no_sideways_scrolling(open_learn):
    page = open_learn("panel=learn&lesson=sample", viewport={"width": 375, "height": 700})
    at_step(page, 1)
    shows(page, "welcome")
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 375
    bottom = page.evaluate("document.querySelector('#coach').getBoundingClientRect().bottom")
    assert bottom <= page.evaluate("document.querySelector('#panels').getBoundingClientRect().top")
    page.get_by_role("button", name="Show me where").click()
    strip = "document.querySelector('#layers .ss-strip').getBoundingClientRect()"
    page.wait_for_function(f"{strip}.top < innerHeight && {strip}.bottom > 60")
    page.get_by_role("button", name="Show the lesson").click()
    page.wait_for_selector("#k .ss-term-mark")
    assert page.evaluate(MARKS_ALONE) == []
    page.evaluate("SelfSpec.openPanel('learn')")
    page.wait_for_selector(".ss-lesson")
    for part in ("glossary", "teacher"):
        page.click(f"#ss-learn-tab-{part}")
        assert page.evaluate(wide) == 375


@pytest.mark.parametrize(("lang", "theme"), [("en", "light"), ("zh", "dark")])
def test_nothing_is_inaccessible_or_left_in_english(open_learn, lang, theme):
    page = open_learn(f"panel=learn&lang={lang}", f"?__theme={theme}")
    page.wait_for_selector(".ss-lesson")
    for part in ("lessons", "glossary", "teacher"):
        page.click(f"#ss-learn-tab-{part}")
        assert serious(page) == []
        if lang == "zh":
            assert english(page) == []
    page.evaluate("SelfSpec.startLesson('sample')")
    shows(page, "welcome")
    for kind in ("read", "predict", "revealed", "try"):
        if kind == "revealed":
            page.locator(".ss-choice").first.click()
            page.wait_for_selector(".ss-verdict-line")
        elif kind != "read":
            page.click(NEXT)
        page.wait_for_timeout(100)
        assert serious(page, context=".ss-coach") == []
        if lang == "zh":
            texts = page.evaluate("document.querySelector('.ss-coach').innerText")
            assert not re.search(r"\b(Step|Next|Back|Leave|Recorded|Skip)\b", texts), texts
    page.wait_for_selector("#k .ss-term-mark, .ss-figure-tau .ss-term-mark")
    page.locator("#k .ss-term-mark").click()
    page.wait_for_selector(".ss-term-card h3")
    assert serious(page) == []


def test_every_lesson_is_accessible_in_both_languages_and_themes(open_learn):
    """Those that come with the studio, where a prediction is revealed; and the teacher's page."""
    page = open_learn("panel=learn", real=True)
    page.click("#ss-learn-tab-teacher")
    page.fill('[data-class="names"]', "2")
    page.locator(".ss-links summary").first.click()
    page.wait_for_selector(".ss-link-setting")
    looks = [(lang, dark) for lang in ("en", "zh") for dark in ("false", "true")]

    def look(context: str) -> None:
        for lang, dark in looks:
            page.evaluate(
                f"SelfSpec.setLanguage('{lang}'); document.body.classList.toggle('dark', {dark})"
            )
            assert serious(page, context=context) == [], (context, lang, dark)
        assert english(page) == [], context

    look("#learn")
    # The panels have tests of their own, and show an English text here.
    page.evaluate("document.querySelector('#panels').style.visibility = 'hidden'")
    for name, lesson in book().lessons.items():
        at = next(i for i, step in enumerate(lesson.steps) if step.kind == "predict")
        page.evaluate("([name, at]) => SelfSpec.startLesson(name, at)", [name, at + 1])
        page.wait_for_function(
            "at => document.querySelectorAll('.ss-coach-dots i')[at]?.className === 'ss-here'",
            arg=at,
        )
        page.locator(".ss-choice").first.click()
        page.wait_for_selector(".ss-verdict-line")
        look(".ss-coach")


def test_the_offline_file_plays_every_lesson_with_the_network_off(browser, tmp_path):
    path = tmp_path / "lessons.html"
    path.write_text(lesson_page(SAMPLES), encoding="utf-8")
    errors, asked = [], []
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce", offline=True)
    page = context.new_page()
    page.set_default_timeout(90_000)  # machines may be busy
    try:
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(".ss-lesson")
        page.locator(".ss-lesson button").first.click()
        at_step(page, 1)
        page.click(NEXT)
        page.get_by_role("button", name="about a half").click()
        page.wait_for_function("SelfSpec.stage.tabs.selected === 'step'")
        page.click(NEXT)
        at_step(page, 3)
        assert "This is what was recorded." in page.locator(BODY).inner_text()
        page.click(NEXT)
        at_step(page, 4)
        page.wait_for_function("/ 1 of /.test(document.querySelector('.ss-where').textContent)")
        page.click(NEXT)
        page.locator(".ss-choice").nth(1).click()
        page.click(NEXT)
        page.wait_for_selector(".ss-takeaway")
        assert page.evaluate("SelfSpec.learn.progress.of('sample').done") is True
        page.get_by_role("button", name="Next lesson: The one after it").click()
        at_step(page, 1, 3)
        page.click(NEXT)
        at_step(page, 2, 3)
        assert "this step shows the panel “Layers”" in page.locator(BODY).inner_text()
        page.locator(".ss-figure-tau .ss-term-mark").click()
        page.wait_for_selector(".ss-term-card h3")
        assert serious(page) == []
        assert errors == []
        assert [url for url in asked if not url.startswith(("file://", "data:", "blob:"))] == []
    finally:
        context.close()


def test_every_real_lesson_plays_to_its_end_in_the_offline_file(browser, tmp_path):
    """All that come with the studio, each step opened, each question answered."""
    assert len(book().lessons) >= 10
    path = tmp_path / "lessons.html"
    path.write_text(lesson_page(book()), encoding="utf-8")
    errors = []
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce", offline=True)
    page = context.new_page()
    page.set_default_timeout(90_000)  # machines may be busy
    try:
        page.on("pageerror", lambda error: errors.append(str(error)))
        for number, (name, lesson) in enumerate(book().lessons.items()):
            lang = ("en", "zh")[number % 2]
            page.goto(f"{path.as_uri()}#lesson={name}&lang={lang}")
            page.wait_for_selector(".ss-coach h3")
            for at, step in enumerate(lesson.steps):
                page.wait_for_function(
                    "at => document.querySelectorAll('.ss-coach-dots i')[at]?.className === 'ss-here'",
                    arg=at,
                )
                if step.kind in ("predict", "quiz"):
                    assert not page.locator(NEXT).is_visible()
                    told = book().lesson(name)["steps"][at]
                    choices = enumerate(told["choices"])
                    right = told.get("answer", next((i for i, c in choices if c.get("right")), 0))
                    page.locator(".ss-choice").nth(right).click()
                    page.wait_for_selector(".ss-verdict-line")
                said = page.locator(BODY).inner_text()
                assert not re.search(r"\{\w+\}|\[\[|learn\.\w", said), (name, at, said)
                if at == 0:
                    assert serious(page, context=".ss-coach") == []
                page.click(NEXT)
            page.wait_for_selector(".ss-takeaway")
            assert page.evaluate("n => SelfSpec.learn.progress.of(n).done", name) is True
        assert errors == []
    finally:
        context.close()
