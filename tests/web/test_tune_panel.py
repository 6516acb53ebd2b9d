"""The Tune panel in a real browser: suggestions, curves, search, files, and people at once."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from selfspec_core.plan import SkipPlan
from ui.settings import Settings
from ui.tune_searching import verdict
from ui.tune_subject import Asked

from .conftest import LAYERS, serious, wait_until

pytestmark = pytest.mark.browser

PLAN = "#plan textarea, #plan input"


@pytest.fixture
def tune(app, new_page, monkeypatch, tmp_path):
    """Opens the panel; studies and zips of the test are its own."""
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path))

    def open_panel(**options):
        page = new_page(options.pop("url", app.url), **options)
        page.wait_for_selector('.ss-model[data-state="ready"]')
        return on_tune(page)

    return open_panel


def on_tune(page):
    page.locator("[role=tab]").nth(2).click()
    page.wait_for_selector("#tune-suggest-go")
    return page


def plan_of(page) -> str:
    return page.locator(PLAN).input_value()


def wait_for_plan(page, plan: str) -> None:
    page.wait_for_function(
        "plan => document.querySelector('#plan textarea, #plan input')?.value === plan", arg=plan
    )


def ended(page, card: str) -> None:
    """Wait until a card's work is over and nothing of it is shown as going on."""
    page.wait_for_function(
        """card => { const job = document.querySelector(`.ss-tune-${card} .ss-tune-job`);
        return job.hidden || job.dataset.state === 'stopped'; }""",
        arg=card,
    )


def run_only_when_told(page) -> None:
    """Take the mark away from Decode's "Re-run on change"."""
    page.locator("[role=tab]").first.click()
    page.uncheck("#auto input")
    on_tune(page)


def point_at(page, plot, number: int) -> str:
    """Move the pointer to a mark of a chart; what is said there, as the mark's label would."""
    shape = plot.locator("g[role=button] .ss-tune-shape")
    place = shape.nth(number % shape.count())
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = plot.locator("xpath=..").locator(".ss-tune-tip:visible")
    tip.wait_for()
    return ". ".join(tip.locator("span").all_text_contents())


def budget(page, seconds: int) -> None:
    field = page.locator("#tune-budget input[type=number]")
    field.fill(str(seconds))
    field.blur()


def choose_strategy(page, words: str) -> None:
    page.click("#tune-strategy input")
    page.locator("[role=option]", has_text=words).click()


def bring(page, text: str, key: str = "") -> str:
    """Paste a text, read it; the answer's first sentence."""
    page.evaluate("document.querySelector('.ss-tune-import .ss-notes').replaceChildren()")
    page.fill(".ss-tune-import textarea", text)
    page.fill(".ss-tune-import input[type=text]", key)
    page.click(".ss-tune-import button")
    page.wait_for_selector(".ss-tune-import .ss-notes .ss-note")
    return page.locator(".ss-tune-import .ss-notes .ss-note").first.inner_text()


# -- 1 suggestion ---------------------------------------------------------------------------------


def test_a_suggestion_is_shown_with_what_it_gives_and_taken_over(tune):
    page = tune()
    page.click("#tune-suggest-go")
    page.wait_for_selector('.ss-tune-suggest .ss-tune-facts:has-text("Predicted")')
    plan = page.locator(".ss-tune-suggest .ss-tune-plan").inner_text()
    share = SkipPlan.parse(plan, LAYERS).share
    assert f"Skips {round(100 * share)}%" in page.locator(".ss-tune-facts").inner_text()
    assert page.locator(".ss-tune-branch").count() == 2 * LAYERS
    assert page.locator(".ss-tune-off").count() == SkipPlan.parse(plan, LAYERS).n_skipped
    assert "tokens/s" in page.locator(".ss-tune-costs").inner_text()
    page.click('.ss-tune-suggest button:has-text("Use this plan")')
    wait_for_plan(page, plan)
    # Another share changes the suggestion, not what is in Decode.
    field = page.locator("#tune-share input[type=number]")
    field.fill("60")
    field.blur()
    page.wait_for_function(
        "plan => document.querySelector('.ss-tune-suggest .ss-tune-plan').textContent !== plan",
        arg=plan,
    )
    ended(page, "suggest")
    assert plan_of(page) == plan


