"""The card that searches: strategy, budget, what is found on the way, and the front."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from .sliders import free_slider
from .tune_searching import STRATEGIES, Search, search_job
from .tune_subject import SECONDS, whole
from .tune_wiring import AT_ONCE, Ground, Job, asked_of, stop_card, use_on, view, work
from .words import t


def build_search(ground: Ground) -> None:
    """Build the card inside the current Blocks."""
    view("search-head")
    with gr.Row(elem_classes="ss-tune-controls"):
        strategy = gr.Dropdown(
            [(t(f"tune.strategy.{name}"), name) for name in STRATEGIES],
            value="all",
            label=t("tune.search.strategy"),
            info=t("tune.search.strategy_info"),
            elem_id="tune-strategy",
            min_width=220,
        )
        budget = free_slider(
            *SECONDS,
            60,
            step=5,
            label=t("tune.search.budget"),
            info=t("tune.search.budget_info"),
            elem_id="tune-budget",
            min_width=220,
        )
    with gr.Row():
        go = gr.Button(
            t("tune.search.go"), variant="primary", elem_id="tune-search-go", min_width=140
        )
        afresh = gr.Button(t("tune.search.afresh"), elem_id="tune-search-afresh", min_width=140)
    shown = view("search", "use", "halt")

    async def search(
        request: gr.Request, study: Any, strategy: Any, seconds: Any, *values: Any
    ) -> AsyncIterator[str]:
        def make() -> Job:
            asked = asked_of(values)
            wanted = Search(
                study=study,
                strategy=strategy,
                seconds=whole("seconds", seconds, *SECONDS),
                mine=str(asked.settings.plan),
            )
            return lambda cancelled: search_job(ground.jobs, asked, wanted, cancelled)

        async for value in work(ground, "search", request, make):
            yield value

    # The first input is where the browser puts the study's id, which it makes and keeps.
    inputs = [shown, strategy, budget, *ground.inputs]
    js = "(_, ...v) => [window.SelfSpec.tuneStudy({}), ...v]"
    go.click(search, inputs, [shown], js=js.format("false"), **AT_ONCE)
    afresh.click(search, inputs, [shown], js=js.format("true"), **AT_ONCE)
    shown.halt(stop_card(ground, "search"), None, None, queue=False, **AT_ONCE)
    use_on(ground, shown)
