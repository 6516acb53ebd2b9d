"""`acceptance`: predict α of a plan without decoding, and hold it against decoding."""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

from analysis.acceptance import Predictor
from analysis.confirm import alpha_of, tau_of
from analysis.plans import random_plans
from selfspec_core.drafting import MAX_K
from selfspec_core.engine import Engine
from selfspec_core.plan import SkipPlan
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


def add(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "acceptance", parents=[common], help="predict acceptance of a plan without decoding"
    )
    decoding_options(parser, tokens=64)
    option = parser.add_argument
    option("--skip", default="light", metavar="PLAN", help=f"{PLAN_HELP} (default light)")
    option("--plans", type=int, help="instead, so many random plans, drawn with --seed")
    option("--k", type=int, help=f"drafts a round, 1–{MAX_K}; default 2 on a CPU, 4 on a GPU")
    option("--draft-temperature", type=float, help="the draft's own (default: the target's)")
    option("--predict-only", action="store_true", help="don't decode to compare")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    engine = engine_of(options)
    k = engine.default_k if options.k is None else options.k
    request = request_of(options, k=k, draft_temperature=options.draft_temperature)
    if k < 1:
        raise ValueError("acceptance is of drafts: k must be 1 or more")
    if options.plans is not None and options.plans < 1:
        raise ValueError(f"--plans must be 1 or more, got {options.plans}")
    plans = (
        [plan_of(options.skip, engine)]
        if options.plans is None
        else random_plans(engine.n_layers, options.plans, options.seed)
    )
    prompts = prompts_of(options)
    engine.warm_up()
    reference, writing, reading = written(engine, request, prompts)
    predictor = Predictor(engine, reference, request)
    predictor.table(plans[0], depth=1, draft_temperature=options.draft_temperature)  # warm
    rows, begin = [], time.perf_counter()
    for number, plan in enumerate(plans, start=1):
        rows.append(_row(engine, predictor, request, plan, prompts, not options.predict_only))
        left = (time.perf_counter() - begin) / number * (len(plans) - number)
        progress(f"plan {number}/{len(plans)}: {_line(rows[-1])}", left)
    figures: dict[str, Any] = {
        "k": k,
        "rule": options.rule,
        "texts": len(reference.texts),
        "tokens": reference.written,
        "writing_seconds": writing,
        "reading_seconds": reading,
    }
    if options.plans is None:
        figures |= rows[0]
    else:
        figures["plans"] = rows
        for name in ("predicted_alpha", "measured_alpha", "times_faster"):
            values = [row[name] for row in rows if row[name] is not None]
            figures[name] = statistics.fmean(values) if values else None
    errors = [row["error"] for row in rows if row["error"] is not None]
    figures["median_error"] = statistics.median(errors) if errors else None
    figures["worst_error"] = max(errors, default=None)
    lines = [_line(row) for row in rows]
    if errors:
        lines.append(
            f"error of predicted α: median {figures['median_error']:.3f}, "
            f"worst {figures['worst_error']:.3f}"
        )
        slower = sum(row["decoding_seconds"] for row in rows)
        quicker = sum(row["predicting_seconds"] for row in rows)
        figures["times_faster"] = slower / quicker
        lines.append(
            f"predicting took {quicker:.1f} s, decoding {slower:.1f} s: "
            f"{slower / quicker:.0f} times faster; the target's own writing, done once, "
            f"{writing:.1f} s, and reading it {reading:.1f} s"
        )
    show(figures, options, lines)
    return 0


def _row(
    engine: Engine,
    predictor: Predictor,
    request: Request,
    plan: SkipPlan,
    prompts: list[str],
    decode: bool,
) -> dict[str, Any]:
    begin = time.perf_counter()
    temperature = request.draft_temperature
    table = predictor.table(plan, depth=request.k, draft_temperature=temperature, k=request.k)
    walked = table.walk(request.k)
    predicting = time.perf_counter() - begin
    row: dict[str, Any] = {
        "plan": str(plan),
        "predicted_alpha": walked.alpha,
        "predicted_tau": walked.tau,
        "by_depth": table.by_depth(),
        "predicting_seconds": predicting,
        "measured_alpha": None,
        "measured_tau": None,
        "decoding_seconds": None,
        "times_faster": None,
        "error": None,
    }
    if decode:
        begin = time.perf_counter()
        ends = [
            engine.generate(replace(request, prompt=prompt, plan=plan)).done for prompt in prompts
        ]
        seconds = time.perf_counter() - begin
        alpha = alpha_of(ends)
        row |= {
            "measured_alpha": alpha,
            "measured_tau": tau_of(ends),
            "decoding_seconds": seconds,
            "times_faster": seconds / predicting,
            "error": None if alpha is None else abs(alpha - walked.alpha),
        }
    return row


def _line(row: dict[str, Any]) -> str:
    told = f"α {row['predicted_alpha']:.3f} τ {row['predicted_tau']:.2f} predicted"
    if row["measured_alpha"] is not None:
        told += (
            f", α {row['measured_alpha']:.3f} τ {row['measured_tau']:.2f} decoded "
            f"({row['times_faster']:.0f} times slower)"
        )
    return f"{told}  {row['plan']}"