def test_the_measured_importance_leaves_out_what_costs_least(tune):
    page = tune()
    page.click("#tune-method input")
    page.locator("[role=option]", has_text="measured").click()
    page.click("#tune-suggest-go")
    page.wait_for_selector('.ss-tune-suggest .ss-tune-facts:has-text("Predicted")')
    value = page.evaluate("document.querySelector('.ss-tune-bars').children.length")
    assert value == LAYERS
    assert "leave out each part alone" in page.locator(".ss-tune-suggest .ss-hint").inner_text()


# -- 2 curves ------------------------------------------------------------------------------------


def test_curves_are_drawn_and_a_point_is_taken_over_by_keyboard(tune):
    page = tune()
    page.click("#tune-curves-go")
    page.wait_for_selector(".ss-tune-curves .ss-tune-chart + h3 + .ss-tune-chart svg")
    ended(page, "curves")
    by_k, by_share = page.locator(".ss-tune-curves .ss-tune-plot").all()
    assert by_k.locator("g[role=button]").count() == 8
    assert by_share.locator("g[role=button]").count() >= 4
    assert by_k.locator("g[tabindex='0']").count() == 1
    by_k.locator("g[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "k = 3" in page.locator(".ss-tune-curves .ss-tune-tip:visible").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('#k input[type=number]')?.value === '3'")
    assert page.locator(".ss-tune-curves .ss-tune-said").inner_text().endswith("k = 3.")
    assert point_at(page, by_share, -1) == by_share.locator("g[role=button]").last.get_attribute(
        "aria-label"
    )
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function(
        "document.querySelectorAll('.ss-tune-export .ss-tune-plan').length === 1"
    )
    label = by_share.locator("g[role=button]").last.get_attribute("aria-label")
    said = page.locator(".ss-tune-curves .ss-tune-said").inner_text()
    assert "skips" in label
    wait_for_plan(page, said.split("the plan ")[1].split(" with k")[0])


def test_marks_that_overlap_are_all_within_reach(tune):
    page = tune()
    said = page.evaluate(
        """() => {
          const host = document.querySelector('.ss-tune-curves').appendChild(document.createElement('div'));
          const chart = new SelfSpec.TuneChart(host);
          const axis = (high) => ({ low: 0, high, label: '', format: String });
          const places = [[50, 50], [50.6, 50], [50, 51.5], [51, 52]];
          const marks = places.map(([x, y], i) => ({
            x, y, low: y - 20, high: y + 20, name: 'predicted', label: `${i}`, tip: [`${i}`],
            act: () => (window.taken = i),
          }));
          chart.draw({ label: 'overlapping', x: axis(100), y: axis(100), marks });
          const { left, top } = host.querySelector('svg').getBoundingClientRect();
          const taken = (x, y, detail) => {
            window.taken = -1;
            const at = { clientX: left + x, clientY: top + y, bubbles: true, detail };
            host.querySelector('svg').dispatchEvent(new PointerEvent('pointermove', at));
            host.querySelector('svg').dispatchEvent(new MouseEvent('click', at));
            return window.taken;
          };
          const pointed = chart.places.map(([x, y]) => taken(x, y, 1));
          const [x, y] = chart.places[0];
          const beside = [taken(x - 20, y, 1), taken(x - 40, y, 1)];
          const walked = [];
          chart.points[0].focus();
          for (let i = 0; i < 4; i += 1) {
            walked.push(host.querySelector('.ss-tune-tip').textContent);
            document.activeElement.dispatchEvent(
              new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
          }
          chart.points[2].dispatchEvent(new MouseEvent('click', { bubbles: true }));
          return { pointed, beside, walked, pressed: window.taken };
        }"""
    )
    assert said == {
        "pointed": [0, 1, 2, 3],
        "beside": [0, -1],
        "walked": ["0", "1", "2", "3"],
        "pressed": 2,
    }


