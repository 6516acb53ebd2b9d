"""Where searches keep what they found, so that a stopped one goes on: a file a visitor's study.

The study's id is made and kept in the browser. Files are few, small and short-lived.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

from selfspec_core.builtin import home

from .tune_feed import TuneError

MAX_STUDIES = 64
MAX_BYTES = 16 << 20
"""Of one study; a search stops there."""
MAX_AGE_SECONDS = 7 * 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{32}\Z")
_SUFFIX = ".journal"


def folder() -> Path:
    """Where studies are."""
    return home() / "studies"


def path_of(study: Any) -> Path:
    """The file of a study, in a folder that is there; what is old or too much is removed.

    Args:
        study: 32 hexadecimal digits, as the browser makes them.

    Raises:
        TuneError: no such id, or the folder can't be made.
    """
    if not isinstance(study, str) or not _ID.match(study):
        raise TuneError("tune.error.study")
    where = folder()
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuneError("tune.error.storage", text=str(error)) from None
    path = where / f"{study}{_SUFFIX}"
    clean(where, keep=path)
    return path


def clean(where: Path, *, keep: Path | None = None) -> None:
    """Remove what is old, and the oldest of what is too much."""
    found = []
    for path in where.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another process may be cleaning too
            found.append((path.stat().st_mtime, path))
    found.sort(reverse=True)
    oldest = time.time() - MAX_AGE_SECONDS
    others = [(changed, path) for changed, path in found if path != keep]
    for number, (changed, path) in enumerate(others, start=1):
        if number >= MAX_STUDIES or changed < oldest:
            remove(path)


def remove(path: Path) -> None:
    """Remove a study."""
    for each in (path, *path.parent.glob(f"{path.name}.lock*")):
        with contextlib.suppress(OSError):
            each.unlink()


def is_full(path: Path) -> bool:
    """Whether a study has grown to what is allowed."""
    with contextlib.suppress(OSError):
        return path.stat().st_size > MAX_BYTES
    return False
