"""The Tune panel."""

from __future__ import annotations

import gradio as gr

from .decode import DecodePanel
from .session import Studio


def build_tune(studio: Studio, shared: DecodePanel) -> None:  # noqa: ARG001
    """Build the panel inside the current Blocks."""
    gr.HTML("<h2>Tune</h2>")
