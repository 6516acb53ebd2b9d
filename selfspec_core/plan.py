"""Skip plans: which residual branches the draft leaves out, and how plans are made.

A model of L layers has 2L branches: attention and MLP of every layer. A plan names the
branches whose gate is 0 in the draft (design §1). It is plain data and touches no model.
"""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field

PRESETS: dict[str, float] = {"none": 0.0, "light": 0.20, "standard": 0.30, "deep": 0.50}
"""Preset name → share of branches skipped."""

NOTATION = (
    "layers count from 0 and ranges include both ends: '6-9' skips both branches of layers 6 to 9, "
    "'a3-12' attention only, 'm5' MLP only, joined by commas as in 'a3-12,m5,14'"
)

_TERM = re.compile(r"([am]?)(\d{1,20})(?:-(\d{1,20}))?\Z")


class PlanError(ValueError):
    """A plan that can't be made; the message says what was wrong and what is allowed."""


@dataclass(frozen=True)
class SkipPlan:
    """The branches that the draft skips.

    Args:
        n_layers: number of decoder layers of the model, at least 1.
        attention: layers whose attention branch is skipped, 0-based.
        mlp: layers whose MLP branch is skipped, 0-based.

    Raises:
        PlanError: a layer is out of range, or every branch would be skipped.
    """

    n_layers: int
    attention: frozenset[int] = field(default_factory=frozenset)
    mlp: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.n_layers < 1:
            raise PlanError(f"a model has at least 1 layer, got {self.n_layers}")
        object.__setattr__(self, "attention", frozenset(int(i) for i in self.attention))
        object.__setattr__(self, "mlp", frozenset(int(i) for i in self.mlp))
        outside = sorted(i for i in self.attention | self.mlp if not 0 <= i < self.n_layers)
        if outside:
            raise PlanError(
                f"layer {outside[0]} doesn't exist: this model has layers 0 to {self.n_layers - 1}"
            )
        if len(self.attention) == len(self.mlp) == self.n_layers:
            raise PlanError(
                "every branch is skipped, so the draft would be empty: keep at least one"
            )

    # -- what it says -----------------------------------------------------------------------

    @property
    def n_skipped(self) -> int:
        """Number of skipped branches, attention and MLP counted alike."""
        return len(self.attention) + len(self.mlp)

    @property
    def share(self) -> float:
        """Skipped branches ÷ all 2L branches, in [0, 1)."""
        return self.n_skipped / (2 * self.n_layers)

    @property
    def whole_layers(self) -> frozenset[int]:
        """Layers of which both branches are skipped."""
        return self.attention & self.mlp

    def skips(self, kind: str, layer: int) -> bool:
        """Whether the `kind` ("attention" or "mlp") branch of `layer` is skipped."""
        return layer in (self.attention if kind == "attention" else self.mlp)

    def toggled(self, kind: str, layer: int) -> SkipPlan:
        """The plan with one branch switched over.

        Raises:
            PlanError: unknown kind, layer out of range, or nothing would be left to draft with.
        """
        if kind not in ("attention", "mlp"):
            raise PlanError(f"a branch is 'attention' or 'mlp', got {kind!r}")
        sets = {"attention": self.attention, "mlp": self.mlp}
        sets[kind] = sets[kind] ^ {layer}
        return SkipPlan(self.n_layers, **sets)

    def __str__(self) -> str:
        """The notation that `SkipPlan.parse` reads; "none" for the empty plan. URL-safe."""
        attention, mlp = _runs(self.attention), _runs(self.mlp)
        terms = [(run, "" if run in mlp else "a") for run in attention]
        terms += [(run, "m") for run in mlp if run not in attention]
        return (
            ",".join(
                f"{kind}{first}" + (f"-{last}" if last > first else "")
                for (first, last), kind in sorted(terms)
            )
            or "none"
        )

    # -- how it is made ---------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str, n_layers: int) -> SkipPlan:
        """Read a plan from text: the notation of `NOTATION`, a preset's name, or a share.

        Args:
            text: for example "a3-12,m5,m7-9,14", "standard", "30%" or "none".
            n_layers: number of decoder layers of the model.

        Raises:
            PlanError: empty, malformed, out of range, a branch named twice, or all skipped.
        """
        wanted = text.strip().lower()
        if not wanted:
            raise PlanError(f"the plan is empty: write 'none' to skip nothing, or {NOTATION}")
        if wanted in PRESETS:
            return cls.preset(wanted, n_layers)
        if percent := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", wanted):
            return cls.from_ratio(float(percent[1]) / 100, n_layers)
        seen: dict[str, set[int]] = {"a": set(), "m": set()}
        for term in wanted.split(","):
            match = _TERM.match(term.strip())
            if not match:
                raise PlanError(
                    f"can't read {reprlib.repr(term.strip())} in the plan: {NOTATION}; "
                    f"or a preset ({', '.join(PRESETS)}) or a share such as '30%'"
                )
            kinds, first, last = match[1] or "am", int(match[2]), int(match[3] or match[2])
            if first > last:
                raise PlanError(f"the range {first}-{last} runs backwards: write {last}-{first}")
            if last >= n_layers:
                raise PlanError(
                    f"layer {last} doesn't exist: this model has layers 0 to {n_layers - 1}"
                )
            for kind in kinds:
                twice = seen[kind] & set(range(first, last + 1))
                if twice:
                    name = "attention" if kind == "a" else "MLP"
                    raise PlanError(f"the {name} branch of layer {min(twice)} is named twice")
                seen[kind] |= set(range(first, last + 1))
        return cls(n_layers, frozenset(seen["a"]), frozenset(seen["m"]))

    @classmethod
    def from_ratio(cls, ratio: float, n_layers: int) -> SkipPlan:
        """Skip about `ratio` of the branches: whole layers, the middle ones first.

        The first two layers and the last are never skipped; the number of layers is the
        nearest to `ratio * n_layers`.

        Raises:
            PlanError: `ratio` is negative or asks for more layers than may go.
        """
        most = max(n_layers - 3, 0)
        wanted = round(ratio * n_layers) if 0 <= ratio <= 1 else most + 1
        if wanted > most:
            raise PlanError(
                f"a share of {ratio:.0%} can't be skipped: 0% to {most / n_layers:.0%} is possible "
                f"on {n_layers} layers, since the first two and the last always stay"
            )
        centre = (n_layers - 1) / 2
        middle_first = sorted(range(2, n_layers - 1), key=lambda i: (abs(i - centre), i))
        layers = frozenset(middle_first[:wanted])
        return cls(n_layers, layers, layers)

    @classmethod
    def preset(cls, name: str, n_layers: int) -> SkipPlan:
        """A plan of `PRESETS`, by name; on very shallow models as far as `from_ratio` allows.

        Raises:
            PlanError: unknown name.
        """
        if name not in PRESETS:
            raise PlanError(
                f"unknown preset {reprlib.repr(name)}: choose one of {', '.join(PRESETS)}"
            )
        return cls.from_ratio(min(PRESETS[name], max(n_layers - 3, 0) / n_layers), n_layers)


