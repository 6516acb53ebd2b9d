"""What a person asks for: one frozen record, checked where it is made."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from .acceptance import Rule
from .auto_policy import AutoPolicy
from .bounded_json import shown
from .plan import LengthSchedule, SkipPlan
from .policies import (
    DEFAULT_CONFIDENCE,
    MAX_K,
    POLICIES,
    AdaptiveConfidence,
    ConfidenceStop,
    DraftPolicy,
    FixedLength,
)
from .sampling import Sampling

START, FIRST_SKIPPED = "start", "first_skipped"
VERIFY_FROM = (START, FIRST_SKIPPED)
"""Where verification starts: at the first branch, or at the first one that the draft skipped."""


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
        k: drafts a round, 0 to 16; 0 is plain decoding. For every policy but "fixed" the most.
        draft_policy: how many of these k: "fixed" drafts them all, "confidence" stops after an
            unlikely one, "adaptive" does so below a threshold that moves with acceptance (Draft
            & Verify), "auto" drafts as many as pay just now, or none. None is "confidence"
            where a `confidence` is given, else "fixed".
        confidence: stop drafting after a token less likely than this in the draft (0 to 1);
            where "adaptive" begins. None is 0.6 for these two.
        rule: acceptance rule: "coupled", "rejection", "threshold" or "typical".
        threshold: θ of the rule `threshold`.
        sampling: how logits become a law.
        draft_temperature: the draft's own temperature, which moves speed and never the output
            of a lossless rule; None is the target's.
        max_new_tokens: exact budget, 0 or more; the context's end cuts it.
        stop: strings that end the text; the token that completes one is the last.
        seed: any integer.
        verify_from: "start", or "first_skipped": verification goes on from the draft's own
            states at the first skipped branch. The output is then plain decoding's but for
            near-ties, since the bits of a state depend on how many rows were computed with it.
        window: rows of every verification forward; None is the engine's choice, the next
            multiple of 4 at or above k + 1, or k + 1 where padding changes no bit.

    Raises:
        RequestError: a value outside what is allowed.
    """

    prompt: str = ""
    prompt_ids: tuple[int, ...] | None = None
    chat: bool | None = None
    plan: SkipPlan | LengthSchedule | None = None
    k: int = 4
    draft_policy: str | None = None
    confidence: float | None = None
    rule: str = "coupled"
    threshold: float = 0.7
    sampling: Sampling = field(default_factory=Sampling)
    draft_temperature: float | None = None
    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    seed: int = 0
    verify_from: str = START
    window: int | None = None

    def __post_init__(self) -> None:
        if type(self.k) is not int or not 0 <= self.k <= MAX_K:
            raise RequestError(f"k must be 0–{MAX_K} (0 is plain decoding), got {shown(self.k)}")
        if type(self.max_new_tokens) is not int or self.max_new_tokens < 0:
            raise RequestError(
                f"max_new_tokens must be 0 or more, got {shown(self.max_new_tokens)}"
            )
        if isinstance(self.stop, str) or any(not isinstance(s, str) or not s for s in self.stop):
            raise RequestError("stop is a tuple of strings, none of them empty")
        if not isinstance(self.seed, int):
            raise RequestError(f"the seed must be a whole number, got {shown(self.seed)}")
        if self.window is not None and (type(self.window) is not int or self.window <= self.k):
            raise RequestError(f"a window for k = {self.k} has at least {self.k + 1} rows")
        if self.draft_temperature is not None and not 0 <= self.draft_temperature <= 10:
            raise RequestError(
                f"draft_temperature must be 0 to 10, got {shown(self.draft_temperature)}"
            )
        if not isinstance(self.prompt, str):
            raise RequestError("one prompt at a time, as text: batches aren't supported yet")
        if self.draft_policy not in (None, *POLICIES):
            raise RequestError(
                f"draft_policy must be one of {', '.join(POLICIES)}, got {shown(self.draft_policy)}"
            )
        if self.confidence is not None and self.policy_name not in ("confidence", "adaptive"):
            raise RequestError(
                f"the policy {self.policy_name!r} looks at no confidence: leave it out, or choose "
                "'confidence' or 'adaptive'"
            )
        if self.verify_from not in VERIFY_FROM:
            raise RequestError(
                f"verify_from must be one of {', '.join(VERIFY_FROM)}, "
                f"got {shown(self.verify_from)}"
            )
        try:
            self.acceptance_rule, self.policy, self.draft_sampling  # noqa: B018  (they check)
        except ValueError as error:
            raise RequestError(str(error)) from None

    @property
    def acceptance_rule(self) -> Rule:
        """The rule with its settings."""
        return Rule(name=self.rule, threshold=self.threshold)

    @property
    def policy_name(self) -> str:
        """The draft policy's name, one of `POLICIES`."""
        if self.draft_policy is not None:
            return self.draft_policy
        return "fixed" if self.confidence is None else "confidence"

    @property
    def policy(self) -> DraftPolicy:
        """How many to draft: a fresh one for each generation."""
        threshold = DEFAULT_CONFIDENCE if self.confidence is None else self.confidence
        match self.policy_name:
            case "confidence":
                return ConfidenceStop(self.k, threshold)
            case "adaptive":
                return AdaptiveConfidence(self.k, threshold)
            case "auto":
                return AutoPolicy(self.k, self._lot)
            case _:
                return FixedLength(self.k)

    @property
    def _lot(self) -> float:
        """0 to 1, evenly spread over prompts and seeds, the same in every process."""
        return random.Random(f"{self.seed} {self.prompt_ids or self.prompt}").random()

    def plainly(self) -> Request:
        """The same request as plain decoding: no drafts, and the window that it would have had."""
        return replace(self, k=0, draft_policy=None, confidence=None, verify_from=START)

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
