"""`bench compare`: run a comparison from the command line, and write it down."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console

from selfspec_core.engine import Engine
from selfspec_core.request import Request

from . import llama_cpp, report
from .compare import MEASURE, Result, compare
from .drafts import setup_of
from .lineup import Lineup, Setup
from .memory import peak_of
from .opening import Pace, load_model, open_engine, say, setting
from .prompts import Prompt, read_categorised
from .systems import LLAMA_CPP, PLAIN, SYSTEMS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only `compare` takes."""
    add = parser.add_argument
    add(
        "--systems",
        default="plain,selfspec,hf-generate",
        help=f"all, or of {', '.join(SYSTEMS)} (default plain,selfspec,hf-generate)",
    )
    add("--by", choices=["category"], help="by task category too; prompts from each in turn")
    add("--lengths", metavar="N,N", help="by output length too, for example 32,128,512")
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
    names, left_out = chosen_systems(options.systems)
    for name, why in left_out.items():
        say(f"{name} is left out: {why}")
    lengths = _lengths(options)
    if options.repeats < 1:
        raise ValueError(f"--repeats must be 1 or more, got {options.repeats}")
    by_category = options.by == "category"
    prompts = read_categorised(options.prompts, options.limit, by_category=by_category)
    engine = open_engine(options)
    setup = setup_of(options, engine, [prompt.text for prompt in prompts])
    result = _compared(options, engine, prompts, names, setup, lengths)
    if options.memory:
        _add_peaks(options, engine, prompts[0], setup, result)
    figures: dict[str, Any] = {
        "systems": result.systems,
        **setting(engine),
        "plan": str(setup.plan),
        "k": setup.k,
        "plain_rows": result.plain_rows,
        "lengths": lengths,
        "repeats": options.repeats,
        "notes": list(result.notes),
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
        print("\n".join(f"note: {note}" for note in result.notes))
    return 0


def chosen_systems(text: str) -> tuple[list[str], dict[str, str]]:
    """(the systems that a list names, plain first; those that can't run here → why).

    Raises:
        ValueError: an unknown name.
    """
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if wanted == ["all"]:
        wanted = list(SYSTEMS)
    if unknown := [name for name in wanted if name not in SYSTEMS]:
        raise ValueError(f"unknown system {unknown[0]!r}: choose of all, {', '.join(SYSTEMS)}")
    missing = LLAMA_CPP in wanted and not llama_cpp.is_installed()
    left_out = {LLAMA_CPP: llama_cpp.MISSING} if missing else {}
    return [*dict.fromkeys([PLAIN, *(n for n in wanted if n not in left_out)])], left_out


def _lengths(options: argparse.Namespace) -> list[int]:
    """Output lengths, ascending."""
    if options.lengths is None:
        lengths = [options.max_new_tokens]
    else:
        try:
            lengths = sorted({int(part) for part in options.lengths.split(",")})
        except ValueError:
            raise ValueError(
                f"--lengths is whole numbers such as 32,128,512, got {options.lengths!r}"
            ) from None
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
) -> Result:
    lineup = Lineup(
        setup,
        engine=lambda: engine,
        theirs=lambda: load_model(options, engine.loaded.info.dtype),
        gguf=lambda: llama_cpp.gguf_of(options.model, lambda progress: say(progress.message)),
        end_ids=engine.end_ids,
        context=engine.context,
    )
    by = [*(["category"] if options.by else []), *(["length"] if options.lengths else [])]
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
) -> None:
    ids = engine.encode(Request(prompt=prompt.text, chat=options.chat))
    for number, (name, row) in enumerate(result.systems.items(), start=1):
        say(f"memory of {name}, in a process of its own ({number}/{len(result.systems)})")
        peak = peak_of(name, options, engine, setup, ids, result.plain_rows)
        row |= asdict(peak)
