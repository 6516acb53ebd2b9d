"""Weights in the order in which the kernels read them, and linears that hold them so.

[N, K] becomes [N / W, K / P, W, P]: W outputs side by side, and of each a pair of inputs in
bfloat16 (P = 2) or one in float32 (P = 1). Nothing is lost; `unpacked` gives it back.

The more outputs lie side by side, the less work there is beside the multiplying; but each group
of them is one thread's, so there have to be enough groups to share out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..packing import PackedLinear
from ..pages import Pages

LANES = 16
USUAL, WIDEST = 2 * LANES, 4 * LANES
GROUPS = 16  # of the widest, that a thread should have
DTYPES = (torch.bfloat16, torch.float32)


def packable(weight: Tensor) -> bool:
    """Whether a weight [N, K] has a type and a width that can be packed."""
    return weight.dtype in DTYPES and weight.shape[1] % _pair(weight.dtype) == 0


def packed(
    weight: Tensor, *, width: int = 0, out: Tensor | None = None, pages: Pages | None = None
) -> Tensor:
    """[N, K] → [⌈N / width⌉, K / P, width, P]; outputs missing in the last group are zeros.

    Args:
        weight: of a linear.
        width: outputs that lie side by side, 16, 32 or 64; 0 takes what suits it.
        out: where to put it.
        pages: where to make room for it otherwise; some of their own where not given.
    """
    n, k = weight.shape
    pair = _pair(weight.dtype)
    width = width or (WIDEST if _enough(n) else USUAL)
    if out is None:
        shape = (-(-n // width), k // pair, width, pair)
        out = (pages or Pages()).zeros(shape, weight.dtype)
    whole = n // width
    out[:whole] = weight[: whole * width].view(whole, width, k // pair, pair).transpose(1, 2)
    if n % width:
        rest = nn.functional.pad(weight[whole * width :], (0, 0, 0, -n % width))
        out[whole] = rest.view(width, k // pair, pair).transpose(0, 1)
    return out


def unpacked(weight: Tensor, n: int) -> Tensor:
    """The first `n` outputs of a packed weight, [n, K]."""
    return weight.transpose(1, 2).flatten(2).flatten(0, 1)[:n].clone()


def padded_bias(bias: Tensor | None) -> Tensor | None:
    """[N] → [⌈N / 64⌉ · 64] in float32, of which the kernels add as many as there are outputs."""
    if bias is None:
        return None
    return nn.functional.pad(bias.detach().float(), (0, -len(bias) % WIDEST)).contiguous()


class NativeLinear(PackedLinear):
    """An `nn.Linear` whose weight the kernels read.

    Args:
        linear: whose place it takes; its weight is not kept.
        weight: the packed weight where it is part of a larger one already.
        pages: where to make room for it otherwise.
    """

    def __init__(
        self, linear: nn.Linear, weight: Tensor | None = None, pages: Pages | None = None
    ) -> None:
        super().__init__(linear)
        self.packed = packed(linear.weight.detach(), pages=pages) if weight is None else weight
        self.padded_bias = padded_bias(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] → [..., out_features]."""
        y: Tensor = torch.ops.selfspec.linear(x.contiguous(), self.packed, self.padded_bias)
        return y[:, : self.out_features].reshape(*x.shape[:-1], self.out_features)

    @property
    def weight(self) -> Tensor:
        """[out_features, in_features] a plain copy of the weight."""
        return unpacked(self.packed, self.out_features)


class TiedEmbedding(nn.Module):
    """An `nn.Embedding` that reads its rows out of the packed weight of the head.

    A deep copy is a plain `nn.Embedding` again.

    Args:
        head: whose weight it is too, [vocabulary, D].
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        assert isinstance(head, NativeLinear)
        self._packed, self._count = head.packed, head.out_features

    def forward(self, ids: Tensor) -> Tensor:
        """[...] token ids → [..., D]."""
        width = self._packed.shape[2]
        rows = self._packed[ids // width, :, ids % width]  # [..., D / P, P]
        return rows.flatten(-2)

    @property
    def weight(self) -> Tensor:
        """[vocabulary, D] a plain copy of the weight."""
        return unpacked(self._packed, self._count)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Embedding:
        return nn.Embedding.from_pretrained(self.weight)


def pack_together(
    parent: nn.Module, names: tuple[str, ...], pages: Pages, *, in_turns: bool = False
) -> Tensor:
    """Pack several linears that read the same into one weight, each keeping its part as a view.

    The originals are replaced one after the other, so that two whole copies never exist.

    Args:
        parent: what holds them.
        names: their names in it; the out_features of each a multiple of 16.
        pages: where to make room for it.
        in_turns: a group of each, then the next group of each, and so on; all have as many
            outputs then. Else all of the first, then all of the next.

    Returns:
        The packed weight of all, in that order.
    """
    linears: list[Any] = [getattr(parent, name) for name in names]
    outputs = [linear.out_features for linear in linears]
    width = _width(outputs)
    first = linears[0].weight
    pair = _pair(first.dtype)
    shape = (sum(outputs) // width, first.shape[1] // pair, width, pair)
    whole = pages.zeros(shape, first.dtype)
    at = 0
    for turn, (name, linear, count) in enumerate(zip(names, linears, outputs, strict=True)):
        part = whole[turn :: len(names)] if in_turns else whole[at : at + count // width]
        packed(linear.weight.detach(), width=width, out=part)
        setattr(parent, name, NativeLinear(linear, part))
        at += count // width
    return whole


def _width(outputs: list[int]) -> int:
    """Outputs side by side that suit linears packed together."""
    # One may be two in one, gate and what it opens: their border has to be a group's too.
    fit = [width for width in (WIDEST, USUAL) if all(n % (2 * width) == 0 for n in outputs)]
    if WIDEST in fit and _enough(sum(outputs)):
        return WIDEST
    return USUAL if USUAL in fit else LANES


def _enough(n: int) -> bool:
    """Whether so many outputs are enough of the widest groups for every thread."""
    return n >= WIDEST * GROUPS * torch.get_num_threads()


def _pair(dtype: torch.dtype) -> int:
    return 2 if dtype == torch.bfloat16 else 1
