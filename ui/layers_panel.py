"""The Layers panel: what every branch of the model does for a text, and what skipping it costs.

The view (`assets/layers_panel*.js`) asks with events: `compute`, `stop`, `toggle`. The text
that Decode has shown travels with the question, since the server keeps nothing of anybody.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from selfspec_core.events import Wait
from selfspec_core.plan import parse_plan
from selfspec_core.scheduler import Cancelled, Ticket

from . import plan_view
from .decode import DecodePanel
from .errors import said
from .layers_demand import Demand, read_demand
from .layers_job import Known, Progress, Result, work
from .layers_values import progress_of, result_of, value
from .limits import LimitError, Visitor, visitor_of
from .recorded import TRACES
from .run import failure
from .session import Studio

EXAMPLE = TRACES / "welcome_layers.json"
"""What the view shows before anything was computed; `python -m ui.layers_record` writes it."""
_UPDATE_SECONDS = 0.2
_VIEW = '<section class="ss-lp"></section>'
_MOUNT = """window.SelfSpec.mountLayersPanel(
  element, props, watch, trigger, {compute: 'compute', stop: 'stop', toggle: 'toggle'})"""
_PLAN = '<div class="ss-lp-plan"></div>'
_MOUNT_PLAN = "window.SelfSpec.layersPanelPlan(props, watch)"
_AT_ONCE: dict[str, Any] = {
    "trigger_mode": "multiple",
    "concurrency_limit": None,
    "show_progress": "hidden",
    "api_visibility": "private",
}


def build_layers(studio: Studio, shared: DecodePanel) -> None:
    """Build the panel inside the current Blocks."""
    known = Known()
    newest: dict[str, int] = {}  # of whoever is being answered: the question asked last
    with gr.Column(elem_classes=["ss-card", "ss-lp-card"]):
        view = gr.HTML(
            _first_value(studio),
            html_template=_VIEW,
            js_on_load=_MOUNT,
            apply_default_css=False,
            elem_id="layers-panel",
        )
        # The plan as the view draws it; the plan itself is the text that all panels share.
        hatched = gr.HTML(
            _drawn(shared.plan.value, studio),
            html_template=_PLAN,
            js_on_load=_MOUNT_PLAN,
            apply_default_css=False,
            elem_classes="ss-lp-plan-host",
        )

    async def compute(
        request: gr.Request, event: gr.EventData, plan: str, prompt: str
    ) -> AsyncIterator[str]:
        job, visitor = _Job(studio.next_run(), _question(event._data)), visitor_of(request)
        owner = _owner(visitor)
        if job.question < newest.get(owner, job.question):
            yield job.value("stopped")  # a newer question has overtaken it on its way here
            return
        newest[owner] = job.question
        try:
            demand = read_demand(event._data, plan=plan, prompt=prompt)
            ticket = _submit(studio, known, demand, visitor)
            async for shown in _answers(studio, ticket, demand, job):
                yield shown
        except ValueError as error:
            yield job.value("error", said=said(error))
        finally:
            if newest.get(owner) == job.question:
                del newest[owner]

    def stop(request: gr.Request) -> None:
        studio.scheduler.cancel(_owner(visitor_of(request)))

    view.compute(compute, [shared.plan, shared.settings[0]], [view], **_AT_ONCE)
    view.stop(stop, None, None, queue=False, **_AT_ONCE)
    view.toggle(None, None, [shared.plan], js="() => window.SelfSpec.plans.chosen()", **_AT_ONCE)
    shared.plan.change(
        lambda text: _drawn(text, studio, asked=text),
        [shared.plan],
        [hatched],
        queue=False,
        **_AT_ONCE,
    )


def _submit(studio: Studio, known: Known, demand: Demand, visitor: Visitor) -> Ticket:
    """Queue it in place of what the same person asked this panel for before.

    Raises:
        LimitError: too much is under way.
    """
    watch = studio.admit("layers", visitor, background=True, supersedes=True)
    most = studio.limits.analysis_seconds

    def run(cancelled: Cancelled) -> Iterator[Any]:
        enough = lambda: cancelled() or watch.busy > most  # noqa: E731
        yield from work(demand, lambda: (studio.ready(), studio.loaded), known, enough)
        if watch.busy > most:
            raise LimitError("seconds", seconds=most)

    return studio.scheduler.submit(
        lambda cancelled: watch.over(run(cancelled)),
        owner=_owner(visitor),
        person=visitor,
        background=True,
        heavy=demand.heavy,  # one copy of the model at a time
    )


@dataclass(frozen=True)
class _Job:
    """Which question a value answers.

    Args:
        number: larger than those of all questions before it.
        question: the page's own number, which it knows before any answer has come.
    """

    number: int
    question: int

    def value(self, state: str, **more: Any) -> str:
        """A value of the view."""
        return value(self.number, state, question=self.question, **more)


def _question(sent: Any) -> int:
    number = sent.get("question") if isinstance(sent, dict) else None
    return number if isinstance(number, int) else 0


async def _answers(studio: Studio, ticket: Ticket, demand: Demand, job: _Job) -> AsyncIterator[str]:
    """Values of the view, from the question to the answer."""
    yield job.value("waiting")
    ended: Result | None = None
    latest: Progress | None = None
    try:
        async for batch in ticket.batches(_UPDATE_SECONDS):
            ended = next((item for item in batch if isinstance(item, Result)), ended)
            newest = next((p.result for p in reversed(batch) if _has_result(p)), None)
            if ended is not None:
                continue
            latest = next((p for p in reversed(batch) if isinstance(p, Progress)), latest)
            shown = _shown(studio, batch[-1], latest)
            if newest is not None:
                shown["result"] = await asyncio.to_thread(result_of, newest, demand)
            yield job.value(**shown)
    except Exception as error:
        yield job.value("error", said=failure(error))
        return
    if ended is None:  # stopped before there was anything
        yield job.value("stopped")
        return
    result = await asyncio.to_thread(result_of, ended, demand)
    drawn = json.loads(_drawn_or_none(demand.plan, studio))
    yield job.value("stopped" if ticket.cancelled else "done", result=result, plan=drawn)


def _shown(studio: Studio, item: Any, latest: Progress | None) -> dict[str, Any]:
    """State and progress after what has arrived; a long slice isn't a wait."""
    if latest is not None:
        return {"state": "running", "progress": progress_of(latest)}
    if studio.engine is None:
        status = studio.status
        return {"state": "loading", "said": status.said, "progress": {"done": status.fraction}}
    place = item.place if isinstance(item, Wait) else 0
    return {"state": "waiting", "progress": {"place": place}}


def _has_result(item: Any) -> bool:
    return isinstance(item, Progress) and item.result is not None


def _owner(visitor: Visitor) -> str:
    """Whose work it is to the scheduler: apart from Decode's, which a new run there cancels."""
    return f"layers:{visitor.session}"


def _drawn(plan: Any, studio: Studio, **more: Any) -> str:
    """A plan's text as the view draws it; one that can't be read leaves it as it was."""
    try:
        return plan_view.to_strip(parse_plan(str(plan), studio.n_layers), **more)
    except plan_view.PlanError:
        return gr.skip()


def _drawn_or_none(plan: str, studio: Studio) -> str:
    """The same, but one that can't be read is drawn as skipping nothing."""
    drawn = _drawn(plan, studio)
    return drawn if isinstance(drawn, str) else _drawn("none", studio)


def _first_value(studio: Studio, path: Path = EXAMPLE) -> str:
    """The recorded example, where the page plays the recorded run; else nothing yet."""
    if studio.recording is None or not path.exists():
        return value(0, "idle")
    example = json.loads(path.read_text(encoding="utf-8"))
    return value(0, "recorded", **example)
