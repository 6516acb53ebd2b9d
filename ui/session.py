"""What all visitors share: one model, one engine, one scheduler; loaded behind the page's back."""

from __future__ import annotations

import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from selfspec_core.events import Done, Event
from selfspec_core.scheduler import Cancelled, Scheduler, Ticket

from .explain import model_name
from .recorded import Recording
from .settings import Settings

if TYPE_CHECKING:
    from selfspec_core.builtin import Progress
    from selfspec_core.engine import Engine
    from selfspec_core.loading import LoadedModel
    from selfspec_core.request import Request

log = logging.getLogger("selfspec.ui")

_BASELINES_KEPT = 64
_BASELINE_SECONDS = 600.0  # a measured speed is taken again after that long


class NotLoaded(RuntimeError):
    """The model could not be loaded; the message says why and what to do."""


@dataclass(frozen=True)
class ModelStatus:
    """What the model is doing: `state` is "loading", "ready" or "failed"."""

    state: str
    text: str
    fraction: float | None = None


@dataclass(frozen=True)
class Baseline:
    """Plain decoding of a request, measured.

    Args:
        tokens: what it wrote in the request's own window.
        tokens_per_second: the faster of that window and one row a forward.
        measured: when, on the monotonic clock.
    """

    tokens: tuple[int, ...]
    tokens_per_second: float | None
    measured: float


class Studio:
    """One model for everybody: its loading, its engine, and the turns that people take.

    Nothing of a person is kept but measured plain decodings, which depend on no skip plan.

    Args:
        model: what to load: a name that `selfspec_core.loading.load` knows.
        device: where to.
        dtype: in which number type.
        allowed: names that may be loaded; None for any.
        recording: what plays before the model is there, and how deep its model is.
    """

    def __init__(
        self,
        model: str = "builtin",
        *,
        device: str = "auto",
        dtype: str = "auto",
        allowed: tuple[str, ...] | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.recording = recording
        self.scheduler = Scheduler()
        self.loaded: LoadedModel | None = None
        self.engine: Engine | None = None
        self.status = ModelStatus("loading", "Starting…")
        self._wanted: dict[str, Any] = {
            "name": model,
            "device": device,
            "dtype": dtype,
            "allowed": allowed,
        }
        self._loading: Ticket | None = None
        self._baselines: OrderedDict[Request, Baseline] = OrderedDict()
        self._runs = itertools.count(int(time.time() * 1000))

    def start_loading(self) -> None:
        """Load the model on the engine's thread, before all other work; returns at once."""
        if self._loading is None:
            self._loading = self.scheduler.submit(lambda _: self._load())

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
        self, settings: Settings, *, owner: str | None
    ) -> tuple[Callable[[], Request], Ticket]:
        """Queue a generation, superseding what `owner` ran before.

        Bad settings, and a model that can't be loaded, are raised to the ticket's reader: the
        request is made on the engine's thread, when the model is there.

        Returns:
            The request as it was made (once the first event is there), and the ticket.
        """
        made: list[Request] = []

        def run(cancelled: Cancelled) -> Iterator[Event]:
            engine = self._ready()
            made.append(settings.request(engine.n_layers))
            return engine.stream(made[0], cancelled=cancelled)

        return lambda: made[0], self.scheduler.submit(run, owner=owner)

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
            ends: list[Done] = []
            for one in dict.fromkeys((plain, replace(plain, window=1))):
                for event in self._ready().stream(one, cancelled=cancelled):
                    if not isinstance(event, Done):
                        yield event
                    elif event.reason in ("cancelled", "error"):
                        return
                    else:
                        ends.append(event)
            speeds = [end.tokens_per_second for end in ends if end.tokens_per_second]
            baseline = Baseline(ends[0].tokens, max(speeds, default=None), time.monotonic())
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

            self._ready()
            yield gate_importance(self.loaded, list(token_ids), prompt_length=prompt_length)

        return self.scheduler.submit(run, owner=owner, supersede=False, background=True)

    def close(self) -> None:
        """End all work and the engine's thread."""
        self.scheduler.close()

    def _plain(self, request: Request) -> Request:
        """Plain decoding of the same text in the same window."""
        window = request.window or self._ready().window_for(request.k)
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

    def _ready(self) -> Engine:
        if self.engine is None:
            raise NotLoaded(self.status.text)
        return self.engine

    def _load(self) -> Iterator[None]:
        try:
            # Imported here: torch and transformers take seconds, and the page is there before.
            from selfspec_core.engine import Engine
            from selfspec_core.loading import load

            loaded = load(**self._wanted, progress=self._report)
            self.status = ModelStatus(
                "loading", "Warming up, so that the first run isn’t a cold one…"
            )
            engine = Engine(loaded)
            engine.warm_up()
            self.status = ModelStatus("loading", "Measuring what this device guarantees…")
            log.info("%s; %s", engine.execution, engine.probe().sentence())
        except Exception as error:
            if not isinstance(error, ValueError | RuntimeError | OSError):
                log.exception("loading %s failed", self._wanted["name"])
            self.status = ModelStatus("failed", f"The model could not be loaded: {error}")
        else:
            self.loaded, self.engine = loaded, engine
            info = loaded.info
            quantised = f" from {info.quantised.split()[0]} weights" if info.quantised else ""
            self.status = ModelStatus(
                "ready",
                f"{model_name(info.to_dict())} · {info.n_layers} layers · "
                f"{info.dtype}{quantised} on {info.device}",
            )
        yield

    def _report(self, progress: Progress) -> None:
        left = progress.seconds_left
        more = f", about {round(left)} s left" if left is not None and left >= 1 else ""
        text = progress.message[:1].upper() + progress.message[1:]
        self.status = ModelStatus("loading", f"{text}{more}", progress.done)
