"""What an operator watches: counts and times for Prometheus, and whether the server is well.

Every server has a registry of its own, so that two in one process don't meet. Nothing here says
what anybody wrote.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from selfspec_core.events import Commit, Done, Event
from selfspec_core.scheduler import Scheduler

from .limits import LimitError

if TYPE_CHECKING:
    from .session import Studio

STUCK_SECONDS = 120.0
"""A turn that lasts longer than this means that the engine hangs."""
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)


_OVER = object()


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("selfspec_requests", "Requests that were let in.", ["kind"], **own)
        self.ended = Counter(
            "selfspec_requests_ended",
            "Requests that ended: done, cancelled, abandoned (the page was closed) or error.",
            ["kind", "outcome"],
            **own,
        )
        self.refused = Counter(
            "selfspec_requests_refused", "Requests refused, by limit.", ["reason"], **own
        )
        self.tokens = Counter("selfspec_tokens", "Tokens written.", **own)
        self.drafted = Counter("selfspec_tokens_drafted", "Tokens drafted.", **own)
        self.accepted = Counter("selfspec_tokens_accepted", "Drafted tokens accepted.", **own)
        self.wait = Histogram(
            "selfspec_wait_seconds",
            "From the request to its first turn.",
            ["kind"],
            buckets=_SECONDS,
            **own,
        )
        self.first_token = Histogram(
            "selfspec_first_token_seconds",
            "From the request to its first token.",
            buckets=_SECONDS,
            **own,
        )
        self.engine = Histogram(
            "selfspec_engine_seconds",
            "Engine time that a request took.",
            ["kind"],
            buckets=_SECONDS,
            **own,
        )
        self._running = Gauge("selfspec_running", "Generations that take turns.", **own)
        self._waiting = Gauge("selfspec_waiting", "Generations waiting for a place.", **own)
        self._background = Gauge("selfspec_background", "Analyses and searches.", **own)
        self._ready = Gauge("selfspec_model_ready", "1 when the model is loaded.", **own)
        ProcessCollector(registry=self.registry)

    def refuse(self, error: LimitError) -> None:
        """Count a refusal."""
        self.refused.labels(error.code).inc()

    def watch(self, kind: str) -> Watch:
        """Begin to watch a request that was let in just now."""
        self.requests.labels(kind).inc()
        return Watch(self, kind)

    def text(self, scheduler: Scheduler, *, ready: bool) -> bytes:
        """Everything in Prometheus' text format."""
        load = scheduler.load
        self._running.set(load.running)
        self._waiting.set(load.waiting)
        self._background.set(load.background)
        self._ready.set(ready)
        return generate_latest(self.registry)


class Watch:
    """One request, from its admission to its end."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self._metrics, self._kind = metrics, kind
        self._submitted = time.monotonic()
        self.busy = 0.0
        """Seconds that the engine worked for it so far."""

    def over(self, steps: Iterator[Any]) -> Iterator[Any]:
        """The same steps, watched; advance and close it where the engine works."""
        metrics, kind, outcome, first = self._metrics, self._kind, "abandoned", True
        metrics.wait.labels(kind).observe(time.monotonic() - self._submitted)
        try:
            while True:
                begin = time.monotonic()
                step = next(steps, _OVER)
                self.busy += time.monotonic() - begin
                if step is _OVER:
                    break
                if first and isinstance(step, Commit):
                    first = False
                    metrics.first_token.observe(time.monotonic() - self._submitted)
                if isinstance(step, Event) and isinstance(step, Done):
                    outcome = self._take(step)
                yield step
            outcome = "done" if outcome == "abandoned" else outcome
        except GeneratorExit:
            raise
        except BaseException as error:
            outcome = "error"
            if isinstance(error, LimitError):
                outcome = "refused"
                metrics.refuse(error)
            raise
        finally:
            close = getattr(steps, "close", None)
            if close is not None:
                close()
            metrics.ended.labels(kind, outcome).inc()
            metrics.engine.labels(kind).observe(self.busy)

    def _take(self, done: Done) -> str:
        self._metrics.tokens.inc(len(done.tokens))
        self._metrics.drafted.inc(done.drafted)
        self._metrics.accepted.inc(done.accepted)
        return done.reason if done.reason in ("cancelled", "error") else "done"


def health(studio: Studio) -> dict[str, Any]:
    """How the server is: `status` is "ready", "loading", "failed" or "stuck"."""
    load, loaded = studio.scheduler.load, studio.loaded
    status = studio.status.state
    if status == "ready" and load.turn_seconds > STUCK_SECONDS:
        status = "stuck"
    return {
        "status": status,
        "model": None if loaded is None else loaded.info.id,
        "running": load.running,
        "waiting": load.waiting,
        "background": load.background,
    }


def routes(studio: Studio) -> list[BaseRoute]:
    """`/health` (200 when requests are served, else 503) and `/metrics`."""

    async def tell_health(_: Request) -> Response:
        found = health(studio)
        return JSONResponse(found, status_code=200 if found["status"] == "ready" else 503)

    async def tell_metrics(_: Request) -> Response:
        ready = studio.status.state == "ready"
        text = await run_in_threadpool(studio.metrics.text, studio.scheduler, ready=ready)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        Route("/health", tell_health, methods=["GET"]),
        Route("/metrics", tell_metrics, methods=["GET"]),
    ]
