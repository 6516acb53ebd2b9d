"""The Tune panel: find the layers to skip that pay on this machine, and take them along."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from .decode import DecodePanel
from .session import Studio
from .sliders import free_slider
from .tune_exchange import build_export, build_import
from .tune_jobs import METHODS, MIDDLE, Jobs
from .tune_pace import build_policies, build_schedule
from .tune_search_card import build_search
from .tune_subject import TEXTS, TOKENS, whole
from .tune_wiring import AT_ONCE, Ground, Job, asked_of, stop_card, use_on, view, work
from .words import t

SHARES = (5, 80)
"""Per cent of the branches that a suggestion may skip."""


def build_tune(studio: Studio, shared: DecodePanel) -> None:
    """Build the panel inside the current Blocks."""
    with gr.Column(elem_id="tune", elem_classes="ss-tune-panel"):
        view("intro")
        ground = _build_ground(studio, shared)
        with gr.Row(elem_classes="ss-tune-row", equal_height=False):
            with gr.Column(scale=5, min_width=300, elem_classes="ss-card"):
                _build_suggestion(ground)
            with gr.Column(scale=7, min_width=300, elem_classes="ss-card"):
                _build_curves(ground)
        with gr.Column(elem_classes="ss-card"):
            build_search(ground)
        with gr.Row(elem_classes="ss-tune-row", equal_height=False):
            with gr.Column(scale=5, min_width=300, elem_classes="ss-tune-stack"):
                with gr.Column(elem_classes="ss-card"):
                    build_schedule(ground)
                with gr.Column(elem_classes="ss-card"):
                    build_policies(ground)
            with gr.Column(scale=7, min_width=300, elem_classes="ss-tune-stack"):
                with gr.Column(elem_classes="ss-card"):
                    build_export(ground)
                with gr.Column(elem_classes="ss-card"):
                    build_import(ground)


def _build_ground(studio: Studio, shared: DecodePanel) -> Ground:
    """What everything is measured on, folded away: the defaults are good."""
    with gr.Accordion(t("tune.ground.title"), open=False, elem_classes="ss-card ss-tune-ground"):
        with gr.Row():
            texts = free_slider(
                *TEXTS,
                6,
                step=1,
                label=t("tune.ground.texts"),
                info=t("tune.ground.texts_info"),
                elem_id="tune-texts",
                min_width=200,
            )
            tokens = free_slider(
                *TOKENS,
                48,
                step=8,
                label=t("tune.ground.tokens"),
                info=t("tune.ground.tokens_info"),
                elem_id="tune-tokens",
                min_width=200,
            )
            own = gr.Checkbox(
                False,
                label=t("tune.ground.own"),
                info=t("tune.ground.own_info"),
                elem_id="tune-own",
                min_width=200,
            )
        again = gr.Button(t("tune.ground.again"), size="sm", elem_id="tune-again", min_width=160)
    method = gr.Dropdown(
        [(t(f"tune.method.{name}"), name) for name in METHODS],
        value=MIDDLE,
        label=t("tune.suggest.method"),
        info=t("tune.suggest.method_info"),
        elem_id="tune-method",
        render=False,
    )
    jobs = Jobs(studio)

    def forget() -> None:
        jobs.subjects.forget_costs()

    again.click(forget, None, None, queue=False, **AT_ONCE).then(
        None, None, None, js="() => { window.SelfSpec.tuneCosts(null); return []; }", **AT_ONCE
    )
    return Ground(studio, jobs, shared, [texts, tokens, own], method)


def _build_suggestion(ground: Ground) -> None:
    view("suggest-head")
    ground.method.render()
    percent = free_slider(
        *SHARES,
        30,
        step=1,
        label=t("tune.suggest.share"),
        info=t("tune.suggest.share_info"),
        elem_id="tune-share",
    )
    go = gr.Button(t("tune.suggest.go"), variant="primary", elem_id="tune-suggest-go")
    shown = view("suggest", "use", "halt")

    async def suggest(
        request: gr.Request, method: Any, share: Any, *values: Any
    ) -> AsyncIterator[Any]:
        def make() -> Job:
            asked, wanted = asked_of(values), whole("share", share, *SHARES) / 100
            return lambda cancelled: ground.jobs.suggest(asked, method, wanted, cancelled)

        async for value in work(ground, "suggest", request, make):
            yield value

    async def again(request: gr.Request, before: Any, *values: Any) -> AsyncIterator[Any]:
        """Moving a control changes a suggestion that is there; it makes no first one."""
        if not before:
            yield gr.skip()
            return
        async for value in suggest(request, *values):
            yield value

    inputs = [ground.method, percent, *ground.inputs]
    go.click(suggest, inputs, [shown], **AT_ONCE)
    percent.release(again, [shown, *inputs], [shown], **AT_ONCE)
    ground.method.input(again, [shown, *inputs], [shown], **AT_ONCE)
    shown.halt(stop_card(ground, "suggest"), None, None, queue=False, **AT_ONCE)
    use_on(ground, shown)


def _build_curves(ground: Ground) -> None:
    view("curves-head")
    with gr.Row():
        predict = gr.Button(
            t("tune.curves.go"), variant="primary", elem_id="tune-curves-go", min_width=140
        )
        measure = gr.Button(t("tune.curves.measure"), elem_id="tune-curves-measure", min_width=140)
    shown = view("curves", "use", "halt")

    def drawing(*, measured: bool) -> Any:
        async def draw(request: gr.Request, method: Any, *values: Any) -> AsyncIterator[str]:
            def make() -> Job:
                asked = asked_of(values)
                return lambda cancelled: ground.jobs.curves(
                    asked, asked.settings.plan, method, measure=measured, cancelled=cancelled
                )

            async for value in work(ground, "curves", request, make):
                yield value

        return draw

    inputs = [ground.method, *ground.inputs]
    predict.click(drawing(measured=False), inputs, [shown], **AT_ONCE)
    measure.click(drawing(measured=True), inputs, [shown], **AT_ONCE)
    shown.halt(stop_card(ground, "curves"), None, None, queue=False, **AT_ONCE)
    use_on(ground, shown)
