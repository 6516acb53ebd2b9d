"""`python -m analysis importance`: which branches matter, by every method."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analysis.commands.common import PLAN_HELP, engine_of, plan_of, progress, prompts_of, say
from analysis.importance import METHODS, Importance, Settings, chosen_methods, importance
from analysis.scores import LOGPROB, SCORES
from analysis.texts import Text, write_texts
from selfspec_core.engine import Engine
from selfspec_core.request import Request


def add(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command; `common` has the options that all commands share."""
    command = subparsers.add_parser(
        "importance",
        parents=[common],
        help="which branches matter, by Captum, by signals and as measured",
        description="One table: a row a branch, a column a method, and how well each method's "
        "ranking agrees with what dropping the branch alone really costs.",
    )
    option = command.add_argument
    option("--tokens", type=int, default=64, help="written tokens a prompt (default 64)")
    option(
        "--methods",
        default="all",
        metavar="A,B,…",
        help=f"of {', '.join(METHODS)} (default: all)",
    )
    option("--score", default=LOGPROB, choices=SCORES, help=f"what is attributed ({LOGPROB})")
    option(
        "--plan",
        default="standard",
        help=f"the draft that integrated_gradients_plan starts from: {PLAN_HELP} "
        "(default standard)",
    )
    option("--steps", type=int, default=8, help="of integrated gradients (default 8)")
    option(
        "--budget",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="each, for conductance and Shapley values (default 60)",
    )
    option("--html", metavar="FILE", help="write the figures into an HTML file")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load, let the model write, attribute; returns the exit status."""
    names = None if options.methods == "all" else [m.strip() for m in options.methods.split(",")]
    chosen = chosen_methods(names, options.score)
    if options.tokens < 1:
        raise ValueError(f"--tokens must be 1 or more, got {options.tokens}")
    prompts = prompts_of(options)
    engine = engine_of(options)
    settings = Settings(
        score=options.score,
        plan=plan_of(options.plan, engine),
        steps=options.steps,
        budget=options.budget,
        seed=options.seed,
    )
    texts = _written(engine, prompts, options.tokens)
    last = None
    copy_mb = None
    for step in importance(engine.loaded, texts, settings, methods=chosen):
        if step.seconds_left is None:
            say(step.message)
        else:
            progress(step.message, step.seconds_left)
        if step.importance.copy_mb != copy_mb:
            copy_mb = step.importance.copy_mb
            say(f"float32 copy for attribution: {copy_mb:.0f} MB, freed at the end")
        last = step
    if last is None:
        raise ValueError("no method was chosen")
    result = last.importance
    if options.html:
        _write_figures(result, Path(options.html))
    if options.json:
        print(json.dumps(result.to_dict(), allow_nan=False))
    else:
        _show(result, Console(soft_wrap=True))
    return 0


def _written(engine: Engine, prompts: list[str], tokens: int) -> list[Text]:
    texts = []
    for text, left in write_texts(engine, Request(max_new_tokens=tokens), prompts):
        texts.append(text)
        progress(f"the target writes: {len(texts)}/{len(prompts)}", left)
    return texts


def _show(result: Importance, console: Console) -> None:
    frame = result.table()
    columns = list(result.columns)
    values = Table("branch", *columns, title="importance")
    for name, row in frame.iterrows():
        values.add_row(str(name), *("–" if v != v else f"{v:.4g}" for v in row[columns]))
    console.print(values)
    ranks = Table(
        "method", "Spearman", "95% interval", "Kendall", "seconds", "beside it",
        title="rank correlation with the measured loss of agreement",
    )  # fmt: skip
    for name, column in result.columns.items():
        found = result.correlations.get(name)
        interval = found.interval if found else None
        ranks.add_row(
            name,
            _figure(found.spearman if found else None),
            f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "–",
            _figure(found.kendall if found else None),
            f"{column.seconds:.1f}",
            _beside(column.details),
        )
    console.print(ranks)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _beside(details: Any) -> str:
    """The errors that a method leaves, in a few words."""
    told = []
    if "cut_convergence_delta" in details:
        told.append(
            f"{details['steps']} steps, convergence delta {details['cut_convergence_delta']:.3g} "
            f"of {details['score_change']:.3g} nats, {details['tokens']} tokens"
        )
    elif "convergence_delta" in details:
        delta = sum(abs(d) for d in details["convergence_delta"])
        change = sum(abs(c) for c in details["score_change"])
        told.append(f"convergence delta {delta:.3g} of {change:.3g} nats")
    if details.get("mean_standard_error") is not None:
        told.append(
            f"{details['permutations']} permutations, standard error "
            f"{details['mean_standard_error']:.3g} nats, {details['tokens']} tokens"
        )
    return "; ".join(told)


def _write_figures(result: Importance, path: Path) -> None:
    from ..figures import bars, heatmap  # Plotly takes a second to import

    figures = [bars(result, name) for name in result.columns]
    figures += [heatmap(result, name) for name, c in result.columns.items() if c.per_token]
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures)
    ]
    path.write_text('<!doctype html><meta charset="utf-8">' + "".join(parts), encoding="utf-8")
