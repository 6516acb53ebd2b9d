"""`bench scale`: how cost grows with context length, k, skipped share and model depth."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from selfspec_core.engine import Engine
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request

from .drafts import setup_of
from .forwards import BareForwards
from .lineup import Setup
from .opening import Pace, check_counts, engine_on, open_engine, say, setting
from .prompts import read_categorised
from .stack import Stack
from .sweep import Choice, Sweep

PARTS = ("context", "k", "share", "depth")
_PASSES = 5  # over all settings of bare forwards


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only `scale` takes."""
    add = parser.add_argument
    add("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)} (default all)")
    add("--contexts", default="128,512,1024,2048", help="context lengths (default %(default)s)")
    add("--ks", default="2,4,6,8", help="drafts a round (default %(default)s)")
    add("--shares", default="20,40,60,80", help="%% of layers skipped (default %(default)s)")
    add("--layers", default="15,30,60", help="depths of the random stacks (default %(default)s)")
    add("--keep", type=float, default=0.4, help="share of the stack's layers that the draft keeps")
    add("--epsilon", type=float, default=0.003, help="how much the others write (default 0.003)")
    add("--hidden", type=int, default=576, help="width of the stacks (default the built-in's)")


def run(options: argparse.Namespace) -> int:
    """Measure; print tables or one line of JSON."""
    check_counts(options)
    parts = [part.strip() for part in options.parts.split(",") if part.strip()]
    if not parts or not set(parts) <= set(PARTS):
        raise ValueError(f"--parts is of {', '.join(PARTS)}, got {options.parts!r}")
    ks = _numbers("--ks", options.ks, 1, 16)
    stacks = [_stack(options, layers) for layers in _numbers("--layers", options.layers, 4, 512)]
    contexts = _numbers("--contexts", options.contexts, 2, 1 << 20)
    shares = _numbers("--shares", options.shares, 0, 99)
    found: dict[str, Any] = {}
    model_parts = [part for part in parts if part != "depth"]
    if model_parts:
        prompts = read_categorised(options.prompts, options.limit, by_category=False)
        texts = [prompt.text for prompt in prompts]
        engine = open_engine(options)
        setup = setup_of(options, engine, texts)
        ids = [engine.encode(Request(prompt=text, chat=options.chat)) for text in texts]
        found |= setting(engine)
        if "context" in parts:
            found["context"] = by_context(engine, setup, contexts)
        if "k" in parts:
            choices = [Choice(setup.plan, k, setup.confidence, setup.policy) for k in ks]
            found["k"] = _swept(engine, ids, choices, options, "k")
        if "share" in parts:
            plans = {share: _plan_of(engine, share) for share in shares}
            choices = [
                Choice(plan, setup.k, setup.confidence, setup.policy) for plan in plans.values()
            ]
            rows = _swept(engine, ids, choices, options, "share")
            found["share"] = [
                {"share": plan.share, **row} for plan, row in zip(plans.values(), rows, strict=True)
            ]
        del engine
    if "depth" in parts:
        found["depth"] = [by_depth(stack, ks, options) for stack in stacks]
    if options.json:
        print(json.dumps(found, allow_nan=False))
    else:
        _show(found)
    return 0


def by_context(engine: Engine, setup: Setup, contexts: Sequence[int]) -> list[dict[str, float]]:
    """Milliseconds of bare forwards at context lengths that the model has room for, in turns."""
    window = engine.window_for(setup.k)
    fitting = [n for n in contexts if n + window <= engine.context]
    for length in sorted(set(contexts) - set(fitting)):
        say(f"context {length} is left out: this model holds {engine.context} tokens")
    if not fitting:
        raise ValueError(f"no context length of {list(contexts)} fits {engine.context} tokens")
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(2, engine.vocab_size, (max(fitting),), generator=generator).tolist()
    pace = Pace()
    at = {}
    for length in fitting:
        at[length] = BareForwards(engine, text[:length], most=window)
        pace.tell(f"context: {length} tokens are read")
    plan = setup.plan if isinstance(setup.plan, SkipPlan) else setup.plan.at(0)
    jobs: dict[str, Callable[[BareForwards], float]] = {
        "plain_ms": lambda bare: bare.time(1),
        "draft_ms": lambda bare: bare.time(1, plan),
        "window_ms": lambda bare: bare.time(window),
    }
    taken: dict[tuple[int, str], list[float]] = {(n, job): [] for n in fitting for job in jobs}
    for number in range(_PASSES + 1):
        for (length, job), times in taken.items():
            ms = jobs[job](at[length])
            if number:  # the first pass warms up
                times.append(ms)
            pace.tell(f"context: pass {number}/{_PASSES}")
    return [
        {
            "context": length,
            "window": window,
            **{job: statistics.median(taken[length, job]) for job in jobs},
        }
        for length in fitting
    ]


