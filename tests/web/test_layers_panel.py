"""The Layers panel in a real browser, on a tiny random model."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from selfspec_core.plan import SkipPlan

from .conftest import HOSTILE, LAYERS, Stage, serious, wait_until

pytestmark = pytest.mark.browser

PLAN = "#plan textarea, #plan input"
STILL = "['done', 'stopped', 'error'].includes(document.querySelector('.lp-status').dataset.state)"


class Panel(Stage):
    """What a person does in the Layers panel and sees there."""

    def open(self) -> Panel:
        """Go to the panel."""
        self.page.get_by_role("tab", name=re.compile("Layers|层")).first.click()
        self.page.wait_for_selector(".lp-toolbar")
        return self

    def decode(self) -> Panel:
        """Go to Decode."""
        self.page.get_by_role("tab", name=re.compile("Decode|解码")).first.click()
        return self

    def doing(self) -> str:
        """What its line of progress says it is doing."""
        return self.page.get_attribute(".lp-status", "data-state")

    def wait(self, state: str = "done") -> dict:
        """Wait for the end of a computation; the result."""
        self.page.wait_for_function(STILL)
        assert self.doing() == state, self.page.inner_text(".lp-status")
        return self.result()

    def compute(self, **choices) -> dict:
        """Choose and compute; the result."""
        for name, choice in choices.items():
            self.page.select_option(f"select[name=layers-{name}]", str(choice))
        self.page.click(".lp-compute")
        return self.wait()

    def result(self) -> dict:
        return json.loads(self.page.evaluate("JSON.stringify(SelfSpec.layersPanel.result ?? null)"))

    def plan(self) -> str:
        return self.page.input_value(PLAN)

    def hatched(self) -> int:
        return self.page.locator(".lp-main .lp-over .lp-hatched").count()

    def cell(self, row: int, col: int) -> dict:
        """A cell's place, of the heatmap."""
        box = self.page.locator(".lp-main .lp-layer").bounding_box()
        place = self.page.evaluate(
            "([row, col]) => SelfSpec.layersPanel.grid.of.box(row, col)", [row, col]
        )
        return {
            "x": box["x"] + place["x"] + place["width"] / 2,
            "y": box["y"] + place["y"] + place["height"] / 2,
        }

    def click(self, row: int, col: int) -> None:
        self.page.locator(".lp-main .lp-layer").scroll_into_view_if_needed()
        self.page.mouse.click(**self.cell(row, col))


def open_panel(new_page, app, *, prompt: str = "a fox runs", plan: str = "3-4", **options) -> Panel:
    panel = Panel(new_page(app.url, **options))
    panel.page.wait_for_selector('.ss-model[data-state="ready"]')
    panel.page.uncheck("#auto input")
    panel.page.fill(PLAN, plan)
    panel.page.press(PLAN, "Enter")
    panel.page.fill("#prompt textarea", prompt)
    panel.open()
    panel.page.wait_for_function(
        "text => { const { plan } = SelfSpec.layersPanel ?? {};"
        " return plan && SelfSpec.planText(plan) === text; }",
        arg=str(SkipPlan.parse(plan, LAYERS)),
    )
    return panel


def ran(new_page, app, **options) -> Panel:
    """The panel of somebody who has run something in Decode."""
    panel = open_panel(new_page, app, **options)
    panel.decode().set_length(24)
    panel.page.uncheck("#auto input")
    panel.run()
    return panel.open()


