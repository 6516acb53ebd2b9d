"""The Learn panel, and the coach that a running lesson docks above all panels.

What lessons say is data (`ui/lessons.py`), fetched by the browser when it is wanted
(`ui/lesson_routes.py`); what they do is in `assets/learn_*.js`. Python gives them the one thing
that a script can't reach: the controls' values.
"""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from .decode import DecodePanel
from .session import Studio

NAMES = (
    "prompt", "plan", "k", "temperature", "rule", "seed", "length", "chat",
    "threshold", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "confidence", "stop", "policy", "verify", "drafttemp",
)  # fmt: skip
"""What lessons and links call the controls, in the order of `DecodePanel.settings`."""

_COACH = '<div class="ss-coach-host"></div>'
_LEARN = '<div class="ss-learn-host"></div>'


def build_coach() -> gr.HTML:
    """The coach's place, empty until a lesson begins; built before the panels, above them."""
    return gr.HTML(
        "",
        html_template=_COACH,
        js_on_load="window.SelfSpec.mountCoach(element, props)",
        apply_default_css=False,
        elem_id="coach",
    )


def build_learn(studio: Studio, shared: DecodePanel) -> None:  # noqa: ARG001  (as all panels)
    """Build the panel inside the current Blocks."""
    with gr.Column(elem_classes=["ss-card", "ss-learn-card"]):
        gr.HTML(
            html_template=_LEARN,
            js_on_load="window.SelfSpec.mountLearn(element)",
            apply_default_css=False,
            elem_id="learn",
        )


def connect_coach(coach: gr.HTML, shared: DecodePanel) -> None:
    """Let lessons read and set the controls; no server takes part in it."""
    values = [control.value for control in shared.settings]
    coach.value = json.dumps({"names": NAMES, "defaults": values}).replace("<", "\\u003c")
    settings = gr.Button("", visible="hidden", elem_id="lesson-settings")
    again: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    settings.click(
        None,
        shared.settings,
        shared.settings,
        js="(...v) => window.SelfSpec.lessonSettings(...v)",
        **again,
    )
