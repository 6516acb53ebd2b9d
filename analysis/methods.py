"""The methods of importance, each as a generator of its columns so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import gates, modules, signals
from .dropping import drop_each
from .scores import Objective
from .subject import Subject
from .table import TRUTH, Array, Column, column_of

_FEWEST_PERMUTATIONS = 2  # one alone has no error


@dataclass(frozen=True, eq=False)
class Part:
    """What a method has so far: `done`, 0 to 1, and its columns by name."""

    done: float
    columns: Mapping[str, Column] = field(default_factory=dict)


Run = Callable[[Subject], Iterator[Part]]


@dataclass(frozen=True)
class Method:
    """One way to say how important branches are.

    Args:
        run: yields parts; the last one is all of it.
        label: for a person.
        work: rough work in forwards of all texts; None for a method that fills the budget.
        copies: whether it needs the float32 copy.
        at_whole: whether it is a gradient at the whole model, where the score `kl` has its top
            and says nothing.
    """

    run: Run
    label: str
    work: float | None
    copies: bool = True
    at_whole: bool = False


def _each_text(
    name: str,
    of: Callable[[Subject, Objective], tuple[Tensor, Mapping[str, float]]],
    *,
    absolute: bool,
) -> Run:
    """Attribute every text on its own; what comes beside the values is kept in lists."""

    def run(subject: Subject) -> Iterator[Part]:
        found: list[Array] = []
        details: dict[str, list[float]] = {}
        for reading in subject.exact_readings:
            values, beside = of(subject, subject.objective(reading))
            found.append(_array(values))
            for key, value in beside.items():
                details.setdefault(key, []).append(value)
            column = column_of(found, absolute=absolute, details=dict(details))
            yield Part(len(found) / len(subject.texts), {name: column})

    return run


def _input_x_gradient(_: Subject, objective: Objective) -> tuple[Tensor, dict[str, float]]:
    return gates.input_x_gradient(objective), {}


def _gradient_x_activation(_: Subject, objective: Objective) -> tuple[Tensor, dict[str, float]]:
    return modules.layer_gradient_x_activation(objective).absolute, {}


def _gradient_flow(_: Subject, objective: Objective) -> tuple[Tensor, dict[str, float]]:
    return modules.gradient_flow(objective), {}


def _feature_ablation(_: Subject, objective: Objective) -> tuple[Tensor, dict[str, float]]:
    return gates.feature_ablation(objective), {}


def _from_nothing(subject: Subject, objective: Objective) -> tuple[Tensor, dict[str, float]]:
    values, delta = gates.integrated_gradients(objective, n_steps=subject.settings.steps)
    return values, {"convergence_delta": delta, "score_change": float(values.sum()) - delta}


def _from_plan(subject: Subject, objective: Objective) -> tuple[Tensor, dict[str, float]]:
    plan = subject.settings.plan
    values, delta = gates.integrated_gradients(objective, plan, n_steps=subject.settings.steps)
    beside = {"convergence_delta": delta, "score_change": float(values.sum()) - delta}
    kept = gates.plan_gates(plan, objective.stack.n_layers).T.flatten().bool()
    values[kept] = float("nan")  # it says nothing of branches that it never moves
    return values, beside


def _attention(subject: Subject) -> Iterator[Part]:
    """Where attention goes, the mean over heads a branch; heads apart in the details."""
    found: dict[str, list[Array]] = {}
    heads: dict[str, list[Tensor]] = {}
    for number, reading in enumerate(subject.exact_readings, start=1):
        subject.check()
        spread = signals.attention_spread(subject.exact, reading)
        for name, values in (
            ("attention_entropy", spread.entropy),
            ("attention_first", spread.first),
            ("attention_distance", spread.distance),
        ):
            found.setdefault(name, []).append(_array(signals.for_attention(values)))
            heads.setdefault(name, []).append(values)
        columns = {}
        for name, texts in found.items():
            mean = torch.cat(heads[name], dim=-1).mean(dim=-1)  # [n_layers, heads]
            details = {"heads": mean.tolist()}
            columns[name] = column_of(texts, absolute=False, details=details)
        yield Part(number / len(subject.texts), columns)


def _block_influence(subject: Subject) -> Iterator[Part]:
    found: list[Array] = []
    for reading in subject.live_readings:
        subject.check()
        found.append(_array(signals.block_influence(subject.live, reading)))
        column = column_of(found, absolute=False)
        yield Part(len(found) / len(subject.texts), {"block_influence": column})


def _logit_lens(subject: Subject) -> Iterator[Part]:
    found: list[Array] = []
    on_top: list[Tensor] = []
    layers: list[list[int]] = []
    for reading in subject.live_readings:
        subject.check()
        lens = signals.logit_lens(subject.live, reading)
        found.append(_array(lens.undecided()))
        on_top.append(lens.on_top.float())
        layers.append(lens.layer.tolist())
        details = {
            "share_on_top": torch.cat(on_top, dim=1).mean(dim=1).tolist(),  # before each layer
            "layer": list(layers),  # for every text and token
        }
        column = column_of(found, absolute=False, details=details)
        yield Part(len(found) / len(subject.texts), {"logit_lens": column})


def _measured(subject: Subject) -> Iterator[Part]:
    found: dict[str, list[Array]] = {TRUTH: [], "kl": [], "logprob_drop": []}
    for reading in subject.live_readings:
        dropped = drop_each(subject.live, reading, cancelled=subject.cancelled)
        for name, values in zip(
            found, (dropped.lost, dropped.kl, dropped.logprob_drop), strict=True
        ):
            found[name].append(_array(values))
        columns = {name: column_of(texts, absolute=False) for name, texts in found.items()}
        yield Part(len(found[TRUTH]) / len(subject.texts), columns)


def _shapley(subject: Subject) -> Iterator[Part]:
    """As many permutations as the budget holds, of one short text."""
    objective = subject.short
    begin, found = time.perf_counter(), []
    for values in gates.shapley_values(objective, seed=subject.settings.seed):
        found.append(_array(values))
        seconds = time.perf_counter() - begin
        per_token = np.mean(found, axis=0)  # [2L, N]
        totals = np.stack([one.mean(axis=1) for one in found])  # [permutations, 2L]
        error = totals.std(axis=0, ddof=1) / len(found) ** 0.5 if len(found) > 1 else None
        details: dict[str, Any] = {
            "permutations": len(found),
            "budget_seconds": subject.settings.budget,
            "tokens": objective.n_rows,
            "standard_error": None if error is None else error.tolist(),
            "mean_standard_error": None if error is None else float(error.mean()),
        }
        full = seconds * (1 + 1 / len(found)) > subject.settings.budget  # no room for one more
        done = full and len(found) >= _FEWEST_PERMUTATIONS
        part = column_of([per_token], absolute=False, details=details)
        yield Part(1.0 if done else min(seconds / subject.settings.budget, 0.99), {"shapley": part})
        if done:
            return


def _conductance(subject: Subject) -> Iterator[Part]:
    objective = subject.short
    for found in modules.layer_conductance(objective, budget=subject.settings.budget):
        details = {
            "steps": found.steps,
            "budget_seconds": subject.settings.budget,
            "tokens": objective.n_rows,
            "convergence_delta": _numbers(found.deltas),
            "cut_convergence_delta": found.cut_delta,
            "score_change": found.change,
            "branches": int((~found.deltas.isnan()).sum()),
        }
        column = column_of([_array(found.values)], absolute=True, details=details)
        yield Part(found.done, {"layer_conductance": column})


def _array(values: Tensor) -> Array:
    array: Array = values.double().cpu().numpy()
    return array


def _numbers(values: Tensor) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


METHODS: dict[str, Method] = {
    "measured": Method(_measured, "measured: dropped alone", 30, copies=False),
    "block_influence": Method(_block_influence, "block influence", 1, copies=False),
    "logit_lens": Method(_logit_lens, "logit lens", 5, copies=False),
    "attention": Method(_attention, "attention distribution", 2),
    "input_x_gradient": Method(
        _each_text("input_x_gradient", _input_x_gradient, absolute=True),
        "gates: input × gradient",
        4,
        at_whole=True,
    ),
    "layer_gradient_x_activation": Method(
        _each_text("layer_gradient_x_activation", _gradient_x_activation, absolute=True),
        "modules: gradient × activation",
        4,
        at_whole=True,
    ),
    "gradient_flow": Method(
        _each_text("gradient_flow", _gradient_flow, absolute=True),
        "gradient flow",
        4,
        at_whole=True,
    ),
    "integrated_gradients": Method(
        _each_text("integrated_gradients", _from_nothing, absolute=True),
        "gates: integrated gradients from all skipped",
        30,
    ),
    "integrated_gradients_plan": Method(
        _each_text("integrated_gradients_plan", _from_plan, absolute=True),
        "gates: integrated gradients from the plan",
        30,
    ),
    "feature_ablation": Method(
        _each_text("feature_ablation", _feature_ablation, absolute=False),
        "gates: ablation",
        50,
    ),
    "shapley": Method(_shapley, "gates: Shapley values, one short text", None),
    "layer_conductance": Method(_conductance, "modules: conductance, one short text", None),
}
"""What a person can choose, in the order it is run: the truth first, the slowest last."""
