"""A key/value cache of fixed buffers, written by slot; its length is one number.

Invariant between rounds (design §3): `length == len(prefix) - 1`. Slots at or past `length`
hold what a draft or a rejected window left there; no mask shows them to anyone, and the next
write replaces them. So rolling back is setting `length`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .pages import Pages

BUCKET = 128
"""Attention reads a whole number of buckets, never a slice of the exact length (design §3)."""


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple


class KVCache:
    """Keys and values of every layer, for one text.

    Args:
        n_layers: number of decoder layers.
        capacity: slots to hold, rounded up to a multiple of `BUCKET`. The last window needs
            room for its padding rows too.

    A layer's buffers, [1, kv_heads, capacity, head_dim], are made when it is first written,
    in the shape, type and place of what is written.
    """

    def __init__(self, n_layers: int, capacity: int) -> None:
        self.capacity = round_up(capacity, BUCKET)
        self._length = 0
        self._layers: list[tuple[Tensor, Tensor] | None] = [None] * n_layers
        self._pages = Pages()

    @property
    def length(self) -> int:
        """Number of slots that count."""
        return self._length

    def advance(self, rows: int) -> None:
        """Let the `rows` slots just written count.

        Raises:
            ValueError: past the capacity.
        """
        if self._length + rows > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens, not {self._length + rows}")
        self._length += rows

    def rollback(self, length: int) -> None:
        """Forget all slots from `length` on.

        Raises:
            ValueError: `length` is negative or more than what is there.
        """
        if not 0 <= length <= self._length:
            raise ValueError(f"can't roll back to {length}: the cache holds {self._length}")
        self._length = length

    def keep(self, slots: list[int]) -> None:
        """Keep, of the slots from `length` on, these (relative to `length`), and let them count.

        For a chain they are 0, 1, 2, … and nothing moves; for a path through a tree the
        accepted rows close up.
        """
        start = self._length
        if slots != list(range(len(slots))):
            for buffers in self._layers:
                for buffer in buffers or ():
                    kept = buffer[:, :, [start + slot for slot in slots]]  # [1, H, n, D], a copy
                    buffer[:, :, start : start + len(slots)] = kept
        self.advance(len(slots))

    def write(self, layer: int, keys: Tensor, values: Tensor, read: int) -> tuple[Tensor, Tensor]:
        """Put rows into the slots from `length` on; returns what attention reads.

        Args:
            layer: 0-based.
            keys, values: [1, kv_heads, rows, head_dim].
            read: slots to return, a multiple of `BUCKET`.

        Returns:
            keys and values, [1, kv_heads, read, head_dim], views of the buffers.
        """
        buffers = self._layers[layer]
        if buffers is None:
            buffers = self._layers[layer] = (
                self._zeros(keys.shape[1], keys.shape[3], keys),
                self._zeros(values.shape[1], values.shape[3], values),
            )
        start, end = self._length, self._length + keys.shape[2]
        buffers[0][:, :, start:end] = keys
        buffers[1][:, :, start:end] = values
        return buffers[0][:, :, :read], buffers[1][:, :, :read]

    def buffers(self, layer: int, shape: tuple[int, int], like: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's whole buffers, for who writes them itself.

        Args:
            layer: 0-based.
            shape: (kv_heads, head_dim), should they have to be made.
            like: of the type and in the place that they are made in.

        Returns:
            keys and values, [1, kv_heads, capacity, head_dim].
        """
        buffers = self._layers[layer]
        if buffers is None:
            buffers = self._layers[layer] = (self._zeros(*shape, like), self._zeros(*shape, like))
        return buffers

    def _zeros(self, kv_heads: int, head_dim: int, like: Tensor) -> Tensor:
        """A buffer; zeros, since masked slots are still multiplied by 0: NaN there would spread."""
        shape = (1, kv_heads, self.capacity, head_dim)
        if like.device.type == "cpu":
            return self._pages.zeros(shape, like.dtype)
        return like.new_zeros(shape)

    def copy_from(self, other: KVCache) -> None:
        """Hold what another cache of the same model and capacity holds."""
        self._length = other._length
        self._layers = [
            None if pair is None else (pair[0].clone(), pair[1].clone()) for pair in other._layers
        ]

    def nbytes(self) -> int:
        """Bytes held by the buffers made so far."""
        return sum(t.nbytes for buffers in self._layers for t in buffers or ())


class CacheView:
    """What an attention module of transformers is handed as its cache for one forward."""

    def __init__(self, cache: KVCache, read: int) -> None:
        self._cache = cache
        self._read = read

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """transformers' `Cache.update`: store the new rows, return all that is read."""
        return self._cache.write(layer_idx, keys, values, self._read)
