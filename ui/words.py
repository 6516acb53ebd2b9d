"""Every word that the page shows, in its languages: one dictionary for Python and JavaScript.

`assets/words/*.json` hold {"key": {"en": "...", "zh": "..."}}; a key begins with its file's name
(`common.close` is in `common.json`). `{name}` in a text is filled in where it is shown, and
`{n|token|tokens}` picks a word by number.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import gradio as gr

from .places import ASSETS

LANGUAGES = ("en", "zh")
WORDS = ASSETS / "words"
_PLACE = re.compile(r"\{(\w+)(?:\|([^|{}]*)\|([^|{}]*))?\}")


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
    _known(key)
    return gr.I18n()(key)


def msg(key: str, **args: Any) -> dict[str, Any]:
    """A sentence for a view: what to say, not how; `SelfSpec.say` says it in the page's language.

    Args:
        key: of the dictionary.
        args: what the text's places are filled with; may be such messages themselves.

    Raises:
        KeyError: no such key.
    """
    _known(key)
    return {"key": key, "args": args} if args else {"key": key}


def text(key: str, language: str = "en", **args: Any) -> str:
    """The text itself, for what isn't a page: a log, an API's answer, a file.

    Raises:
        KeyError: no such key.
    """
    _known(key)
    return _PLACE.sub(lambda place: _fill(place, args, language), dictionary()[language][key])


def say(message: Any, language: str = "en") -> str:
    """The text of what `msg` made, of a list of such messages, or of a plain string."""
    if isinstance(message, list):
        return " ".join(filter(None, (say(part, language) for part in message)))
    if isinstance(message, dict):
        return text(message["key"], language, **message.get("args", {}))
    return "" if message is None else str(message)


def i18n() -> gr.I18n:
    """What `launch` takes, so that components are translated."""
    return gr.I18n(**dictionary())


def _fill(place: re.Match[str], args: dict[str, Any], language: str) -> str:
    name, one, many = place.groups()
    if name not in args:
        return place.group()
    if one is not None:
        return one if args[name] == 1 else many
    return say(args[name], language)


def _known(key: str) -> None:
    # A mistyped key fails where it is used, not in somebody's browser.
    dictionary()["en"][key]