def test_measured_points_lie_on_top_of_the_curves(tune):
    page = tune()
    page.click("#tune-curves-measure")
    page.wait_for_selector(".ss-tune-curves g.ss-tune-measured", state="attached")
    ended(page, "curves")
    assert (
        page.locator(".ss-tune-curves .ss-tune-plot").first.locator("g.ss-tune-measured").count()
        == 8
    )
    assert page.locator(".ss-tune-curves g.ss-tune-measured .ss-tune-whisker").count() > 8


# -- 3 search ------------------------------------------------------------------------------------


def test_a_search_stops_goes_on_and_is_confirmed(tune):
    page = tune()
    choose_strategy(page, "random")
    budget(page, 300)
    page.click("#tune-search-go")
    page.wait_for_selector(".ss-tune-search .ss-tune-best dd")
    assert "left" in page.locator(".ss-tune-search .ss-tune-about").inner_text()
    page.click(".ss-tune-search .ss-tune-job button")
    page.wait_for_selector('.ss-tune-search .ss-tune-job[data-state="stopped"]')
    trials = int(page.locator(".ss-tune-best dd").last.inner_text())
    assert trials > 0
    # It goes on, in another page of the same visitor too.
    page.reload()
    page.wait_for_selector("#run")
    on_tune(page)
    choose_strategy(page, "random")
    budget(page, 10)
    page.click("#tune-search-go")
    page.wait_for_selector('.ss-tune-search .ss-note:has-text("Going on from")')
    page.wait_for_selector(".ss-tune-search .ss-tune-table")
    ended(page, "search")
    verdict = page.locator(".ss-tune-search .ss-notes .ss-note").first.inner_text()
    assert any(word in verdict for word in ("It pays", "Perhaps", "Unclear", "Nothing pays here"))
    assert int(page.locator(".ss-tune-best dd").last.inner_text()) >= trials
    rows = page.locator(".ss-tune-search .ss-tune-table").first.inner_text()
    assert "prompts it never saw" in rows
    # A point of the front is a plan.
    plot = page.locator(".ss-tune-search .ss-tune-plot")
    point_at(page, plot, 0)
    tip = page.locator(".ss-tune-search .ss-tune-tip").inner_text().split("\n")
    page.mouse.down()
    page.mouse.up()
    wait_for_plan(page, tip[0])
    # The same as a table, for whoever prefers that; and starting afresh forgets.
    page.click(".ss-tune-more summary")
    assert page.locator(".ss-tune-more tbody tr").count() >= 1
    budget(page, 300)  # it is still going on when it is stopped
    page.click("#tune-search-afresh")
    page.wait_for_function(
        "!document.querySelector('.ss-tune-search .ss-notes').textContent.includes('Going on')"
    )
    page.click(".ss-tune-search .ss-tune-job button")


@pytest.mark.parametrize(
    ("seen", "unseen", "interval", "said"),
    [
        (1.2, 1.1, (1.05, 1.2), "pays"),
        (1.2, 1.1, (0.9, 1.2), "perhaps"),
        (0.99, 1.1, (0.85, 1.38), "mixed"),
        (1.2, 0.96, (0.66, 1.13), "plain"),
    ],
)
def test_plain_decoding_is_called_faster_only_where_it_was(seen, unseen, interval, said):
    told = verdict(
        SimpleNamespace(speedup=seen), SimpleNamespace(speedup=unseen, interval=interval)
    )
    assert told["key"] == f"tune.verdict.{said}"
    assert told["args"]["times"] == unseen


