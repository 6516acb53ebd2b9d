"""Every word that the page shows, in its languages: one dictionary for Python and JavaScript.

`assets/words/*.json` hold {"key": {"en": "...", "zh": "..."}}; a key begins with its file's name
(`tune.title` is in `tune.json`). `{name}` in a text is filled in where it is shown.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import gradio as gr

from .places import ASSETS

LANGUAGES = ("en", "zh")
WORDS = ASSETS / "words"


@cache
def dictionary() -> dict[str, dict[str, str]]:
    """Language → key → text."""
    words: dict[str, dict[str, str]] = {language: {} for language in LANGUAGES}
    for path in sorted(WORDS.glob("*.json")):
        for key, texts in json.loads(path.read_text(encoding="utf-8")).items():
            for language in LANGUAGES:
                if language in texts:
                    words[language][key] = texts[language]
    return words


def t(key: str) -> Any:
    """A component's text (label, info, placeholder, button), which the browser translates.

    Raises:
        KeyError: no such key.
    """
    dictionary()["en"][
        key
    ]  # a mistyped key fails when the page is built, not in somebody's browser
    return gr.I18n()(key)


def i18n() -> gr.I18n:
    """What `launch` takes, so that components are translated."""
    return gr.I18n(**dictionary())
