"""Measured speed-ups beside what is possible at their acceptance and the costs of forwards.

Plain decoding, every choice of plan and k, and the bare forwards that they are made of take
turns in one run, so that a machine that is slow for a while is so for all of them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from selfspec_core.engine import Engine
from selfspec_core.plan import LengthSchedule, SkipPlan

from .figures import bootstrap
from .forwards import BareForwards
from .systems import Written, fastest_plain, ours

BARE_ROUNDS = 3  # bare rounds and plain forwards after each generation


@dataclass(frozen=True)
class Choice:
    """What is drafted with: a plan, k ≥ 1, and how many of these (see `Setup`)."""

    plan: SkipPlan | LengthSchedule
    k: int
    confidence: float | None = None
    policy: str | None = None


@dataclass
class _Taken:
    """What was measured of one choice on one prompt."""

    mine: list[Written] = field(default_factory=list)
    plain: list[Written] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)
    window_ms: list[float] = field(default_factory=list)
    plain_ms: list[float] = field(default_factory=list)


class Sweep:
    """Iterate `run` for progress, then read `figures`.

    Args:
        engine: warmed up.
        prompts: token ids, one list a prompt.
        choices: what to draft with.
        tokens: to write for each.
        repeats: of everything.
        rows: of plain decoding; None finds the fastest.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Sequence[int]],
        choices: Sequence[Choice],
        *,
        tokens: int,
        repeats: int,
        rows: int | None = None,
    ) -> None:
        if tokens < 1 or repeats < 1 or not prompts or not choices:
            raise ValueError("measuring needs prompts, choices, tokens and repeats of 1 or more")
        self._engine, self._prompts, self._choices = engine, prompts, choices
        self._tokens, self._repeats = tokens, repeats
        self.rows = rows or fastest_plain(engine, prompts[0])
        """Rows a forward of plain decoding."""
        self._taken: dict[tuple[int, int], _Taken] = defaultdict(_Taken)

    def run(self) -> Iterator[tuple[int, int]]:
        """Measure; yields (generations done, in all)."""
        choices, done = len(self._choices), 0
        total = self._repeats * len(self._prompts) * (choices + 1)
        for repeat in range(self._repeats):
            for number, ids in enumerate(self._prompts):
                turn = (repeat + number) % (choices + 1)  # whoever is first changes
                plain: list[Written] = []
                for place in [*range(turn, choices + 1), *range(turn)]:
                    if place == choices:
                        plain.append(ours(self._engine, window=self.rows)(ids, self._tokens))
                    else:
                        self._draft(place, number, ids)
                    done += 1
                    yield done, total
                for place in range(choices):
                    self._taken[place, number].plain += plain

    def figures(self, place: int) -> dict[str, Any]:
        """Of one choice.

        Returns:
            `measured`: speed of the rounds ÷ that of the fastest plain decoding; `ideal`:
            τ ÷ (drafts · draft_ms + window_ms) × plain_ms; `efficiency`: measured ÷ ideal, and
            its 95% `interval` over prompts; `tau`, `alpha`, `tps`, `plain_tps`; the bare
            forwards' `draft_ms`, `window_ms`, `plain_ms`, and `window_cost`, window ÷ plain.
        """
        taken = [self._taken[place, number] for number in range(len(self._prompts))]
        first = [each.mine[0] for each in taken]
        rounds, drafted = sum(w.rounds for w in first), sum(w.drafted for w in first)
        tau = sum(len(w.tokens) for w in first) / rounds
        draft_ms = statistics.median(ms for each in taken for ms in each.draft_ms)
        window_ms = statistics.median(ms for each in taken for ms in each.window_ms)
        # Plain forwards were timed between all choices, and are the same for all.
        plain_ms = statistics.median(ms for each in self._taken.values() for ms in each.plain_ms)
        mine, plain = _seconds(taken, "mine"), _seconds(taken, "plain")
        measured = plain / mine
        possible = ideal(tau, drafted / rounds, draft_ms, window_ms, plain_ms)
        each = [_efficiency(one) for one in taken]
        return {
            "plan": str(self._choices[place].plan),
            "k": self._choices[place].k,
            "measured": measured,
            "ideal": possible,
            "efficiency": measured / possible,
            "interval": bootstrap(each),
            "tau": tau,
            "alpha": sum(w.accepted for w in first) / drafted if drafted else None,
            "tps": 1 / mine,
            "plain_tps": 1 / plain,
            "plain_rows": self.rows,
            "draft_ms": draft_ms,
            "window_ms": window_ms,
            "plain_ms": plain_ms,
            "window_cost": window_ms / plain_ms,
            "prompts": len(taken),
        }

    def _draft(self, place: int, number: int, ids: Sequence[int]) -> None:
        """One generation, and the bare forwards of its rounds at the middle of its text."""
        choice, taken = self._choices[place], self._taken[place, number]
        write = ours(
            self._engine,
            plan=choice.plan,
            k=choice.k,
            confidence=choice.confidence,
            policy=choice.policy,
        )
        written = write(ids, self._tokens)
        taken.mine.append(written)
        window = self._engine.window_for(round(written.drafted / max(written.rounds, 1)))
        text = [*ids, *written.tokens[: len(written.tokens) // 2]]
        plan = choice.plan
        here = plan.at(len(text)) if isinstance(plan, LengthSchedule) else plan
        most = self._engine.window_for(choice.k)
        bare = BareForwards(self._engine, text, most=max(most, self.rows))
        bare.round(here, 1, window)  # the first one finds caches cold
        for _ in range(BARE_ROUNDS):
            drafts, verifying = bare.round(here, choice.k, window)
            taken.draft_ms += drafts
            taken.window_ms.append(verifying)
        taken.plain_ms += [bare.time(self.rows) for _ in range(BARE_ROUNDS + 1)][1:]


def ideal(tau: float, drafts: float, draft_ms: float, window_ms: float, plain_ms: float) -> float:
    """The speed-up of rounds that cost their forwards and nothing else.

    Args:
        tau: tokens a round.
        drafts: draft steps a round.
        draft_ms, window_ms, plain_ms: one draft step, one verification, one plain forward.
    """
    return tau / (drafts * draft_ms + window_ms) * plain_ms


def _seconds(taken: Sequence[_Taken], side: str) -> float:
    """Seconds a token of the rounds: the median of the repeats, over all prompts together."""
    seconds, tokens = 0.0, 0
    for each in taken:
        runs: list[Written] = getattr(each, side)
        seconds += statistics.median(w.decoding or 0.0 for w in runs)
        tokens += len(runs[0].tokens)
    return seconds / tokens


def _efficiency(taken: _Taken) -> float:
    """Measured ÷ ideal on one prompt."""
    first = taken.mine[0]
    tau, drafts = len(first.tokens) / first.rounds, first.drafted / first.rounds
    times = (statistics.median(ms) for ms in (taken.draft_ms, taken.window_ms, taken.plain_ms))
    return _seconds([taken], "plain") / _seconds([taken], "mine") / ideal(tau, drafts, *times)
