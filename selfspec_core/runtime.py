"""How a forward is executed, and what this device guarantees of it.

Bit-identity of speculative and plain output rests on one property (design §3): in a window of
W rows a token's logits don't depend on which row it stands in, nor on what stands in the
others. `probe` measures it on the device, with the model at hand, instead of believing it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from .cache import BUCKET, KVCache
from .decoder import ResidualDecoder

WINDOW_MULTIPLE = 4
_UNPADDED = ((1, 2, 3, 5, 6, 7, 9, 7), (13, 17, 10), (11, 14, 15), (16, 4, 12, 8))
"""Windows' rows, from 1 to the 17 of the longest draft, in which the same text is gone through."""


@dataclass(frozen=True)
class Probe:
    """What was measured of the fixed window on this device.

    Args:
        device, dtype: where and in which number type.
        rows: window width W → whether all rows, on both sides of a bucket's edge, gave the
            same bits as the first row alone.
        worst: W → largest difference of a logit; 0.0 where the bits are the same.
        widths: whether a token's logits are the same bits for all these W.
        any_rows: whether they are also the same in windows of any other number of rows, from
            one row on: then padding buys nothing.
    """

    device: str
    dtype: str
    rows: dict[int, bool]
    worst: dict[int, float]
    widths: bool
    any_rows: bool = False

    @property
    def exact(self) -> bool:
        """Whether outputs are bit-identical by construction, for every probed W."""
        return all(self.rows.values())

    def sentence(self) -> str:
        """What it means, in words."""
        if self.exact:
            return (
                f"on {self.device} in {self.dtype} a token's logits are the same bits in every row "
                f"of a window of {', '.join(map(str, self.rows))} rows: output is bit-identical"
            )
        broken = ", ".join(
            f"{w} (by up to {self.worst[w]:.2g})" for w, ok in self.rows.items() if not ok
        )
        return (
            f"on {self.device} in {self.dtype} logits differ between the rows of windows of "
            f"{broken} rows: outputs are equal up to near-ties"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@torch.inference_mode()
def probe(decoder: ResidualDecoder, widths: Sequence[int] = (4, 8), *, seed: int = 0) -> Probe:
    """Compare every row of windows of these widths with plain decoding, bit by bit.

    A random text is continued across a bucket's edge, once a token a forward (row 0) and once
    W tokens a forward, twice in a row, so that the cached keys and values count too. Then the
    same text is gone through in windows of many sizes without padding.

    Args:
        decoder: the model's gated stack.
        widths: window widths W to look at.
        seed: of the random text.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = max(widths)
    context = decoder.max_positions or 2 * BUCKET + 2 * longest
    begin = min(BUCKET, context - longest) - longest  # so that the first window meets the edge
    begin = max(begin, 1)
    count = min(2 * longest, context - begin)
    text = torch.randint(0, decoder.vocab_size, (begin + count,), generator=generator)
    text = text.to(decoder.device)
    rows: dict[int, bool] = {}
    worst: dict[int, float] = {}
    firsts: list[Tensor] = []
    for width in sorted(widths):
        plain = _walk(decoder, text[: begin + 2 * width], begin, [1] * 2 * width, width)
        windows = _walk(decoder, text[: begin + 2 * width], begin, [width] * 2, width)
        n = min(len(plain), len(windows))
        rows[width] = _agree(plain, windows)
        worst[width] = float((plain[:n].float() - windows[:n].float()).abs().max())
        firsts.append(plain)
    same = all(_agree(firsts[0], logits) for logits in firsts[1:])
    any_rows = (
        same
        and all(rows.values())
        # `windows` are the longest's, over the whole text.
        and all(_agree(windows, _walk(decoder, text, begin, steps)) for steps in _UNPADDED)
    )
    return Probe(str(decoder.device), _name(decoder.dtype), rows, worst, same, any_rows)


def _walk(
    decoder: ResidualDecoder, text: Tensor, begin: int, steps: Sequence[int], width: int = 0
) -> Tensor:
    """[n, V] logits of text[begin:], so many tokens a window, padded to `width` rows at least."""
    cache = KVCache(decoder.n_layers, len(text) + max(width, *steps))
    decoder.forward(text[:begin], cache=cache)
    cache.advance(begin)
    parts = []
    for step in steps:
        real = text[cache.length : cache.length + step]
        if not len(real):
            break
        window = padded(real, max(width, len(real)))
        parts.append(decoder.logits(window, cache=cache)[0, : len(real)])  # [≤ step, V]
        cache.advance(len(real))
    return torch.cat(parts)


def _agree(one: Tensor, other: Tensor) -> bool:
    n = min(len(one), len(other))
    return bool(torch.equal(one[:n], other[:n]))


@torch.inference_mode()
def time_rows(
    decoder: ResidualDecoder, rows: Sequence[int], *, passes: int = 8
) -> dict[int, float]:
    """Milliseconds of a forward of so many rows, undisturbed: the least, measured in turns.

    More rows never take less: where they seem to, fewer rows were disturbed every time.
    """
    taken: dict[int, list[float]] = {n: [] for n in rows}
    cache = KVCache(decoder.n_layers, max(rows))
    for _ in range(passes):
        for n, times in taken.items():
            begin = clock(decoder.device)
            decoder.logits(torch.zeros(n, dtype=torch.int64, device=decoder.device), cache=cache)
            times.append((clock(decoder.device) - begin) * 1e3)
    least = {n: min(times) for n, times in taken.items()}
    return {n: min(ms for more, ms in least.items() if more >= n) for n in rows}


def padded(tokens: Tensor, width: int) -> Tensor:
    """[width] the window's tokens, filled up with rows that are never read."""
    return torch.nn.functional.pad(tokens, (0, width - len(tokens)), value=0)


def clock(device: torch.device) -> float:
    """Seconds, after everything queued on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_memory_mb(device: torch.device) -> float:
    """Highest memory so far, MB of 10⁶ bytes: allocated on a GPU, resident of the process else."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    if sys.platform == "win32":
        peak: int = psutil.Process().memory_info().peak_wset
        return peak / 1e6
    try:  # on Linux `ru_maxrss` survives exec: a child would report its parent's peak
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    except (OSError, IndexError, ValueError):
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
