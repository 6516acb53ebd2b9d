"""Weights packed once for oneDNN, layer by layer (design §1, §6).

A plain bfloat16 linear on a CPU re-reads its weights in an order that suits no cache; packed
into oneDNN's blocked layout they are read about twice as fast. The packed module takes the
place of the original, which is released, so two whole copies never exist at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_ROWS = 4  # the number of rows that the blocked layout is chosen for


class PackedLinear(nn.Module, ABC):
    """An `nn.Linear` with its weight in another layout, for inference.

    A deep copy is the plain `nn.Linear` again, so that what needs ordinary weights
    (attribution, export) copies the model and has them. Subclasses give `forward` and `weight`.

    Args:
        linear: the module whose place it takes; its weight is not kept.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias

    @property
    @abstractmethod
    def weight(self) -> Tensor:
        """[out_features, in_features] a plain copy of the weight."""

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
        plain = nn.Linear(
            self.in_features, self.out_features, bias=self.bias is not None, device="meta"
        )
        plain.weight = nn.Parameter(self.weight, requires_grad=False)
        if self.bias is not None:
            plain.bias = nn.Parameter(self.bias.detach().clone(), requires_grad=False)
        return plain


class OneDnnLinear(PackedLinear):
    """An `nn.Linear` with its weight in oneDNN's layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] → [..., out_features]."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return y

    @property
    def weight(self) -> Tensor:
        """[out_features, in_features] a plain copy of the weight."""
        dense: Tensor = self._packed.to_dense()
        return dense


def packs(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why weights can't be packed for oneDNN here; None where they can.

    Packing is for bfloat16 on a CPU that computes it: float32 gains nothing by it.
    """
    if device.type != "cpu":
        return f"packing is for CPUs, and the model is on {device}"
    if dtype != torch.bfloat16:
        return f"packing is for bfloat16, and the weights are {str(dtype).removeprefix('torch.')}"
    if not torch.backends.mkldnn.is_available():
        return "this PyTorch has no oneDNN"
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this CPU doesn't compute bfloat16 natively"
    return None


def linears_of(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """The `nn.Linear`s in a module, each with what holds it and its name there."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                yield parent, name, child


def pack(module: nn.Module) -> int:
    """Replace every `nn.Linear` in a module by one packed for oneDNN; returns how many.

    A weight that something else holds too (a tied embedding) stays alive there.
    """
    count = 0
    for parent, name, linear in linears_of(module):
        setattr(parent, name, OneDnnLinear(linear))
        count += 1
    return count
