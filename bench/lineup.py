"""How each system is made, by name: what it drafts with, and whose weights it runs on."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from selfspec_core.draft_checkpoint import write_draft
from selfspec_core.engine import Engine
from selfspec_core.loading import LoadedModel, load
from selfspec_core.plan import LengthSchedule, SkipPlan
from selfspec_core.policies import MAX_K
from selfspec_core.request import START
from selfspec_core.scheduler import Cancelled

from .llama_cpp import llama_cpp
from .systems import (
    DRAFT_ALONE,
    HF_ASSISTANT,
    HF_EARLY_EXIT,
    HF_GENERATE,
    HF_PROMPT_LOOKUP,
    LLAMA_CPP,
    PLAIN,
    SELFSPEC,
    SYSTEMS,
    System,
    draft_alone,
    never,
    ours,
    transformers_generate,
)

EARLY_EXIT_SHARE = 0.4  # of the layers: where transformers' early exit leaves unless told
LOOKUP_TOKENS = 3
DEFAULT_SHARE = 0.3  # of the layers that the assistant skips where a plan skips no whole one


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What the systems draft with.

    Args:
        plan: what this engine's draft skips.
        k: its drafts a round, 1 or more.
        confidence: where its drafting stops; None as the policy has it.
        policy: how many of k are drafted, a `draft_policy` of `Request`; None is fixed.
        verify_from: where verification starts, as in `Request`.
        early_exit: layers of transformers' early exit; None is 40% of the model's.
    """

    plan: SkipPlan | LengthSchedule
    k: int
    confidence: float | None = None
    policy: str | None = None
    verify_from: str = START
    early_exit: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MAX_K:
            raise ValueError(f"self-speculation drafts: k must be 1–{MAX_K}, got {self.k}")
        if self.confidence is not None and self.policy in ("fixed", "auto"):
            raise ValueError(
                f"the policy {self.policy} looks at no confidence, and the plan says "
                f"{self.confidence}: choose confidence or adaptive"
            )
        n_layers = self.plan.n_layers
        if self.early_exit is not None and not 0 < self.early_exit < n_layers:
            raise ValueError(
                f"--early-exit must be 1–{n_layers - 1} layers on this model, got {self.early_exit}"
            )

    @property
    def drafting(self) -> str:
        """The policy that this comes to."""
        return self.policy or ("fixed" if self.confidence is None else "confidence")


