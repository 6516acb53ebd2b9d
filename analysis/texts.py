"""Texts that the target wrote itself: what importance is measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from selfspec_core.engine import Engine
from selfspec_core.request import Request


class CancelledError(Exception):
    """The person asked to stop; raised from inside long computations."""


@dataclass(frozen=True)
class Text:
    """A prompt and what the model wrote after it.

    Args:
        ids: token ids of both.
        prompt_length: how many of them are the prompt's, at least 1.

    Raises:
        ValueError: there is no prompt, or nothing was written.
    """

    ids: tuple[int, ...]
    prompt_length: int

    def __post_init__(self) -> None:
        if not 1 <= self.prompt_length < len(self.ids):
            raise ValueError("importance needs a prompt and at least one written token")

    @property
    def written(self) -> tuple[int, ...]:
        """Ids of the written tokens, N of them; these are scored."""
        return self.ids[self.prompt_length :]

    def cut(self, tokens: int) -> Text:
        """The same text with at most its first `tokens` written tokens."""
        return Text(self.ids[: self.prompt_length + tokens], self.prompt_length)


def write_texts(
    engine: Engine,
    prompts: Sequence[str],
    *,
    tokens: int = 64,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Text]:
    """Let the whole model answer each prompt greedily; yields each text when it is there.

    Prompts that it answers with nothing are left out.

    Args:
        engine: of the target.
        prompts: as a person writes them; the chat format is applied where the model has one.
        tokens: most tokens of an answer.
        cancelled: asked before every round.

    Raises:
        CancelledError: it answered True.
        RequestError: a prompt that can't be served.
    """
    for prompt in prompts:
        request = Request(prompt=prompt, k=0, max_new_tokens=tokens, window=4)
        generated = engine.generate(request, cancelled=cancelled)
        if generated.done.reason == "cancelled":
            raise CancelledError
        if generated.tokens:
            prompt_ids = generated.start.prompt_ids
            yield Text(prompt_ids + generated.tokens, len(prompt_ids))
