"""A transformer as a stack of residual branches, run under a plan (design §1).

`h ← h + gate · branch(h)`: gate 1 everywhere is the target, gate 0 on a plan's branches is
the draft. Both read the same live modules of transformers, through this one code path.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .branch import ATTENTION, MLP, Branch, Chain, Context, Masks, resolve, setting
from .cache import BUCKET, CacheView, KVCache, round_up
from .families import Family, attention_window, family_of, layer_type
from .plan import SkipPlan
from .trees import depths_of


@dataclass(frozen=True)
class Rows:
    """The rows of one forward: tokens, and which row each continues.

    Args:
        tokens: [R] token ids on the model's device.
        parents: [R] the row each row continues, -1 for the text in the cache; None for the
            plain case, a chain. A parent stands before its children.
    """

    tokens: Tensor
    parents: tuple[int, ...] | None = None

    def depths(self) -> list[int]:
        """How many tokens past the cached text each row stands."""
        return depths_of(self.parents, self.tokens.shape[-1])

    def ancestry(self) -> Tensor:
        """[R, R] whether row i sees row j: itself and its ancestors."""
        n = self.tokens.shape[-1]
        if self.parents is None:
            return torch.ones(n, n, dtype=torch.bool).tril()
        seen = torch.eye(n, dtype=torch.bool)
        for row, parent in enumerate(self.parents):
            if parent >= 0:
                seen[row] |= seen[parent]
        return seen


class ResidualDecoder:
    """The gated stack of a causal language model.

    Args:
        model: a transformers model of a supported family, in eval mode. Nothing of it is
            changed: no config, no forward, no weight.
        family: its declaration; found from the config where not given.

    Raises:
        UnsupportedModelError: the family isn't supported.
    """

    def __init__(self, model: nn.Module, family: Family | None = None) -> None:
        config: Any = model.config
        self.family = family = family or family_of(config)
        self.config = config
        layers: Any = resolve(model, family.layers)
        self.n_layers = len(layers)
        self.parallel = family.is_parallel(config)
        self.vocab_size: int = config.vocab_size
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self.branches: tuple[tuple[Branch, Branch], ...] = tuple(
            (
                Branch(ATTENTION, i, block, family.attention, family, config),
                Branch(MLP, i, block, family.mlp, family, config),
            )
            for i, block in enumerate(layers)
        )
        self._embed: Any = resolve(model, family.embed)
        self._positions = resolve(model, family.positions)
        self._rotary = resolve(model, family.rotary)
        self._final_norm: Any = resolve(model, family.final_norm)
        self._head: Any = resolve(model, family.head)
        self._model = model
        self.join: Callable[[Iterable[Branch], Tensor, Context], Tensor] | None = None
        """Runs branches of a serial stack over one chain's stream, where native ones can be run in
        one call; None: each by itself."""
        self.device: torch.device = self._embed.weight.device
        """Where the weights are."""
        self.dtype: torch.dtype = self._embed.weight.dtype
        """Number type of the weights."""
        self.windows: dict[str, int | None] = {
            layer_type(config, i): attention_window(config, i) for i in range(self.n_layers)
        }
        self._embedding_multiplier = setting(config, family.embedding_multiplier)
        self._logit_divisor = setting(config, family.logit_divisor)
        self._logit_multiplier = setting(config, family.logit_multiplier)
        self._logit_softcap = setting(config, family.logit_softcap)

    def pack_head(
        self,
        make: Callable[[nn.Linear], nn.Module],
        make_embedding: Callable[[nn.Module], nn.Module] | None = None,
    ) -> None:
        """Let another module take the place of the linear that makes logits.

        Args:
            make: makes it.
            make_embedding: makes an embedding that reads the head's weight, for models whose
                embedding is the head's weight; None leaves both of those as they are, for the
                weight would be there twice.
        """
        if type(self._head) is not nn.Linear:
            return
        tied = type(self._embed) is nn.Embedding and self._embed.weight is self._head.weight
        if tied and make_embedding is None:
            return
        self._head = make(self._head)
        self._put(self.family.head, self._head)
        if tied and make_embedding is not None:
            self._embed = make_embedding(self._head)
            self._put(self.family.embed, self._embed)

    def _put(self, path: str, module: nn.Module) -> None:
        parent, _, name = path.rpartition(".")
        setattr(resolve(self._model, parent) if parent else self._model, name, module)

    def forward(
        self,
        rows: Rows | Tensor,
        *,
        cache: KVCache | None = None,
        plan: SkipPlan | None = None,
        gates: Tensor | None = None,
        observe: Callable[[Branch, Tensor], None] | None = None,
    ) -> Tensor:
        """Run the stack; returns the final stream, which `readout` turns into logits.

        With a cache the rows are written to the slots from `cache.length` on, which doesn't
        change: `cache.advance` or `cache.keep` say what counts.

        Args:
            rows: token ids, [R], or [B, R] without a cache; or `Rows`.
            cache: keys and values of the text so far; None runs the rows as the whole text.
            plan: branches to leave out; their modules aren't called. None runs all.
            gates: multiplies each branch's output; broadcastable to [B, R, 2, n_layers], with
                attention at index 0 and MLP at 1. None is all 1.
            observe: called with each branch that runs and the stream it reads.

        Returns:
            [B, R, D] the stream after the last layer.
        """
        h, context = self.enter(rows, cache)
        return self.run_layers(h, context, plan=plan, gates=gates, observe=observe)

    __call__ = forward

    def enter(self, rows: Rows | Tensor, cache: KVCache | None = None) -> tuple[Tensor, Context]:
        """The stream [B, R, D] that the first layer reads, and what the branches share."""
        rows = rows if isinstance(rows, Rows) else Rows(rows)
        tokens = rows.tokens if rows.tokens.dim() == 2 else rows.tokens[None]  # [B, R]
        start = cache.length if cache is not None else 0
        positions = self._position_ids(rows, start)  # [1, R]
        h = self.embed(tokens, positions)
        return h, self._context(h, rows, positions, start, cache)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The stream [B, R, D] that the first layer reads, of tokens [B, R] at positions."""
        h: Tensor = self._embed(tokens)
        if self._embedding_multiplier is not None:
            h = h * self._embedding_multiplier
        if self._positions is not None:
            h = h + self._positions(positions)
        return h

    def run_layers(
        self,
        h: Tensor,
        context: Context,
        *,
        first: int = 0,
        last: int | None = None,
        plan: SkipPlan | None = None,
        gates: Tensor | None = None,
        observe: Callable[[Branch, Tensor], None] | None = None,
    ) -> Tensor:
        """Layers `first` to `last` (excluded) over the stream [B, R, D] that the first one reads.

        See `forward` for the rest.
        """
        if gates is None and observe is None and not self.parallel:
            return self._run(
                itertools.chain.from_iterable(self.branches[first:last]), h, context, plan
            )
        for attention, mlp in self.branches[first:last]:
            h = self._layer(h, attention, mlp, context, plan, gates, observe)
        return h

    def run_branches(
        self,
        h: Tensor,
        context: Context,
        first: int,
        last: int | None = None,
        *,
        plan: SkipPlan | None = None,
    ) -> Tensor:
        """Branches `first` to `last` (excluded): attention and MLP of layer 0 are 0 and 1, and on.

        Raises:
            ValueError: half a layer, in a layout where both branches read the layer's input.
        """
        last = 2 * self.n_layers if last is None else last
        halves = [at for at in (first, last) if at % 2]
        if halves and self.parallel:
            raise ValueError("this layout runs both branches of a layer together")
        if self.parallel:
            return self.run_layers(h, context, first=first // 2, last=last // 2, plan=plan)
        branches = itertools.islice(itertools.chain.from_iterable(self.branches), first, last)
        return self._run(branches, h, context, plan)

    def rotary(self, h: Tensor, positions: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Layer type → cos and sin [B, R, head_dim] for positions [B, R]; empty without rotary."""
        rotary: dict[str, tuple[Tensor, Tensor]] = {}
        for kind in self.windows if self._rotary is not None else ():
            if self.family.rotary_by_layer_type:
                rotary[kind] = self._rotary(h, positions, kind)
            else:
                rotary[kind] = next(iter(rotary.values()), None) or self._rotary(h, positions)
        return rotary

    def readout(self, h: Tensor) -> Tensor:
        """Final norm and head: the stream [B, R, D] → logits [B, R, V]."""
        logits = self._head(self._final_norm(h))
        if self._logit_divisor is not None:
            logits = logits / self._logit_divisor
        if self._logit_multiplier is not None:
            logits = logits * self._logit_multiplier
        if self._logit_softcap is not None:
            logits = torch.tanh(logits / self._logit_softcap) * self._logit_softcap
        return logits

    def logits(self, rows: Rows | Tensor, **options: Any) -> Tensor:
        """`readout(forward(rows, **options))`, [B, R, V]."""
        return self.readout(self.forward(rows, **options))

    # -- parts --------------------------------------------------------------------------------

    def _layer(
        self,
        h: Tensor,
        attention: Branch,
        mlp: Branch,
        context: Context,
        plan: SkipPlan | None,
        gates: Tensor | None,
        observe: Callable[[Branch, Tensor], None] | None,
    ) -> Tensor:
        together: Tensor | None = None  # in the parallel layout both are added at the end
        for index, branch in enumerate((attention, mlp)):
            if plan is not None and plan.skips(branch.kind, branch.layer):
                continue
            if observe is not None:
                observe(branch, h)
            written = branch(h, context)
            if gates is not None:
                written = written * gates[..., index, branch.layer, None]
            if self.parallel:
                together = written if together is None else together + written
            else:
                h = h + written
        return h if together is None else h + together

    def _run(
        self, branches: Iterable[Branch], h: Tensor, context: Context, plan: SkipPlan | None
    ) -> Tensor:
        """Branches of a serial stack one after the other, without those that a plan skips."""
        if plan is not None:
            branches = (each for each in branches if not plan.skips(each.kind, each.layer))
        if self.join is not None and context.chain is not None:
            return self.join(branches, h, context)
        for branch in branches:
            h = h + branch(h, context)
        return h

    def _position_ids(self, rows: Rows, start: int) -> Tensor:
        if rows.parents is None:
            positions = torch.arange(start, start + rows.tokens.shape[-1], device=self.device)
        else:
            positions = torch.tensor(rows.depths(), device=self.device) + start
        if self.max_positions is not None:  # padding rows may stand past the end
            positions = positions.clamp(max=self.max_positions - 1)
        return positions[None]

    def _context(
        self, h: Tensor, rows: Rows, positions: Tensor, start: int, cache: KVCache | None
    ) -> Context:
        n = rows.tokens.shape[-1]
        read = n if cache is None else round_up(start + n, BUCKET)
        rotary = self.rotary(h, positions)
        masks = Masks(
            {
                kind: partial(self._mask, rows, start, read, window, h)
                for kind, window in self.windows.items()
            }
        )
        if cache is None:
            return Context(rotary, masks, None, positions)
        plain = rows.parents is None and not torch.is_grad_enabled()
        chain = Chain(cache, start) if plain else None
        return Context(rotary, masks, CacheView(cache, read), positions, chain)

    def _mask(self, rows: Rows, start: int, read: int, window: int | None, h: Tensor) -> Tensor:
        """[1, 1, R, read]: 0 where a row attends, the type's lowest number where not."""
        n = rows.tokens.shape[-1]
        slots = torch.arange(read, device=h.device)
        depths = torch.arange(n, device=h.device)
        if rows.parents is None:
            own = start + depths[:, None]  # [R, 1] the slot and position of each row
            seen = slots <= own
            if window is not None:
                seen &= slots > own - window
        else:
            depths = torch.tensor(rows.depths(), device=h.device)
            seen = (slots < start).expand(n, read).clone()
            seen[:, start : start + n] = rows.ancestry().to(h.device)
            if window is not None:
                positions = slots.clone()
                positions[start : start + n] = start + depths
                seen &= positions > (start + depths)[:, None] - window
        lowest = torch.finfo(h.dtype).min
        return torch.where(seen, 0.0, lowest).to(h.dtype)[None, None]
