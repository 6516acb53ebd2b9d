"""What a person wants compared: systems, lengths and prompts, checked; and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .examples import EXAMPLES
from .limits import LimitError, Limits
from .settings import Settings
from .tune_feed import TuneError
from .tune_subject import whole

PLAIN, SELFSPEC, ASSISTANT, ALONE = "plain", "selfspec", "hf-assistant", "draft-alone"
SYSTEMS = (
    SELFSPEC,
    "hf-generate",
    "hf-early-exit",
    "hf-prompt-lookup",
    ASSISTANT,
    ALONE,
)
"""Of `bench.systems.SYSTEMS`, which isn't imported before the model is: it pulls in torch."""
THEIRS = tuple(name for name in SYSTEMS if name.startswith("hf-"))
"""transformers' own, of whose speed that of this program says nothing."""
DRAFTING = (SELFSPEC, ASSISTANT, ALONE)
"""Those that go by the plan in Decode."""
LENGTHS = {"short": 24, "medium": 128, "long": 512}
"""Tokens of each kind of text; short is what a chat's quick answer has, under 32."""
EXAMPLES_MOST, REPEATS = len(EXAMPLES), (1, 5)
MAX_NAME = 200
_ROWS_TOKENS, _WARM_UP_TOKENS = 10 * 24, 8  # what `bench.compare` writes before it measures


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to compare.

    Args:
        settings: of the Decode panel: prompt, chat, plan, k and how drafting stops.
        systems: beside plain decoding.
        lengths: names of `LENGTHS`.
        examples: how many of the example prompts.
        own: the person's prompt as well.
        repeats: of everything.
        draft_model: another model to draft with; empty for the plan's own checkpoint.

    Raises:
        TuneError: a choice that doesn't exist, or nothing to do.
    """

    settings: Settings
    systems: Any
    lengths: Any
    examples: Any
    own: bool
    repeats: Any
    draft_model: Any = ""

    def __post_init__(self) -> None:
        chosen = _chosen("compare.error.systems", self.systems, SYSTEMS)
        object.__setattr__(self, "systems", chosen)
        object.__setattr__(
            self, "lengths", _chosen("compare.error.lengths", self.lengths, tuple(LENGTHS))
        )
        object.__setattr__(
            self, "examples", _whole("compare.error.examples", self.examples, 0, EXAMPLES_MOST)
        )
        object.__setattr__(self, "repeats", _whole("compare.error.repeats", self.repeats, *REPEATS))
        name = "" if self.draft_model is None else self.draft_model
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise TuneError("compare.error.draft_name", most=MAX_NAME)
        object.__setattr__(self, "draft_model", name.strip())
        if not self.prompts:
            raise TuneError("compare.error.prompts")

    @property
    def prompts(self) -> tuple[str, ...]:
        """The person's first, so that it is there where the time is short."""
        own = (self.settings.prompt,) if self.own else ()
        return own + tuple(p for p in EXAMPLES.values() if p not in own)[: self.examples]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Lengths in tokens, ascending."""
        return tuple(sorted(LENGTHS[name] for name in self.lengths))

    def check(self, limits: Limits) -> None:
        """Refuse what the operator doesn't allow.

        Raises:
            LimitError: which limit it breaks.
        """
        if len(self.prompts) > limits.prompts:
            raise LimitError("prompts", got=len(self.prompts), most=limits.prompts)
        limits.check_length(max(self.tokens))

    def work(self) -> dict[str, int]:
        """System → tokens that it writes at most, getting ready included."""
        each = len(self.prompts) * sum(self.tokens) * self.repeats + _WARM_UP_TOKENS
        work = dict.fromkeys((PLAIN, *self.systems), each)
        work[PLAIN] += _ROWS_TOKENS
        if SELFSPEC in self.systems:  # plain decoding once more, in the window of the drafts
            work[PLAIN] += len(self.prompts) * max(self.tokens)
        return work

    def unmeasured(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Systems whose speed isn't known here yet."""
        return tuple(name for name in self.work() if name not in rates)

    def seconds(self, rates: Mapping[str, float]) -> float | None:
        """How long that takes; None where not even plain decoding's rate is known.

        Args:
            rates: system → seconds a token; one that isn't there counts as plain decoding.
        """
        if PLAIN not in rates:
            return None
        return sum(n * rates.get(name, rates[PLAIN]) for name, n in self.work().items())


def _chosen(error: str, values: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Those of `known` that are among the values, in their order."""
    if not isinstance(values, list | tuple) or not values or any(v not in known for v in values):
        raise TuneError(error)
    return tuple(name for name in known if name in values)


def _whole(error: str, value: Any, least: int, most: int) -> int:
    try:
        return whole("texts", value, least, most)
    except TuneError:
        raise TuneError(error, least=least, most=most) from None
