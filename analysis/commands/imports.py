"""`import`: read a plan of ours or another project's, and say whether it fits this model."""

from __future__ import annotations

import argparse
from typing import Any

from selfspec_core.bounded_json import PlanFileError, parse_json, read_text
from selfspec_core.plan_files import PlanFile, write_plan_file
from selfspec_core.plan_formats import FORMATS, parse_foreign

from .common import engine_of, show

OURS = "plan"


def add(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "import", parents=[common], help="read a plan of another project for this model"
    )
    option = parser.add_argument
    option("file", help="a plan file: ours or one of " + ", ".join(FORMATS))
    option("--format", choices=[OURS, *FORMATS], help="default: looks which it is")
    option("--key", help="which entry, where the file has several")
    option("--k", type=int, help="drafts a round, where the file doesn't say")
    option("--out", metavar="plan.json", help="write it as a plan file of ours")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; status 1 where the plan can't be run on this model."""
    text = read_text(options.file)
    data = parse_json(text)
    ours = isinstance(data, dict) and "schema" in data
    if options.format == OURS and not ours:
        raise PlanFileError(f"{options.file} is no plan file of ours: it has no schema")
    engine = engine_of(options)
    info = engine.loaded.info
    if ours and options.format in (None, OURS):
        file = PlanFile.from_json(text, where=options.file)
    else:
        foreign = parse_foreign(text, engine.n_layers, format=options.format, key=options.key)
        k = next((k for k in (options.k, foreign.k) if k is not None), engine.default_k)
        file = PlanFile.of(info, foreign.plan, k=k, confidence=foreign.confidence)
    misfits = file.misfits(info)
    fits = not any(misfit.blocks for misfit in misfits)
    if options.out is not None and fits:
        write_plan_file(options.out, file)
    figures: dict[str, Any] = {
        "plan": str(file.plan),
        "k": file.k,
        "n_layers": file.n_layers,
        "confidence": file.confidence,
        "fits": fits,
        "misfits": [str(misfit) for misfit in misfits],
        "out": options.out if fits else None,
    }
    lines = [f"plan {file.plan}, k {file.k}", *figures["misfits"]]
    lines.append("it fits this model" if fits else "it can't be run on this model")
    show(figures, options, lines)
    return 0 if fits else 1
