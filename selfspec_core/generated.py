"""A whole generation: what `Engine.generate` gives."""

from __future__ import annotations

from dataclasses import dataclass

from .events import Done, Event, Start


@dataclass(frozen=True)
class Generated:
    """A whole generation.

    Args:
        events: all of them, `Start` first and `Done` last; a trace.
    """

    events: tuple[Event, ...]

    @property
    def start(self) -> Start:
        """The request as it was understood."""
        assert isinstance(self.events[0], Start)
        return self.events[0]

    @property
    def done(self) -> Done:
        """The figures, the whole text and its ids."""
        assert isinstance(self.events[-1], Done)
        return self.events[-1]

    @property
    def text(self) -> str:
        """The text that was written."""
        return self.done.text

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its token ids."""
        return self.done.tokens
