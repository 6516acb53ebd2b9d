"""Our own plan file: what the draft skips, for which model, and what it was measured to gain.

One JSON object, `schema: 1`. Reading takes nothing on trust: sizes are bounded, every entry is
checked, and what a file says of its model is held against the model at hand by `misfits`.
Other projects' files are read and written by `plan_formats`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
import transformers

from .acceptance import THRESHOLD
from .bounded_json import (
    MAX_LAYERS,
    PlanFileError,
    check_layer_count,
    is_number,
    parse_json,
    read_text,
    shown,
    write_text,
)
from .loading import ModelInfo
from .plan import LengthSchedule, PlanError, SkipPlan, parse_plan
from .plan_entries import SAMPLING, Figures, check_flat, check_sampling, check_text
from .policies import DEFAULT_CONFIDENCE
from .request import Request, RequestError
from .sampling import Sampling

__all__ = [
    "Figures",
    "Misfit",
    "PlanFile",
    "PlanFileError",
    "hash_of_texts",
    "read_plan_file",
    "versions",
    "write_plan_file",
]

SCHEMA = 1
MAX_NOTATION, MAX_STEPS = 100_000, 64
_LOOKING = ("confidence", "adaptive")  # policies that look at the draft's confidence


@dataclass(frozen=True)
class Misfit:
    """One thing that a file says and the model at hand doesn't.

    Args:
        what: "layers", "weights", "model", "family", "dtype", "device", "version" or
            "calibration".
        file, here: what the file says, and what is the case.
        means: what follows, for a person.
        blocks: the plan can't be run here.
    """

    what: str
    file: str
    here: str
    means: str
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.what}: the file says {self.file}, here it is {self.here}; {self.means}"


@dataclass(frozen=True, kw_only=True)
class PlanFile:
    """A plan with its settings, its model and its figures.

    Args:
        plan: what the draft skips; knows the number of layers.
        k: drafts a round, 0 to 16; 0 is plain decoding.
        model: id of the model that it was made for.
        rule, threshold: acceptance rule, and θ of the rule `threshold` (None for the default).
        confidence: stop after a token less likely than this, or where "adaptive" begins.
        policy: draft policy: "adaptive" or "auto"; None, as "fixed" and "confidence" become, is
            what the confidence says.
        temperature: of the text, at which the figures were taken.
        sampling: the text's further settings, of `SAMPLING`, where they aren't the defaults.
        draft_temperature: the draft's own (calibration, design §3); None is the text's.
        family, weights_hash, dtype, device: of the model, as `ModelInfo` has them.
        versions: library → version.
        calibration_hash: `hash_of_texts` of the texts that it was chosen on.
        predicted, measured: α, τ and speed.
        check: `check.summary` of a check with these settings.

    Raises:
        PlanFileError: a value outside what is allowed.
    """

    plan: SkipPlan | LengthSchedule
    k: int
    model: str
    rule: str = "coupled"
    threshold: float | None = None
    confidence: float | None = None
    policy: str | None = None
    temperature: float = 0.0
    sampling: Mapping[str, Any] = field(default_factory=dict)
    draft_temperature: float | None = None
    family: str | None = None
    weights_hash: str | None = None
    dtype: str | None = None
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    calibration_hash: str | None = None
    predicted: Figures | None = None
    measured: Figures | None = None
    check: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.policy in _LOOKING and self.confidence is None:
            object.__setattr__(self, "confidence", DEFAULT_CONFIDENCE)
        if self.policy in ("fixed", "confidence"):  # the confidence says so
            object.__setattr__(self, "policy", None)
        if self.plan.n_layers > MAX_LAYERS:
            raise PlanFileError(f"a plan file holds at most {MAX_LAYERS} layers")
        steps = len(self.plan.steps) if isinstance(self.plan, LengthSchedule) else 1
        if steps > MAX_STEPS:
            raise PlanFileError(f"a plan file holds a schedule of at most {MAX_STEPS} plans")
        for name in ("temperature", "draft_temperature", "threshold", "confidence"):
            value = getattr(self, name)
            optional = name != "temperature"
            if not (is_number(value) or (value is None and optional)):
                raise PlanFileError(f"{name} must be a number, got {shown(value)}")
        for name in ("model", "rule", "family", "weights_hash", "dtype", "device"):
            check_text(name, getattr(self, name), optional=name not in ("model", "rule"))
        check_text("calibration_hash", self.calibration_hash, optional=True)
        check_sampling(self.sampling)
        for name in ("versions", "check"):
            check_flat(name, getattr(self, name), text_only=name == "versions")
        try:
            self.request()
            if self.draft_temperature is not None:  # a request looks at it only when it samples
                Sampling(temperature=self.draft_temperature)
        except ValueError as error:
            raise PlanFileError(str(error)) from None

    @classmethod
    def of(
        cls, info: ModelInfo, plan: SkipPlan | LengthSchedule, *, k: int, **settings: Any
    ) -> PlanFile:
        """The file of a plan for this model, on this machine, with these libraries."""
        return cls(
            plan=plan,
            k=k,
            model=info.id,
            family=info.family,
            weights_hash=info.weights_hash,
            dtype=info.dtype,
            device=info.device,
            versions=versions(),
            **settings,
        )

    @classmethod
    def of_request(cls, info: ModelInfo, request: Request, **figures: Any) -> PlanFile:
        """The file of a request's plan and settings; `figures` are further entries.

        Raises:
            PlanFileError: the request has sampling settings that no file holds.
        """
        sampling = request.sampling
        if sampling.logit_bias or sampling.processors:
            raise PlanFileError("a plan file holds no logit_bias and no processors: leave them out")
        plain = Sampling()
        return cls.of(
            info,
            request.plan or SkipPlan(info.n_layers),
            k=request.k,
            rule=request.rule,
            threshold=request.threshold if request.rule == THRESHOLD else None,
            policy=request.draft_policy,
            confidence=request.confidence,
            temperature=sampling.temperature,
            sampling={
                name: getattr(sampling, name)
                for name in SAMPLING
                if getattr(sampling, name) != getattr(plain, name)
            },
            draft_temperature=request.draft_temperature,
            **figures,
        )

    @property
    def n_layers(self) -> int:
        """Number of decoder layers of the model."""
        return self.plan.n_layers

    def request(self, **changes: Any) -> Request:
        """A request that drafts as the file says; `changes` are fields of `Request`.

        Raises:
            RequestError: a value outside what is allowed.
        """
        settings: dict[str, Any] = {
            "plan": self.plan,
            "k": self.k,
            "rule": self.rule,
            "confidence": self.confidence,
            "draft_policy": self.policy,
            "draft_temperature": self.draft_temperature,
            "sampling": Sampling(**{**self.sampling, "temperature": self.temperature}),
        }
        if self.threshold is not None:
            settings["threshold"] = self.threshold
        return Request(**{**settings, **changes})

    def misfits(self, info: ModelInfo, *, calibration_hash: str | None = None) -> list[Misfit]:
        """What the file says that isn't so here. Only another layer count stops the plan.

        The output stays lossless under every plan, so for another model or machine it is
        the figures that no longer hold.

        Args:
            info: the model at hand.
            calibration_hash: of the calibration texts at hand, where there are some.
        """
        found: list[Misfit] = []

        def compare(what: str, file: object, here: object, means: str, blocks: bool) -> None:
            if file is not None and here is not None and file != here:
                found.append(Misfit(what, str(file), str(here), means, blocks))

        same = self.weights_hash is not None and self.weights_hash == info.weights_hash
        run = "the plan can't be run: it names layers of another model"
        other = "it was made for another model; its figures say nothing of this one"
        slower = "measure again: acceptance may be the same, speed isn't"
        compare("layers", self.n_layers, info.n_layers, run, True)
        compare("family", self.family, info.family, other, False)
        compare("weights", self.weights_hash, info.weights_hash, other, False)
        if not same:  # one model has many names
            compare("model", self.model, info.id, other, False)
        compare("dtype", self.dtype, info.dtype, "figures and check were of other numbers", False)
        compare("device", self.device, info.device, slower, False)
        here = versions()
        for name, version in self.versions.items():
            compare("version", f"{name} {version}", f"{name} {here.get(name)}", slower, False)
        means = "it was chosen on other texts"
        compare("calibration", self.calibration_hash, calibration_hash, means, False)
        return found

    def require(self, info: ModelInfo) -> None:
        """Refuse a model that the plan can't be run on.

        Raises:
            PlanFileError: tells everything that doesn't fit.
        """
        found = self.misfits(info)
        if any(misfit.blocks for misfit in found):
            raise PlanFileError(
                f"this plan doesn't fit {info.id}: " + "; ".join(str(misfit) for misfit in found)
            )

    def to_json(self) -> str:
        """The file's text."""
        entries: dict[str, Any] = {"schema": SCHEMA}
        for each in fields(self):
            entries[each.name] = getattr(self, each.name)
        entries |= {
            "plan": str(self.plan),
            "n_layers": self.n_layers,
            "n_branches": 2 * self.n_layers,
            "sampling": dict(self.sampling),
            "versions": dict(self.versions),
            "predicted": None if self.predicted is None else asdict(self.predicted),
            "measured": None if self.measured is None else asdict(self.measured),
            "check": None if self.check is None else dict(self.check),
        }
        entries["policy"] = self.request().policy_name
        return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "this plan file") -> PlanFile:
        """Read a file's text.

        Raises:
            PlanFileError: not such a file, or an entry that isn't allowed; says which.
        """
        try:
            return _from_entries(cls, parse_json(text))
        except (PlanFileError, PlanError, RequestError) as error:
            raise PlanFileError(f"{where}: {error}") from None