def test_the_heatmap_shows_the_written_words_with_values_bars_and_ranks(app, new_page):
    panel = ran(new_page, app)
    result = panel.compute(rows=16)
    assert result["source"] == "run"
    assert result["layers"] == LAYERS
    assert len(result["tokens"]) == 16
    cells = result["columns"]["input_x_gradient"]["cells"]
    assert (len(cells), len(cells[0])) == (2 * LAYERS, 16)
    page = panel.page
    assert page.locator(".lp-main .lp-cells rect").count() == 2 * LAYERS * 16
    assert page.locator(".lp-main .lp-bar-estimate").count() == 2 * LAYERS
    assert page.locator(".lp-main .lp-bar-measured").count() == 2 * LAYERS
    ranks = result["columns"]["input_x_gradient"]["ranks"]["lost_agreement"]
    assert f"τ {ranks['kendall']:.3g}".replace("-", "−") in page.inner_text(".lp-facts")
    fills = page.evaluate(
        "[...document.querySelectorAll('.lp-main .lp-cells rect')].map(r => r.getAttribute('fill'))"
    )
    order = sorted(range(16), key=lambda col: cells[3][col])
    assert len({fills[3 * 16 + order[0]], fills[3 * 16 + order[-1]]}) == 2
    page.locator(".lp-main .lp-layer").scroll_into_view_if_needed()
    place = panel.cell(5, 7)
    page.mouse.move(**place)
    tip = page.inner_text(".lp-tip")
    assert "Layer 2" in tip
    assert "MLP" in tip
    assert f"word 7: “{result['tokens'][7]}”" in tip
    said = page.evaluate("v => SelfSpec.layersDrawing.number(v, true)", cells[5][7])
    assert said in tip


def test_a_click_on_a_cell_toggles_the_branch_in_the_shared_plan(app, new_page):
    panel = open_panel(new_page, app)
    panel.compute(source="prompt")
    assert panel.hatched() == 4
    panel.click(2 * 5, 1)
    expected = str(SkipPlan.parse("3-4,a5", LAYERS))
    wait_until(lambda: panel.plan() == expected, "the plan to have a5")
    assert panel.hatched() == 5
    panel.click(2 * 3 + 1, 1)
    expected = str(SkipPlan.parse("a3-5,m4", LAYERS))
    wait_until(lambda: panel.plan() == expected, "the plan to keep m3")
    assert panel.hatched() == 4


def test_quick_clicks_are_all_kept(app, new_page):
    panel = open_panel(new_page, app, plan="none")
    panel.compute(source="prompt")
    for row in range(2, 12):
        panel.page.evaluate("row => SelfSpec.layersPanel.toggle(row)", row)
    expected = str(SkipPlan.parse("1-5", LAYERS))
    wait_until(lambda: panel.plan() == expected, "all ten clicks")
    assert panel.hatched() == 10


def test_a_plan_changed_in_decode_is_hatched_here(app, new_page):
    panel = open_panel(new_page, app)
    panel.compute(source="prompt")
    panel.decode()
    panel.page.fill(PLAN, "a1-6")
    panel.page.press(PLAN, "Enter")
    panel.open()
    wait_until(lambda: panel.hatched() == 6, "six rows to be hatched")


def test_the_last_branch_cannot_be_skipped_and_it_says_why(app, new_page):
    panel = open_panel(new_page, app, plan=f"a0-{LAYERS - 1},m0-{LAYERS - 2}")
    panel.compute(source="prompt")
    before = panel.plan()
    panel.click(2 * LAYERS - 1, 0)
    panel.page.wait_for_selector(".ss-lp .ss-note.ss-error:visible")
    assert "keep at least one" in panel.page.inner_text(".ss-lp .ss-note.ss-error")
    assert panel.plan() == before
    assert panel.hatched() == 2 * LAYERS - 1


def test_the_heatmap_works_by_keyboard(app, new_page):
    panel = open_panel(new_page, app, prompt="a fox runs a fox runs")
    panel.compute(source="prompt")
    page = panel.page
    # A term may be marked or not yet.
    assert page.locator('.lp-main [tabindex="0"]:not(.ss-term-mark)').count() == 1
    page.focus(".lp-main .lp-cursor")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    at = "[SelfSpec.layersPanel.grid.cursor.row, SelfSpec.layersPanel.grid.cursor.col]"
    assert page.evaluate(at) == [3, 1]
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("Layer 1 · MLP, value ")
    assert "kept in the draft" in label
    page.keyboard.press("Enter")
    expected = str(SkipPlan.parse("m1,3-4", LAYERS))
    wait_until(lambda: panel.plan() == expected, "the plan to skip m1")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "skipped in the draft" in label
    page.keyboard.press("PageDown")
    page.keyboard.press("End")
    last = len(panel.result()["tokens"]) - 1
    assert page.evaluate(at) == [2 * LAYERS - 1, last]


