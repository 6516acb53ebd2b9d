"""`bench ideal`: the engine's own efficiency, apart from how well the draft guesses."""

from __future__ import annotations

import argparse
import json
import time

from selfspec_core.request import Request

from .drafts import setup_of
from .opening import Pace, check_counts, open_engine, setting
from .prompts import read_categorised
from .sweep import Choice, Sweep


def run(options: argparse.Namespace) -> int:
    """Measure; print a sentence or one line of JSON."""
    check_counts(options)
    read = read_categorised(options.prompts, options.limit, by_category=False)
    prompts = [each.text for each in read]
    engine = open_engine(options)
    setup = setup_of(options, engine, prompts)
    ids = [engine.encode(Request(prompt=prompt, chat=options.chat)) for prompt in prompts]
    choice = Choice(setup.plan, setup.k, setup.confidence, setup.policy)
    sweep = Sweep(engine, ids, [choice], tokens=options.max_new_tokens, repeats=options.repeats)
    pace, begin = Pace(), time.perf_counter()
    for done, total in sweep.run():
        pace.tell(f"{done}/{total}", (time.perf_counter() - begin) / done * (total - done))
    found = {**sweep.figures(0), **setting(engine)}
    if options.json:
        print(json.dumps(found, allow_nan=False))
        return 0
    low, high = found["interval"]
    print(
        f"measured {found['measured']:.3f}× plain decoding ({found['plain_tps']:.1f} tokens/s, "
        f"{found['plain_rows']} rows); possible {found['ideal']:.3f}×; "
        f"efficiency {found['efficiency']:.3f} ({low:.3f}–{high:.3f} over prompts)"
    )
    alpha = "–" if found["alpha"] is None else f"{found['alpha']:.2f}"
    print(
        f"{found['plan']}, k {found['k']}: τ {found['tau']:.2f}, α {alpha}; bare forwards: draft "
        f"{found['draft_ms']:.1f} ms, window {found['window_ms']:.1f} ms, plain "
        f"{found['plain_ms']:.1f} ms (window ÷ plain {found['window_cost']:.2f})"
    )
    print(engine.execution)
    return 0
