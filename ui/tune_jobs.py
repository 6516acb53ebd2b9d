"""The Tune panel's work, as generators for the engine's thread: `Progress` and `Patch`es come out.

Each is one background job in slices: people who decode go first, and a stop ends it at the next
slice with everything kept that was found so far.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import SkipPlan

from . import tune_plans
from .session import Studio
from .tune_feed import Patch, Progress, TuneError, rounded, said
from .tune_subject import Asked, Cancelled, Subject, Subjects, confirmed

if TYPE_CHECKING:
    from analysis.table import Array
    from selfspec_core.cost import CostModel

MIDDLE, MEASURED = "middle", "measured"
METHODS = (
    MIDDLE,
    "block_influence",
    "input_x_gradient",
    "layer_gradient_x_activation",
    "gradient_flow",
    MEASURED,
)
"""Ways to say which branches matter least, quickest first; the last one tries them all."""
_IMPORTANCE_KEPT = 16
_MEASURED_ON = 3  # texts that curves are measured on


@dataclass(frozen=True)
class _Key:
    engine: int
    method: str
    texts: Any


class Jobs:
    """Everything that the panel has the engine do.

    Args:
        studio: the model and its scheduler.
    """

    def __init__(self, studio: Studio) -> None:
        self.subjects = Subjects(studio)
        self._studio = studio
        self._importance: OrderedDict[_Key, tuple[float | None, ...]] = OrderedDict()
        studio.when_loaded.append(self._importance.clear)

    # -- 1 suggestion ---------------------------------------------------------------------------

    def suggest(
        self, asked: Asked, method: str, share: float, cancelled: Cancelled
    ) -> Iterator[Any]:
        """A plan of about this share by a method's importance, and what it would give."""
        if method not in METHODS:
            raise TuneError("tune.error.method")
        values = yield from self._values(asked, method, cancelled)
        plan = tune_plans.least_important(values, share)
        yield Patch(
            {
                "method": method,
                "values": [rounded(v) for v in values],
                "plan": str(plan),
                "share": rounded(plan.share),
                "attention": sorted(plan.attention),
                "mlp": sorted(plan.mlp),
                "predicted": None,
            }
        )
        subject = yield from self.subjects.prepared(asked, cancelled)
        yield costs_patch(subject.costs)
        yield Progress("tune.step.predicting")
        yield Patch({"predicted": tune_plans.point(subject.objective.score(plan))})

    def _values(
        self, asked: Asked, method: str, cancelled: Cancelled
    ) -> Generator[Any, None, tuple[float | None, ...]]:
        """[2L] importance of every branch, remembered."""
        engine = self._studio.ready()
        if method == MIDDLE:
            return tuple(tune_plans.middle_values(engine.n_layers))
        key = _Key(
            id(engine), method, (asked.request(engine.n_layers, self._studio.limits), asked.seen)
        )
        if key not in self._importance:
            make = self._dropped if method == MEASURED else self._attributed
            self._importance[key] = yield from make(asked, method, cancelled)
            while len(self._importance) > _IMPORTANCE_KEPT:
                self._importance.popitem(last=False)
        self._importance.move_to_end(key)
        return self._importance[key]

    def _dropped(
        self, asked: Asked, _: str, cancelled: Cancelled
    ) -> Generator[Any, None, tuple[float | None, ...]]:
        """The truth: how many first drafts are lost where a branch alone is left out."""
        _, predictor = yield from self.subjects.reference(asked, cancelled)
        n_layers = self._studio.ready().n_layers
        empty, lost = SkipPlan(n_layers), []
        for number in range(2 * n_layers):
            args = {"number": number + 1, "of": 2 * n_layers}
            yield Progress("tune.step.dropping", args, number / (2 * n_layers))
            if n_layers == 1:
                lost.append(1.0)
                continue
            plan = empty.toggled(("attention", "mlp")[number % 2], number // 2)
            lost.append(1 - predictor.table(plan, depth=1).by_depth()[0])
        return tuple(lost)

    def _attributed(
        self, asked: Asked, method: str, cancelled: Cancelled
    ) -> Generator[Any, None, tuple[float | None, ...]]:
        """What a method of `analysis.importance` says of the same texts."""
        from analysis.importance import Settings, importance
        from analysis.texts import Text

        reference, _ = yield from self.subjects.reference(asked, cancelled)
        texts = [Text(text.ids, len(text.prompt_ids)) for text in reference.texts]
        plan = SkipPlan.preset("standard", self._studio.ready().n_layers)
        assert self._studio.loaded is not None
        column: Array | None = None
        steps = importance(
            self._studio.loaded,
            texts,
            Settings(plan=plan),
            methods=[method],
            cancelled=cancelled,
        )
        for step in steps:
            yield Progress("tune.step.importance", {}, step.done, step.seconds_left)
            if method in step.importance.columns:
                column = step.importance.columns[method].values
        if column is None or cancelled():
            raise TuneError("tune.state.stopped")
        return tuple(rounded(float(value)) for value in column)

    # -- 2 curves -------------------------------------------------------------------------------

    def curves(
        self, asked: Asked, plan_text: str, method: str, *, measure: bool, cancelled: Cancelled
    ) -> Iterator[Any]:
        """Predicted speed by k and by share; measured points on top where they are wished."""
        if method not in METHODS:
            raise TuneError("tune.error.method")
        engine = self._studio.ready()
        plan, until = tune_plans.single(plan_text, engine.n_layers)
        yield Patch({"plan": str(plan), "until": until, "method": method})
        subject = yield from self.subjects.prepared(asked, cancelled)
        yield costs_patch(subject.costs)
        yield Progress("tune.step.predicting")
        by_k = self._by_k(subject, plan)
        yield Patch({"by_k": by_k, "measured_k": []})
        values = yield from self._values(asked, method, cancelled)
        by_share: list[dict[str, Any]] = []
        yield Patch({"by_share": [], "measured_share": []})
        for number, share in enumerate(tune_plans.SHARES):
            args = {"number": number + 1, "of": len(tune_plans.SHARES)}
            yield Progress("tune.step.shares", args, number / len(tune_plans.SHARES))
            wanted = tune_plans.least_important(values, share)
            if wanted.n_skipped and str(wanted) not in [p["plan"] for p in by_share]:
                by_share.append(tune_plans.point(subject.objective.score(wanted)))
                yield Patch({"by_share": list(by_share)})
        if measure:
            yield from self._measured(subject, plan, by_k, by_share, cancelled)

    def _by_k(self, subject: Subject, plan: SkipPlan) -> list[dict[str, Any]]:
        most = subject.objective.most
        table = subject.predictor.table(plan, depth=most)
        rows = []
        for k in range(1, most + 1):
            walked = table.walk(k)
            speed = subject.costs.speed(plan, k, walked, subject.objective.slots)
            rows.append(
                {
                    "k": k,
                    "alpha": rounded(walked.alpha),
                    "tau": rounded(walked.tau),
                    "speedup": rounded(speed.speedup),
                    "low": rounded(speed.low),
                    "high": rounded(speed.high),
                }
            )
        return rows

    def _measured(
        self,
        subject: Subject,
        plan: SkipPlan,
        by_k: Sequence[dict[str, Any]],
        by_share: Sequence[dict[str, Any]],
        cancelled: Cancelled,
    ) -> Iterator[Any]:
        """Real decoding of every point, on the first few of the same prompts."""
        from analysis.confirm import Choice

        choices = {f"k{row['k']}": Choice(plan, row["k"]) for row in by_k}
        for row in by_share:
            one = SkipPlan.parse(row["plan"], plan.n_layers)
            choices[row["plan"]] = Choice(one, row["k"])
        found = yield from confirmed(
            subject.engine,
            subject.request,
            choices,
            subject.seen[:_MEASURED_ON],
            cancelled,
            "tune.step.measuring",
        )
        points = {name: tune_plans.measured_point(each) for name, each in found.items()}
        yield Patch(
            {
                "measured_k": [{"k": row["k"], **points[f"k{row['k']}"]} for row in by_k],
                "measured_share": [
                    {"share": row["share"], "k": row["k"], **points[row["plan"]]}
                    for row in by_share
                ],
                "measured_on": min(_MEASURED_ON, len(subject.seen)),
            }
        )

    # -- draft policies -------------------------------------------------------------------------

    def policies(self, asked: Asked, plan_text: str, cancelled: Cancelled) -> Iterator[Any]:
        """What every draft policy gives with a plan, by real decoding."""
        from .tune_policies import choices_of

        engine = self._studio.ready()
        plan, _ = tune_plans.single(plan_text, engine.n_layers)
        request = asked.request(engine.n_layers, self._studio.limits)
        choices = choices_of(plan, max(1, request.k))
        found = yield from confirmed(
            engine,
            request,
            choices,
            asked.seen[:_MEASURED_ON],
            cancelled,
            "tune.step.measuring",
        )
        rows = {
            name: {"k": choices[name].k, **tune_plans.measured_point(each)}
            for name, each in found.items()
        }
        yield Patch({"plan": str(plan), "rows": rows, "measured_on": _MEASURED_ON})


def costs_patch(costs: CostModel) -> Patch:
    """What things cost here, for the line at the top of the panel."""
    rows, _ = costs.plain()
    whole = costs.draft_ms(SkipPlan(costs.n_layers))
    return Patch(
        {
            "costs": said(
                "tune.costs",
                tps=rounded(costs.plain_speed()),
                rows=rows,
                draft=rounded(whole),
                fixed=rounded(costs.draft[1]),
                attention=rounded(costs.draft[2]),
                mlp=rounded(costs.draft[3]),
            )
        }
    )
