"""The truth that predictions are held against: real decoding, beside plain decoding."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from selfspec_core.check import FOUR_ROWS, SINGLE_ROW
from selfspec_core.engine import Engine
from selfspec_core.events import Done
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request


@dataclass(frozen=True)
class Choice:
    """A way of drafting: a plan, how many, and the draft's own temperature.

    Args:
        plan: what the draft skips.
        k: drafts a round; 0 is plain decoding.
        draft_temperature: None is the target's.
    """

    plan: SkipPlan
    k: int
    draft_temperature: float | None = None

    def request(self, request: Request, prompt: str) -> Request:
        """The request for one prompt."""
        return replace(
            request,
            prompt=prompt,
            plan=self.plan,
            k=self.k,
            draft_temperature=self.draft_temperature,
        )


@dataclass(frozen=True)
class Measured:
    """What decoding some prompts gave.

    Args:
        alpha, tau: accepted ÷ drafted (None where nothing was drafted), tokens a round.
        tokens_per_second: of the rounds.
        speedup: against the fastest plain decoding of the same prompts.
        interval: of the speed-up, 95%, by bootstrap over prompts (Efron 1979).
    """

    alpha: float | None
    tau: float
    tokens_per_second: float
    speedup: float
    interval: tuple[float, float]


def alpha_of(ends: Sequence[Done]) -> float | None:
    """Accepted ÷ drafted over texts; None where nothing was drafted."""
    drafted = sum(end.drafted for end in ends)
    return sum(end.accepted for end in ends) / drafted if drafted else None


def tau_of(ends: Sequence[Done]) -> float:
    """Tokens a round over texts."""
    return sum(len(end.tokens) for end in ends) / max(1, sum(end.rounds for end in ends))


class Confirmation:
    """Decodes every choice and plain decoding on the same prompts, in turns.

    Args:
        engine: warmed up.
        request: sampling, rule, seed and budget.
        choices: by name.
    """

    def __init__(self, engine: Engine, request: Request, choices: Mapping[str, Choice]) -> None:
        self._engine, self._request = engine, request
        self._choices = dict(choices)
        self._ends: dict[str | int, list[Done]] = {name: [] for name in choices}
        # A choice of plain decoding is timed by its row counts, like all plain decoding here.
        for rows in (SINGLE_ROW, FOUR_ROWS):
            self._ends[rows] = []

    def turns(self, prompts: Sequence[str]) -> Iterator[tuple[str | int, Request]]:
        """What to decode next, and whose it is; give what came out to `take`."""
        for number, prompt in enumerate(prompts, start=1):
            names = list(self._ends)
            turn = number % len(names)  # whoever runs first changes from prompt to prompt
            for name in names[turn:] + names[:turn]:
                yield name, self._of(name, prompt)

    def take(self, name: str | int, done: Done) -> None:
        """Count a decoded text."""
        self._ends[name].append(done)

    def run(
        self, prompts: Sequence[str], cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[float]:
        """Decode prompt by prompt; yields about how many seconds are left."""
        begin, each = time.perf_counter(), len(self._ends)
        for count, (name, request) in enumerate(self.turns(prompts), start=1):
            if cancelled():
                return
            self.take(name, self._engine.generate(request).done)
            if count % each == 0:
                number = count // each
                yield (time.perf_counter() - begin) / number * (len(prompts) - number)

    def results(self) -> dict[str, Measured]:
        """What came out, by name."""
        complete = min(len(ends) for ends in self._ends.values())
        ends = {name: found[:complete] for name, found in self._ends.items()}
        if not complete:
            raise ValueError("nothing was decoded: there was no prompt, or it was cancelled")
        return {name: self._measured(ends[name], ends) for name in self._choices}

    def _of(self, name: str | int, prompt: str) -> Request:
        if isinstance(name, int):
            plain = Choice(SkipPlan(self._engine.n_layers), 0).request(self._request, prompt)
            return replace(plain, window=name)
        return self._choices[name].request(self._request, prompt)

    def _measured(self, mine: list[Done], ends: Mapping[str | int, list[Done]]) -> Measured:
        plain = [found for name, found in ends.items() if isinstance(name, int)]

        def speedup(index: Sequence[int]) -> float:
            return _speed(mine, index) / max(_speed(each, index) for each in plain)

        whole = range(len(mine))
        source = random.Random(self._request.seed)
        drawn = sorted(speedup(source.choices(whole, k=len(whole))) for _ in range(400))
        return Measured(
            alpha=alpha_of(mine),
            tau=tau_of(mine),
            tokens_per_second=_speed(mine, whole),
            speedup=speedup(whole),
            interval=(drawn[10], drawn[-11]),
        )


def _speed(ends: Sequence[Done], index: Sequence[int]) -> float:
    seconds = sum(ends[i].seconds for i in index)
    return sum(len(ends[i].tokens) for i in index) / seconds if seconds else 0.0
