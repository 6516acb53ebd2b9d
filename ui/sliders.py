"""Sliders whose numbers the server judges by itself."""

from __future__ import annotations

from typing import Any

import gradio as gr


def free_slider(*arguments: Any, **options: Any) -> gr.Slider:
    """A `gr.Slider` that passes on any number as it was sent.

    Gradio's own refuses what is beyond its ends, in English, and as often as it is typed: whoever
    writes 12 over 4 has a number in between that nobody meant. What is asked for is judged where
    it is used (`ui/settings.py`, `Asked`, `compare_choice.py`), in the page's language.
    """
    slider = gr.Slider(*arguments, **options)
    slider.preprocess = lambda payload: payload  # type: ignore[method-assign]
    return slider
