"""`search`: find the plan and k that pay here, confirm them by decoding, compare."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from analysis.acceptance import Predictor
from analysis.confirm import Choice, Confirmation, Measured
from analysis.costs import Costing
from analysis.finding import METHODS, search
from analysis.search import Deadline, Objective, Scored, middle_plans, pareto, random_search
from analysis.search_optuna import Study, draft_verify
from selfspec_core.check import check, summary
from selfspec_core.engine import Engine
from selfspec_core.plan_files import Figures, PlanFile, hash_of_texts, write_plan_file
from selfspec_core.request import Request

from .common import (
    decoding_options,
    engine_of,
    progress,
    prompts_of,
    request_of,
    say,
    show,
    written,
)

_MOST = 8
_CHECKED = 2  # prompts of the certificate that the plan file carries


@dataclass(frozen=True)
class _Found:
    """A method's choice, as predicted."""

    choice: Choice
    predicted: Scored


def add(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "search", parents=[common], help="find the plan and k that pay on this device"
    )
    decoding_options(parser, tokens=48)
    option = parser.add_argument
    option(
        "--budget",
        type=float,
        default=120,
        help="seconds to find a plan in, measuring costs included (default 120); confirming it, "
        "and methods compared with, which get as long each, come on top",
    )
    option("--method", default="all", choices=METHODS, help="default all, one after the other")
    option("--finalists", type=int, default=3, help="plans confirmed by decoding (default 3)")
    option(
        "--compare",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with random search, Draft & Verify's search and the middle layers (default yes)",
    )
    option(
        "--storage",
        help="a file (Optuna's journal) or any Optuna URL such as sqlite:///plans.db: what was "
        "found is kept there, goes on after a kill, and is shared by processes that search",
    )
    option("--out", metavar="plan.json", help="write the plan file here")
    parser.set_defaults(run=run, limit=12)  # half to search on, half to confirm by


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.budget <= 0 or options.finalists < 1:
        raise ValueError("--budget must be above 0 seconds and --finalists 1 or more")
    prompts = prompts_of(options)
    if len(prompts) < 2:
        raise ValueError("a search needs two prompts or more: one to search on, one to confirm by")
    seen, unseen = prompts[::2], prompts[1::2]
    engine, request = engine_of(options), request_of(options)
    engine.warm_up()
    begin = time.perf_counter()
    reference, *_ = written(engine, request, seen)
    costing = Costing(engine, request, passes=2, most=_MOST, training=6)
    for number, each in enumerate(costing.run()):
        if number % 10 == 0:
            progress(f"measuring costs {each.done}/{each.total}", each.seconds_left)
    costs = costing.result().model
    say(costs.sentence())
    predictor = Predictor(engine, reference, request)
    few = max(1, len(reference.texts) // 4)
    screen = Predictor(engine, reference.first(few), request) if len(reference.texts) > 1 else None

    def objective() -> Objective:
        return Objective(predictor, costs, screen=screen, most=_MOST)

    mine = objective()
    study = Study(mine, request, engine.loaded.info.weights_hash, options.storage)
    if study.known:
        say(f"going on from {study.known} plans that {options.storage} has")
    left = max(options.budget - (time.perf_counter() - begin), options.budget / 4)
    deadline, told = Deadline.after(left), 0.0
    for name, step in search(mine, deadline, method=options.method, study=study, seed=options.seed):
        if step.best is not None and time.perf_counter() > told + 2:
            told = time.perf_counter()
            best = step.best
            progress(
                f"{name}: {step.trials} plans, best {best.speedup:.3f}× with k "
                f"{best.choice.k} and {best.choice.plan}",
                step.seconds_left,
            )
    seconds = time.perf_counter() - begin
    ranked = mine.ranked()[: options.finalists]
    if not ranked:
        raise ValueError("the budget was too short to score one plan: give --budget more seconds")
    compared: dict[str, _Found] = {}
    if options.compare:
        compared = _compared(engine, request, seen, objective, left, options)
    return _report(options, engine, request, (seen, unseen), mine, ranked, compared, seconds)


def _compared(
    engine: Engine,
    request: Request,
    prompts: list[str],
    objective: Any,
    seconds: float,
    options: argparse.Namespace,
) -> dict[str, _Found]:
    """What the other methods choose, in as many seconds each."""
    found: dict[str, _Found] = {}
    fresh: Objective = objective()
    for step in random_search(fresh, Deadline.after(seconds), seed=options.seed):
        if step.trials % 10 == 1:
            progress(f"compared with random search: {step.trials} plans", step.seconds_left)
    if fresh.best is not None:
        found["random"] = _Found(fresh.best.choice, fresh.best)
    chosen: Choice | None = None
    deadline = Deadline.after(options.budget)
    for best, left in draft_verify(
        engine, request, prompts, fresh, deadline, k=engine.default_k, seed=options.seed
    ):
        chosen = best
        progress("compared with Draft & Verify's search", left)
    if chosen is not None:
        found["draft-verify"] = _Found(chosen, fresh.at(chosen))
    for name, plan in middle_plans(engine.n_layers).items():
        scored = fresh.score(plan)
        found[name] = _Found(scored.choice, scored)
    return found


def _report(
    options: argparse.Namespace,
    engine: Engine,
    request: Request,
    prompts: tuple[list[str], list[str]],
    objective: Objective,
    ranked: list[Scored],
    compared: Mapping[str, _Found],
    seconds: float,
) -> int:
    finalists = {f"finalist {i}": scored for i, scored in enumerate(ranked, start=1)}
    others = {name: found.choice for name, found in compared.items()}
    choices = {name: scored.choice for name, scored in finalists.items()}
    seen = _decode(engine, request, prompts[0], {**choices, **others}, "seen")
    winner = max(finalists, key=lambda name: seen[name].speedup)
    choice, predicted = finalists[winner].choice, finalists[winner]
    unseen = _decode(engine, request, prompts[1], {"found": choice, **others}, "unseen")
    pays = seen[winner].speedup > 1 and unseen["found"].speedup > 1
    figures: dict[str, Any] = {
        **_figures(choice, predicted, seen[winner], unseen["found"]),
        "pays": pays,
        "trials": len(objective.scores),
        "seconds": seconds,
        "front": [
            {"plan": str(s.choice.plan), "alpha": s.alpha, "draft_ms": s.draft_ms}
            for s in pareto(objective.ranked())
        ],
        "compared": {
            name: _figures(found.choice, found.predicted, seen[name], unseen[name])
            for name, found in compared.items()
        },
    }
    if options.out is not None:
        file = _file(engine, request, choice, predicted, unseen["found"], prompts)
        write_plan_file(options.out, file)
        say(f"wrote {options.out}")
    lines = _table({"found": figures, **figures["compared"]})
    if not pays:
        lines.append(
            "nothing pays here: plain decoding is as fast or faster; these are the plans that lose "
            "least"
        )
    show(figures, options, lines)
    return 0


def _decode(
    engine: Engine,
    request: Request,
    prompts: list[str],
    choices: Mapping[str, Choice],
    name: str,
) -> dict[str, Measured]:
    confirmation = Confirmation(engine, request, choices)
    for left in confirmation.run(prompts):
        progress(f"decoding {name} prompts", left)
    return confirmation.results()


def _figures(choice: Choice, predicted: Scored, seen: Measured, unseen: Measured) -> dict[str, Any]:
    return {
        "plan": str(choice.plan),
        "share": choice.plan.share,
        "k": choice.k,
        "draft_temperature": choice.draft_temperature,
        "predicted": {
            "alpha": predicted.alpha,
            "tau": predicted.tau,
            "speedup": predicted.speedup,
            "interval": [predicted.low, predicted.high],
            "tokens_per_second": predicted.tokens_per_second,
        },
        "measured_seen": asdict(seen),
        "measured_unseen": asdict(unseen),
    }


def _file(
    engine: Engine,
    request: Request,
    choice: Choice,
    predicted: Scored,
    measured: Measured,
    prompts: tuple[list[str], list[str]],
) -> PlanFile:
    certified = [choice.request(request, prompt) for prompt in prompts[1][:_CHECKED]]
    return PlanFile.of_request(
        engine.loaded.info,
        choice.request(request, ""),  # its k too where nothing pays: the figures are of it
        calibration_hash=hash_of_texts(prompts[0]),
        predicted=Figures(
            alpha=predicted.alpha,
            tau=predicted.tau,
            tokens_per_second=predicted.tokens_per_second,
            speedup=predicted.speedup,
        ),
        measured=Figures(
            alpha=measured.alpha,
            tau=measured.tau,
            tokens_per_second=measured.tokens_per_second,
            speedup=measured.speedup,
        ),
        check=summary(list(check(engine, certified, speed=False))),
    )


def _table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """α, τ and speed-up: predicted, measured on seen and on unseen prompts."""
    lines = [
        f"{'':14}  share   k  {'predicted α τ ×':>17}  {'seen α τ ×':>17}  "
        f"{'unseen α τ × (95%)':>31}  plan"
    ]
    for name, row in rows.items():
        told = "  ".join(
            f"{_number(part['alpha'])} {part['tau']:5.2f} {part['speedup']:5.2f}"
            for part in (row["predicted"], row["measured_seen"], row["measured_unseen"])
        )
        low, high = row["measured_unseen"]["interval"]
        lines.append(
            f"{name:14}  {row['share']:5.0%}  {row['k']:2}  {told} ({low:.2f}–{high:.2f})  "
            f"{row['plan']}"
        )
    return lines


def _number(value: float | None) -> str:
    return "    –" if value is None else f"{value:5.2f}"
