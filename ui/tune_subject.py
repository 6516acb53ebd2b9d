"""What everything in the Tune panel is measured on: texts, what the target computes, costs.

All of this runs on the engine's thread, in slices: the generators yield after every round, and
`Progress` in between. Texts and costs depend on no person, so they are kept for the next one.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from selfspec_core.events import Done, Round, Start
from selfspec_core.prompts import read_prompts

from .limits import Limits
from .places import ASSETS
from .session import Studio
from .settings import LOSSY_RULES, Settings
from .tune_feed import Progress, TuneError

if TYPE_CHECKING:
    from analysis.acceptance import Predictor
    from analysis.confirm import Choice, Measured
    from analysis.reference import Reference, Text
    from analysis.search import Objective
    from selfspec_core.cost import CostModel
    from selfspec_core.engine import Engine
    from selfspec_core.request import Request

MOST = 8
"""Longest draft that is looked at."""
TEXTS, TOKENS, SECONDS = (2, 10), (16, 128), (10, 600)
"""What a person may ask for: texts, tokens of each, seconds of a search."""
CONFIRMED_ON = 4
"""Prompts that a search never saw, which its choice is decoded on."""

Cancelled = Callable[[], bool]
_SUBJECTS_KEPT, _TEXTS_KEPT, _COSTS_KEPT = 2, 64, 8
SLICE = object()
"""What a job yields to end a slice, where there is nothing to tell."""


@cache
def example_prompts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The project's own prompts: those to choose by, and those to confirm by."""
    prompts = read_prompts(ASSETS / "prompts.jsonl")
    return tuple(prompts[::2]), tuple(prompts[1::2])


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person wants to be measured on; nothing is taken on trust.

    Args:
        settings: of the Decode panel: prompt, rule, sampling, seed, k.
        texts: how many of the example prompts.
        tokens: written after each.
        own: the person's prompt as well.

    Raises:
        TuneError: a number outside what is allowed.
    """

    settings: Settings
    texts: Any = 6
    tokens: Any = 48
    own: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", whole("texts", self.texts, *TEXTS))
        object.__setattr__(self, "tokens", whole("tokens", self.tokens, *TOKENS))

    @property
    def seen(self) -> tuple[str, ...]:
        """Prompts to choose by."""
        own = (self.settings.prompt,) if self.own else ()
        return own + tuple(p for p in example_prompts()[0] if p not in own)[: self.texts]

    @property
    def unseen(self) -> tuple[str, ...]:
        """Prompts to confirm by."""
        own = (self.settings.prompt,) if self.own else ()
        return tuple(p for p in example_prompts()[1] if p not in own)[:CONFIRMED_ON]

    def request(self, n_layers: int, limits: Limits) -> Request:
        """The request that every text is written with; its prompt and plan are left open.

        Raises:
            ValueError: a setting of the Decode panel that can't be used.
        """
        prompt = self.settings.prompt if self.own else "-"
        made = replace(self.settings, prompt=prompt, plan="none").request(n_layers, limits)
        if made.rule in LOSSY_RULES:
            raise TuneError("tune.error.lossy", rule=made.rule)
        return replace(
            made,
            prompt="",
            plan=None,
            draft_policy=None,
            confidence=None,
            stop=(),
            max_new_tokens=self.tokens,
        )

    def terms(self, engine: Engine) -> str:
        """What figures hold for, beside plan, k and the draft's temperature: a fingerprint.

        Model, prompts and every setting that texts or speed depend on; how drafting stops and
        stop strings too, which figures are measured without.

        Raises:
            ValueError: a setting that can't be used.
        """
        own = self.settings.prompt if self.own else ""
        asked = replace(
            self.settings, prompt=own.strip() or "-", plan="none", k=1, draft_temperature=None
        )
        made = replace(asked.request(engine.n_layers), max_new_tokens=self.tokens)
        if made.sampling.temperature == 0:
            made = replace(made, seed=0)  # nothing is drawn
        info = engine.loaded.info
        model = (info.weights_hash, info.dtype, info.device)
        held = repr((model, made, self.seen, self.unseen))
        return hashlib.sha256(held.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What plans are scored by.

    Args:
        engine: the model.
        request: as `Asked.request` makes it.
        seen, unseen: prompts.
        reference: what the target computes over its texts after the seen prompts.
        predictor: of acceptance over these.
        costs: of this device.
        objective: predicted speeds, remembered.
    """

    engine: Engine
    request: Request
    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    reference: Reference
    predictor: Predictor
    costs: CostModel
    objective: Objective = field(repr=False)

    def fresh_objective(self) -> Objective:
        """One that remembers nothing yet, and drops hopeless plans after a few texts."""
        from analysis.acceptance import Predictor
        from analysis.search import Objective

        few = max(1, len(self.reference.texts) // 4)
        screen = Predictor(self.engine, self.reference.first(few), self.request)
        return Objective(self.predictor, self.costs, screen=screen, most=self.objective.most)


class Subjects:
    """Makes subjects and keeps the last few; used on the engine's thread only."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._texts: OrderedDict[tuple[Request, str], Text] = OrderedDict()
        self._references: OrderedDict[Any, tuple[Reference, Predictor]] = OrderedDict()
        self._costs: OrderedDict[Any, CostModel] = OrderedDict()
        self._subjects: OrderedDict[Any, Subject] = OrderedDict()
        studio.when_loaded.append(self._forget)

    def forget_costs(self) -> None:
        """Have costs measured anew."""
        self._costs.clear()
        self._subjects.clear()

    def _forget(self) -> None:
        """Let go of a model that was here before."""
        for kept in (self._texts, self._references, self._costs, self._subjects):
            kept.clear()

    def _keep(
        self, kept: OrderedDict[Any, Any], key: Any, engine: Engine, value: Any, most: int
    ) -> None:
        """Remember, unless another model has come meanwhile."""
        if self._studio.engine is engine:
            kept[key] = value
            while len(kept) > most:
                kept.popitem(last=False)

    def prepared(self, asked: Asked, cancelled: Cancelled) -> Generator[Any, None, Subject]:
        """Texts, then costs; returns the subject."""
        engine = self._studio.ready()
        request = asked.request(engine.n_layers, self._studio.limits)
        key = (id(engine), request, asked.seen)
        if key in self._subjects:
            self._subjects.move_to_end(key)
            return replace(self._subjects[key], unseen=asked.unseen)
        reference, predictor = yield from self.reference(asked, cancelled)
        costs = yield from self.costs(request, cancelled)
        from analysis.search import Objective

        made = Subject(
            engine=engine,
            request=request,
            seen=asked.seen,
            unseen=asked.unseen,
            reference=reference,
            predictor=predictor,
            costs=costs,
            objective=Objective(predictor, costs, most=min(MOST, self._studio.limits.max_k)),
        )
        self._keep(self._subjects, key, engine, made, _SUBJECTS_KEPT)
        return made

    def reference(
        self, asked: Asked, cancelled: Cancelled
    ) -> Generator[Any, None, tuple[Reference, Predictor]]:
        """The target's texts, and what predicts acceptance over them."""
        engine = self._studio.ready()
        request = asked.request(engine.n_layers, self._studio.limits)
        key = (id(engine), request, asked.seen)
        if key in self._references:
            self._references.move_to_end(key)
            return self._references[key]
        texts = yield from self._written(engine, request, asked.seen, cancelled)
        yield Progress("tune.step.reading")
        # Imported on the engine's thread: torch may not be there yet when the page is.
        from analysis.acceptance import Predictor
        from analysis.reference import Reference

        reference = Reference(engine.decoder, texts)
        made = (reference, Predictor(engine, reference, request))
        self._keep(self._references, key, engine, made, _SUBJECTS_KEPT)
        return made

    def costs(self, request: Request, cancelled: Cancelled) -> Generator[Any, None, CostModel]:
        """What drafting and checking cost on this device, measured once for everybody."""
        from analysis.costs import Costing

        engine = self._studio.ready()
        key = (id(engine), request.rule, request.sampling)
        if key in self._costs:
            return self._costs[key]
        yield Progress("tune.step.costs", {"percent": 0})
        costing = Costing(engine, request, passes=2, most=MOST, training=6)
        for each in costing.run(cancelled):
            done = each.done / each.total
            args = {"percent": round(100 * done)}
            yield Progress("tune.step.costs", args, done, each.seconds_left)
        if cancelled():
            raise TuneError("tune.state.stopped")
        model = costing.result().model
        self._keep(self._costs, key, engine, model, _COSTS_KEPT)
        return model

    def _written(
        self, engine: Engine, request: Request, prompts: Sequence[str], cancelled: Cancelled
    ) -> Generator[Any, None, list[Text]]:
        """The target's answers by plain decoding."""
        from analysis.reference import Text

        begin, texts = time.perf_counter(), []
        plain = replace(request, k=0, window=request.window or engine.window_for(0))
        for number, prompt in enumerate(prompts):
            key = (plain, prompt)
            if key in self._texts:
                texts.append(self._texts[key])
                continue
            left = _left(begin, number, len(prompts))
            args = {"number": number + 1, "of": len(prompts)}
            yield Progress("tune.step.texts", args, number / len(prompts), left)
            start, done = yield from decoded(engine, replace(plain, prompt=prompt), cancelled)
            if done.reason == "cancelled":
                raise TuneError("tune.state.stopped")
            if done.tokens:
                ids = start.prompt_ids
                budget = min(request.max_new_tokens, engine.context - len(ids))
                texts.append(Text(ids + done.tokens, len(ids), budget))
                self._keep(self._texts, key, engine, texts[-1], _TEXTS_KEPT)
        if not texts:
            raise TuneError("tune.error.no_text")
        return texts


def decoded(
    engine: Engine, request: Request, cancelled: Cancelled
) -> Generator[Any, None, tuple[Start, Done]]:
    """Decode in slices of a round; returns the first and the last event."""
    start: Start | None = None
    for event in engine.stream(request, cancelled=cancelled):
        if isinstance(event, Start):
            start = event
        elif isinstance(event, Done):
            assert start is not None
            return start, event
        elif isinstance(event, Round):
            yield SLICE
    raise AssertionError("a stream ends with `done`")


def confirmed(
    engine: Engine,
    request: Request,
    choices: Mapping[str, Choice],
    prompts: Sequence[str],
    cancelled: Cancelled,
    key: str = "tune.step.decoding",
) -> Generator[Any, None, dict[str, Measured]]:
    """Decode choices beside plain decoding, in turns; returns what came out, by name."""
    from analysis.confirm import Confirmation

    confirmation = Confirmation(engine, request, choices)
    total, begin = len(prompts) * (len(choices) + 2), time.perf_counter()
    for number, (name, one) in enumerate(confirmation.turns(prompts)):
        args = {"number": number + 1, "of": total}
        yield Progress(key, args, number / total, _left(begin, number, total))
        _, done = yield from decoded(engine, one, cancelled)
        if done.reason == "cancelled":
            raise TuneError("tune.state.stopped")
        confirmation.take(name, done)
    return confirmation.results()


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number within limits.

    Raises:
        TuneError: it isn't.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise TuneError(f"tune.error.{name}", least=least, most=most)
    if not least <= value <= most or value != int(value):
        raise TuneError(f"tune.error.{name}", least=least, most=most)
    return int(value)


def _left(begin: float, done: int, total: int) -> float | None:
    return (time.perf_counter() - begin) / done * (total - done) if done else None
