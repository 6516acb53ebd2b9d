"""Native branches as calls into the kernels, several in a row as one.

A call costs several microseconds, in which no weight is read. So branches that come one after
the other are called together, and the whole stack is one call, whatever a plan leaves out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby

import torch
from torch import Tensor

from ..branch import Branch, Context

RMS, GEMMA, LAYER = 0, 1, 2
IS_ATTENTION, IS_MLP = 0, 1
Caches = tuple[tuple[int, tuple[int, int]], ...]

NONE, HALVES, PAIRS = 0, 1, 2
"""Where an MLP has what its gate opens: nowhere, after the whole gate, after each of its groups."""


@dataclass(frozen=True)
class Norm:
    """A norm as the kernels take it: weight [D] (None: no norm), bias, kind, ε."""

    weight: Tensor | None = None
    bias: Tensor | None = None
    kind: int = RMS
    eps: float = 0.0


class Arguments:
    """What the kernels take of a branch, put down in the order in which kernels.cpp reads it."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._numbers: list[int] = []
        self._reals: list[float] = []

    def tensor(self, tensor: Tensor) -> None:
        """One that is always there."""
        self._tensors.append(tensor)

    def maybe(self, tensor: Tensor | None) -> None:
        """One that may be missing."""
        self._numbers.append(tensor is not None)
        if tensor is not None:
            self._tensors.append(tensor)

    def number(self, *numbers: int) -> None:
        """Whole numbers."""
        self._numbers += numbers

    def real(self, *reals: float) -> None:
        """Other numbers."""
        self._reals += reals

    def norm(self, norm: Norm) -> None:
        """A norm, or that there is none."""
        self.maybe(norm.weight)
        self.maybe(norm.bias)
        self.number(norm.kind)
        self.real(norm.eps)

    def call(self, caches: Caches = ()) -> NativeCall:
        """The branch with these arguments; `caches` as `NativeCall` has it."""
        numbers = torch.tensor(self._numbers, dtype=torch.int64)
        return NativeCall(
            self._tensors, numbers, torch.tensor(self._reals, dtype=torch.float64), caches
        )


@dataclass(frozen=True, eq=False)
class NativeCall:
    """One native branch, or several in a row.

    Called with the stream [1, R, D] and a context, it gives what its one branch writes,
    [1, R, D].

    Args:
        tensors, numbers, reals: its `Arguments`; numbers as int64, reals as float64.
        caches: of each attention its layer, and (kv_heads, head_dim) of its keys and values.
    """

    tensors: list[Tensor]
    numbers: Tensor
    reals: Tensor
    caches: Caches = ()

    def __call__(self, h: Tensor, context: Context) -> Tensor:
        if self.caches and context.apart is not None:
            return self._apart(h, context)
        return self._run(h, context, add=False)

    def add(self, h: Tensor, context: Context) -> Tensor:
        """The stream [1, R, D] after all of its branches, in one chain."""
        return self._run(h, context, add=True)

    def _run(self, h: Tensor, context: Context, *, add: bool) -> Tensor:
        rotary: list[Tensor] = []
        caches: list[Tensor] = []
        start = 0
        if self.caches:
            assert context.chain is not None
            rotary, start = _rotary(context), context.chain.start
            for layer, shape in self.caches:
                caches += context.chain.cache.buffers(layer, shape, h)
        after: Tensor = torch.ops.selfspec.branches.default(
            h, self.tensors, self.numbers, self.reals, rotary, caches, start, add
        )
        return after

    def _apart(self, h: Tensor, context: Context) -> Tensor:
        apart = context.apart
        assert apart is not None
        written: Tensor = torch.ops.selfspec.attention_apart.default(
            h, self.tensors, self.numbers, self.reals, _rotary(context),
            *apart.buffers(self.caches[0][0]), apart.texts, apart.begins, apart.depth,
        )  # fmt: skip
        return written


class Joiner:
    """Runs branches one after the other, native ones that are neighbours in one call.

    Called with branches of a serial stack, the stream [1, R, D] and the context of a chain, it
    gives the stream after them.
    """

    def __init__(self) -> None:
        self._pieces = lru_cache(maxsize=64)(pieces)

    def __call__(self, branches: Iterable[Branch], h: Tensor, context: Context) -> Tensor:
        branches = tuple(branches)
        for piece in self._pieces(branches, tuple(branch.native for branch in branches)):
            h = piece.add(h, context) if isinstance(piece, NativeCall) else h + piece(h, context)
        return h


def pieces(branches: Sequence[Branch], natives: Sequence[object]) -> list[NativeCall | Branch]:
    """Branches in their order, native neighbours joined into one call.

    Args:
        branches: of a serial stack.
        natives: of each, what runs it in one call, or None.
    """
    found: list[NativeCall | Branch] = []
    pairs = zip(branches, natives, strict=True)
    for native, group in groupby(pairs, key=lambda pair: isinstance(pair[1], NativeCall)):
        if native:
            found.append(join([call for _, call in group if isinstance(call, NativeCall)]))
        else:
            found += [branch for branch, _ in group]
    return found


def join(parts: Sequence[NativeCall]) -> NativeCall:
    """Several as one."""
    return NativeCall(
        [tensor for part in parts for tensor in part.tensors],
        torch.cat([part.numbers for part in parts]),
        torch.cat([part.reals for part in parts]),
        tuple(cache for part in parts for cache in part.caches),
    )


def _rotary(context: Context) -> list[Tensor]:
    """cos and sin of every layer type, in the order of the decoder's `windows`."""
    return list(chain.from_iterable(context.rotary.values()))
