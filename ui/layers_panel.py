"""The Layers panel."""

from __future__ import annotations

import gradio as gr

from .decode import DecodePanel
from .session import Studio


def build_layers(studio: Studio, shared: DecodePanel) -> None:  # noqa: ARG001
    """Build the panel inside the current Blocks."""
    gr.HTML("<h2>Layers</h2>")
