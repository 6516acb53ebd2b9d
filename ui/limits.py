"""What the operator allows, in one place, and the gate that holds people to it.

Every field of `Limits` is read from the environment as `SELFSPEC_` and its name in capitals, or
given to `app.py --limit name=value`. Whatever is refused is told as a code with arguments, whose
words are in `assets/words/limits.json`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from selfspec_core.policies import MAX_K
from selfspec_core.scheduler import Load

from .words import msg, say

PREFIX = "SELFSPEC_"
MCP = "mcp"
_MINUTE = 60.0
_KEY_LENGTH = 64  # a session's name comes from outside and may have any length


class LimitError(ValueError):
    """Something that the operator doesn't allow.

    Args:
        code: which limit, without "limits." before it.
        values: what its sentence is filled in with.
    """

    def __init__(self, code: str, **values: Any) -> None:
        self.code = code
        self.words: dict[str, Any] = msg(f"limits.{code}", **values)
        """The sentence as the page takes it, in any language."""
        super().__init__(say(self.words))


def _limit(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server allows; 0 is "no limit" where the meaning says so.

    Raises:
        ValueError: a value that allows nothing, or isn't a number.
    """

    max_new_tokens: int = _limit(4096, "longest text, in tokens")
    prompt_characters: int = _limit(20_000, "longest prompt, in characters")
    prompt_tokens: int = _limit(4096, "longest prompt, in tokens")
    max_k: int = _limit(MAX_K, "longest draft")
    models: tuple[str, ...] = _limit((), "names that may be loaded, by commas; empty for any")
    seconds: float = _limit(300.0, "engine time that one generation may take, in seconds")
    analysis_seconds: float = _limit(
        600.0, "engine time that one check, importance or search may take, in seconds"
    )
    prompts: int = _limit(16, "most prompts in one check, importance or search")
    queue: int = _limit(64, "generations running or waiting, of all people together")
    background_queue: int = _limit(64, "analyses and searches of all people together")
    live: int = _limit(32, "generations that take turns at once; each holds a cache")
    per_person: int = _limit(8, "requests that one browser tab or client has under way at once")
    per_minute: int = _limit(120, "requests a minute of one browser tab or client; 0: no limit")
    per_address: int = _limit(0, "requests under way at once from one address; 0: no limit")
    per_address_minute: int = _limit(0, "requests a minute from one address; 0: no limit")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "models":
                if not isinstance(value, tuple) or not all(isinstance(m, str) for m in value):
                    raise ValueError(f"models must be names, got {value!r}")
                continue
            least = 0 if "no limit" in each.metadata["meaning"] else 1
            whole = isinstance(each.default, int)
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not math.isfinite(value)
                or value < least
            ):
                kind = "a whole number" if whole else "a number"
                raise ValueError(f"{each.name} must be {kind} of at least {least}, got {value!r}")
        if self.max_k > MAX_K:
            raise ValueError(f"max_k must be at most {MAX_K}, got {self.max_k}")

    @classmethod
    def read(cls, environ: Mapping[str, str], options: Iterable[str] = ()) -> Limits:
        """The limits of an environment; `name=value` options go before it.

        Raises:
            ValueError: no such limit, or a value that can't be read; says which.
        """
        known = {each.name: each for each in fields(cls)}
        texts = {
            name: environ[PREFIX + name.upper()]
            for name in known
            if PREFIX + name.upper() in environ
        }
        for option in options:
            name, equals, value = option.partition("=")
            if not equals or name not in known:
                raise ValueError(f"no limit {option!r}: one of {', '.join(known)}, as name=value")
            texts[name] = value
        return cls(**{name: _read(name, text, known[name].default) for name, text in texts.items()})

    # -- what a request may ask for -------------------------------------------------------------

    def check_prompt(self, prompt: str) -> None:
        """Refuse a prompt of too many characters."""
        if len(prompt) > self.prompt_characters:
            raise LimitError("prompt_characters", most=self.prompt_characters, got=len(prompt))

    def check_prompt_tokens(self, tokens: int) -> None:
        """Refuse a prompt of too many tokens."""
        if tokens > self.prompt_tokens:
            raise LimitError("prompt_tokens", most=self.prompt_tokens, got=tokens)

    def check_length(self, tokens: int) -> None:
        """Refuse a length below 0 or above what is allowed."""
        if not 0 <= tokens <= self.max_new_tokens:
            raise LimitError("tokens", most=self.max_new_tokens, got=tokens)

    def check_k(self, k: int) -> None:
        """Refuse a draft length that is longer than what is allowed."""
        if k > self.max_k:
            raise LimitError("k", most=self.max_k, got=k)

    def check_model(self, name: str) -> None:
        """Refuse a model that isn't on the list."""
        if self.models and name not in self.models:
            raise LimitError("model", got=name, allowed=", ".join(self.models))


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return type(default)(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None


@dataclass(frozen=True)
class Visitor:
    """Who asks; also whose share of the engine it is.

    Args:
        session: a browser tab's or a client's name, which it chose itself.
        address: where it comes from, as far as the server can know.
    """

    session: str | None = None
    address: str | None = None


def visitor_of(request: Any) -> Visitor:
    """The visitor of a `gr.Request`.

    The address is the connection's. Behind a proxy the server takes it from `X-Forwarded-For`,
    only if the connection comes from where FORWARDED_ALLOW_IPS says (this machine, unless set):
    the header alone could be anybody's. Calls through MCP come from the server itself with the
    caller's headers, so they count together as one.
    """
    headers = getattr(request, "headers", None) or {}
    if headers.get("x-gradio-user") == MCP:
        return Visitor(MCP, MCP)
    session = getattr(request, "session_hash", None)
    address = getattr(getattr(request, "client", None), "host", None)
    return Visitor(
        str(session)[:_KEY_LENGTH] if session else None,
        str(address)[:_KEY_LENGTH] if address else None,
    )


def _session_of(person: Any) -> str | None:
    return person.session if isinstance(person, Visitor) else None


class Gate:
    """Counts what people ask for; holds nothing of them for longer than a minute.

    Args:
        limits: what is allowed.
        clock: seconds.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._recent: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def admit(
        self,
        visitor: Visitor,
        load: Load,
        *,
        background: bool = False,
        supersedes: bool = False,
        expected_seconds: float | None = None,
    ) -> None:
        """Let a request in, or refuse it; one that is refused doesn't count.

        Args:
            visitor: who asks.
            load: what the engine has to do already.
            background: it is an analysis or a search.
            supersedes: it ends what the same person has under way.
            expected_seconds: when there will be a place, as far as it is known.

        Raises:
            LimitError: which limit it would break.
        """
        limits, people = self._limits, load.people
        under_way = load.background if background else load.running + load.waiting
        if under_way >= (limits.background_queue if background else limits.queue):
            if expected_seconds:
                raise LimitError("queue_full_for", n=under_way, seconds=math.ceil(expected_seconds))
            raise LimitError("queue_full", n=under_way)
        # Panels name a person by the session alone.
        mine = sum(visitor.session in (other, _session_of(other)) for other in people)
        if visitor.session and not supersedes and mine >= limits.per_person:
            raise LimitError("person_busy", n=limits.per_person)
        here = sum(
            isinstance(other, Visitor) and other.address == visitor.address for other in people
        )
        if visitor.address and 0 < limits.per_address <= here:
            raise LimitError("address_busy", n=limits.per_address)
        with self._lock:
            now = self._clock()
            self._forget(now - _MINUTE)
            keys = [
                (("session", visitor.session), limits.per_minute, "person_rate"),
                (("address", visitor.address), limits.per_address_minute, "address_rate"),
            ]
            counted = [(key, most, code) for key, most, code in keys if key[1] and most]
            for key, most, code in counted:
                times = self._recent.get(key, deque())
                if len(times) >= most:
                    left = max(1, math.ceil(times[0] + _MINUTE - now))
                    raise LimitError(code, n=most, seconds=left)
            for key, _, _ in counted:
                self._recent.setdefault(key, deque()).append(now)
                self._recent.move_to_end(key)

    def _forget(self, before: float) -> None:
        while self._recent:
            key, times = next(iter(self._recent.items()))
            if times[-1] > before:
                break
            del self._recent[key]
        for times in self._recent.values():
            while times and times[0] <= before:
                times.popleft()

    def __len__(self) -> int:
        return len(self._recent)
