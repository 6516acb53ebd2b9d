"""The Compare panel's work for the engine's thread: a generation a slice, everything freed after.

transformers' systems need the weights as plain tensors; the engine has packed its own, so they
run on a copy, which lives as long as the comparison.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import LengthSchedule

from .compare_choice import ALONE, ASSISTANT, DRAFTING, PLAIN, THEIRS, Wanted
from .compare_table import Table
from .session import Studio
from .tune_feed import Patch, Progress, TuneError, rounded, said

if TYPE_CHECKING:
    from bench.lineup import Lineup, Setup
    from selfspec_core.engine import Engine
    from selfspec_core.request import Request

Cancelled = Callable[[], bool]
_RATES_KEPT = 4
_PACE_TOKENS = 16


class Comparisons:
    """Makes comparisons, and remembers how fast systems wrote; on the engine's thread only.

    Args:
        studio: the model and its scheduler.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._rates: OrderedDict[int, dict[str, float]] = OrderedDict()
        studio.when_loaded.append(self._rates.clear)

    def rates(self) -> dict[str, float]:
        """System → seconds a token, as far as it was measured on this model here."""
        return dict(self._rates.get(id(self._studio.engine), {}))

    def pace(self) -> Iterator[Any]:
        """Measure how fast plain decoding is, once a model, so that a time can be told."""
        from bench.systems import ours
        from selfspec_core.request import Request

        engine = self._studio.ready()
        if PLAIN not in self.rates():
            ids = engine.encode(Request(prompt="-"))
            written = ours(engine)(ids, _PACE_TOKENS)
            self._learn(engine, {PLAIN: written.seconds / max(len(written.tokens), 1)})
        yield None

    def run(self, wanted: Wanted, cancelled: Cancelled) -> Iterator[Any]:
        """Compare; rows come as they fill in.

        Raises:
            TuneError: something that can't be compared; says what to change.
        """
        engine = self._studio.ready()
        wanted.check(self._studio.limits)
        request = wanted.settings.request(engine.n_layers, self._studio.limits)
        self._check(engine, request, wanted)
        try:
            yield from self._run(engine, request, wanted, cancelled)
        finally:
            _release(engine)

    def _run(
        self, engine: Engine, request: Request, wanted: Wanted, cancelled: Cancelled
    ) -> Iterator[Any]:
        from bench.compare import compare
        from bench.opening import setting

        setup = _setup(engine, request)
        lineup = _lineup(engine, setup, wanted, cancelled)
        table = Table((PLAIN, *wanted.systems), wanted.tokens, len(wanted.prompts))
        yield Patch(
            {
                "lengths": list(wanted.tokens),
                "repeats": wanted.repeats,
                "prompts": len(wanted.prompts),
                "plan": str(setup.plan),
                "k": setup.k,
                "setting": setting(engine),
                "rows": table.rows(),
                "notes": [],
                "complete": False,
            }
        )
        steps = compare(
            engine,
            wanted.prompts,
            wanted.systems,
            setup,
            lengths=wanted.tokens,
            repeats=wanted.repeats,
            chat=request.chat,
            by=("length",),
            lineup=lineup,
        )
        yield _about("rows", PLAIN)
        try:
            loaded = 0
            for step in steps:
                if cancelled():  # what was being written has ended in its middle: it doesn't count
                    raise TuneError("tune.state.stopped")
                if step.stage == "load":
                    loaded += 1
                    table.tell(step.system, **_memory(engine, lineup, step.system))
                    yield Patch({"rows": table.rows(), "notes": _notes(lineup, wanted)})
                    if loaded < len(wanted.systems) + 1:
                        yield _about("load", wanted.systems[loaded - 1])
                        continue
                if step.stage == "measure" and step.written is not None:
                    table.add(step.system, step.prompt, step.length, step.written)
                    yield Patch({"rows": table.rows()})
                if step.result is not None:
                    table.finish(step.result)
                    notes = _notes(lineup, wanted)
                    if table.differing(THEIRS):
                        notes.append(said("compare.note.differing"))
                    yield Patch(
                        {
                            "rows": table.rows(),
                            "plain_rows": step.result.plain_rows,
                            "notes": notes,
                            "complete": True,
                        }
                    )
                    break
                yield Progress(
                    f"compare.step.{step.stage}",
                    {
                        "system": said(f"compare.system.{step.system}"),
                        "done": step.done,
                        "of": step.total,
                    },
                    step.done / step.total,
                    step.seconds_left,
                )
        finally:
            steps.close()
            self._learn(engine, table.rates())

    def _check(self, engine: Engine, request: Request, wanted: Wanted) -> None:
        if request.k < 1 and set(wanted.systems) & set(DRAFTING):
            raise TuneError("compare.error.k")
        from dataclasses import replace

        longest = max(wanted.tokens)
        for prompt in wanted.prompts:
            ids = engine.encode(replace(request, prompt=prompt, max_new_tokens=1))
            self._studio.limits.check_prompt_tokens(len(ids))
            if len(ids) + longest > engine.context:
                raise TuneError(
                    "compare.error.context",
                    prompt=len(ids),
                    tokens=longest,
                    context=engine.context,
                )

    def _learn(self, engine: Engine, rates: dict[str, float]) -> None:
        if self._studio.engine is engine:
            self._rates.setdefault(id(engine), {}).update(rates)
            while len(self._rates) > _RATES_KEPT:
                self._rates.popitem(last=False)


