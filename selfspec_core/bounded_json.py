"""Small JSON files from anywhere: bounded in size, and refused with a message, never a trace."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

MAX_BYTES = 1 << 20
"""Longest file that is read; ours have about two thousand bytes."""
MAX_LAYERS = 1024


class PlanFileError(ValueError):
    """A file that can't be read or written; names the file, what is wrong and what is allowed."""


def read_text(path: str | Path) -> str:
    """A small text file's content.

    Raises:
        PlanFileError: no plain file, too long, or not UTF-8.
    """
    path = Path(path)
    try:
        if not path.is_file():  # nor a directory, a pipe or a device that never ends
            raise PlanFileError(f"there is no file {path}")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise PlanFileError(f"{path.name} is longer than a plan file's {MAX_BYTES:,} bytes")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlanFileError(f"{path.name} is no text in UTF-8") from None
    except (OSError, ValueError) as error:
        if isinstance(error, PlanFileError):
            raise
        raise PlanFileError(f"the file can't be read: {error}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text file.

    Raises:
        PlanFileError: it can't be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PlanFileError(f"the file can't be written: {error}") from None


def parse_json(text: str) -> Any:
    """JSON as the standard has it: no NaN, no infinity, no entry named twice.

    Raises:
        PlanFileError: it isn't that.
    """
    if len(text) > MAX_BYTES:
        raise PlanFileError(f"longer than a plan file's {MAX_BYTES:,} characters")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except PlanFileError:
        raise
    except RecursionError:
        raise PlanFileError("nested too deeply for a plan") from None
    except ValueError as error:  # malformed, or a number of thousands of digits
        raise PlanFileError(f"not JSON ({error})") from None


def _no_constant(name: str) -> NoReturn:
    raise PlanFileError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise PlanFileError(f"{shown(name)} stands there twice")
        entries[name] = value
    return entries


def check_layer_count(n_layers: Any) -> None:
    """Refuse what is no number of layers.

    Raises:
        PlanFileError: not a whole number from 1 to `MAX_LAYERS`.
    """
    if type(n_layers) is not int or not 1 <= n_layers <= MAX_LAYERS:
        raise PlanFileError(
            f"the number of layers must be 1 to {MAX_LAYERS}, got {shown(n_layers)}"
        )


def is_number(value: Any) -> bool:
    """Whether this is a finite number (and no truth value)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def shown(value: Any) -> str:
    """A value as it may stand in a message, cut where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number too long to show"
    if isinstance(value, list | dict):
        return f"a list of {len(value)}" if isinstance(value, list) else "a table"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
