"""What a card of the Tune panel shows: one JSON object, sent again and again while work goes on.

Values carry codes and arguments, not sentences: `{"key": "tune.step.costs", "args": {…}}` is
put into words in the browser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import words
from .feed import as_line


class TuneError(ValueError):
    """Something that a person should read, by its key in `assets/words/tune.json`."""

    def __init__(self, key: str, **args: Any) -> None:
        super().__init__(words.text(key, **args))
        self.key, self.args_of_text = key, args

    def said(self) -> dict[str, Any]:
        """As the page takes it."""
        return said(self.key, **self.args_of_text)


@dataclass(frozen=True)
class Progress:
    """How far a piece of work is.

    Args:
        key, args: what is being done, in the dictionary's words.
        done: share of it, 0 to 1; None where nobody knows.
        left: seconds for the rest; None where nobody knows.
    """

    key: str
    args: Mapping[str, Any] = field(default_factory=dict)
    done: float | None = None
    left: float | None = None


@dataclass(frozen=True)
class Patch:
    """Entries of the card's data that are new; a name that begins with _ stays on the server."""

    entries: Mapping[str, Any]


class TuneFeed:
    """A card's value.

    Args:
        run: number of the work; the page ignores what an older one still says.
        entries: data that is there from the start.
    """

    def __init__(self, run: int, **entries: Any) -> None:
        self._value: dict[str, Any] = {"run": run, "state": "waiting", "progress": None, **entries}

    def take(self, item: Any) -> bool:
        """Take what a job yields; whether it was for the page."""
        if isinstance(item, Progress):
            self._value["progress"] = {
                **said(item.key, **item.args),
                "done": rounded(item.done),
                "left": rounded(item.left),
            }
        elif isinstance(item, Patch):
            self._value.update(item.entries)
        else:
            return False
        return True

    def entry(self, name: str) -> Any:
        """An entry of the data, if it is there."""
        return self._value.get(name)

    def value(self, state: str, **entries: Any) -> str:
        """The value; `state` is waiting, running, done, stopped or error."""
        self._value.update(state=state, **entries)
        if state not in ("waiting", "running"):
            self._value["progress"] = None
        return text_of({k: v for k, v in self._value.items() if not k.startswith("_")})


def said(key: str, **args: Any) -> dict[str, Any]:
    """A sentence as the page takes it, always with its arguments."""
    return {"args": {}, **words.msg(key, **args)}


def text_of(value: Mapping[str, Any]) -> str:
    """JSON in which no text can look like markup."""
    return as_line(value).replace("<", "\\u003c")


def rounded(value: float | None) -> float | None:
    """To five digits, which is what a chart can show; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