def test_a_found_draft_temperature_goes_to_decode_and_figures_into_the_file(app, tune):
    page = tune()
    # What a search gives, as its card takes it over.
    terms = Asked(settings=Settings(prompt="")).terms(app.studio.engine)
    page.evaluate(
        """at => {
          const card = SelfSpec.tuneCards.search;
          const measured = { alpha: 0.5, tau: 1.8, speedup: 1.1, tps: 40 };
          const predicted = { plan: '2-3', k: 3, draft_temperature: 0.4, alpha: 0.6, tau: 2, speedup: 1.2 };
          window.point = card.prototype._with.call(
            { value: { at, confirmed: { predicted, unseen: measured } } }, predicted);
        }""",
        terms,
    )
    page.evaluate(
        """() => {
          const made = SelfSpec.tuneParts.useButton(SelfSpec.tuneShown.search, () => window.point);
          made.id = 'use-point';
          document.querySelector('.ss-tune-search').append(made);
        }"""
    )
    page.click("#use-point")
    wait_for_plan(page, "2-3")
    page.wait_for_function("document.querySelector('#k input')?.value === '3'")

    def saved() -> dict:
        with page.expect_download() as downloading:
            page.click(".ss-tune-export button[data-format=plan]:enabled")
        return json.loads(Path(downloading.value.path()).read_text(encoding="utf-8"))

    page.wait_for_selector('.ss-tune-export .ss-tune-plan:text-is("2-3")')
    file = saved()
    assert (file["k"], file["draft_temperature"]) == (3, 0.4)
    assert (file["predicted"]["alpha"], file["measured"]["tokens_per_second"]) == (0.6, 40)
    # Of other prompts they say nothing, which is said; nor of another plan.
    note = page.locator(".ss-tune-export .ss-warn")
    assert not note.is_visible()
    page.get_by_role("button", name="What it is measured on").click()
    texts = page.locator("#tune-texts input[type=number]")
    was = texts.input_value()
    texts.fill("3")
    texts.blur()
    assert saved().get("predicted") is None
    assert "without the search's figures" in note.inner_text()
    texts.fill(was)
    texts.blur()
    bring(page, "4-5")
    page.wait_for_selector('.ss-tune-export .ss-tune-plan:text-is("4-5")')
    assert saved().get("predicted") is None
    # A link carries it, and an empty one isn't there.
    page.locator("[role=tab]").first.click()
    page.locator("#more").get_by_role("button").first.click()
    assert page.input_value("#draft-temperature input") == "0.4"
    page.click("#share")
    page.wait_for_function("location.hash.includes('drafttemp=0.4')")
    page.fill("#draft-temperature input", "")
    page.locator("#draft-temperature input").blur()
    wait_until(
        lambda: page.click("#share") or "drafttemp" not in page.evaluate("location.hash"),
        "a link without it",
        page=page,
    )


def test_a_closed_tab_ends_a_search(app, tune):
    page = tune()
    budget(page, 300)
    page.click("#tune-search-go")
    page.wait_for_selector(".ss-tune-search .ss-tune-best dd")
    page.close()
    wait_until(lambda: app.studio.scheduler.idle, "the search of a closed tab to end")


def test_two_people_search_and_suggest_at_once_and_keep_their_own_plans(tune):
    ann, bob = tune(), tune()
    budget(ann, 300)
    ann.click("#tune-search-go")
    ann.wait_for_selector(".ss-tune-search .ss-tune-best dd")
    before = plan_of(ann)
    bob.click("#tune-suggest-go")
    bob.wait_for_selector('.ss-tune-suggest .ss-tune-facts:has-text("Predicted")')
    assert bob.locator(".ss-tune-search .ss-tune-best dd").count() == 0
    bob.click('.ss-tune-suggest button:has-text("Use this plan")')
    wait_for_plan(bob, bob.locator(".ss-tune-suggest .ss-tune-plan").inner_text())
    assert plan_of(ann) == before
    assert ann.locator(".ss-tune-search .ss-tune-job").is_visible()
    # A run in Decode doesn't end the search either.
    ann.locator("[role=tab]").first.click()
    ann.click("#run")
    ann.wait_for_function("['done'].includes(window.SelfSpec.trace.header.state)")
    on_tune(ann)
    ann.wait_for_selector('.ss-tune-search .ss-tune-job[data-state="running"]')
    ann.click(".ss-tune-search .ss-tune-job button")
    ann.wait_for_selector('.ss-tune-search .ss-tune-job[data-state="stopped"]')


