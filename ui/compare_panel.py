"""The Compare panel: kinds of decoding side by side, measured here, beside what books say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from .compare_choice import EXAMPLES_MOST, LENGTHS, REPEATS, SYSTEMS, THEIRS, Wanted
from .compare_job import Comparisons
from .decode import DecodePanel
from .limits import visitor_of
from .model_picker import from_this_computer
from .session import Studio
from .settings import SettingsError
from .sliders import free_slider
from .tune_feed import TuneFeed, text_of
from .tune_wiring import (
    AT_ONCE,
    failed,
    follow,
    said_of,
    settings_of,
    stop_work,
    submit_to,
)
from .words import t, text

WORK = "compare"
_POLL_SECONDS = 0.25


def build_compare(studio: Studio, shared: DecodePanel) -> None:
    """Build the panel inside the current Blocks."""
    comparisons = Comparisons(studio)
    with gr.Column(elem_id="compare", elem_classes="ss-compare-panel"):
        _view("intro")
        with gr.Column(elem_classes="ss-card"):
            choices = _build_choices(studio)
            ahead = _view("ahead", "ask")
            go = gr.Button(t("compare.go"), variant="primary", elem_id="compare-go", min_width=160)
        with gr.Column(elem_classes="ss-card"):
            shown = _view("table", "halt")

    inputs = [*choices, *shared.settings]

    async def compare(request: gr.Request, *values: Any) -> AsyncIterator[str]:
        try:
            wanted = _wanted(values)
            wanted.check(studio.limits)
            if wanted.draft_model:
                _may_load(studio, request, wanted.draft_model)
            ticket = submit_to(
                studio, WORK, request, lambda c: comparisons.run(wanted, c), heavy=True
            )
        except ValueError as error:
            yield failed(studio, error)
            return
        async for value in follow(studio, ticket, TuneFeed(studio.next_run())):
            yield value

    async def foretell(request: gr.Request, *values: Any) -> AsyncIterator[str]:
        """How long it will take; measures how fast the model is where nobody has yet."""
        run = studio.next_run()
        try:
            wanted = _wanted(values)
            wanted.check(studio.limits)
        except ValueError as error:
            yield text_of({"run": run, "state": "error", "error": said_of(error)})
            return
        value = {
            "run": run,
            "plan": str(wanted.settings.plan),
            "k": wanted.settings.k,
            "systems": len(wanted.systems) + 1,
            "tokens": sum(wanted.work().values()),
            "most": studio.limits.analysis_seconds,
        }
        while studio.status.state == "loading" and studio.engine is None:
            yield text_of({**value, "state": "loading"})
            await asyncio.sleep(_POLL_SECONDS)
        if studio.engine is None:
            yield text_of({**value, "state": "error", "error": studio.status.said})
            return
        if wanted.seconds(comparisons.rates()) is None:
            yield text_of({**value, "state": "measuring"})
            ticket = studio.scheduler.submit(
                lambda _: comparisons.pace(), person=visitor_of(request), background=True
            )
            try:
                async for _ in ticket.batches(1.0):
                    yield gr.skip()
            except Exception as error:
                yield text_of({**value, "state": "error", "error": said_of(error)})
                return
        rates = comparisons.rates()
        unknown = [name for name in wanted.unmeasured(rates) if name in THEIRS]
        known = {"seconds": wanted.seconds(rates), "unknown": len(unknown)}
        yield text_of({**value, "state": "done", **known})

    go.click(compare, inputs, [shown], **AT_ONCE)
    shown.halt(stop_work(studio, WORK), None, None, queue=False, **AT_ONCE)
    ahead.ask(foretell, inputs, [ahead], **AT_ONCE)
    for control in (*choices[:-1], shared.plan, shared.settings[2]):
        control.change(foretell, inputs, [ahead], **AT_ONCE)


def _build_choices(studio: Studio) -> list[Any]:
    """In the order of `_wanted`."""
    systems = gr.CheckboxGroup(
        [(t(f"compare.system.{name}"), name) for name in SYSTEMS],
        value=list(SYSTEMS),
        label=t("compare.systems"),
        info=t("compare.systems_info"),
        elem_id="compare-systems",
    )
    with gr.Row():
        lengths = gr.CheckboxGroup(
            [(t(f"compare.length.{name}"), name) for name in LENGTHS],
            value=["short", "medium"],
            label=t("compare.lengths"),
            info=t("compare.lengths_info"),
            elem_id="compare-lengths",
            min_width=240,
        )
        examples = free_slider(
            0,
            EXAMPLES_MOST,
            2,
            step=1,
            label=t("compare.examples"),
            info=t("compare.examples_info"),
            elem_id="compare-examples",
            min_width=200,
        )
        own = gr.Checkbox(
            True,
            label=t("compare.own"),
            info=t("compare.own_info"),
            elem_id="compare-own",
            min_width=200,
        )
        repeats = free_slider(
            *REPEATS,
            1,
            step=1,
            label=t("compare.repeats"),
            info=t("compare.repeats_info"),
            elem_id="compare-repeats",
            min_width=200,
        )
    draft = gr.Textbox(
        "",
        label=t("compare.draft_model"),
        info=t("compare.draft_model_info"),
        max_lines=1,
        visible=studio.switchable,
        elem_id="compare-draft",
    )
    return [systems, lengths, examples, own, repeats, draft]


def _view(name: str, *events: str) -> gr.HTML:
    """A view of the panel: `assets/compare_panel.js` builds it and keeps it up to date."""
    named = "".join(f", '{event}'" for event in events)
    return gr.HTML(
        html_template=f'<div class="ss-tune ss-compare ss-compare-{name}"></div>',
        js_on_load=f"window.SelfSpec.mountCompare('{name}', element, props, watch, trigger{named})",
        apply_default_css=False,
        elem_id=f"compare-{name}",
    )


def _wanted(values: tuple[Any, ...]) -> Wanted:
    """What `inputs` say.

    Raises:
        TuneError: a choice that doesn't exist, or nothing to do.
    """
    systems, lengths, examples, own, repeats, draft, *settings = values
    return Wanted(
        settings=settings_of(tuple(settings)),
        systems=systems,
        lengths=lengths,
        examples=examples,
        own=bool(own),
        repeats=repeats,
        draft_model=draft,
    )


def _may_load(studio: Studio, request: gr.Request, name: str) -> None:
    """Another draft model is held to what holds for another model altogether."""
    if not studio.switchable or (studio.allowed is None and not from_this_computer(request)):
        raise SettingsError(text("errors.not_switchable"))
    if studio.allowed is not None and name not in studio.allowed:
        raise SettingsError(
            text("errors.not_listed", name=repr(name), known=", ".join(studio.allowed))
        )
