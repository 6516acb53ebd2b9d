"""One residual branch, and what the branches of a forward share (design §1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .cache import KVCache
from .families import BranchNames, Family, layer_type

ATTENTION, MLP = "attention", "mlp"
KINDS = (ATTENTION, MLP)


@dataclass(frozen=True)
class Chain:
    """Rows that each continue the one before, in a cache: what native branches run.

    Args:
        cache: written from slot `start` on.
        start: slots that count so far.
    """

    cache: KVCache
    start: int


class Apart(Protocol):
    """Rows that each continue a text on their own, apart from each other: what native attention
    runs for them [1, N, D].

    Attributes:
        texts, begins: [N] which text a row continues, and how many of its slots it sees.
        depth: rows of its own chain that came before it.
    """

    texts: Tensor
    begins: Tensor
    depth: int

    def buffers(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keys and values of the texts [B, G, T, head_dim], and of the rows' chains
        [N, G, depth + 1, head_dim], the last of which is written."""
        ...


class Masks(Mapping[str, Tensor]):
    """Layer type → mask, made when it is first asked for: native branches never ask."""

    def __init__(self, makers: dict[str, Callable[[], Tensor]]) -> None:
        self._makers = makers
        self._made: dict[str, Tensor] = {}

    def __getitem__(self, kind: str) -> Tensor:
        if kind not in self._made:
            self._made[kind] = self._makers[kind]()
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True)
class Context:
    """What the branches of one forward share.

    Args:
        rotary: layer type → cos and sin.
        masks: layer type → what is added to attention scores.
        cache: what attention calls as transformers' `Cache.update`; None for no cache.
        position_ids: [B, R].
        chain: where this is the plain case, one chain without gradients; else None.
        counted: [B, R] the rows that count, where others only fill up; None for all.
        apart: where every row continues a text on its own and attention is native; else None.
    """

    rotary: dict[str, tuple[Tensor, Tensor]]
    masks: Mapping[str, Tensor]
    cache: Any
    position_ids: Tensor
    chain: Chain | None = None
    counted: Tensor | None = None
    apart: Apart | None = None


class Branch:
    """One residual branch: a view on live modules, holding no weights of its own.

    Calling it with the stream [B, R, D] and a `Context` gives what is added to the stream,
    [B, R, D].

    Attributes:
        multiplier: of what it writes; None for 1.
        native: runs the whole branch in the kernels, an attention for chains and for rows apart, an
            MLP for any rows; None: eager.
        why_eager: in words, why there is none.
    """

    def __init__(
        self,
        kind: str,
        layer: int,
        block: nn.Module,
        names: BranchNames,
        family: Family,
        config: Any,
    ) -> None:
        self.kind, self.layer = kind, layer
        self.module = resolve(block, names.module)
        self._block, self._writes = block, names.writes
        self.norm = resolve(block, names.norm)
        self.norm_after = resolve(block, names.norm_after)
        self._cache_argument = family.cache_argument
        self.layer_type = layer_type(config, layer)
        self.multiplier = setting(config, family.residual_multiplier)
        self.native: Callable[[Tensor, Context], Tensor] | None = None
        self.why_eager = ""

    @property
    def writes(self) -> Any:
        """The last module, whose output is what the branch writes."""
        return resolve(self._block, self._writes)

    def __call__(self, h: Tensor, context: Context) -> Tensor:
        if self.native is not None:
            if context.chain is not None or context.apart is not None:
                return self.native(h, context)
            if self.kind == MLP and not torch.is_grad_enabled():  # rows don't meet in it
                return self._on_rows(h, context)
        return self.eager(h, context)

    def _on_rows(self, h: Tensor, context: Context) -> Tensor:
        """The native branch on the rows that count, as if they were one text's."""
        assert self.native is not None
        if context.counted is None:
            return self.native(h.reshape(1, -1, h.shape[-1]), context).reshape(h.shape)
        written = torch.zeros_like(h)
        written[context.counted] = self.native(h[context.counted][None], context)[0]
        return written

    def eager(self, h: Tensor, context: Context) -> Tensor:
        """The branch through its modules."""
        x = h if self.norm is None else self.norm(h)
        if self.kind == ATTENTION:
            x = self.module(
                x,
                attention_mask=context.masks[self.layer_type],
                position_ids=context.position_ids,
                position_embeddings=context.rotary.get(self.layer_type),
                **{self._cache_argument: context.cache},
            )[0]
        else:
            x = self.module(x)
        return self._finish(x)

    def _finish(self, x: Tensor) -> Tensor:
        if self.norm_after is not None:
            x = self.norm_after(x)
        return x if self.multiplier is None else x * self.multiplier


def resolve(root: nn.Module, path: str | None) -> Any:
    """The module at an attribute path; None for no path."""
    return None if path is None else reduce(getattr, path.split("."), root)


def setting(config: Any, name: str | None) -> float | None:
    """A number of the config by name; None where the family or the model has none."""
    value = None if name is None else getattr(config, name)
    return None if value is None else float(value)
