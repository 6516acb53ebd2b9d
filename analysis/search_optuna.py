"""Optuna's part of the search: TPE, NSGA-II, and a storage that searches share and resume from.

Every plan that any method scores becomes a trial of the study, with what decoding with each k
would count. So a search that was killed goes on from what it knew, and several processes or
machines search one study together, each under the costs of its own device.
"""

from __future__ import annotations

import hashlib
import os
import platform
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import Trial, TrialState, create_trial

from selfspec_core.engine import Engine
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request

from .acceptance import Walked
from .confirm import Choice
from .plans import KEPT_FIRST, KEPT_LAST, of_branches, random_plan
from .search import Counts, Deadline, Objective, Scored, Step

_TEMPERATURE = "draft_temperature"


def storage_of(name: str | None) -> optuna.storages.BaseStorage | str | None:
    """What --storage names: any Optuna URL, or a file, which becomes Optuna's journal.

    None keeps the study in memory.
    """
    if name is None or "://" in name:
        return name
    return optuna.storages.JournalStorage(JournalFileBackend(name))


class Study:
    """The study of one objective. Loads what is known of it, and keeps what is found.

    Args:
        objective: what plans are scored by.
        request: what the texts were written with.
        weights: hash of the model's weights; it, the texts and the request name the study.
        storage: see `storage_of`.
    """

    def __init__(
        self, objective: Objective, request: Request, weights: str, storage: str | None = None
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.objective = objective
        texts = [text.ids for text in objective.predictor.reference.texts]
        told = (weights, texts, asdict(request.sampling), request.rule, request.seed)
        self.by = f"{platform.node()}:{os.getpid()}"
        """Who scores here: kept with every plan."""
        self.name = "plans-" + hashlib.sha256(repr(told).encode()).hexdigest()[:16]
        self._storage = storage_of(storage)
        self._study = self._open("", [StudyDirection.MAXIMIZE])
        objective.on_scored = self._keep
        self.known = self._recall()
        """Plans that were known before."""

    def tpe(self, deadline: Deadline, *, seed: int) -> Iterator[Step]:
        """Tree-structured Parzen estimator (Bergstra et al. 2011), from all that is known."""
        self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=10)
        while deadline.left:
            self._recall()
            # The trial only proposes: a full score is kept as a trial of its own, like all others.
            proposal = self._study.ask()
            scored = self._score(proposal)
            if scored.full:
                self._study.tell(proposal, state=TrialState.FAIL)
            else:
                self._study.tell(proposal, scored.speedup)
            yield self.objective.step(scored, deadline)

    def nsga2(self, deadline: Deadline, *, seed: int) -> Iterator[Step]:
        """NSGA-II (Deb et al. 2002): the front of α against what a draft step costs."""
        study = self._open("-front", [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE])
        study.sampler = optuna.samplers.NSGAIISampler(seed=seed, population_size=24)
        source = random.Random(seed)
        for _ in range(24):
            study.enqueue_trial(self._parameters(random_plan(self.objective.n_layers, source)))
        while deadline.left:
            trial = study.ask()
            scored = self._score(trial)
            study.tell(trial, [scored.alpha, scored.draft_ms])
            yield self.objective.step(scored, deadline)

    # -- trials ---------------------------------------------------------------------------------

    def _open(self, suffix: str, directions: list[StudyDirection]) -> optuna.Study:
        return optuna.create_study(
            study_name=self.name + suffix,
            storage=self._storage,
            directions=directions,
            load_if_exists=True,
        )

    def _score(self, trial: Trial) -> Scored:
        choice = suggested(trial, self.objective)
        return self.objective.score(choice.plan, choice.draft_temperature)

    def _keep(self, scored: Scored, counts: Counts) -> None:
        parameters = self._parameters(scored.choice.plan, scored.choice.draft_temperature)
        self._study.add_trial(
            create_trial(
                value=scored.speedup,
                params=parameters,
                distributions={
                    name: each
                    for name, each in _space(self.objective).items()
                    if name in parameters
                },
                user_attrs={
                    "by": self.by,
                    "plan": str(scored.choice.plan),
                    _TEMPERATURE: scored.choice.draft_temperature,
                    "counts": {str(k): asdict(walked) for k, walked in counts.items()},
                },
            )
        )

    def _recall(self) -> int:
        """Take over what the storage has and the objective doesn't; returns how many."""
        taken = 0
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            stored = trial.user_attrs
            if "counts" not in stored:  # hopeless, and so never looked at in full
                continue
            plan = SkipPlan.parse(stored["plan"], self.objective.n_layers)
            temperature = stored[_TEMPERATURE]
            known = self.objective.scores.get((plan, temperature))
            if known is None or not known.full:
                counts = {int(k): Walked(**walked) for k, walked in stored["counts"].items()}
                self.objective.remember(Choice(plan, 1, temperature), counts)
                taken += 1
        return taken

    def _parameters(self, plan: SkipPlan, temperature: float | None = None) -> dict[str, Any]:
        """A plan as Optuna's parameters; branches outside the space aren't among them."""
        space = _space(self.objective)
        parameters: dict[str, Any] = {
            _name(kind, layer): plan.skips(kind, layer)
            for kind in ("attention", "mlp")
            for layer in range(plan.n_layers)
            if _name(kind, layer) in space
        }
        if _TEMPERATURE in space:
            own = self.objective.predictor.request.sampling.temperature
            parameters[_TEMPERATURE] = own if temperature is None else temperature
        return parameters