def _about(stage: str, system: str) -> Progress:
    """What comes next, where that is known."""
    copying = stage == "load" and system.startswith("hf-")
    key = "compare.step.copy" if copying else f"compare.step.{stage}"
    return Progress(key, {"system": said(f"compare.system.{system}"), "done": 0, "of": 0})


def _setup(engine: Engine, request: Request) -> Setup:
    from bench.lineup import Setup
    from selfspec_core.plan import SkipPlan

    return Setup(
        plan=request.plan or SkipPlan(engine.n_layers),
        k=max(1, request.k),
        confidence=request.confidence,
        policy=request.draft_policy,
    )


def _lineup(engine: Engine, setup: Setup, wanted: Wanted, cancelled: Cancelled) -> Lineup:
    from bench.lineup import Lineup, unpacked

    def no_gguf() -> Any:
        raise TuneError("compare.error.systems")

    return Lineup(
        setup,
        engine=lambda: engine,
        theirs=lambda: unpacked(engine),
        gguf=no_gguf,
        assistant=(lambda: _other(engine, wanted.draft_model)) if wanted.draft_model else None,
        end_ids=engine.end_ids,
        context=engine.context,
        cancelled=cancelled,
    )


def _other(engine: Engine, name: str) -> Any:
    """Another model to draft with, which has to speak in the same tokens."""
    from selfspec_core.loading import load

    info = engine.loaded.info
    other = load(name, device=info.device, dtype=info.dtype, progress=lambda _: None)
    mine, theirs = engine.tokenizer, other.tokenizer
    if mine is None or theirs is None or mine.get_vocab() != theirs.get_vocab():
        raise TuneError("compare.error.vocabulary", name=name)
    return other.model


def _memory(engine: Engine, lineup: Lineup, system: str) -> dict[str, Any]:
    """Weights of a system as it stands: MB in all, times the whole model's, of a further model."""
    from .compare_memory import kept_megabytes, megabytes

    whole, extra = engine.loaded.info.weights_mb, 0.0
    held = whole
    if system == ALONE:
        held = kept_megabytes(engine, lineup.plan_alone())
    elif system.startswith("hf-"):
        held = megabytes(lineup.theirs.model)
        if system == ASSISTANT:
            extra = megabytes(lineup.assistant)
    return {
        "megabytes": rounded(held + extra),
        "memory_ratio": rounded((held + extra) / whole) if whole else None,
        "extra_megabytes": rounded(extra),
    }


def _notes(lineup: Lineup, wanted: Wanted) -> list[dict[str, Any]]:
    """What a reader of the table has to know."""
    notes = [said("compare.note.greedy")]
    plan = lineup.plan_alone()
    if set(wanted.systems) & set(DRAFTING):
        if isinstance(lineup.setup.plan, LengthSchedule):
            notes.append(said("compare.note.schedule", plan=str(plan)))
        if not plan.n_skipped:
            notes.append(said("compare.note.nothing_skipped"))
    if ASSISTANT in wanted.systems:
        if wanted.draft_model:
            notes.append(said("compare.note.other", name=wanted.draft_model))
        elif (used := lineup.assistant_plan()) != plan:
            notes.append(said("compare.note.assistant", plan=str(used)))
    if set(wanted.systems) & set(THEIRS):
        notes.append(said("compare.note.copy"))
    return notes


def _release(engine: Engine) -> None:
    """Give back what the copies took, now and not some day."""
    gc.collect()
    if engine.loaded.info.device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
