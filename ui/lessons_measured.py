"""What the lessons' figures are measured with: each part by a command of the project.

A part gives (values, command): what goes into `figures.json` under its name, and the command that
it ran, or None where it measures by itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .places import ASSETS

if TYPE_CHECKING:
    from selfspec_core.engine import Engine

Part = tuple[dict[str, Any], str | None]
LAYERS = ASSETS / "traces" / "welcome_layers.json"

ROWS = (1, 2, 4, 8, 16)
PASSES = 40
CONTEXT = 64

THRESHOLD_PROMPTS = (
    "Explain in simple words why bread dough rises before it is baked.",
    "Write step by step how to make a good cup of tea.",
    "Why does it smell so fresh after rain? Answer for a curious child.",
    "Give me three short tips for someone who rides a bicycle to work for the first time.",
    "Tell me in a few sentences why a bridge needs pillars.",
    "Describe a rainy market street in the morning.",
    "What should I check before I buy a used laptop?",
    "Write a short birthday wish for a colleague who likes to garden.",
)
THETAS = (0.7, 0.3, 0.1)
THRESHOLD_TOKENS = 40
BUSY_REPEATS = 5


@cache
def engine() -> Engine:
    """The built-in model, warmed up, executed as fast as it can be here."""
    from selfspec_core.engine import Engine
    from selfspec_core.loading import load

    made = Engine(load("builtin"))
    made.warm_up()
    return made


@cache
def setting() -> dict[str, str]:
    """Which machine and model: what stands beside every figure."""
    import torch

    from bench.opening import hardware

    info = engine().loaded.info
    return {
        "machine": f"{hardware(engine().decoder.device)}, {torch.get_num_threads()} threads",
        "model": f"{info.source}, {info.dtype} on {info.device}",
        "execution": engine().execution,
    }


def forwards() -> Part:
    """Milliseconds of one forward by its rows, and how fast memory is read."""
    import torch

    from bench.forwards import BareForwards
    from bench.roofline import READS, Reader, weight_bytes

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, engine().vocab_size, (CONTEXT,), generator=generator).tolist()
    bare = BareForwards(engine(), ids, most=max(ROWS))
    taken: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for number in range(PASSES + 1):
        for rows, times in taken.items():
            ms = bare.time(rows)
            if number:  # the first pass warms up
                times.append(ms)
    reader = Reader(engine().decoder.device)
    gbs = max(reader.gbs() for _ in range(READS))
    weights = weight_bytes(engine())
    ms = {str(rows): statistics.median(times) for rows, times in taken.items()}
    floor = weights / gbs / 1e6
    info = engine().loaded.info
    return {
        "ms": ms,
        "against_one": {rows: value / ms["1"] for rows, value in ms.items()},
        "weights_mb": weights / 1e6,
        "parameters_millions": info.parameters / 1e6,
        "bandwidth_gbs": gbs,
        "floor_ms": floor,
        "reading_share": floor / ms["1"],
        "rows_most": max(ROWS),
    }, None


def threshold() -> Part:
    """The worked plan under `threshold` at several θ, beside the same plan under `coupled`."""
    return {
        "prompts": len(THRESHOLD_PROMPTS),
        "drawn": _thresholds(1.0),
        "greedy": _thresholds(0.0),
    }, None


def _thresholds(temperature: float) -> dict[str, Any]:
    from selfspec_core.plan import SkipPlan
    from selfspec_core.request import FIRST_SKIPPED, Request
    from selfspec_core.sampling import Sampling

    plan = SkipPlan.parse("6-9", engine().n_layers)

    def runs(**rule: Any) -> list[list[Any]]:
        return [
            list(
                engine().stream(
                    Request(
                        prompt=prompt,
                        plan=plan,
                        k=3,
                        sampling=Sampling(temperature=temperature),
                        seed=number,
                        max_new_tokens=THRESHOLD_TOKENS,
                        verify_from=FIRST_SKIPPED,
                        **rule,
                    )
                )
            )
            for number, prompt in enumerate(THRESHOLD_PROMPTS)
        ]

    kept = runs()
    found = {"temperature": temperature, "coupled": _counted(kept, kept)}
    for theta in THETAS:
        lossy = runs(rule="threshold", threshold=theta)
        found[f"theta_{round(theta * 100):02d}"] = {"theta": theta, **_counted(lossy, kept)}
    return found


def _counted(runs: list[list[Any]], lossless: list[list[Any]]) -> dict[str, Any]:
    """Runs beside the lossless ones of the same prompts and seeds."""
    ends, others = [run[-1] for run in runs], [run[-1] for run in lossless]
    pairs = [(end.tokens, other.tokens) for end, other in zip(ends, others, strict=True)]
    tokens = sum(len(mine) for mine, _ in pairs)
    other = sum(
        sum(a != b for a, b in zip(mine, theirs, strict=False)) + abs(len(mine) - len(theirs))
        for mine, theirs in pairs
    )
    commits = [event.p for run in runs for event in run if event.type == "commit"]
    kept = [
        event
        for run in runs
        for event in run
        if event.type == "verdict" and event.status == "accepted"
    ]
    return {
        "tokens": tokens,
        "other_tokens": other,
        "other_share": other / tokens,
        "other_texts": sum(mine != theirs for mine, theirs in pairs),
        "not_its_choice": sum(event.token != event.choice for event in kept),
        "alpha": sum(end.accepted for end in ends) / sum(end.drafted for end in ends),
        "tau": tokens / sum(end.rounds for end in ends),
        "tps": tokens / sum(len(e.tokens) / e.tokens_per_second for e in ends),
        "log_prob": statistics.fmean(math.log(max(p, 1e-30)) for p in commits),
    }


def busy_machine() -> Part:
    """One prompt, plainly and with drafts in turn, on the calm machine and on a busy one."""
    from dataclasses import replace

    from selfspec_core.plan import SkipPlan
    from selfspec_core.request import Request

    drafting = Request(
        prompt=THRESHOLD_PROMPTS[0],
        plan=SkipPlan.parse("a3-8", engine().n_layers),
        k=3,
        max_new_tokens=48,
    )
    ways = {"drafting": drafting, "plain": replace(drafting.plainly(), window=4)}

    def taken() -> dict[str, Any]:
        speeds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(BUSY_REPEATS):
            for way, request in ways.items():
                *_, done = engine().stream(request)
                speeds[way].append(done.tokens_per_second)
        pairs = zip(speeds["drafting"], speeds["plain"], strict=True)
        ratios = sorted(mine / plain for mine, plain in pairs)
        medians = {f"{way}_tps": statistics.median(each) for way, each in speeds.items()}
        return {"low": ratios[0], "high": ratios[-1], **medians}

    calm = taken()
    with burning():
        disturbed = taken()
    return {"repeats": BUSY_REPEATS, "calm": calm, "busy": disturbed}, None


@contextlib.contextmanager
def burning() -> Iterator[None]:
    """A process for every core that does nothing but work, until the block ends."""
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def layers() -> Part:
    """What dropping single branches does, of the text that the Layers panel shows unasked."""
    known = json.loads(LAYERS.read_text(encoding="utf-8"))["result"]
    columns, n = known["columns"], known["layers"]
    lost = columns["lost_agreement"]["values"]
    rows = {"attention": lost[:n], "mlp": lost[n:]}
    measured = {kind: {str(i): value for i, value in enumerate(v)} for kind, v in rows.items()}
    every = sorted(lost)
    return {
        "branches": len(lost),
        "words": len(known["tokens"]),
        "lost": measured,
        "least": every[0],
        "most": every[-1],
        "harmless": sum(value <= 0.25 for value in lost),
        "rank": {
            name: columns[name]["ranks"]["lost_agreement"]["spearman"]
            for name in ("input_x_gradient", "block_influence", "gradient_flow")
        },
    }, "python -m ui.layers_record"


def lengths() -> Part:
    """Short and long texts, reading the prompt included."""
    found, command = _ran(
        "bench compare --systems plain,selfspec --skip a3-8 --k 2 --lengths 16,32,128 --limit 4 "
        "--repeats 2 --no-memory"
    )
    ours = found["systems"]["selfspec"]
    return {
        "by": {
            length.split()[0]: {key: row[key] for key in ("tps", "ratio_to_plain", "tau", "alpha")}
            for length, row in ours["by_length"].items()
        },
        "plan": found["plan"],
        "k": found["k"],
    }, command


def k_sweep() -> Part:
    """The same plan with every k."""
    found, command = _ran(
        "bench scale --parts k --skip a3-8 --ks 1,2,3,4,6,8 --limit 3 --max-new-tokens 48 "
        "--repeats 2"
    )
    rows = {str(row["k"]): _swept(row) for row in found["k"]}
    best = max(rows, key=lambda k: rows[k]["measured"])
    return {"by": rows, "best": int(best), "best_measured": rows[best]["measured"]}, command


def shares() -> Part:
    """More and more of the model skipped, the middle first."""
    found, command = _ran(
        "bench scale --parts share --shares 10,20,40,60 --k 2 --limit 3 --max-new-tokens 48 "
        "--repeats 2"
    )
    rows = [10, 20, 40, 60]
    return {"by": dict(zip(map(str, rows), map(_swept, found["share"]), strict=True))}, command


def depth() -> Part:
    """A deep random stack whose middle layers are redundant by construction."""
    found, command = _ran(
        "bench scale --parts depth --layers 60 --limit 2 --repeats 2 --ks 4,6 --max-new-tokens 48"
    )
    (row,) = found["depth"]
    return {key: row[key] for key in ("layers", "kept", "epsilon", "weights_mb")} | _swept(
        row
    ), command


def _swept(row: dict[str, Any]) -> dict[str, Any]:
    keys = ("k", "tau", "alpha", "draft_ms", "window_ms", "plain_ms", "plain_tps", "measured")
    return {key: row[key] for key in keys if key in row}


def compare() -> Part:
    """Systems side by side, memory too."""
    found, command = _ran(
        "bench compare --systems plain,selfspec,hf-generate,hf-prompt-lookup,hf-assistant,"
        "draft-alone --skip 10-18 --k 2 --limit 3 --max-new-tokens 32 --repeats 2"
    )
    keys = ("tps", "ratio_to_plain", "tau", "alpha", "identical", "prompts", "equal_share")
    more = ("peak_mb", "kl", "agreement")
    return {
        "systems": {
            name.replace("-", "_"): {key: row[key] for key in (*keys, *more) if key in row}
            for name, row in found["systems"].items()
        },
        "plan": found["plan"],
        "k": found["k"],
        "lengths": found["lengths"],
    }, command


def search() -> Part:
    """What a short search finds here, and whether it pays."""
    found, command = _ran(
        "analysis search --budget 45 --method greedy --no-compare --limit 6 --max-new-tokens 32 "
        "--finalists 2"
    )
    return {key: value for key, value in found.items() if key != "front"}, command


def certificate() -> Part:
    """The check that nothing is lost."""
    found, command = _ran(
        "selfspec_core check --skip a3-8 --k 3 --limit 8 --max-new-tokens 48 --temperature 0.8"
    )
    return found, command


def draft_size() -> Part:
    """How large the small model is that the plan of `compare` leaves."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "draft"
        _, command = _ran(
            f"analysis export --skip 10-18 --format draft-checkpoint --out {out}", said=False
        )
        size = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    mb = engine().loaded.info.weights_mb
    return {
        "mb": size / 1e6,
        "whole_mb": mb,
        "share": size / 1e6 / mb,
    }, command.replace(str(out), "DIR")


PARTS: dict[str, Callable[[], Part]] = {
    "forwards": forwards,
    "layers": layers,
    "k": k_sweep,
    "share": shares,
    "threshold": threshold,
    "lengths": lengths,
    "busy_machine": busy_machine,
    "depth": depth,
    "compare": compare,
    "draft_size": draft_size,
    "search": search,
    "check": certificate,
}
"""Part of `figures.json` → what measures it."""


def _ran(command: str, *, said: bool = True) -> tuple[dict[str, Any], str]:
    """Run `python -m COMMAND --json`; (its JSON, the command as a person types it).

    Raises:
        RuntimeError: it failed.
    """
    arguments = [*command.split(), *(["--json"] if said else [])]
    done = subprocess.run(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"python -m {command} ended with {done.returncode}")
    found = json.loads(done.stdout.strip().splitlines()[-1]) if said else {}
    return found, f"python -m {' '.join(arguments)}"
