"""How a forward is executed: eagerly, through transformers' modules, or compiled for the machine.

One code path (`decoder.py`) runs both: compiled, branches in a row are one call into kernels built
for this processor (`native/`), reading weights that were packed once. A skip plan only says which
branches are called, so a new plan compiles nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from .decoder import ResidualDecoder
from .native import build
from .native.branches import go_native
from .packing import OneDnnLinear, pack, packs
from .pages import give_back

if TYPE_CHECKING:
    from .engine import Engine

MODES = ("auto", "eager", "compiled")
EAGER, COMPILED = "eager", "compiled"


def check_mode(mode: str) -> str:
    """`mode`, if there is such a one.

    Raises:
        ValueError: there is none.
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}: choose of {', '.join(MODES)}")
    return mode


def why_not_compiled(decoder: ResidualDecoder) -> str | None:
    """Why this model can't run compiled here; None where it may."""
    if decoder.device.type != "cpu":
        return f"the kernels are for CPUs, and the model is on {decoder.device}"
    if decoder.dtype not in (torch.bfloat16, torch.float32):
        return f"the kernels compute bfloat16 and float32, not {decoder.dtype}".replace(
            "torch.", ""
        )
    try:
        build.library()
    except build.Unavailable as reason:
        return str(reason)
    return None


def make_eager(decoder: ResidualDecoder) -> str:
    """Pack the weights for oneDNN where that pays; says in words what was done, and why."""
    reason = packs(decoder.dtype, decoder.device)
    if reason is not None:
        return f"weights as loaded: {reason}"
    for pair in decoder.branches:
        for branch in pair:
            pack(branch.module)
        give_back()
    decoder.pack_head(OneDnnLinear)
    give_back()
    return "weights packed for oneDNN"


def make_compiled(decoder: ResidualDecoder, report: Callable[[float], None] | None = None) -> str:
    """Give the branches to the kernels, layer by layer; says in words what was done.

    Args:
        decoder: whose weights are packed; the originals are released.
        report: told the share that is done.

    Raises:
        Unavailable: the kernels can't be built or loaded; nothing has changed then.
    """
    build.load()
    for done in go_native(decoder):
        give_back()  # each layer's originals, or both copies would be there at the end
        if report is not None:
            report(done)
    branches = [branch for pair in decoder.branches for branch in pair]
    native = sum(branch.native is not None for branch in branches)
    if native == len(branches):
        return "every branch in kernels built for this processor"
    reasons = ", ".join(sorted({branch.why_eager for branch in branches if branch.why_eager}))
    return f"{native} of {len(branches)} branches in kernels built for this processor ({reasons})"


def settling(engine: Engine, *, pause: float = 0.02) -> Iterator[None]:
    """Let an engine change to its compiled kernels when they are built, as work in slices.

    Args:
        engine: made with `background`.
        pause: seconds of a slice in which they weren't ready.
    """
    while engine.building:
        if engine.settle():
            break
        time.sleep(pause)
        yield
    engine.warm_up()  # also where a request came first, found them ready and changed the engine
    yield


def await_kernels(engine: Engine, say: Callable[[str], None], *, every: float = 2.0) -> None:
    """Wait until an engine is what it will be, with a line of progress now and then.

    Args:
        engine: made with `background`.
        say: told, in words; nothing where nothing has to be built.
        every: seconds between two lines.
    """
    begin = told = time.monotonic()
    if engine.building:
        say("compiling kernels for this machine: once, in about ten seconds")
    while engine.building:
        if not engine.settle():
            time.sleep(0.02)
        if (now := time.monotonic()) - told >= every:
            told = now
            say(f"compiling kernels: {now - begin:.0f} s so far")


class Building:
    """The kernels being built in a thread, so that eager forwards serve meanwhile."""

    def __init__(self) -> None:
        self.failed = ""
        self._thread = threading.Thread(target=self._build, name="selfspec-build", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has ended; `failed` says in words if it failed."""
        return not self._thread.is_alive()

    def _build(self) -> None:
        try:
            path = build.library()
            if not build.is_whole(path):
                build.build(path)
        except build.Unavailable as reason:
            self.failed = str(reason)
