"""Makes a new visitor cheap: Gradio writes down every component's settings for each session."""

from __future__ import annotations

import inspect

import gradio as gr


def keep_signatures(demo: gr.Blocks) -> None:
    """Have Python keep the signatures of the page's components.

    Gradio asks for each component's anew, for each visitor, on the thread that also tells
    everybody what is new: half of the time that a room full of people needs to come in.
    """
    for kind in {type(block) for block in demo.blocks.values()}:
        kind.__init__.__signature__ = inspect.signature(kind.__init__)  # type: ignore[misc]