def test_hostile_tokens_are_labels_and_nothing_else(app, new_page):
    words = [f"{HOSTILE[0]}x", *HOSTILE[1:]]  # as the tiny model knows them
    panel = open_panel(new_page, app, prompt=" ".join(["a", *words]))
    result = panel.compute(source="prompt", rows=16)
    assert result["tokens"] == words
    page = panel.page
    labels = page.locator(".lp-main .lp-col-labels text").all_text_contents()
    assert labels == [w if len(w) <= 13 else f"{w[:12]}…" for w in words]
    page.locator(".lp-main .lp-layer").scroll_into_view_if_needed()
    for col, word in enumerate(words):
        page.mouse.move(**panel.cell(4, col))
        assert word in page.inner_text(".lp-tip")
    for view in range(4):
        page.locator(".lp-more > .lp-segments button").nth(view).click()
        panel.wait()
    assert page.evaluate("window.owned") is None
    assert page.locator(".ss-lp img, .ss-lp script, .lp-tip img").count() == 0


def test_a_method_is_chosen_live_and_what_is_known_comes_back_at_once(app, new_page):
    panel = open_panel(new_page, app, prompt="a fox runs a fox")
    panel.compute(source="prompt")
    panel.page.select_option("select[name=layers-column]", "feature_ablation")
    result = panel.wait()
    assert "feature_ablation" in result["columns"]
    assert panel.page.inner_text(".lp-main h3") == "Ablation"
    panel.page.select_option("select[name=layers-score]", "margin")
    assert panel.wait()["score"] == "margin"
    assert (
        panel.page.is_disabled("select[name=layers-column] option[value=input_x_gradient]") is False
    )
    panel.page.select_option("select[name=layers-score]", "kl")
    panel.wait()
    assert panel.page.is_disabled("select[name=layers-column] option[value=input_x_gradient]")
    assert panel.page.locator(".lp-field-budget").is_hidden()


def test_more_steps_bring_the_sum_nearer_and_words_do_not_touch(app, new_page):
    panel = open_panel(new_page, app, prompt=" ".join(["a fox runs w5"] * 17))
    assert panel.page.locator(".lp-field-ig_steps").is_hidden()
    few = panel.compute(source="prompt", rows=64, column="integrated_gradients")
    panel.page.select_option("select[name=layers-ig_steps]", "128")
    many = panel.wait()
    missed = [
        abs(sum(found["columns"]["integrated_gradients"]["details"]["convergence_delta"]))
        for found in (few, many)
    ]
    assert missed[1] < missed[0]
    tops = panel.page.evaluate(
        """[...document.querySelectorAll('.lp-main .lp-col-labels text')].map(t => Number(t.getAttribute('x')))"""
    )
    assert len(tops) == 64
    assert min(b - a for a, b in itertools.pairwise(tops)) >= 15


def test_each_view_below_has_a_picture_and_a_sentence(app, new_page):
    panel = open_panel(new_page, app, prompt="a fox runs a fox runs")
    panel.compute(source="prompt")
    page = panel.page
    counts = {
        "attention": (".lp-view:visible .lp-cells rect", 4 * LAYERS),
        "gradient_flow": (".lp-view:visible .lp-bar", 2 * LAYERS),
        "block_influence": (".lp-view:visible .lp-bar", 2 * LAYERS),
        "logit_lens": (".lp-view:visible .lp-dot", LAYERS + 1),
    }
    sentences = set()
    for number, (name, (selector, count)) in enumerate(counts.items()):
        page.locator(".lp-more > .lp-segments button").nth(number).click()
        result = panel.wait()
        assert any(name in column for column in result["columns"])
        page.wait_for_selector(selector)
        assert page.locator(selector).count() == count, name
        sentences.add(page.inner_text(".lp-more > .lp-read"))
    assert len(sentences) == 4
    assert page.locator(".lp-view:visible .lp-cells rect").count() == LAYERS * 5


