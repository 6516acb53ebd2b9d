"""Plans to and from files: what each format takes, the text to download, and what a file says.

Nothing that a person uploads is kept: the browser reads the file, the text comes here, and only
the plan in it goes back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import LengthSchedule, PlanError, SkipPlan
from selfspec_core.policies import MAX_K

from . import errors
from .settings import Settings
from .tune_feed import TuneError, said
from .tune_plans import read_plan
from .tune_subject import Asked

if TYPE_CHECKING:
    from selfspec_core.engine import Engine
    from selfspec_core.plan_files import PlanFile

OURS, SNIPPET, CHECKPOINT = "plan", "snippet", "draft-checkpoint"
FILES = {
    OURS: "plan.json",
    "draft-verify": "skip_layers.json",
    "conflayers": "conflayers.json",
    "knapspec": "knapspec.json",
    "layerskip": "layerskip.json",
    "generation-config": "generation_config.json",
    SNIPPET: "draft.py",
    CHECKPOINT: "draft-checkpoint.zip",
}
"""Format → the name of its file, in the order shown."""
WHOLE_LAYERS, EARLY_EXIT = ("conflayers", CHECKPOINT), ("layerskip", "generation-config")
MAX_CHARACTERS = 1 << 20
_NAMED = 10  # plans of a table that are named in an answer
SAMPLING = ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty")
"""Settings beside the temperature that our own file may hold."""
_PLAIN = Settings(prompt="")


@dataclass(frozen=True)
class Imported:
    """What a file says.

    Args:
        plan: its text.
        settings: of `Settings`, those that the file gives.
        answer: for the page: `key`, `args`, and `notes` of the same kind.
    """

    plan: str
    settings: dict[str, Any]
    answer: dict[str, Any]


def refusals(plan: SkipPlan | LengthSchedule) -> dict[str, dict[str, Any] | None]:
    """For every format, why it can't hold a plan; None where it can."""
    return {name: _refusal(name, plan) for name in FILES}


def _refusal(name: str, plan: SkipPlan | LengthSchedule) -> dict[str, Any] | None:
    if name in (OURS, SNIPPET):
        return None
    if isinstance(plan, LengthSchedule):
        return said("tune.cannot.schedule")
    half = min(plan.attention ^ plan.mlp, default=None)
    if name in WHOLE_LAYERS and half is not None:
        kept = "mlp" if half in plan.attention else "attention"
        return said(f"tune.cannot.half_{kept}", layer=half)
    if name in EARLY_EXIT and not _is_tail(plan):
        return said("tune.cannot.tail", plan=str(plan))
    if name == CHECKPOINT and not plan.n_skipped:
        return said("tune.cannot.nothing")
    return None


def _is_tail(plan: SkipPlan) -> bool:
    """Whether it leaves the model after some layer and skips all after it."""
    first = min(plan.attention | plan.mlp, default=plan.n_layers)
    tail = frozenset(range(first, plan.n_layers))
    return bool(tail) and first > 0 and plan.attention == tail and plan.mlp == tail


def plan_file(engine: Engine, settings: Settings) -> PlanFile:
    """Our own file of the plan and settings in Decode.

    Raises:
        TuneError: the plan or a setting can't be used.
    """
    from selfspec_core.plan_files import PlanFile, PlanFileError

    plan = read_plan(settings.plan, engine.n_layers)
    try:
        request = replace(settings, prompt=settings.prompt or "-").request(engine.n_layers)
        return PlanFile.of_request(engine.loaded.info, replace(request, plan=plan))
    except (PlanFileError, ValueError) as error:
        raise TuneError("tune.error.text", text=errors.said(error)) from None


