"""`check --matrix`: the certificate over a grid of settings, with progress and a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from .check import Cell, Checked, check, covering, grid, summary
from .engine import Engine
from .loading import load


def run(options: argparse.Namespace, prompts: Sequence[str]) -> int:
    """Run the whole grid on every prompt, or the covering set on one prompt each.

    Returns:
        0 if every output is identical to plain decoding, which the grid's rule promises.
    """
    cells = covering() if options.covering else grid()
    console = Console(stderr=True)
    rows: list[dict[str, Any]] = []
    engine: Engine | None = None
    columns = (TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(cells))
        for number, cell in enumerate(cells):
            if engine is None or engine.loaded.info.dtype != cell.dtype:
                engine = Engine(
                    load(options.model, device=options.device, dtype=cell.dtype), mode=options.mode
                )
            chosen = [prompts[number % len(prompts)]] if options.covering else prompts
            progress.update(task, description=f"{number + 1}/{len(cells)} {_named(cell)}")
            results = _results(engine, cell, chosen, options)
            rows.append({**asdict(cell), **summary(results)})
            progress.advance(task)
    identical = sum(row["identical"] for row in rows)
    total = sum(row["prompts"] for row in rows)
    if options.json:
        report = {
            "prompts": total,
            "identical": identical,
            "bit_exact": all(row["bit_exact"] for row in rows),
            "near_ties": sum(row["near_ties"] for row in rows),
            "cells": rows,
        }
        print(json.dumps(report))
    else:
        Console().print(_table(rows))
        print(f"{identical} of {total} outputs identical to plain decoding")
    return 0 if identical == total else 1


def _results(
    engine: Engine, cell: Cell, prompts: Sequence[str], options: argparse.Namespace
) -> list[Checked]:
    requests = [
        cell.request(prompt, engine.n_layers, options.max_new_tokens, options.seed)
        for prompt in prompts
    ]
    return list(check(engine, requests, speed=False))


def _named(cell: Cell) -> str:
    return f"{cell.dtype}, T {cell.temperature:g}, k {cell.k}, {cell.ratio:.0%} skipped"


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="speculative against plain decoding")
    for heading in ("dtype", "T", "k", "skipped", "identical", "bits", "α", "τ"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row["dtype"],
            f"{row['temperature']:g}",
            str(row["k"]),
            f"{row['ratio']:.0%}",
            f"{row['identical']}/{row['prompts']}",
            "same" if row["bit_exact"] else "differ",
            "–" if row["alpha"] is None else f"{row['alpha']:.2f}",
            "–" if row["tau"] is None else f"{row['tau']:.2f}",
        )
    return table
