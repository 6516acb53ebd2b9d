"""The page: header, panels as tabs, and what happens when it is opened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from .api import add_endpoints
from .compare_panel import build_compare
from .decode import build_decode
from .decode_events import AT_ONCE
from .errors import said
from .feed import as_line
from .front import Front
from .layers_panel import build_layers
from .learn_panel import build_coach, build_learn, connect_coach
from .lesson_routes import lesson_routes
from .metrics import routes
from .model_picker import build_model_picker, from_this_computer
from .session import Studio
from .signatures import keep_signatures
from .status import execution
from .theme import markup, theme
from .tune_panel import build_tune
from .words import i18n, t, text

TITLE = "SelfSpec Studio"
_POLL_SECONDS = 0.25
_QUEUE_SECONDS, _PROGRESS_SECONDS = 0.01, 0.1
"""How often Gradio looks for new events, and for progress, which nobody reports. Its own thousand
and hundred times a second cost the engine 6% of a core, also while nothing happens."""
_PANELS = {
    "layers": build_layers,
    "tune": build_tune,
    "compare": build_compare,
    "learn": build_learn,
}
_HEADER = """<header class="ss-header">
<h1 class="ss-brand" translate="no"><svg viewBox="0 0 34 34" aria-hidden="true">
<rect class="ss-mark-kept" x="3" y="3" width="28" height="6" rx="3"/>
<rect class="ss-mark-skipped" x="4" y="14" width="26" height="6" rx="3"/>
<rect class="ss-mark-kept" x="3" y="25" width="28" height="6" rx="3"/></svg>SelfSpec
<span>Studio</span></h1>
<div class="ss-header-tools"></div>
<p class="ss-tagline"></p>
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
        add_endpoints(studio)  # before the panels, whose listeners may have the same names
        picker = build_model_picker(studio) if studio.switchable else None
        coach = build_coach()
        with gr.Tabs(elem_id="panels"):
            # Rendered though another panel may be open: the plan and the prompt are kept here.
            with gr.Tab(t("common.tab.decode"), id="decode", render_children=True) as decode_tab:
                panel = build_decode(studio)
            for name, build_panel in _PANELS.items():
                with gr.Tab(t(f"common.tab.{name}"), id=name):
                    build_panel(studio, panel)
        connect_coach(coach, panel)
        # The browser presses it when a run was made by another model than the page shows.
        refit = gr.Button("", visible="hidden", elem_id="refit")

        async def follow() -> AsyncIterator[str]:
            """Say how far the model is until it is there, and compiled."""
            told = None
            while studio.status.state == "loading" or (studio.engine and studio.engine.building):
                if (status := _status(studio)) != told:
                    told = status
                    yield status
                await asyncio.sleep(_POLL_SECONDS)
            yield _status(studio)

        async def switch(request: gr.Request, name: str) -> AsyncIterator[str]:
            """Load another model, then as `follow`."""
            try:
                if studio.allowed is None and not from_this_computer(request):
                    raise ValueError(text("errors.not_switchable"))
                studio.switch(name)
            except ValueError as error:
                yield _status(studio, failure=said(error))
                return
            async for status in follow():
                yield status

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        opened = demo.load(None, panel.link, panel.link, js=_reading_link(panel.link), **quiet)
        followed: dict[str, Any] = {"outputs": [header], **AT_ONCE}
        opened.then(follow, None, **followed).then(**panel.fit)
        refit.click(follow, None, **followed).then(**panel.fit)
        decode_tab.select(**panel.again | {"js": "(...v) => window.SelfSpec.runningOnReturn(...v)"})
        if picker is not None:
            for listen in picker.listeners:
                listen(switch, [picker.name], **followed).then(**panel.fit)
    keep_signatures(demo)
    demo._queue.sleep_when_free = _QUEUE_SECONDS
    demo._queue.progress_update_sleep_when_free = _PROGRESS_SECONDS
    return demo


def launch_options(studio: Studio) -> dict[str, Any]:
    """What `launch` needs for this page."""
    recording = studio.recording
    front = Middleware(
        Front,
        markup=markup(_HEADER, recording.value if recording else None),
        opening=studio.opening.begins,
    )
    return {
        "theme": theme(),
        "i18n": i18n(),
        "max_threads": 128,
        "state_session_capacity": 100,
        "mcp_server": True,
        "app_kwargs": {
            "routes": [*routes(studio), *lesson_routes()],
            "middleware": [front],
        },
        "run_history": False,
        "enable_monitoring": False,
        "ssr_mode": False,
        "footer_links": ["api"],
    }


def _reading_link(controls: list[gr.components.Component]) -> str:
    """The script that sets the controls to what a link says, within what sliders here can hold."""
    sliders = [[c.minimum, c.maximum] if isinstance(c, gr.Slider) else None for c in controls]
    bounds = json.dumps(sliders)
    return f"(...v) => (window.SelfSpec.linkBounds = {bounds}, window.SelfSpec.readLink(...v))"


def _status(studio: Studio, *, failure: dict[str, Any] | None = None) -> str:
    status = studio.status
    return as_line(
        {
            "state": status.state,
            "said": status.said,
            "fraction": status.fraction,
            "failure": failure or status.failure,
            "execution": execution(studio.engine) if studio.engine else None,
            "compiling": studio.engine is not None and studio.engine.building,
            "model": studio.model_name,
            "layers": studio.n_layers,
            "switchable": studio.switchable,
        }
    ).replace("<", "\\u003c")
