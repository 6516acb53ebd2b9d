"""The key/value cache: its length is one number, so rolling back is free and leaves no trace."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfspec_core.cache import BUCKET, CacheView, KVCache, round_up

HEADS, SIZE = 2, 3


def rows(*marks: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [1, H, n, D] of tokens that can be told apart."""
    keys = (
        torch.tensor(marks, dtype=torch.float32)
        .view(1, 1, -1, 1)
        .expand(1, HEADS, len(marks), SIZE)
    )
    return keys, -keys


def held(cache: KVCache, n_layers: int = 2) -> list[list[float]]:
    """The marks of the slots that count, by layer; values must mirror the keys."""
    layers = []
    for layer in range(n_layers):
        keys, values = cache.write(layer, *rows(), read=cache.capacity)
        keys, values = keys[:, :, : cache.length], values[:, :, : cache.length]
        assert torch.equal(keys, -values)
        assert bool((keys == keys[:, :1, :, :1]).all())
        layers.append(keys[0, 0, :, 0].tolist())
    return layers


def put(cache: KVCache, *marks: float, n_layers: int = 2) -> None:
    """Write provisionally, to every layer."""
    for layer in range(n_layers):
        cache.write(layer, *rows(*marks), read=BUCKET)


def test_capacity_is_a_whole_number_of_buckets():
    assert [KVCache(1, n).capacity for n in (1, 127, 128, 129, 300)] == [128, 128, 128, 256, 384]
    assert [round_up(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]


def test_what_is_written_counts_once_the_cache_advances():
    cache = KVCache(2, 10)
    assert cache.length == 0
    put(cache, 1, 2, 3)
    assert cache.length == 0
    cache.advance(3)
    assert held(cache) == [[1, 2, 3]] * 2


def test_case_11_a_window_rewrites_the_drafts_slots():
    """The round: drafts are provisional, the window starts at the same slot, n of it are kept."""
    for accepted in range(4):
        cache = KVCache(2, 20)
        put(cache, 1, 2)
        cache.advance(2)
        for draft in (30, 40, 50):
            put(cache, draft)
            cache.advance(1)
        cache.rollback(2)
        put(cache, 3, 4, 5, 6)
        cache.keep(list(range(accepted + 1)))
        assert cache.length == 3 + accepted
        assert held(cache) == [[1, 2, 3, 4, 5, 6][: 3 + accepted]] * 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1)), max_size=15))
def test_rolling_back_and_going_on_equals_never_having_been_there(steps):
    cache, marks, next_mark = KVCache(2, 128), [], 1
    for n, share in steps:
        put(cache, *range(next_mark, next_mark + n))
        cache.advance(n)
        marks += range(next_mark, next_mark + n)
        next_mark += n
        back = int(share * len(marks))
        cache.rollback(back)
        del marks[back:]
    assert cache.length == len(marks)
    assert held(cache) == [marks] * 2 or not steps


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_a_path_through_a_tree_closes_up(taken):
    """Rows of the window that were accepted follow each other, the others vanish."""
    cache = KVCache(2, 30)
    put(cache, 1, 2)
    cache.advance(2)
    put(cache, *range(10, 10 + len(taken)))
    slots = [i for i, take in enumerate(taken) if take]
    cache.keep(slots)
    assert held(cache) == [[1, 2, *(10 + i for i in slots)]] * 2


def test_reading_gives_the_slots_asked_for_masked_ones_as_zeros():
    cache = KVCache(1, 200)
    keys, values = cache.write(0, *rows(7, 8), read=BUCKET)
    assert keys.shape == values.shape == (1, HEADS, BUCKET, SIZE)
    assert keys[0, 0, :3, 0].tolist() == [7, 8, 0]
    assert not keys[:, :, 2:].any()  # never garbage: NaN times a mask of 0 would be NaN
    view = CacheView(cache, 2 * BUCKET)
    keys, values = view.update(*rows(9), 0, {"cache_position": None})
    assert keys.shape == (1, HEADS, 2 * BUCKET, SIZE)
    assert keys[0, 0, :2, 0].tolist() == [9, 8]


def test_layers_that_never_ran_have_no_buffers():
    cache = KVCache(3, 128)
    assert cache.nbytes() == 0
    cache.write(1, *rows(1), read=BUCKET)
    assert cache.nbytes() == 2 * HEADS * 128 * SIZE * 4
    cache.keep([0])  # the layers without buffers don't mind
    assert cache.length == 1


def test_keys_and_values_may_differ_in_size_and_keep_their_type():
    cache = KVCache(1, 10)
    keys = torch.ones(1, HEADS, 2, 5, dtype=torch.bfloat16)
    values = torch.ones(1, HEADS, 2, 3, dtype=torch.bfloat16)
    k, v = cache.write(0, keys, values, read=BUCKET)
    assert (k.shape[-1], v.shape[-1]) == (5, 3)
    assert k.dtype == v.dtype == torch.bfloat16


def test_the_capacity_is_the_end():
    cache = KVCache(1, 128)
    cache.advance(128)
    with pytest.raises(ValueError, match="holds 128 tokens, not 129"):
        cache.advance(1)
    assert cache.length == 128
    cache.rollback(126)
    with pytest.raises(ValueError, match="holds 128 tokens, not 129"):
        cache.keep([0, 1, 2])
    assert cache.length == 126


@pytest.mark.parametrize("length", [-1, 4, 128])
def test_rolling_back_to_where_nothing_is_is_refused(length):
    cache = KVCache(1, 128)
    cache.advance(3)
    with pytest.raises(ValueError, match=rf"can't roll back to {length}: the cache holds 3"):
        cache.rollback(length)
    assert cache.length == 3
