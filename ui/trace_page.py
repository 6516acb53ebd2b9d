"""A trace as one HTML file that replays by itself: no server, no network, no Gradio.

`python -m ui.trace_page TRACE.ndjson OUT.html` writes it. The page in the browser makes the same
file from its own styles and scripts (`assets/trace_file.js`), so that a trace never leaves it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

from selfspec_core.events import (
    EVENTS,
    REASONS,
    SCHEMA,
    SOURCES,
    STATUSES,
    Candidate,
    Residual,
    TraceError,
)

from .places import ASSETS
from .recorded import read_recording
from .words import dictionary

STYLES = ("page.css", "views.css", "decode_views.css")
SCRIPTS = (
    "words.js",
    "store.js",
    "reading.js",
    "blocks.js",
    "tokens.js",
    "inspector.js",
    "figures.js",
    "rounds.js",
    "rewind.js",
    "decision.js",
    "stepper.js",
    "race.js",
    "pinned.js",
    "trace_file.js",
    "stage.js",
    "offline.js",
)
"""What shows a trace, in this order: a saved page has these, and `ui.theme` adds the panels."""
_WORDS = ("common.", "decode.", "errors.", "limits.", "views.")


def skeleton() -> str:
    """The page without its parts; `{{name}}` is filled in here and in `assets/trace_file.js`."""
    return (ASSETS / "trace_page.html").read_text(encoding="utf-8")


def trace_schema() -> dict[str, Any]:
    """What a trace may hold, for the browser's own check: read off the events themselves.

    Returns:
        `schema` (its number), `kinds` and `nested` (name → field → annotation, and whether it
        must be there), `values` (kind → field → what is allowed).
    """

    def shape(kind: type) -> dict[str, Any]:
        return {
            field.name: {
                "type": str(field.type),
                "required": field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING,
            }
            for field in dataclasses.fields(kind)
        }

    return {
        "schema": SCHEMA,
        "kinds": {kind.type: shape(kind) for kind in EVENTS},
        "nested": {kind.__name__: shape(kind) for kind in (Candidate, Residual)},
        "values": {
            "verdict": {"status": STATUSES},
            "commit": {"source": SOURCES},
            "done": {"reason": REASONS},
        },
    }


def trace_page(value: str) -> str:
    """The page that shows a value of the stage (header and lines, as `TraceFeed` writes them)."""
    return page(value)


def page(
    value: str,
    *,
    styles: tuple[str, ...] = (),
    scripts: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    setup: dict[str, Any] | None = None,
) -> str:
    """The same with more in it: styles, scripts, words by how their keys begin, and data.

    Only what shows a trace is marked, so that a page which this one saves holds that and no more.
    """
    said = {
        language: {key: text for key, text in texts.items() if key.startswith((*_WORDS, *words))}
        for language, texts in dictionary().items()
    }
    data = {"dictionary": said, "traceSchema": trace_schema(), "tracePage": skeleton()}
    own = [f'<style data-offline="{n}">{_asset(n)}</style>' for n in STYLES]
    acts = [f'<script data-offline="{n}">{_asset(n)}</script>' for n in SCRIPTS]
    parts = {
        "styles": "".join([*own, *(f"<style>{_asset(n)}</style>" for n in styles)]),
        "scripts": "\n".join([*acts, *(f"<script>{_asset(n)}</script>" for n in scripts)]),
        "setup": json.dumps({**data, **(setup or {})}, ensure_ascii=False).replace("<", "\\u003c"),
        "trace": value.replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts.get(found[1], found[0]), skeleton())


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ui.trace_page", description="Make a page that replays a trace offline."
    )
    parser.add_argument("trace", type=Path, help="a trace as NDJSON; NAME.json beside it is read")
    parser.add_argument("out", type=Path, help="the HTML file to write")
    options = parser.parse_args(argv)
    try:
        page = trace_page(read_recording(options.trace).value)
        options.out.write_text(page, encoding="utf-8")
    except (OSError, TraceError, UnicodeDecodeError) as error:
        print(f"{options.trace}: {error}", file=sys.stderr)
        return 2
    print(f"{options.out}: {len(page) / 1e3:.0f} kB")
    return 0


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