def read_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file; hold it against a model with `PlanFile.misfits` or `require`.

    Raises:
        PlanFileError: it can't be read; says why.
    """
    return PlanFile.from_json(read_text(path), where=Path(path).name)


def write_plan_file(path: str | Path, file: PlanFile) -> None:
    """Write a plan file.

    Raises:
        PlanFileError: it can't be written.
    """
    write_text(path, file.to_json())


def versions() -> dict[str, str]:
    """The libraries that decide about speed and bits, and their versions here."""
    try:
        own = importlib.metadata.version("selfspec-studio")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        own = "checkout"
    return {
        "selfspec-studio": own,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def hash_of_texts(texts: Iterable[str]) -> str:
    """SHA-256 of texts in order, so that one calibration set is told from another."""
    state = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        state.update(len(encoded).to_bytes(8, "big") + encoded)
    return state.hexdigest()


def _from_entries(cls: type[PlanFile], entries: Any) -> PlanFile:
    if not isinstance(entries, dict) or "schema" not in entries:
        raise PlanFileError(
            "no plan file of ours (it has no schema); other projects' are read by `import_plan`"
        )
    if entries["schema"] != SCHEMA or isinstance(entries["schema"], bool):
        raise PlanFileError(f"schema {shown(entries['schema'])} isn't known; {SCHEMA} is")
    values = {name: value for name, value in entries.items() if name != "schema"}
    for name in ("plan", "n_layers", "k", "model"):
        if name not in values:
            raise PlanFileError(f"it has no {name!r}")
    n_layers, n_branches = values.pop("n_layers"), values.pop("n_branches", None)
    check_layer_count(n_layers)
    if n_branches is not None and n_branches != 2 * n_layers:
        raise PlanFileError(
            f"{n_layers} layers have {2 * n_layers} branches, the file says {shown(n_branches)}"
        )
    policy = values.pop("policy", None)
    stops = values.get("confidence") is not None
    if policy not in (None, *(_LOOKING if stops else ("fixed", "auto"))):
        raise PlanFileError(
            f"policy {shown(policy)} doesn't go with confidence "
            f"{shown(values.get('confidence'))}: 'confidence' and 'adaptive' have one, 'fixed' "
            "and 'auto' have none"
        )
    values["policy"] = policy
    if unknown := values.keys() - {each.name for each in fields(cls)}:
        raise PlanFileError(f"{shown(min(unknown))} is no entry of schema {SCHEMA}")
    notation = values["plan"]
    if not isinstance(notation, str) or len(notation) > MAX_NOTATION:
        raise PlanFileError("'plan' is a text such as 'a3-12,m5,14' or '30%;128:50%'")
    if notation.count(";") >= MAX_STEPS:
        raise PlanFileError(f"'plan' is a schedule of more than {MAX_STEPS} plans")
    try:
        values["plan"] = parse_plan(notation, n_layers)
    except PlanError:
        raise
    except ValueError:  # a number of thousands of digits
        raise PlanFileError("'plan' can't be read: a number in it is too long") from None
    for name in ("predicted", "measured"):
        if (given := values.get(name)) is not None:
            known = {each.name for each in fields(Figures)}
            if not isinstance(given, dict) or given.keys() - known:
                raise PlanFileError(f"{name!r} has the entries {', '.join(sorted(known))}")
            values[name] = Figures(**given)
    if values.get("versions", {}) is None:
        raise PlanFileError("'versions' is a table of texts")
    return cls(**values)
