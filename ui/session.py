"""What all visitors share: one model, one engine, one scheduler; loaded behind the page's back."""

from __future__ import annotations

import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from selfspec_core.events import Commit, Done, Event, Round, Start
from selfspec_core.scheduler import NOTHING, Cancelled, Scheduler, Ticket

from .errors import recognised, said
from .explain import Message, model_name
from .giving_way import Opening, give_way
from .limits import Gate, LimitError, Limits, Visitor
from .metrics import Metrics, Watch
from .recorded import Recording
from .settings import Settings, SettingsError
from .status import Baseline, ModelStatus, NotLoaded
from .words import msg, text

if TYPE_CHECKING:
    from selfspec_core.builtin import Progress
    from selfspec_core.engine import Engine
    from selfspec_core.loading import LoadedModel
    from selfspec_core.request import Request

__all__ = ["Baseline", "ModelStatus", "NotLoaded", "Studio"]

log = logging.getLogger("selfspec.ui")

_BASELINES_KEPT = 64
_BASELINE_SECONDS = 600.0  # a measured speed is taken again after that long


class Studio:
    """One model for everybody: its loading, its engine, and the turns that people take.

    Nothing of a person is kept but measured plain decodings, which depend on no skip plan.

    Args:
        model: what to load: a name that `selfspec_core.loading.load` knows.
        device: where to.
        dtype: in which number type.
        allowed: names that may be loaded; None for any.
        switchable: whether a person on the page may load another of them, for everybody.
        limits: what the operator allows.
        recording: what plays before the model is there, and how deep its model is.
    """

    def __init__(
        self,
        model: str = "builtin",
        *,
        device: str = "auto",
        dtype: str = "auto",
        allowed: tuple[str, ...] | None = None,
        switchable: bool = False,
        limits: Limits | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.recording = recording
        self.switchable = switchable
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.scheduler = Scheduler(max_live=self.limits.live)
        self._gate = Gate(self.limits)
        self.loaded: LoadedModel | None = None
        self.engine: Engine | None = None
        self.status = ModelStatus("loading", msg("common.model.starting"))
        self._wanted: dict[str, Any] = {
            "name": model,
            "device": device,
            "dtype": dtype,
            "allowed": allowed or self.limits.models or None,
        }
        self._name = model
        self._loading: Ticket | None = None
        self.opening = Opening()
        self._baselines: OrderedDict[Request, Baseline] = OrderedDict()
        self._runs = itertools.count(int(time.time() * 1000))
        self.when_loaded: list[Callable[[], None]] = []
        """Called on the engine's thread when another model is there: let go of the old one."""

    def start_loading(self) -> None:
        """Load the model on the engine's thread, before all other work; returns at once."""
        if self._loading is None:
            self._loading = self.scheduler.submit(lambda _: self._load(), paces=False)

    @property
    def n_layers(self) -> int:
        """Layers of the model; until it is there, those of the recorded one."""
        if self.loaded is not None:
            return self.loaded.info.n_layers
        return self.recording.n_layers if self.recording is not None else 30

    @property
    def default_k(self) -> int:
        """A draft length that suits the device."""
        return self.engine.default_k if self.engine is not None else 2

    def next_run(self) -> int:
        """A number for a run, larger than all before it, over restarts as well."""
        return next(self._runs)

    def generate(
        self, settings: Settings, *, owner: str | None, visitor: Visitor | None = None
    ) -> tuple[Callable[[], Request], Ticket]:
        """Queue a generation, superseding what `owner` ran before.

        Bad settings, and a model that can't be loaded, are raised to the ticket's reader: the
        request is made on the engine's thread, when the model is there.

        Args:
            settings: unchecked.
            owner: whose earlier work this ends; None ends nobody's.
            visitor: who asks, and whose share of the engine it is; None is the owner.

        Returns:
            The request as it was made (once the first event is there), and the ticket.

        Raises:
            LimitError: too much is under way, or too much was asked for.
        """
        visitor = visitor or Visitor(session=owner)
        watch = self.admit("generate", visitor, supersedes=owner is not None)
        made: list[Request] = []

        def run(cancelled: Cancelled) -> Iterator[Event]:
            engine = self.ready()
            made.append(settings.request(engine.n_layers, self.limits))
            most = self.limits.seconds

            def enough() -> bool:
                return cancelled() or watch.busy > most

            for event in engine.stream(made[0], cancelled=enough):
                if isinstance(event, Start):
                    self.limits.check_prompt_tokens(len(event.prompt_ids))
                elif isinstance(event, Done) and event.reason == "cancelled" and not cancelled():
                    event = replace(event, message=str(LimitError("seconds", seconds=f"{most:g}")))
                yield event

        ticket = self.scheduler.submit(
            lambda cancelled: watch.over(run(cancelled)), owner=owner, person=visitor
        )
        return lambda: made[0], ticket

    def admit(
        self,
        kind: str,
        visitor: Visitor,
        *,
        background: bool = False,
        supersedes: bool = False,
        light: bool = False,
    ) -> Watch:
        """Let a request in, or refuse it; whoever is let in is watched until the work is over.

        Args:
            kind: what is asked for, as the metrics name it.
            visitor: who asks.
            background: it is an analysis or a search.
            supersedes: it ends what the same person has under way.
            light: it asks nothing of the engine, so only how often a person asks counts.

        Raises:
            LimitError: which limit it would break.
        """
        try:
            self._gate.admit(
                visitor,
                NOTHING if light else self.scheduler.load,
                background=background,
                supersedes=supersedes,
                expected_seconds=self.scheduler.expected_seconds,
            )
        except LimitError as error:
            self.metrics.refuse(error)
            raise
        return self.metrics.watch(kind)

    def analyse(
        self,
        kind: str,
        job: Callable[[Cancelled], Iterator[Any]],
        *,
        visitor: Visitor,
        heavy: bool = False,
    ) -> Ticket:
        """Queue a program's analysis in the background, within the operator's limits.

        Args:
            kind: what it is, as the metrics name it.
            job: yields often; it ends by itself when the function that it gets says True.
            visitor: who asks.
            heavy: it takes much memory.

        Raises:
            LimitError: too much is under way, or too much was asked for. The ticket raises it
                when the time is up.
        """
        watch = self.admit(kind, visitor, background=True)
        most = self.limits.analysis_seconds

        def run(cancelled: Cancelled) -> Iterator[Any]:
            self.ready()
            yield from job(lambda: cancelled() or watch.busy > most)
            if watch.busy > most:
                raise LimitError("seconds", seconds=f"{most:g}")

        return self.scheduler.submit(
            lambda cancelled: watch.over(run(cancelled)),
            person=visitor,
            background=True,
            heavy=heavy,
        )

    def known_baseline(self, request: Request) -> Baseline | None:
        """Plain decoding of `request`, if it was measured not long ago."""
        baseline = self._baselines.get(self._plain(request))
        if baseline is None or time.monotonic() - baseline.measured > _BASELINE_SECONDS:
            return None
        return baseline

    def measure_baseline(self, request: Request, *, owner: str | None) -> Ticket:
        """Queue plain decoding of `request` in the background; yields events, then a `Baseline`.

        It is decoded in the request's own window, where the text must be the same, and with one
        row a forward: a speed-up counts only against the faster of the two.
        """
        plain = self._plain(request)

        def run(cancelled: Cancelled) -> Iterator[Any]:
            ends: list[tuple[Done, list[Event]]] = []
            for one in dict.fromkeys((plain, replace(plain, window=1))):
                told: list[Event] = []
                for event in self.ready().stream(one, cancelled=cancelled):
                    if not isinstance(event, Done):
                        told.append(event)
                        yield event
                    elif event.reason in ("cancelled", "error"):
                        return
                    else:
                        ends.append((event, told))
            fastest, told = max(ends, key=lambda end: end[0].tokens_per_second or 0.0)
            baseline = Baseline(
                ends[0][0].tokens,
                fastest.tokens_per_second or None,
                time.monotonic(),
                tuple(e.draft_ms + e.verify_ms + e.other_ms for e in told if isinstance(e, Round)),
                tuple("" if e.special else e.text for e in told if isinstance(e, Commit)),
            )
            self._baselines[plain] = baseline
            while len(self._baselines) > _BASELINES_KEPT:
                self._baselines.popitem(last=False)
            yield baseline

        return self.scheduler.submit(run, owner=owner, supersede=False, background=True)

    def measure_importance(
        self, token_ids: tuple[int, ...], *, prompt_length: int, owner: str | None
    ) -> Ticket:
        """Queue the gates' importance for a text in the background; yields a `GateImportance`."""

        def run(_: Cancelled) -> Iterator[Any]:
            from analysis.gates import gate_importance  # pulls in captum, which is slow to import

            self.ready()
            yield gate_importance(self.loaded, list(token_ids), prompt_length=prompt_length)

        return self.scheduler.submit(run, owner=owner, supersede=False, background=True, heavy=True)

    @property
    def model_name(self) -> str:
        """By which name the model is loaded, or being loaded."""
        return str(self._wanted["name"])

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """Names that may be loaded; None for any."""
        return self._wanted["allowed"]

    def switch(self, name: str) -> None:
        """Load another model for everybody, in turn with other work; `status` says how far it is.

        The present model stays until the other is there, and after a failure.

        Raises:
            ValueError: not allowed here; what can't be loaded is told by `status` later.
        """
        wanted = name.strip() if isinstance(name, str) else ""
        if not wanted:
            raise SettingsError(text("errors.no_model_name"))
        if not self.switchable:
            raise SettingsError(text("errors.not_switchable"))
        if self.allowed is not None and wanted not in self.allowed:
            raise SettingsError(
                text("errors.not_listed", name=repr(wanted), known=", ".join(self.allowed))
            )
        if self.status.state == "loading":
            return
        self._wanted["name"] = wanted
        self.status = ModelStatus("loading", msg("common.model.starting"))
        self._loading = self.scheduler.submit(lambda _: self._load(), paces=False)

    def close(self) -> None:
        """End all work and the engine's thread."""
        self.scheduler.close()

    def _plain(self, request: Request) -> Request:
        """Plain decoding of the same text in the same window."""
        window = request.window or self.ready().plain_window_for(request.k)
        return replace(
            request,
            k=0,
            plan=None,
            confidence=None,
            rule="coupled",
            draft_temperature=None,
            window=window,
        )

    @property
    def exact(self) -> bool:
        """Whether this device was measured to give the same bits with and without drafts."""
        guarantee = self.engine.guarantee if self.engine is not None else None
        return guarantee is None or guarantee.exact

    # -- on the engine's thread ---------------------------------------------------------------

    def ready(self) -> Engine:
        """The engine.

        Raises:
            NotLoaded: there is none; says why.
        """
        if self.engine is None:
            raise NotLoaded(self.status.text)
        return self.engine

    def _load(self) -> Iterator[None]:
        try:
            engine = give_way(self._build, self.opening)
        except Exception as error:
            if not isinstance(error, ValueError | RuntimeError | OSError):
                log.exception("loading %s failed", self._wanted["name"])
            failure = msg("errors.loading", text=said(error))
            self._wanted["name"] = self._name  # the model that was there before goes on
            stays = self.engine is not None
            self.status = self._ready_status(failure) if stays else ModelStatus("failed", failure)
        else:
            self.loaded, self.engine, self._name = engine.loaded, engine, self._wanted["name"]
            self._baselines.clear()  # they are another model's
            for tell in self.when_loaded:
                tell()
            self.status = self._ready_status()
            if engine.building:
                from selfspec_core.execution import settling

                self.scheduler.submit(lambda _: settling(engine), background=True)
        yield

    def _build(self) -> Engine:
        # Imported here: torch and transformers take seconds, and the page is there before.
        from selfspec_core.engine import Engine
        from selfspec_core.loading import load

        loaded = load(**self._wanted, progress=self._report)
        self.status = ModelStatus("loading", msg("common.model.probing"))
        engine = Engine(loaded, background=True)
        log.info("%s; %s", engine.execution, engine.probe().sentence())
        self.status = ModelStatus("loading", msg("common.model.warming"))
        engine.warm_up()  # after the probe, which says what windows there will be
        return engine

    def _ready_status(self, failure: Message | None = None) -> ModelStatus:
        assert self.loaded is not None
        info = self.loaded.info
        facts: dict[str, Any] = {
            "name": model_name(info.to_dict()),
            "layers": info.n_layers,
            "dtype": info.dtype,
            "device": info.device,
        }
        if info.quantised:
            facts["quantised"] = info.quantised.split()[0]
        key = "common.model.ready_quantised" if info.quantised else "common.model.ready"
        return ModelStatus("ready", msg(key, **facts), failure=failure)

    def _report(self, progress: Progress) -> None:
        self.opening.wait()
        what: Any = recognised(progress.message, "common.loading.") or progress.message
        if progress.seconds_left is not None and progress.seconds_left >= 1:
            what = msg("common.model.left", text=what, seconds=round(progress.seconds_left))
        self.status = ModelStatus("loading", what, progress.done)
