"""Errors as messages in any language: found again by the English text that they were raised with.

The core raises sentences in English. Those in `assets/words/errors.json` are templates of these
sentences, so a raised one is recognised, its values are taken out, and the page says it in its own
language. A sentence that isn't among them is shown as it was raised.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from .words import dictionary, msg

_INNER = {"text": "errors.", "allowed": "errors.allowed.", "name": "errors.name."}
"""Values that are messages themselves, and how the keys of those begin."""


def said(error: Exception | str) -> dict[str, Any]:
    """An error, or the text of one, as a message."""
    if words := getattr(error, "words", None):  # it says itself how it is said
        return dict(words)
    return recognised(str(error), "errors.") or msg("errors.other", text=str(error))


def recognised(text: str, prefix: str) -> dict[str, Any] | None:
    """The message among those whose key begins with `prefix` that reads `text`, or None."""
    for key, pattern in _patterns(prefix):
        if match := pattern.fullmatch(text):
            args: dict[str, Any] = match.groupdict()
            for name, inner in _INNER.items():
                if name in args:
                    args[name] = recognised(args[name], inner) or args[name]
            return msg(key, **args)
    return None


@cache
def _patterns(prefix: str) -> list[tuple[str, re.Pattern[str]]]:
    """The templates as patterns: those with most words of their own first."""
    found = []
    for key, template in dictionary()["en"].items():
        own = re.sub(r"\{\w+\}", "", template)
        if key.startswith(prefix) and own.strip():
            parts = re.split(r"\{(\w+)\}", template)
            pattern = "".join(
                f"(?P<{part}>.*?)" if place % 2 else re.escape(part)
                for place, part in enumerate(parts)
            )
            found.append((len(own), key, re.compile(pattern, re.DOTALL)))
    return [(key, pattern) for _, key, pattern in sorted(found, key=lambda one: -one[0])]
