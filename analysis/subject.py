"""What all methods of importance look at: texts, the stack, its float32 copy, settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from selfspec_core.plan import SkipPlan

from .float_copy import FloatCopy
from .scores import LOGPROB, SCORES, Objective
from .stack import Reading, Stack
from .texts import CancelledError, Text

SHORT_TOKENS = 8
"""Written tokens of the one short text that conductance and Shapley values are made of."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to attribute.

    Args:
        score: one of `SCORES`.
        plan: the draft that `integrated_gradients_plan` starts from.
        steps: of integrated gradients.
        budget: seconds each for conductance and for Shapley values.
        seed: of sampling.

    Raises:
        ValueError: an unknown score, or steps or a budget that allow nothing.
    """

    score: str = LOGPROB
    plan: SkipPlan
    steps: int = 8
    budget: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise ValueError(f"a score is one of {', '.join(SCORES)}, got {self.score!r}")
        if not 1 <= self.steps <= 256:
            raise ValueError(f"steps must be 1–256, got {self.steps}")
        if not 0 < self.budget < math.inf:
            raise ValueError(f"the budget must be some seconds, got {self.budget}")


@dataclass(frozen=True, eq=False)
class Subject:
    """What all methods look at.

    Args:
        texts: that the target wrote.
        live: the stack as drafts run it.
        copy: the float32 copy; None where no method needs it.
        settings: how to attribute.
        cancelled: asked often.
    """

    texts: tuple[Text, ...]
    live: Stack
    copy: FloatCopy | None
    settings: Settings
    cancelled: Callable[[], bool]

    @cached_property
    def live_readings(self) -> list[Reading]:
        """The texts, read by the stack as drafts run it."""
        return [self.live.read(text) for text in self.texts]

    @property
    def exact(self) -> FloatCopy:
        """The float32 copy."""
        assert self.copy is not None, "a method that attributes declares that it needs the copy"
        return self.copy

    @cached_property
    def exact_readings(self) -> list[Reading]:
        """The texts, read by the float32 copy."""
        return [self.exact.stack.read(text) for text in self.texts]

    def objective(self, reading: Reading) -> Objective:
        """The score of a text that the float32 copy read."""
        return Objective(self.exact.stack, reading, self.settings.score, self.cancelled)

    @property
    def short(self) -> Objective:
        """The score of the first tokens of the text with the shortest prompt."""
        reading = min(self.exact_readings, key=lambda r: r.text.prompt_length)
        return self.objective(reading.cut(SHORT_TOKENS))

    def check(self) -> None:
        """Raise `CancelledError` if the person asked to stop."""
        if self.cancelled():
            raise CancelledError