# -- 4 by length, policies --------------------------------------------------------------------------


def test_a_schedule_is_made_and_used(tune):
    page = tune()
    page.fill("#tune-below input, #tune-below textarea", "2-3")
    page.fill("#tune-boundary input", "64")
    page.fill("#tune-above input, #tune-above textarea", "a2-5")
    page.click("#tune-schedule-go")
    page.wait_for_selector('.ss-tune-schedule .ss-tune-plan:has-text("2-3;64:a2-5")')
    page.click('.ss-tune-schedule button:has-text("Use this plan")')
    wait_for_plan(page, "2-3;64:a2-5")
    page.wait_for_selector('.ss-tune-export .ss-tune-why:has-text("by length")')
    assert page.locator(".ss-tune-export button[data-format]:enabled").count() == 2
    page.fill("#tune-above input, #tune-above textarea", "a2-99")
    page.click("#tune-schedule-go")
    page.wait_for_selector(".ss-tune-schedule .ss-error:visible")
    assert "99" in page.locator(".ss-tune-schedule .ss-error").inner_text()


def test_draft_policies_are_measured(tune):
    page = tune()
    page.click('.ss-tune-policies button:has-text("Measure")')
    page.wait_for_selector(".ss-tune-policies .ss-tune-table tbody tr:nth-child(4)")
    ended(page, "policies")


# -- 5 files ---------------------------------------------------------------------------------------


def test_every_format_downloads_or_says_why_not(tune):
    page = tune()
    bring(page, "5-7")
    wait_for_plan(page, "5-7")
    page.wait_for_selector('.ss-tune-export .ss-tune-plan:text-is("5-7")')
    formats = page.locator(".ss-tune-export button[data-format]:enabled").all()
    assert len(formats) == 8  # the last layers as a whole: every format holds them
    for button in formats[:-1]:
        with page.expect_download() as downloading:
            button.click()
        text = Path(downloading.value.path()).read_text(encoding="utf-8")
        assert text
        if downloading.value.suggested_filename == "plan.json":
            ours = text
    page.click(".ss-tune-export button[data-format=draft-checkpoint]")
    page.wait_for_selector("#tune-file a")
    with page.expect_download() as downloading:
        page.locator("#tune-file a").first.click()
    archive = zipfile.ZipFile(io.BytesIO(Path(downloading.value.path()).read_bytes()))
    config = json.loads(archive.read("draft-checkpoint/config.json"))
    assert config["num_hidden_layers"] == 5
    # A plan of half layers: the formats that can't hold it say so.
    bring(page, "a3,m5")
    page.wait_for_selector('.ss-tune-export .ss-tune-why:has-text("keeps the MLP of layer 3")')
    assert page.locator(".ss-tune-export button[data-format]:disabled").count() == 4
    # Our own file brings everything back.
    bring(page, ours)
    wait_for_plan(page, "5-7")


def test_a_file_is_read_and_k_comes_with_it(tune, tmp_path):
    page = tune()
    file = tmp_path / "layerskip.json"
    file.write_text(json.dumps({"exit_layer": 6, "num_speculations": 5}), encoding="utf-8")
    page.set_input_files(".ss-tune-import input[type=file]", file)
    wait_for_plan(page, "6-7")
    page.wait_for_function("document.querySelector('#k input[type=number]')?.value === '5'")
    page.locator(".ss-tune-import .ss-note", has_text="LayerSkip").wait_for()