def _runs(layers: Iterable[int]) -> list[tuple[int, int]]:
    """The (first, last) of every unbroken run of layers, ascending."""
    runs: list[tuple[int, int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], layer)
        else:
            runs.append((layer, layer))
    return runs


@dataclass(frozen=True)
class LengthSchedule:
    """Which plan drafts at which length of text: short texts skip less.

    Args:
        steps: `(from_length, plan)` pairs; a plan holds from that many tokens of text
            (prompt and written tokens together) until the next step. The first starts at 0.

    Raises:
        PlanError: no steps, not starting at 0, not ascending, or plans of different models.
    """

    steps: tuple[tuple[int, SkipPlan], ...]

    def __post_init__(self) -> None:
        lengths = [length for length, _ in self.steps]
        if not lengths or lengths[0] != 0:
            raise PlanError("a length schedule starts at length 0")
        if any(a >= b for a, b in itertools.pairwise(lengths)):
            raise PlanError(f"the lengths of a schedule ascend, got {lengths}")
        if len({plan.n_layers for _, plan in self.steps}) != 1:
            raise PlanError("the plans of a schedule belong to models of different depth")

    @classmethod
    def standard(
        cls, n_layers: int, *, boundary: int = 128, short: float = 0.30, long: float = 0.50
    ) -> LengthSchedule:
        """`short` of the branches below `boundary` tokens of text, `long` from there on."""
        return cls(
            (
                (0, SkipPlan.from_ratio(short, n_layers)),
                (boundary, SkipPlan.from_ratio(long, n_layers)),
            )
        )

    @classmethod
    def parse(cls, text: str, n_layers: int) -> LengthSchedule:
        """Read "PLAN;128:PLAN;…": a plan, then plans with the length each starts at.

        A plan in here is anything that `SkipPlan.parse` reads.
        """
        steps = []
        for i, part in enumerate(text.split(";")):
            length, colon, plan = part.rpartition(":")
            if i and not colon:
                raise PlanError(
                    f"{reprlib.repr(part)} lacks its length: write a schedule as '30%;128:50%'"
                )
            if colon and not re.fullmatch(r"\s*\d{1,9}\s*", length):
                raise PlanError(
                    f"{reprlib.repr(length)} is no length: write a schedule as '30%;128:50%'"
                )
            steps.append((int(length or 0), SkipPlan.parse(plan, n_layers)))
        return cls(tuple(steps))

    @property
    def n_layers(self) -> int:
        """Number of decoder layers of the model."""
        return self.steps[0][1].n_layers

    def at(self, length: int) -> SkipPlan:
        """The plan that drafts when the text has `length` tokens."""
        return next(plan for start, plan in reversed(self.steps) if length >= start)

    def __str__(self) -> str:
        first, *rest = self.steps
        begin = str(first[1]) if rest else f"0:{first[1]}"  # alone it would read as a plan
        return ";".join([begin, *(f"{start}:{plan}" for start, plan in rest)])


def parse_plan(text: str, n_layers: int) -> SkipPlan | LengthSchedule:
    """Read a plan or a length schedule ("schedule" is the standard one)."""
    if text.strip().lower() == "schedule":
        return LengthSchedule.standard(n_layers)
    if ";" in text or ":" in text:
        return LengthSchedule.parse(text, n_layers)
    return SkipPlan.parse(text, n_layers)
