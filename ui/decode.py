"""The Decode panel: prompt, controls, and the stage on which a run shows what it drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from selfspec_core.plan import PRESETS, parse_plan

from . import plan_view
from .decode_events import AT_ONCE, connect, fit_plan
from .examples import EXAMPLES
from .more_settings import MoreSettings, build_more_settings
from .plan_view import BY_LENGTH
from .session import Studio
from .sliders import free_slider
from .words import t

_STAGE = '<div class="ss-stage-host"></div>'
_LAYERS = '<section class="ss-layers"></section>'
_MOUNT_LAYERS = """window.SelfSpec.mountLayers(
  element, props, watch, trigger, {toggle: 'toggle', accept: 'accept'})"""


@dataclass(frozen=True)
class DecodePanel:
    """The panel's parts that others connect to.

    Args:
        settings: all controls of a run, in the order of `Settings`' fields.
        link: the controls that a link carries, in the order that `assets/links.js` knows.
        plan: the plan's text, the one place where the plan is kept; whoever writes to it changes
            the plan, and strip, skip ratio and preset follow by its `change`.
        fit: the arguments of a listener that fits these to the model which is loaded now.
        again: what `event(**again)` takes to run again with the present settings, where the
            person wants that and something has changed.
    """

    settings: list[gr.components.Component]
    link: list[gr.components.Component]
    plan: gr.Textbox
    fit: dict[str, Any]
    again: dict[str, Any]


@dataclass(frozen=True)
class Controls:
    """Everything of the panel that listens or is written to."""

    prompt: gr.Textbox
    examples: dict[str, gr.Button]
    start: gr.Button
    stop: gr.Button
    auto: gr.Checkbox
    preset: gr.Radio
    ratio: gr.Slider
    boundary: gr.Number
    k: gr.Slider
    temperature: gr.Slider
    more: MoreSettings
    stage: gr.HTML
    layers: gr.HTML
    plan: gr.Textbox
    undo: gr.Button
    redo: gr.Button
    share: gr.Button

    @property
    def settings(self) -> list[gr.components.Component]:
        """In the order of `Settings`' fields."""
        more = self.more
        first = [self.prompt, self.plan, self.k, self.temperature]
        more_of_them = [more.rule, more.seed, more.length, more.chat, *more.sliders, more.stop]
        return [*first, *more_of_them, more.policy, more.verify_from, more.draft_temperature]

    @property
    def link(self) -> list[gr.components.Component]:
        """What a link carries, in the order that `assets/links.js` knows: all of it."""
        return self.settings


def build_decode(studio: Studio) -> DecodePanel:
    """Build the panel inside the current Blocks."""
    controls = _build(studio)
    again = connect(studio, controls)
    return DecodePanel(
        settings=controls.settings,
        link=controls.link,
        plan=controls.plan,
        fit={
            "fn": lambda strip, text, preset: fit_plan(strip, text, preset, studio.n_layers),
            "inputs": [controls.layers, controls.plan, controls.preset],
            "outputs": [controls.layers, controls.ratio],
            "queue": False,
            **AT_ONCE,
        },
        again=again,
    )


def _build(studio: Studio) -> Controls:
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="ss-columns", equal_height=False):
        with gr.Column(scale=4, min_width=330):
            with gr.Column(elem_classes=["ss-card", "ss-ask"]):
                parts |= _ask(studio)
            with gr.Column(elem_classes=["ss-card", "ss-how"]):
                parts |= _how(studio)
            with gr.Column(elem_classes=["ss-card", "ss-more"]):
                parts["more"] = build_more_settings(studio.limits)
        with gr.Column(scale=8, min_width=330):
            with gr.Column(elem_classes=["ss-card", "ss-show"]):
                parts["stage"] = gr.HTML(
                    html_template=_STAGE,
                    js_on_load="window.SelfSpec.mountStage(element, props, watch)",
                    apply_default_css=False,
                    elem_id="stage",
                )
            with gr.Column(elem_classes=["ss-card", "ss-plan"]):
                parts |= _plan(studio)
    return Controls(**parts)