def test_a_long_computation_can_be_stopped_and_others_are_not(app, new_page):
    panel = open_panel(new_page, app, prompt="a fox runs a fox runs a fox runs")
    panel.compute(source="prompt")
    other = ran(new_page, app)
    panel.page.select_option("select[name=layers-column]", "shapley")
    panel.page.select_option("select[name=layers-budget]", "60")
    panel.page.wait_for_function(
        "document.querySelector('.lp-status-left').textContent.includes('left')"
    )
    assert "Shapley" in panel.page.inner_text(".lp-status")
    assert not panel.page.is_disabled(".lp-stop")
    other.decode()  # somebody else decodes meanwhile
    before = other.run_number()
    other.page.click("#run")
    other.page.wait_for_function(
        "n => SelfSpec.trace.run > n && SelfSpec.trace.events.some(e => e.type === 'done')",
        arg=before,
    )
    assert panel.doing() == "running"
    panel.page.click(".lp-stop")
    panel.wait("stopped")
    assert panel.page.is_disabled(".lp-stop")
    wait_until(lambda: app.studio.scheduler.idle, "the engine to be idle")


def test_a_question_that_a_newer_one_overtook_does_not_end_it(app, new_page):
    panel = open_panel(new_page, app, prompt="a fox runs a fox runs a fox runs")
    page, held = panel.page, []
    panel.compute(source="prompt")

    def hold_first(route):
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/queue/join*", hold_first)
    page.select_option("select[name=layers-column]", "shapley")
    wait_until(lambda: page.wait_for_timeout(20) or held, "the first question to be on its way")
    page.select_option("select[name=layers-budget]", "60")
    done = "(SelfSpec.layersPanel.now.progress?.done ?? 0)"
    page.wait_for_function(f"SelfSpec.layersPanel.now.state === 'running' && {done} > 0")
    with page.expect_response("**/queue/join*"):
        held[0].continue_()
    before = page.evaluate(done)
    page.wait_for_function(f"before => {done} > before + 0.03", arg=before)
    assert panel.doing() == "running"
    page.click(".lp-stop")
    panel.wait("stopped")


def test_what_nobody_could_choose_is_answered_with_a_sentence(app, new_page):
    panel = open_panel(new_page, app)
    panel.page.evaluate(
        "document.querySelector('select[name=layers-score] option').value = '${window.owned=1}'"
    )
    panel.page.evaluate("SelfSpec.layersPanel.toolbar.wanted.score = '<img src=x>'")
    panel.page.click(".lp-compute")
    panel.page.wait_for_function(STILL)
    assert panel.doing() == "error"
    assert "isn’t one of the choices: logprob, margin, kl" in panel.page.inner_text(".lp-status")
    panel.page.evaluate("SelfSpec.layersPanel.toolbar.wanted.score = 'logprob'")
    panel.decode().page.fill(PLAN, "layers 3 and 4")
    panel.open()
    panel.page.select_option("select[name=layers-column]", "integrated_gradients_plan")
    panel.page.wait_for_function(
        "document.querySelector('.lp-status').textContent.includes('can’t be used')"
    )
    panel.decode().page.fill(PLAN, "3-4")
    panel.page.fill("#prompt textarea", "   ")
    panel.open().page.click(".lp-compute")
    panel.page.wait_for_function(
        "document.querySelector('.lp-status').textContent.includes('write at least one word')"
    )


def test_two_people_with_different_texts_each_get_their_own(app, new_page):
    people = {
        prompt: open_panel(new_page, app, prompt=prompt)
        for prompt in ("a fox runs a", "runs fox a fox runs")
    }
    for panel in people.values():
        panel.page.select_option("select[name=layers-source]", "prompt")
        panel.page.select_option("select[name=layers-column]", "feature_ablation")
    for prompt, panel in people.items():
        result = panel.wait()
        assert result["tokens"] == prompt.split()[1:]
    values = [panel.result()["columns"]["feature_ablation"]["values"] for panel in people.values()]
    assert values[0] != values[1]


