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


@dataclass(frozen=True)
class Probe:
    """What was measured of the fixed window on this device.

    Args:
        device, dtype: where and in which number type.
        rows: window width W → whether all rows, on both sides of a bucket's edge, gave the
            same bits as the first row alone.
        worst: W → largest difference of a logit; 0.0 where the bits are the same.
        widths: whether a token's logits are the same bits for all these W.
    """

    device: str
    dtype: str
    rows: dict[int, bool]
    worst: dict[int, float]
    widths: bool

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
    W tokens a forward, twice in a row, so that the cached keys and values count too.

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
    for width in widths:
        plain = _walk(decoder, text, begin, width, step=1)
        windows = _walk(decoder, text, begin, width, step=width)
        n = min(len(plain), len(windows))
        rows[width] = bool(torch.equal(plain[:n], windows[:n]))
        worst[width] = float((plain[:n].float() - windows[:n].float()).abs().max())
        firsts.append(plain)
    shortest = min(len(logits) for logits in firsts)
    same = all(torch.equal(firsts[0][:shortest], logits[:shortest]) for logits in firsts[1:])
    return Probe(str(decoder.device), _name(decoder.dtype), rows, worst, same)


def _walk(decoder: ResidualDecoder, text: Tensor, begin: int, width: int, *, step: int) -> Tensor:
    """[n, V] logits of text[begin:], `step` tokens a window of `width` rows; two windows' worth."""
    end = min(begin + 2 * width, len(text))
    cache = KVCache(decoder.n_layers, len(text) + width)
    decoder.forward(text[:begin], cache=cache)
    cache.advance(begin)
    parts = []
    for at in range(begin, end, step):
        real = text[at : min(at + step, end)]
        logits = decoder.logits(padded(real, width), cache=cache)[0]  # [W, V]
        parts.append(logits[: len(real)])
        cache.advance(len(real))
    return torch.cat(parts)


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
