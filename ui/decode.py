"""The Decode panel: prompt, controls, and the stage on which a run shows what it drafted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from selfspec_core.plan import PRESETS

from . import plan_view
from .examples import EXAMPLES
from .more_settings import build_more_settings
from .plan_view import BY_LENGTH
from .run import run
from .session import Studio
from .settings import Settings

_STAGE = '<div class="ss-stage-host"></div>'
_LAYERS = '<section class="ss-layers" aria-label="The model\'s layers"></section>'
_MOUNT_LAYERS = "window.SelfSpec.mountLayers(element, props, watch, trigger, 'toggle')"
_ABOUT_LAYERS = (
    "<h2>Layers of the draft</h2><p class='ss-lead'>Each layer adds two things to what the model "
    "knows of a word: attention (A) looks at the other words, the MLP (M) thinks. Click one to "
    "skip it in the draft; the check always uses them all.</p>"
)
_KEYS = (
    '<p class="ss-hint ss-keys"><kbd>Enter</kbd> runs · <kbd>Shift</kbd> <kbd>Enter</kbd> new line '
    "· <kbd>Esc</kbd> stops</p>"
)
# A listener of this kind never queues behind another one, nor waits for its own last call.
_AT_ONCE: dict[str, Any] = {
    "trigger_mode": "multiple",
    "concurrency_limit": None,
    "show_progress": "hidden",
    "api_visibility": "private",
}


@dataclass(frozen=True)
class DecodePanel:
    """The panel's parts that others connect to.

    Args:
        settings: all controls of a run, in the order of `Settings`' fields.
        link: the controls that a link carries, in the order that `assets/page.js` knows.
        plan: the plan's text, the one place where the plan is kept.
        shown: what follows from the plan: strip, skip ratio, preset, boundary.
        show_plan: (plan text) → values of `shown`.
        model_bound: controls whose limits depend on the model, and
        fit_model: () → their updates.
    """

    settings: list[gr.components.Component]
    link: list[gr.components.Component]
    plan: gr.Textbox
    shown: list[gr.components.Component]
    show_plan: Callable[[str], list[Any]]
    model_bound: list[gr.components.Component]
    fit_model: Callable[[], list[Any]]


def build_decode(studio: Studio) -> DecodePanel:
    """Build the panel inside the current Blocks."""
    recording = studio.recording
    first_plan = recording.start.plan if recording else "standard"
    with gr.Row(elem_classes="ss-columns", equal_height=False):
        with gr.Column(scale=4, min_width=330):
            with gr.Column(elem_classes=["ss-card", "ss-ask"]):
                prompt = gr.Textbox(
                    recording.prompt if recording else EXAMPLES[0][1],
                    label="What should the model write about?",
                    lines=3,
                    max_lines=8,
                    elem_id="prompt",
                )
                examples = gr.Dataset(
                    components=[gr.Textbox(visible=False)],
                    samples=[[text] for _, text in EXAMPLES],
                    sample_labels=[name for name, _ in EXAMPLES],
                    label="Or start from one of these",
                    elem_id="examples",
                )
                with gr.Row():
                    start = gr.Button("Run", variant="primary", elem_id="run", min_width=110)
                    stop = gr.Button("Stop", elem_id="stop", min_width=80)
                gr.HTML(_KEYS)
                auto = gr.Checkbox(
                    True,
                    label="Re-run on change",
                    info="Move a control, let go, and the same prompt and seed run again.",
                    elem_id="auto",
                )
            with gr.Column(elem_classes=["ss-card", "ss-how"]):
                preset = gr.Radio(
                    [
                        *(
                            (f"{name} {share:.0%}" if share else name, name)
                            for name, share in PRESETS.items()
                        ),
                        BY_LENGTH,
                    ],
                    value=None,
                    label="How much the draft leaves out",
                    info="The draft is the same model, parts of it skipped: less work, more slips.",
                    elem_id="preset",
                )
                ratio = gr.Slider(
                    0,
                    80,
                    30,
                    step=1,
                    label="Skip ratio, %",
                    info="Share of the model's parts that the draft skips, middle layers first.",
                    elem_id="ratio",
                )
                boundary = gr.Number(
                    128,
                    precision=0,
                    minimum=1,
                    visible=False,
                    label="Skip more from this many tokens on",
                    info="Length schedule: 30% below, 50% from there on.",
                    elem_id="boundary",
                )
                k = gr.Slider(
                    1,
                    16,
                    recording.start.k if recording else 2,
                    step=1,
                    label="Draft length k",
                    info="Tokens guessed before the whole model checks them all in one pass.",
                    elem_id="k",
                )
                temperature = gr.Slider(
                    0,
                    2,
                    0,
                    step=0.05,
                    label="Temperature",
                    info="0 always takes the likeliest word; higher is more varied.",
                    elem_id="temperature",
                )
            with gr.Column(elem_classes="ss-card"):
                more = build_more_settings()
        with gr.Column(scale=8, min_width=330):
            with gr.Column(elem_classes=["ss-card", "ss-show"]):
                stage = gr.HTML(
                    html_template=_STAGE,
                    js_on_load="window.SelfSpec.mountStage(element, props, watch)",
                    apply_default_css=False,
                    elem_id="stage",
                )
            with gr.Column(elem_classes="ss-card"):
                gr.HTML(_ABOUT_LAYERS)
                layers = gr.HTML(
                    plan_view.to_strip(plan_view.parse_plan(first_plan, studio.n_layers)),
                    html_template=_LAYERS,
                    js_on_load=_MOUNT_LAYERS,
                    apply_default_css=False,
                    elem_id="layers",
                )
                plan = gr.Textbox(
                    first_plan,
                    label="The skip plan as text",
                    info="6-9 skips both parts of layers 6 to 9, a3-12 attention only, "
                    "m5 MLP only; also 30%, or by length: 30%;128:50%",
                    max_lines=1,
                    elem_id="plan",
                )
                share = gr.Button("Copy link", elem_id="share", size="sm", min_width=120)

    settings = [prompt, plan, k, temperature, more.rule, more.seed, more.length, more.chat]
    settings += [*more.sliders, more.stop]
    shown = [layers, ratio, preset, boundary]
    panel = DecodePanel(
        settings=settings,
        link=settings[:8],
        plan=plan,
        shown=shown,
        show_plan=lambda text: _show_plan(text, studio.n_layers),
        model_bound=[ratio],
        fit_model=lambda: [
            gr.update(maximum=max(1, min(80, int(100 * plan_view.largest_ratio(studio.n_layers)))))
        ],
    )
    _connect(studio, panel, settings, stage, start, stop, auto, examples)
    share.click(
        None,
        settings[:8],
        None,
        js="(...v) => { window.SelfSpec.share(...v); return []; }",
        api_visibility="private",
    )
    return panel


def _connect(
    studio: Studio,
    panel: DecodePanel,
    settings: list[gr.components.Component],
    stage: gr.HTML,
    start: gr.Button,
    stop: gr.Button,
    auto: gr.Checkbox,
    examples: gr.Dataset,
) -> None:
    """What happens when a control is let go."""
    prompt, plan, k, temperature, rule, seed, length, chat, *rest = settings
    layers, ratio, preset, boundary = panel.shown

    async def run_now(request: gr.Request, *values: Any) -> AsyncIterator[str]:
        async for value in run(studio, _settings(values), owner=request.session_hash):
            yield value

    async def run_again(request: gr.Request, wanted: bool, *values: Any) -> AsyncIterator[Any]:
        if not wanted:
            yield gr.skip()
            return
        async for value in run(studio, _settings(values), owner=request.session_hash):
            yield value

    def from_ratio(percent: float) -> list[Any]:
        made = plan_view.from_percent(percent, studio.n_layers)
        return [str(made), *_shown(made, keep_ratio=True)]

    def from_preset(name: str, at: Any) -> list[Any]:
        try:
            made = plan_view.from_preset(name, at, studio.n_layers)
        except plan_view.PlanError as error:
            return [gr.skip(), _with_error("none", str(error), studio.n_layers), *[gr.skip()] * 3]
        return [str(made), *_shown(made, named=name)]

    def from_strip(value: str, text: str) -> list[Any]:
        try:
            made = plan_view.from_strip(value, studio.n_layers)
        except plan_view.PlanError as error:
            return [gr.skip(), _with_error(text, str(error), studio.n_layers), *[gr.skip()] * 3]
        # The strip has drawn this already, and perhaps the next click too: leave it alone.
        return [str(made), gr.skip(), *_shown(made)[1:]]

    def stop_mine(request: gr.Request) -> None:
        if request.session_hash:
            studio.scheduler.cancel(request.session_hash)

    again: dict[str, Any] = {
        "fn": run_again,
        "js": "(...v) => window.SelfSpec.runningAgain(...v)",
        "inputs": [auto, *settings],
        "outputs": [stage],
        **_AT_ONCE,
    }
    planned: dict[str, Any] = {"outputs": [plan, *panel.shown], "queue": False, **_AT_ONCE}
    start.click(
        run_now, settings, [stage], js="(...v) => window.SelfSpec.running(...v)", **_AT_ONCE
    )
    stop.click(stop_mine, None, None, queue=False, **_AT_ONCE)
    for slider in (k, temperature, length, *[item for item in rest if isinstance(item, gr.Slider)]):
        slider.release(**again)
    for field in (seed, rest[-1]):
        field.submit(**again)
        field.blur(**again)
    rule.input(**again)
    chat.input(**again)
    ratio.release(from_ratio, [ratio], **planned).then(**again)
    preset.input(from_preset, [preset, boundary], **planned).then(**again)
    boundary.submit(from_preset, [preset, boundary], **planned).then(**again)
    layers.toggle(from_strip, [layers, plan], **planned).then(**again)
    plan.submit(panel.show_plan, [plan], panel.shown, queue=False, **_AT_ONCE).then(**again)
    examples.click(lambda sample: sample[0], [examples], [prompt], queue=False, **_AT_ONCE).then(
        **again
    )


def _settings(values: tuple[Any, ...]) -> Settings:
    names = (
        "prompt", "plan", "k", "temperature", "rule", "seed", "max_new_tokens", "chat",
        "threshold", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
        "confidence", "stop",
    )  # fmt: skip
    return Settings(**dict(zip(names, values, strict=True)))


def _shown(plan: Any, *, named: str = "", keep_ratio: bool = False) -> list[Any]:
    """Values of strip, ratio, preset and boundary for a plan."""
    name = plan_view.preset_of(plan, named)
    at = plan.steps[1][0] if name == BY_LENGTH and len(plan.steps) > 1 else None
    return [
        plan_view.to_strip(plan),
        gr.skip() if keep_ratio else plan_view.percent_of(plan),
        name,
        gr.update(visible=name == BY_LENGTH, **({"value": at} if at else {})),
    ]


def _show_plan(text: str, n_layers: int) -> list[Any]:
    """The same for a plan as text; a plan that can't be read leaves all as it was."""
    try:
        return _shown(plan_view.parse_plan(text, n_layers), named=text.strip().lower())
    except plan_view.PlanError as error:
        return [_with_error("none", str(error), n_layers), *[gr.skip()] * 3]


def _with_error(text: str, error: str, n_layers: int) -> str:
    """The strip of a plan with a sentence under it."""
    try:
        plan = plan_view.parse_plan(text, n_layers)
    except plan_view.PlanError:
        plan = plan_view.parse_plan("none", n_layers)
    return plan_view.to_strip(plan, error)
