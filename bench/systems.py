"""The systems that are compared: each writes a text for a prompt and says how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from selfspec_core.engine import Engine
from selfspec_core.loading import LoadedModel
from selfspec_core.plan import LengthSchedule, SkipPlan
from selfspec_core.request import Request

PLAIN, SELFSPEC = "plain", "selfspec"
HF_GENERATE, HF_EARLY_EXIT, HF_PROMPT_LOOKUP = "hf-generate", "hf-early-exit", "hf-prompt-lookup"
SYSTEMS = (PLAIN, SELFSPEC, HF_GENERATE, HF_EARLY_EXIT, HF_PROMPT_LOOKUP)


@dataclass(frozen=True)
class Written:
    """One generation.

    Args:
        tokens: ids written.
        seconds: wall clock, the reading of the prompt included.
        rounds, drafted, accepted: counts of self-speculation; 0 for others.
    """

    tokens: tuple[int, ...]
    seconds: float
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


System = Callable[[Sequence[int], int], Written]
"""(prompt ids, new tokens) → what was written, greedily."""


def ours(
    engine: Engine,
    *,
    plan: SkipPlan | LengthSchedule | None = None,
    k: int = 0,
    window: int | None = None,
) -> System:
    """This engine: plain decoding for k = 0, else self-speculative under a plan."""

    def write(prompt_ids: Sequence[int], max_new_tokens: int) -> Written:
        request = Request(
            prompt_ids=tuple(prompt_ids),
            plan=plan,
            k=k,
            window=window,
            max_new_tokens=max_new_tokens,
        )
        begin = time.perf_counter()
        done = engine.generate(request).done
        seconds = time.perf_counter() - begin
        return Written(done.tokens, seconds, done.rounds, done.drafted, done.accepted)

    return write


def transformers_generate(loaded: LoadedModel, **options: Any) -> System:
    """transformers' own `generate`, greedy, with these further arguments."""
    model = loaded.model

    @torch.inference_mode()
    def write(prompt_ids: Sequence[int], max_new_tokens: int) -> Written:
        ids = torch.tensor([list(prompt_ids)], device=model.device)
        begin = time.perf_counter()
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=0,
            **options,
        )
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        return Written(tuple(out[0, ids.shape[1] :].tolist()), time.perf_counter() - begin)

    return write


def fastest_plain(engine: Engine, prompt_ids: Sequence[int], *, repeats: int = 3) -> int:
    """Rows a forward (1 or 4) with which plain decoding is fastest here, measured interleaved."""
    times: dict[int, list[float]] = {1: [], 4: []}
    for _ in range(repeats):
        for rows, taken in times.items():
            written = ours(engine, window=rows)(prompt_ids, 24)
            taken.append(written.seconds / max(len(written.tokens), 1))
    return min(times, key=lambda rows: sorted(times[rows])[repeats // 2])