class Lineup:
    """Makes systems by name; a model is loaded when the first system that needs it is made.

    Args:
        setup: what they draft with.
        engine: → this engine, for ours.
        theirs: → the model with plain, unpacked weights, for transformers.
        gguf: → the model's GGUF file, for llama.cpp.
        assistant: → the model that transformers drafts with; None is the exported draft.
        end_ids: tokens that end a text, for llama.cpp.
        context: most tokens of prompt and text together, for llama.cpp.
        cancelled: asked while a text is written, which ends where it says so.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        engine: Callable[[], Engine],
        theirs: Callable[[], LoadedModel],
        gguf: Callable[[], Path],
        assistant: Callable[[], Any] | None = None,
        end_ids: Sequence[int] = (),
        context: int = 2048,
        cancelled: Cancelled = never,
    ) -> None:
        self.setup, self._end_ids, self._context = setup, end_ids, context
        self._make_engine, self._make_theirs, self._find_gguf = engine, theirs, gguf
        self._cancelled = cancelled
        self._make_assistant = assistant or self._assistant
        self.assistant: Any = None
        """The model that transformers drafts with, once it is made."""
        self.notes: list[str] = []
        """What a reader of the figures has to know."""

    @cached_property
    def engine(self) -> Engine:
        """This engine."""
        return self._make_engine()

    @cached_property
    def theirs(self) -> LoadedModel:
        """The model as transformers runs it."""
        return self._make_theirs()

    def make(self, name: str, rows: int | None = None) -> System:
        """The system of that name.

        Args:
            name: of `SYSTEMS`.
            rows: rows a forward of plain decoding and of the small model alone.

        Raises:
            ValueError: an unknown name, or one that can't be run here.
        """
        setup = self.setup
        if name == PLAIN:
            return ours(self.engine, window=rows, cancelled=self._cancelled)
        if name == SELFSPEC:
            return ours(
                self.engine,
                plan=setup.plan,
                k=setup.k,
                confidence=setup.confidence,
                policy=setup.policy,
                verify_from=setup.verify_from,
                cancelled=self._cancelled,
            )
        if name == DRAFT_ALONE:
            small = self.plan_alone()
            return draft_alone(self.engine, small, window=rows, cancelled=self._cancelled)
        if name == LLAMA_CPP:
            gguf = self._find_gguf()
            self._note(f"llama-cpp runs {gguf.name} with its own weights, whatever the dtype here")
            context = min(4096, self._context)
            return llama_cpp(gguf, self._end_ids, context=context, cancelled=self._cancelled)
        if name not in SYSTEMS:
            raise ValueError(f"unknown system {name!r}: choose of {', '.join(SYSTEMS)}")
        options = self._options(name)
        return transformers_generate(self.theirs, cancelled=self._cancelled, **options)

    def plan_alone(self) -> SkipPlan:
        """The plan of the small model alone: ours, or a schedule's first."""
        plan = self.setup.plan
        return plan.at(0) if isinstance(plan, LengthSchedule) else plan

    def assistant_plan(self) -> SkipPlan:
        """Whole layers, as a draft checkpoint has them: those that our plan skips fully, else
        the middle 30%; a note says so where it isn't our plan itself."""
        plan = self.plan_alone()
        whole = plan.whole_layers
        if whole and plan.attention == plan.mlp:
            return plan
        if whole:
            chosen = SkipPlan(plan.n_layers, whole, whole)
            why = f"the whole layers of {plan}"
        else:
            most = max(plan.n_layers - 3, 1) / plan.n_layers
            chosen = SkipPlan.from_ratio(min(DEFAULT_SHARE, most), plan.n_layers)
            why = f"{plan} skips no whole layer, so the middle {DEFAULT_SHARE:.0%}"
        self._note(f"hf-assistant drafts with {chosen} skipped: {why}")
        return chosen

    def _options(self, name: str) -> dict[str, Any]:
        """Further arguments of transformers' `generate`."""
        n_layers = self.theirs.info.n_layers
        if name == HF_GENERATE:
            return {}
        if name == HF_EARLY_EXIT:
            layers = self.setup.early_exit or max(1, int(n_layers * EARLY_EXIT_SHARE))
            return {"assistant_early_exit": layers}
        if name == HF_PROMPT_LOOKUP:
            return {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
        assert name == HF_ASSISTANT
        self.assistant = self._make_assistant()
        return {"assistant_model": self.assistant}

    def _assistant(self) -> Any:
        """The model that transformers drafts with: a checkpoint as `analysis export` writes it,
        with this engine's k, read back from a folder that is gone again afterwards."""
        setup, loaded = self.setup, self.theirs
        info = loaded.info
        with tempfile.TemporaryDirectory(prefix="selfspec-bench-") as scratch:
            made = write_draft(
                Path(scratch) / "draft",
                loaded,
                self.assistant_plan(),
                k=setup.k,
                confidence=setup.confidence,
            )
            return load(
                str(made.folder),
                device=info.device,
                dtype=info.dtype,
                progress=lambda _: None,
            ).model

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def unpacked(engine: Engine) -> LoadedModel:
    """The engine's model with plain weights again, as a copy, for transformers to run."""
    model = copy.deepcopy(engine.loaded.model)
    if getattr(model.config, "tie_word_embeddings", False):
        model.tie_weights()
    return replace(engine.loaded, model=model)
