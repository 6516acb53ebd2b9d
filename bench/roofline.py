"""`bench roofline`: plain decoding as a share of what memory bandwidth allows.

A token can't be decoded faster than the weights that it needs are read. What is read is counted
once each: all layers, the head (which is the embedding where they are tied), and the keys and
values of the text so far.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from selfspec_core.engine import Engine
from selfspec_core.pages import Pages
from selfspec_core.request import Request
from selfspec_core.runtime import clock

from .forwards import BareForwards
from .opening import Pace, check_counts, open_engine, setting
from .prompts import read_categorised
from .systems import fastest_plain, ours

BUFFER_MB = 512  # many times any last-level cache
READS = 5


class Reader:
    """A buffer much larger than any cache, and the ways to read all of it once.

    Args:
        device: where it lies.
        megabytes: of 10⁶ bytes.
    """

    def __init__(self, device: torch.device, megabytes: int = BUFFER_MB) -> None:
        self._device, self.nbytes = device, megabytes * 1_000_000 // 8 * 8
        words = _untouched(self.nbytes // 8, device).fill_(1)
        floats = words.view(torch.float32)
        # A reduction only reads. Which kernel is fastest differs between processors.
        self._ways: list[Callable[[], object]] = [
            words.sum,
            floats.sum,
            floats.max,
            lambda: torch.dot(floats, floats),
        ]

    def gbs(self) -> float:
        """GB (10⁹ bytes) a second of the fastest way, each tried once."""
        return self.nbytes / min(self._seconds(way) for way in self._ways) / 1e9

    def _seconds(self, way: Callable[[], object]) -> float:
        begin = clock(self._device)
        way()
        return clock(self._device) - begin


def _untouched(count: int, device: torch.device) -> torch.Tensor:
    """[count] of int64, on a CPU in the large pages that weights are read from too."""
    if device.type == "cpu":
        return Pages().zeros((count,), torch.int64)
    return torch.empty(count, dtype=torch.int64, device=device)


def weight_bytes(engine: Engine) -> int:
    """Bytes of weights that one forward must read: everything but an embedding that isn't the
    head too, of which a forward reads a row a token."""
    info, config = engine.loaded.info, engine.decoder.config
    item = torch.empty((), dtype=engine.decoder.dtype).element_size()
    nbytes = round(info.weights_mb * 1e6)
    if not getattr(config, "tie_word_embeddings", False):
        nbytes -= engine.loaded.model.get_input_embeddings().weight.numel() * item
    return nbytes


def kv_bytes(engine: Engine, positions: float) -> float:
    """Bytes of keys and values that attention must read with so many positions of text."""
    config = engine.decoder.config
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    item = torch.empty((), dtype=engine.decoder.dtype).element_size()
    return 2 * engine.n_layers * kv_heads * head_dim * item * positions


def run(options: argparse.Namespace) -> int:
    """Measure; print a sentence or one line of JSON."""
    check_counts(options)
    if options.buffer_mb < 1:
        raise ValueError(f"--buffer-mb must be 1 or more, got {options.buffer_mb}")
    prompts = read_categorised(options.prompts, options.limit, by_category=False)
    engine = open_engine(options)
    ids = [engine.encode(Request(prompt=each.text, chat=options.chat)) for each in prompts]
    found = measure(engine, ids, options.max_new_tokens, options.repeats, options.buffer_mb)
    if options.json:
        print(json.dumps({**found, **setting(engine)}, allow_nan=False))
        return 0
    print(
        f"memory is read at {found['bandwidth_gbs']:.1f} GB/s; a token needs "
        f"{found['bytes_per_token'] / 1e6:.0f} MB, so at most {found['most_tps']:.1f} tokens/s; "
        f"plain decoding writes {found['tps']:.1f} ({found['rows']} rows a forward): "
        f"{found['share']:.0%} of the roofline, its bare forwards {found['forward_share']:.0%}"
    )
    print(engine.execution)
    return 0


def measure(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    repeats: int,
    megabytes: int = BUFFER_MB,
) -> dict[str, float]:
    """Reads, generations and bare forwards in turns.

    Args:
        engine: warmed up.
        prompts: token ids.
        tokens: to write for each.
        repeats: of everything.
        megabytes: size of the buffer that is read.
    """
    reader = Reader(engine.decoder.device, megabytes)
    rows = fastest_plain(engine, prompts[0], tokens=min(24, tokens))
    write = ours(engine, window=rows)
    reads: list[float] = []
    speeds: list[float] = []
    forwards: list[float] = []
    lengths: list[float] = []
    pace, total, begin = Pace(), repeats * len(prompts), time.perf_counter()
    for _ in range(repeats):
        for ids in prompts:
            reads += [reader.gbs() for _ in range(READS)]
            written = write(ids, tokens)
            assert written.decoding
            speeds.append(len(written.tokens) / written.decoding)
            lengths.append(len(ids) + (len(written.tokens) - 1) / 2)
            text = [*ids, *written.tokens[: len(written.tokens) // 2]]
            bare = BareForwards(engine, text, most=rows)
            forwards += [bare.time(rows) for _ in range(READS + 1)][1:]
            done = len(speeds)
            left = (time.perf_counter() - begin) / done * (total - done)
            pace.tell(f"{done}/{total}: {reads[-1]:.1f} GB/s, {speeds[-1]:.1f} tokens/s", left)
    bandwidth, tps = max(reads), statistics.median(speeds)
    weights, cached = weight_bytes(engine), kv_bytes(engine, statistics.fmean(lengths))
    needed = weights + cached
    forward_ms = statistics.median(forwards)
    return {
        "bandwidth_gbs": bandwidth,
        "share": needed * tps / (bandwidth * 1e9),
        "tps": tps,
        "most_tps": bandwidth * 1e9 / needed,
        "bytes_per_token": needed,
        "weight_bytes": weights,
        "kv_bytes": cached,
        "rows": rows,
        "forward_ms": forward_ms,
        "forward_share": needed / (forward_ms / 1e3) / (bandwidth * 1e9),
        "median_gbs": statistics.median(reads),
    }
