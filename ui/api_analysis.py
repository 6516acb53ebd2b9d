"""The jobs behind the endpoints `check`, `importance` and `search`, in slices for the engine.

What was sent is checked when the job is made; what needs the model is checked when it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from . import values
from .api_jobs import Result, Step
from .layers_demand import SCORES
from .layers_slices import in_slices
from .session import Studio
from .settings import MAX_PLAN, Settings
from .tune_feed import Progress
from .tune_searching import STRATEGIES
from .tune_subject import Asked, Subject, Subjects, confirmed, decoded
from .values import SettingsError
from .words import text

if TYPE_CHECKING:
    from analysis.search import Scored
    from analysis.texts import Text
    from selfspec_core.engine import Engine
    from selfspec_core.loading import LoadedModel

Cancelled = Callable[[], bool]
Job = Callable[[Cancelled], Iterator[Any]]
MAX_METHODS = 32
_FINALISTS = 3
_TOLD_SECONDS = 0.5


def check_job(studio: Studio, settings: Settings, prompts: Any) -> Job:
    """Decode prompts both ways and compare.

    Raises:
        ValueError: something that isn't allowed.
    """
    given = _prompts(studio, prompts)
    if values.whole("k", settings.k) < 1:
        raise SettingsError(text("limits.check_k"))

    def run(cancelled: Cancelled) -> Iterator[Any]:
        from selfspec_core.check import checking, summary

        engine, _ = _model(studio)
        requests = [
            replace(settings, prompt=prompt).request(engine.n_layers, studio.limits)
            for prompt in given
        ]
        done: list[Any] = []
        begin = time.monotonic()
        yield Step(f"decoding prompt 1 of {len(given)}", 0.0)
        for checked in checking(engine, requests, cancelled=cancelled):
            if checked is not None:
                done.append(checked)
                left = _left(begin, len(done), len(given))
                at = min(len(done) + 1, len(given))
                yield Step(f"decoding prompt {at} of {len(given)}", len(done) / len(given), left)
            else:
                yield None
        if len(done) < len(given):
            return
        each = [
            {
                "identical": one.identical,
                "bit_exact": one.bit_exact,
                "text": one.speculative.text,
                "difference": None
                if one.difference is None
                else {**asdict(one.difference), "explained": one.difference.explained},
            }
            for one in done
        ]
        yield Result(_plain({**summary(done), "texts": each}))

    return run


def importance_job(
    studio: Studio,
    *,
    prompts: Any,
    methods: Any,
    score: Any,
    plan: Any,
    max_new_tokens: Any,
    budget_seconds: Any,
    seed: Any,
) -> Job:
    """Attribute to the branches of texts that the model writes.

    Raises:
        ValueError: something that isn't allowed.
    """
    given = _prompts(studio, prompts)
    length = values.whole("length", max_new_tokens, least=1, most=256)
    budget = values.number("budget", budget_seconds, least=0.1, most=600)
    chosen = None if methods is None else values.texts("methods", methods)[:MAX_METHODS]
    if chosen == []:
        raise SettingsError(text("limits.no_methods"))
    score = values.choice("score", score, SCORES)
    plan = values.text("plan", plan, most=MAX_PLAN)
    seed = values.whole("seed", seed)

    def run(cancelled: Cancelled) -> Iterator[Any]:
        from analysis.importance import chosen_methods, importance
        from analysis.subject import Settings as How
        from selfspec_core.plan import SkipPlan

        engine, loaded = _model(studio)
        names = chosen_methods(chosen, score)
        how = How(
            score=score,
            plan=SkipPlan.parse(plan, engine.n_layers),
            budget=budget,
            seed=seed % 2**31,
        )
        texts = yield from _written(studio, engine, given, length, cancelled)
        last = None
        for step in in_slices(
            lambda asked: importance(loaded, texts, how, methods=names, cancelled=asked), cancelled
        ):
            if hasattr(step, "importance"):
                last = step
                yield Step(step.message, step.done, step.seconds_left)
            else:
                yield None
        if last is not None and not last.cancelled and not cancelled():
            yield Result(_plain(last.importance.to_dict()))

    return run


@dataclass(frozen=True, kw_only=True)
class _Given(Asked):
    """Prompts that a program gave, in place of the project's own."""

    prompts: tuple[str, ...]

    @property
    def seen(self) -> tuple[str, ...]:
        return self.prompts[::2]

    @property
    def unseen(self) -> tuple[str, ...]:
        return self.prompts[1::2]


