"""What this engine drafts with: a plan given, from a file, or searched here and now."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from analysis.acceptance import Predictor
from analysis.costs import Costing
from analysis.finding import search
from analysis.reference import Reference, Text, write_texts
from analysis.search import Deadline, Objective
from analysis.search_optuna import Study
from selfspec_core.command_line import EXAMPLE_PROMPTS
from selfspec_core.engine import Engine
from selfspec_core.plan import parse_plan
from selfspec_core.plan_files import read_plan_file
from selfspec_core.policies import POLICIES
from selfspec_core.prompts import read_prompts
from selfspec_core.request import START, VERIFY_FROM, Request

from .lineup import Setup
from .opening import Pace, say

CALIBRATION_PROMPTS, CALIBRATION_TOKENS = 6, 48
MOST_K = 8
USUAL, USUAL_LAST = "a3-8", 8
"""What the draft skips unless told otherwise, and its last layer."""


def add_draft_options(parser: argparse.ArgumentParser) -> None:
    """Add `--skip`, `--k`, `--plan`, `--search`."""
    source = parser.add_mutually_exclusive_group()
    add_plan(parser, source)
    add_source = source.add_argument
    add_source("--plan", metavar="FILE.json", help="a plan file, with its k, policy and confidence")
    add_source(
        "--search", type=float, metavar="SECONDS", help="search a plan and k on other prompts first"
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        help="how many of k are drafted (default the plan file's, else fixed)",
    )


def add_verify_from(parser: argparse.ArgumentParser) -> None:
    """Add `--verify-from`, for what compares whole texts: what a window costs then isn't known
    to those that measure bare forwards."""
    parser.add_argument(
        "--verify-from",
        choices=VERIFY_FROM,
        default=START,
        help="first_skipped: verification goes on from the draft's own states (default start)",
    )


def add_plan(parser: argparse.ArgumentParser, source: Any = None) -> None:
    """Add `--skip` (to a group, where one is given) and `--k`."""
    (source or parser).add_argument(
        "--skip",
        metavar="PLAN",
        help=f"what the draft skips (default {USUAL}; standard where the model has fewer layers)",
    )
    parser.add_argument(
        "--k", type=int, help="drafts a round; default the plan's, else 2 on a CPU, 4 on a GPU"
    )


def skip_of(options: argparse.Namespace, n_layers: int) -> str:
    """The plan that `--skip` names, or the default for a model of so many layers."""
    given: str | None = options.skip
    return given or (USUAL if n_layers > USUAL_LAST else "standard")


def setup_of(options: argparse.Namespace, engine: Engine, measured: Sequence[str] = ()) -> Setup:
    """What the options say to draft with.

    Args:
        options: of `add_draft_options`.
        engine: warmed up.
        measured: prompts that the figures will be taken on; a search uses others.

    Raises:
        ValueError: no such plan or file, one of another model, or one that drafts nothing.
    """
    chosen = {
        "policy": options.policy,
        "verify_from": getattr(options, "verify_from", START),
        "early_exit": getattr(options, "early_exit", None),
    }
    if options.plan is not None:
        file = read_plan_file(options.plan)
        file.require(engine.loaded.info)
        k = file.k if options.k is None else options.k
        if k == 0:
            raise ValueError(
                f"{options.plan} says k 0, plain decoding: give --k to draft with its plan anyway"
            )
        chosen["policy"] = options.policy or file.policy
        looks = chosen["policy"] not in ("fixed", "auto")  # the file's confidence is of its policy
        return Setup(plan=file.plan, k=k, confidence=file.confidence if looks else None, **chosen)
    if options.search is not None:
        return _searched(options, engine, measured, chosen)
    k = engine.default_k if options.k is None else options.k
    return Setup(plan=parse_plan(skip_of(options, engine.n_layers), engine.n_layers), k=k, **chosen)


def _searched(
    options: argparse.Namespace, engine: Engine, measured: Sequence[str], chosen: dict[str, Any]
) -> Setup:
    """The plan with the highest predicted speed that so many seconds find, costs included."""
    if options.search <= 0:
        raise ValueError(f"--search must be above 0 seconds, got {options.search}")
    prompts = _others(options.prompts, measured)
    request = Request(max_new_tokens=CALIBRATION_TOKENS, chat=options.chat)
    begin, pace = time.perf_counter(), Pace()
    texts: list[Text] = []
    for text, left in write_texts(engine, request, prompts):
        texts.append(text)
        pace.tell(f"search: the target writes, {len(texts)}/{len(prompts)}", left)
    reference = Reference(engine.decoder, texts)
    costing = Costing(engine, request, passes=2, most=MOST_K, training=6)
    for each in costing.run():
        pace.tell(f"search: measuring costs, {each.done}/{each.total}", each.seconds_left)
    predictor = Predictor(engine, reference, request)
    screen = Predictor(engine, reference.first(1), request) if len(texts) > 1 else None
    objective = Objective(predictor, costing.result().model, screen=screen, most=MOST_K)
    study = Study(objective, request, engine.loaded.info.weights_hash)
    left = max(options.search - (time.perf_counter() - begin), options.search / 4)
    for name, step in search(objective, Deadline.after(left), study=study):
        best = f", best {step.best.speedup:.2f}×" if step.best else ""
        pace.tell(f"search: {name}, {step.trials} plans{best}", step.seconds_left)
    if objective.best is None:
        raise ValueError("--search was too short to score one plan: give it more seconds")
    found = objective.best
    k = found.choice.k if options.k is None else options.k
    say(f"found {found.choice.plan} with k {k}, predicted {found.speedup:.2f}× plain decoding")
    return Setup(plan=found.choice.plan, k=k, **chosen)


def _others(path: str, measured: Sequence[str]) -> list[str]:
    """Prompts to search on that aren't measured: of the same file, else the project's own."""
    taken = set(measured)
    for source in (path, EXAMPLE_PROMPTS):
        others = [prompt for prompt in read_prompts(source) if prompt not in taken]
        if others:
            # Spread over the file, whose prompts may be sorted by task.
            return others[:: max(1, len(others) // CALIBRATION_PROMPTS)][:CALIBRATION_PROMPTS]
    raise ValueError("--search has no prompt left that isn't measured: lower --limit")
