"""Choosing another model: a card under the header, where the operator allows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from .session import Studio
from .words import t


@dataclass(frozen=True)
class ModelPicker:
    """The choice and what begins the loading."""

    name: gr.components.Component
    listeners: list[Callable[..., Any]]


LOCAL = ("127.0.0.1", "localhost", "::1")
"""Hosts at which only this computer is heard."""


def from_this_computer(request: gr.Request) -> bool:
    """Whether somebody sits at the server itself; not so behind a proxy, which says so."""
    forwarded = {"forwarded", "x-forwarded-for"} & {name.lower() for name in request.headers}
    return not forwarded and request.client is not None and request.client.host in LOCAL


def build_model_picker(studio: Studio) -> ModelPicker:
    """Build the card inside the current Blocks; the header's button shows and hides it."""
    with gr.Column(elem_id="model-picker", elem_classes="ss-card"):
        if studio.allowed is not None:
            name: Any = gr.Radio(
                list(studio.allowed),
                value=studio.model_name if studio.model_name in studio.allowed else None,
                label=t("common.model.pick"),
                info=t("common.model.shared"),
                elem_id="model-name",
            )
        else:
            name = gr.Textbox(
                studio.model_name,
                label=t("common.model.name"),
                info=t("common.model.name_info"),
                max_lines=1,
                elem_id="model-name",
            )
            gr.HTML(t("common.model.shared"), elem_classes="ss-hint")
        load = gr.Button(t("common.model.load"), elem_id="load-model", variant="primary")
    listeners = [load.click]
    if isinstance(name, gr.Textbox):
        listeners.append(name.submit)
    return ModelPicker(name, listeners)
