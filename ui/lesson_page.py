"""All lessons as one HTML file that plays by itself: no server, no network, no model.

`python -m ui.lesson_page OUT.html` writes it; the teacher's page gives the same file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from selfspec_core.events import TraceError

from . import trace_page
from .lesson_book import Book, book
from .lessons import LessonError

STYLES = ("learn.css",)
SCRIPTS = (
    "learn_data.js",
    "learn_text.js",
    "learn_terms.js",
    "learn_setup.js",
    "learn_watch.js",
    "learn_coach.js",
    "learn_panel.js",
    "learn_offline.js",
)
"""What shows lessons, in this order; `ui.theme` takes all but the last, which is the page's own."""
WORDS = "learn."


def lesson_page(lessons: Book) -> str:
    """The page with all lessons, the glossary and every trace that lessons show."""
    traces = {name: lessons.trace(name) for name in lessons.traces()}
    data = {
        "index": lessons.index(),
        "glossary": lessons.glossary(),
        "labels": lessons.labels(),
        "lessons": {name: lessons.lesson(name) for name in lessons.lessons},
        "traces": traces,
    }
    first = next(iter(traces.values()), "")
    return trace_page.page(
        first, styles=STYLES, scripts=SCRIPTS, words=(WORDS,), setup={"lessons": data}
    )


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ui.lesson_page", description="Make a page that plays all lessons offline."
    )
    parser.add_argument("out", type=Path, help="the HTML file to write")
    options = parser.parse_args(argv)
    try:
        lessons = book()
        for reason in lessons.left_out.values():
            print(f"left out: {reason}", file=sys.stderr)
        page = lesson_page(lessons)
        options.out.write_text(page, encoding="utf-8")
    except (OSError, LessonError, TraceError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.out}: {len(page) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
