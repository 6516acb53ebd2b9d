"""What a system takes in memory, in a fresh process that loads it, warms it up and writes a text.

The systems of a comparison share one process, so their peaks can't be told apart there. Each
gets a process of its own, which imports the libraries, loads only what the system needs, and
says the highest memory that it had while it wrote. Loading and the first text are told apart:
their peak is the same for all that read the same weights, and would hide what they take
afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from selfspec_core.engine import Engine
from selfspec_core.plan import parse_plan
from selfspec_core.runtime import peak_memory_mb

from .lineup import Lineup, Setup
from .llama_cpp import gguf_of
from .opening import engine_on, load_model

TOKENS = 16
SECONDS = 600.0


@dataclass(frozen=True)
class Peak:
    """Megabytes of 10⁶ bytes.

    Args:
        peak_mb: highest memory while it wrote, once it was warm: resident on a CPU (all of the
            process, libraries too), allocated on a GPU.
        loading_mb: the same of everything before: loading, packing, and a first text.
        imported_mb: resident before a model was loaded: what the libraries take, with what
            transformers imports only where a model is asked for; 0 on a GPU.
    """

    peak_mb: float
    loading_mb: float
    imported_mb: float


def peak_of(
    name: str,
    options: argparse.Namespace,
    engine: Engine,
    setup: Setup,
    prompt_ids: Sequence[int],
    rows: int,
) -> Peak:
    """Measure a system in a process of its own.

    Raises:
        ValueError: that process failed; says how.
    """
    task = {
        "name": name,
        # It runs in another folder.
        "model": str(local.resolve()) if (local := Path(options.model)).exists() else options.model,
        "device": options.device,
        "dtype": engine.loaded.info.dtype,
        "mode": options.mode,
        "threads": torch.get_num_threads(),
        "plan": str(setup.plan),
        "n_layers": setup.plan.n_layers,
        "k": setup.k,
        "confidence": setup.confidence,
        "policy": setup.policy,
        "verify_from": setup.verify_from,
        "early_exit": setup.early_exit,
        "prompt_ids": list(prompt_ids),
        "end_ids": list(engine.end_ids),
        "context": engine.context,
        "rows": rows,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory"],
        input=json.dumps(task),
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or "it said nothing").split("\n")[-1]
        raise ValueError(f"the memory of {name} can't be measured: {last}")
    return Peak(**json.loads(done.stdout.strip().split("\n")[-1]))


def main(task: dict[str, Any]) -> Peak:
    """The process of one system."""
    _ = transformers.PreTrainedModel, transformers.GenerationMixin  # imported only when asked for
    imported = psutil.Process().memory_info().rss / 1e6
    torch.set_num_threads(task["threads"])
    options = argparse.Namespace(**{key: task[key] for key in ("model", "device", "dtype")})
    setup = Setup(
        plan=parse_plan(task["plan"], task["n_layers"]),
        k=task["k"],
        confidence=task["confidence"],
        policy=task["policy"],
        verify_from=task["verify_from"],
        early_exit=task["early_exit"],
    )
    lineup = Lineup(
        setup,
        engine=lambda: engine_on(load_model(options), task["mode"]),
        theirs=lambda: load_model(options),
        gguf=lambda: gguf_of(task["model"]),
        end_ids=task["end_ids"],
        context=task["context"],
    )
    write = lineup.make(task["name"], task["rows"])
    write(task["prompt_ids"], TOKENS)
    gc.collect()
    loading = _peak_mb(reset=True)
    write(task["prompt_ids"], TOKENS)
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return Peak(_peak_mb(), loading, 0.0 if on_gpu else imported)


def _peak_mb(*, reset: bool = False) -> float:
    """The highest memory so far, or since the last reset where the system can reset it."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        peak = torch.cuda.max_memory_allocated() / 1e6
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return peak
    peak = peak_resident_mb()
    if reset:
        with contextlib.suppress(OSError):  # Linux only; elsewhere the peak includes loading
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak


def peak_resident_mb() -> float:
    """Highest resident memory of this process, MB.

    On Linux from /proc: `getrusage` would say the parent's where that was more, since a new
    program inherits the figure of the process that it was started from.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return peak_memory_mb(torch.device("cpu"))


if __name__ == "__main__":
    found = main(json.load(sys.stdin))
    print(json.dumps(asdict(found)))
