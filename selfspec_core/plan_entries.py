"""Entries of a plan file that are tables, such as figures and sampling settings, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .bounded_json import PlanFileError, is_number, shown

MAX_TEXT, MAX_ENTRIES = 10_000, 64
SAMPLING = (
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "min_new_tokens",
)
"""What a file says of sampling beside the temperature; biases and own processors don't travel."""

_WHOLE = ("top_k", "min_new_tokens")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a plan gains; None where it isn't known.

    Args:
        alpha: accepted ÷ drafted, 0 to 1.
        tau: tokens committed per verification forward.
        tokens_per_second: of the rounds, prefill not counted.
        speedup: against the fastest plain decoding on that device.
    """

    alpha: float | None = None
    tau: float | None = None
    tokens_per_second: float | None = None
    speedup: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            most = 1.0 if name == "alpha" else math.inf
            if value is not None and (not is_number(value) or not 0 <= value <= most):
                allowed = "0 to 1" if name == "alpha" else "0 or more"
                raise PlanFileError(f"{name} must be {allowed}, got {shown(value)}")


def check_sampling(entries: Any) -> None:
    """A table of some of `SAMPLING`; which values are allowed is for `Sampling` to say.

    Raises:
        PlanFileError: anything else.
    """
    if not isinstance(entries, Mapping) or entries.keys() - set(SAMPLING):
        raise PlanFileError(f"'sampling' is a table of {', '.join(SAMPLING)}")
    for name, value in entries.items():
        if not is_number(value) or (name in _WHOLE and not isinstance(value, int)):
            kind = "a whole number" if name in _WHOLE else "a number"
            raise PlanFileError(f"{name} must be {kind}, got {shown(value)}")


def check_text(name: str, value: Any, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        raise PlanFileError(f"{name} must be a text, got {shown(value)}")


def check_flat(name: str, entries: Any, *, text_only: bool) -> None:
    """A table of a few numbers and short texts."""
    if entries is None and not text_only:
        return
    if not isinstance(entries, Mapping) or len(entries) > MAX_ENTRIES:
        raise PlanFileError(f"{name} must be a table of at most {MAX_ENTRIES} entries")
    for key, value in entries.items():
        text = isinstance(value, str) and len(value) <= MAX_TEXT
        plain = value is None or isinstance(value, bool) or is_number(value)
        if (
            not isinstance(key, str)
            or len(key) > MAX_TEXT
            or not (text or (plain and not text_only))
        ):
            kind = "texts" if text_only else "texts and numbers"
            raise PlanFileError(f"{name} is a table of {kind}, got {shown(key)}: {shown(value)}")