def exported(engine: Engine, asked: Asked, name: str, taken: Any = None) -> tuple[str, str, bool]:
    """The (file name, text) of the plan in Decode in a format that is a text.

    Args:
        engine: the model at hand.
        asked: the settings in Decode, and what the panel measures on.
        name: of the format.
        taken: the point of a search that was taken over last, as the page holds it.

    Returns:
        With them, whether figures of this plan were left out, being of other settings.

    Raises:
        TuneError: no such format, or it can't hold the plan.
    """
    from selfspec_core.plan_files import PlanFileError
    from selfspec_core.plan_formats import FORMATS, dump_plan
    from selfspec_core.snippet import snippet

    if name not in FILES or name == CHECKPOINT:
        raise TuneError("tune.error.format")
    settings = asked.settings
    file = plan_file(engine, settings)
    if refused := _refusal(name, file.plan):
        raise TuneError(refused["key"], **refused["args"])
    if name == OURS:
        made = with_figures(file, taken, asked.terms(engine))
        return FILES[name], made.to_json(), made is file and _is_of(taken, file)
    if name == SNIPPET:
        prompt = settings.prompt.strip() or "Explain in two sentences why the sky is blue."
        return FILES[name], snippet(file, prompt=prompt, name=FILES[name]), False
    given = {"k": file.k, "confidence": file.confidence}
    held = {k: v for k, v in given.items() if k in FORMATS[name].holds and v is not None}
    try:
        return FILES[name], dump_plan(name, file.plan, **held), False
    except PlanFileError as error:
        raise TuneError("tune.error.text", text=errors.said(error)) from None


def with_figures(file: PlanFile, taken: Any, terms: str) -> PlanFile:
    """The file with what a search predicted and measured, where it is of these very settings.

    Args:
        file: of the plan in Decode.
        taken: `plan`, `k`, `draft_temperature`, `at` (`Asked.terms` of the search), α, τ and
            speed-up, and `measured` or None; from a page, so anything.
        terms: `Asked.terms` now.
    """
    from selfspec_core.plan_files import Figures, PlanFileError

    now = {"k": file.k, "draft_temperature": file.draft_temperature}
    if not _is_of(taken, file) or taken.get("at") != terms:
        return file
    if any(taken.get(name) != value for name, value in now.items()):
        return file

    def figures(of: Any) -> Figures | None:
        names = {"alpha": "alpha", "tau": "tau", "speedup": "speedup", "tokens_per_second": "tps"}
        if not isinstance(of, dict):
            return None
        return Figures(**{name: of.get(said) for name, said in names.items()})

    try:
        return replace(file, predicted=figures(taken), measured=figures(taken.get("measured")))
    except (PlanFileError, TypeError, ValueError):
        return file  # no page sends such figures


def _is_of(taken: Any, file: PlanFile) -> bool:
    return isinstance(taken, dict) and taken.get("plan") == str(file.plan)


# -- import ---------------------------------------------------------------------------------------


