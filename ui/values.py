"""Values as anybody may send them, checked: each function returns what was asked for, or refuses.

Gradio passes on whatever JSON it is sent, so a number may be a list and a text may be a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfspec_core.bounded_json import shown

from .words import msg, say

LARGEST = 2**63


class SettingsError(ValueError):
    """A setting that can't be used; the message says what is allowed."""

    words: dict[str, Any] | None = None
    """The message as the page takes it, where it has a key of its own."""

    @classmethod
    def of(cls, key: str, **values: Any) -> SettingsError:
        """The error whose sentence is in the dictionary."""
        error = cls(say(msg(key, **values)))
        error.words = msg(key, **values)
        return error


def text(name: str, value: Any, *, most: int | None = None) -> str:
    """A text of at most `most` characters.

    Raises:
        SettingsError: it isn't one.
    """
    if not isinstance(value, str):
        raise SettingsError.of("limits.not_text", name=name, value=shown(value))
    if most is not None and len(value) > most:
        raise SettingsError.of("limits.long_text", name=name, got=len(value), most=most)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SettingsError.of("limits.half_character", name=name) from None
    return value


def texts(name: str, value: Any) -> list[str]:
    """A list of texts.

    Raises:
        SettingsError: it isn't one.
    """
    if not isinstance(value, list):
        raise SettingsError.of("limits.not_texts", name=name, value=shown(value))
    return [text(f"{name}[{i}]", each) for i, each in enumerate(value)]


def flag(name: str, value: Any) -> bool:
    """True or False, not 1 or 0.

    Raises:
        SettingsError: it isn't.
    """
    if not isinstance(value, bool):
        raise SettingsError.of("limits.not_flag", name=name, value=shown(value))
    return value


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """One of a few names.

    Raises:
        SettingsError: it isn't.
    """
    if not isinstance(value, str) or value not in allowed:
        told = ", ".join(allowed)
        raise SettingsError.of("limits.choice", name=name, value=shown(value), allowed=told)
    return value


def number(
    name: str, value: Any, *, least: float | None = None, most: float | None = None
) -> float:
    """A number, True not being one.

    Raises:
        SettingsError: it isn't, or isn't within `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise SettingsError.of("limits.not_number", name=name, value=shown(value))
    try:
        found = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        raise SettingsError.of("limits.large", name=name) from None
    if least is not None and most is not None and not least <= found <= most:
        values = {"least": _short(least), "most": _short(most), "value": shown(value)}
        raise SettingsError.of("limits.range", name=name, **values)
    return found


def _short(bound: float) -> float:
    """600.0 is told as 600."""
    return int(bound) if float(bound).is_integer() else bound


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number; 2.0 is one.

    Raises:
        SettingsError: it isn't, or isn't within `least` and `most`.
    """
    found = number(name, value, least=least, most=most)
    if found in (float("inf"), float("-inf")) or found != int(found):
        raise SettingsError.of("limits.not_whole", name=name, value=shown(value))
    if abs(found) >= LARGEST:
        raise SettingsError.of("limits.large", name=name)
    return int(value)
