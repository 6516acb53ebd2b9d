"""The cards of what changes while a text is written: a plan by length, and how many to guess."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from . import tune_plans
from .tune_feed import TuneError, rounded, text_of
from .tune_wiring import AT_ONCE, Ground, Job, asked_of, stop_card, use_on, view, work
from .words import t


def build_schedule(ground: Ground) -> None:
    """The editor of a length schedule."""
    view("schedule-head")
    below = gr.Textbox(
        "30%",
        label=t("tune.schedule.below"),
        info=t("tune.schedule.below_info"),
        max_lines=1,
        elem_id="tune-below",
    )
    boundary = gr.Number(
        128,
        precision=0,
        minimum=1,
        label=t("tune.schedule.boundary"),
        info=t("tune.schedule.boundary_info"),
        elem_id="tune-boundary",
    )
    above = gr.Textbox(
        "50%",
        label=t("tune.schedule.above"),
        info=t("tune.schedule.above_info"),
        max_lines=1,
        elem_id="tune-above",
    )
    make = gr.Button(t("tune.schedule.go"), elem_id="tune-schedule-go")
    shown = view("schedule", "use", "fill")

    def schedule(below: Any, boundary: Any, above: Any) -> str:
        run = ground.studio.next_run()
        try:
            made = tune_plans.schedule(below, boundary, above, ground.studio.n_layers)
        except TuneError as error:
            return text_of({"run": run, "state": "error", "error": error.said()})
        steps = [
            {"from": start, "plan": str(plan), "share": rounded(plan.share)}
            for start, plan in made.steps
        ]
        return text_of({"run": run, "state": "done", "plan": str(made), "steps": steps})

    def fill(event: gr.EventData, plan: Any) -> list[Any]:
        """The plan in Decode (of a schedule, its first) as one half."""
        try:
            text = str(tune_plans.single(plan, ground.studio.n_layers)[0])
        except TuneError:
            return [gr.skip(), gr.skip()]
        return [text, gr.skip()] if event.half == "below" else [gr.skip(), text]

    fields = [below, boundary, above]
    for event in (make.click, below.submit, boundary.submit, above.submit):
        event(schedule, fields, [shown], queue=False, **AT_ONCE)
    shown.fill(fill, [ground.shared.plan], [below, above], queue=False, **AT_ONCE)
    use_on(ground, shown)


def build_policies(ground: Ground) -> None:
    """The draft policies, explained, and measured with the plan in Decode."""
    shown = view("policies", "halt", "measure")

    async def measure(request: gr.Request, *values: Any) -> AsyncIterator[str]:
        def make() -> Job:
            asked = asked_of(values)
            return lambda cancelled: ground.jobs.policies(asked, asked.settings.plan, cancelled)

        async for value in work(ground, "policies", request, make):
            yield value

    shown.measure(measure, ground.inputs, [shown], **AT_ONCE)
    shown.halt(stop_card(ground, "policies"), None, None, queue=False, **AT_ONCE)
