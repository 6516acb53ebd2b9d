"""`export`: a plan as another project's file, as a draft checkpoint, or as a program."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.acceptance import Predictor
from analysis.standalone import standalone_table
from selfspec_core.bounded_json import write_text
from selfspec_core.draft_checkpoint import kept_layers, write_draft
from selfspec_core.engine import Engine
from selfspec_core.plan import SkipPlan
from selfspec_core.plan_files import PlanFile, read_plan_file, write_plan_file
from selfspec_core.plan_formats import FORMATS, export_plan
from selfspec_core.request import Request
from selfspec_core.snippet import snippet

from .common import PLAN_HELP, engine_of, plan_of, prompts_of, say, show, written

OURS, CHECKPOINT, SNIPPET = "plan", "draft-checkpoint", "snippet"
_TOKENS = 48


def add(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "export", parents=[common], help="write a plan for other projects, or as a program"
    )
    option = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--plan", metavar="plan.json", help="a plan file of ours")
    source.add_argument("--skip", metavar="PLAN", help=PLAN_HELP)
    option("--k", type=int, help="drafts a round (default: the file's, else 2, on a GPU 4)")
    option("--key", help="name of the entry, in formats that have one")
    option(
        "--format",
        required=True,
        choices=[OURS, *FORMATS, CHECKPOINT, SNIPPET],
        help="what to write; a draft checkpoint is a folder that transformers loads",
    )
    option("--out", required=True, metavar="PATH", help="where to; a checkpoint's folder is new")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    engine: Engine | None = None
    if options.plan is not None:
        file = read_plan_file(options.plan)
        if options.k is not None:
            file = _with_k(file, options.k)
    else:
        engine = engine_of(options)
        k = engine.default_k if options.k is None else options.k
        file = PlanFile.of(engine.loaded.info, plan_of(options.skip, engine), k=k)
    figures: dict[str, Any] = {
        "format": options.format,
        "out": options.out,
        "plan": str(file.plan),
        "k": file.k,
    }
    lines = [f"wrote {options.out}: {options.format}, {file.plan}, k {file.k}"]
    if options.format == OURS:
        write_plan_file(options.out, file)
    elif options.format == SNIPPET:
        program = snippet(file, model=_loads(options, file), name=Path(options.out).name)
        write_text(options.out, program)
    elif options.format == CHECKPOINT:
        engine = engine or engine_of(options)
        file.require(engine.loaded.info)
        found = _checkpoint(options, engine, file)
        figures |= found
        lines += [f"note: {note}" for note in found["notes"]]
        lines.append(
            f"greedy α {found['engine_alpha']:.3f} inside our engine, "
            f"{found['standalone_alpha']:.3f} as a model of its own, which lacks the target's "
            "keys and values"
        )
    else:
        settings = {
            name: value
            for name, value in (
                ("k", file.k),
                ("confidence", file.confidence),
                ("key", options.key),
            )
            if name in FORMATS[options.format].holds and value is not None
        }
        export_plan(options.out, options.format, file.plan, **settings)
    show(figures, options, lines)
    return 0


def _checkpoint(options: argparse.Namespace, engine: Engine, file: PlanFile) -> dict[str, Any]:
    """Write the folder, and predict the acceptance of the draft here and on its own."""
    plan = file.plan
    kept_layers(plan, engine.n_layers)  # refuses before anything is decoded
    assert isinstance(plan, SkipPlan)
    k = max(1, file.k)
    request = Request(max_new_tokens=_TOKENS, seed=options.seed)
    prompts = prompts_of(options)
    wrote = write_draft(options.out, engine.loaded, plan, k=k, confidence=file.confidence)
    say(f"wrote {wrote.folder}; predicting its acceptance")
    reference, *_ = written(engine, request, prompts)
    inside = Predictor(engine, reference, request).table(plan, depth=k).walk(k)
    alone = standalone_table(reference, plan, depth=k).walk(k)
    return {
        "kept": list(wrote.kept),
        "parameters": wrote.parameters,
        "notes": list(wrote.notes),
        "engine_alpha": inside.alpha,
        "engine_tau": inside.tau,
        "standalone_alpha": alone.alpha,
        "standalone_tau": alone.tau,
    }


def _loads(options: argparse.Namespace, file: PlanFile) -> str:
    """What the program has to load: what the person named, else what the file says."""
    name: str = options.model
    return file.model if options.plan is not None and name == "builtin" else name


def _with_k(file: PlanFile, k: int) -> PlanFile:
    """The file with another k; what was measured with the old one no longer holds."""
    return file if k == file.k else replace(file, k=k, predicted=None, measured=None, check=None)