def imported(
    engine: Engine, text: Any, name: Any = "", key: Any = None, *, max_k: int = MAX_K
) -> Imported:
    """Read a file of any known format.

    Args:
        engine: the model at hand.
        text: the file's.
        name: the file's, for the answer.
        key: which plan of a table of several.
        max_k: longest draft that this server allows, which answers name.

    Raises:
        TuneError: it can't be read, or doesn't fit this model; says which.
    """
    from selfspec_core.bounded_json import PlanFileError, parse_json

    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise TuneError("tune.import.too_large", most=MAX_CHARACTERS // 1024)
    if not text.strip():
        raise TuneError("tune.import.empty")
    shown = str(name or "")[:80]
    stripped = text.lstrip("\ufeff")
    if not stripped.lstrip().startswith(("{", "[")):
        return _notation(engine, stripped.strip(), shown)
    try:
        data = parse_json(stripped)
    except PlanFileError as error:
        raise TuneError("tune.import.broken", text=errors.said(error)) from None
    if isinstance(data, dict) and "schema" in data:
        return _ours(engine, stripped, shown, max_k)
    wanted = key if isinstance(key, str) and key else None
    return _foreign(engine, stripped, data, shown, wanted, max_k)


def _notation(engine: Engine, text: str, name: str) -> Imported:
    """A plan as text, as the plan's own field takes it."""
    if len(text) > 2000 or "\n" in text:
        raise TuneError("tune.import.unknown")
    try:
        plan = read_plan(text, engine.n_layers)
    except TuneError as error:
        raise TuneError("tune.import.not_a_plan", **error.args_of_text) from None
    return Imported(str(plan), {}, _answer("notation", plan, name, []))


def _ours(engine: Engine, text: str, name: str, max_k: int) -> Imported:
    from selfspec_core.plan_files import PlanFile, PlanFileError

    where = name or "the file"
    try:
        file = PlanFile.from_json(text, where=where)
    except PlanFileError as error:
        why = errors.said(str(error).removeprefix(f"{where}: "))
        raise TuneError("tune.import.refused", text=_within(why, max_k)) from None
    info = engine.loaded.info
    if file.n_layers != info.n_layers:
        raise TuneError(
            "tune.import.layers", file=file.n_layers, here=info.n_layers, model=file.model[:80]
        )
    notes = [
        said(f"tune.misfit.{misfit.what}", file=misfit.file[:120], here=misfit.here[:120])
        for misfit in file.misfits(info)
    ]
    settings: dict[str, Any] = {
        "rule": file.rule,
        "temperature": file.temperature,
        "confidence": file.confidence or 0.0,
        "draft_policy": file.policy or ("fixed" if file.confidence is None else "confidence"),
        "draft_temperature": file.draft_temperature,
        **{name: file.sampling.get(name, getattr(_PLAIN, name)) for name in SAMPLING},
    }
    if file.threshold is not None:
        settings["threshold"] = file.threshold
    if file.k:
        settings["k"] = file.k
    else:
        notes.append(said("tune.import.no_k"))
    measured = file.measured
    if measured is not None and measured.speedup is not None:
        notes.append(said("tune.import.measured", times=measured.speedup))
    return Imported(str(file.plan), settings, _answer("ours", file.plan, name, notes))


def _within(message: dict[str, Any], max_k: int) -> dict[str, Any]:
    """What is said of a k, with this server's limit in it instead of the program's own."""
    if message["key"] not in ("errors.k", "errors.k_in_file"):
        return message
    return {**message, "args": {**message["args"], "most": max_k}}


def _foreign(
    engine: Engine, text: str, data: Any, name: str, key: str | None, max_k: int
) -> Imported:
    from selfspec_core.bounded_json import PlanFileError
    from selfspec_core.plan_formats import FORMATS, parse_foreign

    found = next((each for each in FORMATS.values() if each.looks(data)), None)
    if found is None:
        raise TuneError("tune.import.unknown")
    if key is None and "key" in found.holds and isinstance(data, dict) and len(data) > 1:
        names = [str(entry)[:40] for entry in list(data)[:_NAMED]]
        raise TuneError("tune.import.several", count=len(data), names=", ".join(names))
    if isinstance(data, list) and len(data) not in (0, 2 * engine.n_layers) and len(data) % 2 == 0:
        raise TuneError(
            "tune.import.layers", file=len(data) // 2, here=engine.n_layers, model=found.title
        )
    if (outside := _outside(data, engine.n_layers)) is not None:
        raise TuneError("tune.import.outside", layer=outside, last=engine.n_layers - 1)
    try:
        foreign = parse_foreign(text, engine.n_layers, format=found.name, key=key)
    except (PlanFileError, PlanError) as error:
        raise TuneError("tune.import.refused", text=errors.said(error)) from None
    said_of_file = (_within(errors.said(note), max_k) for note in foreign.notes)
    notes = [said("tune.error.text", text=note) for note in said_of_file]
    notes.append(said("tune.import.no_model", layers=engine.n_layers))
    settings: dict[str, Any] = {}
    if foreign.k:
        settings["k"] = foreign.k
    if foreign.confidence is not None:
        settings["confidence"] = foreign.confidence
    return Imported(str(foreign.plan), settings, _answer(found.name, foreign.plan, name, notes))


def _outside(data: Any, n_layers: int) -> int | None:
    """A layer that a table of lists names and the model doesn't have."""
    entries = data.values() if isinstance(data, dict) else ()
    lists = [one for entry in entries if isinstance(entry, dict) for one in entry.values()]
    named = (i for one in lists if isinstance(one, list) for i in one if type(i) is int)
    return next((i for i in named if n_layers <= i < 10_000), None)


def _answer(
    format: str, plan: SkipPlan | LengthSchedule, name: str, notes: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        **said(
            "tune.import.read",
            format=said(f"tune.format.{format}"),
            plan=str(plan) if len(str(plan)) <= 200 else str(plan)[:199] + "…",
            name=json.dumps(name, ensure_ascii=False) if name else "",
        ),
        "notes": notes[:12],
    }
