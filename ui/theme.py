"""The look: type, spacing and colours as a Gradio theme, and the page's own css and js.

Everything is served from here; no font, script or style comes from another host.
"""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr
from gradio.themes.utils import sizes

from . import lesson_page, trace_page
from .places import ASSETS

STYLES = (
    *trace_page.STYLES,
    "layers_panel.css",
    "tune_panel.css",
    "compare_panel.css",
    "learn.css",
)
SCRIPTS = (
    *trace_page.SCRIPTS,
    "plans.js",
    "layers.js",
    "links.js",
    "header.js",
    "announce.js",
    "page.js",
    "fields.js",
    "layers_panel_scale.js",
    "layers_panel_heat.js",
    "layers_panel_views.js",
    "layers_panel_controls.js",
    "layers_panel.js",
    "tune_chart.js",
    "tune_panel.js",
    "tune_cards.js",
    "tune_exchange.js",
    "compare_panel.js",
    *lesson_page.SCRIPTS[:-1],  # the last is the offline page's own
    "learn_teacher.js",
    "learn_handout.js",
)
"""What the page shows of a trace, as a saved page does too, and then the panels."""

# Not weight 600: the semi-bold file that Gradio ships lacks most letters.
_SANS = (
    gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)),
    "ui-sans-serif",
    "system-ui",
    "sans-serif",
)
_MONO = (
    gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)),
    "ui-monospace",
    "Consolas",
    "monospace",
)
_COLOURS = {
    "body_background_fill": "paper",
    "background_fill_primary": "card",
    "background_fill_secondary": "sunk",
    "block_background_fill": "card",
    "block_label_text_color": "ink",
    "block_title_text_color": "ink",
    "block_info_text_color": "soft",
    "body_text_color": "ink",
    "body_text_color_subdued": "soft",
    "border_color_primary": "line",
    "block_border_color": "line",
    "input_background_fill": "sunk",
    "input_border_color": "line",
    "input_placeholder_color": "faint",
    "button_primary_background_fill": "accent",
    "button_primary_text_color": "accent-ink",
    "button_secondary_background_fill": "card",
    "button_secondary_text_color": "ink",
    "slider_color": "accent",
    "checkbox_background_color_selected": "accent",
    "checkbox_border_color_selected": "accent",
    "checkbox_label_text_color_selected": "ink",
    "color_accent": "accent",
    "link_text_color": "accent",
}


def theme() -> gr.themes.Base:
    """The theme; its colours are the css variables of `assets/page.css`, light and dark alike."""
    base = gr.themes.Base(
        font=_SANS,
        font_mono=_MONO,
        text_size=sizes.text_md,
        spacing_size=sizes.spacing_md,
        radius_size=sizes.radius_md,
    )
    values = {name: f"var(--ss-{colour})" for name, colour in _COLOURS.items()}
    dark = {f"{name}_dark": value for name, value in values.items() if name != "color_accent"}
    return base.set(**values, **dark)


def markup(header: str, recorded: str | None = None) -> str:
    """The page's styles and scripts, inline, for the end of its body.

    They are there before Gradio's own, and the recorded run is seen while those are fetched.

    Args:
        header: HTML that stands in for the page's header meanwhile.
        recorded: the value of a recorded run, which then plays at once.
    """
    styles = "".join(_inline("style", name) for name in STYLES)
    scripts = "".join(_inline("script", name) for name in SCRIPTS)
    setup = {
        "gradioCore": gradio_core(),
        "traceSchema": trace_page.trace_schema(),
        "tracePage": trace_page.skeleton(),
    }
    # The dictionary is in Gradio's own config (`words.i18n`), where assets/words.js finds it.
    said = json.dumps(setup, ensure_ascii=False).replace("<", "\\u003c")
    scripts = f"<script>window.SelfSpec = {said};</script>{scripts}"
    page = f'{styles}<div class="ss-before">{header}</div>{scripts}'
    if recorded is None:
        return page
    value = json.dumps(recorded).replace("<", "\\u003c")  # no "</script>" inside a script
    return f"{page}<script>window.SelfSpec.preview({value})</script>"


def gradio_core() -> str:
    """Address of Gradio's own module whose `changeLocale` switches its components' language.

    Raises:
        FileNotFoundError: this version of Gradio has none.
    """
    assets = Path(gr.__file__).parent / "templates" / "frontend" / "assets"
    for path in sorted(assets.glob("core-*.js")):
        if "changeLocale" in path.read_text(encoding="utf-8"):
            return f"assets/{path.name}"
    raise FileNotFoundError("this version of Gradio has no module with changeLocale")


def _inline(tag: str, name: str) -> str:
    # What a saved trace's page needs is marked, so that the browser can copy it into one.
    offline = f' data-offline="{name}"' if name in (*trace_page.STYLES, *trace_page.SCRIPTS) else ""
    return f"<{tag}{offline}>{_asset(name)}</{tag}>"


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
