"""Record what the lessons show: the traces that they replay, and the figures that they name.

`python -m ui.lessons_record` runs the built-in model and writes `assets/traces/lessons/` (each
trace with what was measured beside it, as `ui.record` does) and `assets/lessons/figures.json`.
`--only plain,forwards` does these traces and parts alone, and leaves the others as they are.
Nothing else may run meanwhile: times are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from selfspec_core.events import Done, Round, from_ndjson

from . import lessons_measured
from .lessons_measured import PARTS, burning
from .places import ASSETS
from .record import record
from .session import Studio
from .settings import Settings

TRACES = ASSETS / "traces" / "lessons"
FIGURES = ASSETS / "lessons" / "figures.json"
COMMAND = "python -m ui.lessons_record"

BREAD = "Explain in simple words why bread dough rises before it is baked."
TEA = "Write step by step how to make a good cup of tea."


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A trace to record.

    Args:
        settings: what is run.
        story: what a lesson says of it: `done.FIELD` or `round.FIELD:ROUND` → lowest and highest
            value. Another machine's near-ties may tell another story, and then the lesson
            must be told another way.
        same_as: the trace whose text this one must have, token for token.
        disturbed: run while another process burns every core.
    """

    settings: Settings
    story: dict[str, tuple[float, float]] | None = None
    same_as: str | None = None
    disturbed: bool = False


def _bread(plan: str, k: int, tokens: int = 48, seed: int = 0) -> Settings:
    return Settings(prompt=BREAD, plan=plan, k=k, max_new_tokens=tokens, seed=seed)


def _tea(plan: str, **more: Any) -> Settings:
    drawn = {"temperature": 0.8, "seed": 2, "k": 3, "max_new_tokens": 40}
    return Settings(prompt=TEA, plan=plan, **{**drawn, **more})


_WORKED: dict[str, Any] = {
    "temperature": 1.0,
    "seed": 4,
    "threshold": 0.7,
    "verify_from": "first_skipped",
}

RECIPES: dict[str, Recipe] = {
    "plain": Recipe(settings=_bread("none", 0)),
    "bread": Recipe(
        settings=_bread("a3-8", 3),
        story={
            "round.accepted:2": (0, 0),
            "round.accepted:3": (2, 2),
            "round.accepted:4": (3, 3),
            "done.alpha": (0.5, 1),
        },
        same_as="plain",
    ),
    "k-1": Recipe(settings=_bread("a3-8", 1), same_as="plain"),
    "k-8": Recipe(settings=_bread("a3-8", 8)),
    "one-attention": Recipe(
        settings=_bread("a8", 3), story={"done.alpha": (0.85, 1)}, same_as="plain"
    ),
    "first-mlp": Recipe(
        settings=_bread("m0", 3, 32), story={"done.alpha": (0, 0.1)}, same_as="plain"
    ),
    "first-attention": Recipe(
        settings=_bread("a0-5", 3), story={"done.alpha": (0, 0.4)}, same_as="plain"
    ),
    "last-attention": Recipe(
        settings=_bread("a24-29", 3), story={"done.alpha": (0, 0.4)}, same_as="plain"
    ),
    "drawn": Recipe(settings=_tea("a3-8"), story={"round.accepted:4": (2, 2)}),
    "drawn-badly": Recipe(settings=_tea("m0"), story={"done.alpha": (0, 0.15)}, same_as="drawn"),
    "worked-coupled": Recipe(settings=_tea("6-9", **_WORKED)),
    "worked-threshold": Recipe(settings=_tea("6-9", rule="threshold", **_WORKED)),
    "short": Recipe(settings=_bread("a3-8", 3, 12), same_as="plain"),
    "deep": Recipe(settings=_bread("3-26", 3, 40), story={"done.alpha": (0, 0.1)}, same_as="plain"),
    # Greedy text is the same with every seed, and plain decoding is measured again for a new one.
    "busy": Recipe(settings=_bread("a3-8", 3, seed=1), same_as="plain", disturbed=True),
}
"""Name → what is recorded. A trace comes after the one that it is held against."""


class StoryError(RuntimeError):
    """A recorded run doesn't show what a lesson says of it."""


def record_traces(names: Sequence[str]) -> None:
    """Record these traces, each in its file.

    Raises:
        StoryError: a run doesn't show what the lesson says.
    """
    studio = Studio("builtin")
    studio.start_loading()
    try:
        while studio.engine is None or studio.engine.building:  # eager until it is compiled
            if studio.status.state == "failed":
                raise RuntimeError(studio.status.text)
            time.sleep(0.2)
        for name in names:
            recipe = RECIPES[name]
            path = TRACES / f"{name}.ndjson"
            with burning() if recipe.disturbed else contextlib.nullcontext():
                asyncio.run(record(studio, recipe.settings, path))
            verify(name)
            print(f"{name}: {path.stat().st_size // 1000} KB", flush=True)
    finally:
        studio.close()


def verify(name: str) -> None:
    """Hold a recorded trace against its story.

    Raises:
        StoryError: it tells another one.
    """
    recipe = RECIPES[name]
    events = list(from_ndjson((TRACES / f"{name}.ndjson").read_text(encoding="utf-8")))
    done = events[-1]
    assert isinstance(done, Done)
    for what, (low, high) in (recipe.story or {}).items():
        source, _, number = what.partition(":")
        event: Any = done
        if number:
            event = next(e for e in events if isinstance(e, Round) and e.round == int(number))
        found = getattr(event, source.partition(".")[2])
        if not low <= found <= high:
            raise StoryError(f"{name}: {what} is {found}, the lesson says {low} to {high}")
    if recipe.same_as is not None:
        *_, other = from_ndjson((TRACES / f"{recipe.same_as}.ndjson").read_text(encoding="utf-8"))
        assert isinstance(other, Done)
        if done.tokens != other.tokens[: len(done.tokens)]:
            raise StoryError(f"{name}: its text isn't that of {recipe.same_as}")


def record_parts(names: Sequence[str]) -> None:
    """Measure these parts of the figures, and keep the others as they are."""
    for name in names:
        values, command = PARTS[name]()
        known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
        parts, all_values = known.get("parts", {}), known.get("values", {})
        where = lessons_measured.setting()
        parts[name] = {
            "date": _today(),
            "machine": where["machine"],
            "command": command or f"{COMMAND} --only {name}",
        }
        all_values[name] = rounded(values)
        figures = {
            **where,
            "date": _today(),
            "command": COMMAND,
            "parts": dict(sorted(parts.items())),
            "values": dict(sorted(all_values.items())),
        }
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(
            json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
        print(f"{name}: {json.dumps(all_values[name])[:400]}", flush=True)


def rounded(value: Any) -> Any:
    """Numbers to five figures: no measurement here is better than that."""
    if isinstance(value, dict):
        return {str(key): rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "--only",
        default="traces,figures",
        metavar="NAME,NAME",
        help=f"traces ({', '.join(RECIPES)}) and parts of the figures ({', '.join(PARTS)}); "
        "`traces` and `figures` are all of a kind",
    )
    parser.add_argument("--verify", action="store_true", help="hold what is there against stories")
    options = parser.parse_args()
    wanted = [name.strip() for name in options.only.split(",") if name.strip()]
    unknown = set(wanted) - {"traces", "figures", *RECIPES, *PARTS}
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    traces = [name for name in RECIPES if name in wanted or "traces" in wanted]
    if options.verify:
        for name in traces:
            verify(name)
        return
    if traces:
        record_traces(traces)
    record_parts([name for name in PARTS if name in wanted or "figures" in wanted])


if __name__ == "__main__":
    main()
