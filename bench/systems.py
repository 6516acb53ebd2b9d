"""The systems that are compared: each writes a text for a prompt and says how long it took."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import StoppingCriteriaList

from selfspec_core.branch import resolve
from selfspec_core.decoder import ResidualDecoder
from selfspec_core.engine import Engine
from selfspec_core.experience import Experience
from selfspec_core.families import family_of
from selfspec_core.loading import LoadedModel
from selfspec_core.plan import LengthSchedule, SkipPlan
from selfspec_core.request import START, Request
from selfspec_core.scheduler import Cancelled

PLAIN, SELFSPEC, DRAFT_ALONE = "plain", "selfspec", "draft-alone"
HF_GENERATE, HF_EARLY_EXIT = "hf-generate", "hf-early-exit"
HF_PROMPT_LOOKUP, HF_ASSISTANT = "hf-prompt-lookup", "hf-assistant"
LLAMA_CPP = "llama-cpp"

SYSTEMS = (
    PLAIN,
    SELFSPEC,
    HF_GENERATE,
    HF_EARLY_EXIT,
    HF_PROMPT_LOOKUP,
    HF_ASSISTANT,
    LLAMA_CPP,
    DRAFT_ALONE,
)
"""Every system, by the name that figures carry."""
THEIRS = (HF_GENERATE, HF_EARLY_EXIT, HF_PROMPT_LOOKUP, HF_ASSISTANT)
"""Those that transformers runs."""

ROWS = (1, 4)
"""Rows a forward that plain decoding is tried with; figures are against the faster one."""
NOISE = 0.03
"""By less than this share one number of rows isn't called faster than another."""


@dataclass(frozen=True)
class Written:
    """One generation.

    Args:
        tokens: ids written.
        seconds: wall clock, the reading of the prompt included.
        rounds: verification forwards; 0 for what doesn't draft.
        drafted, accepted: counts of self-speculation; 0 for others.
        decoding: seconds of the rounds alone; None where the system doesn't tell.
    """

    tokens: tuple[int, ...]
    seconds: float
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    decoding: float | None = None


def never() -> bool:
    """Nobody calls it off."""
    return False


System = Callable[[Sequence[int], int], Written]
"""(prompt ids, new tokens) → what was written, greedily."""


def ours(
    engine: Engine,
    *,
    plan: SkipPlan | LengthSchedule | None = None,
    k: int = 0,
    confidence: float | None = None,
    policy: str | None = None,
    verify_from: str = START,
    window: int | None = None,
    cancelled: Cancelled = never,
) -> System:
    """This engine: plain decoding for k = 0, else self-speculative under a plan.

    Where `cancelled` says so, a text ends with its round.
    """

    def write(prompt_ids: Sequence[int], max_new_tokens: int) -> Written:
        request = Request(
            prompt_ids=tuple(prompt_ids),
            plan=plan,
            k=k,
            confidence=confidence,
            draft_policy=policy,
            verify_from=verify_from,
            window=window,
            max_new_tokens=max_new_tokens,
        )
        begin = time.perf_counter()
        done = engine.generate(request, cancelled=cancelled).done
        seconds = time.perf_counter() - begin
        return Written(done.tokens, seconds, done.rounds, done.drafted, done.accepted, done.seconds)

    return write


def draft_alone(
    engine: Engine,
    plan: SkipPlan,
    *,
    window: int | None = None,
    cancelled: Cancelled = never,
) -> System:
    """The small model that a plan makes, decoding by itself: it reads the prompt under the plan
    too, so it never sees a key or value of the whole model. No second copy of weights is made.
    """
    small = copy.copy(engine)
    small.decoder = UnderPlan(engine.decoder, plan)  # type: ignore[assignment]
    small.experience = Experience(engine.n_layers)  # its rounds say nothing of the whole model's
    return ours(small, window=window, cancelled=cancelled)


class UnderPlan:
    """A decoder whose every forward skips what a plan skips, else the same.

    Args:
        decoder: the whole stack.
        plan: the branches left out, always.
    """

    def __init__(self, decoder: ResidualDecoder, plan: SkipPlan) -> None:
        self._decoder, self._plan = decoder, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, rows: Any, **options: Any) -> torch.Tensor:
        """`ResidualDecoder.forward` under the plan."""
        return self._decoder.forward(rows, **{**options, "plan": self._plan})

    def logits(self, rows: Any, **options: Any) -> torch.Tensor:
        """`ResidualDecoder.logits` under the plan."""
        return self._decoder.logits(rows, **{**options, "plan": self._plan})

    __call__ = forward


def transformers_generate(
    loaded: LoadedModel, *, cancelled: Cancelled = never, **options: Any
) -> System:
    """transformers' own `generate`, greedy, with these further arguments.

    Where `cancelled` says so, a text ends with its token, or with its round of drafts.
    Where these have it draft, its rounds are counted: a forward that reaches the last layer is a
    verification, also where the draft is the model itself, left early.
    """
    model = loaded.model
    drafts = bool(options)
    if cancelled is not never:

        def called_off(ids: torch.Tensor, *_: Any) -> torch.Tensor:  # one answer a text
            return torch.full((len(ids),), cancelled(), device=ids.device)

        options["stopping_criteria"] = StoppingCriteriaList([called_off])
    last: Any = resolve(model, family_of(model.config).layers)[-1]

    @torch.inference_mode()
    def write(prompt_ids: Sequence[int], max_new_tokens: int) -> Written:
        ids = torch.tensor([list(prompt_ids)], device=model.device)
        passes: list[None] = []
        counting = last.register_forward_hook(lambda *_: passes.append(None))
        try:
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
            seconds = time.perf_counter() - begin
        finally:
            counting.remove()
        tokens = tuple(out[0, ids.shape[1] :].tolist())
        return Written(tokens, seconds, rounds=len(passes) if drafts else 0)

    return write


def fastest_plain(
    engine: Engine, prompt_ids: Sequence[int], *, repeats: int = 5, tokens: int = 24
) -> int:
    """Rows a forward (of `ROWS`) with which plain decoding is fastest here, interleaved."""
    times: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(repeats):
        for rows, taken in times.items():
            written = ours(engine, window=rows)(prompt_ids, tokens)
            taken.append(written.seconds / max(len(written.tokens), 1))
    return fastest(times)


def fastest(times: Mapping[int, Sequence[float]]) -> int:
    """The rows with the smallest median time; fewer rows where that is by noise alone.

    Args:
        times: rows → seconds a token, measured in turns: the n-th of each belong together.
    """
    best, *others = sorted(times)
    for rows in others:
        ratios = [mine / theirs for mine, theirs in zip(times[rows], times[best], strict=True)]
        if median(ratios) < 1 - NOISE:
            best = rows
    return best
