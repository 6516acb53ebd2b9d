"""What a person chose, and the request that it makes: one check for the page and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import parse_plan

if TYPE_CHECKING:
    from selfspec_core.request import Request

LOSSY_RULES = ("threshold", "typical")
MAX_NEW_TOKENS = 4096


class SettingsError(ValueError):
    """A setting that can't be used; the message says what is allowed."""


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

    def request(self, n_layers: int) -> Request:
        """The engine's request for a model of `n_layers` layers.

        Raises:
            ValueError: a value outside what is allowed; the message is for a person.
        """
        # Imported late: the page is up before torch is.
        from selfspec_core.request import Request
        from selfspec_core.sampling import Sampling

        if not isinstance(self.prompt, str) or not self.prompt.strip():
            raise SettingsError("The prompt is empty: write one, or pick an example.")
        length = _whole("length", self.max_new_tokens)
        if not 0 <= length <= MAX_NEW_TOKENS:
            raise SettingsError(f"The length must be 0–{MAX_NEW_TOKENS} tokens, got {length}.")
        confidence = _number("confidence", self.confidence)
        return Request(
            prompt=self.prompt,
            chat=None if self.chat else False,
            plan=parse_plan(str(self.plan), n_layers),
            k=_whole("k", self.k),
            confidence=confidence or None,
            rule=self.rule,
            threshold=_number("threshold", self.threshold),
            sampling=Sampling(
                temperature=_number("temperature", self.temperature),
                top_k=_whole("top-k", self.top_k),
                top_p=_number("top-p", self.top_p),
                min_p=_number("min-p", self.min_p),
                repetition_penalty=_number("repetition penalty", self.repetition_penalty),
                presence_penalty=_number("presence penalty", self.presence_penalty),
            ),
            max_new_tokens=length,
            stop=tuple(line for line in self.stop.split("\n") if line),
            seed=_whole("seed", self.seed),
        )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise SettingsError(f"The {name} must be a number, got {value!r}.")
    return float(value)


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if number in (float("inf"), float("-inf")) or number != int(number):
        raise SettingsError(f"The {name} must be a whole number, got {value!r}.")
    return int(value)