def test_a_new_text_in_decode_is_said_to_be_newer(app, new_page):
    panel = ran(new_page, app)
    panel.compute()
    assert "another text" not in panel.page.inner_text(".lp-status")
    panel.decode()
    panel.page.fill("#prompt textarea", "fox fox")
    panel.run()
    panel.open()
    panel.page.wait_for_function(
        "document.querySelector('.lp-status').textContent.includes('another text')"
    )
    panel.compute()
    assert "another text" not in panel.page.inner_text(".lp-status")


def test_many_cells_are_a_canvas_with_hatching_and_focus_over_it(app, new_page):
    panel = open_panel(new_page, app)
    panel.compute(source="prompt")
    page = panel.page
    page.evaluate(
        """() => {
          const panel = SelfSpec.layersPanel;
          const cells = Array.from({length: 60}, (_, r) => Array.from({length: 96}, (_, c) => Math.sin(r * c)));
          const column = {values: cells.map(row => row[1]), cells, seconds: 1, complete: true, details: {}, ranks: {}};
          const result = {...panel.result, layers: 30, tokens: cells[0].map((_, c) => `t${c}`), columns: {input_x_gradient: column}};
          panel.plan = {layers: 30, steps: [{from: 0, attention: [4, 5], mlp: [4]}]};
          panel.take(JSON.stringify({job: panel.job, state: 'done', result}));
        }"""
    )
    canvas = page.locator(".lp-main canvas")
    assert canvas.count() == 1
    assert page.locator(".lp-main .lp-cells rect").count() == 0
    painted = canvas.evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    )
    assert painted > 50
    assert panel.hatched() == 3
    page.focus(".lp-main .lp-cursor")
    page.keyboard.press("End")
    box = page.locator(".lp-main .lp-cursor").bounding_box()
    scroll = page.locator(".lp-main .lp-scroll").bounding_box()
    assert scroll["x"] <= box["x"] <= scroll["x"] + scroll["width"]


def test_before_the_model_is_there_an_example_is_shown_and_a_question_waits(
    app_before_loading, new_page
):
    app = app_before_loading
    panel = Panel(new_page(app.url)).open()
    page = panel.page
    page.wait_for_selector(".lp-main .lp-cells rect")
    assert "Recorded example" in page.inner_text(".lp-status")
    assert panel.doing() == "recorded"
    page.select_option("select[name=layers-source]", "prompt")
    page.wait_for_function("document.querySelector('.lp-status').dataset.state === 'loading'")
    assert "starts by itself" in page.inner_text(".lp-status")
    app.loads.set()
    assert panel.wait()["layers"] == LAYERS
    assert panel.hatched() == 0  # the recorded plan has layers that this model lacks
    panel.click(4, 1)
    wait_until(lambda: panel.plan() == "a2", "the plan to skip a2")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_the_page_does_not_scroll_sideways(app, new_page, theme):
    panel = open_panel(
        new_page,
        app,
        prompt=" ".join(["a fox runs w5"] * 12),
        color_scheme=theme,
        viewport={"width": 375, "height": 800},
    )
    panel.compute(source="prompt", rows=32)
    page = panel.page
    for view in range(4):
        page.locator(".lp-more > .lp-segments button").nth(view).click()
        panel.wait()
        assert serious(page, context=".ss-lp") == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
    scroll = "(e) => [e.scrollWidth, e.clientWidth]"
    inner, outer = page.locator(".lp-main .lp-scroll").evaluate(scroll)
    assert inner > outer


def test_it_is_said_in_chinese_too(app, new_page):
    panel = open_panel(new_page, app, locale="zh-CN")
    panel.compute(source="prompt")
    assert panel.page.inner_text(".lp-main h3") == "输入 × 梯度"
    panel.page.evaluate("SelfSpec.setLanguage('en')")
    assert panel.page.inner_text(".lp-main h3") == "Input × gradient"
    assert panel.page.inner_text(".lp-compute") == "Compute"