def test_nonsense_gets_a_clear_answer_and_changes_nothing(tune, tmp_path):
    page = tune()
    before = plan_of(page)
    cases = {
        "": "nothing in it",
        "{": "isn't JSON",
        "[" * 5000: "isn't JSON",
        "hello": "neither a plan file",
        "<img src=x onerror=window.owned=1>": "neither a plan file",
        "{}": "no format that is known",
        json.dumps([1, 0] * 30): "30 layers",
        json.dumps({"schema": 1, "plan": "3", "n_layers": 30, "k": 2, "model": "<b>x</b>"}): "30 layers",
        json.dumps({"p": {"attention": [77], "mlp": []}}): "layer 77",
        json.dumps({"p": {"layers": [1]}, "<b>q": {"layers": [2]}}): "holds 2 plans",
    }  # fmt: skip
    for text, answer in cases.items():
        assert answer in bring(page, text), text[:40]
    for name, content in {"big.json": b" " * (2 << 20), "binary.json": b"\xff\xfe\x00\x01"}.items():
        (tmp_path / name).write_bytes(content)
        page.evaluate("document.querySelector('.ss-tune-import .ss-notes').replaceChildren()")
        page.set_input_files(".ss-tune-import input[type=file]", tmp_path / name)
        page.wait_for_selector(".ss-tune-import .ss-notes .ss-error")
    assert plan_of(page) == before
    assert page.evaluate("window.owned") is None
    assert page.locator(".ss-tune-import b, .ss-tune-import img").count() == 0
    assert "plan" in bring(page, json.dumps({"p": {"layers": [1]}, "q": {"layers": [2]}}), "q")
    wait_for_plan(page, "2")


# -- states and looks --------------------------------------------------------------------------------


def test_before_the_model_is_there_work_waits_and_says_so(app_before_loading, new_page):
    page = on_tune(new_page(app_before_loading.url))
    page.click("#tune-suggest-go")
    page.wait_for_selector('.ss-tune-suggest .ss-tune-about:has-text("still being loaded")')
    bring(page, json.dumps([1, 0] * LAYERS))
    assert page.locator(".ss-tune-import .ss-error").count() == 1
    app_before_loading.loads.set()
    page.wait_for_selector('.ss-tune-suggest .ss-tune-facts:has-text("Predicted")')


def test_a_lossy_rule_is_explained(tune):
    page = tune()
    bring(
        page,
        json.dumps(
            {"schema": 1, "plan": "3", "n_layers": LAYERS, "k": 2, "model": "t", "rule": "typical"}
        ),
    )
    wait_for_plan(page, "3")
    page.click("#tune-curves-go")
    page.wait_for_selector(".ss-tune-curves .ss-error:visible")
    assert "coupled" in page.locator(".ss-tune-curves .ss-error").inner_text()


def test_the_panel_speaks_chinese(tune):
    page = tune(locale="zh-CN")
    page.click("#tune-suggest-go")
    page.wait_for_selector('.ss-tune-suggest .ss-tune-facts:has-text("预测")')
    panel = page.locator("#tune").inner_text()
    for word in (
        "找出在这台机器上真正划算的设置",
        "搜索更好的方案",
        "带走方案",
        "导入方案",
        "每轮猜多少个",
    ):
        assert word in panel


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_axe_finds_nothing_serious_and_nothing_scrolls_sideways(tune, theme, width):
    page = tune(color_scheme=theme, viewport={"width": width, "height": 900})
    page.click("#tune-curves-go")
    page.wait_for_selector(".ss-tune-curves .ss-tune-chart + h3 + .ss-tune-chart svg")
    choose_strategy(page, "CLaSp")
    budget(page, 10)
    page.click("#tune-search-go")
    page.wait_for_selector(".ss-tune-search .ss-tune-table")
    ended(page, "search")
    page.click(".ss-tune-more summary")
    bring(page, "{")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_click_on_the_strip_outlives_the_late_answer_to_an_import(tune):
    page = tune()
    held = []
    late = True
    page.route(
        "**/gradio_api/run/**", lambda route: held.append(route) if late else route.continue_()
    )
    page.fill(".ss-tune-import textarea", "4-5")
    page.locator(".ss-tune-import button").click()
    wait_until(lambda: held, "the file's question", page=page)
    late = False
    page.evaluate("document.querySelector('.ss-branch-mlp[data-layer=\"6\"]').click()")
    clicked = page.evaluate("SelfSpec.plans.now()")
    for route in held:
        route.continue_()
    note = page.locator(".ss-tune-import .ss-note")
    note.wait_for()
    assert "not taken over" in note.inner_text()
    assert plan_of(page) == clicked != "4-5"


