"""The settings that most people leave alone: length, seed, rule, chat template, sampling."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from .settings import MAX_NEW_TOKENS

RULES = [
    ("coupled: same text as without drafts", "coupled"),
    ("rejection: same odds as without drafts", "rejection"),
    ("threshold (lossy)", "threshold"),
    ("typical (lossy)", "typical"),
]

# (label, lowest, highest, first value, step, help), in the order of `Settings`.
_SLIDERS: tuple[tuple[str, float, float, float, float, str], ...] = (
    ("Threshold", 0, 1, 0.7, 0.05, "Of the rule “threshold”: how likely a guess must be."),
    ("Top-k", 0, 200, 0, 1, "Keep only the k likeliest words; 0 keeps all."),
    ("Top-p", 0.05, 1, 1, 0.05, "Keep the likeliest words that reach this share; 1 keeps all."),
    ("Min-p", 0, 0.95, 0, 0.05, "Drop words below this share of the likeliest; 0 drops none."),
    ("Repetition penalty", 0.5, 2, 1, 0.05, "Above 1, words already used become less likely."),
    ("Presence penalty", -2, 2, 0, 0.1, "Above 0, words already written become less likely."),
    ("Confidence", 0, 1, 0, 0.05, "Stop guessing after a guess less likely than this; 0: never."),
)


@dataclass(frozen=True)
class MoreSettings:
    """The controls; `sliders` and `stop` in the order of `Settings`."""

    rule: gr.Dropdown
    seed: gr.Number
    length: gr.Slider
    chat: gr.Checkbox
    sliders: list[gr.Slider]
    stop: gr.Textbox


def build_more_settings() -> MoreSettings:
    """Build the controls inside the current Blocks."""
    length = gr.Slider(
        1,
        512,
        96,
        step=1,
        label="Length",
        info=f"Most tokens to write (an API call may ask for up to {MAX_NEW_TOKENS}).",
        elem_id="length",
    )
    seed = gr.Number(
        0, precision=0, label="Seed", info="The same seed gives the same text.", elem_id="seed"
    )
    rule = gr.Dropdown(
        RULES,
        value="coupled",
        label="How guesses are judged",
        info="Lossy rules keep more guesses, but may change the text.",
        elem_id="rule",
    )
    with gr.Accordion("More settings", open=False):
        chat = gr.Checkbox(
            True,
            label="Chat template",
            info="Ask as in a chat. Off: the model just continues your text.",
            elem_id="chat",
        )
        sliders = [
            gr.Slider(low, high, value, step=step, label=label, info=info)
            for label, low, high, value, step, info in _SLIDERS
        ]
        stop = gr.Textbox(
            "",
            label="Stop texts",
            info="The text ends when one of these lines was written.",
            lines=1,
            max_lines=4,
        )
    return MoreSettings(rule, seed, length, chat, sliders, stop)
