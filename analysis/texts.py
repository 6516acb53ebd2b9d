"""Texts that the target wrote itself: what importance and acceptance are measured on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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
        budget: how many tokens it was allowed to write; fewer were written where an end token
            came first. 0 is as many as were written.

    Raises:
        ValueError: there is no prompt, or nothing was written.
    """

    ids: tuple[int, ...]
    prompt_length: int
    budget: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.prompt_length < len(self.ids):
            raise ValueError("a text needs a prompt and at least one written token")
        if not self.budget:
            object.__setattr__(self, "budget", len(self.written))

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """Ids of the prompt, at least one."""
        return self.ids[: self.prompt_length]

    @property
    def written(self) -> tuple[int, ...]:
        """Ids of the written tokens, N of them; these are scored."""
        return self.ids[self.prompt_length :]

    def cut(self, tokens: int) -> Text:
        """The same text with at most its first `tokens` written tokens."""
        return Text(
            self.ids[: self.prompt_length + tokens], self.prompt_length, min(self.budget, tokens)
        )


def write_texts(
    engine: Engine,
    request: Request,
    prompts: Sequence[str],
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Text, float]]:
    """Let the whole model answer the prompts by plain decoding.

    Prompts that it answers with nothing are left out.

    Args:
        engine: of the target.
        request: sampling, seed, rule and budget; its plan, k and draft policy don't matter.
        prompts: as a person writes them, one text each.
        cancelled: asked before every round.

    Yields:
        each text when it is there, and about how many seconds the rest will take.

    Raises:
        CancelledError: `cancelled` answered True.
        RequestError: a prompt that can't be served.
    """
    begin = time.perf_counter()
    window = request.window or engine.window_for(0)
    plain = replace(request.plainly(), plan=None, window=window)
    for number, prompt in enumerate(prompts, start=1):
        one = replace(plain, prompt=prompt, prompt_ids=None)
        generated = engine.generate(one, cancelled=cancelled)
        if generated.done.reason == "cancelled":
            raise CancelledError
        ids = generated.start.prompt_ids
        budget = min(request.max_new_tokens, engine.context - len(ids))
        left = (time.perf_counter() - begin) / number * (len(prompts) - number)
        if generated.tokens:
            yield Text(ids + generated.tokens, len(ids), budget), left