def search_job(
    studio: Studio, settings: Settings, prompts: Any, *, seconds: Any, method: Any
) -> Job:
    """Search, then confirm by decoding.

    Raises:
        ValueError: something that isn't allowed.
    """
    given = tuple(_prompts(studio, prompts))
    if len(given) < 2:
        raise SettingsError(text("limits.two_prompts"))
    budget = values.number(
        "budget of seconds", seconds, least=1, most=studio.limits.analysis_seconds
    )
    values.choice("method", method, STRATEGIES)
    asked = _Given(settings=settings, tokens=settings.max_new_tokens, prompts=given)

    def run(cancelled: Cancelled) -> Iterator[Any]:
        from analysis.finding import search
        from analysis.search import Deadline
        from analysis.search_optuna import Study

        _model(studio)
        # Its own, so that nothing of it stays when it is over.
        subject = yield from _told(Subjects(studio).prepared(asked, cancelled))
        objective = subject.fresh_objective()
        study = Study(objective, subject.request, subject.engine.loaded.info.weights_hash)
        deadline, told = Deadline.after(budget, cancelled), 0.0
        seed = subject.request.seed % 2**31
        for name, step in search(objective, deadline, method=method, study=study, seed=seed):
            if time.monotonic() < told + _TOLD_SECONDS:
                yield None
                continue
            told = time.monotonic()
            best = "" if step.best is None else f", best {step.best.speedup:.3f}×"
            done = 1 - deadline.left / budget
            yield Step(f"{name}: {step.trials} plans{best}", done, deadline.left)
        ranked = objective.ranked()[:_FINALISTS]
        if cancelled():
            return
        if not ranked:
            raise SettingsError(text("limits.short_budget"))
        yield from _confirm(subject, ranked, len(objective.scores), cancelled)

    return run


def _confirm(
    subject: Subject, ranked: Sequence[Scored], trials: int, cancelled: Cancelled
) -> Generator[Any, None, None]:
    """Decode the best on prompts they were chosen by, and the winner on the others."""
    from selfspec_core.plan_files import Figures, PlanFile, hash_of_texts

    choices = {str(number): scored.choice for number, scored in enumerate(ranked)}
    engine, request = subject.engine, subject.request
    seen = yield from _told(confirmed(engine, request, choices, subject.seen, cancelled))
    winner = max(choices, key=lambda name: seen[name].speedup)
    chosen, predicted = choices[winner], ranked[int(winner)]
    unseen = yield from _told(
        confirmed(engine, request, {winner: chosen}, subject.unseen, cancelled)
    )
    measured = unseen[winner]
    pays = seen[winner].speedup > 1 and measured.speedup > 1
    file = PlanFile.of(
        engine.loaded.info,
        chosen.plan,
        k=chosen.k if pays else 0,
        rule=request.rule,
        temperature=request.sampling.temperature,
        draft_temperature=chosen.draft_temperature,
        calibration_hash=hash_of_texts(subject.seen),
        predicted=Figures(alpha=predicted.alpha, tau=predicted.tau, speedup=predicted.speedup),
        measured=Figures(
            alpha=measured.alpha,
            tau=measured.tau,
            tokens_per_second=measured.tokens_per_second,
            speedup=measured.speedup,
        ),
    )
    yield Result(
        _plain(
            {
                "plan": str(chosen.plan),
                "k": chosen.k if pays else 0,
                "draft_temperature": chosen.draft_temperature,
                "pays": pays,
                "trials": trials,
                "predicted": {
                    "alpha": predicted.alpha,
                    "tau": predicted.tau,
                    "speedup": predicted.speedup,
                    "interval": [predicted.low, predicted.high],
                },
                "measured_seen": asdict(seen[winner]),
                "measured_unseen": asdict(measured),
                "plan_file": file.to_json(),
            }
        )
    )


def _told(steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
    """The panel's own steps, put into words for a program; returns what they return."""
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            if isinstance(step, Progress):
                yield Step(text(step.key, **dict(step.args)), step.done, step.left)
            else:
                yield None
    finally:
        steps.close()


def _written(
    studio: Studio, engine: Engine, prompts: list[str], length: int, cancelled: Cancelled
) -> Generator[Any, None, list[Text]]:
    from analysis.texts import Text

    found: list[Text] = []
    for number, prompt in enumerate(prompts):
        yield Step(f"the model writes text {number + 1} of {len(prompts)}", 0.0)
        settings = Settings(prompt=prompt, plan="none", k=0, max_new_tokens=length)
        request = settings.request(engine.n_layers, studio.limits)
        start, done = yield from decoded(engine, request, cancelled)
        studio.limits.check_prompt_tokens(len(start.prompt_ids))
        if done.tokens:
            found.append(Text((*start.prompt_ids, *done.tokens), len(start.prompt_ids)))
    if not found:
        raise SettingsError(text("limits.nothing_written"))
    return found


def _prompts(studio: Studio, prompts: Any) -> list[str]:
    given = values.texts("prompts", prompts)
    most = studio.limits.prompts
    if not 1 <= len(given) <= most:
        raise SettingsError(text("limits.prompts", got=len(given), most=most))
    for prompt in given:
        studio.limits.check_prompt(prompt)
        if not prompt.strip():
            raise SettingsError(text("limits.empty_prompt"))
    return given


def _model(studio: Studio) -> tuple[Engine, LoadedModel]:
    engine = studio.ready()
    assert studio.loaded is not None
    return engine, studio.loaded


def _left(begin: float, done: int, total: int) -> float:
    return (time.monotonic() - begin) / done * (total - done)


def _plain(value: Any) -> Any:
    """JSON data: no tuples, and no numbers that JSON hasn't."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