def test_what_is_changed_while_a_file_is_read_stays_and_is_named(tune):
    page = tune()
    run_only_when_told(page)
    held = []
    late = True
    page.route(
        "**/gradio_api/run/**", lambda route: held.append(route) if late else route.continue_()
    )
    file = {
        "schema": 1,
        "plan": "4-5",
        "n_layers": LAYERS,
        "k": 2,
        "model": "t",
        "temperature": 0.6,
    }
    page.fill(".ss-tune-import textarea", json.dumps(file | {"draft_temperature": 0.4}))
    page.locator(".ss-tune-import button").click()
    wait_until(lambda: held, "the file's question", page=page)
    late = False
    page.locator("[role=tab]").first.click()
    for name, value in (("k", "7"), ("temperature", "1.1")):
        page.fill(f"#{name} input[type=number]", value)
        page.locator(f"#{name} input[type=number]").blur()
    for route in held:
        route.continue_()
    wait_for_plan(page, "4-5")
    page.locator("#more").get_by_role("button").first.click()
    page.wait_for_function("document.querySelector('#draft-temperature input')?.value === '0.4'")
    assert page.input_value("#k input[type=number]") == "7"
    assert page.input_value("#temperature input[type=number]") == "1.1"
    on_tune(page)
    kept = page.locator(".ss-tune-import .ss-warn", has_text="Changed by you")
    assert "Draft length k, Temperature." in kept.inner_text()
    # Read again, nothing having been changed meanwhile, all of it comes.
    bring(page, json.dumps(file))
    page.wait_for_function("document.querySelector('#k input[type=number]')?.value === '2'")
    page.wait_for_function("document.querySelector('#temperature input')?.value === '0.6'")


def test_our_own_file_brings_policy_and_sampling_and_says_what_does_not_fit(tune):
    page = tune()
    run_only_when_told(page)
    page.evaluate("document.querySelector('#more button').click()")
    file = {
        "schema": 1, "plan": "3", "n_layers": LAYERS, "k": 3, "model": "t", "policy": "adaptive",
        "confidence": 0.5, "temperature": 5, "sampling": {"top_k": 40, "min_p": 0.1},
    }  # fmt: skip
    bring(page, json.dumps(file))
    wait_for_plan(page, "3")
    said = page.locator(".ss-tune-import .ss-notes").inner_text()
    assert "Temperature is 5 in the file; here it can be 0 to 2" in said
    page.wait_for_function("document.querySelector('#top-k input')?.value === '40'")
    assert page.locator("#policy input:checked").get_attribute("value") == "adaptive"
    assert page.input_value("#min-p input[type=number]") == "0.1"
    assert page.input_value("#temperature input[type=number]") == "0"
    page.wait_for_selector('.ss-tune-export .ss-tune-plan:text-is("3")', state="attached")
    with page.expect_download() as downloading:
        page.click(".ss-tune-export button[data-format=plan]:enabled")
    back = json.loads(Path(downloading.value.path()).read_text(encoding="utf-8"))
    assert (back["policy"], back["confidence"]) == ("adaptive", 0.5)
    assert back["sampling"] == {"top_k": 40, "min_p": 0.1}
