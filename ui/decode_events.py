"""What happens in the Decode panel when a control is let go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from selfspec_core.plan import parse_plan

from . import plan_view
from .limits import visitor_of
from .plan_view import BY_LENGTH
from .run import run
from .session import Studio
from .settings import Settings

if TYPE_CHECKING:
    from .decode import Controls

# A listener of this kind never queues behind another one, nor waits for its own last call.
AT_ONCE: dict[str, Any] = {
    "trigger_mode": "multiple",
    "concurrency_limit": None,
    "show_progress": "hidden",
    "api_visibility": "private",
}


def connect(studio: Studio, controls: Controls) -> dict[str, Any]:
    """Connect the panel's parts; returns what a listener takes to run again."""
    settings = controls.settings

    async def run_now(request: gr.Request, *values: Any) -> AsyncIterator[str]:
        settings, visitor = to_settings(values), visitor_of(request)
        async for value in run(studio, settings, owner=request.session_hash, visitor=visitor):
            yield value

    async def run_again(request: gr.Request, wanted: bool, *values: Any) -> AsyncIterator[Any]:
        if not wanted:
            yield gr.skip()
            return
        async for value in run_now(request, *values):
            yield value

    def stop_mine(request: gr.Request) -> None:
        if request.session_hash:
            studio.scheduler.cancel(request.session_hash)

    again: dict[str, Any] = {
        "fn": run_again,
        "js": "(...v) => window.SelfSpec.runningAgain(...v)",
        "inputs": [controls.auto, *settings],
        "outputs": [controls.stage],
        **AT_ONCE,
    }
    controls.start.click(
        run_now,
        settings,
        [controls.stage],
        js="(...v) => window.SelfSpec.runningNow(...v)",
        **AT_ONCE,
    )
    controls.stop.click(stop_mine, None, None, queue=False, **AT_ONCE)
    more = controls.more
    for slider in (controls.k, controls.temperature, more.length, *more.sliders):
        slider.release(**again)
    for field in (more.seed, more.stop, more.draft_temperature):
        field.submit(**again)
        field.blur(**again)
    for choice in (more.rule, more.chat, more.policy, more.verify_from):
        choice.input(**again)
    _connect_plan(studio, controls, again)
    for text, button in controls.examples.items():
        # Set in the browser: the prompt is nobody's business before it is run.
        button.click(None, None, [controls.prompt], js=_giving(text), **AT_ONCE).then(**again)
    controls.share.click(
        None,
        controls.link,
        None,
        js="(...v) => { window.SelfSpec.share(...v); return []; }",
        api_visibility="private",
    )
    return again


def _connect_plan(studio: Studio, controls: Controls, again: dict[str, Any]) -> None:
    """All controls of the plan write its text; all that shows it follows the text.

    Clicks may come faster than answers, which overtake each other as well. So a click on the
    strip writes the text in the browser, and an answer says which text it is for: one for a
    text that has changed since is left alone. What a ratio or a preset makes is known to the
    server only; its answer says which act it is for (in the place of the plan's text), and the
    browser takes it unless the person has done something else since.
    """

    def from_ratio(percent: float, act: str) -> str:
        return plan_view.to_strip(plan_view.from_percent(percent, studio.n_layers), act=act)

    def from_preset(name: str, at: Any, act: str) -> str:
        try:
            made = plan_view.from_preset(name, at, studio.n_layers)
        except plan_view.PlanError as error:
            return plan_view.to_strip_error(error, studio.n_layers, act=act)
        return plan_view.to_strip(made, act=act)

    plan, layers = controls.plan, controls.layers
    planned: dict[str, Any] = {"queue": False, **AT_ONCE}
    asking = planned | {"js": "(...v) => window.SelfSpec.plans.ask(...v.slice(0, -1))"}
    controls.ratio.release(from_ratio, [controls.ratio, plan], [layers], **asking)
    for listen in (controls.preset.input, controls.boundary.submit):
        listen(from_preset, [controls.preset, controls.boundary, plan], [layers], **asking)
    layers.toggle(None, None, [plan], js="() => window.SelfSpec.plans.chosen()", **AT_ONCE)
    layers.accept(
        None,
        None,
        [controls.ratio, controls.preset, controls.boundary],
        js="() => window.SelfSpec.plans.follows()",
        **AT_ONCE,
    )
    for button, step in ((controls.undo, "undo"), (controls.redo, "redo")):
        button.click(None, [plan], [plan], js=f"v => window.SelfSpec.plans.{step}(v)", **AT_ONCE)
    plan.change(
        lambda text, preset: show_plan(text, preset, studio.n_layers),
        [plan, controls.preset],
        [layers],
        **planned,
    ).then(**again | {"js": "(...v) => window.SelfSpec.runningOnPlan(...v)"})
    plan.submit(**again)
    plan.blur(**again)


def show_plan(text: str, preset: str | None, n_layers: int) -> str:
    """The strip's value for a plan's text; a bad plan leaves all but a sentence as it is.

    Args:
        text: the plan as text.
        preset: the preset that is chosen now; on shallow models several make the same plan.
        n_layers: of the model.
    """
    try:
        plan = parse_plan(text, n_layers)
        follows = plan_view.follows(plan, _named(text, preset, n_layers, plan))
    except plan_view.PlanError as error:
        return plan_view.to_strip_error(error, n_layers, asked=text)
    return plan_view.to_strip(plan, asked=text, follows=follows)


def fit_plan(strip: str, text: str, preset: str | None, n_layers: int) -> list[Any]:
    """The same and the skip ratio's end, where the model has changed.

    What a person has chosen while a model was loading is newer than what was asked then, so
    nothing is written that needn't be: a strip that is this model's already stays.

    Args:
        strip: the strip's value.
        text, preset, n_layers: as for `show_plan`.
    """
    fits = plan_view.layers_of(strip) == n_layers
    drawn = gr.skip() if fits else show_plan(text, preset, n_layers)
    return [drawn, gr.update(maximum=plan_view.largest_percent(n_layers))]


def _named(text: str, preset: str | None, n_layers: int, plan: Any) -> str:
    if not preset or preset == BY_LENGTH:
        return text.strip().lower()
    same = plan_view.from_preset(preset, None, n_layers) == plan
    return preset if same else text.strip().lower()


def to_settings(values: tuple[Any, ...]) -> Settings:
    """The controls' values as settings."""
    names = (
        "prompt", "plan", "k", "temperature", "rule", "seed", "max_new_tokens", "chat",
        "threshold", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
        "confidence", "stop", "draft_policy", "verify_from", "draft_temperature",
    )  # fmt: skip
    return Settings(**dict(zip(names, values, strict=True)))


def _giving(text: str) -> str:
    return f"() => {json.dumps(text)}"
