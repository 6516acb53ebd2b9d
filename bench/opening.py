"""The engine that the options name, and what its figures were taken on."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from typing import Any

import torch

from selfspec_core.engine import Engine
from selfspec_core.execution import await_kernels
from selfspec_core.loading import LoadedModel, Progress, load
from selfspec_core.plan_files import versions


def say(text: str) -> None:
    """A line for a person, beside the output."""
    print(text, file=sys.stderr, flush=True)


def check_counts(options: argparse.Namespace) -> None:
    """Refuse what measures nothing, before anything is loaded.

    Raises:
        ValueError: one of the options that count isn't 1 or more.
    """
    for name in ("limit", "repeats", "max_new_tokens"):
        if (number := getattr(options, name)) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be 1 or more, got {number}")


class Pace:
    """Lines of progress, one every two seconds at most."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def tell(self, text: str, seconds_left: float | None = None) -> None:
        """Say it, unless something was said just now."""
        if time.monotonic() < self._told + 2:
            return
        self._told = time.monotonic()
        say(text if seconds_left is None else f"{text}, about {seconds_left:.0f} s left")


def open_engine(options: argparse.Namespace) -> Engine:
    """Load the model and make the engine in the mode that the options name, warmed up."""
    engine = engine_on(load_model(options), options.mode)
    say(engine.execution)
    engine.warm_up()
    return engine


def load_model(options: argparse.Namespace, dtype: str | None = None) -> LoadedModel:
    """The model that the options name, with progress."""
    return load(
        options.model, device=options.device, dtype=dtype or options.dtype, progress=_report
    )


def engine_on(loaded: LoadedModel, mode: str) -> Engine:
    """An engine in an execution mode, one of `MODES`; compiled to the end before it is given."""
    engine = Engine(loaded, mode=mode, background=True)
    await_kernels(engine, say)
    return engine


def setting(engine: Engine) -> dict[str, Any]:
    """What figures were taken on: goes into every --json."""
    info = engine.loaded.info
    return {
        "execution": engine.execution,
        "model": info.id,
        "quantised": info.quantised,
        "layers": info.n_layers,
        "dtype": info.dtype,
        "device": info.device,
        "hardware": hardware(engine.decoder.device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def hardware(device: torch.device) -> str:
    """The processor's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def _report(progress: Progress) -> None:
    say(progress.message)
