"""The page: header, panels as tabs, and what happens when it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from .api import add_generate
from .compare_panel import build_compare
from .decode import build_decode
from .feed import as_line
from .layers_panel import build_layers
from .session import Studio
from .theme import head, theme
from .tune_panel import build_tune
from .words import i18n, t

TITLE = "SelfSpec Studio"
_POLL_SECONDS = 0.25
_PANELS = {"layers": build_layers, "tune": build_tune, "compare": build_compare}
_HEADER = """<header class="ss-header">
<h1 class="ss-brand"><svg viewBox="0 0 34 34" aria-hidden="true">
<rect x="3" y="4" width="28" height="5" rx="2.5" fill="#0072B2"/>
<rect x="3" y="12" width="28" height="5" rx="2.5" fill="none" stroke="#E69F00" stroke-width="1.6"
stroke-dasharray="3 2.4"/>
<rect x="3" y="20" width="28" height="5" rx="2.5" fill="#0072B2"/>
<circle cx="17" cy="30" r="2.6" fill="#CC79A7"/></svg>SelfSpec Studio</h1>
<p class="ss-tagline">A language model guesses ahead with some of its own layers skipped, then
checks all guesses at once with every layer. Nothing is lost; sometimes it is faster.</p>
<div class="ss-model"></div>
</header>"""


def build(studio: Studio) -> gr.Blocks:
    """Build the page over a studio; launch it with `launch_options(studio)`."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as demo:
        header = gr.HTML(
            _status(studio),
            html_template=_HEADER,
            js_on_load="window.SelfSpec.mountHeader(element, props, watch)",
            apply_default_css=False,
            elem_id="header",
        )
        with gr.Tabs(elem_id="panels"):
            with gr.Tab(t("common.tab.decode"), id="decode"):
                panel = build_decode(studio)
            for name, build_panel in _PANELS.items():
                with gr.Tab(t(f"common.tab.{name}"), id=name):
                    build_panel(studio, panel)
        add_generate(studio)

        async def follow(plan: str) -> AsyncIterator[list[Any]]:
            """Say how far the model is until it is there, then fit the controls to it."""
            said = None
            while studio.status.state == "loading":
                if studio.status != said:
                    said = studio.status
                    yield [
                        _status(studio),
                        *[gr.skip()] * (len(panel.shown) + len(panel.model_bound)),
                    ]
                await asyncio.sleep(_POLL_SECONDS)
            yield [_status(studio), *panel.show_plan(plan), *panel.fit_model()]

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        demo.load(
            None, panel.link, panel.link, js="(...v) => window.SelfSpec.readLink(...v)", **quiet
        ).then(
            follow,
            [panel.plan],
            [header, *panel.shown, *panel.model_bound],
            concurrency_limit=None,
            **quiet,
        )
    return demo


def launch_options(studio: Studio) -> dict[str, Any]:
    """What `launch` needs for this page."""
    recording = studio.recording
    return {
        "theme": theme(),
        "i18n": i18n(),
        "head": head(recording.value if recording else None),
        "max_threads": 128,
        "state_session_capacity": 100,
        "run_history": False,
        "enable_monitoring": False,
        "ssr_mode": False,
        "footer_links": ["api"],
    }


def _status(studio: Studio) -> str:
    status = studio.status
    return as_line(
        {"state": status.state, "text": status.text, "fraction": status.fraction}
    ).replace("<", "\\u003c")
