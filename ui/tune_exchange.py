"""The cards that take plans out of the page and into it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from selfspec_core.scheduler import Cancelled

from . import tune_plans
from .session import NotLoaded
from .tune_checkpoint import checkpoint_job
from .tune_feed import TuneError, TuneFeed, said, text_of
from .tune_files import SAMPLING, exported, imported, refusals
from .tune_wiring import (
    AT_ONCE,
    Ground,
    asked_of,
    failed,
    follow,
    said_of,
    settings_of,
    stop_card,
    submit,
    view,
)
from .words import t

_IMPORTED = (
    "k", "temperature", "rule", "threshold", "draft_policy", "confidence", "draft_temperature",
    *SAMPLING,
)  # fmt: skip
"""Settings of Decode that a file may give beside the plan."""


def build_export(ground: Ground) -> None:
    """The plan in Decode as files, a row a format."""
    shared, studio = ground.shared, ground.studio
    shown = view("export", "save", "checkpoint", "refresh")
    making = view("checkpoint", "halt")
    file = gr.File(
        visible=False, label=t("tune.export.ready"), elem_id="tune-file", interactive=False
    )

    def offers(plan: Any) -> str:
        return _offers(ground, plan)

    def save(event: gr.EventData, plan: Any, *values: Any) -> str:
        run = studio.next_run()
        try:
            taken = event._data.get("taken") if isinstance(event._data, dict) else None
            engine, asked, wanted = studio.ready(), asked_of(values), _data(event, "format")
            name, text, left_out = exported(engine, asked, wanted, taken)
        except (TuneError, NotLoaded) as error:
            return _offers(ground, plan, problem=said_of(error))
        note = said("tune.export.left_out") if left_out else None
        return _offers(ground, plan, download={"id": run, "name": name, "text": text}, note=note)

    async def checkpoint(request: gr.Request, *values: Any) -> AsyncIterator[list[Any]]:
        settings = settings_of(values)
        where = Path(file.GRADIO_CACHE) / "selfspec-exports"
        feed = TuneFeed(studio.next_run())

        def job(_: Cancelled) -> Iterator[Any]:
            return checkpoint_job(ground.studio.ready(), settings, where)

        try:
            ticket = submit(ground, "checkpoint", request, job, heavy=True)
        except ValueError as error:
            yield [failed(studio, error), gr.skip()]
            return
        yield [feed.value("waiting"), gr.update(value=None, visible=False)]
        async for value in follow(studio, ticket, feed):
            yield [value, gr.skip()]
        if path := feed.entry("_path"):
            yield [gr.skip(), gr.update(value=path, visible=True)]

    shared.plan.change(
        offers,
        [shared.plan],
        [shown],
        queue=False,
        **{**AT_ONCE, "trigger_mode": "always_last"},
    )
    shown.refresh(offers, [shared.plan], [shown], queue=False, **AT_ONCE)
    shown.save(save, [shared.plan, *ground.inputs], [shown], queue=False, **AT_ONCE)
    shown.checkpoint(checkpoint, shared.settings, [making, file], **AT_ONCE)
    making.halt(stop_card(ground, "checkpoint"), None, None, queue=False, **AT_ONCE)


def build_import(ground: Ground) -> None:
    """A file or a text into Decode."""
    shown = view("import", "bring", "take")

    def bring(event: gr.EventData) -> str:
        data = event._data if isinstance(event._data, dict) else {}
        answer = {"run": ground.studio.next_run(), "act": _data(event, "act")}
        try:
            asked = data.get("text"), data.get("name"), data.get("key")
            most = ground.studio.limits.max_k
            found = imported(ground.studio.ready(), *asked, max_k=most)
        except (TuneError, NotLoaded) as error:
            return text_of({**answer, "state": "error", "error": said_of(error)})
        given, notes = fitting(
            {name: found.settings[name] for name in _IMPORTED if name in found.settings},
            {name: ground.control(name) for name in _IMPORTED},
        )
        told = {**found.answer, "notes": [*found.answer["notes"], *notes]}
        value = {"answer": told, "plan": found.plan, "settings": given}
        return text_of({**answer, "state": "done", **value})

    # The browser takes it over unless the person has done something else to the plan since.
    controls = [ground.control(name) for name in _IMPORTED]
    # So with each setting: what was changed while the answer was on its way stays.
    names = json.dumps(_IMPORTED)
    asking = f"(...v) => window.SelfSpec.tuneBringing({names}, v)"
    taking = f"(...v) => window.SelfSpec.tuneBrought({names}, v)"
    shown.bring(None, controls, None, js=asking, **AT_ONCE)
    shown.bring(bring, None, [shown], queue=False, **AT_ONCE)
    shown.take(None, controls, [ground.shared.plan, *controls], js=taking, **AT_ONCE)


def fitting(
    settings: dict[str, Any], controls: dict[str, gr.components.Component]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings that their controls here can hold, and a note on each of the others.

    A slider takes anything from a program, and then no run is possible any more.
    """
    given, notes = {}, []
    for name, value in settings.items():
        control = controls[name]
        low, high = getattr(control, "minimum", None), getattr(control, "maximum", None)
        if value is None or low is None or high is None or low <= value <= high:
            given[name] = value
            continue
        label = said(f"decode.{name}")  # only sliders and numbers get here
        notes.append(said("tune.import.range", name=label, value=value, low=low, high=high))
    return given, notes


def _offers(ground: Ground, text: Any, **more: Any) -> str:
    """The formats, and which of them can't hold the plan; `more` beside."""
    run = ground.studio.next_run()
    try:
        plan = tune_plans.read_plan(text, ground.studio.n_layers)
    except TuneError as error:
        return text_of({"run": run, "state": "error", "error": error.said(), "formats": {}})
    return text_of(
        {"run": run, "state": "done", "plan": str(plan), "formats": refusals(plan), **more}
    )


def _data(event: gr.EventData, name: str) -> str:
    data = event._data if isinstance(event._data, dict) else {}
    return str(data.get(name, ""))
