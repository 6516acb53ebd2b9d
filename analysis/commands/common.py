"""What the commands share: loading with progress, requests and prompts from options."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from analysis.reference import Reference, Text, write_texts
from selfspec_core.acceptance import RULES
from selfspec_core.engine import Engine
from selfspec_core.execution import await_kernels
from selfspec_core.loading import Progress, load
from selfspec_core.plan import NOTATION, PRESETS, SkipPlan
from selfspec_core.prompts import read_prompts
from selfspec_core.request import Request
from selfspec_core.sampling import Sampling

PLAN_HELP = f"what the draft skips: {NOTATION}; or {', '.join(PRESETS)}; or a share such as 30%%"


def decoding_options(parser: argparse.ArgumentParser, *, tokens: int) -> None:
    """Add the options of what is written and how it is accepted."""
    add = parser.add_argument
    add("--rule", default="coupled", choices=RULES, help="acceptance rule (default coupled)")
    add("--temperature", type=float, default=0.0, help="0 (default) takes the likeliest token")
    add("--top-p", type=float, default=1.0, help="keep the likeliest up to this mass (default 1)")
    add("--max-new-tokens", type=int, default=tokens, help=f"a prompt (default {tokens})")


def engine_of(options: argparse.Namespace) -> Engine:
    """The model that the options name, warmed up; progress goes to stderr."""

    def report(progress: Progress) -> None:
        say(progress.message)

    engine = Engine(
        load(options.model, device=options.device, dtype=options.dtype, progress=report),
        mode=options.mode,
        background=True,
    )
    await_kernels(engine, say)
    say(engine.execution)
    return engine


def prompts_of(options: argparse.Namespace) -> list[str]:
    """The prompts that the options name."""
    if options.limit is not None and options.limit < 1:
        raise ValueError(f"--limit must be 1 or more, got {options.limit}")
    return read_prompts(options.prompts, options.limit)


def request_of(options: argparse.Namespace, **values: Any) -> Request:
    """The request that the options of `decoding_options` make."""
    if options.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens must be 1 or more, got {options.max_new_tokens}")
    return Request(
        rule=options.rule,
        sampling=Sampling(temperature=options.temperature, top_p=options.top_p),
        max_new_tokens=options.max_new_tokens,
        seed=options.seed,
        **values,
    )


def plan_of(text: str, engine: Engine) -> SkipPlan:
    """A single plan; a length schedule is several, and each has its own figures."""
    return SkipPlan.parse(text, engine.n_layers)


def written(
    engine: Engine, request: Request, prompts: Sequence[str]
) -> tuple[Reference, float, float]:
    """The target's texts and what it computed on them: (reference, writing s, reading s)."""
    begin = time.perf_counter()
    texts: list[Text] = []
    for text, left in write_texts(engine, request, prompts):
        texts.append(text)
        progress(f"the target writes: {len(texts)}/{len(prompts)}", left)
    wrote = time.perf_counter()
    reference = Reference(engine.decoder, texts)
    return reference, wrote - begin, time.perf_counter() - wrote


def say(text: str) -> None:
    """A line for a person, beside the output."""
    print(text, file=sys.stderr, flush=True)


def progress(text: str, seconds_left: float) -> None:
    """A line of progress."""
    say(f"{text}, about {seconds_left:.0f} s left")


def show(figures: dict[str, Any], options: argparse.Namespace, lines: Sequence[str]) -> None:
    """The result: JSON with --json, else lines."""
    if options.json:
        print(json.dumps(figures, allow_nan=False))
    else:
        print("\n".join(lines))
