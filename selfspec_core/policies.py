"""How many tokens are drafted in a round (design §3): fixed, or until the draft is unsure.

A policy belongs to one generation. Before a round it says how many drafts at most, after it it
is told what came of them. It changes how fast a text is written and never the text: under
`rejection` even the decision to stop could bias the law, so it may rest only on tokens that are
verified. That is why an `Outcome` holds no token that a rejection left unjudged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .acceptance_record import AcceptanceRecord

MAX_K = 16
POLICIES = ("fixed", "confidence", "adaptive", "auto")
DEFAULT_CONFIDENCE = 0.6


@dataclass(frozen=True)
class Situation:
    """What is known before a round.

    Args:
        room: most drafts that may be made, from what is left of the budget.
        times: what a round with 0, 1, 2, … drafts takes, in any one unit; as many as the
            request's k allows, or more. Empty where the policy doesn't weigh.
        record: what the engine remembers of drafts under this plan; None where it doesn't weigh.
    """

    room: int
    times: tuple[float, ...] = ()
    record: AcceptanceRecord | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a round.

    Args:
        drafted: drafts that were made.
        accepted: of them, from the first on.
        draft_ms, verify_ms, other_ms: what its parts took.
        window_ms: the verification's forward alone, a part of `verify_ms`.
    """

    drafted: int
    accepted: int
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    window_ms: float = 0.0

    @property
    def judged(self) -> int:
        """Drafts that the rule judged: the accepted and the one rejected, if any."""
        return min(self.accepted + 1, self.drafted)


class DraftPolicy(Protocol):
    """How many tokens to draft in a round. Each generation has its own."""

    @property
    def limit(self) -> int:
        """Most drafts in any round."""

    @property
    def looks(self) -> bool:
        """Whether `stops` is worth asking (it costs a device synchronisation a token)."""

    @property
    def weighs(self) -> bool:
        """Whether `choose` looks at times and record in the coming round: it takes a while to
        find them."""

    def choose(self, situation: Situation) -> int:
        """Most drafts in the coming round, 0 (plain decoding) to `situation.room`."""

    def stops(self, confidence: float) -> bool:
        """Whether to draft no further after a token drawn with this probability.

        The token itself is kept and verified: throwing away a drawn token would bias the law.
        """

    def observe(self, outcome: Outcome) -> None:
        """Learn from a round."""


@dataclass(frozen=True)
class FixedLength:
    """Draft k tokens every round.

    Args:
        k: 0 to 16; 0 is plain decoding.
    """

    k: int
    looks = False
    weighs = False

    def __post_init__(self) -> None:
        if not 0 <= self.k <= MAX_K:
            raise ValueError(f"k must be 0–{MAX_K}, got {self.k}")

    @property
    def limit(self) -> int:
        return self.k

    def choose(self, situation: Situation) -> int:
        return min(self.k, situation.room)

    def stops(self, confidence: float) -> bool:  # noqa: ARG002
        return False

    def observe(self, outcome: Outcome) -> None:
        pass

    def __str__(self) -> str:
        return "fixed"


@dataclass(frozen=True)
class ConfidenceStop(FixedLength):
    """Draft up to k tokens, and stop after one that the draft itself finds unlikely.

    Args:
        k: 0 to 16.
        threshold: stop after a token whose probability in the draft is below this, 0 to 1
            (Zhang et al. 2024, Draft & Verify, arXiv 2309.08168, without their adaptation).
    """

    threshold: float = DEFAULT_CONFIDENCE
    looks = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"the confidence threshold must be 0 to 1, got {self.threshold}")

    def stops(self, confidence: float) -> bool:
        return confidence < self.threshold

    def __str__(self) -> str:
        return f"confidence:{self.threshold:g}"


class AdaptiveConfidence:
    """`ConfidenceStop` whose threshold moves until the drafts are accepted as often as wanted.

    Zhang et al. 2024, Draft & Verify, arXiv 2309.08168, section 3.4: after round e, of which the
    share AR_e of the drafts was accepted,

        AR ← β₁·AR + (1 − β₁)·AR_e
        γ̃ ← γ + ε if AR ≤ α, else γ − ε
        γ ← β₂·γ + (1 − β₂)·γ̃

    with the constants of their published code. AR_e counts the drafts that were judged, where
    they count all that were drafted: how many there were after a rejection depends on tokens
    that nobody verifies, and a threshold that depends on those would bias the law of `rejection`.

    Args:
        k: most drafts a round, 0 to 16.
        threshold: γ at the beginning, 0 to 1; it stays in this range.
        target: the acceptance α that is aimed at.
        memory, inertia: β₁ and β₂.
        step: ε.
    """

    looks = True
    weighs = False

    def __init__(
        self,
        k: int,
        threshold: float = DEFAULT_CONFIDENCE,
        *,
        target: float = 0.9,
        memory: float = 0.5,
        inertia: float = 0.9,
        step: float = 0.01,
    ) -> None:
        self._begin = ConfidenceStop(k, threshold)  # it checks
        self.threshold = threshold
        self.acceptance = target
        """AR; begins at the target, so that no first round moves the threshold by itself."""
        self._target, self._memory, self._inertia, self._step = target, memory, inertia, step

    @property
    def limit(self) -> int:
        return self._begin.k

    def choose(self, situation: Situation) -> int:
        return self._begin.choose(situation)

    def stops(self, confidence: float) -> bool:
        return confidence < self.threshold

    def observe(self, outcome: Outcome) -> None:
        if not outcome.drafted:
            return
        rate = outcome.accepted / outcome.judged
        self.acceptance = self._memory * self.acceptance + (1 - self._memory) * rate
        towards = self.threshold + (self._step if self.acceptance <= self._target else -self._step)
        moved = self._inertia * self.threshold + (1 - self._inertia) * towards
        self.threshold = min(max(moved, 0.0), 1.0)

    def __str__(self) -> str:
        return f"adaptive:{self._begin.threshold:g}"
