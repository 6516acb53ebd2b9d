"""`bench compare`: systems side by side, interleaved, on the same prompts, dtype and device."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from selfspec_core.engine import Engine
from selfspec_core.loading import load
from selfspec_core.plan import parse_plan
from selfspec_core.prompts import read_prompts
from selfspec_core.request import Request
from selfspec_core.runtime import peak_memory_mb

from .systems import (
    HF_EARLY_EXIT,
    HF_GENERATE,
    HF_PROMPT_LOOKUP,
    PLAIN,
    SELFSPEC,
    SYSTEMS,
    System,
    Written,
    fastest_plain,
    ours,
    transformers_generate,
)


def run(options: argparse.Namespace) -> int:
    """Measure, print a table or one line of JSON."""
    chosen = [name.strip() for name in options.systems.split(",") if name.strip()]
    if unknown := [name for name in chosen if name not in SYSTEMS]:
        raise ValueError(f"unknown system {unknown[0]!r}: choose of {', '.join(SYSTEMS)}")
    prompts = read_prompts(options.prompts, options.limit)
    engine = Engine(load(options.model, device=options.device, dtype=options.dtype))
    ids = [engine.encode(Request(prompt=prompt, chat=options.chat)) for prompt in prompts]
    systems = _systems(options, engine, [PLAIN, *(n for n in chosen if n != PLAIN)], ids[0])
    for write in systems.values():
        write(ids[0], 8)  # warm-up
    runs: dict[str, list[list[Written]]] = {name: [[] for _ in ids] for name in systems}
    names = list(systems)
    for repeat in range(options.repeats):
        for number, prompt_ids in enumerate(ids):
            turn = (repeat + number) % len(names)  # whoever is first changes
            for name in names[turn:] + names[:turn]:
                runs[name][number].append(systems[name](prompt_ids, options.max_new_tokens))
            print(f"repeat {repeat + 1}, prompt {number + 1}/{len(ids)}", file=sys.stderr)
    expected = {name: [repeats[0].tokens for repeats in runs[PLAIN]] for name in names}
    if SELFSPEC in names:  # identity is promised with the same window; plain may have another
        same_window = ours(engine, window=engine.window_for(_k(options, engine)))
        expected[SELFSPEC] = [same_window(one, options.max_new_tokens).tokens for one in ids]
    peak_mb = peak_memory_mb(engine.decoder.device)
    figures = {name: _figures(runs[name], runs[PLAIN], expected[name], peak_mb) for name in names}
    if options.json:
        print(json.dumps({"systems": figures, "execution": engine.execution}))
    else:
        Console().print(_table(figures))
        print(engine.execution)
    return 0


def _systems(
    options: argparse.Namespace, engine: Engine, names: Sequence[str], prompt_ids: Sequence[int]
) -> dict[str, System]:
    """The systems by name; transformers gets its own, unpacked copy of the weights."""
    theirs = None
    if any(name.startswith("hf-") for name in names):
        theirs = load(options.model, device=options.device, dtype=engine.loaded.info.dtype)
    made: dict[str, System] = {}
    for name in names:
        if name == PLAIN:
            made[name] = ours(engine, window=fastest_plain(engine, prompt_ids))
        elif name == SELFSPEC:
            made[name] = ours(
                engine, plan=parse_plan(options.skip, engine.n_layers), k=_k(options, engine)
            )
        else:
            assert theirs is not None
            made[name] = transformers_generate(
                theirs,
                **{
                    HF_GENERATE: {},
                    HF_EARLY_EXIT: {"assistant_early_exit": int(engine.n_layers * 0.4)},
                    HF_PROMPT_LOOKUP: {"prompt_lookup_num_tokens": 3},
                }[name],
            )
    return made


def _k(options: argparse.Namespace, engine: Engine) -> int:
    return engine.default_k if options.k is None else int(options.k)


def _figures(
    runs: Sequence[Sequence[Written]],
    plain: Sequence[Sequence[Written]],
    expected: Sequence[tuple[int, ...]],
    peak_mb: float,
) -> dict[str, Any]:
    """Medians over repeats, then over prompts; the interval is a bootstrap over prompts.

    `expected` is what each prompt's text must be to count as identical.
    """
    ratios = [_speed(mine) / _speed(other) for mine, other in zip(runs, plain, strict=True)]
    first = [repeats[0] for repeats in runs]
    rounds, drafted = sum(w.rounds for w in first), sum(w.drafted for w in first)
    return {
        "tps": statistics.median(_speed(repeats) for repeats in runs),
        "ratio_to_plain": statistics.median(ratios),
        "interval": _bootstrap(ratios),
        "tau": sum(len(w.tokens) for w in first) / rounds if rounds else None,
        "alpha": sum(w.accepted for w in first) / drafted if drafted else None,
        "identical": sum(w.tokens == other for w, other in zip(first, expected, strict=True)),
        "prompts": len(runs),
        "peak_mb": peak_mb,
    }


def _speed(repeats: Sequence[Written]) -> float:
    return statistics.median(len(w.tokens) / w.seconds for w in repeats)


def _bootstrap(values: Sequence[float], *, draws: int = 2000) -> tuple[float, float]:
    """95% interval of the median, by resampling with a fixed seed."""
    generator = random.Random(0)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(draws)
    )
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def _table(figures: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="tokens per second, prompt included")
    for heading in ("system", "tokens/s", "÷ plain", "95%", "τ", "α", "identical to plain"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for name, row in figures.items():
        low, high = row["interval"]
        table.add_row(
            name,
            f"{row['tps']:.1f}",
            f"{row['ratio_to_plain']:.2f}",
            f"{low:.2f}–{high:.2f}",
            "–" if row["tau"] is None else f"{row['tau']:.2f}",
            "–" if row["alpha"] is None else f"{row['alpha']:.2f}",
            f"{row['identical']}/{row['prompts']}",
        )
    return table
