"""What there is to know of the model and of plain decoding, as it stands now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .explain import Message
from .words import msg, say

if TYPE_CHECKING:
    from selfspec_core.engine import Engine


class NotLoaded(RuntimeError):
    """The model could not be loaded; the message says why and what to do."""


@dataclass(frozen=True)
class ModelStatus:
    """What the model is doing: `state` is "loading", "ready" or "failed"."""

    state: str
    said: Message | str
    fraction: float | None = None
    failure: Message | None = None
    """Why another model couldn't be loaded in its place."""

    @property
    def text(self) -> str:
        """The same in English, for programs and logs."""
        return say(self.said)


def execution(engine: Engine) -> Message:
    """How forwards are executed now; of eager ones the core's reason why."""
    if engine.building:
        return msg("common.model.compiling")
    if engine.mode == "compiled":
        return msg("common.model.compiled")
    return msg("common.model.eager", why=engine.execution.split("not compiled: ")[-1])


@dataclass(frozen=True)
class Baseline:
    """Plain decoding of a request, measured.

    Args:
        tokens: what it wrote in the request's own window.
        tokens_per_second: the faster of that window and one row a forward.
        measured: when, on the monotonic clock.
        ms: milliseconds that each token of the faster one took,
        texts: and what each added to the text.
    """

    tokens: tuple[int, ...]
    tokens_per_second: float | None
    measured: float
    ms: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()
