"""What a person asks for: one frozen record, checked where it is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from .acceptance import Rule
from .drafting import MAX_K, ConfidenceStop, DraftPolicy, FixedLength
from .plan import LengthSchedule, SkipPlan
from .sampling import Sampling


class RequestError(ValueError):
    """A request that can't be served; the message says what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One generation.

    Args:
        prompt: text; or give `prompt_ids`.
        prompt_ids: token ids of the prompt, taken as they are.
        chat: wrap the prompt in the model's chat template; None does so where it has one.
        plan: what the draft skips; None drafts with the whole model. A `LengthSchedule`
            is followed while the text grows.
        k: drafts a round, 0 to 16; 0 is plain decoding.
        confidence: stop drafting after a token less likely than this in the draft (0 to 1);
            None always drafts k.
        rule: acceptance rule: "coupled", "rejection", "threshold" or "typical".
        threshold: θ of the rule `threshold`.
        sampling: how logits become a law.
        draft_temperature: the draft's own temperature, which moves speed and never the output
            of a lossless rule; None is the target's.
        max_new_tokens: exact budget, 0 or more; the context's end cuts it.
        stop: strings that end the text; the token that completes one is the last.
        seed: any integer.
        window: rows of every verification forward; None is the engine's choice, the next
            multiple of 4 at or above k + 1.

    Raises:
        RequestError: a value outside what is allowed.
    """

    prompt: str = ""
    prompt_ids: tuple[int, ...] | None = None
    chat: bool | None = None
    plan: SkipPlan | LengthSchedule | None = None
    k: int = 4
    confidence: float | None = None
    rule: str = "coupled"
    threshold: float = 0.7
    sampling: Sampling = field(default_factory=Sampling)
    draft_temperature: float | None = None
    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    seed: int = 0
    window: int | None = None

    def __post_init__(self) -> None:
        if type(self.k) is not int or not 0 <= self.k <= MAX_K:
            raise RequestError(f"k must be 0–{MAX_K} (0 is plain decoding), got {self.k!r}")
        if type(self.max_new_tokens) is not int or self.max_new_tokens < 0:
            raise RequestError(f"max_new_tokens must be 0 or more, got {self.max_new_tokens!r}")
        if isinstance(self.stop, str) or any(not isinstance(s, str) or not s for s in self.stop):
            raise RequestError("stop is a tuple of strings, none of them empty")
        if not isinstance(self.seed, int):
            raise RequestError(f"the seed must be a whole number, got {self.seed!r}")
        if self.window is not None and (type(self.window) is not int or self.window <= self.k):
            raise RequestError(f"a window for k = {self.k} has at least {self.k + 1} rows")
        if self.draft_temperature is not None and not 0 <= self.draft_temperature <= 10:
            raise RequestError(f"draft_temperature must be 0 to 10, got {self.draft_temperature!r}")
        if not isinstance(self.prompt, str):
            raise RequestError("one prompt at a time, as text: batches aren't supported yet")
        try:
            self.acceptance_rule, self.policy, self.draft_sampling  # noqa: B018  (they check)
        except ValueError as error:
            raise RequestError(str(error)) from None

    @property
    def acceptance_rule(self) -> Rule:
        """The rule with its settings."""
        return Rule(name=self.rule, threshold=self.threshold)

    @property
    def policy(self) -> DraftPolicy:
        """How many to draft."""
        if self.confidence is None:
            return FixedLength(self.k)
        return ConfidenceStop(self.k, self.confidence)

    @property
    def draft_sampling(self) -> Sampling:
        """The draft's settings: the target's, but for its own temperature above 0."""
        if self.draft_temperature is None or self.sampling.greedy:
            return self.sampling
        return self.sampling.at(self.draft_temperature)

    def plan_at(self, length: int, n_layers: int) -> SkipPlan:
        """The plan that drafts when the text has `length` tokens."""
        if self.plan is None:
            return SkipPlan(n_layers)
        return self.plan.at(length) if isinstance(self.plan, LengthSchedule) else self.plan
