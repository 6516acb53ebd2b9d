"""What stands behind the endpoints `export` and `models`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from selfspec_core.plan import parse_plan

from . import values
from .session import Studio
from .settings import MAX_NAME, MAX_PLAN

OURS, SNIPPET = "plan", "snippet"


def exported(
    studio: Studio, plan: Any, *, format: Any, k: Any, confidence: Any, key: Any
) -> dict[str, Any]:
    """A plan as a file: its format, name and text.

    Raises:
        ValueError: something that isn't allowed, or that the format can't hold.
    """
    notation = values.text("plan", plan, most=MAX_PLAN)
    entry = values.text("key", key, most=MAX_NAME)
    stop = values.number("confidence", confidence)
    drafts = values.whole("k", k)
    studio.limits.check_k(drafts)
    studio.ready()
    # The model is there, so torch is: these import it.
    from selfspec_core.plan_files import PlanFile
    from selfspec_core.plan_formats import FORMATS, dump_plan
    from selfspec_core.snippet import snippet

    assert studio.loaded is not None
    info = studio.loaded.info
    name = values.choice("format", format, [OURS, SNIPPET, *FORMATS])
    parsed = parse_plan(notation, info.n_layers)
    if name in (OURS, SNIPPET):
        file = PlanFile.of(info, parsed, k=drafts, confidence=stop or None)
        if name == OURS:
            return {"format": name, "name": "plan.json", "text": file.to_json()}
        return {"format": name, "name": "draft.py", "text": snippet(file)}
    given = {"k": drafts, "confidence": stop or None, "key": entry or None}
    held = {n: v for n, v in given.items() if n in FORMATS[name].holds and v is not None}
    written = dump_plan(name, parsed, **held)
    return {"format": name, "name": f"{name}.json", "text": written}


async def known_models(studio: Studio) -> dict[str, Any]:
    """The loaded model, those that may be loaded, and the limits."""
    loaded = studio.loaded
    if studio.allowed is not None:
        names = list(studio.allowed)
    else:
        names = await asyncio.to_thread(_at_hand) if loaded is not None else [studio.model_name]
    limits = asdict(studio.limits)
    return {
        "status": studio.status.state,
        "loaded": None if loaded is None else loaded.info.to_dict(),
        "models": names,
        "limits": {name: value for name, value in limits.items() if name != "models"},
    }


def _at_hand() -> list[str]:
    from selfspec_core.loading import available

    return [model.name for model in available()]