def by_depth(stack: Stack, ks: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    """A random stack: every k, the best of them, and beside it what the policy `auto` reaches."""
    say(f"depth: making {stack.layers} layers")
    loaded = stack.build(device=options.device, dtype=options.dtype)
    engine = engine_on(loaded, options.mode)
    engine.warm_up()
    choices = [*(Choice(stack.plan, k) for k in ks), Choice(stack.plan, max(ks), policy="auto")]
    *rows, auto = _swept(
        engine, stack.prompts(options.limit), choices, options, f"{stack.layers} layers"
    )
    best = max(rows, key=lambda row: row["measured"])
    return {
        "layers": stack.layers,
        "kept": stack.layers - len(stack.plan.attention),
        "epsilon": stack.epsilon,
        "weights_mb": loaded.info.weights_mb,
        "execution": engine.execution,
        **best,
        "auto": auto["measured"],
        "auto_to_best": auto["measured"] / max(1.0, best["measured"]),
        "by_k": rows,
    }


def _swept(
    engine: Engine,
    ids: Sequence[Sequence[int]],
    choices: Sequence[Choice],
    options: argparse.Namespace,
    name: str,
) -> list[dict[str, Any]]:
    sweep = Sweep(engine, ids, choices, tokens=options.max_new_tokens, repeats=options.repeats)
    pace, begin = Pace(), time.perf_counter()
    for done, total in sweep.run():
        left = (time.perf_counter() - begin) / done * (total - done)
        pace.tell(f"{name}: {done}/{total}", left)
    return [sweep.figures(place) for place in range(len(choices))]


def _stack(options: argparse.Namespace, layers: int) -> Stack:
    heads = max(1, options.hidden // 64)
    return Stack(
        layers=layers,
        keep=options.keep,
        epsilon=options.epsilon,
        hidden=options.hidden,
        intermediate=options.hidden * 8 // 3,
        heads=heads,
        kv_heads=heads // 3 if heads % 3 == 0 else heads,
    )


def _plan_of(engine: Engine, share: int) -> SkipPlan:
    most = max(engine.n_layers - 3, 0) / engine.n_layers
    return SkipPlan.from_ratio(min(share / 100, most), engine.n_layers)


def _numbers(name: str, text: str, least: int, most: int) -> list[int]:
    """Whole numbers from a list, ascending.

    Raises:
        ValueError: something else; says what is allowed.
    """
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or not least <= numbers[0] <= numbers[-1] <= most:
        raise ValueError(f"{name} is whole numbers of {least}–{most} with commas, got {text!r}")
    return numbers


_COLUMNS = {
    "context": ("context", "plain_ms", "draft_ms", "window_ms"),
    "k": ("k", "tau", "alpha", "draft_ms", "window_ms", "measured", "ideal", "efficiency"),
    "share": ("share", "alpha", "draft_ms", "plain_ms", "measured", "ideal", "efficiency"),
    "depth": (
        *("layers", "kept", "k", "tau", "alpha", "plain_tps", "draft_ms", "window_ms"),
        *("plain_ms", "measured", "ideal", "efficiency", "auto", "auto_to_best"),
    ),
}


def _show(found: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    for part, columns in _COLUMNS.items():
        if part not in found:
            continue
        table = Table(title=f"by {part}" + (", best k" if part == "depth" else ""))
        for column in columns:
            table.add_column(column, justify="right")
        for row in found[part]:
            table.add_row(*(_cell(row[column]) for column in columns))
        console.print(table)
    print(found.get("execution") or found["depth"][-1]["execution"])


def _cell(value: Any) -> str:
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
