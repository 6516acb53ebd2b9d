"""What the cards of the Tune panel share: views, listeners, and following a piece of work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from selfspec_core.events import Wait
from selfspec_core.scheduler import Cancelled, Ticket

from .decode import DecodePanel
from .limits import LimitError, visitor_of
from .run import failure
from .session import Studio
from .settings import Settings
from .tune_feed import Progress, TuneError, TuneFeed
from .tune_jobs import Jobs
from .tune_subject import Asked

UPDATE_SECONDS = 0.4
AT_ONCE: dict[str, Any] = {
    "trigger_mode": "multiple",
    "concurrency_limit": None,
    "show_progress": "hidden",
    "api_visibility": "private",
}
"""A listener of this kind never queues behind another one, nor waits for its own last call."""


Job = Callable[[Cancelled], Iterator[Any]]


@dataclass(frozen=True)
class Ground:
    """What the cards stand on.

    Args:
        studio: the model and its scheduler.
        jobs: what the engine does for the panel.
        shared: the Decode panel's parts.
        measured_on: the controls texts, tokens and own prompt.
        method: the way to say what matters least.
    """

    studio: Studio
    jobs: Jobs
    shared: DecodePanel
    measured_on: list[gr.components.Component]
    method: gr.Dropdown

    @property
    def inputs(self) -> list[gr.components.Component]:
        """What `asked` takes."""
        return [*self.measured_on, *self.shared.settings]

    def control(self, name: str) -> gr.components.Component:
        """The Decode panel's control of a field of `Settings`."""
        return self.shared.settings[[each.name for each in fields(Settings)].index(name)]


def view(name: str, *events: str, value: str | None = None) -> gr.HTML:
    """A view of the panel: `assets/tune_panel.js` builds it and keeps it up to date.

    Args:
        name: of the card; the element's id is `tune-{name}`.
        events: that it may trigger.
        value: its first one.
    """
    named = "".join(f", '{event}'" for event in events)
    return gr.HTML(
        value,
        html_template=f'<div class="ss-tune ss-tune-{name}"></div>',
        js_on_load=f"window.SelfSpec.mountTune('{name}', element, props, watch, trigger{named})",
        apply_default_css=False,
        elem_id=f"tune-{name}",
    )


def settings_of(values: tuple[Any, ...]) -> Settings:
    """The Decode panel's settings."""
    names = [each.name for each in fields(Settings)]
    return Settings(**dict(zip(names, values, strict=False)))


def asked_of(values: tuple[Any, ...]) -> Asked:
    """What `Ground.inputs` say.

    Raises:
        TuneError: a number outside what is allowed.
    """
    texts, tokens, own, *rest = values
    return Asked(settings=settings_of(tuple(rest)), texts=texts, tokens=tokens, own=bool(own))


def submit(
    ground: Ground,
    card: str,
    request: gr.Request,
    job: Job,
    *,
    heavy: bool = False,
) -> Ticket:
    """Queue a card's work in the background; it supersedes the card's earlier work.

    Raises:
        LimitError: too much is under way; the ticket raises it when the time is up.
    """
    return submit_to(ground.studio, f"tune_{card}", request, job, heavy=heavy)


def submit_to(
    studio: Studio, name: str, request: gr.Request, job: Job, *, heavy: bool = False
) -> Ticket:
    """As `submit`, for work of any name; `stop_work` ends it."""
    visitor = visitor_of(request)
    watch = studio.admit(name, visitor, background=True, supersedes=True)
    most = studio.limits.analysis_seconds

    def run(cancelled: Cancelled) -> Iterator[Any]:
        def enough() -> bool:
            return cancelled() or watch.busy > most

        try:
            yield from job(enough)
        except TuneError:
            if watch.busy > most:
                raise LimitError("seconds", seconds=most) from None
            raise

    return studio.scheduler.submit(
        lambda cancelled: watch.over(run(cancelled)),
        owner=_owner(request.session_hash, name),
        person=visitor,
        background=True,
        heavy=heavy,
    )


def stop_card(ground: Ground, card: str) -> Callable[[gr.Request], None]:
    """A listener that ends a card's work of the person who asks."""
    return stop_work(ground.studio, f"tune_{card}")


def stop_work(studio: Studio, name: str) -> Callable[[gr.Request], None]:
    """A listener that ends work of that name of the person who asks."""

    def stop(request: gr.Request) -> None:
        if owner := _owner(request.session_hash, name):
            studio.scheduler.cancel(owner)

    return stop


def _owner(person: str | None, name: str) -> str | None:
    # Not the person's own name: a new run in Decode must not end a search.
    return f"{person}/{name}" if person else None


async def work(
    ground: Ground, card: str, request: gr.Request, make: Callable[[], Job]
) -> AsyncIterator[str]:
    """A card's values: `make` checks what was asked for and gives the job, which is then done."""
    try:
        ticket = submit(ground, card, request, make())
    except ValueError as error:
        yield failed(ground.studio, error)
        return
    async for value in follow(ground.studio, ticket, TuneFeed(ground.studio.next_run())):
        yield value


async def follow(studio: Studio, ticket: Ticket, feed: TuneFeed) -> AsyncIterator[str]:
    """A card's values while its work goes on, the last one with how it ended."""
    begun = False
    if studio.engine is None:
        feed.take(Progress("tune.state.loading"))
    yield feed.value("waiting")
    try:
        async for batch in ticket.batches(UPDATE_SECONDS):
            told = [feed.take(item) for item in batch]
            if not begun and isinstance(batch[-1], Wait):
                loading = studio.engine is None
                feed.take(Progress("tune.state.loading" if loading else "tune.state.others"))
            begun = begun or any(told)
            yield feed.value("running" if begun else "waiting")
    except Exception as error:
        if not ticket.cancelled:
            yield feed.value("error", error=said_of(error))
            return
    yield feed.value("stopped" if ticket.cancelled else "done")


def said_of(error: Exception) -> dict[str, Any]:
    """An error as the page takes it; what nobody foresaw goes to the log as well."""
    return error.said() if isinstance(error, TuneError) else failure(error)


def failed(studio: Studio, error: Exception) -> str:
    """The value of a card whose work couldn't begin."""
    return TuneFeed(studio.next_run()).value("error", error=said_of(error))


def use_on(ground: Ground, source: gr.HTML) -> None:
    """Have a view's event `use` put its plan, and what came with it, into Decode.

    The browser does it alone, as with a click on the strip: what a person does next can't be
    undone by a late answer.
    """
    controls = [ground.control(name) for name in ("k", "draft_temperature")]
    js = "() => window.SelfSpec.tuneUsed()"
    source.use(None, None, [ground.shared.plan, *controls], js=js, **AT_ONCE)
