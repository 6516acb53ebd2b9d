"""One run, from the settings to the last figure: the values that the page's stage takes.

Generation first; then, in the background, plain decoding of the same request (is it faster, is
the text the same?) and the importance of every branch for the text just written.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

from selfspec_core.events import Done, Event, Round, Start, Wait
from selfspec_core.plan import parse_plan

from . import explain
from .errors import recognised, said
from .explain import Message
from .feed import TraceFeed
from .limits import Visitor
from .session import Baseline, NotLoaded, Studio
from .settings import Settings
from .words import msg, say

log = logging.getLogger("selfspec.ui")

UPDATE_SECONDS = 0.06
"""Rounds that end within this time are sent together: the page looks live, the server rests."""


async def run(
    studio: Studio, settings: Settings, *, owner: str | None, visitor: Visitor | None = None
) -> AsyncIterator[str]:
    """Generate, then measure; yields a value of the stage after every round or second."""
    feed = TraceFeed(studio.next_run(), prompt=settings.prompt)
    start: Start | None = None
    done: Done | None = None
    rounds = 0
    try:
        request, ticket = studio.generate(settings, owner=owner, visitor=visitor)
        yield feed.window(state="waiting", message=_waiting(studio, None))
        async for batch in ticket.batches(UPDATE_SECONDS):
            for event in batch:
                if isinstance(event, Start):
                    start = event
                if isinstance(event, Done):
                    done = event
                rounds += isinstance(event, Round)
            if start is None:
                yield feed.window(state="waiting", message=_waiting(studio, batch[-1]))
                continue
            feed.add(batch)
            yield feed.window(**_progress(start, batch, rounds))
    except Exception as error:
        feed.add([_note("error", failure(error))])
        yield feed.whole(state="error", message=msg("decode.run.kept"))
        return
    if start is None or done is None:  # superseded before its first round
        return
    feed.add(_notes(start, done))
    if done.reason == "cancelled" or not done.tokens:
        yield feed.whole(
            state="stopped" if done.reason == "cancelled" else "done", message=_ended(start, done)
        )
        return
    async for lines in _measured(studio, request(), start, done, owner=owner):
        feed.add(lines)
        yield feed.window(state="measuring", message=_ended(start, done))
    yield feed.whole(state="done", message=_ended(start, done))


def failure(error: Exception) -> Message:
    """An error as a person should read it; what nobody foresaw goes to the log as well."""
    if isinstance(error, NotLoaded | ValueError):
        return said(error)
    log.error("a run failed", exc_info=error)
    return msg("errors.crashed", text=f"{type(error).__name__}: {error}")


def sentence(error: Exception) -> str:
    """The same in English, for programs."""
    return say(failure(error))


async def _measured(
    studio: Studio, request: Any, start: Start, done: Done, *, owner: str | None
) -> AsyncIterator[list[dict[str, Any]]]:
    """The page's own lines about a finished run: baseline, then heat."""
    if start.k == 0:
        yield [{"type": "baseline", "text": msg("decode.plain.itself")}]
    else:
        baseline = studio.known_baseline(request)
        if baseline is None:
            yield [{"type": "baseline", "text": msg("decode.plain.measuring")}]
            ticket = studio.measure_baseline(request, owner=owner)
            async for batch in ticket.batches(UPDATE_SECONDS):
                baseline = next((item for item in batch if isinstance(item, Baseline)), baseline)
                yield []  # so that a closed tab is noticed
        yield [_compared(request, done, baseline, exact=studio.exact)]
    yield [{"type": "heat", "text": msg("decode.heat.computing")}]
    yield [await _heat(studio, start, done, owner=owner)]


def _compared(
    request: Any, done: Done, baseline: Baseline | None, *, exact: bool
) -> dict[str, Any]:
    if baseline is None:
        return {"type": "baseline", "text": msg("decode.plain.stopped")}
    promised = request.acceptance_rule.identical(request.sampling.temperature)
    line = {
        "type": "baseline",
        "identical": baseline.tokens == done.tokens,
        "identity": explain.identity(done.tokens, baseline.tokens, promised=promised, exact=exact),
    }
    if baseline.tokens_per_second and done.tokens_per_second:
        speedup = done.tokens_per_second / baseline.tokens_per_second
        line |= {
            "speedup": round(speedup, 4),
            "plain_tps": round(baseline.tokens_per_second, 3),
            "plain": {"ms": [round(ms, 3) for ms in baseline.ms], "texts": list(baseline.texts)},
            "text": explain.against_plain(speedup, baseline.tokens_per_second),
        }
    else:
        line["text"] = msg("decode.plain.short")
    return line


async def _heat(studio: Studio, start: Start, done: Done, *, owner: str | None) -> dict[str, Any]:
    ids = (*start.prompt_ids, *done.tokens)
    ticket = studio.measure_importance(ids, prompt_length=len(start.prompt_ids), owner=owner)
    importance = None
    try:
        async for item in ticket:
            if not isinstance(item, Wait):
                importance = item
    except Exception as error:
        log.error("importance failed", exc_info=error)
        return {"type": "heat", "text": msg("decode.heat.failed", text=str(error))}
    if importance is None:
        return {"type": "heat", "text": msg("decode.heat.stopped")}
    plan = parse_plan(start.plan, int(start.model["n_layers"]))
    first = plan.at(len(ids)) if hasattr(plan, "at") else plan
    return {
        "type": "heat",
        "attention": [float(f"{value:.5g}") for value in importance.attention],
        "mlp": [float(f"{value:.5g}") for value in importance.mlp],
        "skipped": {"attention": sorted(first.attention), "mlp": sorted(first.mlp)},
    }


def _waiting(studio: Studio, event: Event | None) -> Message | list[Message]:
    if studio.engine is None:
        return [studio.status.said, msg("decode.run.starts")]
    return explain.waiting(event) if isinstance(event, Wait) else msg("decode.run.reading")


def _progress(start: Start, batch: list[Event], rounds: int) -> dict[str, Any]:
    """What the header says while a run goes on; `rounds` have ended so far."""
    wait = batch[-1] if isinstance(batch[-1], Wait) else None
    message = explain.run_name(start)
    if rounds:
        message = explain.also(message, msg("decode.run.round", n=rounds))
    if wait is not None and (not rounds or wait.place or wait.expected_seconds):
        message = explain.also(message, explain.waiting(wait))
    where = {"device": start.model.get("device"), "dtype": start.model.get("dtype")}
    return {
        "state": "running",
        "message": message,
        "machine": msg("decode.run.machine", **where),
    }


def _ended(start: Start, done: Done) -> Message:
    return explain.also(explain.run_name(start), explain.ending(done))


def _notes(start: Start, done: Done) -> list[dict[str, Any]]:
    notes = []
    if done.reason == "error":
        notes.append(_note("error", done.message or msg("decode.run.failed")))
    elif done.message:  # the operator's limit ended it
        notes.append(_note("warn", recognised(done.message, "limits.") or done.message))
    if warning := explain.lossy(start):
        notes.append(_note("warn", warning))
    if why := explain.nothing_to_see(start, done):
        notes.append(_note("info", why))
    return notes


def _note(tone: str, text: Message | str) -> dict[str, Any]:
    return {"type": "note", "tone": tone, "text": text}