def _ask(studio: Studio) -> dict[str, Any]:
    """What to write, and the button."""
    recording = studio.recording
    prompt = gr.Textbox(
        recording.prompt if recording else EXAMPLES["parcel"],
        label=t("decode.prompt"),
        lines=3,
        max_lines=8,
        elem_id="prompt",
    )
    gr.HTML(t("decode.examples"), elem_classes="ss-hint")
    with gr.Row(elem_id="examples", elem_classes="ss-chips"):
        examples = {
            text: gr.Button(t(f"decode.example.{name}"), size="sm", min_width=10)
            for name, text in EXAMPLES.items()
        }
    with gr.Row(elem_classes="ss-go"):
        start = gr.Button(t("decode.run"), variant="primary", elem_id="run", min_width=110)
        stop = gr.Button(t("decode.stop"), elem_id="stop", min_width=80)
    gr.HTML(t("decode.keys"), elem_classes="ss-hint")
    auto = gr.Checkbox(True, label=t("decode.auto"), info=t("decode.auto_info"), elem_id="auto")
    return {"prompt": prompt, "examples": examples, "start": start, "stop": stop, "auto": auto}


def _how(studio: Studio) -> dict[str, Any]:
    """How much the draft leaves out, how far it guesses, how varied the text is."""
    plan = parse_plan(_first_plan(studio), studio.n_layers)
    presets = [
        (t(f"decode.preset.{name}") + (f" {share:.0%}" if share else ""), name)
        for name, share in PRESETS.items()
    ]
    return {
        "preset": gr.Radio(
            [*presets, (t("decode.preset.by_length"), BY_LENGTH)],
            value=plan_view.preset_of(plan),
            label=t("decode.preset"),
            info=t("decode.preset_info"),
            elem_id="preset",
        ),
        "ratio": gr.Slider(
            0,
            plan_view.largest_percent(studio.n_layers),
            plan_view.percent_of(plan),
            step=1,
            label=t("decode.ratio"),
            info=t("decode.ratio_info"),
            elem_id="ratio",
        ),
        "boundary": gr.Number(
            128,
            precision=0,
            minimum=1,
            visible=False,
            label=t("decode.boundary"),
            info=t("decode.boundary_info"),
            elem_id="boundary",
        ),
        "k": free_slider(
            1,
            max(2, studio.limits.max_k),  # a slider has two ends
            min(studio.recording.start.k if studio.recording else 2, studio.limits.max_k),
            step=1,
            label=t("decode.k"),
            info=t("decode.k_info"),
            elem_id="k",
        ),
        "temperature": free_slider(
            0,
            2,
            0,
            step=0.05,
            label=t("decode.temperature"),
            info=t("decode.temperature_info"),
            elem_id="temperature",
        ),
    }


def _plan(studio: Studio) -> dict[str, Any]:
    """The strip of layers, and the plan as text."""
    first = _first_plan(studio)
    layers = gr.HTML(
        plan_view.to_strip(parse_plan(first, studio.n_layers)),
        html_template=_LAYERS,
        js_on_load=_MOUNT_LAYERS,
        apply_default_css=False,
        elem_id="layers",
    )
    plan = gr.Textbox(
        first,
        label=t("decode.plan"),
        info=t("decode.plan_info"),
        max_lines=1,
        elem_id="plan",
    )
    with gr.Row(elem_classes="ss-plan-buttons"):
        undo = gr.Button(t("decode.undo"), elem_id="undo", size="sm", min_width=90)
        redo = gr.Button(t("decode.redo"), elem_id="redo", size="sm", min_width=90)
        share = gr.Button(t("decode.share"), elem_id="share", size="sm", min_width=120)
    return {"layers": layers, "plan": plan, "undo": undo, "redo": redo, "share": share}


def _first_plan(studio: Studio) -> str:
    """The recorded run's plan, where it is known to fit; else one that fits any model."""
    recording = studio.recording
    if recording is not None and recording.n_layers == studio.n_layers:
        return recording.start.plan
    return "standard"
