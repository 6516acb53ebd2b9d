"""`bench compare`: run a comparison from the command line, and write it down."""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import asdict
from typing import Any

from rich.console import Console

from selfspec_core.engine import Engine
from selfspec_core.request import Request

from . import llama_cpp, report
from .compare import MEASURE, Result, compare
from .drafts import add_verify_from, setup_of
from .lineup import Lineup, Setup
from .memory import peak_of
from .opening import Pace, check_counts, load_model, open_engine, say, setting
from .prompts import Prompt, read_categorised
from .systems import LLAMA_CPP, PLAIN, SYSTEMS

CATEGORY, LENGTH = BREAKDOWNS = ("category", "length")
LENGTHS = "32,128,512"
"""Tokens that `--by length` has every prompt written at."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only `compare` takes."""
    add = parser.add_argument
    add(
        "--systems",
        default="plain,selfspec,hf-generate",
        help=f"all, or of {', '.join(SYSTEMS)} (default plain,selfspec,hf-generate)",
    )
    add(
        "--by",
        metavar="WHAT",
        help="break figures down by category (prompts from each in turn), length, or both, "
        "separated by a comma",
    )
    add(
        "--lengths",
        metavar="N,N",
        help=f"write each prompt at each of these and break down by length "
        f"(default --max-new-tokens alone; with --by length {LENGTHS})",
    )
    add_verify_from(parser)
    add("--early-exit", type=int, metavar="LAYERS", help="of hf-early-exit (default 40%%)")
    add("--out", metavar="FOLDER", help="write compare.json, compare.md and compare.html here")
    add(
        "--memory",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure each system's peak memory in a process of its own (default yes)",
    )


def run(options: argparse.Namespace) -> int:
    """Measure; print tables or one line of JSON."""
    check_counts(options)
    names, left_out = chosen_systems(options.systems)
    for name, why in left_out.items():
        say(f"{name} is left out: {why}")
    by = _by(options)
    lengths = _lengths(options, by)
    prompts = read_categorised(options.prompts, options.limit, by_category=CATEGORY in by)
    if options.out == "":
        raise ValueError("--out names no folder")
    if options.out is not None:
        report.make_folder(options.out)  # now: what was measured mustn't be lost for it
    engine = open_engine(options)
    setup = setup_of(options, engine, [prompt.text for prompt in prompts])
    result = _compared(options, engine, prompts, names, setup, lengths, by)
    notes = list(result.notes)
    if options.memory:
        notes += _add_peaks(options, engine, prompts[0], setup, result)
    figures: dict[str, Any] = {
        "systems": result.systems,
        **setting(engine),
        "plan": str(setup.plan),
        "k": setup.k,
        "policy": setup.drafting,
        "confidence": setup.confidence,
        "verify_from": setup.verify_from,
        "plain_rows": result.plain_rows,
        "lengths": lengths,
        "repeats": options.repeats,
        "notes": notes,
        "left_out": left_out,
    }
    if options.out is not None:
        for path in report.write(options.out, figures):
            say(f"wrote {path}")
    if options.json:
        print(json.dumps(figures, allow_nan=False))
    else:
        console = Console()
        for table in report.tables(figures):
            console.print(table)
        print(report.setting_line(figures))
        print("\n".join(f"note: {note}" for note in notes))
    return 0


def chosen_systems(text: str) -> tuple[list[str], dict[str, str]]:
    """(the systems that a list names, plain first; those that can't run here → why).

    Raises:
        ValueError: an unknown name, or none.
    """
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if wanted == ["all"]:
        wanted = list(SYSTEMS)
    if not wanted:
        raise ValueError(f"--systems names none: choose of all, {', '.join(SYSTEMS)}")
    if unknown := [name for name in wanted if name not in SYSTEMS]:
        raise ValueError(f"unknown system {unknown[0]!r}: choose of all, {', '.join(SYSTEMS)}")
    missing = LLAMA_CPP in wanted and not llama_cpp.is_installed()
    left_out = {LLAMA_CPP: llama_cpp.MISSING} if missing else {}
    return [*dict.fromkeys([PLAIN, *(n for n in wanted if n not in left_out)])], left_out


def _by(options: argparse.Namespace) -> list[str]:
    """What figures are broken down by."""
    by = [part.strip() for part in (options.by or "").split(",") if part.strip()]
    if options.by is not None and (not by or not set(by) <= set(BREAKDOWNS)):
        raise ValueError(f"--by is {' or '.join(BREAKDOWNS)}, or both, got {options.by!r}")
    if options.lengths is not None:
        by.append(LENGTH)
    return [name for name in BREAKDOWNS if name in by]


def _lengths(options: argparse.Namespace, by: list[str]) -> list[int]:
    """Output lengths, ascending."""
    if LENGTH in by:
        text = LENGTHS if options.lengths is None else options.lengths
        try:
            lengths = sorted({int(part) for part in text.split(",")})
        except ValueError:
            raise ValueError(
                f"--lengths is whole numbers such as {LENGTHS}, got {text!r}"
            ) from None
    else:
        lengths = [options.max_new_tokens]
    if lengths[0] < 1:
        raise ValueError(f"a text to measure has 1 token or more, got {lengths[0]}")
    return lengths


def _compared(
    options: argparse.Namespace,
    engine: Engine,
    prompts: list[Prompt],
    names: list[str],
    setup: Setup,
    lengths: list[int],
    by: list[str],
) -> Result:
    lineup = Lineup(
        setup,
        engine=lambda: engine,
        theirs=lambda: load_model(options, engine.loaded.info.dtype),
        gguf=lambda: llama_cpp.gguf_of(options.model, lambda progress: say(progress.message)),
        end_ids=engine.end_ids,
        context=engine.context,
    )
    pace = Pace()
    for step in compare(
        engine,
        prompts,
        names,
        setup,
        lengths=lengths,
        repeats=options.repeats,
        chat=options.chat,
        by=by,
        lineup=lineup,
    ):
        told = f"{step.done}/{step.total} {step.stage} {step.system}"
        if step.stage == MEASURE and step.written is not None:
            speed = len(step.written.tokens) / step.written.seconds
            told += f", prompt {step.prompt + 1}/{len(prompts)}: {speed:.1f} tokens/s"
        pace.tell(told, step.seconds_left)
        if step.result is not None:
            return step.result
    raise AssertionError("a comparison ends with its result")


def _add_peaks(
    options: argparse.Namespace, engine: Engine, prompt: Prompt, setup: Setup, result: Result
) -> list[str]:
    """Add every system's peak; returns why some couldn't be measured: it loses nothing else."""
    failed: list[str] = []
    ids = engine.encode(Request(prompt=prompt.text, chat=options.chat))
    for number, (name, row) in enumerate(result.systems.items(), start=1):
        say(f"memory of {name}, in a process of its own ({number}/{len(result.systems)})")
        try:
            row |= asdict(peak_of(name, options, engine, setup, ids, result.plain_rows))
        except (ValueError, subprocess.TimeoutExpired) as error:
            failed.append(str(error))
            say(failed[-1])
    return failed
