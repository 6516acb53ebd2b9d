"""Memory on the CPU in large pages, where the system has them.

A forward reads every weight once, and all keys and values. In pages of 4 KB the processor stops
at the end of each to look up the next one, and what fetches ahead stops there too; in pages of
2 MB it hardly does. Linux gives them on request (`madvise(MADV_HUGEPAGE)`); elsewhere this is
ordinary memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import sys

import torch
from torch import Tensor

LARGE = 2 << 20  # bytes of a large page
CHUNK = 16 * LARGE  # bytes asked for at once; what nobody writes to takes no memory
LINE = 64  # bytes; every tensor begins at a multiple of it


class Pages:
    """Hands out tensors one after the other, from chunks that are freed with their last tensor."""

    def __init__(self) -> None:
        self._chunk: Tensor = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor like `torch.zeros` makes it on the CPU."""
        nbytes = math.prod(shape) * dtype.itemsize
        if self._used + nbytes > len(self._chunk):
            self._chunk, self._used = _chunk(max(CHUNK, nbytes)), 0
        part = self._chunk[self._used : self._used + nbytes]
        self._used += -(-nbytes // LINE) * LINE
        return part.view(dtype).view(shape)


def _chunk(nbytes: int) -> Tensor:
    """[nbytes] of zeros that nobody has touched, from where a large page begins."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(nbytes, dtype=torch.uint8)
    room = mmap.mmap(-1, nbytes + LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without large pages
        room.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(room, dtype=torch.uint8)
    first = -memory.data_ptr() % LARGE
    return memory[first : first + nbytes]


def give_back() -> None:
    """Return what nobody holds any more to the system, where the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