def suggested(trial: Trial, objective: Objective) -> Choice:
    """The choice that a trial asks for (its k is left open)."""
    chosen: list[tuple[str, int]] = []
    temperature: float | None = None
    for name, distribution in _space(objective).items():
        if isinstance(distribution, FloatDistribution):
            value = trial.suggest_float(name, distribution.low, distribution.high)
            temperature = round(value, 4)
        elif trial.suggest_categorical(name, (False, True)):
            chosen.append(("attention" if name[0] == "a" else "mlp", int(name[1:])))
    return Choice(of_branches(objective.n_layers, chosen), 1, temperature)


def draft_verify(
    engine: Engine,
    request: Request,
    prompts: Sequence[str],
    objective: Objective,
    deadline: Deadline,
    *,
    k: int,
    seed: int,
) -> Iterator[tuple[Choice, float]]:
    """Draft & Verify's search (Zhang et al. 2024): the wall-clock of real decoding, by TPE.

    Yields:
        the choice with the fewest seconds a token so far, and how long is left.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    best, fastest = Choice(SkipPlan(engine.n_layers), k), float("inf")
    number = 0
    while deadline.left:
        trial = study.ask()
        choice = Choice(suggested(trial, objective).plan, k)
        begin = time.perf_counter()
        done = engine.generate(
            choice.request(request, prompts[number % len(prompts)]),
            cancelled=lambda: not deadline.left,
        ).done
        number += 1
        if not done.tokens or done.reason == "cancelled":
            return
        seconds = (time.perf_counter() - begin) / len(done.tokens)
        study.tell(trial, seconds)
        if seconds < fastest:
            best, fastest = choice, seconds
        yield best, deadline.left


def _space(objective: Objective) -> dict[str, BaseDistribution]:
    """The branches between the first and the last layers, and the draft's temperature."""
    n_layers = objective.n_layers
    inner = range(min(KEPT_FIRST, n_layers - 1), max(n_layers - KEPT_LAST, 1))
    space: dict[str, BaseDistribution] = {
        _name(kind, layer): CategoricalDistribution((False, True))
        for layer in inner
        for kind in ("attention", "mlp")
    }
    temperature = objective.predictor.request.sampling.temperature
    if temperature:
        space[_TEMPERATURE] = FloatDistribution(0.4 * temperature, 1.4 * temperature)
    return space


def _name(kind: str, layer: int) -> str:
    return f"{kind[0]}{layer}"
