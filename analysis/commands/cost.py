"""`cost`: what a round costs here, what pays, and how well that is foretold."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from analysis.acceptance import Predictor
from analysis.costs import Costing, Costs
from selfspec_core.cost import Speed, mean_slots
from selfspec_core.engine import Engine
from selfspec_core.request import Request

from .common import (
    PLAN_HELP,
    decoding_options,
    engine_of,
    plan_of,
    progress,
    prompts_of,
    request_of,
    show,
    written,
)

MOST = 8


def add(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "cost", parents=[common], help="measure costs here and predict speed from them"
    )
    decoding_options(parser, tokens=24)
    option = parser.add_argument
    option("--plans", type=int, default=20, help="random (plan, k) to judge by (default 20)")
    option("--passes", type=int, default=4, help="over all measurements (default 4)")
    option("--skip", metavar="PLAN", help=f"also find the best k of this plan: {PLAN_HELP}")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    for name, least in (("plans", 0), ("passes", 1)):
        if getattr(options, name) < least:
            raise ValueError(f"--{name} must be {least} or more, got {getattr(options, name)}")
    engine = engine_of(options)
    request, prompts = request_of(options), prompts_of(options)
    engine.warm_up()
    costing = Costing(
        engine, request, prompts, judged=options.plans, passes=options.passes, most=MOST
    )
    for number, each in enumerate(costing.run()):
        if number % 10 == 0:
            progress(f"measuring {each.done}/{each.total}", each.seconds_left)
    costs = costing.result()
    rows, _ = costs.model.plain()
    figures: dict[str, Any] = {
        "median_error": costs.median_error,
        "worst_error": costs.worst_error,
        "clock_error": costs.clock_error,
        "plain_rows": rows,
        "plain_tps": costs.model.plain_speed(),
        "costs": costs.model.to_dict(),
        "plans": [asdict(j) | {"plan": str(j.plan), "error": j.error} for j in costs.judged],
    }
    lines = [costs.model.sentence(), *_told(costs)]
    if options.skip is not None:
        speed = _best(engine, request, prompts, options.skip, costs)
        figures["best"] = asdict(speed) | {"pays": speed.pays}
        lines.append(
            f"best for {options.skip}: k {speed.k}, {speed.speedup:.2f}× "
            f"({speed.low:.2f}–{speed.high:.2f}), {speed.tokens_per_second:.1f} tokens/s"
            if speed.pays
            else f"nothing pays for {options.skip}: plain decoding is the fastest here"
        )
    show(figures, options, lines)
    return 0


def _best(
    engine: Engine, request: Request, prompts: list[str], notation: str, costs: Costs
) -> Speed:
    """The best k of a plan, by its predicted acceptance."""
    plan = plan_of(notation, engine)
    reference, *_ = written(engine, request, prompts)
    table = Predictor(engine, reference, request).table(plan, depth=MOST)
    text = reference.texts[0]
    slots = mean_slots(len(text.prompt_ids), len(text.written), 4)
    return costs.model.best(plan, table.walk, range(1, MOST + 1), slots)


def _told(costs: Costs) -> list[str]:
    lines = [
        f"{j.predicted:6.1f} tokens/s predicted, {j.measured:6.1f} measured "
        f"({j.wall:.1f} by the clock), "
        f"{j.error:5.1%} off  k {j.k}  {j.plan}"
        for j in costs.judged
    ]
    if costs.judged:
        lines.append(
            f"error of predicted tokens/s on {len(costs.judged)} other plans: "
            f"median {costs.median_error:.1%}, worst {costs.worst_error:.1%}; "
            f"by the clock, whatever else ran, median {costs.clock_error:.1%}"
        )
    return lines
