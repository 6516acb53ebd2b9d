"""The settings that most people leave alone: length, seed, rule, chat template, sampling."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from .limits import Limits
from .sliders import free_slider
from .words import t

RULES = ("coupled", "rejection", "threshold", "typical")
POLICIES = ("fixed", "confidence", "adaptive", "auto")
STARTS = ("start", "first_skipped")

# (name, lowest, highest, first value, step), in the order of `Settings`.
_SLIDERS: tuple[tuple[str, float, float, float, float], ...] = (
    ("threshold", 0, 1, 0.7, 0.05),
    ("top_k", 0, 200, 0, 1),
    ("top_p", 0.05, 1, 1, 0.05),
    ("min_p", 0, 0.95, 0, 0.05),
    ("repetition_penalty", 0.5, 2, 1, 0.05),
    ("presence_penalty", -2, 2, 0, 0.1),
    ("confidence", 0, 1, 0, 0.05),
)


@dataclass(frozen=True)
class MoreSettings:
    """The controls; from `sliders` on in the order of `Settings`."""

    rule: gr.Radio
    seed: gr.Number
    length: gr.Slider
    chat: gr.Checkbox
    sliders: list[gr.Slider]
    stop: gr.Textbox
    policy: gr.Radio
    verify_from: gr.Radio
    draft_temperature: gr.Number


def build_more_settings(limits: Limits) -> MoreSettings:
    """Build the controls inside the current Blocks, within what the operator allows."""
    length = free_slider(
        1,
        max(2, min(512, limits.max_new_tokens)),  # a slider has two ends
        min(96, limits.max_new_tokens),
        step=1,
        label=t("decode.length"),
        info=t("decode.length_info"),
        elem_id="length",
    )
    # No precision: it would round 1.5 silently, where the settings say that it isn't whole.
    seed = gr.Number(0, label=t("decode.seed"), info=t("decode.seed_info"), elem_id="seed")
    # A radio, not a dropdown: that one keeps what it shows in the language it was chosen in.
    rule = gr.Radio(
        [(t(f"decode.rule.{name}"), name) for name in RULES],
        value="coupled",
        label=t("decode.rule"),
        info=t("decode.rule_info"),
        elem_id="rule",
    )
    with gr.Accordion(t("decode.more"), open=False, elem_id="more"):
        policy = gr.Radio(
            [(t(f"decode.policy.{name}"), name) for name in POLICIES],
            value="fixed",
            label=t("decode.policy"),
            info=t("decode.policy_info"),
            elem_id="policy",
        )
        verify_from = gr.Radio(
            [(t(f"decode.verify.{name}"), name) for name in STARTS],
            value="start",
            label=t("decode.verify"),
            info=t("decode.verify_info"),
            elem_id="verify-from",
        )
        chat = gr.Checkbox(True, label=t("decode.chat"), info=t("decode.chat_info"), elem_id="chat")
        sliders = [
            free_slider(
                low,
                high,
                value,
                step=step,
                label=t(f"decode.{name}"),
                info=t(f"decode.{name}_info"),
                elem_id=name.replace("_", "-"),
            )
            for name, low, high, value, step in _SLIDERS
        ]
        stop = gr.Textbox(
            "",
            label=t("decode.stop_texts"),
            info=t("decode.stop_texts_info"),
            lines=1,
            max_lines=4,
            elem_id="stop-texts",
        )
        draft_temperature = gr.Number(
            None,
            minimum=0,
            maximum=10,
            step=0.1,
            label=t("decode.draft_temperature"),
            info=t("decode.draft_temperature_info"),
            placeholder=t("decode.draft_temperature_empty"),
            elem_id="draft-temperature",
        )
    return MoreSettings(
        rule, seed, length, chat, sliders, stop, policy, verify_from, draft_temperature
    )
