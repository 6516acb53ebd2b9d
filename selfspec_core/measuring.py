"""Times of real rounds on this device, which `cost` fits its numbers to.

Settings are measured in turns, several passes over all of them, so that a machine that is
slow for a while is so for all of them alike.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .cache import BUCKET, round_up
from .cost import Sample
from .engine import Engine
from .events import Round
from .plan import SkipPlan
from .request import Request

WIDTHS = (1, 4, 8, 12, 16, 20)
"""Row counts of the windows that are measured: every one that a request can have, and one row."""

CONTEXTS = (96, 320)
"""Lengths of text that rounds are measured at: one bucket of the cache, and three."""


@dataclass(frozen=True)
class Setting:
    """What is measured.

    Args:
        plan, k: of the rounds; k 0 is plain decoding.
        window: rows of the verification.
        context: tokens of text before the first round.
    """

    plan: SkipPlan
    k: int
    window: int
    context: int


@dataclass(frozen=True)
class Pass:
    """One setting measured once.

    Args:
        done, total: settings measured so far, and in all passes.
        seconds_left: about how long the rest takes.
        setting, rounds: what was measured, and each round's times; None and nothing for an
            extra job.
    """

    done: int
    total: int
    seconds_left: float
    setting: Setting | None
    rounds: tuple[Round, ...]


def settings(engine: Engine, plans: Sequence[SkipPlan], seed: int, most: int = 8) -> list[Setting]:
    """Plain decoding at every width and context, and every plan with some k at some context."""
    source = random.Random(seed)
    contexts = [c for c in CONTEXTS if c + 64 <= engine.context] or [max(1, engine.context // 2)]
    none = SkipPlan(engine.n_layers)
    chosen = [Setting(none, 0, width, context) for width in WIDTHS for context in contexts]
    every = frozenset(range(engine.n_layers))
    # Where all of one kind is kept or gone, its cost stands out from the others'.
    ends = [none, SkipPlan(engine.n_layers, every), SkipPlan(engine.n_layers, mlp=every)]
    for number, plan in enumerate([*ends, *plans]):
        k = source.randint(1, most)
        chosen.append(Setting(plan, k, engine.window_for(k), contexts[number % len(contexts)]))
    return chosen


def measure(
    engine: Engine,
    chosen: Sequence[Setting],
    request: Request,
    *,
    rounds: int = 4,
    passes: int = 4,
    extra: Sequence[Callable[[], object]] = (),
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Pass]:
    """Run rounds of every setting, in an order that changes from pass to pass.

    Args:
        request: rule, sampling and seed of the rounds.
        rounds: of each setting and pass.
        passes: over all settings.
        extra: other jobs to run in between, once a pass, so that they meet the same machine.
    """
    source = random.Random(request.seed)
    total, begin = passes * (len(chosen) + len(extra)), time.perf_counter()
    done = 0
    for _ in range(passes):
        jobs: list[Setting | Callable[[], object]] = [*chosen, *extra]
        source.shuffle(jobs)
        for job in jobs:
            if cancelled():
                return
            taken: tuple[Round, ...] = ()
            if isinstance(job, Setting):
                taken = _rounds(engine, job, request, rounds, source)
            else:
                job()
            done += 1
            left = (time.perf_counter() - begin) / done * (total - done)
            yield Pass(done, total, left, job if isinstance(job, Setting) else None, taken)


def samples(measured: Sequence[Pass]) -> list[Sample]:
    """One sample a setting, of all its rounds that drafted k; see `undisturbed`."""
    by_setting: dict[Setting, list[Round]] = defaultdict(list)
    for each in measured:
        if each.setting is not None:
            whole = [r for r in each.rounds if r.drafted == each.setting.k]
            by_setting[each.setting] += whole[1:] or whole  # the first one finds caches cold
    return [_sample(setting, rounds) for setting, rounds in by_setting.items() if rounds]


def _sample(setting: Setting, rounds: Sequence[Round]) -> Sample:
    layers = setting.plan.n_layers
    return Sample(
        attention=layers - len(setting.plan.attention),
        mlp=layers - len(setting.plan.mlp),
        k=setting.k,
        window=setting.window,
        slots=round_up(setting.context + setting.window, BUCKET),
        committed=statistics.fmean(r.committed for r in rounds),
        draft_ms=undisturbed([r.draft_ms for r in rounds]),
        verify_ms=undisturbed([r.verify_ms for r in rounds]),
        other_ms=undisturbed([r.other_ms for r in rounds]),
        clock_ms=statistics.fmean(r.draft_ms + r.verify_ms + r.other_ms for r in rounds),
    )


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile: what a thing takes when nothing else runs on the machine.

    Other processes only ever add time, often to several rounds in a row, and so they would
    move a mean and even a median.
    """
    ordered = sorted(times)
    return ordered[(len(ordered) - 1) // 4]


def _rounds(
    engine: Engine, setting: Setting, request: Request, count: int, source: random.Random
) -> tuple[Round, ...]:
    """The first rounds of a text that continues random tokens."""
    ids = tuple(source.randrange(2, engine.vocab_size) for _ in range(setting.context))
    budget = min((count + 1) * (setting.k + 1), engine.context - len(ids))
    timed = replace(
        request,
        prompt_ids=ids,
        plan=setting.plan,
        k=setting.k,
        window=setting.window,
        max_new_tokens=budget,
        sampling=replace(request.sampling, min_new_tokens=budget),  # no end before that
    )
    found: list[Round] = []
    for event in engine.stream(timed, lambda: len(found) >= count):
        if isinstance(event, Round):
            found.append(event)
    return tuple(found)
