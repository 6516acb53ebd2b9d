"""The page in Chinese: switched without a reload, complete, and remembered."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from .conftest import Stage, wait_until
from .test_decode import open_stage

pytestmark = pytest.mark.browser

# Words that are the same in every language: names, symbols, units, formats, keys.
SAME = re.compile(
    r"transformers|vLLM|generation_config|model\.generate|ConfLayers|KnapSpec|Logit lens|zip|nat\b|"
    r"SelfSpec|Studio|SmolLM2?\S*|Captum|Gradio|PyTorch|transformers|Draft & Verify|SWIFT|KNN-SSD|"
    r"LayerSkip|EAGLE|Spearman|Kendall|Hessian|LayerCAM|GradCAM|DeepLIFT|SHAP|"
    r"\b(?:coupled|rejection|threshold|typical|none|light|standard|deep|builtin|auto|cpu|cuda|"
    r"float\d+|bfloat16|float|tokens?/s|MLP|MB|GB|ms|KL|LM|CPU|GPU|GGUF|JSON|NDJSON|HTML|CSV|SVG|"
    r"PNG|API|MCP|URL|Hub|EN|Top|Min|logits?|softmax|sigmoid|tanh|max|min|log|exp|org|name|"
    r"Enter|Shift|Esc|Ctrl|Space|Home|End|token|seed|plan|tau|alpha|gumbel|Gumbel|IG|BI|tiny|[Mm]odel\d*|"
    r"README|Linux|Python|pip|repo)\b"
)
WORD = re.compile(r"[A-Za-z]{3,}")

# Everything that can be seen or heard, but data (translate="no", and the model's words in what is
# announced) and Gradio's own footer.
TEXTS = """() => {
  const found = [];
  const data = (element) => element.closest('[translate="no"], .ss-heard, footer, script, style, textarea, input, .toast-wrap');
  const seen = (element) => element.checkVisibility({checkOpacity: false, checkVisibilityCSS: true});
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent && walker.currentNode.data.trim() && !data(parent) && seen(parent)) found.push(walker.currentNode.data.trim());
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
    if (!seen(element) || element.closest('[translate="no"], footer')) continue;
    for (const name of ["aria-label", "title", "placeholder"])
      if (element.getAttribute(name)) found.push(`${name}: ${element.getAttribute(name)}`);
  }
  return found;
}"""


def _own(text: str) -> str:
    """A text without what is quoted in it, and without names."""
    return SAME.sub("", re.sub(r"^(?:aria-label|title|placeholder): |“[^”]*”", "", text))


def english(page) -> list[str]:
    """What a person sees or hears that isn't in Chinese."""
    texts = page.evaluate(TEXTS)
    own = [(text, _own(text)) for text in texts]
    return sorted({text for text, rest in own if WORD.search(rest)})


def in_chinese(page) -> None:
    """Wait until all of the page is in Chinese: Gradio's components follow a little later."""
    with suppress(AssertionError):
        wait_until(lambda: not english(page), "Chinese", 30, page)
    assert english(page) == []


def test_the_language_switches_without_a_reload_components_views_and_server_sentences(
    app, new_page
):
    stage = open_stage(new_page, app)
    page = stage.page
    stage.run()
    assert page.locator("#run").inner_text() == "Run"
    page.evaluate("window.stillHere = true")
    page.get_by_role("button", name="中文").click()
    page.wait_for_function("document.querySelector('#run').innerText === '运行'")
    assert page.evaluate("window.stillHere") is True
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert "在这台机器上实测" in page.locator(".ss-figure-speed").inner_text()
    assert "与普通解码完全相同 ✓" in page.locator(".ss-figure-speedup").inner_text()
    assert "达到了长度上限" in page.locator(".ss-status").inner_text()
    page.wait_for_function("document.querySelector('#k').innerText.startsWith('草稿长度 k')")
    page.get_by_role("button", name="EN", exact=True).click()
    page.wait_for_function("document.querySelector('#run').innerText === 'Run'")
    assert "identical to plain decoding ✓" in page.locator(".ss-figure-speedup").inner_text()


def test_nothing_on_the_decode_panel_stays_in_english(app, new_page):
    stage = open_stage(new_page, app, locale="zh-CN")
    page = stage.page
    page.locator("#more").get_by_role("button").first.click()
    stage.run()
    page.locator(".ss-tokens .ss-rejected").first.click()
    page.locator(".ss-inspector").wait_for()
    in_chinese(page)
    announced = re.compile(r"^第 \d+ 轮：\d+ 个中接受 \d+ 个。")
    page.locator(".ss-heard").filter(has_text=announced).wait_for(state="attached")


# What is there once a panel is.
LAST = {
    "layers": ".lp-toolbar",
    "tune": "#tune-suggest-go",
    "compare": ".ss-compare-time:not(:empty)",
    "learn": ".ss-lesson",
}


@pytest.mark.parametrize("panel", LAST)
def test_nothing_on_the_other_panels_stays_in_english(app, new_page, panel):
    stage = Stage(new_page(f"{app.url}/#panel={panel}&lang=zh"))
    stage.page.wait_for_function(f"window.SelfSpec.panel() === '{panel}'")
    stage.page.wait_for_selector('.ss-model[data-state="ready"]')
    stage.page.wait_for_selector(LAST[panel])
    stage.page.wait_for_timeout(500)  # for what may come still
    in_chinese(stage.page)


def test_errors_are_said_in_the_page_s_language(app, new_page):
    stage = open_stage(new_page, app, locale="zh-CN")
    page = stage.page
    page.fill("#plan textarea, #plan input", "99")
    page.wait_for_function(
        "document.querySelector('.ss-layers .ss-error').textContent.includes('没有第 99 层')"
    )
    page.fill("#plan textarea, #plan input", "3-4")
    page.fill("#prompt textarea", " ")
    stage.run()
    stage.says("提示词是空的")


def test_the_browser_s_language_is_followed_and_the_chosen_one_remembered(app, new_page):
    page = new_page(app.url, locale="zh-TW")
    page.wait_for_function("document.querySelector('#run').innerText === '运行'")
    page.get_by_role("button", name="EN", exact=True).click()
    page.reload()
    page.wait_for_function("document.querySelector('#run')?.innerText === 'Run'")
    page.wait_for_function("document.querySelector('#k')?.innerText.startsWith('Draft length k')")


def test_a_link_names_a_language_and_a_panel(app, new_page):
    page = new_page(f"{app.url}/#lang=zh&panel=layers&prompt=hello")
    page.wait_for_function("window.SelfSpec.panel() === 'layers'")
    page.wait_for_function(
        "[...document.querySelectorAll('#panels [role=tab]')].some(t => t.innerText === '解码')"
    )
    page.evaluate("window.SelfSpec.openPanel('decode')")
    page.wait_for_function("document.querySelector('#prompt textarea')?.value === 'hello'")
