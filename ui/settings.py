"""What a person chose, and the request that it makes: one check for the page and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from selfspec_core.bounded_json import shown
from selfspec_core.plan import parse_plan
from selfspec_core.policies import MAX_K

from . import values
from .limits import Limits
from .values import SettingsError

if TYPE_CHECKING:
    from selfspec_core.request import Request

__all__ = ["LOSSY_RULES", "Settings", "SettingsError"]

LOSSY_RULES = ("threshold", "typical")
MAX_PLAN, MAX_STOP, MAX_NAME = 10_000, 2_000, 100
"""Characters of a plan, of all stop strings together, and of a name."""

_ANYTHING = Limits()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The controls' values as they come from a page or an API call, unchecked."""

    prompt: str
    plan: str = "standard"
    k: Any = 2
    temperature: Any = 0.0
    rule: str = "coupled"
    seed: Any = 0
    max_new_tokens: Any = 128
    chat: bool = True
    threshold: Any = 0.7
    top_k: Any = 0
    top_p: Any = 1.0
    min_p: Any = 0.0
    repetition_penalty: Any = 1.0
    presence_penalty: Any = 0.0
    confidence: Any = 0.0
    """Stop drafting after a token less likely than this; 0 never stops."""
    stop: str = ""
    """Texts that end the generation, one a line."""
    draft_policy: str = "fixed"
    """How many to draft: one of `selfspec_core.policies.POLICIES`."""
    verify_from: str = "start"
    """Where verification begins: "start" or "first_skipped"."""
    draft_temperature: Any = None
    """The draft's own temperature; None is the text's."""

    def request(self, n_layers: int, limits: Limits = _ANYTHING) -> Request:
        """The engine's request for a model of `n_layers` layers, within the operator's limits.

        Raises:
            ValueError: a value outside what is allowed; the message is for a person.
        """
        # Imported late: the page is up before torch is.
        from selfspec_core.request import Request
        from selfspec_core.sampling import Sampling

        prompt = values.text("prompt", "" if self.prompt is None else self.prompt)
        if not prompt.strip():
            raise SettingsError("The prompt is empty: write one, or pick an example.")
        limits.check_prompt(prompt)
        length = values.whole("length", self.max_new_tokens)
        limits.check_length(length)
        k = _draft_length(self.k, limits)
        if limits.max_k < MAX_K:
            limits.check_k(k)
        confidence = values.number("confidence", self.confidence)
        policy = values.text("draft policy", self.draft_policy, most=MAX_NAME)
        stop = values.text("stop", self.stop, most=MAX_STOP)
        own = self.draft_temperature
        drafts_at = (
            None if own is None else values.number("draft temperature", own, least=0, most=10)
        )
        return Request(
            prompt=prompt,
            chat=None if values.flag("chat", self.chat) else False,
            plan=parse_plan(values.text("plan", self.plan, most=MAX_PLAN), n_layers),
            k=k,
            # A confidence alone asks for the policy of that name.
            draft_policy=None if policy == "fixed" else policy,
            confidence=None if policy == "auto" else confidence or None,
            rule=values.text("rule", self.rule, most=MAX_NAME),
            threshold=values.number("threshold", self.threshold),
            sampling=Sampling(
                temperature=values.number("temperature", self.temperature),
                top_k=values.whole("top-k", self.top_k),
                top_p=values.number("top-p", self.top_p),
                min_p=values.number("min-p", self.min_p),
                repetition_penalty=values.number("repetition penalty", self.repetition_penalty),
                presence_penalty=values.number("presence penalty", self.presence_penalty),
            ),
            max_new_tokens=length,
            stop=tuple(line for line in stop.split("\n") if line),
            seed=values.whole("seed", self.seed),
            verify_from=values.text("verify from", self.verify_from, most=MAX_NAME),
            draft_temperature=drafts_at,
        )


def _draft_length(k: Any, limits: Limits) -> int:
    """A whole number of drafted tokens; whether it is one that is allowed, the core says."""
    try:
        return values.whole("k", k)
    except SettingsError:
        most = limits.max_k
        raise SettingsError.of("limits.draft_length", most=most, value=shown(k)) from None
